"""What custody costs per write, beside the stores' own time and one durable commit.

Three comparisons, each against a floor that writes the very rows ours wrote, with the same
schema, pragmas and groups, in a copy of the same ledger of 20,000 facts:

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
from collections.abc import Awaitable, Iterable, Sequence
from contextlib import closing
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
    rounds: int
    appends: int


FULL = Size(held=20_000, pairs=150, busy=960, rounds=9, appends=3000)
QUICK = Size(held=200, pairs=4, busy=64, rounds=1, appends=256)


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
        for _ in range(max(self._size.rounds // 2, 1)):
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
        appends, instants, peers, sizes = [], [], [], []
        speeds: dict[str, list[float]] = {"raw": [], "append": [], "write": [], "peer": []}
        for _ in range(self._size.rounds):
            append, raw, size = await self._append_round()
            instant = await self._instant_round()
            peer = await _peer_round(self._folder, self._size.appends)
            for name, seconds in (("raw", raw), ("append", append), ("write", instant), ("peer", peer)):
                if seconds is not None:
                    speeds[name].append(seconds / self._size.appends)
            appends.append(raw / append)
            instants.append(raw / instant)
            sizes.append(size)
            if peer is not None:
                peers.append(raw / peer)
        print(f"64 at once, {self._size.appends} facts with {len(STORES)} placements, {len(sizes)} rounds")
        print(f"  raw sqlite3, groups of {median(sizes):.0f}  {_micro(speeds['raw'])} a fact")
        print(f"  ledger.append            {_micro(speeds['append'])}, × raw {spread(appends)}")
        print(f"  write, instant stores    {_micro(speeds['write'])}, × raw {spread(instants)}")
        if peers:
            print(f"  peer, AsyncSqliteStore   {_micro(speeds['peer'])}, × raw {spread(peers)}")
        return {
            "append_ratio": median(appends),
            "instant_ratio": median(instants),
            "peer_ratio": median(peers) if peers else None,
            "group_size": median(sizes),
        }

    async def _append_round(self) -> tuple[float, float, float]:
        count, runtime = self._size.appends, Runtime()
        ledger, path = await self.ledger()
        drafts = [_draft(i, runtime) for i in range(count)]
        gc.collect()
        start = time.perf_counter()
        await at_once(64, ((ledger.append, {"draft": draft}) for draft in drafts))
        ours = time.perf_counter() - start
        groups = self.groups(path)
        await ledger.close()
        with self.raw() as raw:
            gc.collect()
            start = time.perf_counter()
            for rows in groups:
                raw.commit(rows)
            floor = time.perf_counter() - start
        return ours, floor, count / len(groups)

    async def _instant_round(self) -> float:
        count = self._size.appends
        ledger, _ = await self.ledger()
        stores = [SlowStore(name, 0) for name in STORES]
        async with AsyncCoordinator(ledger, stores=stores, deadlines=Deadlines(concurrency=64)) as custody:
            calls = [(custody.write, _arguments(i)) for i in range(count)]
            gc.collect()
            start = time.perf_counter()
            await at_once(64, calls)
            seconds = time.perf_counter() - start
        await ledger.close()
        return seconds


async def _peer_round(folder: Path, count: int) -> float | None:
    """Put the same texts into LangGraph's SQLite store: durable as well, batched as well, no ledger."""
    try:
        store_class: Any = importlib.import_module("langgraph.store.sqlite.aio").AsyncSqliteStore
    except ImportError:
        return None
    path = folder / "peer.db"
    path.unlink(missing_ok=True)
    async with store_class.from_conn_string(str(path)) as store:
        await store.setup()
        await store.conn.execute("PRAGMA journal_mode = WAL")
        await store.conn.execute("PRAGMA synchronous = FULL")
        items = [(("memories", "org"), str(i), {"text": _arguments(i)["value"]}) for i in range(count)]
        gc.collect()
        start = time.perf_counter()
        calls = ((store.aput, {"namespace": n, "key": k, "value": v}) for n, k, v in items)
        await at_once(64, calls)
        return time.perf_counter() - start


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
