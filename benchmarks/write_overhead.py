"""What custody costs per write, beside the stores' own time and one durable commit.

Three comparisons, each against a floor that writes the very rows ours wrote, with the same
schema, pragmas and groups, in a copy of the same ledger of 50,000 facts:

* a write through three stores of 20 ms, one at a time, and its CPU at 32 at once;
* `ledger.append` with 64 at once;
* a write into three instant stores with 64 at once.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _bench import Bound, RawLedger, Reader, Rows, at_once, conclude, median, spread

from custody_sync import AsyncCoordinator, Ledger
from custody_sync.ledger import Assert
from custody_sync.model import Fact, Label, Placement, Provenance
from custody_sync.runtime import Runtime
from custody_sync.stores import Deadlines

BEGINNING = "beginning.db"
DELAY = 0.020
AT_ONCE = 64
STORES = ("agent", "memories", "vectors")
WORDS = (
    "the",
    "she",
    "they",
    "wants",
    "prefers",
    "moved",
    "asked",
    "about",
    "invoice",
    "coffee",
    "Berlin",
    "Monday",
)
BOUND: Bound = {
    "write_ratio": {"most": 1.15},
    "append_ratio": {"least": 0.5},
    "instant_ratio": {"least": 0.2},
}


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    held: int
    """Facts that are in the ledger before: an empty one would keep every index in a few pages."""
    pairs: int
    busy: int
    busy_rounds: int
    rounds: int
    appends: int


FULL = Size(held=50_000, pairs=150, busy=960, busy_rounds=3, rounds=25, appends=1280)
QUICK = Size(held=200, pairs=4, busy=64, busy_rounds=1, rounds=2, appends=128)


class SlowStore:
    """A store that takes its time and keeps nothing."""

    def __init__(self, name: str, delay: float) -> None:
        self.name = name
        self._delay = delay

    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        """Wait as a network would."""
        if self._delay:
            await asyncio.sleep(self._delay)
        return (label.key,)

    async def delete(self, entry: object) -> None:
        """Keep nothing, so nothing goes."""


class Bench:
    """Files and rows of one run.

    Args:
        folder: where ledgers are made; on a disk, since durability is part of the cost.
        size: how much is measured.
    """

    def __init__(self, folder: Path, size: Size) -> None:
        self._folder = folder
        self._size = size
        self._made = 0

    async def fill(self) -> None:
        """Make the ledger that every measurement begins with."""
        runtime = Runtime()
        async with await Ledger.open(f"sqlite:///{self._folder / BEGINNING}", create=True) as ledger:
            calls = ((ledger.append, {"draft": _draft(i, runtime)}) for i in range(self._size.held))
            await at_once(256, calls)

    async def ledger(self) -> tuple[Ledger, Path]:
        """Open a copy of that ledger."""
        path = self._copy()
        return await Ledger.open(f"sqlite:///{path}"), path

    def raw(self) -> RawLedger:
        """Open another copy by hand."""
        return RawLedger(self._copy())

    def groups(self, path: Path) -> list[Rows]:
        """Return what was appended to a copy, in the groups it was committed in."""
        with closing(Reader(path)) as reader:
            return reader.groups(after=self._size.held)

    def _copy(self) -> Path:
        self._made += 1
        return Path(shutil.copy(self._folder / BEGINNING, self._folder / f"{self._made}.db"))

    # --- three stores of 20 ms --------------------------------------------------------------

    async def slow_stores(self) -> dict[str, float]:
        """Alternate single writes with the same puts and one raw commit of the same rows."""
        ledger, path = await self.ledger()
        stores = [SlowStore(name, DELAY) for name in STORES]
        reader, ours, floor, commit = Reader(path), [], [], []
        async with AsyncCoordinator(ledger, stores=stores) as custody:
            with self.raw() as raw:
                for i in range(self._size.pairs):
                    said = _arguments(i)
                    start = time.perf_counter()
                    await custody.write(**said)
                    ours.append(time.perf_counter() - start)
                    (rows,) = reader.groups(after=self._size.held + i)
                    start = time.perf_counter()
                    await asyncio.gather(*(store.put(*_put(rows)) for store in stores))
                    put = time.perf_counter()
                    raw.commit(rows)
                    floor.append(time.perf_counter() - start)
                    commit.append(time.perf_counter() - put)
        reader.close()
        await ledger.close()
        ratio = median(ours) / median(floor)
        print(f"three stores of {DELAY * 1000:.0f} ms, one write at a time, {len(ours)} pairs")
        print(f"  floor {1000 * median(floor):.2f} ms, of it the raw commit {1000 * median(commit):.2f} ms")
        print(f"  ours  {1000 * median(ours):.2f} ms                                   ratio {ratio:.3f}")
        return {"write_ratio": ratio, "cpu_ratio_at_32": await self._busy(stores)}

    async def _busy(self, stores: Sequence[SlowStore]) -> float:
        """Compare the CPU per write at 32 at once; waiting is free, work is not."""
        count, many = self._size.busy, 32
        ratios, parts = [], []
        for _ in range(self._size.busy_rounds):
            ledger, path = await self.ledger()
            gates = Deadlines(concurrency=many)
            async with AsyncCoordinator(ledger, stores=stores, deadlines=gates) as custody:
                ours = await _cpu(at_once(many, [(custody.write, _arguments(i)) for i in range(count)]))
            groups = self.groups(path)
            await ledger.close()
            with self.raw() as raw:

                async def put(rows: Rows, raw: RawLedger = raw) -> None:
                    await asyncio.gather(*(s.put(*_put(rows)) for s in stores for _ in rows.tables["facts"]))
                    raw.commit(rows)

                floor = await _cpu(at_once(2, ((put, {"rows": rows}) for rows in groups)))
            ratios.append(ours / floor)
            parts.append((ours / count, floor / count))
        print(f"  CPU per write at {many} at once: floor {_micro(p[1] for p in parts)}, "
              f"ours {_micro(p[0] for p in parts)}, ratio {spread(ratios)}")  # fmt: skip
        return median(ratios)

    # --- appends and instant stores ---------------------------------------------------------

    async def throughput(self) -> dict[str, float | None]:
        """Alternate appends, raw groups of the same rows, writes into instant stores and the peer."""
        runtime, seconds = Runtime(), dict[str, list[float]]()
        size, stores = self._size, [SlowStore(name, 0) for name in STORES]
        sizes: list[float] = []
        async with AsyncExitStack() as open_now:
            ledger, path = await self.ledger()
            other, _ = await self.ledger()
            for opened in (ledger, other):
                await open_now.enter_async_context(opened)
            raw = open_now.enter_context(self.raw())
            reader = open_now.enter_context(closing(Reader(path)))
            gates = Deadlines(concurrency=AT_ONCE)
            custody = await open_now.enter_async_context(
                AsyncCoordinator(other, stores=stores, deadlines=gates)
            )
            peer = await _peer(open_now, self._folder / "peer.db")
            for i in range(size.rounds):
                numbers = range(i * size.appends, (i + 1) * size.appends)
                drafts = [(ledger.append, {"draft": _draft(n, runtime)}) for n in numbers]
                writes = [(custody.write, _arguments(n)) for n in numbers]
                await _time(seconds, "append", drafts)
                groups = reader.groups(after=size.held + numbers.start)
                await _time(seconds, "raw", [(_commit, {"raw": raw, "rows": rows}) for rows in groups], at=1)
                await _time(seconds, "write", writes)
                if peer is not None:
                    await _time(seconds, "peer", [(peer, _arguments(n)) for n in numbers])
                sizes.append(size.appends / len(groups))
        return self._show(seconds, sizes)

    def _show(self, seconds: dict[str, list[float]], sizes: Sequence[float]) -> dict[str, float | None]:
        speeds = {
            name: [raw / theirs for raw, theirs in zip(seconds["raw"], times, strict=True)]
            for name, times in seconds.items()
        }
        rounds, facts = len(sizes), self._size.appends
        print(f"{AT_ONCE} at once, {rounds} rounds of {facts} facts with {len(STORES)} placements")
        titles = {
            "raw": f"raw sqlite3, groups of {median(sizes):.0f}",
            "append": "ledger.append",
            "write": "write, instant stores",
            "peer": "peer, AsyncSqliteStore",
        }
        for name, times in seconds.items():
            each = _micro(second / facts for second in times)
            print(f"  {titles[name]:28s} {each:>8s} a fact, × raw {spread(speeds[name])}")
        return {
            "append_ratio": median(speeds["append"]),
            "instant_ratio": median(speeds["write"]),
            "peer_ratio": median(speeds["peer"]) if "peer" in speeds else None,
            "group_size": median(sizes),
        }


async def _time(seconds: dict[str, list[float]], name: str, calls: Sequence[Any], at: int = AT_ONCE) -> None:
    gc.collect()
    start = time.perf_counter()
    await at_once(at, calls)
    seconds.setdefault(name, []).append(time.perf_counter() - start)


async def _commit(raw: RawLedger, rows: Rows) -> None:
    raw.commit(rows)


async def _peer(open_now: AsyncExitStack, path: Path) -> Callable[..., Awaitable[None]] | None:
    """Open LangGraph's SQLite store: durable as well, grouped as well, one row a text and no ledger."""
    try:
        store_class: Any = importlib.import_module("langgraph.store.sqlite.aio").AsyncSqliteStore
    except ImportError:
        return None
    store = await open_now.enter_async_context(store_class.from_conn_string(str(path)))
    await store.setup()
    await store.conn.execute("PRAGMA journal_mode = WAL")
    await store.conn.execute("PRAGMA synchronous = FULL")

    async def put(**said: Any) -> None:
        await store.aput(("memories", said["space"]), said["subject"], {"text": said["value"]})

    return put


