"""What a repair sweep and a reconciliation cost beside the same statements issued by hand.

A pgvector table of 10,000, 100,000 and with `--full` 1,000,000 entries, each against a ledger of as
many events (`--full`: of a million) in SQLite and in Postgres. Each round leaves 1 % orphans; for a
reconciliation 0.2 % of the entries are lost, 0.2 % have another text and 0.2 % another label. The floor
reads a bare server-side cursor over the same columns, asks the ledger's own statements through the
driver alone, reads the JSON and compares, writes the rows of the same events in the same groups, and
puts, deletes and checks with the same concurrency.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
from _bench import Bound, conclude, growth, median, spread
from _reconcile_floor import (
    Asked,
    Comparing,
    Hands,
    connect,
    floor,
    postgres_commit,
    sqlite_commit,
    wordings,
)
from _reconcile_world import TABLE, Drift, Place, Setting, build, drift, store_of
from psycopg_pool import AsyncConnectionPool

from custody_sync import AsyncCoordinator, Ledger
from custody_sync.faultpoints import FaultPoint
from custody_sync.runtime import Runtime
from custody_sync.stores import Deadlines
from custody_sync.testing.postgres import EmbeddedPostgres

BOUND: Bound = {
    "sweep_ratio": {"most": 1.5},
    "reconcile_ratio": {"most": 1.5},
    "memory_mb": {"most": 100},
    "memory_growth_mb": {"most": 30},
}
AT_ONCE = Deadlines().concurrency
EXTRA = ("empty",)
MILLION = 1_000_000
Parts = dict[str, float]


def settings(*, quick: bool, full: bool) -> list[Setting]:
    """Return what is measured."""
    storages = ("sqlite", "postgres")
    if quick:
        return [Setting(400, 600, storage, rounds=1) for storage in storages]
    sizes = [(10_000, 7), (100_000, 3), *([(1_000_000, 3)] if full else [])]
    found = [
        Setting(entries, MILLION if full else entries, storage, rounds=rounds)
        for entries, rounds in sizes
        for storage in storages
    ]
    # What an index costs does not depend on the ledger.
    return found + [Setting(100_000, 100_000, storage, "hnsw", 3) for storage in storages]


class Marks:
    """When work passed its fault points."""

    def __init__(self) -> None:
        self.at: dict[str, float] = {}

    def __call__(self, point: str) -> None:
        self.at[point] = time.perf_counter()


class Bench:
    """One setting.

    Args:
        place: where it is.
        setting: what is compared.
    """

    def __init__(self, place: Place, setting: Setting) -> None:
        self._place = place
        self._setting = setting
        self._marks = Marks()
        self._ledger: Ledger
        self._custody: AsyncCoordinator
        self._pool: AsyncConnectionPool[Any]
        self._seed = 0
        self.ratios: dict[str, list[float]] = {"sweep": [], "reconcile": []}
        self.parts: dict[str, list[Parts]] = {}
        self.memory: list[float] = []

    async def run(self) -> None:
        """Alternate ours and the floor, for a sweep and for a reconciliation, each on drift of its own."""
        runtime = Runtime(reach=self._marks)
        url, storage = self._place.ledger(self._setting.storage), self._setting.storage
        pool = AsyncConnectionPool(self._place.url("store"), min_size=AT_ONCE, max_size=AT_ONCE, open=False)
        self._ledger = await Ledger.open(url, runtime=runtime)
        async with self._ledger, pool:
            self._pool = pool
            words = await wordings(self._ledger, storage)
            store = store_of(pool, self._setting.index)
            with closing(Asked(connect(self._place, self._setting), words)) as asked:
                async with AsyncCoordinator(self._ledger, stores=[store], runtime=runtime) as self._custody:
                    for number in range(self._setting.rounds):
                        for name, ours in (("sweep", self._sweep), ("reconcile", self._reconcile)):
                            await self._round(name, number, ours, asked)

    async def _round(self, name: str, number: int, ours: Callable[[Drift], Any], asked: Asked) -> None:
        drifted, before = self._drift(only_orphans=name == "sweep"), (await self._ledger.head()).seq
        with growth() as grown:
            parts = await ours(drifted)
        self.memory.append(grown.megabytes)
        commit = await self._commit(before, f"{name}{number}")
        drifted = self._drift(only_orphans=name == "sweep")
        gc.collect()
        comparing = Comparing(self._pool, asked, self._setting.storage == "postgres")
        hands = Hands(self._pool, AT_ONCE)
        bare = await floor(hands, comparing, None if name == "sweep" else drifted, commit)
        self._put_back(drifted)
        self.parts.setdefault(f"{name}, ours", []).append(parts)
        self.parts.setdefault(f"{name}, floor", []).append(bare)
        self.ratios[name].append(sum(parts.values()) / sum(bare.values()))

    def _drift(self, *, only_orphans: bool) -> Drift:
        self._seed += 1
        drifted = drift(
            self._place.url("store"), self._ledger.ledger_id, self._setting, self._seed, not only_orphans
        )
        return drifted

    async def _sweep(self, drifted: Drift) -> Parts:
        orphans, start = len(drifted.orphans), time.perf_counter()
        result = await self._custody.repair(actor="bench", reason="outage", max_removals=orphans)
        end = time.perf_counter()
        assert result.complete, result
        assert len(result.repaired) == orphans
        spooled = self._marks.at[FaultPoint.SWEEP_SPOOLED]
        return {"list, compare": spooled - start, "mend": end - spooled}

    async def _reconcile(self, drifted: Drift) -> Parts:
        orphans, lost = len(drifted.orphans), len(drifted.lost)
        start = time.perf_counter()
        result = await self._custody.reconcile(
            actor="bench", fix="all", max_removals=orphans, max_puts=2 * lost
        )
        end = time.perf_counter()
        assert result.complete, result.outcomes
        counts = {"orphan": orphans, "missing": lost, "altered_text": lost, "altered_label": lost}
        assert result.found == {"pgvector": counts}, result.found
        piled = self._marks.at[FaultPoint.RECONCILE_PILED]
        return {"list, compare": piled - start, "mend": end - piled}

    async def _commit(self, before: int, name: str) -> Callable[[], None]:
        """Return what writes the events of ours since one of them, by hand, into an empty ledger."""
        if self._setting.storage == "postgres":
            empty, written = self._place.ledger("postgres", "empty"), self._place.ledger("postgres")
            with psycopg.connect(empty, autocommit=True) as conn:
                conn.execute("DROP SCHEMA IF EXISTS custody_sync CASCADE")
            await (await Ledger.open(empty, create=True)).close()
            return postgres_commit(written, empty, before)
        empty = self._place.ledger("sqlite", name)
        await (await Ledger.open(empty, create=True)).close()
        paths = [Path(u.removeprefix("sqlite:///")) for u in (self._place.ledger("sqlite"), empty)]
        return sqlite_commit(paths[0], paths[1], before)

    def _put_back(self, drifted: Drift) -> None:
        """Give the floor's new rows the ids that the ledger has of them."""
        with psycopg.connect(self._place.url("store"), autocommit=True) as conn:
            keys = [f"{row[0]}x" for row in (*drifted.lost, *drifted.edited)]
            conn.execute(f"UPDATE {TABLE} SET key = left(key, -1) WHERE key = ANY(%s)".encode(), (keys,))
            conn.execute(f"VACUUM {TABLE}".encode())

    def show(self) -> None:
        """Print the parts of the cost."""
        print(f"{self._setting}: {self._setting.orphans} orphans, {self._setting.rounds} rounds")
        for name, runs in self.parts.items():
            print(f"  {name}")
            for part in runs[0]:
                print(f"    {part:16s} {median([run[part] for run in runs]):8.3f} s")
            print(f"    {'total':16s} {median([sum(run.values()) for run in runs]):8.3f} s")
        for name, ratios in self.ratios.items():
            print(f"  {name}: ratio {spread(ratios)}")
        print(f"  memory grew by at most {max(self.memory):.1f} MB", flush=True)


