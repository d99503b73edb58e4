"""One sweep at a time per ledger: a lease on the ledger's own clock, renewed per batch."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterable
from datetime import timedelta
from typing import Any, TypeVar

from custody_sync.errors import SweepRunning
from custody_sync.finishing import together
from custody_sync.ledger import Ledger
from custody_sync.ledger.storage import LEASED, Note
from custody_sync.model import format_instant
from custody_sync.runtime import Runtime

TOPIC = "lease"
KEY = "sweep"
LEASE = timedelta(seconds=60)
CONCURRENCY = 64
"""Entries in work at once; each store's own limit stands behind it."""

S = TypeVar("S")
T = TypeVar("T")


class Lease:
    """The right to sweep, held by one process until it lapses or is released.

    Args:
        ledger: keeps it, on its own clock.
        runtime: ids.
        actor: who sweeps.
        lasts: how long it holds without being renewed.
    """

    def __init__(self, ledger: Ledger, runtime: Runtime, actor: str, lasts: timedelta = LEASE) -> None:
        self._ledger = ledger
        self._lasts = lasts
        self._limiter = asyncio.Semaphore(CONCURRENCY)
        self._renewing = asyncio.Lock()
        self._renewed = ledger.now()
        self._holder = f"{actor}, process {os.getpid()}, run {runtime.ids.generation()}"

    async def renew(self) -> None:
        """Take or keep the lease.

        Raises:
            SweepRunning: somebody else holds it; says who, since when and until when.
        """
        now = self._ledger.now()
        note = await self._ledger.acquire(TOPIC, KEY, holder=self._holder, value='""', ttl=self._lasts)
        if note.holder != self._holder:
            until = "?" if note.expires_at is None else format_instant(note.expires_at)
            raise SweepRunning(holder=note.holder, since=format_instant(note.since), until=until)
        self._renewed = now

    async def keep(self) -> None:
        """Renew the lease if a sixth of it is over, so that slow stores do not let it lapse."""
        if self._is_due():
            # One at a time: nobody may go on before it is known whether the lease still holds.
            async with self._renewing:
                if self._is_due():
                    await self.renew()

    def _is_due(self) -> bool:
        return self._ledger.now() - self._renewed >= self._lasts / 6

    async def each(self, items: Iterable[S], work: Callable[[S], Coroutine[Any, Any, T]]) -> list[T]:
        """Work on items, some at a time and none without the lease; return what came of them in order."""

        async def limited(item: S) -> T:
            async with self._limiter:
                await self.keep()
                return await work(item)

        return await together(limited(item) for item in items)

    async def release(self) -> None:
        """Let the next sweep begin at once."""
        await self._ledger.drop_notes(TOPIC, [KEY], holder=self._holder)


async def holder(ledger: Ledger) -> Note | None:
    """Return who sweeps now, since when and until when; None where nobody does."""
    (note,) = await ledger.notes(TOPIC, limit=1) or (None,)
    return note if note is not None and _stands(note, ledger) else None


def _stands(note: Note, ledger: Ledger) -> bool:
    return note.expires_at is None or ledger.now() < note.expires_at <= ledger.now() + LEASED
