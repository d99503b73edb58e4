"""What a repair sweep costs beside the same statements issued by hand.

A pgvector table without an approximate index holds 100,000 entries, of which 1 % are orphans;
the SQLite ledger stands behind the others. Each round makes the same number of new orphans for
ours and for the floor: a bare server-side cursor over the same columns, a raw anti-join, the
same events in groups, the same deletes and the same checks with the same concurrency.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
from _bench import Bound, RawLedger, Reader, Rows, at_once, conclude, growth, median, memory, spread
from psycopg_pool import AsyncConnectionPool

from custody_sync import AsyncCoordinator, Ledger
from custody_sync.adapters.pgvector import PgVectorStore
from custody_sync.faultpoints import FaultPoint
from custody_sync.ledger import Assert
from custody_sync.model import Label, Outcome, Placement
from custody_sync.repair.listing import BATCH
from custody_sync.runtime import Runtime
from custody_sync.stores import Deadlines
from custody_sync.testing.postgres import EmbeddedPostgres

BOUND: Bound = {"sweep_ratio": {"most": 1.5}, "memory_mb": {"most": 100}}
TABLE, DIMENSIONS, NAME = "memories", 8, "pgvector"
AT_ONCE = Deadlines().concurrency
PAGE = 5_000
COLUMNS = "key, fact_id, ledger_id, space, stored_at, custody, text, embedding"


@dataclass(frozen=True)
class Size:
    """How much is swept."""

    entries: int
    rounds: int

    @property
    def orphans(self) -> int:
        """One entry of a hundred."""
        return self.entries // 100


FULL = Size(entries=100_000, rounds=7)
QUICK = Size(entries=400, rounds=1)


class Yesterday:
    """A clock that is a day behind, so that what is built now is old enough for a sweep."""

    def now(self) -> datetime:
        """Return the time a day ago."""
        return datetime.now(UTC) - timedelta(days=1)


class Marks:
    """When a sweep passed its fault points."""

    def __init__(self) -> None:
        self.at: dict[str, float] = {}

    def __call__(self, point: str) -> None:
        self.at[point] = time.perf_counter()


# --- building, in a process of its own so that its memory does not hide the sweep's ----------


async def build(url: str, path: Path, entries: int) -> None:
    """Fill ledger and table: every asserted fact in both."""
    runtime = Runtime(clock=Yesterday())
    ledger = await Ledger.open(f"sqlite:///{path}?synchronous=off", create=True, runtime=runtime)
    await _set_up(url)
    labels: list[Label] = []

    async def assert_one(i: int) -> None:
        fact, label = memory(runtime, ledger.ledger_id, i)
        placement = Placement(
            store=NAME, external_id=label.key, fact_id=fact.fact_id, scope=None, stored_at=label.stored_at
        )
        draft = Assert(event_id=runtime.ids.event_id(), fact=fact, placements=(placement,))
        await ledger.append(draft)
        labels.append(label)

    await at_once(512, ((assert_one, {"i": i}) for i in range(entries - entries // 100)))
    await ledger.close()
    _copy(url, labels)
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(f"VACUUM ANALYZE {TABLE}")


async def _set_up(url: str) -> None:
    """Let the adapter make its own table."""
    async with AsyncConnectionPool(url, open=False) as pool:
        await _store(pool).find("nothing")


def _store(pool: AsyncConnectionPool[Any]) -> PgVectorStore:
    return PgVectorStore(
        pool,
        table=TABLE,
        dimensions=DIMENSIONS,
        embed=lambda _: [1.0] * DIMENSIONS,
        name=NAME,
        page_size=PAGE,
    )


def _copy(url: str, labels: Iterable[Label]) -> None:
    """Put rows into the table as the adapter would have."""
    with psycopg.connect(url) as conn, conn.cursor().copy(f"COPY {TABLE} ({COLUMNS}) FROM STDIN") as copy:
        for i, label in enumerate(labels):
            vector = [float(1 + (i >> bit) % 7) for bit in range(DIMENSIONS)]
            custody = label.to_metadata()["custody"]
            copy.write_row(
                (label.key, label.fact_id, label.ledger_id, label.space, label.stored_at, custody,
                 f"text of {label.fact_id}", str(vector))
            )  # fmt: skip


# --- measuring --------------------------------------------------------------------------------


class Bench:
    """One ledger, one table, and a file of the same schema for the floor's events.

    Args:
        url: the database.
        path: the ledger's file.
        size: how much is swept.
    """

    def __init__(self, url: str, path: Path, size: Size) -> None:
        self._url = url
        self._path = path
        self._size = size
        self._marks = Marks()

    async def run(self) -> dict[str, float | None]:
        """Alternate our sweep and the floor's, each on orphans of its own."""
        ours: list[dict[str, float]] = []
        floor: list[dict[str, float]] = []
        memory: list[float] = []
        runtime = Runtime(reach=self._marks)
        ledger = await Ledger.open(f"sqlite:///{self._path}", runtime=runtime)
        pool = AsyncConnectionPool(self._url, min_size=AT_ONCE, max_size=AT_ONCE, open=False)
        async with ledger, pool, AsyncCoordinator(ledger, stores=[_store(pool)], runtime=runtime) as custody:
            with RawLedger(await self._empty_ledger()) as raw:
                for _ in range(self._size.rounds):
                    parts, grown, groups = await self._ours(custody, ledger)
                    ours.append(parts)
                    memory.append(grown)
                    floor.append(await self._floor(pool, ledger, raw, groups))
        return self._show(ours, floor, memory)

    async def _empty_ledger(self) -> Path:
        path = self._path.with_name("floor.db")
        await (await Ledger.open(f"sqlite:///{path}", create=True)).close()
        return path

    def _make_orphans(self, ledger: Ledger) -> None:
        runtime = Runtime(clock=Yesterday())
        _copy(self._url, [memory(runtime, ledger.ledger_id, i)[1] for i in range(self._size.orphans)])

    async def _ours(
        self, custody: AsyncCoordinator, ledger: Ledger
    ) -> tuple[dict[str, float], float, list[Rows]]:
        self._make_orphans(ledger)
        before = (await ledger.head()).seq
        with growth() as grown:
            start = time.perf_counter()
            result = await custody.repair(actor="bench", reason="outage", max_removals=self._size.orphans)
            end = time.perf_counter()
        verified = [item for item in result.repaired if item.outcome is Outcome.VERIFIED]
        assert result.complete
        assert len(verified) == self._size.orphans
        at = self._marks.at
        parts = {
            "drain": at[FaultPoint.SWEEP_DRAINED] - start,
            "list, join, spool": at[FaultPoint.SWEEP_SPOOLED] - at[FaultPoint.SWEEP_DRAINED],
            "record, delete, verify": at[FaultPoint.SWEEP_DONE] - at[FaultPoint.SWEEP_SPOOLED],
            "total": end - start,
        }
        reader = Reader(self._path)
        groups = reader.groups(after=before)
        reader.close()
        return parts, grown.megabytes, groups

    async def _floor(
        self, pool: AsyncConnectionPool[Any], ledger: Ledger, raw: RawLedger, groups: Sequence[Rows]
    ) -> dict[str, float]:
        self._make_orphans(ledger)
        gc.collect()
        times = [time.perf_counter()]
        listed = await self._read(pool)
        times.append(time.perf_counter())
        orphans = self._anti_join(listed)
        times.append(time.perf_counter())
        for rows in groups:
            raw.commit(rows)
        times.append(time.perf_counter())
        await at_once(AT_ONCE, ((_delete, {"pool": pool, "key": key}) for key, _ in orphans))
        times.append(time.perf_counter())
        await at_once(AT_ONCE, ((_check, {"pool": pool, "key": k, "fact_id": f}) for k, f in orphans))
        times.append(time.perf_counter())
        assert len(orphans) == self._size.orphans
        names = ("cursor read", "anti-join", "events", "deletes", "checks")
        parts = {name: after - before for name, before, after in zip(names, times, times[1:], strict=False)}
        return {**parts, "total": times[-1] - times[0]}

    async def _read(self, pool: AsyncConnectionPool[Any]) -> list[tuple[str, str]]:
        listed = []
        query = f"SELECT key, fact_id, ledger_id, space, stored_at, created_at FROM {TABLE}"
        async with pool.connection() as conn, conn.cursor(name="floor") as cursor:
            await cursor.execute(query)
            while rows := await cursor.fetchmany(PAGE):
                listed += [(row[0], row[1]) for row in rows]
        return listed

    def _anti_join(self, listed: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        query = (
            "SELECT e.key, e.value FROM json_each(?) e WHERE NOT EXISTS (SELECT 1 FROM placements p "
            "WHERE p.store = ? AND p.external_id = e.key AND p.fact_id = e.value AND p.state = 'held')"
        )
        orphans: list[tuple[str, str]] = []
        conn = sqlite3.connect(f"{self._path.as_uri()}?mode=ro", uri=True)
        for at in range(0, len(listed), BATCH):
            orphans += conn.execute(query, (json.dumps(dict(listed[at : at + BATCH])), NAME)).fetchall()
        conn.close()
        return orphans

    def _show(
        self, ours: Sequence[dict[str, float]], floor: Sequence[dict[str, float]], memory: Sequence[float]
    ) -> dict[str, float | None]:
        ratios = [mine["total"] / bare["total"] for mine, bare in zip(ours, floor, strict=True)]
        size = self._size
        print(f"{size.entries} entries, {size.orphans} orphans, {len(ratios)} rounds, {AT_ONCE} at once")
        for title, runs in (("floor", floor), ("ours", ours)):
            print(f"  {title}")
            for part in runs[0]:
                print(f"    {part:24s} {median([run[part] for run in runs]):7.3f} s")
        print(f"  ratio {spread(ratios)}; memory grew by at most {max(memory):.1f} MB")
        return {"sweep_ratio": median(ratios), "memory_mb": max(memory)}


async def _delete(pool: AsyncConnectionPool[Any], key: str) -> None:
    async with pool.connection() as conn:
        await conn.execute(f"DELETE FROM {TABLE} WHERE key = %s", (key,))


async def _check(pool: AsyncConnectionPool[Any], key: str, fact_id: str) -> None:
    query = f"SELECT key FROM {TABLE} WHERE key = %s UNION ALL SELECT key FROM {TABLE} WHERE fact_id = %s"
    async with pool.connection() as conn:
        rows = await (await conn.execute(query, (key, fact_id))).fetchall()
    assert not rows


def main() -> int:
    """Run the benchmark and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="a smoke test; its figures mean nothing")
    parser.add_argument("--build", nargs=2, metavar=("URL", "FILE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    size = QUICK if arguments.quick else FULL
    if arguments.build:
        asyncio.run(build(arguments.build[0], Path(arguments.build[1]), size.entries))
        return 0
    folder = Path(tempfile.mkdtemp(prefix="custody-bench-"))
    try:
        with EmbeddedPostgres(durable=True) as url:
            path = folder / "ledger.db"
            mode = ["--quick"] if arguments.quick else []
            start = time.perf_counter()
            subprocess.run([sys.executable, __file__, "--build", url, str(path), *mode], check=True)
            print(f"built in {time.perf_counter() - start:.0f} s")
            figures = asyncio.run(Bench(url, path, size).run())
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return conclude("sweep", figures, BOUND, enforced=not arguments.quick)


if __name__ == "__main__":
    sys.exit(main())
