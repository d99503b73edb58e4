"""A store that turns a call away: waited for within the deadline, and named if it takes longer."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fix_custody import BRIEF, error_of, open_desk

from custody_sync import errors
from custody_sync.errors import StoreThrottled
from custody_sync.model import Entry, Fact, Label
from custody_sync.removal import Patience
from custody_sync.stores import Deadlines, Gate
from custody_sync.testing import ManualClock, MemoryStore, testing_runtime
from custody_sync.throttling import Budget, seconds_of

ENTRY = Entry(store="a", external_id="x")


def turned_away(retry_after: Any = None) -> StoreThrottled:
    """Return what an adapter raises at a 429."""
    return StoreThrottled(store="a", operation="put", cause="HTTPError 429", retry_after=retry_after)


class Waits:
    """A sleep that takes no time and remembers how long it was meant to be."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        """Let the clock go on."""
        self.seconds.append(seconds)
        self.clock.advance(timedelta(seconds=seconds))
        await asyncio.sleep(0)


def gate_of(store: Any, clock: ManualClock, **deadlines: Any) -> tuple[Gate, Waits]:
    """Return a gate before a store, and what it waits with."""
    waits = Waits(clock)
    return Gate(store, testing_runtime(clock=clock, sleep=waits), Deadlines(**deadlines), keeps=False), waits


@pytest.mark.parametrize(
    ("stated", "waits"),
    [
        ([None, None, None], [1.0, 2.0, 4.0]),
        ([3.0, 3.0], [3.0, 3.0]),
        ([0.0, 0.0, 0.0], [0.1, 0.2, 0.4]),
        ([-5, 2], [0.1, 2.0]),
        (["soon", float("nan"), True], [1.0, 2.0, 4.0]),
    ],
)
def test_how_long_it_waits(stated: list[Any], waits: list[float]) -> None:
    """What the store names is waited for; with nothing named, or 0 again and again, the waits grow."""
    budget = Budget(30.0)
    assert [budget.wait_after(turned_away(seconds)) for seconds in stated] == waits


def test_what_does_not_fit() -> None:
    """A wait that would outlast the deadline is not begun, and what questions took counts."""
    budget = Budget(10.0)
    budget.spend(4.0)
    assert budget.wait_after(turned_away(6.0)) is None
    assert budget.wait_after(turned_away(5.0)) == 5.0
    assert budget.left == 1.0
    assert seconds_of(turned_away(float("inf"))) is None


async def test_a_question_is_asked_again() -> None:
    """A call that was turned away is made again once the store's time is over, and its answer counts."""
    store, clock = MemoryStore("a"), ManualClock()
    gate, waits = gate_of(store, clock)
    store.faults.refuse("verify_deleted", turned_away(2.5), times=2)
    assert await gate.is_gone(ENTRY) is True
    assert (waits.seconds, store.calls["verify_deleted"]) == ([2.5, 2.5], 3)


@pytest.mark.parametrize("operation", ["delete", "find", "search", "verify_deleted"])
async def test_one_that_takes_too_long(operation: Any) -> None:
    """What does not fit into the deadline is a `StoreThrottled` that still says how long, and no text."""
    store, clock = MemoryStore("a"), ManualClock()
    gate, waits = gate_of(store, clock)
    store.faults.refuse(operation, turned_away(61.0))
    calls: dict[str, Any] = {
        "delete": lambda: gate.delete(ENTRY),
        "find": lambda: gate.find("f"),
        "search": lambda: gate.search("q", 3),
        "verify_deleted": lambda: gate.is_gone(ENTRY),
    }
    error = await error_of(calls[operation](), StoreThrottled)
    assert error.fields == {
        "store": "a",
        "operation": operation,
        "cause": "HTTPError 429",
        "retry_after": 61.0,
    }
    assert (waits.seconds, store.calls[operation]) == ([], 1)
    assert (error.__context__, error.__cause__) == (None, None)


async def test_a_store_that_never_has_time() -> None:
    """The waits grow and end with the deadline: thirty seconds without a time named are five questions."""
    store, clock = MemoryStore("a"), ManualClock()
    gate, waits = gate_of(store, clock)
    store.faults.refuse("delete", turned_away())
    await error_of(gate.delete(ENTRY), StoreThrottled)
    assert (waits.seconds, store.calls["delete"]) == ([1.0, 2.0, 4.0, 8.0], 5)


