"""Stores that show forged or careless rows, raise what is no error, or never stop listing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from fix_custody import ACTOR, LATER, Crash, Desk, error_of, kinds_of, open_desk

from custody_sync import errors
from custody_sync.faultpoints import FaultPoint
from custody_sync.model import Entry
from custody_sync.repair.lease import LEASE
from custody_sync.stores import Deadlines
from custody_sync.testing import MemoryStore

CANARY = "canary-7Q-coffee"


async def poisoned(desk: Desk, spoil: Callable[[Entry], Any], **label: Any) -> str:
    """Let the memories show one more row, spoiled, between two honest orphans; return its id."""
    store = desk.stores["memories"]
    await desk.orphan("memories")
    metadata = store.metadata(await desk.orphan("memories"))
    key = store.put_raw("poison", {**metadata, **label})
    await desk.orphan("memories")
    shown = store._entry
    store._entry = lambda held: (  # type: ignore[method-assign]  # a careless adapter
        spoil(shown(held)) if held.external_id == key else shown(held)
    )
    return key


def changed(**fields: Any) -> Callable[[Entry], Any]:
    """Return what spoils an entry by such fields."""
    return lambda entry: replace(entry, **fields)


SPOILED = {
    "id with a surrogate": (changed(external_id="\ud800"), "external_id: has a lone surrogate"),
    "id with NUL": (changed(external_id="a\x00b"), "external_id: has a NUL character"),
    "number as id": (changed(external_id=5), "external_id: must be a string, not int"),
    "list as id": (changed(external_id=["x"]), "external_id: must be a string, not list"),
    "empty id": (changed(external_id=""), "external_id: must not be empty"),
    "number as fact id": (changed(fact_id=5), "fact_id: must be a string, not int"),
    "blank fact id": (changed(fact_id=" "), "fact_id: must not be empty or blank"),
    "long fact id": (changed(fact_id="x" * 2000), "fact_id: has 2000 characters"),
    "surrogate in fact id": (changed(fact_id="\ud800"), "fact_id: has a lone surrogate"),
    "object as scope": (changed(scope=object()), "scope: must be a string, not object"),
    "number as generation": (changed(generation=5), "generation: must be a string, not int"),
    "bytes as text": (changed(text=b"x"), "text: must be a string, not bytes"),
    "no entry": (lambda entry: {"id": entry.external_id}, "it is dict, not an Entry"),
}


@pytest.mark.parametrize("case", SPOILED)
async def test_one_spoiled_row_stops_no_sweep(desk: Desk, case: str) -> None:
    """A row that cannot be used is named in one sentence and left; the rest of its store is swept."""
    spoil, problem = SPOILED[case]
    await poisoned(desk, spoil)
    result = await desk.repair()
    assert kinds_of(result) == [("memories", "orphan", "verified")] * 3
    (said,) = result.unrecorded
    assert said.startswith("memories/")
    assert f"cannot be used: {problem}" in said
    assert said.isprintable()
    assert not result.complete


FORGED_LABELS: dict[str, dict[str, Any]] = {
    "deep JSON": {"custody": "[" * 100_000},
    "deep JSON of another ledger": {"custody": "[" * 100_000, "ledger_id": "other"},
    "first instant of all": {"stored_at": "0001-01-01T00:00:00+23:59"},
    "last instant of all": {"stored_at": "9999-12-31T23:59:59-23:59"},
    "fact id of another ledger that no ledger takes": {"fact_id": "a\x00b", "ledger_id": "other"},
}


@pytest.mark.parametrize("case", FORGED_LABELS)
async def test_forged_labels_stop_no_sweep(desk: Desk, case: str) -> None:
    """Whatever stands in a label, the honest orphans are swept and nobody else's row is reported."""
    await poisoned(desk, lambda entry: entry, **FORGED_LABELS[case])
    result = await desk.repair(max_removals=4)
    assert kinds_of(result).count(("memories", "orphan", "verified")) >= 3
    assert result.unrecorded == result.still_held == ()


class Failing(timezone.__base__):  # type: ignore[name-defined,misc]  # tzinfo, by the way every zone has it
    """A time zone that does not work."""

    def utcoffset(self, _: Any) -> Any:
        """Fail."""
        raise RuntimeError(CANARY)


UNREADABLE: list[Any] = [
    datetime(2020, 1, 1),
    datetime.min.replace(tzinfo=timezone(timedelta(hours=5))),
    datetime(2020, 1, 1, tzinfo=Failing()),
    "yesterday",
    5,
]


@pytest.mark.parametrize("when", UNREADABLE, ids=["naive", "overflow", "zone fails", "word", "number"])
async def test_dates_that_cannot_be_read(desk: Desk, when: Any) -> None:
    """A date that is no instant dates nothing: the entry stays young, and the sweep goes on."""
    key = await poisoned(desk, changed(stored_at=when, created_at=when))
    result = await desk.repair()
    assert [seen.external_id for seen in result.young] == [key]
    assert kinds_of(result) == [("memories", "orphan", "verified")] * 3


async def test_many_spoiled_rows_are_counted(desk: Desk) -> None:
    """Twenty spoiled rows of a store are named and the others counted."""

    async def list_entries() -> AsyncIterator[Any]:
        for n in range(50):
            yield {"id": n}

    desk.stores["memories"].list_entries = list_entries  # type: ignore[method-assign]  # a careless adapter
    result = await desk.repair()
    assert len(result.unrecorded) == 21
    assert result.unrecorded[-1] == "memories: 30 more entries cannot be used"
    assert result.scanned["memories"] == 50


