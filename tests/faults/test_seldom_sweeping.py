"""What happens seldom while a sweep lists, removes and salvages: no other story comes by there."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fix_custody import ACTOR, LATER, Desk, kinds_of

from custody_sync import errors
from custody_sync.faultpoints import FaultPoint
from custody_sync.ledger import Remove, Repair
from custody_sync.repair import draining, plan
from custody_sync.repair.lease import Lease
from custody_sync.repair.selection import Part, Selection

HOUR = timedelta(hours=1)


async def apply(desk: Desk, path: Path) -> dict[str, str]:
    """Carry out a plan and return why lines of it were skipped, by external id."""
    result = await desk.repair(apply=path)
    return {skipped.external_id: skipped.reason for skipped in result.skipped}


def spy_on(desk: Desk, patch: pytest.MonkeyPatch, kind: type, error: errors.CustodyError) -> None:
    """Have the ledger answer every draft of a kind with an error."""
    append = desk.ledger.append

    async def answer(draft: Any) -> Any:
        if isinstance(draft, kind):
            raise error
        return await append(draft)

    patch.setattr(desk.ledger, "append", answer)


# --- draining --------------------------------------------------------------------------------


async def owing(desk: Desk) -> None:
    """Leave two removals that are pending, two that have ended and two facts that are owed, in each store."""
    ends = desk.clock.now() + HOUR
    bases = [await desk.written(n, predicate=f"base{n}") for n in range(2)]
    tips = [await desk.written("tip", predicate=f"base{n}", supersedes=base) for n, base in enumerate(bases)]
    gone = [await desk.written(n, predicate=f"gone{n}") for n in range(2)]
    for n in range(2):
        await desk.written(n, predicate=f"ends{n}", valid_to=ends)
    for store in desk.stores.values():
        for operation in ("put", "delete"):
            store.faults.refuse(operation)  # type: ignore[arg-type]  # the names are operations
    for fact_id in (*gone, *tips):
        await desk.retract(fact_id)
    for store in desk.stores.values():
        store.faults.allow()
    desk.clock.set(ends + LATER)


async def test_what_is_owed_is_worked_off_page_by_page(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that is full is not the last; a dry run tells of the same."""
    monkeypatch.setattr(draining, "PAGE", 1)
    monkeypatch.setattr(draining, "PLANNED", 1)
    await owing(desk)
    planned = await desk.repair(dry_run=True)
    result = await desk.repair()
    assert [kind[:2] for kind in kinds_of(planned)] == [kind[:2] for kind in kinds_of(result)]
    assert len(result.repaired) == 12
    assert len(planned.restored) == len(result.restored) == 4
    assert result.complete
    await desk.judge_clean()


async def test_only_the_stores_that_are_named_are_drained(desk: Desk) -> None:
    """What the other one holds stays as it is, and a dry run tells nothing of it either."""
    await owing(desk)
    for more in ({"dry_run": True}, {}):
        result = await desk.repair(stores=["memories"], **more)
        assert {repaired.store for repaired in result.repaired} == {"memories"}
    assert {row.store for row in await desk.ledger.pending()} == {"agent"}
    await desk.repair()
    await desk.judge_clean()


@pytest.mark.parametrize("is_refused", [True, False])
async def test_an_ended_entry_that_cannot_be_recorded_is_not_touched(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, is_refused: bool
) -> None:
    """It may have become a current one; where the ledger has failed, that is said."""
    ends = desk.clock.now() + HOUR
    fact_id = await desk.written(valid_to=ends)
    desk.clock.set(ends + LATER)
    error: errors.CustodyError = errors.LedgerFull(name="sqlite")
    if is_refused:
        error = errors.StillBelieved(fact_id=fact_id, store="memories", external_id="x")
    with monkeypatch.context() as patch:
        spy_on(desk, patch, Remove, error)
        result = await desk.repair()
    assert set(desk.held_of(fact_id)) == {"memories", "agent"}
    said = {(one.outcome.value, one.detail) for one in result.repaired}
    assert said == (set() if is_refused else {("failed", "not recorded, so not touched (ledger_full)")})


