"""What a power cut leaves of a ledger: on an honest disk everything acknowledged, on a lying one no lie.

A process works on a ledger with a library preloaded that writes down its every write and sync; each
case makes of that what a disk would have kept. After a disk that lied about syncs, or tore pages, the
ledger is refused, or says that it moved back or is not whole; no repair takes live memories for leftovers.
`CUSTODY_SYNC_DISKS` says how many cases there are of each lie and storage, `CUSTODY_SYNC_KILL_SEED` a seed.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from fix_books import Book, JsonlBook, Row, SqliteBook
from fix_history_log import draft_of, logged
from fix_lying_disk import (
    SOURCE,
    Disk,
    Op,
    compiled,
    forgotten,
    honest,
    read_journal,
    scattered,
    syncs,
    torn,
)
from fix_oracle import read_log
from fix_report import report

from custody_sync import AsyncCoordinator, Ledger
from custody_sync.canonical import canonical
from custody_sync.errors import BreakerOpen, CustodyError, LedgerError, LedgerRestored
from custody_sync.ledger import Assert
from custody_sync.model import Label
from custody_sync.testing import ManualClock, MemoryStore, testing_runtime

CHILD = SOURCE.with_name("lying_disk_child.py")
FULL = bool(os.environ.get("CUSTODY_SYNC_FULL"))
CASES = int(os.environ.get("CUSTODY_SYNC_DISKS", "400" if FULL else "24"))
SEED = os.environ.get("CUSTODY_SYNC_KILL_SEED", "0")
EMBEDDED: dict[str, Callable[[Path], Book]] = {"sqlite": SqliteBook, "jsonl": JsonlBook}
LATER = timedelta(minutes=20)


@dataclass(frozen=True)
class Record:
    """What one process did to a ledger, and the log that it left."""

    storage: str
    ops: list[Op]
    rows: list[Row]
    ledger_id: str

    @property
    def name(self) -> str:
        """The name of the ledger's file."""
        return "custody.db" if self.storage == "sqlite" else "custody.jsonl"

    @property
    def hashes(self) -> list[str]:
        """The hashes of the log."""
        return [row.digest for row in self.rows]

    def head_line(self, seq: int) -> str:
        """Return what a witness keeps of an event."""
        row = self.rows[seq - 1]
        head = {"count": seq, "hash": row.digest, "ledger_id": self.ledger_id, "seq": seq}
        return canonical(head | {"tx_time": json.loads(row.body)["tx_time"]}).decode()


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that writes down writes."""
    return compiled(tmp_path_factory.mktemp("library"))


def recorded(storage: str, library: Path, folder: Path) -> Record:
    """Let a process work on a ledger of its own and return what it did."""
    ledger = folder / "ledger"
    ledger.mkdir()
    name = "custody.db" if storage == "sqlite" else "custody.jsonl"
    subprocess.run(
        [sys.executable, str(CHILD), f"{storage}:///{ledger / name}", str(ledger)],
        env=os.environ
        | {"LD_PRELOAD": str(library), "LYING_DISK_LOG": str(folder / "journal")}
        | {"LYING_DISK_FOLDER": f"{ledger}/", "CUSTODY_SYNC_WITNESS": str(folder / "witness")},
        check=True,
    )
    book = EMBEDDED[storage](ledger)
    assert read_log(book), "nothing was recorded"
    made = Record(storage, read_journal(folder / "journal"), book.rows(), book.ledger_id())
    whole = Disk.after(made.ops)
    for path, number in whole.names.items():
        assert Path(path).read_bytes() == whole.files[number], f"{path} was changed behind our back"
    return made


@pytest.fixture(scope="module", params=EMBEDDED)
def record(request: pytest.FixtureRequest, library: Path, tmp_path_factory: pytest.TempPathFactory) -> Record:
    """One process's work on each storage that is a file."""
    return recorded(request.param, library, tmp_path_factory.mktemp("record"))


# --- looking at what is left -------------------------------------------------------------------


@dataclass
class Look:
    """What somebody sees who opens what a disk has kept."""

    seen: list[str] | None = None
    """The hashes of the log; None where it was refused."""
    said: bool = False
    """Whether a verification says that something is wrong."""
    refused: str = ""
    swept: str = ""
    """How a repair ended."""
    lost: set[str] | None = None
    """Live entries that a repair took."""

    def __str__(self) -> str:
        seen = "nothing" if self.seen is None else f"{len(self.seen)} events"
        said = "something is wrong" if self.said else "all is well"
        return f"{seen} seen, verified: {said}, refused: {self.refused}, repair: {self.swept}, {self.lost}"


async def look(record: Record, disk: Disk, witnessed: int, folder: Path) -> Look:
    """Open it, verify it, and repair with it over a store that holds all that is believed."""
    lay_out(record, disk, witnessed, folder)
    found, clock = Look(), ManualClock()
    clock.set(last_of(record) + LATER)
    try:
        url = f"{record.storage}:///{folder / record.name}"
        runtime = testing_runtime(clock=clock)
        async with await Ledger.open(url, runtime=runtime, witness=folder / "witness") as ledger:
            found.said = (await ledger.verify()).found
            found.seen = [row["hash"] async for row in ledger.export()]
            # What was committed and not yet acknowledged may have ended something too.
            told = (await ledger.head()).seq
            upto = max(witnessed or len(record.rows), len(found.seen), min(told, len(record.rows)))
            await sweep(record, ledger, found, clock, upto)
    except LedgerError as error:
        found.refused = error.code
    return found


def lay_out(record: Record, disk: Disk, witnessed: int, folder: Path) -> None:
    """Put what a disk has kept into a folder, and beside it the witness, which lay on another disk."""
    (folder / "witness").mkdir(parents=True)
    disk.put(folder)
    if witnessed:
        kept = folder / "witness" / f"{record.ledger_id}.json"
        kept.write_text(record.head_line(witnessed) + "\n")


