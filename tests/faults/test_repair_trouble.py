"""A sweep in trouble: listings that fail, events that are not recorded, crashes at every point."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fix_custody import LATER, Crash, Desk, HttpError, error_of, kinds_of, open_desk

from custody_sync import errors
from custody_sync.faultpoints import FaultPoint
from custody_sync.model import Capability, Entry
from custody_sync.stores import Deadlines
from custody_sync.testing import MemoryStore

MINUTE = timedelta(minutes=1)


async def test_c25_listing_fails(desk: Desk) -> None:
    """C25: a listing that fails is one exact sentence in `still_held`, and the other stores go on."""
    await desk.orphan("memories")
    await desk.orphan("agent")
    desk.stores["memories"].faults.refuse("list_entries", HttpError())
    result = await desk.repair()
    assert result.still_held == ("memories: cannot list: HttpError 503",)
    assert kinds_of(result) == [("agent", "orphan", "verified")]
    assert not result.complete
    assert {store for store, _ in desk.held()} == {"memories"}
    desk.stores["memories"].faults.allow()
    assert (await desk.repair()).complete
    assert await desk.judge_clean() == set()


@pytest.mark.parametrize(
    "error",
    [
        errors.InvalidInput(field="x", problem="y"),
        errors.NoProof(store="memories", operation="list", cause="gone"),
        ValueError("canary"),
        TimeoutError(),
    ],
)
async def test_c25_whatever_a_listing_raises(desk: Desk, error: Exception) -> None:
    """Whatever a store's listing raises, the sweep goes on with the others."""
    await desk.orphan("agent")
    desk.stores["memories"].faults.refuse("list_entries", error)
    result = await desk.repair()
    (said,) = result.still_held
    assert said.startswith("memories: cannot list: ")
    assert "canary" not in said
    assert kinds_of(result) == [("agent", "orphan", "verified")]


async def test_c25_listing_breaks_off(desk: Desk) -> None:
    """What a listing showed before it broke off is still worked off."""
    for _ in range(3):
        await desk.orphan("memories")
    desk.stores["memories"].faults.list_breaks_after = 2
    result = await desk.repair()
    assert result.still_held == ("memories: cannot list: StoreUnavailable",)
    assert kinds_of(result) == [("memories", "orphan", "verified")] * 2
    assert result.scanned["memories"] == 2
    assert not result.complete


async def test_c25_listing_of_strange_things(tmp_path: Path) -> None:
    """Something else than an entry is named and stops nothing; a page that never ends fails the listing."""

    class Strange(MemoryStore):
        async def list_entries(self) -> AsyncIterator[Any]:
            yield {"id": 1}

    class Hanging(MemoryStore):
        async def list_entries(self) -> AsyncIterator[Entry]:
            await asyncio.Event().wait()
            yield Entry(store="x", external_id="y")

    stores = [Strange("strange"), Hanging("hanging"), MemoryStore("good")]
    async with open_desk(tmp_path, stores=stores, deadlines=Deadlines(listing=0.02)) as desk:
        await desk.orphan("good")
        result = await desk.repair()
        assert result.unrecorded == ("strange/?: cannot be used: it is dict, not an Entry",)
        assert result.still_held == ("hanging: cannot list: TimeoutError",)
        assert not result.complete
        assert kinds_of(result) == [("good", "orphan", "verified")]


async def test_c25_store_without_list(tmp_path: Path) -> None:
    """C25: a store that cannot list is named in `unlisted`."""
    stores = [MemoryStore("mute", without=[Capability.LIST_ENTRIES]), MemoryStore("open")]
    async with open_desk(tmp_path, stores=stores) as desk:
        await desk.orphan("mute")
        result = await desk.repair()
        assert result.unlisted == ("mute",)
        assert dict(result.scanned) == {"open": 0}