def measured(place: Place, setting: Setting) -> dict[str, Any]:
    """Build a world in a process of its own, measure it in another, and return what that says."""
    told = [place.server, str(place.folder), place.name, json.dumps(setting.__dict__)]
    place.make("store", "ledger", *EXTRA)
    try:
        start = time.perf_counter()
        subprocess.run([sys.executable, __file__, "--build", *told], check=True)
        print(f"built in {time.perf_counter() - start:.0f} s", flush=True)
        run = [sys.executable, __file__, "--run", *told]
        said = subprocess.run(run, check=True, stdout=subprocess.PIPE, text=True).stdout
    finally:
        place.drop("store", "ledger", *EXTRA)
    *shown, figures = said.splitlines()
    print("\n".join(shown), flush=True)
    found: dict[str, Any] = json.loads(figures)
    return found


def summed_up(settings: Sequence[Setting], found: Sequence[dict[str, Any]]) -> dict[str, float | None]:
    """Return the worst of all settings, and each of them."""
    figures: dict[str, float | None] = {
        "sweep_ratio": max(one["sweep"] for one in found),
        "reconcile_ratio": max(one["reconcile"] for one in found),
        "memory_mb": max(one["memory"] for one in found),
    }
    by_size: dict[int, list[float]] = {}
    for setting, one in zip(settings, found, strict=True):
        by_size.setdefault(setting.entries, []).append(one["memory"])
        for name in ("sweep", "reconcile"):
            figures[f"{name}_{setting.entries}_{setting.storage}_{setting.index}"] = one[name]
    # What the largest size takes more than a tenth of it does not grow with the size.
    sizes = sorted(by_size)
    grown = max(by_size[sizes[-1]]) - max(by_size[sizes[-2]]) if len(sizes) > 1 else 0.0
    figures["memory_growth_mb"] = max(grown, 0.0)
    return figures


