"""What a guarded recall takes beside a bare search of the same store.

A pgvector table of 10,000 entries, with `--full` also of 1,000,000, under an HNSW index, beside a ledger
of the same facts in SQLite and in Postgres. Each query is asked three times, in turns: of the store
alone, of the coordinator, and the ledger's own statement about the `k` entries that the store served,
through the driver alone. The embedder answers at once, so that no model hides what custody costs.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from _bench import Bound, conclude, median
from _ledger_postgres import recording_postgres
from _ledger_raw import SqliteFloor, Statement, decoded, record, recording_sqlite
from _reconcile_world import DIMENSIONS, NAME, TABLE, Place, Setting, build, vector_of
from psycopg_pool import AsyncConnectionPool

from custody_sync import AsyncCoordinator, Ledger
from custody_sync.adapters.pgvector import PgVectorStore
from custody_sync.ledger.postgres_schema import SESSION
from custody_sync.model import Hit
from custody_sync.testing.postgres import EmbeddedPostgres

K = 10
MILLION = 1_000_000
ALLOWED = 1.2
QUERIES, ROUNDS = 200, 5
PROCESSES = 5
"""In how many a world is measured, one after the other: how the memory of one lies shifts all it says."""
SIDES = ("bare", "guarded", "ledger")
PERCENTILES = {"p50": 0.50, "p95": 0.95}
BUILDING = "-c maintenance_work_mem=1GB -c max_parallel_maintenance_workers=1"
Figures = dict[str, float]
Floor = Callable[[Sequence[Statement]], Awaitable[float]]
"""Issues statements through the driver alone, and returns the seconds it took."""


@dataclass(frozen=True)
class World:
    """What is measured: how many facts, the ledger's storage, and how often all queries are asked."""

    facts: int
    storage: str
    rounds: int

    def __str__(self) -> str:
        return f"{self.facts} facts, {self.storage}"

    @property
    def setting(self) -> Setting:
        """The world as it is built: the index comes after the rows."""
        return Setting(self.facts, self.facts, self.storage)


def worlds(*, quick: bool, full: bool, facts: int | None) -> list[World]:
    """Return what is measured."""
    storages = ("sqlite", "postgres")
    if quick:
        return [World(20, storage, rounds=1) for storage in storages]
    sizes = [facts] if facts else [10_000, *([MILLION] if full else [])]
    return [World(size, storage, ROUNDS) for size in sizes for storage in storages]


class Asked:
    """The store with vectors that were made before.

    Args:
        queries: texts, each with a vector of its own near a cluster of the store's.
    """

    def __init__(self, queries: int) -> None:
        # The store's vectors begin at 0: these are near them, and none is one of them.
        self._vectors = {f"query {n}": vector_of(-1 - n) for n in range(queries)}

    @property
    def texts(self) -> list[str]:
        """What is asked."""
        return list(self._vectors)

    async def embed(self, text: str) -> list[float]:
        """Return the vector of a query, without a thread or a model."""
        return self._vectors.get(text) or vector_of(0)

    def store(self, pool: AsyncConnectionPool[Any]) -> PgVectorStore:
        """Return the adapter."""
        return PgVectorStore(
            pool, table=TABLE, dimensions=DIMENSIONS, embed=self.embed, name=NAME, index="hnsw"
        )


async def built(place: Place, world: World) -> None:
    """Fill ledger and table, and make the index with memory enough for it."""
    await build(place, world.setting)
    pool: AsyncConnectionPool[Any] = AsyncConnectionPool(
        place.url("store"), open=False, min_size=1, max_size=1, kwargs={"options": BUILDING}
    )
    async with pool:
        await Asked(0).store(pool).find("nothing")
    with psycopg.connect(place.url("store"), autocommit=True) as conn:
        conn.execute("VACUUM ANALYZE")


