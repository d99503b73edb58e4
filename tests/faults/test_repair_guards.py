"""A ledger that may not be the one to go on, or whose clock is off, stops or says so, and deletes nothing."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fix_custody import ACTOR, LATER, Desk, error_of, kinds_of, open_desk

from custody_sync import AsyncCoordinator, Ledger, errors
from custody_sync.ledger.whereabouts import Whereabouts
from custody_sync.model import MAX_SKEW
from custody_sync.runtime import Runtime, SystemClock
from custody_sync.testing import ManualClock, MemoryStore

TWENTY = timedelta(minutes=20)


def held(stores: list[MemoryStore]) -> dict[str, set[str]]:
    """Return the ids of what each store holds."""
    return {store.name: set(store.snapshot()) for store in stores}


async def copied(tmp_path: Path, clock: ManualClock, stores: list[MemoryStore], *, swept: bool) -> Path:
    """Write to a ledger, copy its file, write on in the first, and return where the copy is."""
    async with open_desk(tmp_path, stores=stores, clock=clock) as desk:
        await desk.written("old", subject="s:old")
        if swept:
            await desk.repair()
    there = tmp_path / "elsewhere"
    there.mkdir()
    shutil.copy(tmp_path / "custody.db", there / "custody.db")
    async with open_desk(tmp_path, stores=stores, clock=clock) as desk:
        await desk.written("new", subject="s:new")
    return there


async def test_a_restored_ledger_is_known_by_its_witness(tmp_path: Path) -> None:
    """What its witness has seen and it does not have refuses the sweep, and a dry run says so."""
    clock = ManualClock()
    stores = [MemoryStore("memories", clock=clock)]
    there = await copied(tmp_path, clock, stores, swept=False)
    shutil.copy(there / "custody.db", tmp_path / "custody.db")
    before = held(stores)
    clock.advance(LATER)
    told: dict[str, Any] = {"actor": "ops", "reason": "x"}
    runtime = Runtime(clock=clock)
    async with await Ledger.open(f"sqlite:///{tmp_path}/custody.db", runtime=runtime) as ledger:
        custody = AsyncCoordinator(ledger, stores=stores, runtime=runtime)
        planned = await custody.repair(**told, dry_run=True)
        assert "put back from a backup" in planned.notices[0]
        assert (await custody.reconcile(actor="ops")).notices == planned.notices
        error = await error_of(custody.repair(**told, max_removals=100), errors.LedgerRestored)
        assert (error.seq, error.exit_code) == (2, 4)
        assert "ledger head --accept" in str(error)
        assert await ledger.notes("lease") == []
        assert held(stores) == before
        await ledger.witness.accept(await ledger.head())
        assert kinds_of(await custody.repair(**told)) == [("memories", "orphan", "verified")]


async def test_a_copied_ledger_does_not_sweep_before_somebody_says_it_goes_on(tmp_path: Path) -> None:
    """A sweep notes its place; the same ledger at another one sweeps only when it is said to have moved."""
    clock = ManualClock()
    stores = [MemoryStore("memories", clock=clock)]
    there = await copied(tmp_path, clock, stores, swept=True)
    before = held(stores)
    clock.advance(LATER)
    url = f"sqlite:///{there}/custody.db"
    runtime = Runtime(clock=clock)
    async with await Ledger.open(url, runtime=runtime, witness=False) as ledger:
        custody = AsyncCoordinator(ledger, stores=stores, runtime=runtime)
        told: dict[str, Any] = {"actor": "ops", "reason": "x"}
        planned = await custody.repair(**told, dry_run=True)
        assert "swept before at" in planned.notices[0]
        error = await error_of(custody.repair(**told), errors.LedgerElsewhere)
        assert str(tmp_path / "custody.db") in error.before
        assert str(there / "custody.db") in error.here
        assert "--moved" in str(error)
        assert held(stores) == before
        result = await custody.repair(**told, moved=True)
        assert kinds_of(result) == [("memories", "orphan", "verified")]
        assert (await custody.repair(**told)).complete


async def test_without_a_witness_the_breaker_is_the_second_line(tmp_path: Path) -> None:
    """A copy that never swept and has no witness is stopped by what it would remove."""
    clock = ManualClock()
    stores = [MemoryStore("memories", clock=clock)]
    async with open_desk(tmp_path, stores=stores, clock=clock) as desk:
        await desk.written("old", subject="s:old")
    shutil.copy(tmp_path / "custody.db", tmp_path / "copy.db")
    async with open_desk(tmp_path, stores=stores, clock=clock) as desk:
        for n in range(5):
            await desk.written(n, subject=f"s:{n}")
    before = held(stores)
    clock.advance(LATER)
    runtime = Runtime(clock=clock)
    url = f"sqlite:///{tmp_path}/copy.db"
    async with await Ledger.open(url, runtime=runtime, witness=False) as ledger:
        custody = AsyncCoordinator(ledger, stores=stores, runtime=runtime)
        await error_of(custody.repair(actor="ops", reason="x"), errors.BreakerOpen)
        assert held(stores) == before


async def test_a_jsonl_ledger_has_a_place_too(tmp_path: Path) -> None:
    """Its log is written anew by an erasure, so its path alone is its place."""
    clock = ManualClock()
    runtime = Runtime(clock=clock)
    stores = [MemoryStore("memories", clock=clock)]
    (tmp_path / "b").mkdir()
    url = f"jsonl:///{tmp_path}/custody.jsonl"
    async with await Ledger.open(url, create=True, runtime=runtime) as ledger:
        custody = AsyncCoordinator(ledger, stores=stores, runtime=runtime)
        fact = (await custody.write(value="x", space="org", actor=ACTOR)).fact
        await custody.repair(actor="ops", reason="x")
        await custody.forget(fact.fact_id, actor=ACTOR, reason="asked to")
        assert (await custody.repair(actor="ops", reason="x")).complete
    for name in ("custody.jsonl", "custody.jsonl-notes"):
        shutil.copy(tmp_path / name, tmp_path / "b" / name)
    async with await Ledger.open(f"jsonl:///{tmp_path}/b/custody.jsonl", runtime=runtime) as ledger:
        custody = AsyncCoordinator(ledger, stores=stores, runtime=runtime)
        await error_of(custody.repair(actor="ops", reason="x"), errors.LedgerElsewhere)


async def test_a_postgres_ledger_is_where_its_schema_is(schema_url: str) -> None:
    """Cluster, database and schema are its place, and the server's clock is compared with ours."""
    stores = [MemoryStore("memories")]
    async with await Ledger.open(schema_url, create=True, witness=False) as ledger:
        here = await ledger.whereabouts()
        assert here.place.startswith("cluster ")
        assert here.place.endswith(schema_url.rpartition("=")[2])
        assert here.server_time is not None
        custody = AsyncCoordinator(ledger, stores=stores)
        assert (await custody.repair(actor="ops", reason="x")).complete
        assert (await custody.repair(actor="ops", reason="x")).complete


