-- Notes beside the log: leases, reservations and spools, which carry no facts.

-- name: page
SELECT topic, key, value, holder, since, expires_at FROM custody_sync.notes
WHERE topic = %(topic)s AND key > %(after)s ORDER BY key LIMIT %(limit)s

-- name: at
SELECT topic, key, value, holder, since, expires_at FROM custody_sync.notes
WHERE topic = %(topic)s AND key IN (SELECT json_array_elements_text(%(keys)s::json) COLLATE "C")

-- name: standing
SELECT topic, key, value, holder, since, expires_at FROM custody_sync.notes
WHERE topic = %(topic)s AND key = %(key)s

-- name: acquire
INSERT INTO custody_sync.notes AS n (topic, key, value, holder, since, expires_at)
SELECT %(topic)s, %(key)s, %(value)s, %(holder)s, %(now)s, %(expires_at)s
WHERE NOT EXISTS (SELECT FROM custody_sync.notes WHERE topic = 'moved')
ON CONFLICT (topic, key) DO UPDATE SET
    since = CASE WHEN n.holder = excluded.holder THEN n.since ELSE excluded.since END,
    value = excluded.value, holder = excluded.holder, expires_at = excluded.expires_at
WHERE n.holder = excluded.holder OR n.expires_at <= %(now)s
    OR n.expires_at > %(void)s::text COLLATE "C"
RETURNING topic, key, value, holder, since, expires_at

-- name: put
INSERT INTO custody_sync.notes (topic, key, value, holder, since, expires_at)
SELECT topic, key, value, holder, since, expires_at FROM json_to_recordset(%(notes)s::json)
    AS r(topic text, key text, value text, holder text, since text, expires_at text)
WHERE NOT EXISTS (SELECT FROM custody_sync.notes
    WHERE topic = 'moved' AND NOT (%(arriving)s AND key = 'from'))
ON CONFLICT (topic, key) DO UPDATE SET value = excluded.value, holder = excluded.holder,
    since = excluded.since, expires_at = excluded.expires_at

-- name: drop
DELETE FROM custody_sync.notes WHERE topic = %(topic)s
AND (%(holder)s::text IS NULL OR holder = %(holder)s)
AND (%(keys)s::json IS NULL OR key IN (SELECT json_array_elements_text(%(keys)s::json)))

-- name: mark
SELECT key, value, holder FROM custody_sync.notes WHERE topic = 'moved' LIMIT 1

-- A mark is set under the lock of appends.
-- name: lock
SELECT FROM custody_sync.head WHERE one = 1 FOR UPDATE

-- name: set_mark
INSERT INTO custody_sync.notes (topic, key, value, holder, since)
VALUES ('moved', %(key)s, %(value)s, %(holder)s, %(since)s)

-- name: due
SELECT key, value, holder, xid::text FROM custody_sync.notes WHERE topic = 'erasure'

-- name: settle
DELETE FROM custody_sync.notes n USING json_to_recordset(%(rows)s::json) AS r(key text, value text, holder text)
WHERE n.topic = 'erasure' AND n.key = r.key COLLATE "C" AND n.value = r.value AND n.holder = r.holder

-- name: naming
SELECT topic, key, value FROM custody_sync.notes
WHERE topic <> 'erasure' AND strpos(value, '"fact_id"') > 0

-- A version that does not say so may have.
-- name: runs_naming
SELECT FROM custody_sync.notes WHERE topic = 'sweep-run' AND strpos(value, '"names": false') = 0 LIMIT 1

-- name: leased
SELECT EXISTS (SELECT FROM custody_sync.notes WHERE topic = 'lease' AND expires_at > %(now)s
    AND expires_at <= %(void)s)

-- name: files
SELECT pg_relation_filenode(name::regclass) FROM json_array_elements_text(%(tables)s::json) AS t(name)

-- name: rewritten
SELECT bool_and(age(c.relfrozenxid) < age(%(xid)s::xid))
FROM pg_class c JOIN json_array_elements_text(%(tables)s::json) AS t(name) ON c.oid = t.name::regclass
