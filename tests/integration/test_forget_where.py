"""Forgetting a space or one subject of it: what goes, what is named, and when the certificate is whole."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fix_custody import LATER, WITHOUT_LIST, Desk, error_of, open_desk

from custody_sync.errors import InvalidInput
from custody_sync.model import Erasure, Label, Outcome
from custody_sync.results import FactFate, Fate, ForgetWhereResult
from custody_sync.testing import MemoryStore

USER = "user:42"


async def forget(desk: Desk, space: Any = USER, **more: Any) -> ForgetWhereResult:
    """Forget a space as the privacy officer does."""
    told: dict[str, Any] = {"space": space, "actor": "dpo", "reason": "request 2026-03"} | more
    return await desk.custody.forget_where(**told)


async def lives(desk: Desk) -> dict[str, str]:
    """Write a fact of every state for one user, and neighbours that have to stay."""
    mine: dict[str, Any] = {"space": USER}
    made = {"believed": await desk.written("b", subject="s-1", **mine)}
    made["claimed"] = await desk.written("c", subject="s-2", provenance="claimed", **mine)
    made["old"] = await desk.written("o", subject="s-3", **mine)
    made["new"] = await desk.written("n", subject="s-3", supersedes=made["old"], **mine)
    made["retracted"] = await desk.written("r", subject="s-4", **mine)
    await desk.retract(made["retracted"])
    made["ended"] = await desk.written(
        "e", subject="s-5", valid_to=desk.clock.now() + timedelta(minutes=1), **mine
    )
    desk.clock.advance(timedelta(hours=1))
    return made


async def test_every_state_goes_and_nothing_else(desk: Desk) -> None:
    """Believed, claimed, superseded, retracted and ended facts of the space are forgotten; others stay."""
    made = await lives(desk)
    neighbour = await desk.written(space="user:4", subject="s-1")
    result = await forget(desk)
    assert {fact.fact_id for fact in result.with_fate(Fate.FORGOTTEN)} == set(made.values())
    assert result.complete
    assert (result.space, result.subject, result.erasure) == (USER, None, Erasure.DONE)
    assert (result.young, result.leftovers, result.later, result.not_reached) == ((), (), (), ())
    assert (result.ledger_id, result.head) == (desk.ledger.ledger_id, await desk.ledger.head())
    assert all(r.outcome is Outcome.VERIFIED for fact in result.facts for r in fact.removals)
    assert await desk.current() == [neighbour]
    for fact_id in made.values():
        fact = await desk.ledger.get(fact_id)
        assert fact is not None
        assert (fact.forgotten, fact.value, fact.space) == (True, None, USER)
    await desk.judge_clean()


async def test_one_subject_of_a_space(desk: Desk) -> None:
    """With a subject, the space's other facts stay, and so do that subject's facts elsewhere."""
    about = await desk.written(space="org", subject="acct:42", predicate="plan")
    more = await desk.written(space="org", subject="acct:42", predicate="owner")
    other = await desk.written(space="org", subject="acct:43")
    elsewhere = await desk.written(space=USER, subject="acct:42")
    result = await forget(desk, "org", subject="acct:42")
    assert {fact.fact_id for fact in result.facts} == {about, more}
    assert result.complete
    assert await desk.current() == sorted([other, elsewhere])
    await desk.judge_clean()


@pytest.mark.parametrize("space", ["", "  ", "\t\n", None, 42, ["user:42"], b"user:42"])
async def test_p3_a_blank_space_is_refused(desk: Desk, space: Any) -> None:
    """P3: nothing, in whatever form, never means everything."""
    for user in ("u-1", "u-2"):
        await desk.written(space=user)
    head, there = await desk.ledger.head(), desk.held()
    error = await error_of(forget(desk, space), InvalidInput)
    assert (error.field, error.exit_code) == ("space", 2)
    assert (await desk.ledger.head(), desk.held()) == (head, there)
    assert len(await desk.current()) == 2


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"subject": ""}, "subject"),
        ({"subject": " "}, "subject"),
        ({"actor": ""}, "actor"),
        ({"digest": "md5"}, "digest"),
        ({"identity": "no"}, "identity"),
        ({"dry_run": None}, "dry_run"),
        ({"batch": -1}, "batch"),
        ({"reason": 5}, "reason"),
    ],
)
async def test_other_arguments_are_checked_first(desk: Desk, wrong: dict[str, Any], field: str) -> None:
    """A wrong argument is refused before anything is touched."""
    await desk.written(space=USER)
    assert (await error_of(forget(desk, **wrong), InvalidInput)).field == field
    assert len(await desk.current()) == 1


async def test_there_is_no_way_to_leave_the_space_out(desk: Desk) -> None:
    """The space has no default."""
    with pytest.raises(TypeError):
        await desk.custody.forget_where(actor="dpo")


async def test_nothing_found_is_not_complete(desk: Desk) -> None:
    """A mistyped space must not read like a proof."""
    await desk.written(space=USER)
    result = await forget(desk, "user:24")
    assert (result.facts, result.complete) == ((), False)


async def test_a_hold_keeps_its_fact_and_is_named(desk: Desk) -> None:
    """The others go; the certificate names fact and hold and is not complete until the hold is gone."""
    held, free = await desk.written(space=USER, subject="a"), await desk.written(space=USER, subject="b")
    await desk.custody.hold(held, actor="counsel", hold_id="case-7")
    await desk.custody.hold(held, actor="counsel", hold_id="case-9")
    result = await forget(desk)
    assert not result.complete
    (kept,) = result.with_fate(Fate.HELD)
    assert (kept.fact_id, kept.holds) == (held, ("case-7", "case-9"))
    assert [fact.fact_id for fact in result.with_fate(Fate.FORGOTTEN)] == [free]
    assert await desk.current() == [held]
    for hold_id in ("case-7", "case-9"):
        await desk.custody.release(held, hold_id=hold_id, actor="counsel")
    again = await forget(desk)
    assert again.complete
    assert {fact.fact_id for fact in again.facts} == {held, free}


async def test_dry_run_changes_nothing(desk: Desk) -> None:
    """A dry run names what would go, what is held and what the stores show, and touches nothing."""
    gone, free, held = [await desk.written(space=USER, subject=s) for s in "abc"]
    await desk.forget(gone)
    await desk.custody.hold(held, actor="counsel")
    await orphan(desk, USER, age=LATER)
    head, there = await desk.ledger.head(), desk.held()
    result = await forget(desk, dry_run=True)
    assert [fact.fact_id for fact in result.with_fate(Fate.PLANNED)] == [free]
    assert [fact.fact_id for fact in result.with_fate(Fate.HELD)] == [held]
    assert len(result.leftovers) == 1
    assert (result.dry_run, result.complete) == (True, False)
    assert (await desk.ledger.head(), desk.held()) == (head, there)
    again = await forget(desk, dry_run=True, identity=True)
    assert {fact.fact_id for fact in again.with_fate(Fate.PLANNED)} == {gone, free}


async def orphan(desk: Desk, space: str, *, age: timedelta = timedelta(0), ledger: str | None = None) -> str:
    """Leave an entry of a space that no event stands behind, as a write under way does; return its fact."""
    now = desk.clock.now() - age
    store = desk.stores["memories"]
    fact = (await desk.write("template", subject="orphan", space="elsewhere")).fact
    fact = replace(fact, fact_id=desk.runtime.ids.fact_id(now), space=space)
    label = Label(
        ledger_id=ledger or desk.ledger.ledger_id,
        fact_id=fact.fact_id,
        space=space,
        stored_at=now,
        generation=desk.runtime.ids.generation(),
        actor=fact.actor,
        provenance=fact.provenance,
        valid_from=now,
    )
    await store.put(fact, label)
    return fact.fact_id


async def test_a_write_under_way_in_the_scope_is_named_young(desk: Desk) -> None:
    """An entry without an event is left alone, as its write may yet be recorded; the proof stays open."""
    await desk.written(space=USER)
    fact_id = await orphan(desk, USER)
    result = await forget(desk)
    assert [(seen.store, seen.fact_id) for seen in result.young] == [("memories", fact_id)]
    assert not result.complete
    assert fact_id in desk.held().values()
    desk.clock.advance(LATER)
    later = await forget(desk)
    assert (later.young, [seen.fact_id for seen in later.leftovers]) == ((), [fact_id])
    assert not later.complete
    assert (await desk.repair(max_removals=5)).complete
    assert (await forget(desk)).complete


async def test_entries_of_others_are_no_part_of_it(desk: Desk) -> None:
    """Another space's orphan, another ledger's entry and an unlabelled one are neither named nor touched."""
    await desk.written(space=USER)
    await orphan(desk, "user:43")
    await orphan(desk, USER, ledger="another-ledger")
    desk.stores["memories"].put_raw("mine alone")
    before = desk.stores["memories"].snapshot()
    result = await forget(desk)
    assert result.complete
    left = desk.stores["memories"].snapshot()
    assert len(before) - len(left) == 1
    assert dict(result.scanned) == {"memories": len(left), "agent": 2}


async def test_a_second_entry_of_a_fact_is_no_write_under_way(tmp_path: Path) -> None:
    """However young, whatever its space, an entry that says it is a forgotten fact's is left over."""
    stores = [MemoryStore("memories"), MemoryStore("blind", without=("find",))]
    async with open_desk(tmp_path, stores=stores) as desk:
        fact_id = await desk.written(space=USER)
        await desk.orphan("blind", fact_id=fact_id, age=timedelta(0))
        stray = {key for (store, key), held in desk.held().items() if (store, held) == ("blind", fact_id)}
        result = await forget(desk)
        assert result.young == ()
        (seen,) = result.leftovers
        assert (seen.store, seen.fact_id) == ("blind", fact_id)
        assert seen.external_id in stray
        assert not result.complete


