"""The sweep and what the ledger knows: strays, debts, ended facts, pending erasures."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fix_custody import ACTOR, LATER, Crash, Desk, error_of, kinds_of, open_desk

from custody_sync import errors
from custody_sync.faultpoints import FaultPoint
from custody_sync.ledger import Place
from custody_sync.model import Capability, Entry, Erasure, Fact, Label
from custody_sync.testing import MemoryStore

MINUTE = timedelta(minutes=1)


async def test_p11_duplicate_of_a_live_fact(tmp_path: Path) -> None:
    """P11: of two entries of one fact only the one that is not its placement goes."""

    class Retrying(MemoryStore):
        async def put(self, fact: Fact, label: Label) -> Sequence[str]:
            try:
                return await super().put(fact, label)
            except errors.StoreUnavailable:
                return await super().put(fact, label)

    store = Retrying("store", own_ids=True)
    async with open_desk(tmp_path, stores=[store]) as desk:
        store.faults.lose_reply("put")
        first = await desk.write("same", text="same")
        second = await desk.write("same", text="same", subject="acct:2")
        held = desk.held_of(first.fact.fact_id)["store"]
        (stray,) = set(held) - set(first.placements["store"])
        desk.clock.advance(LATER)
        planned = await desk.repair(dry_run=True)
        assert [(r.external_id, r.kind, r.outcome) for r in planned.repaired] == [(stray, "stray", "planned")]
        swept = await desk.repair()
        assert [(r.external_id, r.kind, r.outcome) for r in swept.repaired] == [(stray, "stray", "verified")]
        assert await desk.kinds(first.fact.fact_id) == ["assert", "remove", "remove"]
        assert (await desk.repair()).repaired == ()
        assert await desk.judge_clean() == {first.fact.fact_id, second.fact.fact_id}
        assert len(await store.search("same", 10, None)) == 2


async def test_late_put_does_not_survive_the_next_repair(desk: Desk) -> None:
    """A put that lands after its write failed is swept, as a stray where a repetition succeeded."""
    store = desk.stores["agent"]
    store.faults.land_later()
    error = await error_of(desk.write(idempotency_key="k"), errors.StoreWriteFailed)
    assert error.left == ["agent"]
    again = await desk.write(idempotency_key="k")
    assert again.fact.fact_id == error.fact_id
    assert store.land() == 1
    assert len(desk.held_of(error.fact_id)["agent"]) == 2
    assert await desk.judge(left=["agent"]) == {error.fact_id}
    desk.clock.advance(LATER)
    assert kinds_of(await desk.repair()) == [("agent", "stray", "verified")]
    assert await desk.judge_clean() == {error.fact_id}


async def test_late_put_after_its_orphan_was_repaired(desk: Desk) -> None:
    """A put that lands again after its orphan was removed and verified is taken up again."""
    key = await desk.orphan("memories")
    held = desk.stores["memories"]._held[key]
    await desk.repair()
    desk.stores["memories"]._held[key] = held
    asked = await desk.verify()
    assert [(r.external_id, r.outcome) for r in asked.removals if r.store == "memories"] == [
        (key, "still_indexed")
    ]
    assert not asked.complete
    assert kinds_of(await desk.repair()) == [("memories", "pending", "verified")]
    desk.stores["memories"]._held[key] = held
    assert kinds_of(await desk.repair()) == [("memories", "orphan", "verified")]
    assert await desk.judge_clean() == set()


async def test_half_done_confirm_is_a_stray(desk: Desk) -> None:
    """Entries of a fact that is only claimed are strays, and the fact can still be confirmed."""
    claimed = await desk.written(provenance="claimed")
    desk.fail_next(FaultPoint.STORED, Crash())
    with pytest.raises(Crash):
        await desk.confirm(claimed)
    desk.clock.advance(LATER)
    assert kinds_of(await desk.repair()) == [
        ("agent", "stray", "verified"),
        ("memories", "stray", "verified"),
    ]
    assert (await desk.confirm(claimed)).complete
    assert await desk.judge_clean() == {claimed}


async def test_expired_fact_is_swept(desk: Desk) -> None:
    """When a fact's validity is over its entries are strays; a fact still valid keeps its own."""
    until = desk.clock.now() + 30 * MINUTE
    await desk.written("trial", valid_to=until)
    staying = await desk.written("pro", subject="acct:2", valid_to=until + 60 * MINUTE)
    desk.clock.advance(LATER)
    assert (await desk.repair()).repaired == ()
    desk.clock.set(until)
    assert await desk.current() == [staying]
    assert kinds_of(await desk.repair()) == [
        ("agent", "stray", "verified"),
        ("memories", "stray", "verified"),
    ]
    assert await desk.judge_clean() == {staying}


