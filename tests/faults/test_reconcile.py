"""Reconciling: each kind of difference, what it takes to mend it, what is left alone; and it converges."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fix_custody import ACTOR, LATER, WITHOUT_LIST, Desk, error_of, open_desk
from fix_reconcile import alter, found, key_of, mended, reconcile

from custody_sync import errors
from custody_sync.faultpoints import FaultPoint
from custody_sync.mended import Difference, Drift, Mended
from custody_sync.model import Capability, Label
from custody_sync.testing import MemoryStore

STORES = ("memories", "agent")


# --- what is found, and left as it is -------------------------------------------------------


async def test_nothing_differs(desk: Desk) -> None:
    """Stores that hold what the ledger says come out complete, and nothing is written to the log."""
    for n in range(5):
        await desk.write(n, subject=f"s:{n}")
    head = await desk.ledger.head()
    result = await reconcile(desk)
    assert (result.differences, result.found["memories"], result.complete) == ((), {}, True)
    assert result.scanned == result.expected == {"memories": 5, "agent": 5}
    assert result.dry_run
    assert await desk.ledger.head() == head


async def test_dry_run_changes_nothing(desk: Desk) -> None:
    """Without `fix` every difference is named and none is touched."""
    ids = [await desk.written(n, subject=f"s:{n}") for n in range(4)]
    store = desk.stores["memories"]
    store.drop(key_of(desk, "memories", ids[0]))
    alter(store, key_of(desk, "memories", ids[1]), text="secret-4711")
    alter(store, key_of(desk, "memories", ids[2]), space="elsewhere")
    await desk.orphan("memories")
    before, head = store.snapshot(), await desk.ledger.head()
    result = await reconcile(desk)
    assert found(result) == [
        ("memories", "altered_label", "found"),
        ("memories", "altered_text", "found"),
        ("memories", "missing", "found"),
        ("memories", "orphan", "found"),
    ]
    assert not result.complete
    assert "secret-4711" not in repr(result)
    assert (store.snapshot(), await desk.ledger.head()) == (before, head)


async def test_a_switch_a_kind(desk: Desk) -> None:
    """Only what `fix` names is mended; the rest is named and waits."""
    ids = [await desk.written(n, subject=f"s:{n}") for n in range(2)]
    desk.stores["memories"].drop(key_of(desk, "memories", ids[0]))
    key = await desk.orphan("memories")
    result = await reconcile(desk, ["missing"])
    assert found(result) == [("memories", "missing", "mended"), ("memories", "orphan", "found")]
    assert not result.complete
    assert key in desk.stores["memories"].snapshot()
    assert len(desk.held_of(ids[0])["memories"]) == 1


@pytest.mark.parametrize("fix", ["foreign", "unlabelled", "nonsense", "undated"])
async def test_what_cannot_be_mended_is_refused(desk: Desk, fix: str) -> None:
    """`fix` takes only kinds that can be mended, and says which these are."""
    error = await error_of(reconcile(desk, [fix]), errors.InvalidInput)
    assert "altered_text" in str(error)


async def test_other_peoples_entries(desk: Desk) -> None:
    """Entries of another ledger and without a label are counted, and survive everything."""
    store = desk.stores["memories"]
    await desk.write()
    plain = store.put_raw("somebody's note")
    foreign = await desk.orphan("memories")
    alter(store, foreign, ledger_id="another")
    result = await reconcile(desk, "all")
    assert result.found["memories"] == {"foreign": 1, "unlabelled": 1}
    assert (result.differences, result.complete) == ((), True)
    assert {plain, foreign} <= set(store.snapshot())


async def test_our_placement_under_another_ledgers_label(desk: Desk) -> None:
    """What another ledger labels is not missing and not ours, even where we placed it."""
    fact_id = await desk.written()
    key = key_of(desk, "memories", fact_id)
    alter(desk.stores["memories"], key, ledger_id="another")
    result = await reconcile(desk, "all")
    assert found(result) == [("memories", "foreign", "found")]
    assert key in desk.stores["memories"].snapshot()


async def test_young_and_undated(desk: Desk) -> None:
    """What may be a write under way is left alone, and what comes from the future is reported."""
    young = await desk.orphan("memories", age=timedelta(minutes=9))
    future = await desk.orphan("memories", age=-timedelta(hours=1))
    result = await reconcile(desk, "all")
    assert sorted((d.external_id, d.kind) for d in result.differences) == sorted(
        [(young, Drift.YOUNG), (future, Drift.UNDATED)]
    )
    assert not result.complete
    assert set(desk.stores["memories"].snapshot()) == {young, future}


async def test_unplaced_facts_are_counted(tmp_path: Path) -> None:
    """Facts that a newly added store never got are counted, not put: that is for backfill."""
    async with open_desk(tmp_path) as desk:
        await desk.write()
        new = MemoryStore("new", clock=desk.clock)
        custody = desk.coordinator(stores=[*desk.stores.values(), new])
        result = await custody.reconcile(actor="ops", fix="all")
        assert result.found["new"] == {"unplaced": 1}
        assert not result.complete
        assert new.snapshot() == {}


async def test_what_has_begun_is_owed_and_not_unplaced(desk: Desk) -> None:
    """A fact whose time has come is for repair, not for backfill; in a space as well."""
    await desk.write(valid_from=desk.clock.now() + timedelta(hours=1))
    assert (await reconcile(desk)).complete
    desk.clock.advance(timedelta(hours=2))
    for more in ({}, {"space": "org"}, {"space": "org:*"}):
        result = await desk.coordinator().reconcile(actor="ops", **more)
        owed = {} if more == {"space": "org:*"} else {"owed": 1}
        assert result.found["memories"] == result.found["agent"] == owed
        assert result.complete is (not owed)
    await desk.repair()
    assert (await reconcile(desk)).complete


async def test_unlisted_and_uncompared_stores_are_named(tmp_path: Path) -> None:
    """A store that cannot list is named, and so is one that shows no texts."""

    class Mute(MemoryStore):
        def _entry(self, held: Any) -> Any:
            return replace(super()._entry(held), text=None)

    stores = [MemoryStore("blind", without=WITHOUT_LIST), Mute("mute")]
    async with open_desk(tmp_path, stores=stores) as desk:
        await desk.write()
        result = await reconcile(desk)
        assert result.unlisted == ("blind",)
        assert result.uncompared == {"mute": 1}
        assert result.complete


async def test_selected_stores_and_spaces(desk: Desk) -> None:
    """Only what was selected is looked at and mended."""
    ids = {space: await desk.written(1, space=space, subject=space) for space in ("user:1", "user:2", "org")}
    for name in STORES:
        for fact_id in ids.values():
            desk.stores[name].drop(key_of(desk, name, fact_id))
    result = await reconcile(desk, "all", stores=["agent"], space="user:*")
    assert found(result) == [("agent", "missing", "mended")] * 2
    assert [set(desk.held_of(f)) for f in ids.values()] == [{"agent"}, {"agent"}, set()]
    await error_of(reconcile(desk, stores=["nobody"]), errors.InvalidInput)


# --- mending --------------------------------------------------------------------------------


@pytest.mark.parametrize("store", STORES)
async def test_missing_is_put_again(desk: Desk, store: str) -> None:
    """What the store lost is put again and placed in place of the old entry."""
    fact_id = await desk.written()
    key = key_of(desk, store, fact_id)
    desk.stores[store].drop(key)
    result = await mended(desk)
    (only,) = result.differences
    assert (only.kind, only.outcome, only.external_id) == (Drift.MISSING, Mended.MENDED, key)
    assert only.external_ids == (key_of(desk, store, fact_id),)
    assert await desk.kinds(fact_id) == ["assert", "place", "remove"]


@pytest.mark.parametrize("store", STORES)
async def test_altered_text_is_replaced(desk: Desk, store: str) -> None:
    """An entry whose text is not ours makes room for one with the ledger's: the new one comes first."""
    fact_id = await desk.written()
    key = key_of(desk, store, fact_id)
    alter(desk.stores[store], key, text="somebody wrote over it")
    held: list[int] = []
    desk.call_next(FaultPoint.BEFORE_DELETE, lambda: held.append(len(desk.held_of(fact_id)[store])))
    result = await mended(desk)
    assert found(result) == [(store, "altered_text", "mended")]
    assert held == [2]
    (entry,) = (e for e in desk.stores[store].snapshot().values() if e.fact_id == fact_id)
    assert entry.text == "acct:42 plan: pro"


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"space": "elsewhere"}, "space"),
        ({"stored_at": "2020-01-01T00:00:00Z"}, "stored_at"),
        ({"stored_at": "yesterday"}, "stored_at"),
        ({"custody": "{}"}, "actor, provenance, receipt_id, valid_from"),
        ({"custody": "no json"}, "actor, provenance, receipt_id, valid_from"),
        ({"custody": 7}, "actor, provenance, receipt_id, valid_from"),
    ],
)
async def test_altered_labels_are_written_again(desk: Desk, change: dict[str, Any], part: str) -> None:
    """A label that says something else is written anew; the entry stays, and the parts are named."""
    fact_id = await desk.written(receipt_id="r-1")
    key = key_of(desk, "agent", fact_id)
    before = desk.stores["agent"].metadata(key)
    alter(desk.stores["agent"], key, **change)
    dry = await reconcile(desk)
    assert [d.detail for d in dry.differences] == [part]
    assert found(await mended(desk)) == [("agent", "altered_label", "mended")]
    after = desk.stores["agent"].metadata(key)
    assert {**after, "custody": ""} == {**before, "custody": ""}


