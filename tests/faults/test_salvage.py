"""After a ledger was lost: orphans become claims that wait, instead of being removed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fix_custody import ACTOR, LATER, Crash, Desk, error_of, open_desk

from custody_sync import errors
from custody_sync.faultpoints import FaultPoint
from custody_sync.ledger import Assert, Repair
from custody_sync.model import Capability, Entry, Provenance
from custody_sync.testing import MemoryStore


async def salvage(desk: Desk, **more: Any) -> Any:
    """Sweep, and save what is an orphan."""
    return await desk.repair(salvage=True, **more)


async def test_orphans_become_claims(desk: Desk) -> None:
    """Free text in the space of the label, by the operator, flagged as adopted; the entries stay."""
    key = await desk.orphan("memories")
    before = desk.stores["memories"].snapshot()[key]
    (planned,) = (await salvage(desk, dry_run=True)).repaired
    assert planned.detail == "would be saved as a claim, not removed"
    result = await salvage(desk)
    assert (result.repaired, result.complete) == ((), True)
    (saved,) = result.salvaged
    assert (saved.fact_id, saved.space) == (before.fact_id, "org")
    assert saved.entries == {"memories": (key,)}
    assert desk.stores["memories"].snapshot()[key] == before
    fact = await desk.ledger.get(saved.fact_id)
    assert fact is not None
    assert (fact.text, fact.value, fact.predicate) == (before.text, before.text, "memory")
    assert (fact.actor, fact.provenance, fact.confirmed) == ("ops", Provenance.CLAIMED, False)
    assert (await desk.ledger.history(saved.fact_id))[0].data["adopted"] is True
    assert await desk.current() == []


async def test_again_there_is_nothing_to_save(desk: Desk) -> None:
    """A claim that waits is on record, so neither a salvage nor a repair takes it up."""
    await desk.orphan("memories")
    await salvage(desk)
    for result in (await salvage(desk), await desk.repair()):
        assert (result.salvaged, result.repaired, result.complete) == ((), (), True)


async def test_entries_of_one_write_are_one_fact(desk: Desk) -> None:
    """A write whose recording was lost left an entry in each store; they become one claim with all."""
    fact_id = desk.runtime.ids.fact_id(desk.clock.now())
    keys = {name: (await desk.orphan(name, fact_id=fact_id),) for name in desk.stores}
    result = await salvage(desk)
    (saved,) = result.salvaged
    assert (saved.entries, result.complete) == (keys, True)
    assert (await desk.confirm(fact_id)).complete
    assert await desk.judge_clean() == {fact_id}
    assert [store.calls["put"] for store in desk.stores.values()] == [1, 1]


@pytest.mark.parametrize("how", ["confirm", "fix"])
async def test_a_saved_label_is_another_until_it_is_confirmed_or_mended(desk: Desk, how: str) -> None:
    """The entry stays as it is, so reconcile says that its label is the lost write's; both ways mend it."""
    await desk.orphan("memories")
    (saved,) = (await salvage(desk)).salvaged
    found = await desk.custody.reconcile(actor="ops")
    assert found.found["memories"] == {"altered_label": 1}
    if how == "confirm":
        await desk.confirm(saved.fact_id)
    else:
        await desk.custody.reconcile(actor="ops", fix=["altered_label"])
    assert "altered_label" not in (await desk.custody.reconcile(actor="ops")).found["memories"]


@pytest.mark.parametrize("confirmed", [True, False])
@pytest.mark.parametrize("cancelled", [True, False])
async def test_a_writer_that_stood_still_spares_what_was_saved(
    desk: Desk, confirmed: bool, cancelled: bool
) -> None:
    """Stopped between stores and ledger for long, it finds its fact salvaged, and takes nothing back."""
    reached, go, append = asyncio.Event(), asyncio.Event(), desk.ledger.append

    async def slow(draft: Any) -> Any:
        if isinstance(draft, Assert) and not draft.adopted:
            reached.set()
            await go.wait()
        return await append(draft)

    desk.ledger.append = slow  # type: ignore[method-assign]  # a process that is stopped, in one process
    writing = asyncio.ensure_future(desk.write())
    await reached.wait()
    desk.clock.advance(LATER)
    other = desk.coordinator()
    (saved,) = (await other.repair(actor="ops", reason="lost", salvage=True)).salvaged
    if confirmed:
        assert (await other.confirm(saved.fact_id, actor="ops")).complete
    held = desk.held()
    if cancelled:
        writing.cancel()
    go.set()
    with pytest.raises(asyncio.CancelledError if cancelled else errors.DuplicateFact):
        await writing
    assert desk.held() == held
    assert not confirmed or await desk.judge_clean() == {saved.fact_id}