def _arguments(i: int) -> dict[str, Any]:
    return {
        "subject": f"acct:{i}",
        "predicate": "plan",
        "value": " ".join(random.Random(i).choices(WORDS, k=16)),
        "space": f"user:{i % 50}",
        "actor": "agent:support",
        "receipt_id": f"turn:{i}",
    }


def _draft(i: int, runtime: Runtime) -> Assert:
    now, said = runtime.clock.now(), _arguments(i)
    fact_id = runtime.ids.fact_id(now)
    fact = Fact(
        fact_id=fact_id,
        text=f"{said['subject']} {said['predicate']}: {said['value']}",
        provenance=Provenance.ATTESTED,
        valid_from=now,
        **said,
    )
    placements = tuple(
        Placement(
            store=store,
            external_id=f"{fact_id}.{runtime.ids.generation()}",
            fact_id=fact_id,
            scope=None,
            stored_at=now,
        )
        for store in STORES
    )
    return Assert(event_id=runtime.ids.event_id(), fact=fact, placements=placements)


def _put(rows: Rows) -> tuple[Any, Any]:
    """Return what a floor's put is called with: something that has a key."""
    return None, _Key(rows.tables["events"][0][1])


@dataclass(frozen=True)
class _Key:
    key: str


async def _cpu(work: Awaitable[None]) -> float:
    gc.collect()
    start = time.process_time()
    await work
    return time.process_time() - start


def _micro(seconds: Iterable[float]) -> str:
    return f"{1e6 * median(list(seconds)):.0f} µs"


async def _run(size: Size) -> dict[str, float | None]:
    folder = Path(tempfile.mkdtemp(prefix="custody-bench-"))
    try:
        bench = Bench(folder, size)
        await bench.fill()
        slow = await bench.slow_stores()
        return {**slow, **await bench.throughput()}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    """Run the benchmark and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="a smoke test; its figures mean nothing")
    quick = parser.parse_args().quick
    figures = asyncio.run(_run(QUICK if quick else FULL))
    return conclude("write_overhead", figures, BOUND, enforced=not quick)


if __name__ == "__main__":
    sys.exit(main())
