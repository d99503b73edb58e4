"""Idempotency keys: the same key and body is one fact, however often and from wherever it is sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fix_custody import ACTOR, LATER, Crash, Desk, error_of, kinds_of, open_desk

from custody_sync import AsyncCoordinator, Ledger, errors
from custody_sync.faultpoints import FaultPoint
from custody_sync.model import Fact, Label
from custody_sync.testing import ManualClock, MemoryStore

KEY = "order-17"


class Waiting(MemoryStore):
    """A store whose puts wait until they are let through."""

    def __init__(self, name: str, **more: Any) -> None:
        super().__init__(name, **more)
        self.inside, self.go = asyncio.Event(), asyncio.Event()

    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        """Put when let through."""
        self.inside.set()
        await self.go.wait()
        return await super().put(fact, label)


@pytest.fixture
async def slow(tmp_path: Path) -> AsyncIterator[Desk]:
    """A desk with a store that waits."""

    def stores(clock: ManualClock) -> list[MemoryStore]:
        return [Waiting("slow", clock=clock), MemoryStore("quick", own_ids=True, clock=clock)]

    async with open_desk(tmp_path, stores=stores) as desk:
        yield desk


def waiting(desk: Desk) -> Waiting:
    """Return the store that waits."""
    store = desk.stores["slow"]
    assert isinstance(store, Waiting)
    return store


async def test_c20_ten_at_once(desk: Desk) -> None:
    """C20: the same keyed write ten times at once is one fact with one entry per store."""
    answers = await asyncio.gather(
        *(desk.write(idempotency_key=KEY) for _ in range(10)), return_exceptions=True
    )
    written = [a for a in answers if not isinstance(a, BaseException)]
    assert len({w.fact.fact_id for w in written}) == 1
    assert {type(a) for a in answers if isinstance(a, BaseException)} <= {errors.WriteInProgress}
    assert [w.duplicate for w in written].count(False) == 1
    fact_id = written[0].fact.fact_id
    assert {store: len(keys) for store, keys in desk.held_of(fact_id).items()} == {"memories": 1, "agent": 1}
    assert await desk.kinds(fact_id) == ["assert"]
    assert await desk.judge_clean() == {fact_id}


async def test_c20_ten_handles_at_once(desk: Desk) -> None:
    """The same holds across ledger handles, as across processes."""

    async def one() -> Any:
        async with await Ledger.open(desk.url, runtime=desk.runtime) as ledger:
            custody = AsyncCoordinator(ledger, stores=desk.stores.values(), runtime=desk.runtime)
            return await custody.write(value="x", space="org", actor=ACTOR, idempotency_key=KEY)

    answers = await asyncio.gather(*(one() for _ in range(10)), return_exceptions=True)
    written = [a for a in answers if not isinstance(a, BaseException)]
    assert {type(a) for a in answers if isinstance(a, BaseException)} <= {errors.WriteInProgress}
    assert len({w.fact.fact_id for w in written}) == 1
    assert len(await desk.judge_clean()) == 1


async def test_same_body_returns_the_first_result(desk: Desk) -> None:
    """A repetition answers with the first fact, its placements, and no call to any store."""
    first = await desk.write({"b": 1, "a": [1.0]}, idempotency_key=KEY, receipt_id="r-1")
    calls = {name: dict(store.calls) for name, store in desk.stores.items()}
    head = await desk.ledger.head()
    desk.clock.advance(timedelta(days=1))
    again = await desk.write({"a": [1], "b": 1}, idempotency_key=KEY, receipt_id="r-2")
    assert again.duplicate
    assert not first.duplicate
    assert (again.fact, again.placements, again.complete) == (first.fact, first.placements, True)
    assert {name: dict(store.calls) for name, store in desk.stores.items()} == calls
    assert await desk.ledger.head() == head


@pytest.mark.parametrize(
    "other",
    [
        {"value": "free"},
        {"subject": "acct:43"},
        {"predicate": "owner"},
        {"text": "another text"},
        {"provenance": "claimed"},
        {"valid_from": ManualClock().now()},
        {"valid_to": ManualClock().now() + timedelta(days=1)},
    ],
)
async def test_other_body_is_a_conflict(desk: Desk, other: dict[str, Any]) -> None:
    """The same key with anything else said is refused, and nothing changes."""
    first = await desk.written(idempotency_key=KEY)
    error = await error_of(desk.write(**{"value": "pro", "idempotency_key": KEY} | other), errors.Refused)
    assert isinstance(error, errors.IdempotencyConflict)
    assert await desk.judge_clean() == {first}


async def test_same_key_in_another_space_is_another_fact(desk: Desk) -> None:
    """Keys belong to their space."""
    one, two = await desk.write(idempotency_key=KEY), await desk.write(idempotency_key=KEY, space="user:1")
    assert not two.duplicate
    assert one.fact.fact_id != two.fact.fact_id


async def test_in_progress(slow: Desk) -> None:
    """While a write is under way another is told so at once; later it gets the first one's answer."""
    first = asyncio.ensure_future(slow.write(idempotency_key=KEY))
    await waiting(slow).inside.wait()
    error = await error_of(slow.write(idempotency_key=KEY), errors.WriteInProgress)
    assert isinstance(error, errors.Transient)
    waiting(slow).go.set()
    written = await first
    again = await slow.write(idempotency_key=KEY)
    assert (again.duplicate, again.fact.fact_id) == (True, written.fact.fact_id)
    assert await slow.judge_clean() == {written.fact.fact_id}


