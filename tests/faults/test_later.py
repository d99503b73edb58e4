"""Facts that are valid from later: no store is touched before they begin, and `repair` follows their time."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from fix_custody import Desk, open_desk

from custody_sync import errors
from custody_sync.model import Capability, Outcome
from custody_sync.testing import ManualClock, MemoryStore

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
STORES = ("memories", "agent")


async def later(desk: Desk, value: str = "gold", by: timedelta = HOUR, **more: object) -> str:
    """Write a fact that begins later and return its id."""
    return await desk.written(value, valid_from=desk.clock.now() + by, **more)


async def test_what_begins_later_is_recorded_and_put_nowhere(desk: Desk) -> None:
    """The result says which stores wait for it; it is complete, since nothing is left to do now."""
    begins = desk.clock.now() + timedelta(seconds=121)
    result = await desk.write(valid_from=begins)
    assert (result.placements, result.complete, result.waiting) == ({}, True, STORES)
    assert not any(store.calls for store in desk.stores.values())
    assert await desk.current() == []
    assert (await desk.repair()).restored == ()
    desk.clock.set(begins)
    done = await desk.repair()
    assert {(r.store, r.placed) for r in done.restored} == {(store, True) for store in STORES}
    assert await desk.judge_clean() == {result.fact.fact_id}


async def test_two_minutes_ahead_is_now(desk: Desk) -> None:
    """Hosts' clocks differ: what begins so soon is put at once, and what it supersedes removed."""
    old = await desk.written()
    result = await desk.write("gold", supersedes=old, valid_from=desk.clock.now() + 2 * MINUTE)
    assert (set(result.placements), result.waiting) == (set(STORES), ())
    assert {removal.outcome for removal in result.removals} == {Outcome.VERIFIED}
    assert set(desk.held_of(old)) == set()


async def test_a_predecessor_is_served_until_its_time_comes(desk: Desk) -> None:
    """Not a question is asked of the stores before; then one repair removes the one and places the other."""
    old = await desk.written()
    for store in desk.stores.values():
        store.calls.clear()
    new = await later(desk, supersedes=old)
    assert not any(store.calls for store in desk.stores.values())
    desk.clock.advance(30 * MINUTE)
    assert (await desk.repair()).repaired == ()
    assert set(desk.held_of(old)) == set(STORES)
    desk.clock.advance(30 * MINUTE)
    plan = await desk.repair(dry_run=True)
    assert {(r.fact_id, r.outcome) for r in plan.repaired} == {(old, Outcome.PLANNED)}
    assert {(r.fact_id, r.detail) for r in plan.restored} == {(new, "planned")}
    done = await desk.repair()
    assert done.complete
    assert {(r.fact_id, r.outcome) for r in done.repaired} == {(old, Outcome.VERIFIED)}
    assert await desk.judge_clean() == {new}


async def test_stores_that_cannot_list_follow_as_well(tmp_path: Path) -> None:
    """The ledger knows what they hold and what has ended."""

    def stores(clock: ManualClock) -> list[MemoryStore]:
        return [MemoryStore("memories", clock=clock, without=[Capability.LIST_ENTRIES, Capability.FIND])]

    async with open_desk(tmp_path, stores=stores) as desk:
        old = await desk.written()
        new = await later(desk, supersedes=old)
        desk.clock.advance(HOUR)
        assert (await desk.repair()).complete
        assert list(desk.held().values()) == [new]


async def test_a_store_keeps_what_is_superseded_where_its_policy_says_so(tmp_path: Path) -> None:
    """When the successor begins that store has both, and the other one only the successor."""
    async with open_desk(tmp_path, superseded={"agent": "keep"}) as desk:
        old = await desk.written()
        new = await later(desk, supersedes=old)
        desk.clock.advance(HOUR)
        assert (await desk.repair()).complete
        assert set(desk.held_of(old)) == {"agent"}
        assert set(desk.held_of(new)) == set(STORES)
        assert (await desk.repair()).repaired == ()