@pytest.mark.parametrize("error", [errors.LedgerFull, errors.LedgerBusy, errors.OutcomeUnknown])
async def test_c25_event_not_recorded(desk: Desk, error: type[Any]) -> None:
    """C25: an entry whose event the ledger did not take is named in `unrecorded`, and is not touched."""
    key = await desk.orphan("memories")
    desk.call_next(
        FaultPoint.SWEEP_SPOOLED,
        lambda: desk.fail_next(FaultPoint.BEFORE_COMMIT, error(name="x"), skip=1),
    )
    result = await desk.repair()
    assert result.unrecorded == (f"memories/{key}: {error.code}",)
    assert [r.outcome for r in result.repaired] == ["failed"]
    assert not result.complete
    assert key in desk.stores["memories"].snapshot()
    assert not desk.stores["memories"].calls["delete"]
    assert (await desk.repair()).complete
    assert await desk.judge_clean() == set()


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [("silent", "still_indexed"), ("search", "unverified"), ("delete", "failed"), ("lag", "verified")],
)
async def test_sweep_outcomes_are_honest(desk: Desk, fault: str, outcome: str) -> None:
    """A removal that is not verified stays pending, and a later sweep finishes it."""
    key = await desk.orphan("memories")
    faults = desk.stores["memories"].faults
    faults.silent_delete = fault == "silent"
    faults.index_lag = 3 if fault == "lag" else 0
    if fault in ("search", "delete"):
        faults.refuse(fault)  # type: ignore[arg-type]  # an operation's name
    result = await desk.repair()
    assert [(r.external_id, r.outcome) for r in result.repaired] == [(key, outcome)]
    assert result.complete is (outcome == "verified")
    faults.allow()
    faults.silent_delete = False
    again = await desk.repair()
    assert again.complete
    assert [r.kind for r in again.repaired] == ([] if outcome == "verified" else ["pending"])
    assert await desk.judge_clean() == set()


async def test_ledger_down_during_a_sweep(desk: Desk) -> None:
    """A ledger that fails in the middle of a sweep raises; a later sweep finishes the work."""
    for _ in range(3):
        await desk.orphan("memories")
    desk.fail_next(FaultPoint.BEFORE_COMMIT, errors.LedgerBusy(name="x"), skip=2, times=30)
    await error_of(desk.repair(), errors.LedgerError)
    desk.plan._actions.clear()
    desk.clock.advance(MINUTE)
    assert (await desk.repair()).complete
    assert await desk.judge_clean() == set()


SWEEP_POINTS = [
    FaultPoint.SWEEP_LEASED,
    FaultPoint.SWEEP_DRAINED,
    FaultPoint.SWEEP_SPOOLED,
    FaultPoint.SWEEP_RECORDED,
    FaultPoint.SWEEP_DONE,
    FaultPoint.BEFORE_COMMIT,
    FaultPoint.AFTER_COMMIT,
    FaultPoint.BEFORE_DELETE,
    FaultPoint.AFTER_DELETE,
    FaultPoint.AFTER_QUESTION,
    FaultPoint.REMOVED,
    FaultPoint.RESTORED,
    FaultPoint.BEFORE_PUT,
    FaultPoint.AFTER_PUT,
    FaultPoint.BEFORE_ERASURE,
    FaultPoint.AFTER_ERASURE,
]


@pytest.mark.parametrize("skip", [0, 1, 3])
@pytest.mark.parametrize("point", SWEEP_POINTS)
async def test_sweep_resumes_after_a_crash_at_any_point(desk: Desk, point: FaultPoint, skip: int) -> None:
    """A sweep that dies anywhere is finished by the next one; no second event for a recorded entry."""
    base = await desk.written("pro", subject="acct:1")
    tip = await desk.written("free", subject="acct:1", supersedes=base)
    gone, secret = await desk.written("x", subject="acct:2"), await desk.written("s", subject="acct:3")
    for n in range(6):
        await desk.write(n, subject=f"s:{n}")
    down = desk.stores["agent"].faults
    for operation in ("put", "delete", "verify_deleted"):
        down.refuse(operation)  # type: ignore[arg-type]  # the names are operations
    await desk.retract(tip)
    await desk.retract(gone)
    desk.fail_next(FaultPoint.BEFORE_ERASURE, errors.LedgerBusy(name="x"), times=2)
    await desk.forget(secret)
    down.allow()
    desk.clock.advance(LATER)
    orphans = [await desk.orphan(name) for name in ("memories", "agent")]
    desk.fail_next(point, Crash(), skip=skip)
    try:
        await desk.repair()
    except Crash:
        assert desk.plan.fired[-1].point == point
    desk.plan._actions.clear()
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.sleep(0)
    desk.clock.advance(LATER)
    result = await desk.repair()
    assert result.complete
    believed = await desk.judge_clean()
    assert base in believed
    assert not believed & {tip, gone, secret}
    assert not set(orphans) & {key for _, key in desk.held()}
    repairs = [
        (row["event"]["data"]["store"], row["sealed"]["refs"]["body"]["external_id"])
        async for row in desk.ledger.export()
        if row["event"]["kind"] == "repair"
    ]
    assert len(repairs) == len(set(repairs)) == 2
    assert (await desk.repair()).repaired == ()