async def test_stores_are_probed_with_the_text(desk: Desk) -> None:
    """While the text is still known each store is asked with it: an index may hold it under another id."""
    await desk.written(space=USER, text="violet heron")
    asked: list[str | None] = []
    verify = desk.stores["memories"].verify_deleted

    async def verify_deleted(entry: Any) -> bool:
        asked.append(entry.text)
        return await verify(entry)

    desk.stores["memories"].verify_deleted = verify_deleted
    assert (await forget(desk)).complete
    assert asked == ["violet heron"]


async def test_of_an_orphan_the_subject_is_not_known(desk: Desk) -> None:
    """An orphan in the space might be about the subject, so it is named; another subject's stray is not."""
    await desk.written(space="org", subject="acct:42")
    other = await desk.written(space="org", subject="acct:43")
    await desk.orphan("agent", fact_id=other)
    lost = desk.runtime.ids.fact_id(desk.clock.now())
    await desk.orphan("agent", fact_id=lost)
    result = await forget(desk, "org", subject="acct:42")
    assert [seen.fact_id for seen in result.leftovers] == [lost]


async def test_what_lost_its_space_and_is_still_there_is_named(desk: Desk) -> None:
    """A fact whose identity went before is in no space any more: what a store still has of it is named."""
    gone = await desk.written(space=USER, subject="a")
    await desk.written(space=USER, subject="b")
    desk.stores["memories"].faults.refuse("delete")
    await desk.forget(gone, identity=True)
    assert gone in {entry.fact_id for entry in desk.stores["memories"].snapshot().values()}
    desk.stores["memories"].faults.allow()
    result = await forget(desk)
    assert ([seen.fact_id for seen in result.leftovers], result.complete) == ([gone], False)
    await desk.repair()
    again = await forget(desk)
    assert (again.leftovers, again.complete) == ((), True)