async def test_a_ledger_whose_server_says_another_time_is_not_swept_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to two minutes clocks may differ; how far this one is off is said."""
    async with open_desk(tmp_path) as desk:
        place = (await desk.ledger.whereabouts()).place
        for off, refused in ((MAX_SKEW, False), (MAX_SKEW + timedelta(seconds=1), True)):
            said = Whereabouts(place, desk.ledger.now() - off)

            async def answered(said: Whereabouts = said) -> Whereabouts:
                return said

            monkeypatch.setattr(desk.ledger, "whereabouts", answered)
            if refused:
                error = await error_of(desk.repair(), errors.ClockSkew)
                assert error.fields["seconds"] == 121
            else:
                assert (await desk.repair()).complete


@pytest.mark.parametrize("by", [TWENTY, -TWENTY])
async def test_a_postgres_ledger_with_another_time_refuses_to_sweep(schema_url: str, by: timedelta) -> None:
    """A clock that is twenty minutes off the server's, either way, deletes nothing."""

    class Off(SystemClock):
        def now(self) -> datetime:
            return datetime.now(UTC) + by

    store = MemoryStore("memories")
    async with await Ledger.open(schema_url, create=True, witness=False) as right:
        await AsyncCoordinator(right, stores=[store]).write(value="x", space="org", actor=ACTOR)
        before = set(store.snapshot())
        runtime = Runtime(clock=Off())
        async with await Ledger.open(schema_url, runtime=runtime, witness=False) as wrong:
            custody = AsyncCoordinator(wrong, stores=[store], runtime=runtime)
            error = await error_of(custody.repair(actor="ops", reason="x"), errors.ClockSkew)
            assert abs(error.seconds - 1200) <= 60
            assert (await custody.repair(actor="ops", reason="x", dry_run=True)).notices
        assert set(store.snapshot()) == before


@pytest.mark.parametrize("by", [TWENTY, -TWENTY])
async def test_a_sweep_with_a_clock_that_is_off_keeps_what_was_acknowledged(
    desk: Desk, by: timedelta
) -> None:
    """Every acknowledged write stays; of a slow clock's sweep the result says that it is slow."""
    kept = await desk.written("kept")
    clock = ManualClock(desk.clock.now() + by)
    runtime = Runtime(clock=clock)
    async with await Ledger.open(desk.url, runtime=runtime, witness=False) as ledger:
        other = AsyncCoordinator(ledger, stores=desk.stores.values(), runtime=runtime)
        result = await other.repair(actor="ops", reason="x")
    assert result.repaired == ()
    assert bool(result.notices) is (by < timedelta(0))
    assert await desk.judge_clean() == {kept}


async def test_a_write_under_way_during_a_fast_clocks_sweep_is_refused_and_never_acknowledged(
    desk: Desk,
) -> None:
    """Twenty minutes fast, a sweep may take the entry of a write under way; that write is then told no."""
    clock = ManualClock(desk.clock.now() + TWENTY)
    runtime = Runtime(clock=clock)
    async with await Ledger.open(desk.url, runtime=runtime, witness=False) as ledger:
        other = AsyncCoordinator(ledger, stores=desk.stores.values(), runtime=runtime)
        append = desk.ledger.append

        async def swept_first(draft: Any) -> Any:
            desk.ledger.append = append  # type: ignore[method-assign]  # once
            await other.repair(actor="ops", reason="x", max_removals=10)
            return await append(draft)

        desk.ledger.append = swept_first  # type: ignore[method-assign]  # the race, made certain
        await error_of(desk.write("late"), errors.RepairedId)
    assert await desk.judge_clean() == set()


async def test_entries_from_the_future_are_reported_and_stay(desk: Desk) -> None:
    """What says it was stored later than now is undated, whatever the ledger thinks of it."""
    key = await desk.orphan("memories", age=-TWENTY)
    result = await desk.repair(max_removals=100)
    assert [seen.external_id for seen in result.undated] == [key]
    assert not result.complete
    assert key in desk.stores["memories"].snapshot()


async def test_the_place_is_noted_by_the_sweep_and_by_no_dry_run(desk: Desk) -> None:
    """Looking changes nothing."""
    await desk.repair(dry_run=True)
    assert await desk.ledger.notes("place") == []
    await desk.repair()
    (note,) = await desk.ledger.notes("place")
    await desk.repair()
    (again,) = await desk.ledger.notes("place")
    assert replace(again, since=note.since) == note
    assert await desk.ledger.whereabouts() == Whereabouts(f"{desk.path}, file {desk.path.stat().st_ino}")
