"""Work that waits for a store that is down: tried seldom, said once, done as soon as the store answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fix_custody import BRIEF, Desk, HttpError, open_desk

from custody_sync.faultpoints import FaultPoint
from custody_sync.model import Outcome
from custody_sync.repair import backoff
from custody_sync.repair.backoff import Backoff, retries
from custody_sync.testing import MemoryStore

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
EVERYTHING = ("put", "delete", "find", "verify_deleted", "list_entries")


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    """A desk whose stores are asked only briefly."""
    async with open_desk(tmp_path, patience=BRIEF) as opened:
        yield opened


def _stop(store: MemoryStore) -> None:
    for operation in EVERYTHING:
        store.faults.refuse(operation, HttpError())


async def _left_behind(desk: Desk, count: int) -> list[str]:
    """Retract facts while the agent's store is down."""
    ids = [await desk.written(n, subject=f"s:{n}") for n in range(count)]
    _stop(desk.stores["agent"])
    for fact_id in ids:
        await desk.retract(fact_id)
    return ids


async def test_a_store_that_is_down_is_tried_with_a_few_rows_only(desk: Desk) -> None:
    """The others stay pending without an event each, and one sentence says how many and until when."""
    await _left_behind(desk, 40)
    before, head = desk.plan.reached[FaultPoint.BEFORE_DELETE], await desk.ledger.head()
    result = await desk.repair()
    assert not result.complete
    assert desk.plan.reached[FaultPoint.BEFORE_DELETE] - before == 3
    assert [r.outcome for r in result.repaired] == [Outcome.FAILED] * 3
    (said,) = [line for line in result.still_held if "does not answer" in line]
    assert "agent: does not answer; 40 pending pieces of work wait there, tried again from 2026-" in said
    assert (await desk.ledger.head()).seq == head.seq, "an outcome that did not change is no event"
    assert len(await desk.ledger.pending()) == 40


async def test_one_repair_does_it_all_once_the_store_answers(desk: Desk) -> None:
    """An operator's order always tries, however long the store was to be left alone."""
    await _left_behind(desk, 40)
    for _ in range(3):
        await desk.repair()
    desk.stores["agent"].faults.allow()
    result = await desk.repair()
    assert result.complete
    assert len(result.repaired) == 40
    assert await retries(desk.ledger) == {}
    assert await desk.judge_clean() == set()


async def test_what_was_tried_in_vain_is_tried_again_once_the_store_answers(desk: Desk) -> None:
    """The first calls after an outage may meet connections that died in it."""
    await _left_behind(desk, 20)
    desk.stores["agent"].faults.allow()
    delete, ask, died = desk.stores["agent"].delete, desk.stores["agent"].verify_deleted, [2, 2]

    async def delete_later(entry: Any) -> None:
        if died[0]:
            died[0] -= 1
            raise HttpError
        await delete(entry)

    async def ask_later(entry: Any) -> bool:
        if died[1]:
            died[1] -= 1
            raise HttpError
        return await ask(entry)

    desk.stores["agent"].delete = delete_later  # type: ignore[method-assign]
    desk.stores["agent"].verify_deleted = ask_later  # type: ignore[method-assign]
    result = await desk.repair()
    assert result.complete
    assert len(result.repaired) == 20
    assert died == [0, 0]


async def test_the_waits_grow_to_six_hours_and_an_answer_resets_them(desk: Desk) -> None:
    """A minute, then twice as long each time, more or less a quarter; since the first failure."""
    tried, began = Backoff(desk.ledger, desk.runtime), desk.clock.now()
    waits = []
    for failures in range(1, 15):
        retry = await tried.failed("agent")
        assert (retry.failures, retry.since >= began) == (failures, True)
        assert (await retries(desk.ledger))["agent"].next_at == retry.next_at
        waits.append(retry.next_at - desk.clock.now())
        desk.clock.set(retry.next_at)
    for at, wait in enumerate(waits[:8]):
        assert MINUTE * 2**at * 0.7 < wait < MINUTE * 2**at * 1.3
    assert all(HOUR * 4 < wait <= backoff.LONGEST for wait in waits[-3:])
    assert (await tried.failed("agent")).since == (await retries(desk.ledger))["agent"].since
    await tried.answered("agent")
    assert await retries(desk.ledger) == {}
    assert (await tried.failed("agent")).failures == 1


async def test_one_row_that_its_store_chokes_on_does_not_hold_up_the_others(desk: Desk) -> None:
    """Which rows are tried is drawn by lot, and any answer of the store counts."""
    ids = await _left_behind(desk, 20)
    desk.stores["agent"].faults.allow()
    (bad,) = [row.external_id for row in await desk.ledger.placements(ids[0]) if row.store == "agent"]
    delete, ask = desk.stores["agent"].delete, desk.stores["agent"].verify_deleted

    async def choke_on_delete(entry: Any) -> None:
        if entry.external_id == bad:
            raise KeyError(bad)
        await delete(entry)

    async def choke(entry: Any) -> bool:
        if entry.external_id == bad:
            raise KeyError(bad)
        return await ask(entry)

    desk.stores["agent"].delete = choke_on_delete  # type: ignore[method-assign]
    desk.stores["agent"].verify_deleted = choke  # type: ignore[method-assign]
    result = await desk.repair()
    assert [r.external_id for r in result.repaired if r.outcome is not Outcome.VERIFIED] == [bad]
    assert await retries(desk.ledger) == {}