async def test_generation_in_the_id(desk: Desk) -> None:
    """Where our key is the entry's id, a label that names another generation is altered."""
    fact_id = await desk.written()
    key = key_of(desk, "memories", fact_id)
    before = desk.stores["memories"].metadata(key)
    fact = await desk.ledger.get(fact_id)
    assert fact is not None
    other = Label(
        ledger_id=desk.ledger.ledger_id,
        fact_id=fact_id,
        space="org",
        stored_at=desk.stores["memories"].snapshot()[key].stored_at or desk.clock.now(),
        generation="another",
        actor=ACTOR,
        provenance=fact.provenance,
        valid_from=fact.valid_from,
    )
    alter(desk.stores["memories"], key, **other.to_metadata())
    assert [d.detail for d in (await reconcile(desk)).differences] == ["generation"]
    await mended(desk)
    assert desk.stores["memories"].metadata(key) == before


async def test_label_of_another_fact(desk: Desk) -> None:
    """An entry that was placed for one fact and is labelled with another gets its own label back."""
    one, two = await desk.written(1, subject="s:1"), await desk.written(2, subject="s:2")
    key = key_of(desk, "agent", one)
    alter(desk.stores["agent"], key, fact_id=two)
    desk.clock.advance(LATER)
    result = await mended(desk)
    assert [(d.kind, d.fact_id, d.external_id) for d in result.differences] == [
        (Drift.ALTERED_LABEL, one, key)
    ]