def main() -> int:
    """Run the benchmark and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="a smoke test; its figures mean nothing")
    parser.add_argument(
        "--full", action="store_true", help="also a million entries, all beside a million events"
    )
    parser.add_argument("--only", metavar="ENTRIES", type=int, help="one size only")
    told = ("SERVER", "FOLDER", "NAME", "SETTING")
    parser.add_argument("--build", nargs=4, metavar=told, help=argparse.SUPPRESS)
    parser.add_argument("--run", nargs=4, metavar=told, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if order := arguments.build or arguments.run:
        place, setting = Place(order[0], Path(order[1]), order[2]), Setting(**json.loads(order[3]))
        if arguments.build:
            asyncio.run(build(place, setting))
            return 0
        bench = Bench(place, setting)
        asyncio.run(bench.run())
        bench.show()
        figures = {name: median(ratios) for name, ratios in bench.ratios.items()}
        print(json.dumps(figures | {"memory": max(bench.memory)}))
        return 0
    chosen = settings(quick=arguments.quick, full=arguments.full)
    if arguments.only:
        chosen = [setting for setting in chosen if setting.entries == arguments.only]
    folder = Path(tempfile.mkdtemp(prefix="custody-bench-"))
    try:
        with EmbeddedPostgres(durable=True) as server:
            places = [Place(server, folder, f"world{n}") for n in range(len(chosen))]
            found = [measured(place, setting) for place, setting in zip(places, chosen, strict=True)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    enforced = not (arguments.quick or arguments.only)
    return conclude("reconcile", summed_up(chosen, found), BOUND, enforced=enforced)


if __name__ == "__main__":
    sys.exit(main())