async def test_a_store_that_is_not_configured_is_named(desk: Desk) -> None:
    """A placement that nobody can remove keeps the certificate open, and the store is named once."""
    for subject in "ab":
        await desk.written(space=USER, subject=subject)
    async with desk.coordinator(stores=[desk.stores["memories"]]) as partial:
        result = await partial.forget_where(space=USER, actor="dpo")
    assert not result.complete
    assert result.not_reached == ("agent: this store is not configured here",)
    assert all(fact.fate is Fate.FORGOTTEN and not fact.complete for fact in result.facts)
    whole = await forget(desk)
    assert whole.complete
    assert desk.held() == {}


async def test_a_store_that_cannot_list_is_beyond(tmp_path: Path) -> None:
    """It is named among what no run reaches; what the ledger knows of it is still removed and verified."""
    stores = [MemoryStore("memories"), MemoryStore("blind", without=WITHOUT_LIST)]
    async with open_desk(tmp_path, stores=stores) as desk:
        await desk.written(space=USER)
        result = await forget(desk)
        assert result.complete
        assert sum("blind: it cannot list" in sentence for sentence in result.beyond) == 1
        assert any("Backups" in sentence for sentence in result.beyond)
        assert "blind" not in result.scanned


async def test_what_stores_leave_on_disk_is_in_the_notes(desk: Desk) -> None:
    """Each store is asked once for the whole batch, not once for each fact."""
    asked: list[int] = []

    async def after_forget(entries: Any) -> list[str]:
        asked.append(len(entries))
        return ["pages until VACUUM"]

    desk.stores["memories"].after_forget = after_forget
    for n in range(5):
        await desk.written(space=USER, subject=f"s-{n}")
    result = await forget(desk)
    assert result.complete
    assert (result.notes, asked) == (("pages until VACUUM",), [5])


