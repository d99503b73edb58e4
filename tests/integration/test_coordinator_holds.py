"""Legal holds: what they keep, how they stack, and who may end them."""

from __future__ import annotations

import asyncio

import pytest
from fix_custody import ACTOR, Desk, error_of

from custody_sync.errors import (
    ClosedError,
    CustodyError,
    DuplicateHold,
    Forgotten,
    InvalidInput,
    NoSuchHold,
    OnHold,
    RepairedId,
    UnknownFact,
)


async def test_c10_holds_stack(desk: Desk) -> None:
    """C10: a forget is refused while one hold stands, and only the last release allows it."""
    fact_id = await desk.written()
    first = await desk.custody.hold(fact_id, actor="counsel", reason="case 1", hold_id="case-1")
    assert first.holds == ("case-1",)
    assert (await error_of(desk.forget(fact_id), OnHold)).holds == ["case-1"]
    second = await desk.custody.hold(fact_id, actor="counsel", hold_id="case-2")
    assert second.holds == ("case-1", "case-2")
    assert str(await error_of(desk.forget(fact_id), OnHold)).endswith("legal hold: case-1, case-2.")
    released = await desk.custody.release(fact_id, hold_id="case-1", actor="counsel", reason="settled")
    assert (released.hold_id, released.holds) == ("case-1", ("case-2",))
    await error_of(desk.forget(fact_id), OnHold)
    assert (await desk.custody.release(fact_id, hold_id="case-2", actor="counsel")).holds == ()
    assert (await desk.forget(fact_id)).complete
    kinds = await desk.kinds(fact_id)
    assert kinds[:6] == ["assert", "hold", "hold", "release", "release", "forget"]
    reasons = [event.reason for event in await desk.ledger.history(fact_id)][1:5]
    assert reasons == ["case 1", None, "settled", None]


async def test_a_refused_forget_touches_nothing(desk: Desk) -> None:
    """While a hold stands, value and entries stay where they are."""
    fact_id = await desk.written("kept")
    await desk.custody.hold(fact_id, actor="counsel")
    await error_of(desk.forget(fact_id), OnHold)
    fact = await desk.ledger.get(fact_id)
    assert fact is not None
    assert fact.value == "kept"
    await desk.judge_clean()


async def test_a_hold_without_an_id_gets_one(desk: Desk) -> None:
    """Each unnamed hold is another one, and is released by the id that it was given."""
    fact_id = await desk.written()
    one = await desk.custody.hold(fact_id, actor="counsel")
    two = await desk.custody.hold(fact_id, actor="counsel")
    assert one.hold_id != two.hold_id
    assert set(two.holds) == {one.hold_id, two.hold_id}
    await desk.custody.release(fact_id, hold_id=one.hold_id, actor="counsel")
    assert (await desk.custody.release(fact_id, hold_id=two.hold_id, actor="counsel")).holds == ()


async def test_a_hold_is_for_any_state(desk: Desk) -> None:
    """Claimed, superseded and retracted facts can be held: evidence is often what was not so."""
    claimed = await desk.written("claim", provenance="claimed", subject="a")
    old = await desk.written("old", subject="b")
    await desk.written("new", subject="b", supersedes=old)
    wrong = await desk.written("wrong", subject="c")
    await desk.retract(wrong)
    for fact_id in (claimed, old, wrong):
        await desk.custody.hold(fact_id, actor="counsel", hold_id="case")
        await error_of(desk.forget(fact_id), OnHold)


async def test_a_hold_keeps_no_fact_believed(desk: Desk) -> None:
    """A held fact may be retracted, superseded and confirmed like any other."""
    fact_id = await desk.written()
    await desk.custody.hold(fact_id, actor="counsel")
    assert (await desk.retract(fact_id)).complete
    assert await desk.current() == []


async def test_what_is_refused_is_named(desk: Desk) -> None:
    """An unknown fact, one forgotten, an id in use and one that is not: each its own error, no event."""
    fact_id, gone = await desk.written(), await desk.written(subject="gone")
    await desk.forget(gone)
    await desk.custody.hold(fact_id, actor="counsel", hold_id="case")
    head = await desk.ledger.head()
    hold, release = desk.custody.hold, desk.custody.release
    await error_of(hold("nobody", actor="counsel"), UnknownFact)
    await error_of(hold(gone, actor="counsel"), Forgotten)
    await error_of(hold(fact_id, actor="counsel", hold_id="case"), DuplicateHold)
    await error_of(release(fact_id, hold_id="other", actor="counsel"), NoSuchHold)
    await error_of(release("nobody", hold_id="case", actor="counsel"), UnknownFact)
    assert await desk.ledger.head() == head


async def test_a_repaired_orphan_cannot_be_held(desk: Desk) -> None:
    """There is no fact to keep."""
    fact_id = desk.runtime.ids.fact_id(desk.clock.now())
    await desk.orphan("memories", fact_id=fact_id)
    await desk.repair()
    await error_of(desk.custody.hold(fact_id, actor="counsel"), RepairedId)


@pytest.mark.parametrize(
    "wrong", [{"actor": ""}, {"hold_id": " "}, {"reason": 3}, {"receipt_id": ""}, {"hold_id": 7}]
)
async def test_arguments_are_checked(desk: Desk, wrong: dict[str, object]) -> None:
    """A blank or unstorable argument is refused before the ledger is asked."""
    fact_id = await desk.written()
    await error_of(desk.custody.hold(fact_id, **({"actor": ACTOR} | wrong)), InvalidInput)
    assert await desk.kinds(fact_id) == ["assert"]


async def test_a_hold_and_a_forget_never_both_succeed(desk: Desk) -> None:
    """Whichever comes first decides, and the other is told so."""
    for turn in range(6):
        fact_id = await desk.written(subject=f"s-{turn}")
        both = (desk.custody.hold(fact_id, actor="counsel"), desk.forget(fact_id))
        outcomes = await asyncio.gather(*(both if turn % 2 else both[::-1]), return_exceptions=True)
        refused = [outcome for outcome in outcomes if isinstance(outcome, CustodyError)]
        assert [type(error) for error in refused] in ([OnHold], [Forgotten])
    await desk.judge()


async def test_an_unknown_outcome_is_settled(desk: Desk) -> None:
    """A hold whose commit was not answered is recorded once."""
    fact_id = await desk.written()
    desk.fail_next("ledger.after_commit", OSError("cut"))
    assert (await desk.custody.hold(fact_id, actor="counsel", hold_id="case")).holds == ("case",)
    assert await desk.kinds(fact_id) == ["assert", "hold"]


async def test_a_closed_coordinator_holds_nothing(desk: Desk) -> None:
    """After closing every call says so."""
    fact_id = await desk.written()
    await desk.custody.close()
    await error_of(desk.custody.hold(fact_id, actor="counsel"), ClosedError)
    await error_of(desk.custody.release(fact_id, hold_id="case", actor="counsel"), ClosedError)