@pytest.mark.parametrize("spoil", [changed(external_id=5), lambda entry: {"id": entry.external_id}])
async def test_spoiled_row_of_a_find(desk: Desk, spoil: Callable[[Entry], Any]) -> None:
    """A `find` that shows what cannot be used has not answered: the removal is not complete."""
    fact_id = await desk.written()
    await poisoned(desk, spoil, fact_id=fact_id)
    result = await desk.retract(fact_id)
    assert not result.complete
    assert ("memories", "", "unverified") in {(r.store, r.external_id, r.outcome) for r in result.removals}


# --- what is no Exception -------------------------------------------------------------------


class Panic(BaseException):
    """What a panic in a vendor's Rust code becomes."""


OPERATIONS = ["put", "delete", "find", "verify_deleted", "list_entries"]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("error", [Panic(CANARY), asyncio.CancelledError(CANARY)])
async def test_no_base_exception_of_a_store_gets_out(
    desk: Desk, operation: Any, error: BaseException
) -> None:
    """A panic, and a cancellation that nobody asked for, are a store that failed, without its text."""
    fact_id = await desk.written("x", subject="acct:1")
    base = await desk.written("y", subject="acct:2")
    await desk.orphan("agent")
    desk.stores["agent"].faults.refuse(operation, error)
    said: list[str] = []
    for call in (
        lambda: desk.write("z"),
        lambda: desk.write("w", subject="acct:2", supersedes=base),
        lambda: desk.retract(fact_id),
        lambda: desk.verify(),
        lambda: desk.repair(),
        lambda: desk.forget(fact_id),
    ):
        try:
            said.append(repr(await call()))
        except errors.StoreWriteFailed as problem:
            said.append(repr(problem))
    assert CANARY not in "".join(said)
    assert type(error).__name__ in "".join(said)
    desk.stores["agent"].faults.allow()
    desk.clock.advance(LATER)
    assert (await desk.repair(max_removals=100)).complete
    await desk.judge_clean()


async def test_a_real_cancellation_is_no_answer(tmp_path: Path) -> None:
    """A caller's cancellation inside a store's call stays a cancellation."""
    inside = asyncio.Event()

    class Slow(MemoryStore):
        async def find(self, fact_id: str) -> list[Entry]:
            inside.set()
            await asyncio.Event().wait()
            return []

    async with open_desk(tmp_path, stores=[Slow("slow")]) as desk:
        task = asyncio.ensure_future(desk.retract(await desk.written()))
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_our_own_fault_points_pass(desk: Desk) -> None:
    """What a fault point raises is a crash of this process and no answer of the store beside it."""
    fact_id = await desk.written()
    desk.fail_next(FaultPoint.BEFORE_DELETE, Crash())
    with pytest.raises(Crash):
        await desk.retract(fact_id)


# --- listings that never end ----------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 7, 400])
async def test_a_listing_in_a_circle_ends(tmp_path: Path, size: int) -> None:
    """A store that lists for ever is said to, counted once, and keeps no other store from being swept."""

    class Endless(MemoryStore):
        async def list_entries(self) -> AsyncIterator[Entry]:
            while True:
                for entry in self.snapshot().values():
                    yield entry
                await asyncio.sleep(0)

    stores = [Endless("endless"), MemoryStore("good")]
    async with open_desk(tmp_path, stores=stores) as desk:
        for n in range(size):
            await desk.orphan("endless", age=timedelta(0)) if n else await desk.written()
        await desk.orphan("good")
        result = await desk.repair()
        assert result.still_held == (
            "endless: cannot list: it comes back to the same entries again and again",
        )
        assert result.scanned["endless"] == size
        assert kinds_of(result) == [("good", "orphan", "verified")]
        assert not result.complete


async def test_the_lease_outlives_a_slow_listing(tmp_path: Path) -> None:
    """While a store lists slowly, though no page is full, the lease is renewed and no second sweep begins."""
    refused: list[Any] = []

    class Slow(MemoryStore):
        async def list_entries(self) -> AsyncIterator[Entry]:
            for entry in self.snapshot().values():
                desk.clock.advance(25)
                refused.append(await error_of(desk.repair(), errors.SweepRunning))
                yield entry

    async with open_desk(tmp_path, stores=[Slow("slow"), MemoryStore("good")]) as desk:
        for n in range(6):
            await desk.write(n, subject=f"s:{n}")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("custody_sync.stores.PAGE_SECONDS", 0.0)
            result = await desk.repair()
        assert len(refused) == 6
        assert result.complete


def test_the_lease_outlives_a_silent_page() -> None:
    """A page of a listing may never take so long that the lease, renewed before it, could lapse."""
    assert Deadlines().listing < (LEASE - LEASE / 6).total_seconds()


async def test_a_spool_that_was_cut_short_is_said(desk: Desk) -> None:
    """A sweep whose list was dropped by somebody names the loss, and is not complete."""
    await desk.orphan("memories")
    loop, ledger = asyncio.get_running_loop(), desk.ledger

    async def drop() -> None:
        await ledger.drop_notes("sweep-spool")

    tasks: list[Any] = []
    desk.call_next(FaultPoint.SWEEP_SPOOLED, lambda: tasks.append(loop.create_task(drop())))
    notes = ledger.notes

    async def after_the_drop(*args: Any, **more: Any) -> Any:
        await asyncio.gather(*tasks)
        return await notes(*args, **more)

    ledger.notes = after_the_drop  # type: ignore[method-assign]  # for this sweep
    result = await desk.repair()
    assert result.unrecorded == ("1 entries to remove were lost on the way; run repair again",)
    assert not result.complete
    assert (await desk.custody.repair(actor=ACTOR, reason="again")).complete
