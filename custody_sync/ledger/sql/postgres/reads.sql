-- The questions a ledger answers; each is one statement, and so of one snapshot.
-- A page comes with the head it was read at: one row at least, whose other columns may be null.

-- name: head
SELECT seq, tx_time, hash FROM custody_sync.head WHERE one = 1

-- name: whereabouts
SELECT has_function_privilege('pg_control_system()', 'execute'), d.datname, d.oid::text, n.nspname,
    clock_timestamp()
FROM custody_sync.head h JOIN pg_class c ON c.oid = h.tableoid JOIN pg_namespace n ON n.oid = c.relnamespace,
    pg_database d
WHERE h.one = 1 AND d.datname = current_database()

-- name: cluster
SELECT system_identifier::text FROM pg_control_system()

-- name: settings
SELECT name, value FROM custody_sync.settings

-- name: at_instant
SELECT seq, tx_time, hash FROM custody_sync.events WHERE tx_time <= %(tx_at)s ORDER BY tx_time DESC LIMIT 1

-- A link covers what took effect before it; links of a chain that are in effect and not retracted
-- took effect in the order of the chain, so no walk along it is needed.
-- name: believed
f.effect_seq <= at.seq AND (f.retract_seq IS NULL OR f.retract_seq > at.seq)
AND f.valid_from <= at.valid_at AND (f.valid_to IS NULL OR f.valid_to > at.valid_at)
AND (f.forget_seq IS NULL OR f.forget_seq > at.seq)
AND NOT EXISTS (
    SELECT FROM custody_sync.facts d
    WHERE d.root = f.root AND d.effect_seq > f.effect_seq AND d.effect_seq <= at.seq
    AND (d.retract_seq IS NULL OR d.retract_seq > at.seq) AND d.valid_from <= at.valid_at
)

-- name: claimed
f.seq <= at.seq AND (f.effect_seq IS NULL OR f.effect_seq > at.seq)
AND (f.retract_seq IS NULL OR f.retract_seq > at.seq) AND (f.forget_seq IS NULL OR f.forget_seq > at.seq)
AND f.valid_from <= at.valid_at AND (f.valid_to IS NULL OR f.valid_to > at.valid_at)

-- At the head, and at no time before it, three sets with an index each hold all that can be believed:
-- facts that nothing covers, claims, and facts covered only by what begins later than asked.
-- name: live
SELECT {columns} FROM custody_sync.facts f
WHERE f.live AND f.valid_from <= at.valid_at AND (f.valid_to IS NULL OR f.valid_to > at.valid_at){filters}
ORDER BY f.seq LIMIT %(limit)s

-- name: waiting
SELECT {columns} FROM custody_sync.facts f
WHERE f.effect_seq IS NULL AND f.retract_seq IS NULL AND f.forget_seq IS NULL
AND f.valid_from <= at.valid_at AND (f.valid_to IS NULL OR f.valid_to > at.valid_at){filters}
ORDER BY f.seq LIMIT %(limit)s

-- name: not_yet_covered
SELECT {columns} FROM (
    SELECT DISTINCT d.root FROM custody_sync.facts d WHERE d.supersedes IS NOT NULL AND d.valid_from > at.valid_at
) later CROSS JOIN LATERAL (
    SELECT * FROM custody_sync.facts f WHERE f.root = later.root OFFSET 0
) f
WHERE NOT f.live AND {believed}{filters} ORDER BY f.seq LIMIT %(limit)s

-- name: any
SELECT {columns} FROM custody_sync.facts f WHERE {condition}{filters} ORDER BY f.seq LIMIT %(limit)s

-- Blocks of the log in a row that have all changed since, or of which none has. Of the latter the past is
-- as the present; one after the other in the order of the log, until there is enough for a page.
-- name: past
SELECT f.* FROM (
    SELECT min(block) << {bits} AS first, ((max(block) + 1) << {bits}) - 1 AS last, changed FROM (
        SELECT b.block, b.changed > at.seq AS changed, row_number() OVER (ORDER BY b.block)
            - row_number() OVER (PARTITION BY b.changed > at.seq ORDER BY b.block) AS run
        FROM custody_sync.blocks b WHERE b.block BETWEEN %(after)s::bigint >> {bits} AND at.seq >> {bits}
    ) b GROUP BY changed, run ORDER BY first
) r CROSS JOIN LATERAL ({sets}) f ORDER BY r.first, f.seq LIMIT %(limit)s