class Bench:
    """One world, asked.

    Args:
        place: where it is.
        world: what it is.
    """

    def __init__(self, place: Place, world: World) -> None:
        self._place = place
        self._world = world
        self._seconds: list[dict[str, list[float]]] = []

    async def run(self) -> Figures:
        """Ask each query of each side, in turns; the first round only warms them."""
        queries, url = Asked(min(QUERIES, self._world.facts)), self._place.ledger(self._world.storage)
        pool: AsyncConnectionPool[Any] = AsyncConnectionPool(
            self._place.url("store"), open=False, min_size=1, max_size=1
        )
        async with pool, await Ledger.open(url) as ledger:
            store = queries.store(pool)
            statements = {text: await self._statements(ledger, store, text) for text in queries.texts}
            async with AsyncCoordinator(ledger, stores=[store]) as custody, self._floor(url) as floor:
                for number in range(self._world.rounds + 1):
                    seconds = await self._round(custody, store, floor, statements)
                    if number:
                        self._seconds.append(seconds)
        return self._figures()

    @asynccontextmanager
    async def _floor(self, url: str) -> AsyncGenerator[Floor]:
        """Give what issues statements: on Postgres from the event loop, as everybody here asks it."""
        if self._world.storage == "postgres":
            async with await psycopg.AsyncConnection.connect(url, autocommit=True) as conn:
                await conn.execute(SESSION)
                yield partial(issued_on, conn)
        else:
            with closing(SqliteFloor(Path(url.removeprefix("sqlite:///")))) as bare:

                async def issue(statements: Sequence[Statement]) -> float:
                    return bare.run(statements)

                yield issue

    async def _statements(self, ledger: Ledger, store: PgVectorStore, text: str) -> list[Statement]:
        """Return what the ledger issues for the entries that a search serves."""
        entries = [hit.entry for hit in await store.search(text, K, None)]
        assert len(entries) == K
        recording = recording_postgres if self._world.storage == "postgres" else recording_sqlite
        return await record(recording, lambda: ledger.follow(entries))

    async def _round(
        self,
        custody: AsyncCoordinator,
        store: PgVectorStore,
        floor: Floor,
        statements: dict[str, list[Statement]],
    ) -> dict[str, list[float]]:
        seconds: dict[str, list[float]] = {side: [] for side in SIDES}
        gc.collect()
        orders = itertools.cycle(itertools.permutations(SIDES))
        for (text, issued), order in zip(statements.items(), orders, strict=False):
            answers: dict[str, Any] = {}
            for side in order:
                if side == "ledger":
                    seconds[side].append(await floor(issued))
                elif side == "bare":
                    answers[side] = await timed(seconds[side], partial(store.search, text, K, None))
                else:
                    answers[side] = await timed(seconds[side], partial(custody.recall, text, k=K))
            check(answers["bare"], answers["guarded"].facts)
        return seconds

    def _figures(self) -> Figures:
        """Return medians of the rounds' percentiles, in milliseconds, and what the bound is about."""
        found: Figures = {}
        for name, share in PERCENTILES.items():
            rounds = [{side: at(share, one[side]) for side in SIDES} for one in self._seconds]
            for side in SIDES:
                found[f"{side}_{name}_ms"] = 1000 * median([one[side] for one in rounds])
            found[f"ratio_{name}"] = median([one["guarded"] / one["bare"] for one in rounds])
            allowed = [one["guarded"] / (ALLOWED * one["bare"] + one["ledger"]) for one in rounds]
            found[f"of_allowed_{name}"] = median(allowed)
        return found


async def issued_on(conn: psycopg.AsyncConnection[Any], statements: Sequence[Statement]) -> float:
    """Issue statements, fetch and decode all their rows, and return the seconds it took."""
    start = time.perf_counter()
    for sql, parameters, _ in statements:
        cursor = await conn.execute(sql, parameters)
        decoded(await cursor.fetchall())
    return time.perf_counter() - start


