"""An append whose answer was lost is settled by writing: both ways it can have ended come out right."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fix_custody import ACTOR, LATER, Desk, error_of, open_desk

from custody_sync import errors
from custody_sync.faultpoints import FaultPoint
from custody_sync.ledger import Assert, Repair
from custody_sync.model import Outcome

BEFORE, AFTER = FaultPoint.BEFORE_COMMIT, FaultPoint.AFTER_COMMIT
CUT = errors.OutcomeUnknown(name="ledger")
TRIES = 3
ALL_TRIES = TRIES + 1
"""The first append and its repetitions; the next commit is the claim's."""


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    """A desk whose coordinator gives up insisting after three repetitions."""
    async with open_desk(tmp_path, settle_tries=TRIES) as opened:
        yield opened


async def act(desk: Desk, name: str, ids: dict[str, str]) -> Any:
    """Do one of the things that append."""
    if name == "write":
        return await desk.write("free", supersedes=ids["base"])
    if name == "confirm":
        return await desk.confirm(ids["claimed"])
    if name == "retract":
        return await desk.retract(ids["base"])
    return await desk.forget(ids["base"])


async def prepare(desk: Desk) -> dict[str, str]:
    """Write what the operations need."""
    base = await desk.written("pro")
    claimed = await desk.written("trial", subject="acct:2", provenance="claimed")
    return {"base": base, "claimed": claimed}


KINDS = {"write": "assert", "confirm": "confirm", "retract": "retract", "forget": "forget"}


@pytest.mark.parametrize("point", [BEFORE, AFTER])
@pytest.mark.parametrize("times", [1, TRIES])
@pytest.mark.parametrize("name", list(KINDS))
async def test_the_same_event_again_settles_it(desk: Desk, name: str, point: FaultPoint, times: int) -> None:
    """Whether the commit had happened or not, the event is in the log once and the call succeeds."""
    ids = await prepare(desk)
    desk.fail_next(point, CUT, times=times)
    result = await act(desk, name, ids)
    assert result.complete
    assert desk.plan.unfired == ()
    kinds = [row["event"]["kind"] async for row in desk.ledger.export()]
    assert kinds.count(KINDS[name]) == (3 if name == "write" else 1)
    assert "repair" not in kinds
    await desk.judge_clean()


async def test_deadline_passed_and_claim_won(desk: Desk) -> None:
    """Never committed: a repair event claims the id, the entries go, and the error names nothing as left."""
    desk.fail_next(BEFORE, CUT, times=ALL_TRIES)
    error = await error_of(desk.write(), errors.LedgerUnavailable)
    assert (error.entries, error.cause) == ([], "outcome_unknown")
    assert await desk.kinds(error.fact_id) == ["repair"]
    assert await desk.judge_clean() == set()


async def test_deadline_passed_and_claim_won_but_not_clean(desk: Desk) -> None:
    """What could not be taken back is named entry by entry, and the sweep removes it."""
    desk.fail_next(BEFORE, CUT, times=ALL_TRIES)
    desk.stores["agent"].faults.refuse("delete")
    error = await error_of(desk.write(), errors.LedgerUnavailable)
    assert error.entries == [
        {"store": "agent", "external_id": desk.held_of(error.fact_id)["agent"][0]},
    ]
    assert await desk.judge(left=["agent"]) == set()
    desk.stores["agent"].faults.allow()
    desk.clock.advance(LATER)
    swept = await desk.repair()
    assert [(r.kind, r.outcome) for r in swept.repaired] == [("orphan", "verified")]
    assert await desk.kinds(error.fact_id) == ["repair", "repair", "remove"]
    assert await desk.judge_clean() == set()


async def test_deadline_passed_and_claim_lost(desk: Desk) -> None:
    """Committed at the first attempt although no answer ever came: the claim loses, the write succeeds."""
    desk.fail_next(AFTER, CUT, times=ALL_TRIES)
    written = await desk.write()
    assert written.complete
    assert await desk.kinds(written.fact.fact_id) == ["assert"]
    assert written.fact.seq == 1
    assert await desk.judge_clean() == {written.fact.fact_id}


async def test_claim_whose_own_answer_is_lost(desk: Desk) -> None:
    """The claim is settled by writing as well: its answer lost once, it is appended again."""
    desk.fail_next(BEFORE, CUT, times=ALL_TRIES)
    desk.fail_next(AFTER, CUT)
    error = await error_of(desk.write(), errors.LedgerUnavailable)
    assert error.entries == []
    assert await desk.kinds(error.fact_id) == ["repair"]
    assert await desk.judge_clean() == set()


