"""What a ledger's answers and appends cost beside the same statements through the driver alone.

The same log of 10,000, 100,000 and, with --full, 1,000,000 events in each storage; most of its
facts are superseded, retracted or forgotten. A JSONL ledger answers from memory, so it is held
against the statements of SQLite on the same log, up to the number of events it takes.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import math
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from _bench import Bound, conclude, growth
from _ledger_appends import AT_ONCE, Amount, Drafts, measure_appends, measure_forgets, measure_singles
from _ledger_log import Log
from _ledger_postgres import PostgresStore
from _ledger_processes import measure_processes
from _ledger_questions import POINTS, Taken, measure, measure_opening, questions
from _ledger_stores import JsonlStore, SqliteStore, Store

from custody_sync import Ledger

STORES: dict[str, type[Store]] = {"sqlite": SqliteStore, "jsonl": JsonlStore, "postgres": PostgresStore}
SIZES = (10_000, 100_000)
MOST = 1_000_000
QUICK = 1_500
SLACK = 1.5
"""A larger ledger's pages are in fewer of the machine's caches; a scan would be far beyond it."""
FLAT_MB = 8


@dataclass(frozen=True)
class Size:
    """How much is asked of each ledger."""

    times: int
    openings: int
    appends: Amount
    race: tuple[int, int, int, int]
    """Processes, writers in each, appends of each process, rounds."""


FULL = Size(
    times=200,
    openings=15,
    appends=Amount(single=400, rounds=9, appends=1280, forgets=9),
    race=(8, 16, 1500, 5),
)
SMOKE = Size(
    times=2, openings=1, appends=Amount(single=2, rounds=1, appends=64, forgets=1), race=(1, 2, 8, 1)
)

Results = dict[str, dict[int, dict[str, Taken]]]
"""By storage, number of events and question."""


# --- one ledger -------------------------------------------------------------------------------


async def ask_all(store: Store, log: Log, size: Size) -> dict[str, Taken]:
    """Ask a ledger everything, then append to it and erase from it."""
    asked = questions(log, size.times)
    taken: dict[str, Taken] = {}
    floor = store.floor()
    try:
        first = asked["subject now"][: size.openings]
        recorded_url = store.recorded_url
        taken["open"] = await measure_opening(store.url, recorded_url, first, store.recording, floor)
        async with await Ledger.open(store.url) as ledger, await Ledger.open(recorded_url) as recorded:
            for name, asks in asked.items():
                taken[name] = await measure(asks, ledger, recorded, store.recording, floor)
    finally:
        floor.close()
    # A JSONL ledger at its ceiling answers, and takes nothing more.
    return taken | (await append_all(store, log, size) if log.events < store.most else {})


async def append_all(store: Store, log: Log, size: Size) -> dict[str, Taken]:
    """Append to a ledger and erase from it, beside what that comes down to in a copy of it."""
    drafts, taken = Drafts(log), dict[str, Taken]()
    # A database is copied while nobody is connected to it.
    with store.single_floor(log.events) as one_again:
        async with await Ledger.open(store.url) as ledger:
            taken |= await measure_singles(ledger, drafts, size.appends, store.recording, one_again)
    with store.append_floor(log.events + size.appends.single) as replay:
        async with await Ledger.open(store.url) as ledger:
            await replay()
            taken |= await measure_appends(ledger, drafts, size.appends, replay)
    with store.forget_floor() as again:
        async with await Ledger.open(store.url) as ledger:
            taken |= await measure_forgets(ledger, drafts, size.appends, store.recording, again)
    return taken


def memory_of(store: Store) -> float:
    """Return by how many megabytes another process grows that opens a ledger and asks."""
    command = [sys.executable, __file__, "--grow", store.url]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


async def grow(url: str) -> float:
    """Open a ledger, page through it, and return by how many megabytes this process grew."""
    with growth() as grown:
        async with await Ledger.open(url) as ledger:
            after: int | None = None
            for _ in range(20):
                page = await ledger.as_of(after=after, include_claimed=True)
                for fact in page[:20]:
                    await ledger.as_of(space=fact.space, subject=fact.subject)
                    await ledger.history(fact.fact_id)
                after = page.next
                if after is None:
                    break
            await ledger.known([f"nobody-knows-{i}" for i in range(10_000)])
    return grown.megabytes


# --- all of them ------------------------------------------------------------------------------


async def measure_all(sizes: Sequence[int], size: Size, folder: Path, names: Sequence[str]) -> Figures:
    """Build and ask every storage at every size that it takes."""
    results: Results = {}
    memory: dict[str, dict[int, float]] = {}
    with ExitStack() as stack:
        servers = {name: stack.enter_context(STORES[name].server()) for name in names}
        for events in sizes:
            for name in names:
                if events > STORES[name].most:
                    continue
                place = folder / f"{name}-{events}"
                place.mkdir()
                start = time.perf_counter()
                store, log = STORES[name](place, servers[name]), Log(events)
                await store.build(log)
                # What the log was made of is not to be walked through while answers are timed.
                gc.freeze()
                built = time.perf_counter() - start
                taken = await ask_all(store, log, size)
                results.setdefault(name, {})[events] = taken
                memory.setdefault(name, {})[events] = memory_of(store)
                show(name, events, built, taken, memory[name][events])
                store.drop()
        if "postgres" in names:
            found = figures(results, memory)
            place = folder / "race"
            place.mkdir()
            return found | await race(PostgresStore(place, servers["postgres"]), size)
    return figures(results, memory)


async def race(store: Store, size: Size) -> Figures:
    """Let many processes append to one Postgres ledger."""
    await store.build(Log(QUICK))
    found: Figures = dict(measure_processes(store.url, *size.race))
    store.drop()
    return found


def show(name: str, events: int, built: float, taken: Mapping[str, Taken], grown: float) -> None:
    """Print one ledger's medians."""
    print(f"{name}, {events} events, built in {built:.0f} s; asking grows a process by {grown:.1f} MB")
    for question, times in taken.items():
        ours, floor = 1e6 * times.ours, 1e6 * times.floor
        print(f"  {question:14s} ours {ours:10.0f} µs   floor {floor:10.0f} µs   ratio {times.ratio:.2f}")


