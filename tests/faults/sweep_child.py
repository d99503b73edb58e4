"""A sweep that is killed at a chosen moment, and says in a file what it listed and deleted.

Moments are counted through: every fault point, every page that the store hands over, every note that
the ledger is given. Run as `sweep_child.py ORDER`, with the order as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from psycopg_pool import AsyncConnectionPool

from custody_sync import AsyncCoordinator, Ledger
from custody_sync.adapters.pgvector import PgVectorStore
from custody_sync.model import Entry
from custody_sync.ports import Listed
from custody_sync.repair import listing
from custody_sync.runtime import Runtime

DIMENSIONS = 8


class Later:
    """The machine's clock, moved by as many seconds.

    Args:
        by: how many.
    """

    def __init__(self, by: float) -> None:
        self._by = timedelta(seconds=by)

    def now(self) -> datetime:
        """Return the moved instant."""
        return datetime.now(UTC) + self._by


class Moments:
    """Counts moments, and kills this process at one of them.

    Args:
        last: at which; 0 for none.
        log: where everything is said, a line in one write each, so that nothing is lost with the process.
    """

    def __init__(self, last: int, log: Path) -> None:
        self.count = 0
        self._last = last
        self._log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def __call__(self, point: str) -> None:
        """Pass a moment."""
        self.count += 1
        if self.count == self._last:
            os.kill(os.getpid(), signal.SIGKILL)

    def say(self, *words: object) -> None:
        """Write a line."""
        os.write(self._log, (json.dumps(words) + "\n").encode())


class Watched(PgVectorStore):
    """A table that says what it listed and what it was told to delete."""

    moments: Moments

    async def list_pages(self, after: str | None = None, until: str | None = None) -> AsyncGenerator[Listed]:
        """Yield pages, each said before it is handed over."""
        async for page in super().list_pages(after, until):
            self.moments("page")
            self.moments.say("listed", len(page.entries))
            yield page

    async def delete(self, entry: Entry) -> None:
        """Delete one entry, and say so before."""
        self.moments.say("deleted", entry.external_id)
        await super().delete(entry)


async def sweep(order: dict[str, Any]) -> None:
    """Sweep, as far as it comes."""
    moments = Moments(order["last"], Path(order["log"]))
    runtime = Runtime(clock=Later(order["by"]), reach=moments)
    listing.BATCH = order["batch"]
    pool = AsyncConnectionPool(order["uri"], min_size=4, max_size=16, open=False)
    ledger = await Ledger.open(order["ledger"], runtime=runtime, witness=False)
    store = Watched(
        pool,
        table=order["table"],
        dimensions=DIMENSIONS,
        embed=lambda _: [1.0] * DIMENSIONS,
        name="memories",
        page_size=max(order["batch"] // 2, 1),
    )
    store.moments = moments
    put_notes = ledger.put_notes

    async def note(*args: Any, **more: Any) -> None:
        moments("note")
        await put_notes(*args, **more)
        moments("noted")

    ledger.put_notes = note  # type: ignore[method-assign]  # more moments to be killed at
    async with ledger, pool, AsyncCoordinator(ledger, stores=[store], runtime=runtime) as custody:
        result = await custody.repair(actor="ops", reason="outage", max_removals=10**6)
    moments.say("done", moments.count, result.complete, len(result.repaired), dict(result.scanned))


if __name__ == "__main__":
    asyncio.run(sweep(json.loads(sys.argv[1])))