async def timed(seconds: list[float], ask: Callable[[], Awaitable[Any]]) -> Any:
    """Ask, and note how long it took."""
    start = time.perf_counter()
    answer = await ask()
    seconds.append(time.perf_counter() - start)
    return answer


def check(bare: Sequence[Hit], guarded: Sequence[Any]) -> None:
    """Hold both sides to the same answer: here everything that the store serves is believed."""
    assert [hit.entry.fact_id for hit in bare] == [fact.fact_id for fact in guarded]


def at(share: float, seconds: Sequence[float]) -> float:
    """Return a percentile."""
    ordered = sorted(seconds)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def measured(place: Place, world: World, *, quick: bool) -> Figures:
    """Build a world in a process of its own, measure it in others, and return the medians."""
    told = [place.server, str(place.folder), place.name, json.dumps(asdict(world))]
    figures: Figures
    place.make("store", "ledger")
    try:
        start = time.perf_counter()
        if quick:
            asyncio.run(built(place, world))
            figures = asyncio.run(Bench(place, world).run())
        else:
            subprocess.run([sys.executable, __file__, "--build", *told], check=True)
            print(f"built in {time.perf_counter() - start:.0f} s", flush=True)
            run = [sys.executable, __file__, "--run", *told]
            found: list[Figures] = [
                json.loads(subprocess.run(run, check=True, stdout=subprocess.PIPE, text=True).stdout)
                for _ in range(PROCESSES)
            ]
            figures = {name: median([one[name] for one in found]) for name in found[0]}
    finally:
        place.drop("store", "ledger")
    print(world)
    for side in SIDES:
        print(f"  {side:14s}", *(f"{name} {figures[f'{side}_{name}_ms']:8.3f} ms" for name in PERCENTILES))
    for name in ("ratio", "of_allowed"):
        print(f"  {name:14s}", *(f"{p} {figures[f'{name}_{p}']:8.2f}   " for p in PERCENTILES), flush=True)
    return figures


def summed_up(worlds: Sequence[World], found: Sequence[Figures]) -> dict[str, float | None]:
    """Return the worst of all worlds of what has a bound, and all figures of each."""
    figures: dict[str, float | None] = {
        name: max(one[name] for one in found) for name in (f"of_allowed_{p}" for p in PERCENTILES)
    }
    for world, one in zip(worlds, found, strict=True):
        figures |= {f"{world.facts}_{world.storage}_{name}": value for name, value in one.items()}
    return figures


BOUND: Bound = {f"of_allowed_{name}": {"most": 1.0} for name in PERCENTILES}
"""Guarded may take 1.2 times the bare search and the ledger's statement; the figure is the share of that."""


def main() -> int:
    """Run the benchmark and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="a smoke test; its figures mean nothing")
    parser.add_argument("--full", action="store_true", help="also a million facts; most of an hour")
    parser.add_argument("--facts", type=int, help="another number of facts, and only that")
    told = ("SERVER", "FOLDER", "NAME", "WORLD")
    parser.add_argument("--build", nargs=4, metavar=told, help=argparse.SUPPRESS)
    parser.add_argument("--run", nargs=4, metavar=told, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if order := arguments.build or arguments.run:
        place, world = Place(order[0], Path(order[1]), order[2]), World(**json.loads(order[3]))
        if arguments.build:
            asyncio.run(built(place, world))
        else:
            print(json.dumps(asyncio.run(Bench(place, world).run())))
        return 0
    chosen = worlds(quick=arguments.quick, full=arguments.full, facts=arguments.facts)
    folder = Path(tempfile.mkdtemp(prefix="custody-bench-"))
    try:
        with EmbeddedPostgres(durable=True) as server:
            places = [Place(server, folder, f"world{n}") for n in range(len(chosen))]
            found = [
                measured(place, world, quick=arguments.quick)
                for place, world in zip(places, chosen, strict=True)
            ]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return conclude("recall_latency", summed_up(chosen, found), BOUND, enforced=not arguments.quick)


if __name__ == "__main__":
    sys.exit(main())
