"""The sweep: what it takes, what it leaves, what it says, and that it can be killed anywhere."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fix_custody import ACTOR, LATER, Desk, error_of, kinds_of, open_desk

from custody_sync import errors
from custody_sync.faultpoints import FaultPoint
from custody_sync.ledger import Assert
from custody_sync.model import Fact, Provenance
from custody_sync.testing import MemoryStore

MINUTE = timedelta(minutes=1)


# --- orphans --------------------------------------------------------------------------------


async def test_c21_orphan_of_a_failed_append(desk: Desk) -> None:
    """C21: young at 9 min 59 s; at 10 min 01 s recorded, deleted, verified; a second run finds nothing."""
    desk.fail_next(FaultPoint.BEFORE_COMMIT, errors.OutcomeUnknown(name="x"), times=30)
    error = await error_of(desk.write(), errors.LedgerUnavailable)
    desk.plan._actions.clear()
    born = max(e.stored_at for s in desk.stores.values() for e in s.snapshot().values() if e.stored_at)
    desk.clock.set(born + timedelta(minutes=9, seconds=59))
    early = await desk.repair()
    assert early.repaired == ()
    assert {seen.fact_id for seen in early.young} == {error.fact_id}
    assert len(desk.held()) == 2
    desk.clock.set(born + timedelta(minutes=10, seconds=1))
    swept = await desk.repair()
    assert kinds_of(swept) == [("agent", "orphan", "verified"), ("memories", "orphan", "verified")]
    assert swept.complete
    history = await desk.ledger.history(error.fact_id)
    assert [e.kind for e in history] == ["repair", "repair", "remove", "remove"]
    assert {r.event_id for r in swept.repaired} == {e.event_id for e in history[:2]}
    assert history[0].reason == "after an outage"
    again = await desk.repair()
    assert (again.repaired, again.complete) == ((), True)
    assert await desk.judge_clean() == set()


async def test_c22_before(desk: Desk) -> None:
    """C22: `before` is moved to ten minutes ago if later; an earlier one is kept and spares the younger."""
    now = desk.clock.now()
    await desk.orphan("memories", age=20 * MINUTE)
    kept = await desk.repair(before=now - 60 * MINUTE)
    assert kept.before == now - 60 * MINUTE
    assert (len(kept.young), kept.repaired) == (1, ())
    moved = await desk.repair(before=now - MINUTE)
    assert moved.before == now - 10 * MINUTE
    assert kinds_of(moved) == [("memories", "orphan", "verified")]
    assert (await desk.repair()).before <= desk.clock.now() - 10 * MINUTE


async def test_c23_dates(desk: Desk) -> None:
    """C23: undatable is young, the future undated, an unreadable date goes by the creation time."""
    store = desk.stores["memories"]
    old = await desk.orphan("memories")
    future = await desk.orphan("memories", age=-timedelta(hours=1))
    garbled, undatable = await desk.orphan("memories"), await desk.orphan("memories")
    for key, created in ((garbled, desk.clock.now() - LATER), (undatable, None)):
        label = store.metadata(key) | {"stored_at": "yesterday"}
        store._held[key] = replace(store._held[key], metadata=label, created_at=created)
    result = await desk.repair()
    assert {r.external_id for r in result.repaired} == {old, garbled}
    assert {seen.external_id for seen in result.undated} == {future}
    assert {seen.external_id for seen in result.young} == {undatable}
    assert not result.complete
    assert set(store.snapshot()) == {future, undatable}


async def test_naive_creation_time_is_no_date(desk: Desk) -> None:
    """A creation time without a zone dates nothing: the entry is young, and the sweep goes on."""
    store = desk.stores["memories"]
    key, other = await desk.orphan("memories"), await desk.orphan("memories")
    naive = (desk.clock.now() - LATER).replace(tzinfo=None)
    label = store.metadata(key) | {"stored_at": ""}
    store._held[key] = replace(store._held[key], metadata=label, created_at=naive)
    result = await desk.repair()
    assert [seen.external_id for seen in result.young] == [key]
    assert [r.external_id for r in result.repaired] == [other]


async def test_c24_listed_twice_and_in_two_stores(tmp_path: Path) -> None:
    """C24: an orphan listed twice is removed once; an orphan in two stores has two events."""
    stores = [MemoryStore("a", page_size=2), MemoryStore("b")]
    stores[0].faults.repeat_pages = True
    async with open_desk(tmp_path, stores=stores) as desk:
        for n in range(9):
            await desk.write(n, subject=f"s:{n}")
        fact_id = desk.runtime.ids.fact_id(desk.clock.now())
        keys = [await desk.orphan(name, fact_id=fact_id) for name in ("a", "b")]
        deletes = stores[0].calls["delete"]
        result = await desk.repair()
        assert sorted(r.external_id for r in result.repaired) == sorted(keys)
        assert stores[0].calls["delete"] == deletes + 1
        assert await desk.kinds(fact_id) == ["repair", "repair", "remove", "remove"]
        assert await desk.judge_clean()


async def test_c24_listed_twice_across_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An orphan shown in two batches of a listing is planned, removed and reported once."""
    monkeypatch.setattr("custody_sync.repair.listing.BATCH", 2)
    store = MemoryStore("a", page_size=2)
    store.faults.repeat_pages = True
    async with open_desk(tmp_path, stores=[store]) as desk:
        keys = [await desk.orphan("a") for _ in range(3)]
        planned = await desk.repair(dry_run=True)
        assert sorted(r.external_id for r in planned.repaired) == sorted(keys)
        result = await desk.repair()
        assert sorted(r.external_id for r in result.repaired) == sorted(keys)
        assert store.calls["delete"] == 3


