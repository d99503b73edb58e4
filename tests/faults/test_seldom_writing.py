"""What happens seldom while facts are written, confirmed and forgotten: no other story comes by there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fix_custody import ACTOR, LATER, Desk, error_of, open_desk

from custody_sync import errors
from custody_sync.coordinator import AsyncCoordinator
from custody_sync.faultpoints import FaultPoint
from custody_sync.ledger import Assert, Repair
from custody_sync.model import Entry, Fact, Label, Provenance, Standing
from custody_sync.placing import Put
from custody_sync.recording import Recorder, Unrecorded
from custody_sync.removal import Patience
from custody_sync.testing import MemoryStore
from custody_sync.throttling import Pace


class Meeting(MemoryStore):
    """A store during whose put something else happens once."""

    meanwhile: Callable[[], Awaitable[object]] | None = None

    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        """Put, and let the other thing happen before the answer."""
        ids = await super().put(fact, label)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        return ids


class Untidy(MemoryStore):
    """A store that cannot clean up after a forget."""

    async def after_forget(self, entries: Sequence[Entry]) -> Sequence[str]:
        """Fail."""
        raise errors.StoreUnavailable(store=self.name, operation="after_forget", cause="reset")


async def refused(call: Awaitable[object], field: str) -> None:
    """Hold a call to refusing an argument."""
    with pytest.raises(errors.InvalidInput) as caught:
        await call
    assert caught.value.fields["field"] == field


# --- how a coordinator is made ---------------------------------------------------------------


async def test_a_coordinator_needs_an_open_ledger_and_tells_its_runtime(desk: Desk) -> None:
    """A URL is no ledger."""
    assert desk.coordinator(paces={"memories": Pace(concurrency=1)}).runtime is desk.runtime
    with pytest.raises(errors.InvalidInput, match="must be an open Ledger"):
        AsyncCoordinator("sqlite:///custody.db")  # type: ignore[arg-type]  # the wrong type is the point


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"paces": {"memories": 3}}, "paces"),
        ({"paces": {"nowhere": Pace()}}, "paces"),
        ({"superseded": {"nowhere": "keep"}}, "superseded"),
        ({"superseded": {"memories": "burn"}}, "superseded"),
    ],
)
async def test_a_setting_of_a_store_has_to_make_sense(desk: Desk, more: dict[str, Any], field: str) -> None:
    """A pace is a Pace, and a policy is one of two and of a store that is there."""
    with pytest.raises(errors.InvalidInput) as caught:
        desk.coordinator(**more)
    assert caught.value.fields["field"] == field


async def test_a_verification_of_given_facts_takes_no_selection(desk: Desk) -> None:
    """Facts that are named are asked about at once, whatever else is said of them."""
    fact_id = await desk.written()
    for more in ({"space": "org"}, {"since": desk.clock.now()}, {"resume": True}):
        await refused(desk.verify(fact_ids=[fact_id], **more), "fact_ids")


# --- writing ---------------------------------------------------------------------------------


async def test_a_key_whose_fact_came_between_two_questions_is_answered_with_it(desk: Desk) -> None:
    """Whoever asks before another write is recorded, and reserves after it, writes nothing of its own."""
    keys, other = desk.custody._keys, desk.coordinator()
    asked = keys._standing

    async def late(fact_id: str) -> Standing:
        found = await asked(fact_id)
        keys._standing = asked  # type: ignore[method-assign]  # as it was
        told = {"subject": "acct:42", "predicate": "plan", "space": "org", "actor": ACTOR}
        await other.write(value="pro", idempotency_key="k", **told)  # type: ignore[arg-type]  # names
        return found

    keys._standing = late  # type: ignore[method-assign]  # once
    result = await desk.write(idempotency_key="k")
    assert await desk.judge_clean() == {result.fact.fact_id}


async def test_what_a_failed_put_relied_on_is_nothing(desk: Desk) -> None:
    """Only what was placed keeps a claim in a store's notebook."""
    placer = desk.custody._placer
    error = errors.StoreRefused(store="memories", operation="put", cause="no")
    await placer.stand_by([Put(gate=desk.custody._gates["memories"], generation="g", error=error)])
    assert await desk.untouched()


