"""The last row of the failure table: what the ledger takes, refuses, and what is taken back then."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fix_custody import ACTOR, LATER, Desk, error_of, open_desk

from custody_sync import errors
from custody_sync.faultpoints import FaultPoint
from custody_sync.model import (
    Fact,
    Label,
)
from custody_sync.testing import MemoryStore

MINUTE = timedelta(minutes=1)


async def test_ledger_appends_with_the_placements(desk: Desk) -> None:
    """The assert carries every placement, as the stores hold them."""
    written = await desk.write()
    (event,) = await desk.ledger.history(written.fact.fact_id)
    refs: Any = event.sealed["refs"]
    placed = {p["store"]: p["external_id"] for p in refs["placements"]}
    assert placed == {store: ids[0] for store, ids in written.placements.items()}
    assert await desk.judge_clean() == {written.fact.fact_id}


async def test_ledger_refuses_stale_placements(desk: Desk) -> None:
    """An assert more than five minutes after its oldest put is refused and taken back; five are allowed."""
    desk.call_next(FaultPoint.STORED, lambda: desk.clock.advance(300))
    assert (await desk.write()).complete
    desk.call_next(FaultPoint.STORED, lambda: desk.clock.advance(300.001))
    error = await error_of(desk.write(subject="acct:2"), errors.StalePlacement)
    assert "left" not in error.fields
    assert len(await desk.judge_clean()) == 1


async def test_ledger_refuses_stale_confirm_and_place(desk: Desk) -> None:
    """A confirm and a place are held to the same five minutes."""
    claimed = await desk.written(provenance="claimed")
    desk.call_next(FaultPoint.STORED, lambda: desk.clock.advance(301))
    await error_of(desk.confirm(claimed), errors.StalePlacement)
    assert await desk.judge_clean() == set()
    base = await desk.written(subject="acct:2")
    tip = await desk.written("free", subject="acct:2", supersedes=base)
    desk.call_next(FaultPoint.RESTORED, lambda: desk.clock.advance(301))
    result = await desk.retract(tip)
    assert not result.complete
    assert "not recorded (stale_placement)" in [item.detail for item in result.restored]
    assert await desk.judge() == {base}
    assert (await desk.repair()).complete
    assert await desk.judge_clean() == {base}


async def test_ledger_refuses_removed_external_ids(desk: Desk) -> None:
    """A store that answers with an external id that was removed cannot get the fact placed under it again."""
    base = await desk.write("pro")
    tip = await desk.written("free", supersedes=base.fact.fact_id)
    removed = base.placements["agent"]

    class Repeating(MemoryStore):
        async def put(self, fact: Fact, label: Label) -> Sequence[str]:
            return removed

    custody = desk.coordinator(stores=[desk.stores["memories"], Repeating("agent")])
    result = await custody.retract(tip, actor=ACTOR, reason="wrong")
    assert {(r.store, r.detail) for r in result.restored} == {
        ("memories", ""),
        ("agent", "not recorded (stale_placement); an entry of this try may be left: run repair"),
    }
    assert not result.complete
    assert await desk.ledger.owed() == [(base.fact.fact_id, "agent")]


async def test_ledger_refusal_compensates(desk: Desk) -> None:
    """A write that loses its supersession in the ledger takes its entries back and says nothing is left."""
    base = await desk.written("pro")

    async def rival() -> None:
        await desk.coordinator().write(
            value="trial", subject="acct:42", predicate="plan", space="org", actor=ACTOR, supersedes=base
        )

    gate = asyncio.Event()

    class Waiting(MemoryStore):
        async def put(self, fact: Fact, label: Label) -> Sequence[str]:
            ids = await super().put(fact, label)
            if fact.value == "late":
                gate.set()
                await won.wait()
            return ids

    won = asyncio.Event()
    store = Waiting("third")
    custody = desk.coordinator(stores=[*desk.stores.values(), store])
    late = asyncio.ensure_future(
        custody.write(
            value="late", subject="acct:42", predicate="plan", space="org", actor=ACTOR, supersedes=base
        )
    )
    await gate.wait()
    await rival()
    won.set()
    error = await error_of(late, errors.AlreadyCovered)
    assert "left" not in error.fields
    assert store.snapshot() == {}
    assert len(await desk.judge_clean()) == 1


async def test_ledger_refusal_names_what_is_left(desk: Desk) -> None:
    """When compensation after a refusal fails, the refusal itself says where something may be left."""
    desk.call_next(FaultPoint.STORED, lambda: desk.clock.advance(301))
    desk.stores["agent"].faults.refuse("delete")
    error = await error_of(desk.write(), errors.StalePlacement)
    assert error.left == ["agent"]
    assert str(error).endswith("Entries may be left in: agent.")
    assert error.to_dict()["left"] == ["agent"]
    assert await desk.judge(left=error.left) == set()


@pytest.mark.parametrize(
    "error", [errors.LedgerFull, errors.LedgerBusy, errors.LedgerReadOnly, errors.LedgerTooLarge]
)
async def test_ledger_certainly_not_committed_compensates(desk: Desk, error: type[Any]) -> None:
    """An append that certainly did not commit is raised as it is, once the stores are clean again."""
    desk.fail_next(FaultPoint.BEFORE_COMMIT, error(name="ledger"))
    await error_of(desk.write(), error)
    assert await desk.judge_clean() == set()
    assert (await desk.ledger.head()).seq == 0


async def test_ledger_never_takes_back_another_facts_entry(tmp_path: Path) -> None:
    """Equal texts folded into one entry: the second write fails and the first fact keeps its entry."""
    folding = MemoryStore("folding", own_ids=True)
    folding.faults.shared_ids = True
    async with open_desk(tmp_path, stores=[folding, MemoryStore("plain")]) as desk:
        first = await desk.written("same", text="same")
        error = await error_of(desk.write("same", text="same", subject="acct:2"), errors.SharedEntry)
        assert (error.store, error.fact_id) == ("folding", first)
        assert "left" not in error.fields
        assert await desk.judge_clean() == {first}


async def test_ledger_folded_put_of_a_failed_write_keeps_the_entry(tmp_path: Path) -> None:
    """A folded entry is also kept when the write fails in another store."""
    folding, broken = MemoryStore("folding", own_ids=True), MemoryStore("broken")
    folding.faults.shared_ids = True
    async with open_desk(tmp_path, stores=[folding, broken]) as desk:
        first = await desk.written("same", text="same")
        broken.faults.refuse("put", errors.StoreRefused(store="broken", operation="put", cause="no"))
        error = await error_of(desk.write("same", text="same"), errors.StoreWriteFailed)
        assert error.left == []
        assert await desk.judge_clean() == {first}


async def test_ledger_does_not_know_of_a_write_under_way(tmp_path: Path) -> None:
    """An entry that a store made for another write still under way is not taken back but named as left."""
    reached, go = asyncio.Event(), asyncio.Event()

    class Slow(MemoryStore):
        async def put(self, fact: Fact, label: Label) -> Sequence[str]:
            if fact.actor == "first":
                reached.set()
                await go.wait()
            return await super().put(fact, label)

    folding, broken = MemoryStore("folding", own_ids=True), MemoryStore("broken")
    folding.faults.shared_ids = True
    broken.faults.refuse("put", errors.StoreRefused(store="broken", operation="put", cause="no"))
    async with open_desk(tmp_path, stores=[folding, Slow("slow")]) as desk:
        first = asyncio.ensure_future(desk.written("same", text="same", actor="first"))
        await reached.wait()
        other = desk.coordinator(stores=[folding, broken])
        writing = other.write(value="same", text="same", subject="s", predicate="p", space="org", actor="b")
        error = await error_of(writing, errors.StoreWriteFailed)
        assert (error.removed, error.left) == ([], ["folding"])
        go.set()
        believed = await first
        desk.clock.advance(LATER)
        assert (await desk.repair()).complete
        assert await desk.judge_clean() == {believed}
