-- Version 1 kept one placement for every entry whose id an erasure took, named after its row. Version 2
-- keeps one for each fact and store, named after the fact, so that it follows from the log alone.

UPDATE placements SET external_id = 'erased~~' || id
WHERE external_id = 'erased~' || id AND fact_id IN (SELECT fact_id FROM facts WHERE identity_gone);

DELETE FROM placements WHERE external_id GLOB 'erased~~*' AND id > (
    SELECT min(p.id) FROM placements p
    WHERE p.fact_id = placements.fact_id AND p.store = placements.store AND p.external_id GLOB 'erased~~*'
);

UPDATE placements SET
    external_id = 'erased~' || (SELECT f.seq FROM facts f WHERE f.fact_id = placements.fact_id),
    until = (SELECT f.valid_to FROM facts f WHERE f.fact_id = placements.fact_id),
    scope = NULL, stored_at = NULL, state = 'gone', outcome = 'verified'
WHERE external_id GLOB 'erased~~*';

CREATE INDEX facts_live ON facts (seq) WHERE live;
CREATE INDEX facts_live_space ON facts (space) WHERE live;
CREATE INDEX facts_claimed ON facts (seq) WHERE effect_seq IS NULL AND retract_seq IS NULL AND forget_seq IS NULL;
CREATE INDEX facts_later ON facts (valid_from) WHERE supersedes IS NOT NULL;
