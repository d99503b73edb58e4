-- custody-sync ledger, schema version 3 (Postgres): facts that are valid from later.
-- A fact is covered from when the next link of its chain begins; what is owed is due once its fact begins.

ALTER TABLE custody_sync.facts ADD covered_from text COLLATE "C";

UPDATE custody_sync.facts f SET covered_from = (
    SELECT d.valid_from FROM custody_sync.facts d
    WHERE d.root = f.root AND d.effect_seq > f.effect_seq AND d.retract_seq IS NULL
    ORDER BY d.effect_seq LIMIT 1
) WHERE NOT f.live AND f.effect_seq IS NOT NULL AND f.retract_seq IS NULL;

ALTER TABLE custody_sync.owed ADD due_at text COLLATE "C";
UPDATE custody_sync.owed o SET due_at = f.valid_from FROM custody_sync.facts f WHERE f.fact_id = o.fact_id;
ALTER TABLE custody_sync.owed ALTER due_at SET NOT NULL;