async def sweep(record: Record, ledger: Ledger, found: Look, clock: ManualClock, upto: int) -> None:
    """Repair, whatever the ledger has become, and note what is missing of what was live."""
    store = MemoryStore("memories", clock=clock)
    live = await fill(store, record, upto)
    runtime = testing_runtime(clock=clock)
    async with AsyncCoordinator(ledger, stores=[store], runtime=runtime) as custody:
        try:
            await custody.repair(actor="ops", reason="after a power cut")
            found.swept = "done"
        except CustodyError as error:
            found.swept = error.code
    found.lost = live - store.snapshot().keys()


async def fill(store: MemoryStore, record: Record, upto: int) -> set[str]:
    """Put into a store what the log had believed up to an event, under the ids that it names."""
    events = logged(record.rows[:upto])
    ended = {e.fact_id for e in events if e.kind in ("retract", "forget")}
    ended |= {str(e.data["supersedes"]) for e in events if e.kind == "assert"}
    live = set()
    for event in events:
        draft = draft_of(event)
        if not isinstance(draft, Assert) or event.fact_id in ended or draft.fact.value is None:
            continue
        for placement in draft.placements:
            label = Label(
                ledger_id=record.ledger_id,
                fact_id=event.fact_id,
                space="org",
                stored_at=placement.stored_at or event.tx,
                generation=placement.external_id.rpartition(".")[2],
                actor="agent:clerk",
                provenance=draft.fact.provenance,
                valid_from=draft.fact.valid_from,
            )
            assert list(await store.put(draft.fact, label)) == [placement.external_id]
            live.add(placement.external_id)
    return live


def last_of(record: Record) -> datetime:
    """Return the time of the last event."""
    return logged(record.rows[-1:])[0].tx


def run(record: Record, disk: Disk, witnessed: int, folder: Path) -> Look:
    """Look, from a test that is not asynchronous."""
    return asyncio.run(look(record, disk, witnessed, folder))


# --- what has to hold --------------------------------------------------------------------------


def test_an_honest_disk_keeps_whatever_was_acknowledged(record: Record, tmp_path: Path) -> None:
    """Whatever it drops or tears of what was not synced; the log is whole, and the rest is the log's."""
    rng = random.Random(f"honest {SEED}")
    for case in range(CASES):
        end = rng.randrange(first_sync(record), len(record.ops))
        acknowledged = Disk.after(record.ops[:end]).acknowledged()
        found = run(record, honest(record.ops, end, rng), acknowledged, tmp_path / str(case))
        told = f"seed {SEED}, cut after operation {end}: {found}"
        assert (found.refused, found.said) == ("", False), told
        assert found.seen is not None, told
        assert found.seen == record.hashes[: len(found.seen)], told
        assert len(found.seen) >= acknowledged, told
        assert found.lost == set(), told


def forgets(ops: list[Op], end: int, rng: random.Random) -> Disk:
    """Forget one to six syncs."""
    return forgotten(ops, end, rng.randint(1, 6))


LIES: dict[str, Callable[[list[Op], int, random.Random], Disk]] = {
    "forgets the last syncs": forgets,
    "forgets them file by file": scattered,
    "tears pages": torn,
}


@pytest.mark.parametrize("lie", LIES)
def test_after_a_lying_disk_nothing_is_served_as_whole_that_is_not(
    record: Record, lie: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """It is refused, or says that it is damaged, or is a part of the log and says that it moved back.

    A ledger that moved back sweeps nothing, and none sweeps anything live.
    """
    rng, came = random.Random(f"{lie} {SEED}"), Counter[str]()
    for case in range(CASES):
        end = rng.randrange(first_sync(record) + 200, len(record.ops))
        acknowledged = Disk.after(record.ops[:end]).acknowledged()
        found = run(record, LIES[lie](record.ops, end, rng), acknowledged, tmp_path / str(case))
        told = f"seed {SEED}, {lie}, cut after operation {end}, {acknowledged} acknowledged: {found}"
        if found.seen is None:
            assert found.refused, told
            came[found.refused] += 1
            continue
        is_part = found.seen == record.hashes[: len(found.seen)]
        moved_back = is_part and len(found.seen) < acknowledged
        assert found.said or (is_part and not moved_back), told
        if moved_back:
            assert found.swept == LedgerRestored.code, told
        assert found.lost == set(), told
        came["moved back" if moved_back else "said so" if found.said else "whole"] += 1
    assert came.keys() - {"whole"} or CASES < 20, "the disk did not lie"
    figures = {f"disks_{record.storage}_{lie.replace(' ', '_')}": dict(came)}
    line = ", ".join(f"{name} {count}" for name, count in sorted(came.items()))
    report(request.config, f"{record.storage} on a disk that {lie}: {line}", **figures)


def test_without_a_witness_the_breaker_keeps_a_repair_from_emptying_the_store(
    record: Record, tmp_path: Path
) -> None:
    """A ledger that lost its last events and was never swept with is stopped by how much it would remove."""
    ends = [place for place in syncs(record.ops) if place > first_sync(record)]
    half = ends[len(ends) // 3]
    found = run(record, Disk.after(record.ops[:half]), 0, tmp_path / "half")
    assert found.seen is not None
    assert 0 < len(found.seen) < len(record.rows)
    assert (found.swept, found.lost) == (BreakerOpen.code, set())


def first_sync(record: Record) -> int:
    """Return from where on there is a ledger whose making was acknowledged: that of its first event."""
    return next(place for place, op in enumerate(record.ops, 1) if op.what == "w" and op.data == b"1\n")