-- name: as_of
WITH found AS ({at}), at AS (
    SELECT coalesce(max(seq), 0) AS seq, max(tx_time) AS tx_time, max(hash) AS hash,
        coalesce(%(valid_at)s, greatest(%(now)s, max(tx_time))) COLLATE "C" AS valid_at
    FROM found
)
SELECT at.seq, at.tx_time, at.hash, {fact}
FROM at LEFT JOIN LATERAL (SELECT * FROM ({sets}) u ORDER BY seq LIMIT %(limit)s) f ON true
LEFT JOIN custody_sync.sealed s ON s.seq = f.seq ORDER BY f.seq

-- name: get
SELECT {fact} FROM custody_sync.facts f LEFT JOIN custody_sync.sealed s ON s.seq = f.seq
WHERE f.fact_id = %(fact_id)s

-- name: history
SELECT h.seq, h.tx_time, h.hash, e.seq, e.body, e.hash, s.content, s.identity, s.refs
FROM custody_sync.head h LEFT JOIN LATERAL (
    SELECT * FROM custody_sync.events WHERE fact_id = %(fact_id)s AND seq > %(after)s
    ORDER BY seq LIMIT %(limit)s
) e ON true
LEFT JOIN custody_sync.sealed s ON s.seq = e.seq WHERE h.one = 1 ORDER BY e.seq

-- name: events
SELECT e.body, e.hash, s.content, s.content_salt, s.identity, s.identity_salt, s.refs, s.refs_salt
FROM custody_sync.events e LEFT JOIN custody_sync.sealed s ON s.seq = e.seq
WHERE e.seq > %(after)s ORDER BY e.seq LIMIT %(limit)s

-- name: spaces
WITH RECURSIVE step(space) AS (
    (SELECT space FROM custody_sync.facts WHERE space > %(after)s ORDER BY space LIMIT 1)
    UNION ALL
    SELECT (SELECT f.space FROM custody_sync.facts f WHERE f.space > step.space ORDER BY f.space LIMIT 1)
    FROM step WHERE step.space IS NOT NULL
)
SELECT space FROM step WHERE space IS NOT NULL LIMIT %(limit)s

-- name: accounts
SELECT h.seq, h.tx_time, h.hash, f.* FROM custody_sync.head h LEFT JOIN LATERAL (
    SELECT f.seq, f.fact_id, f.space, f.subject, f.predicate, f.tx_time, f.retract_seq IS NOT NULL,
        f.forget_seq IS NOT NULL, f.identity_gone,
        (SELECT e.tx_time FROM custody_sync.facts d JOIN custody_sync.events e ON e.seq = d.effect_seq
         WHERE d.root = f.root AND d.effect_seq > f.effect_seq AND d.retract_seq IS NULL
         ORDER BY d.effect_seq LIMIT 1),
        ARRAY(SELECT o.hold_id FROM custody_sync.holds o WHERE o.fact_id = f.fact_id)
    FROM custody_sync.facts f WHERE {where} ORDER BY f.seq LIMIT %(limit)s
) f ON true WHERE h.one = 1 ORDER BY f.seq

-- name: known
SELECT c.fact_id, c.standing FROM json_array_elements_text(%(ids)s::json) AS asked(fact_id)
JOIN custody_sync.claims c ON c.fact_id = asked.fact_id COLLATE "C"

-- name: facts
SELECT {fact} FROM json_array_elements_text(%(ids)s::json) AS asked(fact_id)
JOIN custody_sync.facts f ON f.fact_id = asked.fact_id COLLATE "C"
LEFT JOIN custody_sync.sealed s ON s.seq = f.seq

-- name: placements_of
SELECT {placement} FROM json_array_elements_text(%(ids)s::json) AS asked(fact_id)
JOIN custody_sync.placements p ON p.fact_id = asked.fact_id COLLATE "C" ORDER BY p.id

-- name: placements
SELECT {placement} FROM custody_sync.placements p WHERE p.fact_id = %(fact_id)s ORDER BY p.id

-- name: placements_in
SELECT h.seq, h.tx_time, h.hash, p.* FROM custody_sync.head h LEFT JOIN LATERAL (
    SELECT {placement}, p.id FROM custody_sync.placements p
    WHERE p.state IN ({states}) AND p.id > %(after)s ORDER BY p.id LIMIT %(limit)s
) p ON true WHERE h.one = 1 ORDER BY p.id

