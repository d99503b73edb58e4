"""One sweep at a time per ledger: a lease on the ledger's own clock, renewed per batch."""

from __future__ import annotations

import os
from datetime import timedelta

from custody_sync.errors import SweepRunning
from custody_sync.ledger import Ledger
from custody_sync.model import format_instant
from custody_sync.runtime import Runtime

TOPIC = "lease"
KEY = "sweep"
LEASE = timedelta(seconds=60)
RENEW_AFTER = timedelta(seconds=10)


class Lease:
    """The right to sweep, held by one process until it lapses or is released."""

    def __init__(self, ledger: Ledger, runtime: Runtime, actor: str) -> None:
        self._ledger = ledger
        self._renewed = ledger.now()
        self._holder = f"{actor}, process {os.getpid()}, run {runtime.ids.generation()}"

    async def renew(self) -> None:
        """Take or keep the lease.

        Raises:
            SweepRunning: somebody else holds it; says who, since when and until when.
        """
        self._renewed = self._ledger.now()
        note = await self._ledger.acquire(TOPIC, KEY, holder=self._holder, value='""', ttl=LEASE)
        if note.holder != self._holder:
            until = "?" if note.expires_at is None else format_instant(note.expires_at)
            raise SweepRunning(holder=note.holder, since=format_instant(note.since), until=until)

    async def keep(self) -> None:
        """Renew the lease if a sixth of it is over, so that slow stores do not let it lapse."""
        if self._ledger.now() - self._renewed >= RENEW_AFTER:
            await self.renew()

    async def release(self) -> None:
        """Let the next sweep begin at once."""
        await self._ledger.drop_notes(TOPIC, [KEY], holder=self._holder)