async def test_a_writer_that_stood_still_leaves_what_no_ledger_can_judge(desk: Desk) -> None:
    """What is old enough to have been salvaged goes only if the ledger says that it was not."""

    async def gone(*_: Any, **__: Any) -> Any:
        desk.clock.advance(LATER)
        raise errors.LedgerReadOnly(name="x")

    desk.ledger.append = gone  # type: ignore[method-assign]
    desk.ledger.unaccounted = gone  # type: ignore[method-assign]
    error = await error_of(desk.write(), errors.LedgerReadOnly)
    assert sorted(error.fields["left"]) == sorted(desk.stores)
    assert len(desk.held()) == 2


async def test_later_somebody_decides(desk: Desk) -> None:
    """A confirm believes it, a retract removes and verifies it."""
    for name in desk.stores:
        await desk.orphan(name)
    one, two = (saved.fact_id for saved in (await salvage(desk)).salvaged)
    assert (await desk.confirm(one)).complete
    assert (await desk.retract(two)).complete
    assert await desk.judge_clean() == {one}


async def test_strays_still_go(desk: Desk) -> None:
    """What the ledger knows and does not stand behind is removed as ever."""
    fact_id = await desk.written()
    desk.stores["memories"].faults.refuse("delete")
    await desk.retract(fact_id)
    desk.stores["memories"].faults.allow("delete")
    await desk.orphan("agent")
    desk.clock.advance(LATER)
    result = await salvage(desk)
    assert (len(result.salvaged), len(result.repaired), result.complete) == (1, 1, True)
    assert desk.held_of(fact_id) == {}


async def test_what_cannot_be_saved_stays(tmp_path: Path) -> None:
    """Without a text, or a store that can be asked for it, an orphan is left and named, never removed."""
    stores = [MemoryStore("blind", without=[Capability.FIND]), MemoryStore("mute")]
    async with open_desk(tmp_path, stores=stores) as desk:
        real = desk.stores["mute"].find

        async def mute(fact_id: str) -> list[Entry]:
            return [replace(entry, text=None) for entry in await real(fact_id)]

        desk.stores["mute"].find = mute  # type: ignore[method-assign]
        for name in desk.stores:
            await desk.orphan(name)
        result = await salvage(desk)
        assert (result.salvaged, result.complete, len(desk.held())) == ((), False, 2)
        said = " ".join(result.unrecorded)
        assert "not salvaged: the store cannot be asked for one fact" in said
        assert "not salvaged: the store shows no text of it" in said


async def test_a_validator_decides(tmp_path: Path) -> None:
    """What it refuses stays an orphan; its words, which may quote, are not repeated."""

    async def refuse(fact: Any, view: Any) -> Any:
        raise errors.InvalidInput(field="value", problem=f"canary {fact.text}")

    async with open_desk(tmp_path, validators=[refuse]) as desk:
        await desk.orphan("memories")
        result = await salvage(desk)
        assert (result.salvaged, result.complete) == ((), False)
        assert "canary" not in repr(result)
        assert "its value is refused (invalid_input)" in result.unrecorded[0]


async def test_the_breaker_does_not_stop_what_stays(desk: Desk) -> None:
    """A ledger put back from a backup finds its stores full of orphans; saving them empties nothing."""
    for _ in range(150):
        await desk.orphan("memories")
    await error_of(desk.repair(), errors.BreakerOpen)
    assert len((await salvage(desk)).salvaged) == 150


async def test_a_killed_salvage_is_not_gone_on_with_by_a_repair(desk: Desk) -> None:
    """Its spool was never held against the breaker, so a repair lists anew and stops."""
    for _ in range(150):
        await desk.orphan("memories")
    desk.fail_next(FaultPoint.SWEEP_SPOOLED, Crash())
    with pytest.raises(Crash):
        await salvage(desk)
    await error_of(desk.repair(), errors.BreakerOpen)
    assert len(desk.held()) == 150
    assert len((await salvage(desk)).salvaged) == 150


async def test_an_id_that_was_repaired_before(desk: Desk) -> None:
    """The first record wins: an id that a repair claimed is not asserted, and its entry is named."""
    key = await desk.orphan("memories")
    fact_id = desk.stores["memories"].snapshot()[key].fact_id or ""
    await desk.ledger.append(Repair(event_id="e", fact_id=fact_id, actor=ACTOR, reason="unknown"))
    result = await salvage(desk)
    assert (result.salvaged, result.complete) == ((), False)
    assert "was repaired before" in result.unrecorded[0]
    assert key in desk.stores["memories"].snapshot()


async def test_a_dry_run_saves_nothing(desk: Desk) -> None:
    """It names the orphans, and changes neither ledger nor store."""
    await desk.orphan("memories")
    result = await salvage(desk, dry_run=True)
    assert (len(result.repaired), result.salvaged, (await desk.ledger.head()).seq) == (1, (), 0)


async def test_no_plan_saves(desk: Desk, tmp_path: Path) -> None:
    """A plan says what is removed; with a salvage it is refused before anything is done."""
    error = await error_of(salvage(desk, plan=tmp_path / "plan.jsonl"), errors.InvalidInput)
    assert "goes with no plan" in str(error)
