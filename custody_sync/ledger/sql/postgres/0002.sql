-- custody-sync ledger, schema version 2 (Postgres): a page of the past costs a page.
-- By 1,024 places of the log: the last event that changed whether a fact asserted there is believed. Of a
-- block that nothing has changed since, the past is as the present. What was there before is dated late,
-- which makes no answer wrong.

CREATE TABLE custody_sync.blocks (
    block   bigint PRIMARY KEY,
    changed bigint NOT NULL
) WITH (fillfactor = 50);

INSERT INTO custody_sync.blocks (block, changed)
SELECT DISTINCT f.seq >> 10, h.seq FROM custody_sync.facts f CROSS JOIN custody_sync.head h;