async def test_a_write_is_stamped_when_it_is_sent(tmp_path: Path) -> None:
    """The label of a put that waited says when it was really sent, and so does the ledger."""
    stamps: list[Label] = []

    class Watched(MemoryStore):
        async def put(self, fact: Fact, label: Label) -> Any:
            stamps.append(label)
            return await super().put(fact, label)

    def make(clock: ManualClock) -> list[MemoryStore]:
        return [Watched("a", clock=clock)]

    async with open_desk(tmp_path, stores=make) as desk:
        desk.stores["a"].faults.refuse("put", turned_away(20.0), times=1)
        before = desk.clock.now()
        fact_id = await desk.written()
        assert [label.stored_at - before >= timedelta(seconds=20) for label in stamps] == [False, True]
        assert len({label.generation for label in stamps}) == 1
        (placement,) = await desk.ledger.placements(fact_id)
        assert placement.stored_at == stamps[1].stored_at
        assert await desk.judge_clean() == {fact_id}


async def test_a_write_that_is_never_let_in(tmp_path: Path) -> None:
    """A throttled put certainly left nothing: nothing may be left, and the caller hears when to try again."""
    async with open_desk(tmp_path) as desk:
        desk.stores["memories"].faults.refuse("put", turned_away(90.0))
        desk.stores["memories"].faults.refuse("find", ValueError("down"))
        error = await error_of(desk.write(), errors.StoreWriteFailed)
        assert (error.store, error.cause, error.retry_after) == ("memories", "HTTPError 429", 90.0)
        assert (error.removed, error.left) == (["agent"], [])
        desk.stores["memories"].faults.allow()
        assert await desk.judge_clean() == set()


async def test_a_removal_that_is_turned_away(tmp_path: Path) -> None:
    """It stays pending by name, its delete was tried once, and the next call finishes it."""
    async with open_desk(tmp_path, patience=BRIEF) as desk:
        custody = desk.coordinator(patience=Patience(questions=1))
        fact_id = await desk.written()
        store = desk.stores["memories"]
        store.faults.refuse("delete", turned_away(90.0))
        result = await custody.retract(fact_id, actor="a", reason="r")
        assert {r.store: (r.outcome, r.detail) for r in result.removals}["memories"] == (
            "failed",
            "delete failed (HTTPError 429)",
        )
        assert store.calls["delete"] == 1
        store.faults.allow()
        assert (await custody.retract(fact_id, actor="a", reason="r")).complete
        assert await desk.judge_clean() == set()


async def test_a_waiting_put_keeps_no_slot() -> None:
    """With one slot, a question to the store is answered while a throttled put waits for its turn."""
    store, clock = MemoryStore("a"), ManualClock()
    waiting, go_on = asyncio.Event(), asyncio.Event()

    async def sleep(seconds: float) -> None:
        waiting.set()
        await go_on.wait()

    gate = Gate(store, testing_runtime(clock=clock, sleep=sleep), Deadlines(concurrency=1), keeps=False)
    store.faults.refuse("delete", turned_away(5.0), times=1)
    deleting = asyncio.ensure_future(gate.delete(ENTRY))
    await waiting.wait()
    assert await gate.find("f") == []
    go_on.set()
    await deleting
    assert store.calls["delete"] == 2


async def test_a_cancelled_wait_ends_at_once() -> None:
    """Whoever gives up while the store makes them wait is not kept, and nothing is sent any more."""
    store, clock = MemoryStore("a"), ManualClock()
    waiting = asyncio.Event()

    async def sleep(seconds: float) -> None:
        waiting.set()
        await asyncio.Event().wait()

    gate = Gate(store, testing_runtime(clock=clock, sleep=sleep), Deadlines(), keeps=False)
    store.faults.refuse("delete", turned_away(5.0))
    deleting = asyncio.ensure_future(gate.delete(ENTRY))
    await waiting.wait()
    deleting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await deleting
    assert store.calls["delete"] == 1


async def test_a_listing_is_never_thought_complete() -> None:
    """A listing that is turned away half-way says so: asking its generator again would look like its end."""
    store, clock = MemoryStore("a"), ManualClock()

    async def list_entries() -> Any:
        yield Entry(store="a", external_id="1")
        raise turned_away(1.0)

    store.list_entries = list_entries  # type: ignore[method-assign]  # a vendor that throttles the second page
    gate, waits = gate_of(store, clock)
    seen: list[str] = []

    async def read() -> None:
        async for page in gate.pages(10):
            seen.extend(entry.external_id for entry in page)

    await error_of(read(), StoreThrottled)
    assert (seen, waits.seconds) == (["1"], [])
