-- Appending what depends on nothing that is there: one message takes the lock, looks, writes and commits.

-- Whoever waits longer goes by a clock that was read too long ago. Whether a name is on record is looked up
-- before the lock, since others wait for whoever has it: of what is recorded in between a unique key tells.
-- The setting is not called after the schema, which may have the name of an extension with settings of its own.
-- name: before
SELECT set_config('lock_timeout', '{patience}ms', true), set_config('custody_sync_plain.on_record', (
    EXISTS (SELECT FROM custody_sync.events WHERE event_id = ANY (%(e2)s::text[]))
    OR EXISTS (SELECT FROM custody_sync.claims WHERE fact_id = ANY (%(e3)s::text[]))
)::text, true)

-- name: clock
SELECT extract(epoch FROM clock_timestamp())

-- Places of the log are those of an empty ledger, and move behind its head here; so do times, and the chain.
-- Nothing is written, and no row is found, where one of the names is on record, something stops the ledger,
-- or the message came late: then its sender's clock was read too long ago as well.
-- name: append
WITH RECURSIVE head AS MATERIALIZED (
    SELECT seq, tx_time, hash FROM custody_sync.head WHERE one = 1 AND coalesce(tx_time, '') < '9999'
    AND extract(epoch FROM clock_timestamp()) < %(until)s::double precision
    AND current_setting('custody_sync_plain.on_record') = 'false'
    AND NOT EXISTS (SELECT FROM custody_sync.notes WHERE topic = 'moved')
    AND NOT EXISTS (
        SELECT FROM unnest(%(p1)s::text[], %(p2)s::text[]) AS k(store, external_id)
        JOIN custody_sync.placements p
            ON hashtextextended(p.external_id, 0) = hashtextextended(k.external_id, 0)
            AND p.store = k.store COLLATE "C" AND p.external_id = k.external_id COLLATE "C"
    )
), chain AS (
    SELECT 0::bigint AS place, seq, tx_time, hash, NULL::text COLLATE "C" AS body FROM head
    UNION ALL
    SELECT c.place + 1, c.seq + 1, t.tx_time, encode(sha256(convert_to(b.body, 'UTF8')), 'hex') COLLATE "C", b.body
    FROM chain c CROSS JOIN LATERAL (
        SELECT CASE WHEN c.tx_time >= %(now)s COLLATE "C"
            THEN to_char((c.tx_time::timestamptz + interval '1 microsecond') AT TIME ZONE 'UTC',
                'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') ELSE %(now)s END COLLATE "C" AS tx_time
    ) t CROSS JOIN LATERAL (
        SELECT (%(starts)s::text[])[c.place + 1] || c.hash || (%(ends)s::text[])[c.place + 1] || c.seq + 1
            || ',"tx_time":"' || t.tx_time || '","v":{version}}' COLLATE "C" AS body
    ) b WHERE c.place < %(count)s::bigint
), log AS (
    INSERT INTO custody_sync.events (seq, event_id, fact_id, tx_time, hash, body)
    SELECT c.seq, (%(e2)s::text[])[c.place], (%(e3)s::text[])[c.place], c.tx_time, c.hash, c.body
    FROM chain c WHERE c.place > 0
), forward AS (
    UPDATE custody_sync.head h SET seq = l.seq, tx_time = l.tx_time, hash = l.hash, count = count + l.place
    FROM chain l WHERE h.one = 1 AND l.place = %(count)s::bigint
), sealed AS (
    INSERT INTO custody_sync.sealed
        (seq, content, content_salt, identity, identity_salt, refs, refs_salt)
    SELECT h.seq + s.place, s.c, s.cs, s.i, s.is_, s.r, s.rs
    FROM unnest(%(s1)s::bigint[], %(s2)s::text[], %(s3)s::bytea[], %(s4)s::text[], %(s5)s::bytea[],
        %(s6)s::text[], %(s7)s::bytea[]) AS s(place, c, cs, i, is_, r, rs) CROSS JOIN head h
), claims AS (
    INSERT INTO custody_sync.claims (fact_id, standing, seq)
    SELECT c.fact_id, c.standing, h.seq + c.place
    FROM unnest(%(c1)s::text[], %(c2)s::text[], %(c3)s::bigint[]) AS c(fact_id, standing, place) CROSS JOIN head h
), blocks AS (
    INSERT INTO custody_sync.blocks (block, changed)
    SELECT c.seq >> %(bits)s::integer, max(c.seq) FROM chain c WHERE c.place > 0 GROUP BY 1
    ON CONFLICT (block) DO UPDATE SET changed = excluded.changed
), facts AS (
    INSERT INTO custody_sync.facts ({fact_columns}, tx_time)
    SELECT f.a, h.seq + f.b, f.c, f.d, f.e, f.f, f.g, f.h, f.i, f.j, f.k, f.l, h.seq + f.m, NULL, NULL,
        f.n, f.o, NULL, c.tx_time
    FROM unnest(%(f1)s::text[], %(f2)s::bigint[], %(f3)s::text[], %(f4)s::text[], %(f5)s::text[],
        %(f6)s::text[], %(f7)s::text[], %(f8)s::text[], %(f9)s::text[], %(f10)s::text[],
        %(f11)s::text[], %(f12)s::text[], %(f13)s::bigint[], %(f16)s::boolean[], %(f17)s::boolean[])
        AS f(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o)
    CROSS JOIN head h JOIN chain c ON c.place = f.b
), placements AS (
    INSERT INTO custody_sync.placements ({placement_columns})
    SELECT p.a, p.b, p.c, p.d, p.e, p.f, p.g, p.h, h.seq * {most} + p.i
    FROM unnest(%(p1)s::text[], %(p2)s::text[], %(p3)s::text[], %(p4)s::text[], %(p5)s::text[], %(p6)s::text[],
        %(p7)s::text[], %(p8)s::text[], %(p9)s::bigint[]) AS p(a, b, c, d, e, f, g, h, i) CROSS JOIN head h
)
SELECT c.seq, c.tx_time, c.hash, h.hash FROM chain c CROSS JOIN head h WHERE c.place > 0 ORDER BY c.place
