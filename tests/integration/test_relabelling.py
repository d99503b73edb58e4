"""Entries that were there before their fact was believed: a confirm changes labels, not their number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from fix_custody import LATER, Desk, error_of, open_desk

from custody_sync import errors
from custody_sync.ledger import Assert
from custody_sync.model import Capability, Entry, Fact, Label, Placement, Provenance, format_instant
from custody_sync.stores import Deadlines, Gate
from custody_sync.testing import ManualClock, MemoryStore, testing_runtime


async def adopted(desk: Desk, *stores: str, **more: Any) -> str:
    """Record a claim whose entries are in stores already, as adopting does; return the fact id."""
    now = desk.clock.now()
    fields: dict[str, Any] = {
        "fact_id": desk.runtime.ids.fact_id(now),
        "space": "org",
        "subject": "acct:42",
        "predicate": "plan",
        "value": "found",
        "text": "it was there before",
        "actor": "importer",
        "provenance": Provenance.CLAIMED,
        "valid_from": now,
    }
    fact = Fact(**(fields | more))
    placements: list[Placement] = []
    for store in stores:
        label = Label(
            ledger_id=desk.ledger.ledger_id,
            fact_id=fact.fact_id,
            space=fact.space,
            stored_at=now,
            generation=desk.runtime.ids.generation(),
            actor=fact.actor,
            provenance=fact.provenance,
            valid_from=fact.valid_from,
        )
        for external_id in await desk.stores[store].put(fact, label):
            placements.append(
                Placement(
                    store=store, external_id=external_id, fact_id=fact.fact_id, scope=None, stored_at=now
                )
            )
    event_id = desk.runtime.ids.event_id()
    await desk.ledger.append(Assert(event_id=event_id, fact=fact, placements=tuple(placements)))
    return fact.fact_id


def puts(desk: Desk) -> Sequence[int]:
    """Return how often each store was put to."""
    return [store.calls["put"] for store in desk.stores.values()]


async def test_a_confirm_relabels_what_is_there(desk: Desk) -> None:
    """No store is put to again; each entry keeps its id, key and date, and its label says it is believed."""
    fact_id = await adopted(desk, "memories", "agent")
    before = {name: store.snapshot() for name, store in desk.stores.items()}
    was = puts(desk)
    desk.clock.advance(timedelta(minutes=3))
    result = await desk.confirm(fact_id)
    assert (puts(desk), result.complete) == (was, True)
    assert sorted((r.store, r.done) for r in result.relabelled) == [("agent", True), ("memories", True)]
    for name, store in desk.stores.items():
        after = {key: replace(entry, custody=None) for key, entry in store.snapshot().items()}
        assert after == {key: replace(entry, custody=None) for key, entry in before[name].items()}
        ((key, _),) = before[name].items()
        assert result.placements[name] == (key,)
        assert '"provenance":"attested"' in str(store.metadata(key)["custody"])
    assert await desk.judge_clean() == {fact_id}


async def test_a_claim_that_a_confirm_places(desk: Desk) -> None:
    """A label that is written on a confirm says the same as one that is changed by it."""
    fact_id = await desk.written(provenance="claimed")
    result = await desk.confirm(fact_id)
    assert result.relabelled == ()
    for name, (key,) in result.placements.items():
        assert '"provenance":"attested"' in str(desk.stores[name].metadata(key)["custody"])
    fact = await desk.ledger.get(fact_id)
    assert fact is not None
    assert (fact.provenance, fact.confirmed) == (Provenance.CLAIMED, True)


async def test_a_store_that_has_only_some(desk: Desk) -> None:
    """Where an entry is there it is relabelled, and where there is none it is put."""
    fact_id = await adopted(desk, "agent")
    result = await desk.confirm(fact_id)
    assert [(r.store, r.done) for r in result.relabelled] == [("agent", True)]
    assert (sorted(result.placements), desk.stores["memories"].calls["put"]) == (["agent", "memories"], 1)
    assert await desk.judge_clean() == {fact_id}


@pytest.mark.parametrize("trouble", ["none", "down", "gone"])
async def test_an_old_label_is_named(tmp_path: Any, trouble: str) -> None:
    """What could not be relabelled keeps its label and is named with the reason; the confirm stands."""
    without = [Capability.RELABEL] if trouble == "none" else []
    async with open_desk(tmp_path, stores=[MemoryStore("a", without=without)]) as desk:
        fact_id = await adopted(desk, "a")
        if trouble == "down":
            desk.stores["a"].faults.refuse("relabel")
        result = await (desk.coordinator(stores=[]) if trouble == "gone" else desk.custody).confirm(
            fact_id, actor="a"
        )
        (item,) = result.relabelled
        assert (item.store, item.done, result.complete) == ("a", False, True)
        reasons = {
            "none": "keeps its old label (this memory store was built without it)",
            "down": "keeps its old label (store_unavailable)",
            "gone": "this store is not configured here",
        }
        assert item.detail == reasons[trouble] or trouble == "down"
        assert result.fact.confirmed
        assert [f.fact_id for f in await desk.ledger.as_of()] == [fact_id]


async def test_a_confirm_puts_again_what_is_gone(desk: Desk) -> None:
    """A store that lost a claim's entry gets it again, in place of the one that is gone."""
    fact_id = await adopted(desk, "memories", "agent")
    for store in desk.stores.values():
        store.drop(desk.held_of(fact_id)[store.name][0])
    result = await desk.confirm(fact_id)
    assert ({r.store for r in result.restored}, result.complete) == ({"memories", "agent"}, True)
    assert result.relabelled == ()
    assert {name: list(ids) for name, ids in result.placements.items()} == desk.held_of(fact_id)
    assert await desk.judge_clean() == {fact_id}


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        ("refuses", "put failed"),
        ("unasked", "cannot be asked"),
        ("deaf", "cannot be asked"),
        ("altered", "another text"),
        ("stripped", "nothing with the fact's label"),
    ],
)
async def test_a_confirm_that_saw_no_entry(tmp_path: Any, trouble: str, said: str) -> None:
    """No confirm is complete where a store was not seen to hold the fact; it is named, and believed."""
    without = [Capability.FIND, Capability.VERIFY_DELETED] if trouble == "deaf" else []
    store = MemoryStore("a", without=without)
    async with open_desk(tmp_path, stores=[store]) as desk:
        fact_id = await adopted(desk, "a")
        (key,) = desk.held_of(fact_id)["a"]
        if trouble == "refuses":
            store.drop(key)
            store.faults.refuse("put")
        elif trouble == "unasked":
            store.faults.refuse("find")
        elif trouble in ("altered", "stripped"):
            text = "somebody wrote over it"
            metadata = store._held[key].metadata if trouble == "altered" else {}
            store._held[key] = replace(store._held[key], text=text, metadata=metadata)
        if trouble == "stripped":
            store.faults.refuse("relabel")
        result = await desk.confirm(fact_id)
        (item,) = result.restored
        assert (item.store, item.placed, result.complete) == ("a", False, False)
        assert said in item.detail
        assert [fact.fact_id for fact in await desk.ledger.as_of()] == [fact_id]


