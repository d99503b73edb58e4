"""A verification of very many facts: by store, in pages, stopped half-way and gone on with."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fix_custody import BRIEF, Desk, HttpError, error_of, open_desk

from custody_sync import errors
from custody_sync.model import Capability, Entry, Outcome
from custody_sync.repair import progress, verify
from custody_sync.results import Removal
from custody_sync.testing import ManualClock, MemoryStore

MINUTE = timedelta(minutes=1)


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask about a few facts at a time, so that a handful makes several pages."""
    monkeypatch.setattr(verify, "PAGE", 3)


class Stopped(BaseException):
    """The process ends here."""


class Told:
    """Takes answers as they come, and ends the run at one of them."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.removals: list[Removal] = []
        self._stop_at = stop_at

    def __call__(self, removal: Removal) -> None:
        """Take one."""
        if len(self.removals) == self._stop_at:
            raise Stopped
        self.removals.append(removal)


async def _retracted(desk: Desk, count: int, **more: Any) -> list[str]:
    ids = [await desk.written(n, subject=f"s:{n}", **more) for n in range(count)]
    for fact_id in ids:
        await desk.retract(fact_id)
    return ids


async def _notes(desk: Desk) -> int:
    return len(await desk.ledger.notes("verify")) + len(await desk.ledger.notes("verify-unproven"))


async def test_every_removed_fact_is_asked_about_once_a_store(desk: Desk) -> None:
    """Over many pages nothing is left out or doubled, the counts add up, and no note is left."""
    ids = await _retracted(desk, 8)
    result = await desk.verify()
    asked = [(r.fact_id, r.store) for r in result.removals]
    assert len(asked) == len(set(asked)) == result.asked == 16
    assert {fact_id for fact_id, _ in asked} == set(ids)
    assert result.outcomes == {"agent": {"verified": 8}, "memories": {"verified": 8}}
    assert (result.complete, result.unnamed, result.unfinished) == (True, 0, None)
    assert [part.asked for part in result.parts] == [16]
    assert await _notes(desk) == 0


async def test_a_run_that_was_stopped_is_gone_on_with(desk: Desk) -> None:
    """What was asked before is counted with the time it was asked, and is not asked again."""
    await _retracted(desk, 8)
    with pytest.raises(Stopped):
        await desk.verify(tell=Told(stop_at=9))
    began = desk.clock.advance(timedelta(hours=1))
    told = Told()
    result = await desk.verify(resume=True, tell=told)
    assert (result.complete, result.asked) == (True, 16)
    assert len(told.removals) < 16
    assert len(result.parts) == 2
    assert result.parts[0].until < began <= result.parts[1].since
    assert sum(part.asked for part in result.parts) == 16
    assert result.parts[1].asked == len(told.removals)
    assert await _notes(desk) == 0


async def test_a_run_that_is_not_gone_on_with_is_mentioned(desk: Desk) -> None:
    """Another one begins anew and says that there was one; of another selection nothing is said."""
    await _retracted(desk, 8)
    with pytest.raises(Stopped):
        await desk.verify(tell=Told(stop_at=9))
    assert (await desk.verify(space="org")).unfinished is None
    result = await desk.verify()
    assert result.unfinished is not None
    assert result.parts[0].asked == 16
    assert (await desk.verify()).unfinished is None
    assert await _notes(desk) == 0


async def test_going_on_with_nothing_begins_anew(desk: Desk) -> None:
    """So that a nightly job may always say it."""
    await _retracted(desk, 2)
    result = await desk.verify(resume=True)
    assert (result.complete, result.asked, len(result.parts)) == (True, 4, 1)


async def test_what_was_not_proven_before_a_stop_is_still_named(desk: Desk) -> None:
    """A resumed run is not complete because its second half was, and no external id was kept."""
    await _retracted(desk, 8)
    desk.stores["agent"].faults.refuse("verify_deleted", HttpError())
    with pytest.raises(Stopped):
        await desk.verify(tell=Told(stop_at=9))
    kept = [note.value for note in await desk.ledger.notes("verify-unproven")]
    desk.stores["agent"].faults.allow()
    result = await desk.verify(resume=True)
    left = [r for r in result.removals if r.outcome is not Outcome.VERIFIED]
    assert not result.complete
    assert len(kept) == len(left) > 0
    assert {(r.store, r.external_id, r.outcome) for r in left} == {("agent", "", Outcome.UNVERIFIED)}
    placed = [p.external_id for r in left for p in await desk.ledger.placements(r.fact_id)]
    assert not any(external_id in value for value in kept for external_id in placed)


async def test_more_unproven_answers_than_are_named_are_counted(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory and notes stay small; the count says how many there are besides."""
    monkeypatch.setattr(verify, "NAMED", 2)
    await _retracted(desk, 8)
    desk.stores["agent"].faults.refuse("verify_deleted", HttpError())
    told = Told()
    result = await desk.verify(tell=told)
    assert (len(result.removals), result.unnamed) == (2, 6)
    assert result.outcomes["agent"] == {"unverified": 8}
    assert len(told.removals) == result.asked == 16


