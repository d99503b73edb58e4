"""A file that several make at once: SQLite refuses all but one of them, and does not wait."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from custody_sync.ledger.sqlite_connection import Connection

WAL = "PRAGMA journal_mode = WAL"


class Contended(Connection):
    """One that is refused, so many times."""

    refusals: list[int]

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """Refuse the log while there are refusals left."""
        if sql == WAL and self.refusals:
            error = sqlite3.OperationalError("refused")
            error.sqlite_errorcode = self.refusals.pop()
            raise error
        return super().execute(sql, parameters)


def contended(path: Path, *refusals: int) -> Contended:
    """Connect to a file."""
    conn = sqlite3.connect(path, isolation_level=None, factory=Contended)
    conn.refusals = list(refusals)
    return conn


def mode(conn: Contended) -> str:
    """Return how the file keeps its journal."""
    (found,) = conn.execute("PRAGMA journal_mode").fetchone()
    return str(found)


def test_a_log_that_was_refused_is_asked_for_again(tmp_path: Path) -> None:
    """Whoever has the file makes it what all of them want."""
    conn = contended(
        tmp_path / "l.db", sqlite3.SQLITE_BUSY, sqlite3.SQLITE_BUSY_RECOVERY, sqlite3.SQLITE_LOCKED
    )
    conn.log_ahead(60_000)
    assert mode(conn) == "wal"
    conn.close()


@pytest.mark.parametrize(
    ("refusals", "milliseconds", "left"),
    [([sqlite3.SQLITE_BUSY] * 1000, 25, 990), ([sqlite3.SQLITE_IOERR] * 2, 60_000, 1)],
)
def test_it_is_not_asked_for_for_ever(
    tmp_path: Path, refusals: list[int], milliseconds: int, left: int
) -> None:
    """Time ends it, and so does anything else that is wrong."""
    conn = contended(tmp_path / "l.db", *refusals)
    with pytest.raises(sqlite3.OperationalError):
        conn.log_ahead(milliseconds)
    assert left <= len(conn.refusals) < len(refusals)
    conn.close()
