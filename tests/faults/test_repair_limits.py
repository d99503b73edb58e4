"""What holds a sweep back: dry runs, the breaker, the lease."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fix_custody import ACTOR, BRIEF, LATER, Desk, error_of, kinds_of, open_desk

from custody_sync import AsyncCoordinator, Ledger, errors
from custody_sync.faultpoints import FaultPoint
from custody_sync.model import Entry, Outcome
from custody_sync.testing import ManualClock, MemoryStore

MINUTE = timedelta(minutes=1)


async def test_dry_run_writes_nothing_at_all(desk: Desk) -> None:
    """A dry run names every orphan, stray, pending removal and debt, and changes no byte anywhere."""
    orphan = await desk.orphan("memories")
    fact_id = await desk.written()
    stray = await desk.orphan("agent", fact_id=fact_id)
    gone = await desk.written("x", subject="acct:2")
    desk.stores["agent"].faults.silent_delete = True
    await desk.retract(gone)
    desk.stores["agent"].faults.silent_delete = False
    await desk.ledger.close()
    before = {p.name: p.read_bytes() for p in desk.path.parent.iterdir()}
    held = desk.held()
    async with await Ledger.open(desk.url, read_only=True, runtime=desk.runtime) as ledger:
        custody = AsyncCoordinator(ledger, stores=desk.stores.values(), runtime=desk.runtime)
        head = await ledger.head()
        result = await custody.repair(actor=ACTOR, reason="look", dry_run=True)
        assert await ledger.head() == head
    assert {(r.external_id, r.kind.value) for r in result.repaired} == {
        (orphan, "orphan"),
        (stray, "stray"),
        *((key, "pending") for key in desk.held_of(gone)["agent"]),
    }
    assert {r.outcome for r in result.repaired} == {Outcome.PLANNED}
    assert not result.complete
    assert result.dry_run
    assert desk.held() == held
    after = {p.name: p.read_bytes() for p in desk.path.parent.iterdir()}
    assert {n: b for n, b in after.items() if not n.endswith(("-wal", "-shm"))} == {
        n: b for n, b in before.items() if not n.endswith(("-wal", "-shm"))
    }
    assert not any(b for n, b in after.items() if n.endswith("-wal"))


async def test_dry_run_needs_no_lease(desk: Desk) -> None:
    """A dry run can be made while a sweep is running, and takes no lease itself."""
    await desk.ledger.acquire("lease", "sweep", holder="other", value='""', ttl=MINUTE)
    assert (await desk.repair(dry_run=True)).complete
    await error_of(desk.repair(), errors.SweepRunning)


@pytest.mark.parametrize(
    ("orphans", "facts", "trips"), [(3, 0, False), (4, 0, True), (4, 8, False), (5, 9, True)]
)
async def test_breaker_of_one_store(desk: Desk, orphans: int, facts: int, trips: bool) -> None:
    """More than three that are over a third of a store's labelled entries stop before the first one."""
    for n in range(facts):
        await desk.write(n, subject=f"s:{n}")
    for _ in range(orphans):
        await desk.orphan("memories")
    held = desk.held()
    if trips:
        error = await error_of(desk.repair(), errors.BreakerOpen)
        assert (error.planned, error.scanned) == (orphans, orphans + 2 * facts)
        assert desk.held() == held
        assert await desk.ledger.notes("sweep-spool") == []
        assert await desk.ledger.notes("lease") == []
    else:
        assert len((await desk.repair()).repaired) == orphans


@pytest.mark.parametrize(
    ("orphans", "others", "trips"), [(100, 400, False), (101, 10_000, True), (101, 9_999, False)]
)
async def test_breaker_of_everything(tmp_path: Path, orphans: int, others: int, trips: bool) -> None:
    """More than a hundred that are also more than one percent of what was scanned stop the sweep."""
    big, crowd = MemoryStore("big"), MemoryStore("crowd")
    async with open_desk(tmp_path, stores=[big, crowd], patience=BRIEF) as desk:
        for _ in range(orphans):
            await desk.orphan("big")
        # So many entries of a fact elsewhere that no store has a third to lose.
        ours = {"source": "custody-sync", "ledger_id": desk.ledger.ledger_id}
        young = ours | {"fact_id": "young", "stored_at": desk.clock.now().isoformat()}
        for _ in range(400):
            big.put_raw("x", young)
        total = others + (1 if trips else 101)
        for _ in range(total - orphans - 400):
            crowd.put_raw("x")
        if trips:
            error = await error_of(desk.repair(), errors.BreakerOpen)
            assert error.planned == orphans
        else:
            assert len((await desk.repair()).repaired) == orphans


async def test_max_removals_is_exact(desk: Desk) -> None:
    """`max_removals` allows exactly so many, whatever the breaker says, and refuses one more."""
    for _ in range(6):
        await desk.orphan("memories")
    error = await error_of(desk.repair(max_removals=5), errors.BreakerOpen)
    assert error.planned == 6
    assert len(desk.held()) == 6
    assert len((await desk.repair(max_removals=6)).repaired) == 6
    await desk.orphan("memories")
    await error_of(desk.repair(max_removals=0), errors.BreakerOpen)


@pytest.mark.parametrize("wrong", [-1, True, 1.5, "3"])
async def test_max_removals_is_a_whole_number(desk: Desk, wrong: Any) -> None:
    """Anything but a whole number from nought is refused before the sweep begins."""
    error = await error_of(desk.repair(max_removals=wrong), errors.InvalidInput)
    assert error.field == "max_removals"
    assert not any(store.calls for store in desk.stores.values())