async def test_expired_fact_in_a_store_that_cannot_list(tmp_path: Path) -> None:
    """A store that cannot list loses what has ended by the ledger's own placements."""
    store = MemoryStore("store", own_ids=True, without=[Capability.LIST_ENTRIES])
    async with open_desk(tmp_path, stores=[store]) as desk:
        await desk.written(valid_to=desk.clock.now() + MINUTE)
        desk.clock.advance(2 * MINUTE)
        planned = await desk.repair(dry_run=True)
        assert kinds_of(planned) == [("store", "stray", "planned")]
        result = await desk.repair()
        assert kinds_of(result) == [("store", "stray", "verified")]
        assert result.unlisted == ("store",)
        assert await desk.judge_clean() == set()


# --- what is owed ---------------------------------------------------------------------------


async def test_restore_owed_to_a_store_that_was_down(desk: Desk) -> None:
    """A retraction owes a down store what it covered; repair places it later, under a new generation."""
    base = await desk.write("pro")
    fact_id = base.fact.fact_id
    tip = await desk.written("free", supersedes=fact_id)
    desk.stores["memories"].faults.refuse("put")
    result = await desk.retract(tip)
    assert not result.complete
    assert {(r.store, r.placed) for r in result.restored} == {("memories", False), ("agent", True)}
    assert await desk.ledger.owed() == [(fact_id, "memories")]
    still = await desk.repair()
    assert not still.complete
    assert [(r.store, r.detail) for r in still.restored] == [("memories", "put failed (refused)")]
    planned = await desk.repair(dry_run=True)
    assert [(r.fact_id, r.store, r.detail) for r in planned.restored] == [(fact_id, "memories", "planned")]
    desk.stores["memories"].faults.allow()
    desk.clock.advance(LATER)
    done = await desk.repair()
    assert done.complete
    (item,) = done.restored
    assert item.external_ids != base.placements["memories"]
    assert await desk.judge_clean() == {fact_id}


async def test_owed_to_a_store_that_is_gone_does_not_starve_others(desk: Desk) -> None:
    """What is owed to a store that is not configured any more keeps nothing else from being placed."""
    pairs = []
    for n in range(120):
        base = await desk.written("pro", subject=f"s:{n}")
        pairs.append((base, await desk.written("free", subject=f"s:{n}", supersedes=base)))
    desk.stores["memories"].faults.refuse("put")
    desk.stores["agent"].faults.refuse("put")
    for _, tip in pairs:
        await desk.retract(tip)
    desk.stores["agent"].faults.allow()
    few = desk.coordinator(stores=[desk.stores["agent"]])
    result = await few.repair(actor=ACTOR, reason="x")
    assert {r.store for r in result.restored if r.placed} == {"agent"}
    assert len(await desk.ledger.owed()) == 120
    assert {store for _, store in await desk.ledger.owed()} == {"memories"}


async def test_ended_fact_is_owed_to_nobody(desk: Desk) -> None:
    """A fact that ended before its place could be taken again is not placed, and the sweep is complete."""
    until = desk.clock.now() + 30 * MINUTE
    base = await desk.written("pro", valid_to=until)
    tip = await desk.written("free", supersedes=base)
    desk.stores["agent"].faults.refuse("put")
    await desk.retract(tip)
    desk.stores["agent"].faults.allow()
    desk.clock.set(until + LATER)
    result = await desk.repair()
    assert result.complete
    assert result.restored == ()
    assert await desk.judge_clean() == set()


async def test_retract_of_the_middle_restores_nothing(desk: Desk) -> None:
    """Retracting the middle of a chain restores nothing; retracting the tip then reaches the base."""
    base = await desk.written("pro")
    middle = await desk.written("free", supersedes=base)
    tip = await desk.written("trial", supersedes=middle)
    result = await desk.retract(middle)
    assert (result.restored, result.complete) == ((), True)
    assert await desk.judge_clean() == {tip}
    result = await desk.retract(tip)
    assert {r.fact_id for r in result.restored} == {base}
    assert await desk.judge_clean() == {base}