async def test_a_store_that_only_cannot_search_is_deleted_from(desk: Desk) -> None:
    """A delete that was answered is an answer: nothing is proven, and nothing is put off."""
    await _left_behind(desk, 10)
    desk.stores["agent"].faults.allow()
    desk.stores["agent"].faults.refuse("verify_deleted", HttpError())
    result = await desk.repair()
    assert desk.stores["agent"].snapshot() == {}
    assert {r.outcome for r in result.repaired} == {Outcome.UNVERIFIED}
    desk.stores["agent"].faults.allow()
    assert (await desk.repair()).complete


async def test_a_store_that_goes_down_half_way_is_left(desk: Desk) -> None:
    """What was done is done; the rest is counted and stays pending."""
    await _left_behind(desk, 200)
    store = desk.stores["agent"]
    store.faults.allow()
    delete = store.delete

    async def stop_at_the_tenth(entry: Any) -> None:
        await delete(entry)
        if len(store.snapshot()) == 190:
            _stop(store)

    store.delete = stop_at_the_tenth  # type: ignore[method-assign]
    result = await desk.repair()
    assert not result.complete
    assert len(result.repaired) < 150
    assert any("agent: does not answer" in line for line in result.still_held)
    assert (await retries(desk.ledger))["agent"].failures == 1


async def test_what_is_owed_waits_as_well(desk: Desk) -> None:
    """A store that is down gets a few tries at placing, not one for every fact."""
    ids = [await desk.written(n, subject=f"s:{n}") for n in range(20)]
    later = [await desk.written(n, subject=f"s:{n}", supersedes=old) for n, old in enumerate(ids)]
    _stop(desk.stores["agent"])
    for fact_id in later:
        await desk.retract(fact_id)
    before = desk.plan.reached[FaultPoint.BEFORE_PUT]
    result = await desk.repair()
    assert desk.plan.reached[FaultPoint.BEFORE_PUT] == before, "its removals told already that it is down"
    assert result.restored == ()
    desk.stores["agent"].faults.allow()
    desk.clock.advance(HOUR)
    assert (await desk.repair()).complete
    assert await desk.judge_clean() == set(ids)


async def test_a_store_that_is_not_configured_is_no_store_that_is_down(desk: Desk) -> None:
    """Its rows are failed, as ever, and nothing is put off."""
    await _left_behind(desk, 5)
    del desk.stores["agent"]
    result = await desk.coordinator().repair(actor="ops", reason="r")
    assert {(r.store, r.outcome) for r in result.repaired} == {("agent", Outcome.FAILED)}
    assert await retries(desk.ledger) == {}


async def test_a_note_of_another_version_is_passed_over(desk: Desk) -> None:
    """What cannot be read keeps no store from being tried."""
    note = {"topic": backoff.TOPIC, "key": "agent", "holder": "x", "ttl": None}
    for value in ('"soon"', "[1, 2]", '["a", "2026-01-01T00:00:00Z"]', "[1]"):
        await desk.ledger.drop_notes(backoff.TOPIC)
        await desk.ledger.acquire(**note, value=value)  # type: ignore[arg-type]  # as named
        assert await retries(desk.ledger) == {}


async def test_a_job_that_runs_often_leaves_alone_what_is_not_due(desk: Desk) -> None:
    """The store is not touched and is named, the others are swept; once its turn has come it is tried."""
    await _left_behind(desk, 5)
    await desk.repair()
    key = await desk.orphan("memories")
    reached = desk.plan.reached[FaultPoint.BEFORE_DELETE]
    result = await desk.repair(only_due=True)
    assert [(r.store, r.external_id) for r in result.repaired] == [("memories", key)]
    assert desk.plan.reached[FaultPoint.BEFORE_DELETE] == reached + 1
    assert not result.complete
    assert [line.partition(";")[0] for line in result.still_held] == ["agent: was left alone"]
    nothing = await desk.repair(only_due=True, stores=["agent"])
    assert (nothing.scanned, nothing.repaired, nothing.complete) == ({}, (), False)
    desk.stores["agent"].faults.allow()
    desk.clock.set((await retries(desk.ledger))["agent"].next_at)
    assert (await desk.repair(only_due=True)).complete
    assert await desk.judge_clean() == set()


async def test_a_store_that_cannot_be_listed_is_put_off_as_well(desk: Desk) -> None:
    """With nothing pending its listing tells that it is down, and that it is back."""
    fact_id = await desk.written()
    _stop(desk.stores["agent"])
    assert not (await desk.repair()).complete
    assert (await retries(desk.ledger))["agent"].failures == 1
    calls = desk.stores["agent"].calls["list_entries"]
    assert not (await desk.repair(only_due=True)).complete
    assert desk.stores["agent"].calls["list_entries"] == calls
    desk.stores["agent"].faults.allow()
    assert (await desk.repair()).complete
    assert await retries(desk.ledger) == {}
    assert await desk.judge_clean() == {fact_id}


async def test_a_turn_set_by_a_clock_that_went_back_is_void(desk: Desk) -> None:
    """A store is tried at once where its turn would come later than after the longest wait."""
    await _left_behind(desk, 5)
    now = desk.clock.now()
    desk.clock.set(now + timedelta(days=365))
    await Backoff(desk.ledger, desk.runtime).failed("agent")
    desk.clock.set(now)
    assert await retries(desk.ledger) == {}
    desk.stores["agent"].faults.allow()
    assert (await desk.repair(only_due=True)).complete