async def test_a_retraction_before_its_time_leaves_no_trace_in_a_store(desk: Desk) -> None:
    """What it would have replaced stays where it is."""
    old = await desk.written()
    new = await later(desk, supersedes=old)
    done = await desk.retract(new)
    assert (done.removals, done.restored, done.complete) == ((), (), True)
    desk.clock.advance(2 * HOUR)
    assert (await desk.repair()).repaired == ()
    assert await desk.judge_clean() == {old}


async def test_retracting_the_middle_brings_back_what_it_covered(desk: Desk) -> None:
    """Until the last one begins; then that one alone is held."""
    first = await desk.written()
    second = await desk.written("gold", supersedes=first)
    third = await later(desk, "silver", supersedes=second)
    done = await desk.retract(second)
    assert {(r.fact_id, r.placed) for r in done.restored} == {(first, True)}
    assert done.complete
    assert await desk.judge_clean() == {first}
    desk.clock.advance(HOUR)
    await desk.repair()
    assert await desk.judge_clean() == {third}


async def test_a_later_fact_is_forgotten_before_it_begins(desk: Desk) -> None:
    """It is placed nowhere, and what it covers ends all the same: an erased value brings none back."""
    old = await desk.written()
    new = await later(desk, supersedes=old)
    assert (await desk.forget(new)).complete
    desk.clock.advance(HOUR)
    await desk.repair()
    assert await desk.judge_clean() == set()


async def test_a_claim_is_confirmed_before_it_begins(desk: Desk) -> None:
    """No store has it until then; the result names those that wait."""
    old = await desk.written()
    claim = await later(desk, supersedes=old, provenance="claimed")
    result = await desk.confirm(claim)
    assert (result.placements, result.waiting, result.complete) == ({}, STORES, True)
    assert set(desk.held_of(old)) == set(STORES)
    desk.clock.advance(HOUR)
    await desk.repair()
    assert await desk.judge_clean() == {claim}
    again = await later(desk, "silver", supersedes=claim, provenance="claimed")
    desk.clock.advance(HOUR)
    result = await desk.confirm(again)
    assert (set(result.placements), result.waiting) == (set(STORES), ())
    assert await desk.judge_clean() == {again}


async def test_a_keyed_write_that_is_repeated_says_who_waits(desk: Desk) -> None:
    """Before the fact begins and after it was placed."""
    begins = desk.clock.now() + HOUR
    first = await desk.write(valid_from=begins, idempotency_key="k")
    again = await desk.write(valid_from=begins, idempotency_key="k")
    assert (again.duplicate, again.waiting, again.placements) == (True, tuple(sorted(STORES)), {})
    desk.clock.advance(HOUR)
    await desk.repair()
    again = await desk.write(valid_from=begins, idempotency_key="k")
    assert (again.fact.fact_id, set(again.placements), again.waiting) == (first.fact.fact_id, set(STORES), ())


async def test_a_store_that_is_down_when_its_time_comes_is_owed(desk: Desk) -> None:
    """The next repair places it, and what it takes the place of is not served beside it."""
    old = await desk.written()
    new = await later(desk, supersedes=old)
    desk.clock.advance(HOUR)
    down = errors.StoreUnavailable(store="agent", operation="put", cause="down")
    desk.stores["agent"].faults.refuse("put", down, times=1)
    assert not (await desk.repair()).complete
    assert await desk.ledger.owed() == [(new, "agent")]
    desk.clock.advance(HOUR)
    assert (await desk.repair()).complete
    assert await desk.judge_clean() == {new}


async def test_what_is_wrong_with_a_later_fact_is_said_when_it_is_written(desk: Desk) -> None:
    """Its text has to fit every store, and what it replaces has to be believed and begin no later."""
    old = await later(desk, by=2 * HOUR)
    with pytest.raises(errors.StartsTooEarly):
        await later(desk, supersedes=old)
    with pytest.raises(errors.InvalidInput):
        await desk.write(text=" ", valid_from=desk.clock.now() + HOUR)
    assert not any(store.calls for store in desk.stores.values())