async def test_c24_first_record_wins(desk: Desk) -> None:
    """C24: an assert of a repaired id fails, whoever comes with it."""
    fact_id = desk.runtime.ids.fact_id(desk.clock.now())
    await desk.orphan("memories", fact_id=fact_id)
    await desk.repair()
    fact = Fact(
        fact_id=fact_id,
        space="org",
        subject="s",
        predicate="p",
        value="v",
        text="v",
        actor=ACTOR,
        provenance=Provenance.ATTESTED,
        valid_from=desk.clock.now(),
    )
    with pytest.raises(errors.RepairedId):
        await desk.ledger.append(Assert(event_id="late", fact=fact))
    assert await desk.kinds(fact_id) == ["repair", "remove"]


async def test_orphan_asserted_between_listing_and_record(desk: Desk) -> None:
    """An entry whose fact is asserted after the listing is not touched: the assert was first (I3)."""
    key = await desk.orphan("memories")
    entry = desk.stores["memories"].snapshot()[key]
    fact = Fact(
        fact_id=entry.fact_id or "",
        space="org",
        subject="acct:lost",
        predicate="plan",
        value="lost",
        text=entry.text,
        actor=ACTOR,
        provenance=Provenance.ATTESTED,
        valid_from=desk.clock.now(),
    )

    pending: list[asyncio.Task[Any]] = []

    def assert_now() -> None:
        pending.append(asyncio.ensure_future(desk.ledger.append(Assert(event_id="first", fact=fact))))

    desk.call_next(FaultPoint.SWEEP_SPOOLED, assert_now)
    result = await desk.repair()
    await asyncio.gather(*pending)
    assert result.repaired == ()
    assert key in desk.stores["memories"].snapshot()


async def test_c26_other_peoples_entries(desk: Desk) -> None:
    """C26: entries without our label, or with another ledger's id, survive every command."""
    store = desk.stores["memories"]
    plain = store.put_raw("somebody's note")
    foreign_key = await desk.orphan("memories")
    label = store.metadata(foreign_key) | {"ledger_id": "another"}
    store._held[foreign_key] = replace(store._held[foreign_key], metadata=label)
    fact_id = await desk.written("somebody's note")
    tip = await desk.written("x", supersedes=fact_id)
    await desk.retract(tip)
    await desk.forget(fact_id)
    desk.clock.advance(LATER)
    result = await desk.repair(max_removals=100)
    await desk.verify()
    assert result.complete
    assert result.scanned["memories"] == 2
    assert set(store.snapshot()) == {plain, foreign_key}
