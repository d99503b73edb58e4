"""Facts that are named are forgotten in one go: each by itself, the ledger's files cleared once a batch."""

from __future__ import annotations

from typing import Any

import pytest
from fix_custody import ACTOR, Desk

from custody_sync.errors import InvalidInput, LedgerBusy, UnknownFact
from custody_sync.ledger import Ledger
from custody_sync.model import Erasure
from custody_sync.results import Fate


async def test_each_is_forgotten_everywhere(desk: Desk) -> None:
    """Named facts are gone from the ledger and from every store, verified; others stay."""
    gone = [await desk.written(f"plan {n}") for n in range(5)]
    kept = await desk.written("kept")
    result = await desk.custody.forget_many([*gone, gone[0]], actor=ACTOR, reason="asked", batch=2)
    assert result.complete
    assert result.erasure is Erasure.DONE
    assert [fact.fact_id for fact in result.facts] == gone
    assert await desk.judge_clean() == {kept}


async def test_files_are_cleared_once_a_batch(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five facts in batches of three clear the files twice, not five times."""
    ids = [await desk.written(f"plan {n}") for n in range(5)]
    erase, calls = Ledger.erase, list[int]()

    async def counted(self: Ledger) -> Any:
        calls.append(1)
        return await erase(self)

    monkeypatch.setattr(Ledger, "erase", counted)
    await desk.custody.forget_many(ids, actor=ACTOR, reason="asked", batch=3)
    assert len(calls) == 2


async def test_a_hold_keeps_its_own(desk: Desk) -> None:
    """What is held stays, is named, and makes the result incomplete; the others are gone."""
    held, gone = await desk.written("held"), await desk.written("gone")
    hold = await desk.custody.hold(held, actor=ACTOR, hold_id="case-7")
    result = await desk.custody.forget_many([held, gone], actor=ACTOR, reason="asked")
    assert [(fact.fate, fact.holds) for fact in result.facts] == [
        (Fate.HELD, hold.holds),
        (Fate.FORGOTTEN, ()),
    ]
    assert not result.complete
    assert await desk.judge() == {held}


async def test_nothing_is_touched_where_one_is_unknown(desk: Desk) -> None:
    """An unknown id, or no list at all, is refused before anything is forgotten."""
    fact_id = await desk.written()
    with pytest.raises(UnknownFact):
        await desk.custody.forget_many([fact_id, "nobody"], actor=ACTOR, reason="asked")
    with pytest.raises(InvalidInput):
        await desk.custody.forget_many(fact_id, actor=ACTOR, reason="asked")
    number: Any = 7
    with pytest.raises(InvalidInput, match="fact_ids"):
        await desk.custody.forget_many(number, actor=ACTOR, reason="asked")
    nothing: Any
    for nothing in (None, [], ()):
        with pytest.raises(InvalidInput, match="at least one"):
            await desk.custody.forget_many(nothing, actor=ACTOR, reason="asked")
    assert await desk.judge_clean() == {fact_id}


async def test_earlier_links_that_stay_are_named(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each once, as after `forget`, however many of its chain are forgotten; none where none is left."""
    monkeypatch.setattr("custody_sync.following.PAGE", 1)
    ids: list[str] = []
    for n in range(4):
        ids.append(await desk.written(f"plan {n}", supersedes=ids[-1] if ids else None))
    result = await desk.custody.forget_many([*ids[2:], ids[3]], actor=ACTOR, reason="asked")
    said = "earlier links of their chains are not forgotten"
    assert [note for note in result.notes if said in note] == [f"{said}: {ids[1]}, {ids[0]}"]
    result = await desk.custody.forget_many(ids, actor=ACTOR, reason="asked")
    assert [note for note in result.notes if said in note] == []


async def test_a_ledger_that_fails_ends_the_run(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger error ends it, is named, and the same call goes on afterwards."""
    ids = [await desk.written(f"plan {n}") for n in range(3)]
    append, calls = Ledger.append, list[int]()

    async def failing(self: Ledger, draft: Any) -> Any:
        if type(draft).__name__ == "Forget":
            calls.append(1)
            if len(calls) == 2:
                raise LedgerBusy(name="custody.db", seconds=5)
        return await append(self, draft)

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "append", failing)
        result = await desk.custody.forget_many(ids, actor=ACTOR, reason="asked", batch=1)
    assert result.stopped is not None
    assert not result.complete
    again = await desk.custody.forget_many(ids, actor=ACTOR, reason="asked", identity=True)
    assert again.complete
    assert await desk.judge() == set()
