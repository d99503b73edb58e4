-- Making, finding and upgrading a ledger's schema.

-- name: has_settings
SELECT to_regclass('custody_sync.settings') IS NOT NULL

-- name: has_schema
SELECT to_regnamespace(%(schema)s) IS NOT NULL

-- name: settings
SELECT name, value FROM custody_sync.settings

-- One process at a time makes or upgrades a ledger. The lock is taken before the transaction begins:
-- one that has looked for the schema before it waits remembers that there was none. It ends with the session.
-- name: alone
SELECT pg_advisory_lock(7237132, hashtext(%(schema)s))

-- name: set
INSERT INTO custody_sync.settings (name, value) VALUES (%(name)s, %(value)s)
ON CONFLICT (name) DO UPDATE SET value = excluded.value

-- All that opening asks of a ledger that is there. It takes no parameters, so that it can go with other statements.
-- name: meet
SELECT (SELECT json_object_agg(name, encode(value, 'hex')) FROM custody_sync.settings),
    NOT pg_is_in_recovery() AND current_setting('default_transaction_read_only') = 'off' AND (
        SELECT bool_and(has_table_privilege(to_regclass('custody_sync.' || name), 'INSERT, UPDATE, DELETE'))
        FROM unnest(ARRAY['head', 'events', 'sealed', 'claims', 'facts', 'placements', 'owed', 'holds', 'notes']) AS name
    )