async def test_identity_goes_with_it(desk: Desk) -> None:
    """With identity the space is empty afterwards, and no file of the ledger says whose it was."""
    who = "user:heron-4711"
    for n in range(3):
        await desk.written(f"violet-{n}", space=who, subject=f"heron-{n}")
    result = await forget(desk, who, identity=True, batch=2)
    assert result.complete
    assert len(result.facts) == 3
    assert await desk.ledger.spaces() == []
    files = b"".join(path.read_bytes() for path in desk.path.parent.iterdir())
    assert b"heron" not in files
    assert b"violet" not in files
    assert (await forget(desk, who, identity=True)).facts == ()


async def test_batches_and_progress(desk: Desk) -> None:
    """However small the batches, every fact goes once and is told once."""
    written = [await desk.written(n, space=USER, subject=f"s-{n}") for n in range(7)]
    told: list[FactFate] = []
    result = await forget(desk, batch=3, progress=told.append)
    assert sorted(fact.fact_id for fact in result.facts) == sorted(written)
    assert tuple(told) == result.facts
    assert result.complete


async def test_a_fact_stated_meanwhile_is_named(desk: Desk) -> None:
    """What was written while it ran is not forgotten behind the writer's back, and keeps the proof open."""
    await desk.written(space=USER, subject="a")
    listing = desk.stores["agent"].list_entries
    late: list[str] = []

    async def list_entries() -> Any:
        late.append(await desk.written(space=USER, subject="b"))
        async for entry in listing():
            yield entry

    desk.stores["agent"].list_entries = list_entries
    result = await forget(desk)
    assert result.later == tuple(late)
    assert not result.complete
    assert await desk.current() == late


async def test_a_believed_fact_of_another_subject_is_not_named(desk: Desk) -> None:
    """Placements that the ledger stands behind are accounted for, whatever their subject."""
    await desk.written(space="org", subject="acct:42")
    await desk.written(space="org", subject="acct:43")
    result = await forget(desk, "org", subject="acct:42")
    assert (result.leftovers, result.young, result.complete) == ((), (), True)