async def test_ledger_put_back_from_a_backup(tmp_path: Path) -> None:
    """A ledger file put back from a backup is known by its witness; without one it trips the breaker."""
    clock = ManualClock()
    stores = [MemoryStore("memories", clock=clock), MemoryStore("agent", own_ids=True, clock=clock)]
    async with open_desk(tmp_path, stores=stores, clock=clock) as desk:
        for n in range(3):
            await desk.write(n, subject=f"old:{n}")
    shutil.copy(tmp_path / "custody.db", tmp_path / "backup")
    async with open_desk(tmp_path, stores=stores, clock=clock) as desk:
        for n in range(6):
            await desk.write(n, subject=f"new:{n}")
    held = {store.name: set(store.snapshot()) for store in stores}
    shutil.copy(tmp_path / "backup", tmp_path / "custody.db")
    clock.advance(LATER)
    async with open_desk(tmp_path, stores=stores, clock=clock) as desk:
        head = await desk.ledger.head()
        await error_of(desk.repair(), errors.LedgerRestored)
        await desk.ledger.witness.accept(head)
        error = await error_of(desk.repair(), errors.BreakerOpen)
        assert (error.planned, error.scanned) == (12, 18)
        assert "max_removals=12" in str(error)
        assert {store.name: set(store.snapshot()) for store in stores} == held
        assert await desk.ledger.head() == head


async def test_lease(desk: Desk) -> None:
    """A second sweep says who is at it and since when; a dead one's lease lapses after a minute."""
    start = desk.clock.now()
    inside, go = asyncio.Event(), asyncio.Event()

    class Waiting(MemoryStore):
        async def list_entries(self) -> AsyncIterator[Entry]:
            inside.set()
            await go.wait()
            async for entry in super().list_entries():
                yield entry

    first = asyncio.ensure_future(
        desk.coordinator(stores=[Waiting("memories")]).repair(actor="a", reason="x")
    )
    await inside.wait()
    error = await error_of(desk.repair(actor="b"), errors.SweepRunning)
    assert error.holder.startswith("a, process ")
    go.set()
    assert (await first).complete
    await desk.ledger.acquire("lease", "sweep", holder="dead", value='""', ttl=timedelta(seconds=60))
    error = await error_of(desk.repair(), errors.SweepRunning)
    assert error.holder == "dead"
    assert error.since == f"{start.isoformat(timespec='microseconds')[:26]}Z"
    desk.clock.advance(59.9)
    await error_of(desk.repair(), errors.SweepRunning)
    desk.clock.advance(0.1)
    assert (await desk.repair()).complete
    assert await desk.ledger.notes("lease") == []


async def test_lease_is_renewed_during_slow_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Removals that take long do not let the lease lapse: each one looks after it."""
    monkeypatch.setattr("custody_sync.repair.lease.CONCURRENCY", 1)
    clock = ManualClock()

    class Slow(MemoryStore):
        async def delete(self, entry: Entry) -> None:
            clock.advance(25)
            await super().delete(entry)

    store = Slow("store", clock=clock)
    async with open_desk(tmp_path, stores=[store], clock=clock) as desk:
        for _ in range(5):
            await desk.orphan("store")
        lapsed: list[bool] = []

        async def look() -> None:
            (note,) = await desk.ledger.notes("lease")
            assert note.expires_at is not None
            lapsed.append(note.expires_at <= clock.now())

        tasks: list[asyncio.Task[None]] = []
        for n in range(5):
            desk.call_next(
                FaultPoint.AFTER_DELETE, lambda: tasks.append(asyncio.ensure_future(look())), skip=n
            )
        assert (await desk.repair(max_removals=5)).complete
        await asyncio.gather(*tasks)
        assert lapsed == [False] * 5


async def test_sweep_whose_lease_lapsed_leaves_the_next_one_alone(tmp_path: Path) -> None:
    """A sweep that slept through its lease gives up, and takes nothing from the one that runs now."""
    inside, go = asyncio.Event(), asyncio.Event()

    class Waiting(MemoryStore):
        async def list_entries(self) -> AsyncIterator[Entry]:
            inside.set()
            await go.wait()
            async for entry in super().list_entries():
                yield entry

    async with open_desk(tmp_path, stores=[MemoryStore("store")]) as desk:
        for _ in range(3):
            await desk.orphan("store")
        sleeper = desk.coordinator(stores=[Waiting("other"), desk.stores["store"]])
        first = asyncio.ensure_future(sleeper.repair(actor="sleeper", reason="x"))
        await inside.wait()
        desk.clock.advance(61)

        def wake() -> None:
            go.set()
            first.add_done_callback(lambda _: over.set())

        over = asyncio.Event()
        listing = desk.stores["store"].list_entries

        async def slow_listing() -> AsyncIterator[Entry]:
            async for entry in listing():
                yield entry
            # Spooled by us by now or not yet: the sleeper wakes, lists, and finds its lease gone.
            desk.stores["store"].list_entries = listing  # type: ignore[method-assign]  # once
            wake()
            await over.wait()

        desk.stores["store"].list_entries = slow_listing  # type: ignore[method-assign]  # once
        second = await desk.repair()
        error = await error_of(first, errors.SweepRunning)
        assert error.holder.startswith("ops, process ")
        assert kinds_of(second) == [("store", "orphan", "verified")] * 3
        assert second.complete
        assert await desk.ledger.notes("sweep-spool") == []
        assert await desk.judge_clean() == set()