async def test_ledger_gone(desk: Desk) -> None:
    """A ledger that never answers: the error names id and entries, which stay as orphans for the sweep."""
    desk.fail_next(BEFORE, CUT, times=50)
    error = await error_of(desk.write(), errors.LedgerUnavailable)
    held = desk.held_of(error.fact_id)
    assert error.entries == [{"store": s, "external_id": held[s][0]} for s in ("memories", "agent")]
    assert str(error.fact_id) in str(error)
    assert await desk.judge(left=["memories", "agent"]) == set()
    desk.plan._actions.clear()
    desk.clock.advance(LATER)
    swept = await desk.repair()
    assert {(r.store, r.kind, r.outcome) for r in swept.repaired} == {
        ("memories", "orphan", "verified"),
        ("agent", "orphan", "verified"),
    }
    assert await desk.kinds(error.fact_id) == ["repair", "repair", "remove", "remove"]
    assert await desk.judge_clean() == set()


async def test_ledger_gone_on_a_confirm(desk: Desk) -> None:
    """A confirm that nobody can settle names its entries; the sweep takes them, and it can be confirmed."""
    ids = await prepare(desk)
    desk.fail_next(BEFORE, CUT, times=50)
    error = await error_of(desk.confirm(ids["claimed"]), errors.LedgerUnavailable)
    assert {entry["store"] for entry in error.entries} == {"memories", "agent"}
    desk.plan._actions.clear()
    await desk.judge(left=["memories", "agent"])
    desk.clock.advance(LATER)
    swept = await desk.repair()
    assert {(r.kind, r.outcome) for r in swept.repaired} == {("stray", "verified")}
    assert (await desk.confirm(ids["claimed"])).complete
    assert await desk.judge_clean() == set(ids.values())


@pytest.mark.parametrize("name", ["retract", "forget"])
async def test_ledger_gone_on_a_removal(desk: Desk, name: str) -> None:
    """A removal that nobody can settle raises, and no store was touched."""
    ids = await prepare(desk)
    desk.fail_next(BEFORE, CUT, times=50)
    await error_of(act(desk, name, ids), errors.LedgerUnavailable)
    assert not any(store.calls["delete"] for store in desk.stores.values())
    assert await desk.judge_clean() == {ids["base"]}


@pytest.mark.parametrize("later", [errors.LedgerFull, errors.LedgerBusy])
@pytest.mark.parametrize("point", [BEFORE, AFTER])
async def test_not_this_time_settles_nothing(desk: Desk, point: FaultPoint, later: type[Any]) -> None:
    """A full or busy ledger after a lost answer says nothing about the first attempt; the claim decides."""
    desk.fail_next(point, CUT)
    desk.fail_next(BEFORE, later(name="ledger"), skip=1, times=TRIES)
    if point is BEFORE:
        error = await error_of(desk.write(), errors.LedgerUnavailable)
        assert await desk.kinds(error.fact_id) == ["repair"]
        assert await desk.judge_clean() == set()
    else:
        written = await desk.write()
        assert await desk.kinds(written.fact.fact_id) == ["assert"]
        assert await desk.judge_clean() == {written.fact.fact_id}


async def test_refused_while_insisting(desk: Desk) -> None:
    """A refusal at the second attempt proves that the first did not commit: compensated, and named."""

    def late_and_cut() -> None:
        desk.clock.advance(301)
        raise CUT

    desk.call_next(BEFORE, late_and_cut)
    await error_of(desk.write(), errors.StalePlacement)
    assert await desk.judge_clean() == set()


async def test_sweep_was_first_with_the_claim(desk: Desk) -> None:
    """If a sweep has claimed the id meanwhile, the write is refused and its entries are taken back."""
    claimed: list[str] = []

    async def claim(fact_id: str) -> None:
        draft = Repair(event_id="sweep", fact_id=fact_id, actor="ops", reason="orphan")
        await desk.ledger.append(draft)
        claimed.append(fact_id)

    append = desk.ledger.append

    async def racing(draft: Any) -> Any:
        if isinstance(draft, Assert) and not claimed:
            await claim(draft.fact_id)
        return await append(draft)

    desk.ledger.append = racing  # type: ignore[method-assign]  # the race, made certain
    error = await error_of(desk.write(), errors.RepairedId)
    assert error.fact_id == claimed[0]
    assert await desk.judge_clean() == set()


