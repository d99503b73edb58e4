"""One ledger of each storage, with two handles on it, new for every story and cheap to make."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from fix_ledger import START

from custody_sync.ledger import Ledger
from custody_sync.testing import ManualClock, SteppingIds, testing_runtime

WRITERS = (0, 1)
# A story leaves few rows behind, which go faster one by one than with their files.
EMPTY = (
    *(
        f"delete from {{0}}.{table}"
        for table in ("events", "sealed", "claims", "facts", "placements", "owed", "holds", "notes")
    ),
    "update {0}.head set seq = 0, tx_time = null, hash = repeat('0', 64), count = 0",
)


class Salts(SteppingIds):
    """Ids that can begin anew, so that all storages draw the same salts whatever opening them took."""

    def restart(self, seed: int) -> None:
        """Begin anew."""
        super().__init__(seed)


@dataclass
class Arena:
    """Where one storage's stories take place.

    Args:
        name: the storage.
        new_url: names a ledger that is not there yet.
        clocks: one of each writer.
        empty: makes an open ledger as good as new, where that is cheaper than another one.
        vacuums: whether an erasure is completed; on a server it waits for whoever else is at work there.
    """

    name: str
    new_url: Callable[[], str]
    clocks: list[ManualClock]
    empty: Callable[[], None] | None = None
    vacuums: bool = True
    handles: list[Ledger] = field(default_factory=list)
    url: str = ""
    _salts: list[Salts] = field(default_factory=lambda: [Salts() for _ in WRITERS])

    async def renew(self, seed: int) -> None:
        """Begin with an empty ledger."""
        if self.handles and self.empty is not None:
            self.empty()
        else:
            await self.close()
            self.url = self.new_url()
            self.handles = [await self._open(writer) for writer in WRITERS]
        for writer in WRITERS:
            self._salts[writer].restart(seed + writer)

    async def reopen(self, writer: int, seed: int) -> None:
        """Close one handle and open another one."""
        await self.handles[writer].close()
        self.handles[writer] = await self._open(writer)
        self._salts[writer].restart(seed)

    async def _open(self, writer: int) -> Ledger:
        # Waiting for the other handle's witness must not move the clock that dates the next event.
        runtime = replace(
            testing_runtime(clock=self.clocks[writer]), ids=self._salts[writer], sleep=asyncio.sleep
        )
        return await Ledger.open(self.url, create=True, runtime=runtime)

    async def close(self) -> None:
        """Close both handles."""
        for handle in self.handles:
            await handle.close()
        self.handles = []


@pytest.fixture
def arenas(tmp_path: Path, schema_url: str) -> Iterator[list[Arena]]:
    """An arena of each storage; their writers share their clocks."""
    psycopg = pytest.importorskip("psycopg", reason="a Postgres ledger needs custody-sync[postgres]")
    clocks = [ManualClock(START) for _ in WRITERS]
    numbers = itertools.count()
    uri, _, schema = schema_url.partition("&schema=")

    def files(scheme: str) -> Arena:
        return Arena(scheme, lambda: f"{scheme}:///{tmp_path}/{next(numbers)}?synchronous=off", clocks)

    with psycopg.connect(uri, autocommit=True) as connection:
        statements = [statement.format(schema) for statement in EMPTY]

        def empty() -> None:
            for statement in statements:
                connection.execute(statement)

        postgres = Arena("postgres", lambda: f"{schema_url}&vacuum=false", clocks, empty, vacuums=False)
        # First what may let one writer overtake the other: the others then have to go the same way.
        yield [postgres, files("sqlite"), files("jsonl")]
