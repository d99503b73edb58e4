"""Asking again: what `verify` and a repeated forget say while a store is down, and after."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from fix_custody import ACTOR, BRIEF, Desk, HttpError, error_of, open_desk

from custody_sync import errors
from custody_sync.ledger import Hold
from custody_sync.model import Erasure
from custody_sync.testing import FOREVER, MemoryStore

MINUTE = timedelta(minutes=1)


async def test_c32_verify_of_an_empty_ledger(desk: Desk) -> None:
    """C32: nothing asked is never a pass, also with facts that nobody removed."""
    empty = await desk.verify()
    assert (empty.asked, empty.complete) == (0, False)
    fact_id = await desk.written()
    assert not (await desk.verify()).complete
    assert not (await desk.verify(fact_ids=[])).complete
    with pytest.raises(errors.NotRemoved):
        await desk.verify(fact_ids=[fact_id])


async def test_a_fact_that_is_believed_again_is_not_reported_as_removed(desk: Desk) -> None:
    """After its successor is retracted a fact is held, whatever its earlier entries came to."""
    first = await desk.written()
    second = await desk.written(supersedes=first)
    await desk.retract(second)
    result = await desk.verify()
    assert {r.fact_id for r in result.removals} == {second}
    with pytest.raises(errors.NotRemoved):
        await desk.verify(fact_ids=[first])


async def test_one_string_is_no_list_of_ids(desk: Desk) -> None:
    """A fact id given bare is refused by name, not read letter by letter."""
    with pytest.raises(errors.InvalidInput, match="list of ids"):
        await desk.verify(fact_ids="some-id")


async def test_verify_table(desk: Desk) -> None:
    """Every removed fact is asked about in every store that held it, each once."""
    ids = [await desk.written(n, subject=f"s:{n}") for n in range(3)]
    for fact_id in ids:
        await desk.retract(fact_id)
    result = await desk.verify()
    assert result.complete
    assert result.asked == 6
    assert {(r.fact_id, r.store) for r in result.removals} == {
        (f, s) for f in ids for s in ("memories", "agent")
    }
    one = await desk.verify(fact_ids=[ids[0], ids[0]])
    assert (one.asked, one.complete) == (2, True)
    await error_of(desk.verify(fact_ids=["nobody"]), errors.UnknownFact)


async def test_verify_finds_what_came_back(desk: Desk) -> None:
    """An entry that is there again after it was verified makes verify incomplete and the removal pending."""
    written = await desk.write()
    (key,) = written.placements["agent"]
    held = desk.stores["agent"]._held[key]
    await desk.retract(written.fact.fact_id)
    desk.stores["agent"]._held[key] = held
    result = await desk.verify()
    assert {(r.store, r.outcome) for r in result.removals} == {
        ("agent", "still_indexed"),
        ("memories", "verified"),
    }
    assert not result.complete
    assert [p.external_id for p in await desk.ledger.pending()] == [key]
    assert (await desk.repair()).complete
    assert (await desk.verify()).complete
    assert await desk.judge_clean() == set()


async def test_verify_finds_what_the_ledger_does_not_know(desk: Desk) -> None:
    """An unrecorded entry of a removed fact is found by fact id and reported, not touched."""
    fact_id = await desk.written()
    await desk.retract(fact_id)
    key = await desk.orphan("agent", fact_id=fact_id, age=timedelta(0))
    result = await desk.verify()
    assert (key, "still_indexed", "unrecorded; run repair") in {
        (r.external_id, r.outcome.value, r.detail) for r in result.removals
    }
    assert not result.complete
    assert key in desk.stores["agent"].snapshot()


async def test_verify_of_a_store_that_does_not_answer(desk: Desk) -> None:
    """A store that cannot be asked makes verify incomplete, but takes back nothing that was proved before."""
    fact_id = await desk.written()
    await desk.retract(fact_id)
    head = await desk.ledger.head()
    desk.stores["agent"].faults.refuse("verify_deleted", HttpError())
    result = await desk.verify()
    assert not result.complete
    assert [(r.outcome, r.detail) for r in result.removals if r.store == "agent"] == [
        ("unverified", "cannot be asked (HttpError 503)")
    ]
    assert await desk.ledger.head() == head
    assert await desk.ledger.pending() == []


async def test_c31_store_down_during_a_forget(desk: Desk) -> None:
    """C31: not complete until the store answered, and asking again reaches it though the text is gone."""
    fact_id = await desk.written("123-45-6789")
    down = desk.stores["agent"].faults
    for operation in ("delete", "find", "verify_deleted", "search"):
        down.refuse(operation)  # type: ignore[arg-type]  # the names are operations
    result = await desk.forget(fact_id)
    assert (result.complete, result.erasure) == (False, Erasure.DONE)
    assert not (await desk.verify()).complete
    assert not (await desk.repair()).complete
    assert not (await desk.forget(fact_id)).complete
    assert (await desk.outcomes(fact_id))[-1] == ("agent", "failed")
    fact = await desk.ledger.get(fact_id)
    assert fact is not None
    assert (fact.forgotten, fact.text) == (True, None)
    down.allow()
    assert not (await desk.verify()).complete, "asked and answered: it is still there"
    done = await desk.forget(fact_id)
    assert done.complete
    assert (await desk.verify()).complete
    assert (await desk.kinds(fact_id)).count("forget") == 1
    assert await desk.judge_clean() == set()


async def test_identity_erasure_waits_for_the_stores(desk: Desk) -> None:
    """External ids go only when every removal is verified; afterwards the stores are asked by fact id."""
    fact_id = await desk.written()
    down = desk.stores["agent"].faults
    down.refuse("delete")
    result = await desk.forget(fact_id, identity=True)
    assert not result.complete
    assert any(not row.erased for row in await desk.ledger.placements(fact_id))
    down.allow()
    assert (await desk.repair()).complete
    assert all(row.erased for row in await desk.ledger.placements(fact_id))
    asked = await desk.verify()
    assert asked.complete
    assert {(r.store, r.external_id, r.outcome) for r in asked.removals} == {
        ("memories", "", "verified"),
        ("agent", "", "verified"),
    }
    assert await desk.judge_clean() == set()


async def test_forget_of_a_fact_on_hold(desk: Desk) -> None:
    """A fact under a legal hold is not forgotten, and no store is asked to delete it."""
    fact_id = await desk.written()
    await desk.ledger.append(Hold(event_id="h", fact_id=fact_id, actor=ACTOR, hold_id="case-1"))
    await error_of(desk.forget(fact_id), errors.OnHold)
    assert await desk.judge_clean() == {fact_id}


async def test_index_that_never_clears(tmp_path: Path) -> None:
    """A broken index keeps the removal pending through every repair, and it is never called verified."""
    store = MemoryStore("store")
    store.faults.index_lag = FOREVER
    async with open_desk(tmp_path, stores=[store], patience=BRIEF) as desk:
        fact_id = await desk.written()
        for call in (desk.retract(fact_id), desk.repair(), desk.verify(), desk.retract(fact_id)):
            assert not (await call).complete
        assert await desk.outcomes(fact_id) == [("store", "still_indexed")]


async def test_a_delete_that_failed_is_not_called_a_lagging_index(desk: Desk) -> None:
    """An entry whose delete failed and that is still there stays `failed`: waiting would not help."""
    fact_id = await desk.written()
    desk.stores["agent"].faults.refuse("delete", HttpError())
    await desk.retract(fact_id)
    outcomes = {r.store: r.outcome for r in (await desk.verify()).removals}
    assert outcomes == {"memories": "verified", "agent": "failed"}


async def test_a_forget_names_earlier_links_that_keep_their_values(desk: Desk) -> None:
    """Erasing the newest link says which older ones still hold what they said."""
    first = await desk.written("old@example.org")
    second = await desk.written("new@example.org", supersedes=first)
    assert any(first in note for note in (await desk.forget(second)).notes)
    assert not any("earlier links" in note for note in (await desk.forget(first)).notes)
