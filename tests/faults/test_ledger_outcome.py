"""A commit whose answer is lost: both ways it can have ended are settled by appending again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fix_ledger import GroupBook, open_group_book

from custody_sync.errors import LedgerBusy, OutcomeUnknown, Refused
from custody_sync.faultpoints import FaultPoint
from custody_sync.model import Event, Provenance
from custody_sync.testing import FaultPlan


@pytest.fixture
async def cut(tmp_path: Path) -> AsyncIterator[tuple[GroupBook, FaultPlan]]:
    """A book and the plan of its faults."""
    plan = FaultPlan()
    book = await open_group_book(tmp_path / "l.db", reach=plan)
    yield book, plan
    assert plan.unfired == ()
    await book.ledger.close()


def at_next(plan: FaultPlan, point: FaultPoint, error: BaseException) -> None:
    """Fail at the next time a point is reached."""
    plan.fail(point, error, at=plan.reached[point] + 1)


POINTS = {FaultPoint.BEFORE_COMMIT: 0, FaultPoint.AFTER_COMMIT: 1}


@pytest.mark.parametrize("point", POINTS)
async def test_appending_again_settles_an_unknown_outcome(
    cut: tuple[GroupBook, FaultPlan], point: FaultPoint
) -> None:
    """Committed or not, the second append answers with the one event there is."""
    book, plan = cut
    draft = book.state(value={"n": 1e20})
    at_next(plan, point, OutcomeUnknown(name=book.ledger.name))
    with pytest.raises(OutcomeUnknown):
        await book.append(draft)
    assert (await book.ledger.head()).seq == POINTS[point]
    event = await book.append(draft)
    assert (event.seq, (await book.ledger.head()).seq) == (1, 1)
    assert await book.append(draft) == event
    assert [row["hash"] for row in await book.export()] == [event.hash]


@pytest.mark.parametrize("point", POINTS)
async def test_claiming_the_id_settles_it_as_well(
    cut: tuple[GroupBook, FaultPlan], point: FaultPoint
) -> None:
    """Whoever gets the fact id decides: a repair that is refused proves that the assert had committed."""
    book, plan = cut
    draft = book.state()
    at_next(plan, point, OutcomeUnknown(name=book.ledger.name))
    with pytest.raises(OutcomeUnknown):
        await book.append(draft)
    if POINTS[point]:
        assert await book.refused(book.repair(draft.fact_id)) == "asserted_id"
    else:
        await book.append(book.repair(draft.fact_id))
        assert await book.refused(draft) == "repaired_id"


@pytest.mark.parametrize("point", POINTS)
async def test_everyone_in_the_group_hears_of_it(cut: tuple[GroupBook, FaultPlan], point: FaultPoint) -> None:
    """A cut commit is unknown to all whose events it carried, and all can settle it; refusals as well."""
    book, plan = cut
    drafts = [book.state(), book.retract("f-none"), book.state()]
    at_next(plan, point, OutcomeUnknown(name=book.ledger.name))
    results = await book.group(drafts)
    assert [type(result) for result in results] == [OutcomeUnknown] * 3
    assert len({id(result) for result in results}) == 3
    again = await book.group(drafts)
    assert [type(result).__name__ for result in again] == ["Event", "UnknownFact", "Event"]
    assert (await book.ledger.head()).seq == 2


@pytest.mark.parametrize("kind", ["retract", "forget", "hold", "confirm", "place", "remove", "repair"])
@pytest.mark.parametrize("point", POINTS)
async def test_every_kind_of_event_is_settled_by_appending_it_again(
    cut: tuple[GroupBook, FaultPlan], point: FaultPoint, kind: str
) -> None:
    """Also an erasure, whose second append finds nothing of the value any more."""
    book, plan = cut
    claimed = await book.add("c", provenance=Provenance.CLAIMED)
    fact_id = await book.add(held=[("memories", "m-1")])
    gone = await book.add(held=[("memories", "m-2")])
    await book.append(book.retract(gone))
    draft = {
        "retract": lambda: book.retract(fact_id, "wrong"),
        "forget": lambda: book.forget(fact_id, identity=True, reason="asked"),
        "hold": lambda: book.hold(fact_id, reason="court"),
        "confirm": lambda: book.confirm(claimed, [("memories", "m-3")]),
        "place": lambda: book.place(fact_id, [("agent", "a-1")]),
        "remove": lambda: book.remove(gone, "memories", "m-2"),
        "repair": lambda: book.repair("f-orphan", "memories", "m-9"),
    }[kind]()
    at_next(plan, point, OutcomeUnknown(name=book.ledger.name))
    with pytest.raises(OutcomeUnknown):
        await book.append(draft)
    event = await book.append(draft)
    assert isinstance(event, Event)
    assert ((await book.ledger.head()).seq, event.kind) == (5, kind)


async def test_a_failed_commit_leaves_the_writer_usable(cut: tuple[GroupBook, FaultPlan]) -> None:
    """Whatever was raised in the middle of a commit, the next one works and nothing of the first is there."""
    book, plan = cut
    for error in (RuntimeError("a bug"), LedgerBusy(name="x"), KeyboardInterrupt()):
        draft = book.state()
        at_next(plan, FaultPoint.BEFORE_COMMIT, error)
        with pytest.raises(type(error)):
            await book.append(draft)
        assert await book.ledger.get(draft.fact_id) is None
    await book.add(value="works")
    assert await book.values() == ["works"]


async def test_a_refused_draft_is_refused_again(cut: tuple[GroupBook, FaultPlan]) -> None:
    """A refusal is no event: it leaves its event id free."""
    book, _ = cut
    target = await book.add()
    draft = book.state(supersedes="f-later")
    with pytest.raises(Refused):
        await book.append(draft)
    await book.add(fact_id="f-later", value="late")
    event = await book.append(draft)
    assert (event.event_id, target != draft.fact_id) == (draft.event_id, True)
