"""Whether a SQLite database is built as this version builds it.

Answers come through indexes, and a trigger or a view changes what a statement does: a ledger whose
rows are right may still answer wrongly, or keep what was to be erased.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import cache

from custody_sync.ledger.sqlite_files import schema_statements

NAMED = 20
"""So many of SQLite's own findings are named."""
_BESIDE = ("settings", "notes")
_MASTER = (
    "SELECT type, name, tbl_name, sql FROM {}.sqlite_master WHERE name NOT LIKE 'sqlite~_stat%' ESCAPE '~'"
)

Part = tuple[str, str]
"""Type and name."""


def structure(conn: sqlite3.Connection) -> list[str]:
    """Return what of a database is not as this version makes it, one sentence each.

    Of a JSONL ledger that is the file of its notes; its log is no database.
    """
    beside = any(name == "beside" for _, name, _ in conn.execute("PRAGMA database_list"))
    at = "beside" if beside else "main"
    found, due = _parts(conn, at), _expected()
    if beside:
        due = {part: sql for part, sql in due.items() if sql[0] in _BESIDE}
    said = [f"{kind} {name}: this version makes none" for kind, name in sorted(found.keys() - due.keys())]
    said += [f"{kind} {name}: missing" for kind, name in sorted(due.keys() - found.keys())]
    said += [
        f"{kind} {name}: not as this version makes it"
        for kind, name in sorted(found.keys() & due.keys())
        if found[kind, name] != due[kind, name]
    ]
    checked = conn.execute(f"PRAGMA {at}.integrity_check({NAMED})").fetchall()
    return [*said, *(f"SQLite's own check: {text}" for (text,) in checked if text != "ok")]


@cache
def _expected() -> dict[Part, tuple[str, str | None]]:
    with closing(sqlite3.connect(":memory:")) as conn:
        for statement in schema_statements():
            conn.execute(statement)
        return _parts(conn, "main")


def _parts(conn: sqlite3.Connection, at: str) -> dict[Part, tuple[str, str | None]]:
    return {(kind, name): (table, sql) for kind, name, table, sql in conn.execute(_MASTER.format(at))}


__all__ = ["structure"]