async def test_reservation_expires_by_the_ledgers_clock(slow: Desk) -> None:
    """After five minutes a reservation lapses; of two writers one is recorded, the other answers with it."""
    first = asyncio.ensure_future(slow.write(idempotency_key=KEY))
    await waiting(slow).inside.wait()
    slow.clock.advance(299)
    await error_of(slow.write(idempotency_key=KEY), errors.WriteInProgress)
    slow.clock.advance(1)
    waiting(slow).go.set()
    second = await slow.write(idempotency_key=KEY)
    one = await first
    assert one.fact.fact_id == second.fact.fact_id
    assert sorted([one.duplicate, second.duplicate]) == [False, True]
    assert await slow.judge_clean() == {one.fact.fact_id}


async def test_crash_leaves_a_reservation_that_lapses(desk: Desk) -> None:
    """A crashed writer's key is in progress for five minutes, then it can be used again."""
    desk.fail_next(FaultPoint.BEFORE_COMMIT, Crash(), skip=1)
    # A process that dies does not give its reservation back.
    release, desk.custody._keys.release = desk.custody._keys.release, _nothing  # type: ignore[method-assign]  # a crash
    with pytest.raises(Crash):
        await desk.write(idempotency_key=KEY)
    desk.custody._keys.release = release  # type: ignore[method-assign]  # restarted
    await error_of(desk.write(idempotency_key=KEY), errors.WriteInProgress)
    desk.clock.advance(300)
    again = await desk.write(idempotency_key=KEY)
    assert not again.duplicate
    desk.clock.advance(LATER)
    assert {r.kind for r in (await desk.repair()).repaired} == {"stray"}
    assert await desk.judge_clean() == {again.fact.fact_id}


async def _nothing(reserved: object) -> None:
    return None


async def test_failed_write_gives_its_key_back(desk: Desk) -> None:
    """A write that failed has let go of its key, and the repetition writes under the same id."""
    desk.stores["agent"].faults.refuse("put", times=1)
    error = await error_of(desk.write(idempotency_key=KEY), errors.StoreWriteFailed)
    again = await desk.write(idempotency_key=KEY)
    assert not again.duplicate
    assert again.fact.fact_id == error.fact_id
    assert await desk.judge_clean() == {again.fact.fact_id}


async def test_refused_write_gives_its_key_back(desk: Desk) -> None:
    """A write that validation refused has let go of its key."""
    await error_of(desk.write(idempotency_key=KEY, supersedes="nobody"), errors.UnknownFact)
    assert await desk.ledger.notes("reservation") == []
    assert not (await desk.write(idempotency_key=KEY)).duplicate


async def test_after_a_forget(desk: Desk) -> None:
    """After a forget the key says `Forgotten`: the value does not come back by a retry."""
    fact_id = await desk.written("123-45-6789", idempotency_key=KEY)
    await desk.forget(fact_id)
    await error_of(desk.write("123-45-6789", idempotency_key=KEY), errors.Forgotten)
    assert desk.held() == {}
    assert await desk.judge_clean() == set()


async def test_after_a_retract(desk: Desk) -> None:
    """After a retract the key answers with the fact, which no store holds any more."""
    fact_id = await desk.written(idempotency_key=KEY)
    await desk.retract(fact_id)
    again = await desk.write(idempotency_key=KEY)
    assert (again.duplicate, again.fact.fact_id, dict(again.placements)) == (True, fact_id, {})
    assert await desk.judge_clean() == set()


async def test_after_a_repair_a_fresh_id(desk: Desk) -> None:
    """After the orphan of a keyed write was repaired, its key is written under a fresh id."""
    ids = []
    for _ in range(3):
        desk.fail_next(FaultPoint.BEFORE_COMMIT, errors.OutcomeUnknown(name="x"), skip=1, times=30)
        ids.append((await error_of(desk.write(idempotency_key=KEY), errors.LedgerUnavailable)).fact_id)
        desk.plan._actions.clear()
        desk.clock.advance(LATER)
        assert (await desk.repair()).complete
    written = await desk.write(idempotency_key=KEY)
    assert not written.duplicate
    assert len({*ids, written.fact.fact_id}) == 4
    again = await desk.write(idempotency_key=KEY)
    assert (again.duplicate, again.fact.fact_id) == (True, written.fact.fact_id)
    assert await desk.judge_clean() == {written.fact.fact_id}