-- What has ended does not go on when a clock goes back: the head's time counts as well.
-- name: ended
SELECT h.seq, h.tx_time, h.hash, p.* FROM custody_sync.head h LEFT JOIN LATERAL (
    SELECT {placement}, p.id FROM custody_sync.placements p
    WHERE p.store = %(store)s AND p.state IN ('held', 'kept') AND p.until <= greatest(%(now)s, h.tx_time)
    AND p.id > %(after)s
    ORDER BY p.id LIMIT %(limit)s
) p ON true WHERE h.one = 1 ORDER BY p.id

-- name: owed
SELECT o.fact_id, o.store FROM custody_sync.owed o JOIN custody_sync.facts f ON f.fact_id = o.fact_id
CROSS JOIN (SELECT greatest(%(now)s, tx_time) COLLATE "C" AS now FROM custody_sync.head WHERE one = 1) h
WHERE {where} (o.fact_id, o.store) > (%(after_fact)s, %(after_store)s) AND o.due_at <= h.now
AND (f.valid_to IS NULL OR f.valid_to > h.now) AND (f.covered_from IS NULL OR f.covered_from > h.now)
ORDER BY o.fact_id, o.store LIMIT %(limit)s

-- What takes its place when it begins leaves it nothing to be placed for.
-- name: waiting_owed
WITH h AS MATERIALIZED (
    SELECT seq, tx_time, hash, greatest(%(now)s, tx_time) COLLATE "C" AS now FROM custody_sync.head WHERE one = 1
), page AS MATERIALIZED (
    SELECT DISTINCT f.seq FROM h CROSS JOIN custody_sync.owed o JOIN custody_sync.facts f ON f.fact_id = o.fact_id
    WHERE f.seq > %(after)s AND o.due_at > h.now AND (f.covered_from IS NULL OR f.covered_from > o.due_at)
    ORDER BY f.seq LIMIT %(limit)s
)
SELECT h.seq, h.tx_time, h.hash, w.* FROM h LEFT JOIN (
    SELECT f.seq, o.fact_id, o.store, o.due_at FROM page JOIN custody_sync.facts f USING (seq)
    JOIN custody_sync.owed o ON o.fact_id = f.fact_id
) w ON true ORDER BY w.seq, w.store

-- name: unaccounted
SELECT e.place, c.standing, p.state, p.fact_id
FROM json_to_recordset(%(entries)s::json) AS e(place integer, external_id text, fact_id text)
LEFT JOIN LATERAL (
    SELECT * FROM custody_sync.placements o
    WHERE hashtextextended(o.external_id, 0) = hashtextextended(e.external_id, 0)
    AND o.store = %(store)s AND o.external_id = e.external_id COLLATE "C"
    ORDER BY o.state = 'gone', o.fact_id <> e.fact_id COLLATE "C", o.id DESC LIMIT 1
) p ON true
LEFT JOIN custody_sync.claims c ON c.fact_id = e.fact_id COLLATE "C"
WHERE p.id IS NULL OR NOT (
    p.fact_id = e.fact_id AND (p.state = 'held' OR (p.state = 'kept' AND %(keep)s))
    AND (p.until IS NULL OR p.until > greatest(%(now)s, (SELECT tx_time FROM custody_sync.head WHERE one = 1)))
)
ORDER BY e.place

-- Of an entry without our label the fact id is empty, and of one whose id no ledger can hold it is null.
-- name: compare
SELECT e.place, CASE WHEN f.seq IS NULL OR e.fact_id = ''
        THEN (SELECT c.standing FROM custody_sync.claims c WHERE c.fact_id = e.fact_id COLLATE "C")
        ELSE 'asserted' END,
    p.id, p.fact_id, p.state, p.stored_at, f.seq IS NOT NULL, {fact}
FROM json_to_recordset(%(entries)s::json) AS e(place integer, external_id text, fact_id text)
CROSS JOIN (SELECT greatest(%(now)s, tx_time) AS now FROM custody_sync.head WHERE one = 1) h
LEFT JOIN LATERAL (
    SELECT * FROM custody_sync.placements o
    WHERE hashtextextended(o.external_id, 0) = hashtextextended(e.external_id, 0)
    AND o.store = %(store)s AND o.external_id = e.external_id COLLATE "C"
    ORDER BY o.state = 'gone', o.fact_id IS DISTINCT FROM e.fact_id COLLATE "C", o.id DESC LIMIT 1
) p ON true
LEFT JOIN custody_sync.facts f ON f.fact_id = p.fact_id AND e.fact_id IN (p.fact_id, '')
    AND (p.state = 'held' OR (p.state = 'kept' AND %(keep)s)) AND (p.until IS NULL OR p.until > h.now)