async def test_keyed_write_whose_lost_append_lands(desk: Desk) -> None:
    """A keyed write that was thought lost and had committed answers its repetition with the same fact."""
    desk.fail_next(AFTER, CUT, times=ALL_TRIES, skip=1)
    first = await desk.write(idempotency_key="k")
    again = await desk.write(idempotency_key="k")
    assert again.duplicate
    assert again.fact.fact_id == first.fact.fact_id
    assert again.placements == first.placements
    assert await desk.judge_clean() == {first.fact.fact_id}


async def test_keyed_write_after_a_won_claim_gets_a_fresh_id(desk: Desk) -> None:
    """After the claim the key's id is burnt, and the repetition is written under a fresh one."""
    desk.fail_next(BEFORE, CUT, times=ALL_TRIES, skip=1)
    error = await error_of(desk.write(idempotency_key="k"), errors.LedgerUnavailable)
    again = await desk.write(idempotency_key="k")
    assert not again.duplicate
    assert again.fact.fact_id != error.fact_id
    assert await desk.judge_clean() == {again.fact.fact_id}


@pytest.mark.parametrize("point", [BEFORE, AFTER])
async def test_lost_answer_about_a_removal(desk: Desk, point: FaultPoint) -> None:
    """An outcome that the ledger may not have taken is not claimed; asking again settles it."""
    fact_id = await desk.written()
    desk.fail_next(point, CUT, skip=1)
    result = await desk.retract(fact_id)
    assert not result.complete
    assert Outcome.UNVERIFIED in {r.outcome for r in result.removals}
    assert (await desk.repair()).complete
    assert await desk.judge_clean() == set()


@pytest.mark.parametrize("point", [BEFORE, AFTER])
async def test_lost_answer_about_a_placement(desk: Desk, point: FaultPoint) -> None:
    """A `place` whose answer was lost is reported as not recorded; repair leaves one entry per store."""
    base = await desk.written("pro")
    tip = await desk.written("free", supersedes=base)
    desk.call_next(FaultPoint.RESTORED, lambda: desk.fail_next(point, CUT))
    result = await desk.retract(tip)
    assert not result.complete
    assert "not recorded (outcome_unknown)" in {item.detail for item in result.restored}
    desk.clock.advance(LATER)
    assert (await desk.repair(actor=ACTOR)).complete
    assert await desk.judge_clean() == {base}


@pytest.mark.parametrize("point", [BEFORE, AFTER])
async def test_ledger_closed_while_insisting(desk: Desk, point: FaultPoint) -> None:
    """A ledger closed after a lost answer settles nothing: what may be recorded is not taken back."""
    group: Any = desk.ledger._storage._group  # type: ignore[attr-defined]  # the SQLite storage

    def cut_and_close() -> None:
        group.close()
        raise CUT

    desk.call_next(point, cut_and_close)
    error = await error_of(desk.write(), errors.LedgerUnavailable)
    assert {entry["store"] for entry in error.entries} == {"memories", "agent"}
    assert len(desk.held()) == 2
    group._closed = False
    assert await desk.judge(left=["memories", "agent"]) == ({error.fact_id} if point is AFTER else set())
    desk.clock.advance(LATER)
    assert (await desk.repair()).complete
    assert await desk.judge_clean() == ({error.fact_id} if point is AFTER else set())


@pytest.mark.parametrize("error", [KeyError("x"), MemoryError(), RuntimeError("x"), ValueError("x")])
@pytest.mark.parametrize("point", [BEFORE, AFTER])
@pytest.mark.parametrize("name", list(KINDS))
async def test_any_error_may_hide_a_commit(
    desk: Desk, name: str, point: FaultPoint, error: Exception
) -> None:
    """An error that nobody foresaw is settled like a lost answer: the event is in the log once."""
    ids = await prepare(desk)
    desk.fail_next(point, error)
    assert (await act(desk, name, ids)).complete
    assert desk.plan.unfired == ()
    await desk.judge_clean()


async def test_an_error_that_stays_is_named_by_its_type(desk: Desk) -> None:
    """If it never goes away the id is claimed, the entries go, and the error says its type only."""
    desk.fail_next(BEFORE, KeyError("canary"), times=TRIES + 1)
    error = await error_of(desk.write(), errors.LedgerUnavailable)
    assert (error.cause, error.entries) == ("KeyError", [])
    assert await desk.judge_clean() == set()