async def test_after_a_salvage_a_fresh_id(desk: Desk) -> None:
    """A keyed write whose entries were salvaged was never recorded: its retry is, under a fresh id."""
    desk.fail_next(FaultPoint.STORED, Crash())
    with pytest.raises(Crash):
        await desk.write(idempotency_key=KEY)
    desk.clock.advance(LATER)
    (saved,) = (await desk.repair(salvage=True)).salvaged
    written = await desk.write(idempotency_key=KEY)
    assert not written.duplicate
    assert written.fact.fact_id != saved.fact_id
    assert (await desk.write(idempotency_key=KEY)).duplicate
    await error_of(desk.write(value="other", idempotency_key=KEY), errors.IdempotencyConflict)
    await desk.forget(saved.fact_id)
    await error_of(desk.write(idempotency_key=KEY), errors.Forgotten)


async def test_duplicate_says_what_is_still_pending(desk: Desk) -> None:
    """A repetition is not complete while its predecessor's removal is pending."""
    base = await desk.written("pro")
    desk.stores["agent"].faults.refuse("delete")
    first = await desk.write("free", supersedes=base, idempotency_key=KEY)
    again = await desk.write("free", supersedes=base, idempotency_key=KEY)
    assert (first.complete, again.complete, again.duplicate) == (False, False, True)
    assert [(r.store, r.outcome) for r in again.removals] == [("agent", "failed")]
    desk.stores["agent"].faults.allow()
    await desk.repair()
    assert (await desk.write("free", supersedes=base, idempotency_key=KEY)).complete


async def test_store_that_folds_a_repeated_put(tmp_path: Path) -> None:
    """Two keyed writers into a store that folds equal texts never lose the acknowledged one's entry."""
    folding = MemoryStore("folding", own_ids=True)
    folding.faults.shared_ids = True
    async with open_desk(tmp_path, stores=[folding]) as desk:
        written = await desk.write(idempotency_key=KEY)
        reserve = desk.custody._keys.reserve

        async def blind(request: Any, key: str) -> Any:
            # As if the reservation had lapsed and the first write landed a moment later.
            reserved = await reserve(request, key)
            return type(reserved)(reserved.fact_id, reserved.holder)

        desk.custody._keys.reserve = blind  # type: ignore[method-assign]  # the race, made certain
        await error_of(desk.write(idempotency_key=KEY), errors.DuplicateFact)
        assert await desk.judge_clean() == {written.fact.fact_id}


async def test_compensation_spares_another_writers_entry(slow: Desk) -> None:
    """A writer that takes back its lost put leaves the entry of another writer of the same id alone."""
    first = asyncio.ensure_future(slow.write(idempotency_key=KEY))
    await waiting(slow).inside.wait()
    # The first writer's reservation lapses while its put in the other store has landed already.
    slow.clock.advance(300)
    slow.stores["quick"].faults.lose_reply("put")
    second = asyncio.ensure_future(slow.write(idempotency_key=KEY))
    while len(slow.stores["quick"].snapshot()) < 2:  # noqa: ASYNC110  # a memory store has no event to wait for
        await asyncio.sleep(0)
    waiting(slow).go.set()
    error = await error_of(second, errors.StoreWriteFailed)
    assert (error.store, error.left) == ("quick", [])
    written = await first
    assert await slow.judge_clean() == {written.fact.fact_id}


async def test_reservation_whose_answer_was_lost(desk: Desk) -> None:
    """A reservation that may or may not have been made blocks nobody: it is given back at once."""
    desk.fail_next(FaultPoint.AFTER_COMMIT, errors.OutcomeUnknown(name="x"))
    await error_of(desk.write(idempotency_key=KEY), errors.OutcomeUnknown)
    assert await desk.ledger.notes("reservation") == []
    assert not (await desk.write(idempotency_key=KEY)).duplicate
    assert len(await desk.judge_clean()) == 1


async def test_duplicate_says_what_its_own_put_left(desk: Desk) -> None:
    """A repetition that found the first fact only in the ledger names what it could not take back."""
    first = await desk.write(idempotency_key=KEY)
    reserve, blind = desk.custody._keys.reserve, [True]

    async def late(request: Any, key: str) -> Any:
        # As if the reservation had lapsed and the first write landed a moment later.
        reserved = await reserve(request, key)
        return type(reserved)(reserved.fact_id, reserved.holder) if blind.pop() else reserved

    blind.insert(0, False)
    desk.custody._keys.reserve = late  # type: ignore[method-assign]  # the race, made certain
    desk.stores["agent"].faults.refuse("delete")
    again = await desk.write(idempotency_key=KEY)
    assert (again.duplicate, again.complete, again.fact) == (True, False, first.fact)
    assert [(r.store, r.outcome, r.detail) for r in again.removals] == [
        ("agent", "unverified", "the repeated write may have left an entry; run repair")
    ]
    await desk.judge(left=["agent"])
    desk.stores["agent"].faults.allow()
    desk.clock.advance(LATER)
    assert kinds_of(await desk.repair()) == [("agent", "stray", "verified")]
    assert await desk.judge_clean() == {first.fact.fact_id}