LEFT JOIN custody_sync.sealed s ON s.seq = f.seq ORDER BY e.place

-- Of entries with a label, and where some have none.
-- name: labelled
SELECT e.place - 1 AS place, e.fact_id
FROM json_array_elements_text(%(entries)s::json) WITH ORDINALITY AS e(fact_id, place)

-- name: unlabelled
SELECT e.place, coalesce(e.fact_id, p.fact_id, f.fact_id) AS fact_id
FROM json_to_recordset(%(entries)s::json)
    AS e(place integer, fact_id text, store text, external_id text, scope text, adopted text[])
LEFT JOIN LATERAL (
    SELECT p.fact_id FROM custody_sync.placements p
    WHERE hashtextextended(p.external_id, 0) = hashtextextended(e.external_id, 0)
    AND p.store = e.store COLLATE "C" AND p.external_id = e.external_id COLLATE "C"
    AND p.scope IS NOT DISTINCT FROM e.scope COLLATE "C"
    ORDER BY p.state = 'gone', p.id DESC LIMIT 1
) p ON true
LEFT JOIN LATERAL (
    SELECT f.fact_id FROM custody_sync.facts f
    WHERE f.fact_id COLLATE "C" = ANY (e.adopted) AND f.identity_gone LIMIT 1
) f ON true

-- First the entries' own links, then of each chain that is not seen to end with them the link in effect last.
-- name: follow
WITH found AS ({at}), at AS (
    SELECT coalesce(max(seq), 0) AS seq, max(tx_time) AS tx_time, max(hash) AS hash,
        coalesce(%(valid_at)s, greatest(%(now)s, max(tx_time))) COLLATE "C" AS valid_at
    FROM found
), own AS MATERIALIZED (
    SELECT e.place, e.fact_id AS owner, f.* FROM ({asked}) e
    LEFT JOIN custody_sync.facts f ON f.fact_id = e.fact_id COLLATE "C"
)
SELECT f.place, f.owner, CASE WHEN f.seq IS NULL THEN
        (SELECT c.seq FROM custody_sync.claims c WHERE c.fact_id = f.owner COLLATE "C") END,
    {link}, at.seq, at.tx_time, at.hash, at.valid_at
FROM at LEFT JOIN own f ON true LEFT JOIN custody_sync.sealed s ON s.seq = f.seq
UNION ALL
SELECT NULL, NULL, NULL, {link}, at.seq, at.tx_time, at.hash, at.valid_at
FROM at CROSS JOIN (
    SELECT DISTINCT o.root FROM at CROSS JOIN own o
    WHERE o.root IS NOT NULL AND NOT ({live} AND o.live AND o.valid_from <= at.valid_at)
) r CROSS JOIN LATERAL (
    SELECT * FROM custody_sync.facts f WHERE f.root = r.root AND f.effect_seq <= at.seq
    AND (f.retract_seq IS NULL OR f.retract_seq > at.seq) AND f.valid_from <= at.valid_at
    ORDER BY f.effect_seq DESC LIMIT 1
) f LEFT JOIN custody_sync.sealed s ON s.seq = f.seq

-- name: links
WITH found AS ({at}), at AS (
    SELECT coalesce(max(seq), 0) AS seq, max(tx_time) AS tx_time, max(hash) AS hash,
        coalesce(%(valid_at)s, greatest(%(now)s, max(tx_time))) COLLATE "C" AS valid_at
    FROM found
)
SELECT {link}, at.seq, at.tx_time, at.hash, at.valid_at
FROM at LEFT JOIN (
    (SELECT DISTINCT r.root FROM json_array_elements_text(%(ids)s::json) AS a(fact_id)
     JOIN custody_sync.facts r ON r.fact_id = a.fact_id COLLATE "C") r
    JOIN custody_sync.facts f ON f.root = r.root
) ON true
LEFT JOIN custody_sync.sealed s ON s.seq = f.seq ORDER BY f.root, f.seq