async def test_a_confirm_of_what_begins_later_and_is_gone(desk: Desk) -> None:
    """What does not begin yet is not put: the store is named."""
    fact_id = await adopted(desk, "agent", valid_from=desk.clock.now() + timedelta(hours=2))
    desk.stores["agent"].drop(desk.held_of(fact_id)["agent"][0])
    result = await desk.confirm(fact_id)
    assert ([r.store for r in result.restored], result.complete) == (["agent"], False)
    assert (desk.stores["agent"].calls["put"], result.waiting) == (1, ("memories",))


async def test_a_confirm_that_is_refused_changes_no_label(desk: Desk) -> None:
    """Labels follow the ledger: what it does not record they do not say."""
    base = await desk.written("pro")
    fact_id = await adopted(desk, "memories", supersedes=base)
    await desk.written("trial", supersedes=base)
    await error_of(desk.confirm(fact_id), errors.AlreadyCovered)
    assert desk.stores["memories"].calls["relabel"] == 0


async def test_a_claim_that_has_ended(desk: Desk) -> None:
    """Entries of what is over are on their way out and get no new label."""
    fact_id = await adopted(desk, "memories", valid_to=desk.clock.now() + timedelta(minutes=1))
    desk.clock.advance(LATER)
    assert (await desk.confirm(fact_id)).relabelled == ()
    assert desk.stores["memories"].calls["relabel"] == 0


async def test_adopted_entries_are_not_swept(desk: Desk) -> None:
    """A quarantined claim's recorded entries stay, and a retraction takes them."""
    fact_id = await adopted(desk, "memories", "agent")
    desk.clock.advance(LATER)
    assert (await desk.repair()).repaired == ()
    assert (await desk.retract(fact_id)).complete
    assert desk.held() == {}


async def test_a_relabel_waits_for_a_store_that_throttles() -> None:
    """The gate treats it as any other call: turned away it waits, and errors become ours."""
    clock, waits = ManualClock(), list[float]()

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    store = MemoryStore("a")
    external_id = store.put_raw("x")
    gate = Gate(store, testing_runtime(clock=clock, sleep=sleep), Deadlines(), keeps=False)
    label = Label(
        ledger_id="l",
        fact_id="f",
        space="org",
        stored_at=clock.now(),
        generation="g",
        actor="a",
        provenance=Provenance.ATTESTED,
        valid_from=clock.now(),
    )
    throttled = errors.StoreThrottled(store="a", operation="relabel", cause="E 429", retry_after=2)
    store.faults.refuse("relabel", throttled, times=1)
    await gate.relabel(Entry(store="a", external_id=external_id), label)
    assert (waits, store.metadata(external_id)["stored_at"]) == ([2.0], format_instant(clock.now()))
    gone = gate.relabel(Entry(store="a", external_id="nowhere"), label)
    assert type(await error_of(gone)) is errors.StoreRefused