@pytest.mark.parametrize("how", ["old", "ahead"])
async def test_an_old_run_is_dropped(desk: Desk, how: str) -> None:
    """What was asked a week ago, or by a clock that went back since, is not gone on with nor kept."""
    if how == "ahead":
        begun = desk.clock.now()
        desk.clock.advance(timedelta(days=365))
    await _retracted(desk, 8)
    with pytest.raises(Stopped):
        await desk.verify(tell=Told(stop_at=9))
    if how == "ahead":
        desk.clock.set(begun)
    else:
        desk.clock.advance(progress.KEPT + MINUTE)
    result = await desk.verify(resume=True, space="nobody")
    assert (result.asked, result.complete) == (0, False)
    assert await _notes(desk) == 0
    assert len((await desk.verify(resume=True)).parts) == 1


async def test_only_a_space_a_time_and_a_store(desk: Desk) -> None:
    """Each narrows what is asked; nothing asked is never complete."""
    org, user = await _retracted(desk, 1), await _retracted(desk, 1, space="user:1")
    assert {r.fact_id for r in (await desk.verify(space="user:*")).removals} == set(user)
    assert {r.store for r in (await desk.verify(stores=["agent"])).removals} == {"agent"}
    since = desk.clock.advance(MINUTE)
    later = await _retracted(desk, 1)
    assert {r.fact_id for r in (await desk.verify(since=since)).removals} == set(later)
    assert {r.fact_id for r in (await desk.verify(fact_ids=org, stores=["agent"])).removals} == set(org)
    nothing = await desk.verify(space="user:2")
    assert (nothing.asked, nothing.complete) == (0, False)


async def test_what_cannot_be_asked_for_is_refused(desk: Desk) -> None:
    """An unknown store, and facts by name together with a selection."""
    error = await error_of(desk.verify(stores=["memory"]), errors.InvalidInput)
    assert "memories" in str(error)
    for more in ({"space": "org"}, {"resume": True}, {"since": desk.clock.now()}):
        await error_of(desk.verify(fact_ids=["f"], **more), errors.InvalidInput)


async def test_a_store_that_is_down_is_given_up_and_the_others_go_on(desk: Desk) -> None:
    """Its facts are unverified and counted; it is not asked about each of them with all patience."""
    await _retracted(desk, 30)
    calls = 0

    async def refuse(_: Any) -> Any:
        nonlocal calls
        calls += 1
        raise HttpError

    down = desk.stores["agent"]
    down.find = down.verify_deleted = refuse  # type: ignore[method-assign]
    result = await desk.verify()
    assert result.outcomes == {"agent": {"unverified": 30 + 3}, "memories": {"verified": 30}}
    assert calls < 40
    assert any("agent" in note and "27 facts were not asked" in note for note in result.notes)


async def test_a_store_that_comes_back_is_asked_again(tmp_path: Path) -> None:
    """One fact is tried now and then, and the rest is asked as soon as it answers."""
    clock = ManualClock()
    store = MemoryStore("store", clock=clock)
    async with open_desk(tmp_path, stores=[store], clock=clock, patience=BRIEF) as desk:
        await _retracted(desk, 30)
        store.faults.refuse("find", HttpError())
        store.faults.refuse("verify_deleted", HttpError())
        told: list[int] = []

        def watch(_: str, done: int, of: int | None) -> None:
            assert of == 30
            told.append(done)
            if done == 9:
                store.faults.allow()
                clock.advance(verify.TRIED_AGAIN)

        result = await desk.verify(watch=watch)
        assert result.outcomes["store"]["verified"] == 21
        assert told == list(range(3, 31, 3))


async def test_a_store_that_raises_what_it_likes(desk: Desk) -> None:
    """An error nobody knows is unverified and carries no text of the store."""
    await _retracted(desk, 2)
    desk.stores["agent"].faults.refuse("verify_deleted", KeyError("canary: I drink my coffee black"))
    desk.stores["memories"].faults.refuse("find", RecursionError("canary"))
    result = await desk.verify()
    assert not result.complete
    assert "canary" not in str(result)
    assert result.outcomes["agent"] == {"unverified": 2}


