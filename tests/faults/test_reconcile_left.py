"""Reconciling says mended only of what the store shows; what would come back for ever is left and named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from fix_custody import Desk, open_desk
from fix_reconcile import alter, found, key_of, reconcile

from custody_sync.mended import Drift, Mended
from custody_sync.model import Capability, Entry, Fact, Label
from custody_sync.repair import readback
from custody_sync.testing import ManualClock, MemoryStore


class Stripping(MemoryStore):
    """A store that strips texts, until it is told not to."""

    strips = True

    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        """Put it stripped."""
        text = (fact.text or "").strip() if self.strips else fact.text
        return await super().put(replace(fact, text=text), label)


class Seconds(MemoryStore):
    """A store that keeps instants to the second."""

    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        """Put it with a shorter instant."""
        return await super().put(fact, _short(label))

    async def relabel(self, entry: Entry, label: Label) -> None:
        """Relabel with a shorter instant."""
        await super().relabel(entry, _short(label))


def _short(label: Label) -> Label:
    return replace(label, stored_at=label.stored_at.replace(microsecond=0))


class Deaf(MemoryStore):
    """A store that says it relabelled, and did not."""

    async def relabel(self, entry: Entry, label: Label) -> None:
        """Do nothing."""


async def left_alone(desk: Desk, name: str, fact_id: str) -> str:
    """See that two more runs and a dry run leave an entry as it is and name it; return the detail."""
    store = desk.stores[name]
    before, head = store.snapshot(), await desk.ledger.head()
    detail = ""
    for _ in range(2):
        result = await reconcile(desk, "all")
        (only,) = result.differences
        detail = only.detail
        assert (only.fact_id, only.outcome, result.complete) == (fact_id, Mended.LEFT, False)
    dry = await reconcile(desk)
    assert [(d.outcome, d.detail) for d in dry.differences] == [(Mended.FOUND, detail)]
    assert (store.snapshot(), await desk.ledger.head()) == (before, head)
    return detail


@pytest.mark.parametrize("without", [(), (Capability.FIND,)])
async def test_a_store_that_alters_texts(tmp_path: Path, without: tuple[Capability, ...]) -> None:
    """A text that comes back altered is never called mended, and is put anew only once."""
    async with open_desk(tmp_path, stores=[Stripping("a", without=without)]) as desk:
        fact_id = await desk.written(text="two spaces  ")
        first = await reconcile(desk, "all")
        assert (found(first), first.complete) == ([("a", "altered_text", "left")], False)
        puts = desk.stores["a"].calls["put"]
        assert await left_alone(desk, "a", fact_id) == readback.KEEPS
        assert desk.stores["a"].calls["put"] == puts == 2


async def test_a_store_that_is_set_right(tmp_path: Path) -> None:
    """What was left is forgotten once the store shows it rightly, and mended the next time it is not."""
    store = Stripping("a")
    async with open_desk(tmp_path, stores=[store]) as desk:
        fact_id = await desk.written(text="two spaces  ")
        await reconcile(desk, "all")
        store.strips = False
        alter(store, key_of(desk, "a", fact_id), text="two spaces  ")
        assert (await reconcile(desk, "all")).complete
        assert await desk.ledger.notes(readback.TOPIC) == []
        alter(store, key_of(desk, "a", fact_id), text="other")
        assert found(await reconcile(desk, "all")) == [("a", "altered_text", "mended")]
        await desk.judge_clean()


async def test_a_label_that_says_something_else_than_was_left(tmp_path: Path) -> None:
    """An entry that is kept otherwise in one part is still mended where another part is altered."""
    clock = ManualClock()
    clock.advance(0.123456)
    store = Seconds("a", clock=clock)
    async with open_desk(tmp_path, clock=clock, stores=[store]) as desk:
        fact_id = await desk.written()
        await reconcile(desk, "all")
        assert (await left_alone(desk, "a", fact_id)).endswith(": stored_at")
        relabels = store.calls["relabel"]
        alter(store, key_of(desk, "a", fact_id), space="elsewhere")
        await reconcile(desk, "all")
        assert store.calls["relabel"] == relabels + 1
        assert store.metadata(key_of(desk, "a", fact_id))["space"] == "org"


async def test_a_relabel_that_does_nothing(tmp_path: Path) -> None:
    """A label is mended when the store shows it, not when the store says so."""
    async with open_desk(tmp_path, stores=[Deaf("a")]) as desk:
        fact_id = await desk.written()
        alter(desk.stores["a"], key_of(desk, "a", fact_id), space="elsewhere")
        assert found(await reconcile(desk, "all")) == [("a", "altered_label", "left")]
        assert (await left_alone(desk, "a", fact_id)).endswith(": space")


async def test_a_store_that_alters_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a store that keeps many entries otherwise no more is put, and no breaker counts what is left."""
    monkeypatch.setattr(readback, "MANY", 2)
    store = Stripping("a")
    async with open_desk(tmp_path, stores=[store]) as desk:
        for n in range(6):
            await desk.write(n, subject=f"s:{n}", text=f"{n} ")
        for n in range(2):
            alter(store, desk.held_of((await desk.current())[n])["a"][0], text=f"{n}")
        await reconcile(desk, "all")
        puts = store.calls["put"]
        result = await reconcile(desk, "all", max_puts=0)
        assert (result.outcomes, result.complete) == ({"a": {"left": 6}}, False)
        assert store.calls["put"] == puts