async def test_lost_label(desk: Desk) -> None:
    """A placement whose entry has lost its label is not missing: it gets the label back."""
    fact_id = await desk.written()
    key = key_of(desk, "agent", fact_id)
    held = desk.stores["agent"]._held[key]
    desk.stores["agent"]._held[key] = replace(held, metadata={})
    assert found(await mended(desk)) == [("agent", "altered_label", "mended")]


async def test_label_where_the_store_cannot_relabel(tmp_path: Path) -> None:
    """Where a label cannot be changed the entry is put again; without one it stays and is counted."""
    store = MemoryStore("a", own_ids=True, without=(Capability.RELABEL,))
    async with open_desk(tmp_path, stores=[store]) as desk:
        one, two = await desk.written(1, subject="s:1"), await desk.written(2, subject="s:2")
        key, bare = key_of(desk, "a", one), key_of(desk, "a", two)
        alter(store, key, space="elsewhere")
        result = await mended(desk)
        assert found(result) == [("a", "altered_label", "mended")]
        assert key not in store.snapshot()
        store._held[bare] = replace(store._held[bare], metadata={})
        result = await reconcile(desk, "all")
        assert (result.found["a"], result.differences) == ({"unlabelled": 1}, ())
        assert bare in store.snapshot()


async def test_orphans_and_strays_go(desk: Desk) -> None:
    """What has no place is recorded, removed and verified as by a sweep."""
    fact_id = await desk.written()
    orphan = await desk.orphan("memories")
    stray = await desk.orphan("memories", fact_id=fact_id)
    result = await mended(desk)
    assert {(d.kind, d.external_id) for d in result.differences} == {
        (Drift.ORPHAN, orphan),
        (Drift.STRAY, stray),
    }
    assert result.outcomes == {"memories": {"mended": 2}}