-- name: held
SELECT h.seq, h.tx_time, h.hash, p.* FROM custody_sync.head h LEFT JOIN LATERAL (
    SELECT p.id, {placement} FROM custody_sync.placements p
    WHERE p.store = %(store)s AND p.state IN ('held', 'kept') AND p.id > %(after)s
    AND (p.until IS NULL OR p.until > greatest(%(now)s, h.tx_time)) ORDER BY p.id LIMIT %(limit)s
) p ON true WHERE h.one = 1 ORDER BY p.id

-- name: lacking
WITH at AS (
    SELECT seq, tx_time, hash, greatest(%(now)s, tx_time) COLLATE "C" AS valid_at
    FROM custody_sync.head WHERE one = 1
)
SELECT at.seq, at.tx_time, at.hash, f.seq, f.fact_id FROM at LEFT JOIN LATERAL (
    SELECT * FROM ({sets}) u ORDER BY seq LIMIT %(limit)s
) f ON true ORDER BY f.seq

-- name: no_placement
 AND f.seq > %(after)s AND NOT EXISTS (
    SELECT FROM custody_sync.placements p
    WHERE p.fact_id = f.fact_id AND p.store = %(store)s AND p.state IN ('held', 'kept')
)

-- Each table gives its next ids along its index, so that a page costs a page.
-- name: derived
WITH ids AS MATERIALIZED (
    SELECT fact_id FROM ({ids}) i ORDER BY fact_id LIMIT %(limit)s
)
SELECT h.seq, h.tx_time, h.hash, h.count, i.fact_id,
    (SELECT json_agg(json_build_array(e.seq, e.event_id, e.tx_time) ORDER BY e.seq)
     FROM custody_sync.events e WHERE e.fact_id = i.fact_id),
    (SELECT json_build_array(c.standing, c.seq) FROM custody_sync.claims c WHERE c.fact_id = i.fact_id),
    (SELECT json_build_array({fact_row}, f.tx_time) FROM custody_sync.facts f WHERE f.fact_id = i.fact_id),
    (SELECT json_agg(json_build_array({placement_row}) ORDER BY p.id)
     FROM custody_sync.placements p WHERE p.fact_id = i.fact_id),
    (SELECT json_agg(json_build_array(o.store, o.due_at) ORDER BY o.store)
     FROM custody_sync.owed o WHERE o.fact_id = i.fact_id),
    (SELECT json_agg(json_build_array(o.hold_id, o.seq) ORDER BY o.hold_id)
     FROM custody_sync.holds o WHERE o.fact_id = i.fact_id)
FROM custody_sync.head h LEFT JOIN ids i ON true WHERE h.one = 1 ORDER BY i.fact_id

-- name: ids
(SELECT DISTINCT fact_id FROM {schema}.{table} WHERE fact_id {beyond} %(after)s
ORDER BY fact_id LIMIT %(limit)s)

-- What changes the meaning of our statements, and what their answers come through.
-- name: structure
WITH found AS (
    SELECT c.oid, c.relname, c.relkind, c.relrowsecurity FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %(schema)s
), due AS (
    SELECT 'table' AS kind, 'r' AS relkind, name FROM json_array_elements_text(%(tables)s::json) t (name)
    UNION ALL SELECT 'index', 'i', name FROM json_array_elements_text(%(indexes)s::json) i (name)
), ours AS (
    SELECT f.oid, f.relname, f.relrowsecurity FROM found f JOIN due d ON d.name = f.relname
)
SELECT d.kind || ' ' || d.name || ': missing' AS said FROM due d
WHERE NOT EXISTS (SELECT 1 FROM found f WHERE f.relname = d.name AND f.relkind = d.relkind::"char")
UNION ALL SELECT 'trigger ' || t.tgname || ': this version makes none' FROM pg_catalog.pg_trigger t
JOIN ours o ON o.oid = t.tgrelid WHERE NOT t.tgisinternal
UNION ALL SELECT 'rule ' || r.rulename || ': this version makes none' FROM pg_catalog.pg_rewrite r
JOIN ours o ON o.oid = r.ev_class
UNION ALL SELECT 'table ' || o.relname || ': some rows are shown to some only' FROM ours o WHERE o.relrowsecurity
UNION ALL SELECT 'index ' || o.relname || ': not valid' FROM pg_catalog.pg_index x
JOIN ours o ON o.oid = x.indexrelid WHERE NOT x.indisvalid
ORDER BY said

-- name: blocks
SELECT h.seq, h.tx_time, h.hash, b.block, b.changed
FROM custody_sync.head h LEFT JOIN custody_sync.blocks b ON true WHERE h.one = 1
