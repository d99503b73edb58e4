"""A cancelled call compensates or leaves a clean orphan; it never leaves something half believed."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fix_custody import ACTOR, LATER, Desk, left_running, open_desk

from custody_sync import errors
from custody_sync.faultpoints import FaultPoint
from custody_sync.model import (
    Entry,
    Fact,
    Label,
)
from custody_sync.results import (
    RepairResult,
)
from custody_sync.testing import ManualClock, MemoryStore


class Gated(MemoryStore):
    """A store that stops inside one operation until it is let through, or cancelled."""

    stop_before = stop_after = ""

    def __init__(self, name: str, **more: Any) -> None:
        super().__init__(name, **more)
        self.inside, self.go = asyncio.Event(), asyncio.Event()

    async def _stop(self, at: str, where: str) -> None:
        if at == where:
            self.inside.set()
            await self.go.wait()

    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        """Put, stopping before or after the effect."""
        await self._stop("put", self.stop_before)
        ids = await super().put(fact, label)
        await self._stop("put", self.stop_after)
        return ids

    async def delete(self, entry: Entry) -> None:
        """Delete, stopping before or after the effect."""
        await self._stop("delete", self.stop_before)
        await super().delete(entry)
        await self._stop("delete", self.stop_after)

    async def verify_deleted(self, entry: Entry) -> bool:
        """Answer, stopping first."""
        await self._stop("verify_deleted", self.stop_before)
        return await super().verify_deleted(entry)


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    """A desk with one store that can be stopped and one that cannot."""

    def stores(clock: ManualClock) -> list[MemoryStore]:
        return [MemoryStore("plain", clock=clock), Gated("gated", own_ids=True, clock=clock)]

    async with open_desk(tmp_path, stores=stores) as opened:
        yield opened


def gated(desk: Desk) -> Gated:
    """Return the store that can be stopped."""
    store = desk.stores["gated"]
    assert isinstance(store, Gated)
    return store


async def cancel_inside(desk: Desk, call: Awaitable[Any]) -> None:
    """Start a call, cancel it while the store is inside its operation, and wait until it has ended."""
    task = asyncio.ensure_future(call)
    await gated(desk).inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gated(desk).stop_before = gated(desk).stop_after = ""
    gated(desk).go.set()


async def settle(desk: Desk) -> set[str]:
    """Let eleven minutes pass, sweep once, and return what is believed."""
    desk.clock.advance(LATER)
    assert (await desk.repair()).complete
    return await desk.judge_clean()


async def test_during_validation(tmp_path: Path) -> None:
    """Cancelled inside a validator: no store was touched, nothing is recorded, a key is free again."""
    inside = asyncio.Event()

    async def slow(fact: Fact, view: object) -> Fact:
        inside.set()
        await asyncio.Event().wait()
        return fact

    async with open_desk(tmp_path, validators=[slow]) as desk:
        task = asyncio.ensure_future(desk.write(idempotency_key="k"))
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not any(store.calls for store in desk.stores.values())
        assert (await desk.ledger.head()).seq == 0
        assert await desk.ledger.notes("reservation") == []
        assert await desk.judge_clean() == set()


async def test_before_a_put_has_taken_effect(desk: Desk) -> None:
    """Cancelled while one store has not taken it yet: what the other took is removed and verified."""
    gated(desk).stop_before = "put"
    await cancel_inside(desk, desk.write())
    assert desk.held() == {}
    assert (await desk.ledger.head()).seq == 0
    assert await desk.judge_clean() == set()


async def test_after_a_put_has_taken_effect(desk: Desk) -> None:
    """Cancelled when a store took it and had not said so: a clean orphan, gone after one sweep."""
    gated(desk).stop_after = "put"
    await cancel_inside(desk, desk.write())
    assert {store for store, _ in desk.held()} == {"gated"}
    assert await desk.judge(left=["gated"]) == set()
    assert await settle(desk) == set()


@pytest.mark.parametrize("key", [None, "k"])
async def test_while_the_ledger_appends(desk: Desk, key: str | None) -> None:
    """Cancelled inside the append: recorded whole or taken back; a key can be used again."""
    task: asyncio.Task[Any]

    def cancel() -> None:
        task.cancel()

    desk.call_next(FaultPoint.STORED, cancel)
    task = asyncio.ensure_future(desk.write(idempotency_key=key))
    with pytest.raises(asyncio.CancelledError):
        await task
    believed = await desk.judge()
    again = await desk.write(idempotency_key=key)
    assert again.duplicate is (key is not None and bool(believed))
    assert len(await settle(desk)) == (len(believed) + 1 if not again.duplicate else 1)


async def test_in_the_queue_of_the_ledger(desk: Desk) -> None:
    """An append that is cancelled before the ledger takes it up never commits; the id is claimed instead."""
    group: Any = desk.ledger._storage._group  # type: ignore[attr-defined]  # the SQLite storage
    waiting: list[Any] = []
    due = asyncio.Event()

    class Holding:
        """An executor that is not due yet."""

        def submit(self, work: Any, *args: Any) -> None:
            waiting.append(work)
            due.set()

    executor, group._executor = group._executor, Holding()
    task = asyncio.ensure_future(desk.write())
    await due.wait()
    task.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    group._executor = executor
    waiting[0]()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [row["event"]["kind"] async for row in desk.ledger.export()] == ["repair"]
    assert desk.held() == {}
    assert await desk.judge_clean() == set()


async def test_while_insisting(desk: Desk) -> None:
    """Cancelled while a lost answer is being settled: the claim decides, and nothing is left believed."""
    asked = asyncio.Event()

    async def endless(seconds: float) -> None:
        asked.set()
        await asyncio.Event().wait()

    custody = desk.coordinator(runtime=replace(desk.runtime, sleep=endless))
    desk.fail_next(FaultPoint.BEFORE_COMMIT, errors.OutcomeUnknown(name="ledger"))
    task = asyncio.ensure_future(custody.write(value="x", space="org", actor=ACTOR))
    await asked.wait()
    asked.clear()
    task.cancel()
    # The claim first waits as well; let it through.
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(desk.held()) == 2
    for pending in list(custody._finishing._tasks):
        pending.cancel()
    await custody.close()
    assert await desk.judge(left=desk.stores) == set()
    assert await settle(desk) == set()


@pytest.mark.parametrize("operation", ["delete", "verify_deleted"])
async def test_during_compensation(desk: Desk, operation: str) -> None:
    """A cancellation during compensation does not stop it: closing waits until it is done."""
    plain, gate = desk.stores["plain"], gated(desk)
    plain.faults.refuse("put", errors.StoreRefused(store="plain", operation="put", cause="no"))
    gate.stop_before = operation
    task = asyncio.ensure_future(desk.write())
    await gate.inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(desk.held()) == (1 if operation == "delete" else 0)
    gate.go.set()
    await desk.custody.close()
    assert desk.held() == {}
    assert await desk.judge_clean() == set()


@pytest.mark.parametrize("operation", ["delete", "verify_deleted"])
@pytest.mark.parametrize("act", ["retract", "forget", "supersede"])
async def test_during_a_removal(desk: Desk, act: str, operation: str) -> None:
    """Cancelled inside a removal: the event stands, the removal is pending, and repair finishes it."""
    base = await desk.written("pro")
    gated(desk).stop_before = operation
    call = desk.write("free", supersedes=base) if act == "supersede" else getattr(desk, act)(base)
    await cancel_inside(desk, call)
    assert base not in await desk.judge()
    assert base not in await settle(desk)


async def test_during_a_confirm(desk: Desk) -> None:
    """Cancelled inside a confirm: still claimed, at most a stray is left, and it can be confirmed later."""
    claimed = await desk.written(provenance="claimed")
    gated(desk).stop_after = "put"
    await cancel_inside(desk, desk.confirm(claimed))
    assert await desk.judge(left=["gated"]) == set()
    assert await settle(desk) == set()
    assert (await desk.confirm(claimed)).complete
    assert await desk.judge_clean() == {claimed}


async def test_during_a_restore(desk: Desk) -> None:
    """Cancelled while a retraction places again what it covered: it stays owed, and repair places it once."""
    base = await desk.written("pro")
    tip = await desk.written("free", supersedes=base)
    gated(desk).stop_after = "put"
    await cancel_inside(desk, desk.retract(tip))
    assert await desk.judge(left=["gated"]) == {base}
    assert (base, "gated") in await desk.ledger.owed()
    assert await settle(desk) == {base}


@pytest.mark.parametrize("operation", ["delete", "verify_deleted"])
async def test_during_a_repair(desk: Desk, operation: str) -> None:
    """A cancelled sweep gives its lease back, and the next one goes on with it and leaves no spool."""
    await desk.orphan("gated")
    gated(desk).stop_before = operation
    await cancel_inside(desk, desk.repair())
    assert await desk.ledger.notes("lease") == []
    assert await settle(desk) == set()
    assert await desk.ledger.notes("sweep-spool") == await desk.ledger.notes("sweep-run") == []


async def test_a_keyed_write_cancelled_between_stores_and_ledger(desk: Desk) -> None:
    """A cancelled keyed write has let go of its key; its repetition leaves one entry per store."""
    gated(desk).stop_after = "put"
    await cancel_inside(desk, desk.write(idempotency_key="k"))
    assert await desk.ledger.notes("reservation") == []
    again = await desk.write(idempotency_key="k")
    assert not again.duplicate
    assert await settle(desk) == {again.fact.fact_id}


@pytest.mark.parametrize("twice", [False, True])
async def test_a_cancelled_repair_leaves_nothing_running(desk: Desk, twice: bool) -> None:
    """Wherever a sweep is cancelled, once or twice, no task of it runs on and no coroutine is forgotten."""
    for n in range(3):
        await desk.written(n, subject=f"s:{n}")
    await desk.orphan("gated")
    gc.collect()
    gc.freeze()  # what was there before need not be searched again each time
    for turns in range(0, 60, 3):
        sweep = asyncio.ensure_future(desk.repair())
        for _ in range(turns):
            await asyncio.sleep(0)
        sweep.cancel()
        if twice:
            await asyncio.sleep(0)
            sweep.cancel()
        (ended,) = await asyncio.gather(sweep, return_exceptions=True)
        assert isinstance(ended, asyncio.CancelledError | RepairResult)
        await desk.custody._finishing.wait()
        assert left_running() == set()
        gc.collect()
    gc.unfreeze()
    assert await desk.ledger.notes("lease") == []
    assert (await desk.repair()).complete
    assert await desk.ledger.notes("sweep-spool") == await desk.ledger.notes("sweep-run") == []