async def test_a_store_that_is_down_is_left_page_by_page(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left of it is counted, and nothing more of it is tried."""
    monkeypatch.setattr(draining, "PAGE", 8)
    facts = [await desk.written(n, predicate=f"p{n}") for n in range(12)]
    agent = desk.stores["agent"]
    agent.faults.refuse("delete")
    for fact_id in facts:
        await desk.retract(fact_id)
    agent.faults.turn_away(times=10_000)
    calls = sum(agent.calls.values())
    result = await desk.repair()
    assert not result.complete
    assert sum(agent.calls.values()) - calls < 60
    assert len(await desk.ledger.pending()) == 12
    agent.faults.allow()


async def test_a_lease_is_renewed_once_for_all_who_wait(desk: Desk) -> None:
    """Whoever comes second finds it renewed."""
    lease = Lease(desk.ledger, desk.runtime, ACTOR)
    await lease.renew()
    desk.clock.advance(30)
    renewals = 0
    acquire = desk.ledger.acquire

    async def count(*told: Any, **more: Any) -> Any:
        nonlocal renewals
        renewals += 1
        return await acquire(*told, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(desk.ledger, "acquire", count)
        await asyncio.gather(lease.keep(), lease.keep(), lease.keep())
    assert renewals == 1


def test_a_selection_is_of_stores_spaces_and_parts() -> None:
    """A part is of one store; an entry whose space nobody can tell is in no space that was asked for."""
    part = Selection(part=Part(store="memories", after="a", until="b"))
    assert part.has_store("memories")
    assert not part.has_store("agent")
    assert Selection().has_space(None)
    assert not Selection(space="org").has_space(None)
    assert not Selection(space="org").has_space("")
    assert Selection(space="org").has_space("org")
    assert not Selection(space="org").has_space("organ")
    assert Selection(space="org*").has_space("organ")


# --- working ---------------------------------------------------------------------------------


async def test_an_orphan_that_another_sweep_has_recorded_is_removed_all_the_same(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its event is the other one's; what remains is to see it gone."""
    await desk.orphan("memories")
    append = desk.ledger.append

    async def twice(draft: Any) -> Any:
        if isinstance(draft, Repair):
            await append(replace(draft, event_id=desk.runtime.ids.event_id()))
        return await append(draft)

    monkeypatch.setattr(desk.ledger, "append", twice)
    result = await desk.repair()
    assert kinds_of(result) == [("memories", "orphan", "verified")]
    assert result.complete
    assert not desk.held()


async def test_what_cannot_be_recorded_as_found_is_not_touched(desk: Desk) -> None:
    """An entry that no event names stays, and the removal says why."""
    fact_id = await desk.written()
    await desk.retract(fact_id)
    loose = await desk.orphan("memories", fact_id=fact_id)
    desk.fail_next(FaultPoint.BEFORE_COMMIT, errors.LedgerFull(name="sqlite"), skip=1, times=20)
    result = await desk.forget(fact_id)
    said = {removal.external_id: (removal.outcome.value, removal.detail) for removal in result.removals}
    assert said[loose] == ("failed", "not recorded, so not touched (ledger_full)")
    assert desk.held_of(fact_id) == {"memories": [loose]}


async def test_an_outcome_that_is_not_recorded_says_so(desk: Desk) -> None:
    """What failed is told with why, and that the ledger does not know of it."""
    fact_id = await desk.written()
    for store in desk.stores.values():
        store.faults.refuse("delete")
    desk.fail_next(FaultPoint.BEFORE_COMMIT, errors.LedgerFull(name="sqlite"), skip=1, times=20)
    result = await desk.retract(fact_id)
    assert {removal.outcome.value for removal in result.removals} == {"failed"}
    assert all(one.detail.endswith("not recorded (ledger_full)") for one in result.removals)


async def test_an_entry_of_an_id_of_another_form_is_an_orphan_like_any_other(desk: Desk) -> None:
    """No id of ours looks like it; it has our label, and no event. What stays pending is drained as well."""
    await desk.orphan("memories", fact_id="not-one-of-ours")
    desk.stores["memories"].faults.refuse("delete")
    assert kinds_of(await desk.repair()) == [("memories", "orphan", "failed")]
    desk.stores["memories"].faults.allow()
    desk.stores["memories"].faults.index_lag = 2
    assert kinds_of(await desk.repair()) == [("memories", "pending", "verified")]


@pytest.mark.parametrize("trouble", ["", "refused", "forgotten"])
async def test_an_entry_that_lost_its_label_is_removed_by_its_text(desk: Desk, trouble: str) -> None:
    """Its id and its very text say whose it is; where that fails it is still there, and said to be."""
    fact_id = await desk.written()
    store, remover = desk.stores["memories"], desk.custody._remover
    ((key, held),) = store._held.items()
    store._held[key] = replace(held, metadata={})
    delete, text_of = store.delete, remover._text_of

    async def reluctant(entry: Any) -> None:
        if trouble == "refused" and entry.fact_id is None:
            raise errors.StoreRefused(store="memories", operation="delete", cause="no")
        await delete(entry)

    async def forgetful(fact: str) -> str | None:
        text = await text_of(fact)
        if trouble == "forgotten":
            remover._text_of = nothing  # type: ignore[method-assign]  # it is erased from here on
        return text

    async def nothing(_: str) -> None:
        return None

    store.delete = reluctant  # type: ignore[method-assign]  # it refuses what has no label
    remover._text_of = forgetful  # type: ignore[method-assign]  # asked while it is erased
    result = await desk.retract(fact_id)
    said = {removal.store: removal.outcome.value for removal in result.removals}
    assert said == {"memories": "still_indexed" if trouble else "verified", "agent": "verified"}
    assert (key in store.snapshot()) is bool(trouble)


# --- a plan that is carried out --------------------------------------------------------------


async def test_what_is_refused_when_it_is_carried_out_is_skipped(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It found its place between the question and the record."""
    orphan = await desk.orphan("memories")
    await desk.repair(plan=tmp_path / "plan")
    fact_id = desk.held()["memories", orphan]
    spy_on(desk, monkeypatch, Repair, errors.AssertedId(fact_id=fact_id))
    assert orphan in await apply(desk, tmp_path / "plan")
    assert ("memories", orphan) in desk.held()


async def test_an_ended_fact_that_is_believed_again_keeps_its_entries(desk: Desk, tmp_path: Path) -> None:
    """Its successor was retracted since the plan was written."""
    base = await desk.written()
    begins = desk.clock.now() + HOUR
    tip = await desk.written("free", supersedes=base, valid_from=begins)
    desk.clock.set(begins + LATER)
    await desk.repair(plan=tmp_path / "plan")
    desk.stores["agent"].faults.refuse("delete")
    await desk.retract(tip)
    desk.stores["agent"].faults.allow()
    skipped = await apply(desk, tmp_path / "plan")
    assert {desk.held_of(base)["memories"][0], desk.held_of(base)["agent"][0]} <= skipped.keys()
    assert len(set(skipped.values())) == 1


async def test_an_entry_whose_record_is_gone_was_dealt_with(desk: Desk, tmp_path: Path) -> None:
    """An erasure of the identity took its id from the ledger, once it was seen gone."""
    fact_id = await desk.written()
    desk.stores["memories"].faults.refuse("delete")
    await desk.retract(fact_id)
    (entry,) = desk.held_of(fact_id)["memories"]
    await desk.repair(plan=tmp_path / "plan")
    desk.stores["memories"].faults.allow()
    assert (await desk.forget(fact_id, identity=True)).complete
    assert entry in await apply(desk, tmp_path / "plan")


async def test_an_entry_that_was_put_anew_is_young(desk: Desk, tmp_path: Path) -> None:
    """The file says how old it was; the store says how old it is."""
    orphan = await desk.orphan("memories")
    await desk.repair(plan=tmp_path / "plan")
    store = desk.stores["memories"]
    held = store._held[orphan]
    store._held[orphan] = replace(
        held, metadata={**held.metadata, **_dated(held.metadata, desk)}, created_at=desk.clock.now()
    )
    assert (await apply(desk, tmp_path / "plan")).keys() == {orphan}
    assert orphan in store.snapshot()


def _dated(metadata: Any, desk: Desk) -> dict[str, str]:
    now = json.loads(json.dumps(desk.clock.now().isoformat().replace("+00:00", "Z")))
    return {key: now for key in metadata if "stored_at" in key}


async def test_a_plan_that_cannot_be_read_over_is_not_written_over(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it is a plan nobody can say."""
    path = tmp_path / "plan"
    path.write_text("mine")

    def closed(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(plan, "opened", closed)
    with pytest.raises(errors.InvalidInput, match="cannot be used: Permission denied"):
        await desk.repair(plan=path)
    assert path.read_text() == "mine"