async def test_an_erasure_takes_what_was_remembered(tmp_path: Path) -> None:
    """What is remembered of an entry goes with the identity of its fact."""
    async with open_desk(tmp_path, stores=[Stripping("a")]) as desk:
        fact_id = await desk.written(text="two spaces  ")
        await reconcile(desk, "all")
        assert len(await desk.ledger.notes(readback.TOPIC)) == 1
        await desk.forget(fact_id, identity=True)
        assert await desk.ledger.notes(readback.TOPIC) == []


async def test_labels_and_texts_that_changed_places(desk: Desk) -> None:
    """Entries that stand under each other's id are replaced, and go although their labels name another."""
    one, two = await desk.written(1, subject="s:1"), await desk.written(2, subject="s:2")
    store = desk.stores["agent"]
    a, b = key_of(desk, "agent", one), key_of(desk, "agent", two)
    held = store._held
    held[a], held[b] = replace(held[b], external_id=a), replace(held[a], external_id=b)
    desk.clock.advance(timedelta(hours=1))
    assert found(await reconcile(desk, "all")) == [("agent", "altered_text", "mended")] * 2
    assert not {a, b} & set(store.snapshot())
    assert found(await reconcile(desk, "all")) == []
    await desk.judge_clean()


@pytest.mark.parametrize("change", ["missing", "altered_text"])
async def test_an_adopted_claim(tmp_path: Path, change: str) -> None:
    """A claim is put into no store: its lost or altered entry is named until it is confirmed or retracted."""
    async with open_desk(tmp_path, stores=[MemoryStore("a")]) as desk:
        store = desk.stores["a"]
        key = store.put_raw("likes tea")
        await desk.custody.adopt("a", actor="ops", space="org", dry_run=False)
        (fact,) = await desk.ledger.as_of(include_claimed=True)
        if change == "missing":
            store.drop(key)
        else:
            alter(store, key, text="likes coffee")
        puts = store.calls["put"]
        detail = await left_alone(desk, "a", fact.fact_id)
        assert "confirm or retract" in detail
        assert store.calls["put"] == puts
        result = await reconcile(desk, "all", max_puts=0)
        assert [d.kind for d in result.differences] == [Drift(change)]


async def test_a_claims_label_where_none_can_be_written(tmp_path: Path) -> None:
    """Where a label cannot be changed the entry of a claim is left as well: to put it is not ours."""
    store = MemoryStore("a")
    async with open_desk(tmp_path, stores=[store]) as desk:
        key = store.put_raw("likes tea")
        await desk.custody.adopt("a", actor="ops", space="org", dry_run=False)
        alter(store, key, space="elsewhere")
        blunt = MemoryStore("a", without=(Capability.RELABEL,))
        blunt._held = store._held
        custody = desk.coordinator(stores=[blunt])
        result = await custody.reconcile(actor="ops", fix="all")
        assert [(d.kind, d.outcome) for d in result.differences] == [(Drift.ALTERED_LABEL, Mended.LEFT)]
        assert blunt.calls["put"] == 0


async def test_facts_that_have_ended_are_no_breakers_business(desk: Desk) -> None:
    """Entries of facts whose validity is over go as in a repair, however many they are."""
    until = desk.clock.now() + timedelta(minutes=30)
    ids = [await desk.written(n, subject=f"s:{n}", valid_to=until) for n in range(6)]
    desk.clock.advance(timedelta(minutes=31))
    assert (await reconcile(desk)).found["agent"] == {"stray": 6}
    assert not (await reconcile(desk, ["missing"])).complete
    assert all(desk.held_of(fact_id) for fact_id in ids)
    result = await reconcile(desk, "all", space="elsewhere")
    assert all(desk.held_of(fact_id) for fact_id in ids)
    result = await reconcile(desk, "all")
    assert (found(result), result.complete, desk.held()) == ([], True, {})
    await desk.judge_clean()


async def test_ended_and_not_removed(desk: Desk) -> None:
    """What a store does not let go of is a stray that the ledger ordered, and is not complete."""
    until = desk.clock.now() + timedelta(minutes=30)
    for n in range(6):
        await desk.write(n, subject=f"s:{n}", valid_to=until)
    desk.clock.advance(timedelta(minutes=31))
    desk.stores["agent"].faults.refuse("delete")
    result = await reconcile(desk, "all")
    assert (result.outcomes, result.complete) == ({"agent": {"left": 6}}, False)