async def test_restore_races_a_removal_in_flight(desk: Desk) -> None:
    """A fact restored while its old entries are still being removed ends with exactly its new entries."""
    base = await desk.written("pro")
    steps: list[asyncio.Task[Any]] = []

    async def retract_tip() -> None:
        (tip,) = [f for f in await desk.ledger.as_of() if f.fact_id != base]
        await desk.coordinator().retract(tip.fact_id, actor=ACTOR, reason="wrong")

    desk.call_next(FaultPoint.BEFORE_DELETE, lambda: steps.append(asyncio.ensure_future(retract_tip())))
    await desk.write("free", supersedes=base)
    await asyncio.gather(*steps)
    assert steps
    assert await desk.judge_clean() == {base}


async def test_two_restores_at_once_place_once(desk: Desk) -> None:
    """A retraction and a sweep that both place what is owed leave one entry per store."""
    base = await desk.written("pro")
    tip = await desk.written("free", supersedes=base)
    again: list[asyncio.Task[Any]] = []
    desk.call_next(FaultPoint.RECORDED, lambda: again.append(asyncio.ensure_future(desk.repair())))
    result = await desk.retract(tip)
    swept = await asyncio.gather(*again)
    assert result.complete
    assert swept[0].complete
    assert {store: len(keys) for store, keys in desk.held_of(base).items()} == {"memories": 1, "agent": 1}
    assert await desk.judge_clean() == {base}


async def test_pending_erasure_is_completed_by_repair(desk: Desk) -> None:
    """A forget that a reader kept from erasing is incomplete; the next repair erases and says so."""
    fact_id = await desk.written("123-45-6789")
    reader = sqlite3.connect(desk.path)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM events").fetchone()
    forgotten = await desk.forget(fact_id)
    assert (forgotten.erasure, forgotten.complete) == (Erasure.PENDING, False)
    planned = await desk.repair(dry_run=True)
    assert (planned.erasure, planned.complete) == (Erasure.PENDING, False)
    reader.close()
    result = await desk.repair()
    assert (result.erasure, result.complete) == (Erasure.DONE, True)
    files = [p for p in desk.path.parent.iterdir() if b"123-45-6789" in p.read_bytes()]
    assert files == []


async def test_restore_that_cannot_be_looked_up(desk: Desk) -> None:
    """When nobody can say what a retraction owes, the result says so and is not complete."""
    base = await desk.written("pro")
    tip = await desk.written("free", supersedes=base)
    owed = desk.ledger.owed

    async def busy(*args: Any, **more: Any) -> Any:
        raise errors.LedgerBusy(name="ledger")

    desk.ledger.owed = busy  # type: ignore[method-assign]  # the ledger's trouble
    result = await desk.retract(tip)
    assert [(r.fact_id, r.placed, r.detail) for r in result.restored] == [
        (base, False, "not known (ledger_busy)")
    ]
    assert {r.outcome for r in result.removals} == {"verified"}
    assert not result.complete
    desk.ledger.owed = owed  # type: ignore[method-assign]  # well again
    assert (await desk.repair()).complete
    assert await desk.judge_clean() == {base}


async def test_restored_entry_on_its_way_is_not_taken_for_a_leftover(tmp_path: Path) -> None:
    """An older removal that finds the new entry before its `place` is recorded leaves it alone."""
    asked, answer, placed, record = (asyncio.Event() for _ in range(4))

    class Gated(MemoryStore):
        async def find(self, fact_id: str) -> list[Entry]:
            asked.set()
            await answer.wait()
            return await super().find(fact_id)

    async with open_desk(tmp_path, stores=[Gated("store", own_ids=True)]) as desk:
        base = await desk.written("pro")
        append = desk.ledger.append

        async def slow_place(draft: Any) -> Any:
            if isinstance(draft, Place):
                placed.set()
                await record.wait()
            return await append(draft)

        desk.ledger.append = slow_place  # type: ignore[method-assign]  # the race, made certain
        writing = asyncio.ensure_future(desk.write("free", supersedes=base))
        await asked.wait()
        (tip,) = await desk.current()
        # Another process, whose store answers at once, retracts the tip and puts the base again.
        other = MemoryStore("store", own_ids=True)
        other._held, other._ids = desk.stores["store"]._held, desk.stores["store"]._ids
        retracting = asyncio.ensure_future(
            desk.coordinator(stores=[other]).retract(tip, actor=ACTOR, reason="wrong")
        )
        await placed.wait()
        answer.set()
        await writing
        record.set()
        result = await retracting
        assert [item.placed for item in result.restored] == [True]
        assert await desk.judge_clean() == {base}
