-- What a group of drafts depends on, and what it changes. Each statement is prepared once a connection,
-- so that a group costs two messages: one begins, locks and loads, one writes and commits.

-- Whatever is read after this statement, in statements of their own, is read under the lock.
-- name: lock
SELECT FROM custody_sync.head WHERE one = 1 FOR UPDATE

-- Asserts that supersede nothing, and repairs, depend on less.
-- name: load_plain
SELECT
    (SELECT json_build_array(seq, tx_time, hash) FROM custody_sync.head WHERE one = 1),
    (SELECT json_agg(json_build_array(e.event_id, e.body, e.hash, s.content, s.identity, s.refs))
     FROM json_array_elements_text(%(events)s::json) AS i(event_id)
     JOIN custody_sync.events e ON e.event_id = i.event_id COLLATE "C"
     LEFT JOIN custody_sync.sealed s ON s.seq = e.seq),
    (SELECT json_agg(json_build_array(c.fact_id, c.standing))
     FROM json_array_elements_text(%(ids)s::json) AS i(fact_id)
     JOIN custody_sync.claims c ON c.fact_id = i.fact_id COLLATE "C"),
    NULL, NULL,
    (SELECT json_agg(json_build_array({placement}))
     FROM json_to_recordset(%(keys)s::json) AS k(store text, external_id text)
     JOIN custody_sync.placements p
        ON hashtextextended(p.external_id, 0) = hashtextextended(k.external_id, 0)
        AND p.store = k.store COLLATE "C" AND p.external_id = k.external_id COLLATE "C"),
    NULL, NULL,
    (SELECT json_build_array(key, value, holder) FROM custody_sync.notes WHERE topic = 'moved' LIMIT 1)

-- name: load
WITH ids AS MATERIALIZED (
    SELECT fact_id COLLATE "C" AS fact_id FROM json_array_elements_text(%(ids)s::json) AS i(fact_id)
), chained AS MATERIALIZED (
    SELECT fact_id COLLATE "C" AS fact_id FROM json_array_elements_text(%(chained)s::json) AS i(fact_id)
), named AS MATERIALIZED (
    SELECT f.seq, f.fact_id, f.root, f.supersedes, f.effect_seq FROM ids JOIN custody_sync.facts f USING (fact_id)
), mine AS MATERIALIZED (
    SELECT n.* FROM chained JOIN named n USING (fact_id)
), links AS MATERIALIZED (
    SELECT l.seq FROM (SELECT DISTINCT root FROM mine) r CROSS JOIN LATERAL (
        SELECT f.seq FROM custody_sync.facts f
        WHERE f.root = r.root AND f.effect_seq IS NOT NULL AND f.retract_seq IS NULL
        ORDER BY f.effect_seq DESC LIMIT %(size)s
    ) l UNION SELECT l.seq FROM mine m CROSS JOIN LATERAL (
        (SELECT f.seq FROM custody_sync.facts f
         WHERE f.root = m.root AND f.effect_seq <= m.effect_seq AND f.retract_seq IS NULL
         ORDER BY f.effect_seq DESC LIMIT %(size)s)
        UNION ALL (SELECT f.seq FROM custody_sync.facts f
         WHERE f.root = m.root AND f.effect_seq > m.effect_seq AND f.retract_seq IS NULL
         ORDER BY f.effect_seq LIMIT %(size)s)
    ) l
), loaded AS MATERIALIZED (
    SELECT seq FROM named UNION SELECT seq FROM links
    UNION SELECT f.seq FROM mine JOIN custody_sync.facts f ON f.fact_id = mine.supersedes
), facts AS MATERIALIZED (
    SELECT f.* FROM loaded JOIN custody_sync.facts f USING (seq)
)
SELECT
    (SELECT json_build_array(seq, tx_time, hash) FROM custody_sync.head WHERE one = 1),
    (SELECT json_agg(json_build_array(e.event_id, e.body, e.hash, s.content, s.identity, s.refs))
     FROM json_array_elements_text(%(events)s::json) AS i(event_id)
     JOIN custody_sync.events e ON e.event_id = i.event_id COLLATE "C"
     LEFT JOIN custody_sync.sealed s ON s.seq = e.seq),
    (SELECT json_agg(json_build_array(c.fact_id, c.standing)) FROM ids JOIN custody_sync.claims c USING (fact_id)),
    (SELECT json_agg(json_build_array({fact})) FROM facts f),
    (SELECT json_agg(seq) FROM links),
    (SELECT json_agg(json_build_array({placement})) FROM (
        SELECT p.* FROM facts f JOIN custody_sync.placements p USING (fact_id)
        UNION SELECT p.* FROM json_to_recordset(%(keys)s::json) AS k(store text, external_id text)
        JOIN custody_sync.placements p
            ON hashtextextended(p.external_id, 0) = hashtextextended(k.external_id, 0)
            AND p.store = k.store COLLATE "C" AND p.external_id = k.external_id COLLATE "C"
     ) p),
    (SELECT json_agg(json_build_array(o.fact_id, o.store)) FROM facts f JOIN custody_sync.owed o USING (fact_id)),
    (SELECT json_agg(json_build_array(o.fact_id, o.hold_id)) FROM facts f JOIN custody_sync.holds o USING (fact_id)),
    (SELECT json_build_array(key, value, holder) FROM custody_sync.notes WHERE topic = 'moved' LIMIT 1)