async def test_a_store_that_is_not_configured_any_more_is_failed(desk: Desk) -> None:
    """Nobody can say whether it still has what was removed."""
    await _retracted(desk, 4)
    del desk.stores["agent"]
    result = await desk.coordinator().verify(actor="ops")
    assert result.outcomes == {"agent": {"failed": 4}, "memories": {"verified": 4}}
    assert not result.complete


def _during(store: MemoryStore, action: Callable[[Entry], Any]) -> None:
    """Do something once, after the store was asked and before its answer is judged."""
    ask = store.verify_deleted

    async def asked(entry: Entry) -> bool:
        answer = await ask(entry)
        store.verify_deleted = ask  # type: ignore[method-assign]
        found = await action(entry)
        return answer if found is None else bool(found)

    store.verify_deleted = asked  # type: ignore[method-assign]


async def test_an_identity_that_is_erased_meanwhile(desk: Desk) -> None:
    """Its stores are asked all the same, and nothing of it is written down again."""
    (fact_id,) = await _retracted(desk, 1)
    (placed,) = [p for p in await desk.ledger.placements(fact_id) if p.store == "agent"]

    async def erase(_: Entry) -> None:
        await desk.forget(fact_id, identity=True)

    _during(desk.stores["agent"], erase)
    assert (await desk.verify()).complete
    assert all(row.erased for row in await desk.ledger.placements(fact_id))
    exported = str([row async for row in desk.ledger.export()])
    assert placed.external_id not in exported
    assert await _notes(desk) == 0


async def test_a_fact_that_is_believed_again_meanwhile_is_no_leftover(desk: Desk) -> None:
    """What a store shows of it is its current entry, so it is neither counted nor recorded as left."""
    first = await desk.written()
    second = await desk.written(supersedes=first)

    async def come_back(entry: Entry) -> None:
        if entry.fact_id == first:
            await desk.retract(second)

    _during(desk.stores["agent"], come_back)
    result = await desk.verify()
    assert result.complete, result.removals
    assert await desk.judge_clean() == {first}


async def test_a_slow_store_does_not_hold_up_the_others(desk: Desk) -> None:
    """Another store's last page is asked while the slow one is at its first."""
    await _retracted(desk, 8)
    order: list[str] = []
    slow = desk.stores["agent"]
    find = slow.find

    async def held_up(fact_id: str) -> list[Entry]:
        while order.count("memories") < 8:
            await desk.runtime.sleep(0.01)
        return await find(fact_id)

    slow.find = held_up  # type: ignore[method-assign]
    result = await desk.verify(tell=lambda removal: order.append(removal.store))
    assert result.complete
    assert order[:8] == ["memories"] * 8


async def test_a_ledger_that_takes_no_notes_is_verified_all_the_same(desk: Desk) -> None:
    """Such a run only cannot be gone on with."""
    await _retracted(desk, 2)

    async def refuse(*_: Any, **__: Any) -> None:
        raise errors.LedgerUnavailable(name="ledger", problem="no space left")

    desk.ledger.put_notes = refuse  # type: ignore[method-assign]
    assert (await desk.verify()).complete


async def test_a_store_that_cannot_be_asked_by_id_is_only_asked_what_it_can(tmp_path: Path) -> None:
    """Without `find` there is one answer an entry; a fact without entries there has none."""
    store = MemoryStore("store", without=[Capability.FIND])
    async with open_desk(tmp_path, stores=[store]) as desk:
        await _retracted(desk, 4)
        result = await desk.verify()
        assert (result.asked, result.complete) == (4, True)


async def test_what_ended_by_itself_is_asked_about_and_is_pending(tmp_path: Path) -> None:
    """An entry whose fact's validity is over had to go: a verification finds it, and a status counts it."""
    async with open_desk(tmp_path, patience=BRIEF) as desk:
        ended = await desk.written(space="user:1", valid_to=desk.clock.now() + MINUTE)
        await error_of(desk.verify(fact_ids=[ended]), errors.NotRemoved)
        assert {store.pending for store in (await desk.custody.status()).stores} == {0}
        desk.clock.advance(2 * MINUTE)
        held = desk.held_of(ended)
        for result in (await desk.verify(), await desk.verify(fact_ids=[ended])):
            assert {r.store: (r.external_id, r.outcome) for r in result.removals} == {
                store: (ids[0], Outcome.STILL_INDEXED) for store, ids in held.items()
            }
            assert not result.complete
        assert (await desk.verify(space="user:2")).asked == 0
        assert [store.by_outcome for store in (await desk.custody.status()).stores] == [{"untried": 1}] * 2
        assert (await desk.repair()).complete
        assert (await desk.verify()).complete
        assert {store.pending for store in (await desk.custody.status()).stores} == {0}
