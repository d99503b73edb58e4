"""Driving erased values out of a Postgres ledger's table files.

An UPDATE leaves the old row in its page until the table is rewritten, and a rewriting takes along
what an older snapshot may still ask for. So a forget notes what is due; here the tables are rewritten,
and what is due stays so until every snapshot is younger than the transaction that erased it.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import AsyncConnection

from custody_sync.errors import LedgerBusy, LedgerFull
from custody_sync.faultpoints import FaultPoint
from custody_sync.ledger.postgres_errors import ledger_errors, translate
from custody_sync.ledger.postgres_notes import Due, Notes
from custody_sync.ledger.postgres_url import Location
from custody_sync.ledger.storage import SWEEP
from custody_sync.model import Erasure
from custody_sync.runtime import Runtime

WAIT_MS = 200
NOT_REACHED = (
    "the ledger's Postgres: its write-ahead log, replicas and backups, and a server log that records "
    "parameters, keep what they hold for as long as they are kept"
)
NOT_VACUUMED = (
    "the ledger was opened with vacuum=false: the erased rows' old images stay in its table files, and the "
    "erasure pending, until `custody-sync repair` is run on its URL without that option"
)
_CONTENT = ("sealed",)
# Names and entries stand beside the log as well, and in what a sweep has noted of them.
_IDENTITY = ("sealed", "facts", "placements", "notes")


class Eraser:
    """Completes the erasures of one ledger on a connection of its own.

    Args:
        location: the ledger.
        notes: its notes, where what is due stands.
        runtime: clock and fault points.
    """

    def __init__(self, location: Location, notes: Notes, runtime: Runtime) -> None:
        self._location = location
        self._notes = notes
        self._runtime = runtime

    async def run(self, conn: AsyncConnection[Any]) -> Erasure:
        """Complete what is due; pending where a reader or a sweep stands in the way or there is no room."""
        name = self._location.name
        with ledger_errors(name):
            owing = await self._notes.due(conn)
            if not owing:
                return Erasure.DONE
            if not self._location.vacuum:
                return Erasure.PENDING
            named = await self._named(conn, owing)
            rows = [row for row in owing if row[0] not in named]
            self._runtime.reach(FaultPoint.BEFORE_ERASURE)
            done = await self._rewrite(conn, rows)
            await self._notes.settle(conn, done)
        if done:
            self._runtime.reach(FaultPoint.AFTER_ERASURE)
        return Erasure.DONE if len(done) == len(owing) else Erasure.PENDING

    async def _named(self, conn: AsyncConnection[Any], rows: list[Due]) -> set[str]:
        """Drop what dead sweeps noted of identities that go; return the facts a living one may still name."""
        anonymous = [fact_id for fact_id, what, _, _ in rows if what == "identity"]
        named = await self._notes.naming(conn, anonymous)
        runs = bool(anonymous) and await self._notes.runs_naming(conn)
        if not named and not runs:
            return set()
        if await self._notes.is_leased(conn, self._runtime.clock.now()):
            return set(anonymous) if runs else {fact_id for _, _, fact_id in named}
        for topic, key, _ in named:
            await self._notes.drop(conn, topic, [key], None)
        if runs or any(topic in SWEEP for topic, _, _ in named):
            for topic in SWEEP:
                await self._notes.drop(conn, topic, None, None)
        return set()

    async def _rewrite(self, conn: AsyncConnection[Any], rows: list[Due]) -> list[Due]:
        """Rewrite the tables concerned and return the erasures of which nothing is left in them."""
        tables = _IDENTITY if any(what == "identity" for _, what, _, _ in rows) else _CONTENT
        qualified = [f"{self._location.schema}.{table}" for table in tables]
        if not rows:
            return []
        before = await self._notes.files(conn, qualified)
        try:
            await conn.execute(f"SET lock_timeout = {WAIT_MS}".encode())
            await conn.execute(f"VACUUM (FULL) {', '.join(qualified)}".encode())
        except psycopg.Error as error:
            if isinstance(translate(error, self._location.name), LedgerBusy | LedgerFull):
                return []
            raise
        if set(before) & set(await self._notes.files(conn, qualified)):
            # Postgres passes over a table that this role may not vacuum.
            return []
        return [row for row in rows if await self._notes.is_rewritten(conn, row[3], qualified)]