async def test_a_pending_removal_that_is_shown_is_a_stray(desk: Desk) -> None:
    """What the ledger ordered to go and the store still shows is named, and removed however young."""
    fact_id = await desk.written()
    desk.stores["agent"].faults.refuse("delete")
    await desk.retract(fact_id)
    assert found(await reconcile(desk)) == [("agent", "stray", "found")]
    assert found(await reconcile(desk, "all")) == [("agent", "stray", "left")]
    desk.stores["agent"].faults.allow("delete")
    assert (await mended(desk)).complete
    assert await desk.ledger.pending() == []


async def test_several_entries_of_a_fact_are_replaced_together(tmp_path: Path) -> None:
    """Of a fact that a store keeps in parts all parts are put anew when one is altered, and once."""
    store = MemoryStore("a", parts=3)
    async with open_desk(tmp_path, stores=[store]) as desk:
        fact_id = await desk.written()
        first, second, _ = desk.held_of(fact_id)["a"]
        alter(store, first, text="altered")
        store.drop(second)
        puts = store.calls["put"]
        result = await reconcile(desk, "all")
        assert found(result) == [("a", "altered_text", "mended"), ("a", "missing", "mended")]
        assert store.calls["put"] == puts + 1
        assert len(desk.held_of(fact_id)["a"]) == 3
        assert found(await reconcile(desk, "all")) == []


async def test_kept_entries(tmp_path: Path) -> None:
    """A superseded fact's kept entry cannot be put again: where it is lost or altered it is let go."""
    async with open_desk(tmp_path, superseded="keep") as desk:
        old = await desk.written("free")
        await desk.write("pro", supersedes=old)
        desk.stores["memories"].drop(key_of(desk, "memories", old))
        alter(desk.stores["agent"], key_of(desk, "agent", old), text="altered")
        result = await reconcile(desk, "all")
        assert found(result) == [
            ("agent", "altered_text", "mended"),
            ("memories", "missing", "mended"),
        ]
        assert desk.held_of(old) == {}
        assert found(await reconcile(desk, "all")) == []
        await desk.judge()


async def test_the_last_comparison_is_noted(desk: Desk) -> None:
    """How things stand says what the last comparison came to."""
    fact_id = await desk.written()
    desk.stores["memories"].drop(key_of(desk, "memories", fact_id))
    await reconcile(desk, "all")
    status = await desk.custody.status()
    assert status.last_reconcile is not None
    assert status.last_reconcile.missing == {"memories": 1, "agent": 0}
    assert status.last_reconcile.complete


async def test_progress(desk: Desk) -> None:
    """Whoever watches hears how far it is, without ids."""
    fact_id = await desk.written()
    desk.stores["memories"].drop(key_of(desk, "memories", fact_id))
    heard: list[tuple[str, int, int | None]] = []
    await reconcile(desk, "all", watch=lambda *told: heard.append(told))
    assert ("comparing agent", 1, None) in heard
    assert heard[-1] == ("mending", 1, 1)


def test_differences_say_no_text() -> None:
    """A difference has no field that could hold a text."""
    assert "text" not in Difference.__slots__