async def test_a_young_entry_under_a_key_of_ours_is_taken_back_though_the_ledger_cannot_be_asked(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key is no other write's, and no salvage takes what is so young; an id of the store's may be."""
    unavailable = errors.LedgerBusy(name="sqlite", waited=1)

    async def nobody_answers(*_: object, **__: object) -> None:
        raise unavailable

    monkeypatch.setattr(desk.ledger, "unaccounted", nobody_answers)
    desk.fail_next(FaultPoint.BEFORE_COMMIT, errors.LedgerFull(name="sqlite"), times=20)
    failed = await error_of(desk.write())
    assert failed.fields["left"] == ["agent"]
    assert not desk.stores["memories"].snapshot()


@pytest.mark.parametrize("recorded", [True, False])
async def test_a_write_that_is_cancelled_while_the_ledger_is_away_leaves_its_entries(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, recorded: bool
) -> None:
    """Nothing can be settled then: what is there is kept for the sweep, and nobody hears of another error."""
    recorder = desk.custody._recorder

    async def cancelled(draft: Assert, placements: object = ()) -> None:
        if recorded:
            await desk.ledger.append(draft)
        raise asyncio.CancelledError

    async def away(*_: object) -> None:
        raise errors.LedgerUnavailable(cause="reset", fact_id="f", entries=())

    monkeypatch.setattr(recorder, "append", cancelled)
    monkeypatch.setattr(recorder, "claim", away)
    with pytest.raises(asyncio.CancelledError):
        await desk.write()
    assert {store for store, _ in desk.held()} == {"memories", "agent"}


async def test_a_confirmation_that_is_cancelled_leaves_its_entries_to_the_sweep(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It claims no id, so that nothing can be settled against it."""
    fact_id = await desk.written(provenance="claimed")

    async def cancelled(*_: object) -> None:
        raise asyncio.CancelledError

    with monkeypatch.context() as patch:
        patch.setattr(desk.custody._recorder, "append", cancelled)
        with pytest.raises(asyncio.CancelledError):
            await desk.confirm(fact_id)
    assert set(desk.held_of(fact_id)) == {"memories", "agent"}
    desk.clock.advance(LATER.total_seconds())
    await desk.repair()
    assert not desk.held()
    assert (await desk.confirm(fact_id)).complete


async def test_an_append_that_had_landed_after_all_is_the_answer_to_its_claim(desk: Desk) -> None:
    """The id cannot be claimed any more: the fact is there, and the event that made it is told."""
    fact = (await desk.write()).fact
    told = await desk.ledger.history(fact.fact_id)
    draft = Assert(event_id=told[0].event_id, fact=replace(fact, evidence=None), placements=())
    recorder = Recorder(desk.ledger, desk.runtime, 2)
    with pytest.raises(errors.DuplicateEvent):
        await recorder.claim(draft, (), TimeoutError())
    bare = desk.runtime.ids.fact_id(desk.clock.now())
    new = Assert(event_id=desk.runtime.ids.event_id(), fact=replace(fact, fact_id=bare, subject="acct:7"))
    event = await desk.ledger.append(new)
    assert await recorder.claim(new, (), TimeoutError()) == event


async def test_an_id_that_a_sweep_has_claimed_already_settles_an_append(desk: Desk) -> None:
    """Whoever was first with the claim, the fact is certainly not recorded."""
    fact = replace((await desk.write()).fact, fact_id=desk.runtime.ids.fact_id(desk.clock.now()))
    draft = Assert(event_id=desk.runtime.ids.event_id(), fact=fact)
    claim = Repair(event_id=desk.runtime.ids.event_id(), fact_id=fact.fact_id, actor="ops")
    await desk.ledger.append(claim)
    with pytest.raises(Unrecorded) as caught:
        await Recorder(desk.ledger, desk.runtime, 2).claim(draft, (), TimeoutError())
    assert caught.value.error.fields["fact_id"] == fact.fact_id


async def test_a_keyed_write_that_left_something_does_not_go_on_under_another_id(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its caller has to hear in which stores something may be left."""

    async def swept(*_: object) -> None:
        raise errors.RepairedId(fact_id="f", left=["agent"])

    monkeypatch.setattr(desk.custody._writer, "write", swept)
    failed = await error_of(desk.write(idempotency_key="k"), errors.RepairedId)
    assert failed.fields["left"] == ["agent"]


async def test_a_key_does_not_hide_that_the_predecessor_was_repaired(desk: Desk) -> None:
    """The id of another orphan is no reason to try again: with a key and without one the error names it."""
    lost = desk.runtime.ids.fact_id(desk.clock.now())
    claim = Repair(event_id=desk.runtime.ids.event_id(), fact_id=lost, actor="ops")
    await desk.ledger.append(claim)
    for key in (None, "k"):
        failed = await error_of(desk.write(supersedes=lost, idempotency_key=key), errors.RepairedId)
        assert failed.fields["fact_id"] == lost


async def test_a_keyed_write_whose_id_a_sweep_took_goes_on_under_another_one(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was left, so that nobody has to hear of it: the key has another id."""
    writer, tried = desk.custody._writer, list[str]()
    write = writer.write

    async def swept(request: Any, fact_id: str, now: Any) -> Any:
        tried.append(fact_id)
        if len(tried) == 1:
            claim = Repair(event_id=desk.runtime.ids.event_id(), fact_id=fact_id, actor="ops")
            await desk.ledger.append(claim)
        return await write(request, fact_id, now)

    monkeypatch.setattr(writer, "write", swept)
    result = await desk.write(idempotency_key="k")
    assert tried == [tried[0], result.fact.fact_id]
    assert await desk.judge_clean() == {result.fact.fact_id}


# --- bringing back ---------------------------------------------------------------------------


async def met(folder: Path, act: str) -> tuple[Any, str, Desk]:
    """Restore a fact while something else happens to it; return what was said of the store."""
    async with open_desk(folder, stores=lambda clock: [Meeting("memories", clock=clock)]) as desk:
        store = desk.stores["memories"]
        assert isinstance(store, Meeting)
        base = await desk.written()
        tip = await desk.written("free", supersedes=base)
        other = desk.coordinator()

        async def meanwhile() -> None:
            if act == "stuck":
                store.faults.refuse("delete")
            if act == "restore":
                await other.repair(actor="ops", reason="at once")
            else:
                await other.retract(base, actor=ACTOR, reason="wrong")

        store.meanwhile = meanwhile
        (said,) = (await desk.retract(tip)).restored
        store.faults.allow()
        await desk.judge(left=["memories"])
        return said, base, desk


async def test_what_another_process_has_placed_meanwhile_is_named_and_not_doubled(tmp_path: Path) -> None:
    """The other one's entry stands, and ours is taken back."""
    said, base, desk = await met(tmp_path, "restore")
    (key,) = desk.held_of(base)["memories"]
    assert (said.external_ids, said.detail) == ((key,), "placed by another process")


@pytest.mark.parametrize("act", ["retract", "stuck"])
async def test_what_is_believed_no_more_when_it_is_placed_is_taken_back(tmp_path: Path, act: str) -> None:
    """The ledger refuses it, and what may be left of it is said."""
    said, base, desk = await met(tmp_path, act)
    assert not said.placed
    assert said.detail.startswith("not recorded (already_retracted)")
    assert ("an entry of this try may be left" in said.detail) is (act == "stuck")
    assert bool(desk.held_of(base)) is (act == "stuck")


async def test_what_a_store_takes_no_more_is_not_put_there_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its limit may be another one than when the fact was written."""
    base = await desk.written()
    tip = await desk.written("free", supersedes=base)

    def too_long(text: str) -> None:
        raise errors.TextTooLong(store="memories", length=len(text), limit=1, unit="characters")

    monkeypatch.setattr(desk.custody._gates["memories"], "check_text", too_long)
    restored = {one.store: one for one in (await desk.retract(tip)).restored}
    assert restored["memories"].detail.startswith("put refused (")
    assert restored["agent"].placed


# --- forgetting ------------------------------------------------------------------------------


async def test_a_clean_up_that_fails_is_noted(tmp_path: Path) -> None:
    """The erasure is no less complete for it."""
    async with open_desk(tmp_path, stores=lambda clock: [Untidy("memories", clock=clock)]) as desk:
        result = await desk.forget(await desk.written())
        assert result.complete
        assert any("memories: its clean-up failed (reset)" in note for note in result.notes), result.notes


async def test_a_batch_of_which_all_is_held_asks_nobody_to_clean_up(desk: Desk) -> None:
    """Nothing was forgotten, so there is nothing to clear."""
    fact_id = await desk.written()
    await desk.custody.hold(fact_id, actor=ACTOR, reason="court")
    report = await desk.custody.forget_where(space="org", actor=ACTOR, reason="asked to")
    assert [fact.fate.value for fact in report.facts] == ["held"]
    assert set(desk.held_of(fact_id)) == {"memories", "agent"}


async def test_one_fact_that_fails_does_not_end_a_run(desk: Desk) -> None:
    """Only a ledger that is away does: of all others of the batch it is said what became of them."""
    for n in range(3):
        await desk.written(n, predicate=f"p{n}")
    desk.fail_next(FaultPoint.RECORDED, errors.InvalidInput(field="x", problem="y"))
    report = await desk.custody.forget_where(space="org", actor=ACTOR, reason="asked to")
    assert sorted(fact.fate.value for fact in report.facts) == ["failed", "forgotten", "forgotten"]
    assert report.stopped is None


@pytest.mark.parametrize(("questions", "outcome"), [(1, "still_indexed"), (2, "verified")])
async def test_a_store_is_asked_as_often_as_patience_says(
    tmp_path: Path, questions: int, outcome: str
) -> None:
    """What is shown at the last question is still indexed; nobody waits for more."""
    async with open_desk(tmp_path, patience=Patience(questions=questions)) as desk:
        fact_id = await desk.written(provenance=Provenance.ATTESTED)
        desk.stores["memories"].faults.index_lag = 1
        result = await desk.retract(fact_id)
        outcomes = {removal.store: removal.outcome.value for removal in result.removals}
        assert outcomes == {"memories": outcome, "agent": "verified"}
        assert desk.stores["memories"].calls["verify_deleted"] == questions
