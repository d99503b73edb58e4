"""A private ledger that a log is replayed into, to see whether another one answers what its log says.

It is a temporary SQLite database without a name: it keeps a few megabytes in memory whatever the
log's size, and no other process, and no crash, finds a file of it. Values are not put into it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from datetime import datetime
from importlib import resources

from custody_sync.ledger.rows import Derived
from custody_sync.ledger.sqlite_connection import Connection
from custody_sync.ledger.sqlite_derived import blocks, derived
from custody_sync.ledger.sqlite_files import schema_statements
from custody_sync.ledger.sqlite_rows import restore
from custody_sync.ledger.stored import Stored

_ERASED = """
EXISTS (SELECT 1 FROM forgets f WHERE f.fact_id = s.fact_id AND (f.identity OR s.name = 'content')
AND (f.seq > s.seq OR s.name = 'refs') {more})
"""


class Shadow:
    """The replay of a log that is being read, and what its erasures have to explain.

    Args:
        name: what errors call the ledger whose log it is.
        now: its clock; what is replayed depends on the log alone.
    """

    def __init__(self, name: str, now: datetime) -> None:
        self._name, self._now = name, now
        self._conn = sqlite3.connect("", factory=Connection, isolation_level=None, check_same_thread=False)
        beside = (
            resources.files("custody_sync.ledger").joinpath("sql/sqlite/verifying.sql").read_text("utf-8")
        )
        self._conn.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;" + beside)
        for statement in schema_statements():
            self._conn.execute(statement)

    def replay(self, events: Sequence[Stored]) -> None:
        """Append events, without their values.

        Raises:
            LedgerBroken: no ledger can have admitted one of them there.
        """
        self._conn.execute("BEGIN")
        try:
            restore(self._conn, [_without_value(event) for event in events], self._name, self._now)
        finally:
            self._conn.let_go()
            self._conn.execute("COMMIT")

    def note(self, events: Sequence[Stored], upto: int) -> None:
        """Keep which sections of events are there, and what they forget."""
        self._conn.execute("BEGIN")
        self._conn.executemany(
            "INSERT INTO sections VALUES (?, ?, ?, ?, ?)",
            [row for event in events for row in _sections(event, upto)],
        )
        self._conn.executemany(
            "INSERT INTO forgets VALUES (?, ?, ?)",
            [
                (event.doc["fact_id"], event.seq, event.doc["data"]["identity"])
                for event in events
                if event.doc["kind"] == "forget"
            ],
        )
        self._conn.execute("COMMIT")

    def unexplained(self) -> tuple[int, str] | None:
        """Return the first event that lacks a section which no forget took."""
        query = f"SELECT s.seq, s.name FROM sections s WHERE NOT s.there AND NOT {_ERASED.format(more='')}"
        return self._first(query)

    def residue(self) -> tuple[int, str] | None:
        """Return the first event that has a section which a forget took before it was read."""
        taken = _ERASED.format(more="AND f.seq <= s.upto")
        return self._first(f"SELECT s.seq, s.name FROM sections s WHERE s.there AND {taken}")

    def _first(self, query: str) -> tuple[int, str] | None:
        found: tuple[int, str] | None = self._conn.execute(f"{query} ORDER BY s.seq LIMIT 1").fetchone()
        self._conn.let_go()
        return found

    def derived(self, limit: int, after: str) -> list[Derived]:
        """Return what follows from the log so far."""
        _, found = derived(self._conn, limit, after)
        self._conn.let_go()
        return found

    def blocks(self) -> dict[int, int]:
        """Return which event of the log so far was the last to change a fact of each block."""
        _, found = blocks(self._conn)
        self._conn.let_go()
        return found

    def close(self) -> None:
        """Let go of everything."""
        self._conn.close()


def _without_value(event: Stored) -> Stored:
    return event._replace(sections={k: v for k, v in event.sections.items() if k != "content"})


def _sections(event: Stored, upto: int) -> Iterator[tuple[str, int, str, bool, int]]:
    for name in event.doc["sealed"]:
        there = name in event.sections
        # Ids of entries stay until the last of them is gone; the replay tells whether that was so.
        if not there or name != "refs":
            yield event.doc["fact_id"], event.seq, name, there, upto


__all__ = ["Shadow"]
