"""Driving erased values out of a SQLite ledger's files.

A forget clears its rows in its own transaction, with `secure_delete`. Older copies may still
stand in the write-ahead log and in gaps that SQLite left when it moved rows between pages;
what is due is noted in the ledger until it was seen to be gone.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime

from custody_sync.errors import LedgerBusy, LedgerFull
from custody_sync.faultpoints import FaultPoint
from custody_sync.ledger import sqlite_notes as beside
from custody_sync.ledger.sqlite_connection import Connection
from custody_sync.ledger.sqlite_errors import ledger_errors, translate
from custody_sync.ledger.sqlite_files import BUSY_TIMEOUT_MS, Location
from custody_sync.ledger.storage import SWEEP
from custody_sync.model import Erasure
from custody_sync.rawfiles import holds_any
from custody_sync.runtime import Runtime

WAIT_MS = 200
SEARCHED = 16
"""To search a file for more salts takes longer than to write it anew."""

Due = tuple[str, str, str]
"""A fact id, what of it goes, and the event that erased it."""


def due(conn: sqlite3.Connection) -> list[Due]:
    """Return the erasures that are not completed."""
    return conn.execute("SELECT key, value, holder FROM notes WHERE topic = 'erasure'").fetchall()


def drop_named(conn: sqlite3.Connection, rows: Sequence[Due], now: datetime) -> tuple[set[str], bool]:
    """Drop what dead sweeps noted of identities that go; the next sweep lists again.

    A living sweep drops its notes itself as it works them off; without them it would leave entries
    in a store and call itself complete.

    Returns:
        The facts that a living sweep may still name, and whether notes were dropped.
    """
    anonymous = [fact_id for fact_id, what, _ in rows if what == "identity"]
    named = beside.naming(conn, anonymous)
    runs = bool(anonymous) and beside.runs_naming(conn)
    if not named and not runs:
        return set(), False
    if beside.leased(conn, now):
        return set(anonymous) if runs else {fact_id for _, _, fact_id in named}, False
    conn.executemany("DELETE FROM notes WHERE topic = ? AND key = ?", [row[:2] for row in named])
    if runs or any(topic in SWEEP for topic, _, _ in named):
        for topic in SWEEP:
            beside.drop(conn, topic, None, None)
    return set(), True


def forget_due(conn: sqlite3.Connection, rows: Sequence[Due]) -> None:
    """Take erasures that were completed from what is due.

    By event as well: what another process erased meanwhile is still due.
    """
    conn.executemany(
        "DELETE FROM notes WHERE topic = 'erasure' AND key = ? AND value = ? AND holder = ?", rows
    )


class Eraser:
    """Completes the erasures of one ledger file on its writing connection.

    Args:
        conn: the writing connection.
        location: the file.
        runtime: clock and fault points.
    """

    def __init__(self, conn: Connection, location: Location, runtime: Runtime) -> None:
        self._conn = conn
        self._path, self._name = location.path, location.name
        self._runtime = runtime
        self._salts: dict[str, list[bytes]] = {}
        self._rebuilt: set[Due] = set()

    def remember(self, salts: Mapping[str, list[bytes]]) -> None:
        """Keep the salts of sections just erased: finding one in the file would prove a leftover."""
        for fact_id, erased in salts.items():
            self._salts.setdefault(fact_id, []).extend(erased)

    def run(self) -> Erasure:
        """Complete what is due; pending where a reader or a sweep stands in the way or there is no room."""
        with ledger_errors(self._name):
            owing = due(self._conn)
            named = self._named(owing)
            rows = [row for row in owing if row[0] not in named]
            if rows:
                self._runtime.reach(FaultPoint.BEFORE_ERASURE)
                if not self._scrub_soon(rows):
                    return Erasure.PENDING
                forget_due(self._conn, rows)
        if rows:
            for fact_id, _, _ in rows:
                self._salts.pop(fact_id, None)
            self._rebuilt.clear()
            self._runtime.reach(FaultPoint.AFTER_ERASURE)
        return Erasure.PENDING if named else Erasure.DONE

    def _named(self, rows: list[Due]) -> set[str]:
        """Return the facts that a living sweep still names; what dead ones noted is dropped."""
        named, dropped = drop_named(self._conn, rows, self._runtime.clock.now())
        if dropped:
            self._rebuilt.difference_update(rows)
        return named

    def _scrub_soon(self, rows: list[Due]) -> bool:
        self._conn.wait(WAIT_MS)
        try:
            return self._scrub(rows)
        finally:
            self._conn.wait(BUSY_TIMEOUT_MS)

    def _scrub(self, rows: list[Due]) -> bool:
        try:
            # First the cheap question, so that a reader in the way costs no rebuild.
            if not self._fold():
                return False
            left = [row for row in rows if row not in self._rebuilt]
            if self._must_rebuild(left):
                self._conn.execute("VACUUM")
                self._rebuilt.update(rows)
                return self._fold()
        except sqlite3.Error as error:
            if isinstance(translate(error, self._name), LedgerBusy | LedgerFull):
                return False
            raise
        return True

    def _must_rebuild(self, rows: list[Due]) -> bool:
        """Index pages keep stale copies of keys in their gaps; and without salts nobody can look."""
        if any(what == "identity" or fact_id not in self._salts for fact_id, what, _ in rows):
            return True
        salts = [salt for fact_id, _, _ in rows for salt in self._salts[fact_id]]
        # A salt is unique, so finding one proves a leftover.
        return len(salts) > SEARCHED or holds_any(self._path, salts)

    def _fold(self) -> bool:
        """Fold the write-ahead log into the main file and empty it, unless a reader needs it."""
        (busy, _, _) = self._conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not busy
