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

-- name: may_write
SELECT NOT pg_is_in_recovery() AND current_setting('default_transaction_read_only') = 'off'
    AND bool_and(has_table_privilege(format('%%I.%%I', schemaname, tablename), 'INSERT, UPDATE, DELETE'))
FROM pg_tables WHERE schemaname = %(schema)s
    AND tablename IN ('head', 'events', 'sealed', 'claims', 'facts', 'placements', 'owed', 'holds', 'notes')
