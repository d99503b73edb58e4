"""Bringing a SQLite ledger of an older schema version to this one.

Everything beside the log follows from it, so an upgrade replays the log into this version's tables. It
is one transaction: a crash leaves the old version or the new one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import datetime

from custody_sync.errors import LedgerBroken
from custody_sync.ledger.answers import exported
from custody_sync.ledger.chain import SECTIONS
from custody_sync.ledger.sqlite_connection import Connection
from custody_sync.ledger.sqlite_errors import damage, ledger_errors
from custody_sync.ledger.sqlite_files import SCHEMA_VERSION, Location, schema_statements
from custody_sync.ledger.sqlite_rows import restore
from custody_sync.ledger.stored import Stored, read_stored

PAGE = 1000
_KEPT = ("settings", "events", "sealed", "notes")


def upgrade(conn: Connection, location: Location, now: datetime) -> None:
    """Rebuild an older ledger in this version's tables; of two processes that try at once, one does it.

    Raises:
        LedgerBroken: its log is not intact; it was left as it is.
    """
    name = location.name
    with ledger_errors(name):
        if _version(conn) == SCHEMA_VERSION:
            return
        conn.execute("BEGIN IMMEDIATE")
        try:
            with damage(name):
                if _version(conn) != SCHEMA_VERSION:
                    _rebuild(conn, name, now)
            conn.let_go()
            conn.execute("COMMIT")
        except BaseException:
            conn.leave()
            raise
        # The old rows leave the file's log as well.
        conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        conn.let_go()


def _version(conn: sqlite3.Connection) -> int:
    (version,) = conn.execute("PRAGMA user_version").fetchone()
    return int(version)


def _rebuild(conn: Connection, name: str, now: datetime) -> None:
    indexes, tables = _names(conn, "index"), _names(conn, "table")
    for index in indexes:
        conn.execute(f"DROP INDEX {_quoted(index)}")
    for table in tables:
        kept = f"ALTER TABLE {table} RENAME TO old_{table}"
        conn.execute(kept if table in _KEPT else f"DROP TABLE {_quoted(table)}")
    for statement in schema_statements():
        conn.execute(statement)
    conn.execute("INSERT INTO settings SELECT * FROM old_settings")
    for page in _pages(conn, name):
        restore(conn, page, name, now)
        conn.let_go()
    # What is due to be erased is what was due before: the log shows the rest as done.
    conn.execute("DELETE FROM notes")
    conn.execute("INSERT INTO notes SELECT * FROM old_notes")
    conn.let_go()
    for table in _KEPT:
        conn.execute(f"DROP TABLE old_{table}")
    conn.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _names(conn: sqlite3.Connection, kind: str) -> list[str]:
    # An index without a statement belongs to its table.
    query = "SELECT name FROM sqlite_master WHERE type = ? AND sql IS NOT NULL AND name NOT LIKE 'sqlite%'"
    return [name for (name,) in conn.execute(query, (kind,)).fetchall()]


def _quoted(name: str) -> str:
    """Return a name that stands in a file as SQL reads it; whoever had the file may have made any."""
    return '"' + name.replace('"', '""') + '"'


def _pages(conn: sqlite3.Connection, name: str) -> Iterator[list[Stored]]:
    columns = ", ".join(f"s.{section}, s.{section}_salt" for section in SECTIONS)
    query = (
        f"SELECT e.body, e.hash, {columns} FROM old_events e LEFT JOIN old_sealed s ON s.seq = e.seq "
        "WHERE e.seq > ? ORDER BY e.seq LIMIT ?"
    )
    after = 0
    while rows := conn.execute(query, (after, PAGE)).fetchall():
        page: list[Stored] = []
        for row in rows:
            try:
                page.append(read_stored(exported(row)))
            except ValueError as error:
                seq = after + len(page) + 1
                raise LedgerBroken(name=name, seq=seq, problem=str(error)) from None
        yield page
        after += len(page)


__all__ = ["upgrade"]