-- name: write
WITH head AS (
    UPDATE custody_sync.head SET seq = %(seq)s, tx_time = %(tx_time)s, hash = %(hash)s, count = count + %(count)s
    WHERE one = 1
), log AS (
    INSERT INTO custody_sync.events (seq, event_id, fact_id, tx_time, hash, body)
    SELECT * FROM unnest(%(e1)s::bigint[], %(e2)s::text[], %(e3)s::text[], %(e4)s::text[], %(e5)s::text[], %(e6)s::text[])
), sealed AS (
    INSERT INTO custody_sync.sealed
        (seq, content, content_salt, identity, identity_salt, refs, refs_salt)
    SELECT * FROM unnest(%(s1)s::bigint[], %(s2)s::text[], %(s3)s::bytea[], %(s4)s::text[], %(s5)s::bytea[],
        %(s6)s::text[], %(s7)s::bytea[])
), claims AS (
    INSERT INTO custody_sync.claims (fact_id, standing, seq)
    SELECT * FROM unnest(%(c1)s::text[], %(c2)s::text[], %(c3)s::bigint[])
), blocks AS (
    INSERT INTO custody_sync.blocks (block, changed)
    SELECT * FROM unnest(%(b1)s::bigint[], %(b2)s::bigint[])
    ON CONFLICT (block) DO UPDATE SET changed = excluded.changed
), facts AS (
    INSERT INTO custody_sync.facts ({fact_columns}, tx_time)
    SELECT * FROM unnest(%(f1)s::text[], %(f2)s::bigint[], %(f3)s::text[], %(f4)s::text[], %(f5)s::text[],
        %(f6)s::text[], %(f7)s::text[], %(f8)s::text[], %(f9)s::text[], %(f10)s::text[],
        %(f11)s::text[], %(f12)s::text[], %(f13)s::bigint[], %(f14)s::bigint[],
        %(f15)s::bigint[], %(f16)s::boolean[], %(f17)s::boolean[], %(f18)s::text[], %(f19)s::text[])
)
INSERT INTO custody_sync.placements ({placement_columns})
SELECT * FROM unnest(%(p1)s::text[], %(p2)s::text[], %(p3)s::text[], %(p4)s::text[], %(p5)s::text[], %(p6)s::text[],
        %(p7)s::text[], %(p8)s::text[], %(p9)s::bigint[])

-- name: drop_placements
DELETE FROM custody_sync.placements p
USING json_to_recordset(%(rows)s::json) AS r(store text, external_id text, fact_id text)
WHERE hashtextextended(p.external_id, 0) = hashtextextended(r.external_id, 0)
    AND p.store = r.store COLLATE "C" AND p.external_id = r.external_id COLLATE "C"
    AND p.fact_id = r.fact_id COLLATE "C"

-- name: change_facts
UPDATE custody_sync.facts f SET effect_seq = r.effect_seq, retract_seq = r.retract_seq,
    forget_seq = r.forget_seq, live = r.live, identity_gone = r.identity_gone,
    space = r.space, subject = r.subject, predicate = r.predicate, covered_from = r.covered_from
FROM json_to_recordset(%(rows)s::json) AS r(seq bigint, effect_seq bigint, retract_seq bigint,
    forget_seq bigint, live boolean, identity_gone boolean, space text, subject text, predicate text,
    covered_from text)
WHERE f.seq = r.seq

-- name: settle_owed
DELETE FROM custody_sync.owed o USING json_to_recordset(%(rows)s::json) AS r(fact_id text, store text)
WHERE o.fact_id = r.fact_id COLLATE "C" AND o.store = r.store COLLATE "C"

-- name: add_owed
INSERT INTO custody_sync.owed (fact_id, store, due_at)
SELECT fact_id, store, due_at FROM json_to_recordset(%(rows)s::json) AS r(fact_id text, store text, due_at text)
ON CONFLICT DO NOTHING

-- name: release_holds
DELETE FROM custody_sync.holds o USING json_to_recordset(%(rows)s::json) AS r(fact_id text, hold_id text)
WHERE o.fact_id = r.fact_id COLLATE "C" AND o.hold_id = r.hold_id COLLATE "C"

-- name: add_holds
INSERT INTO custody_sync.holds (fact_id, hold_id, seq)
SELECT fact_id, hold_id, seq FROM json_to_recordset(%(rows)s::json)
    AS r(fact_id text, hold_id text, seq bigint)

-- name: erase_content
UPDATE custody_sync.sealed SET content = NULL, content_salt = NULL
WHERE seq IN (SELECT seq FROM custody_sync.events WHERE fact_id = %(fact_id)s)

-- The forget's own reason stays: it is the record of why nothing else is left.
-- name: erase_identity
UPDATE custody_sync.sealed SET identity = NULL, identity_salt = NULL
WHERE seq IN (SELECT seq FROM custody_sync.events WHERE fact_id = %(fact_id)s AND seq < %(seq)s)

-- name: erase_refs
UPDATE custody_sync.sealed SET refs = NULL, refs_salt = NULL
WHERE seq IN (SELECT seq FROM custody_sync.events WHERE fact_id = %(fact_id)s AND seq <= %(seq)s)

-- name: note_erasure
INSERT INTO custody_sync.notes AS n (topic, key, value, holder, since)
VALUES ('erasure', %(fact_id)s, %(what)s, %(holder)s, %(since)s)
ON CONFLICT (topic, key) DO UPDATE SET value = greatest(n.value, excluded.value),
    holder = excluded.holder, xid = excluded.xid