Figures = dict[str, float | None]


def figures(results: Results, memory: Mapping[str, Mapping[int, float]]) -> Figures:
    """Return the worst ratio of each question over the sizes, the growth of points, and the memory."""
    found: Figures = {}
    for name, by_size in results.items():
        sizes = sorted(by_size)
        for question in by_size[sizes[0]]:
            worst = max(by_size[events][question].ratio for events in sizes if question in by_size[events])
            key = f"{name} {question}"
            found[key] = 1 / worst if question == f"append {AT_ONCE}" else worst
        for question in POINTS if len(sizes) > 1 else ():
            found[f"{name} {question}, growth"] = max(
                by_size[more][question].ours
                / by_size[less][question].ours
                / (math.log(more) / math.log(less))
                for less, more in itertools.pairwise(sizes)
            )
        grown = memory[name]
        found[f"{name} memory, growth in MB"] = grown[sizes[-1]] - grown[sizes[0]]
    return found


def bound_of(found: Figures) -> Bound:
    """Return what each figure may be; what takes work over a whole file is only shown."""
    bound: dict[str, dict[str, float]] = {}
    for figure in found:
        storage, _, what = figure.partition(" ")
        if what == "erase" or (storage == "jsonl" and what.startswith(("memory", "forget", "open"))):
            continue
        if what.startswith("memory"):
            bound[figure] = {"most": FLAT_MB}
        elif what == f"append {AT_ONCE}":
            bound[figure] = {"least": 0.6 if storage == "sqlite" else 0.5}
        elif what.endswith("of claims"):
            bound[figure] = {"least": 1 if what.startswith("storage") else 0.4}
        elif what.endswith("growth"):
            bound[figure] = {"most": SLACK}
        else:
            bound[figure] = {"most": 2}
    return bound


def main() -> int:
    """Run the benchmark and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--events", nargs="+", type=int, help="how many events the logs have")
    parser.add_argument("--full", action="store_true", help="also 1,000,000 events; takes half an hour")
    parser.add_argument("--quick", action="store_true", help="a smoke test; its figures mean nothing")
    parser.add_argument("--storages", nargs="+", choices=sorted(STORES), help="all by default")
    parser.add_argument("--grow", metavar="URL", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.grow:
        print(asyncio.run(grow(arguments.grow)))
        return 0
    sizes = arguments.events or (
        [QUICK] if arguments.quick else [*SIZES, *([MOST] if arguments.full else ())]
    )
    names = arguments.storages or list(STORES)
    folder = Path(tempfile.mkdtemp(prefix="custody-bench-"))
    try:
        size = SMOKE if arguments.quick else FULL
        found = asyncio.run(measure_all(sorted(sizes), size, folder, names))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return conclude("ledger", found, bound_of(found), enforced=not arguments.quick)


if __name__ == "__main__":
    sys.exit(main())
