"""A sweep that was interrupted, and the next one: what goes on, what begins anew, and what is left over."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fix_custody import BRIEF, LATER, Crash, Desk, error_of, kinds_of, open_desk

from custody_sync import AsyncCoordinator, Ledger, errors
from custody_sync.faultpoints import FaultPoint
from custody_sync.model import Capability, Entry
from custody_sync.ports import Listed, lists_pages
from custody_sync.repair.last import last_sweep
from custody_sync.repair.lease import holder
from custody_sync.repair.selection import Part
from custody_sync.repair.spool import Spool
from custody_sync.runtime import Runtime
from custody_sync.stores import Deadlines
from custody_sync.testing import Faults, ManualClock, MemoryStore

MINUTE = timedelta(minutes=1)


class Counting(MemoryStore):
    """A store that says how many entries it handed over."""

    shown = 0

    async def list_pages(self, after: str | None = None, until: str | None = None) -> AsyncGenerator[Listed]:
        """Yield pages, counted."""
        async for page in super().list_pages(after, until):
            self.shown += len(page.entries)
            yield page


class Unpaged(MemoryStore):
    """A store that can only be listed from its beginning."""

    shown = 0

    async def list_entries(self) -> AsyncIterator[Entry]:
        """Yield entries, counted."""
        async for entry in super().list_entries():
            self.shown += 1
            yield entry


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("custody_sync.repair.listing.BATCH", 4)


async def crash(desk: Desk, point: FaultPoint, *, skip: int = 0) -> None:
    """Sweep until it dies at a fault point, and let its lease lapse."""
    desk.fail_next(point, Crash(), skip=skip)
    with pytest.raises(Crash):
        await desk.repair(max_removals=100)
    desk.clock.advance(2 * MINUTE)


async def crash_at_note(desk: Desk, nth: int) -> None:
    """Sweep until it dies with a batch that is not committed, and let its lease lapse."""
    put_notes, calls = desk.ledger.put_notes, 0

    async def dying(*args: Any, **more: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == nth:
            raise Crash
        await put_notes(*args, **more)

    desk.ledger.put_notes = dying  # type: ignore[method-assign]  # once
    with pytest.raises(Crash):
        await desk.repair(max_removals=100)
    desk.ledger.put_notes = put_notes  # type: ignore[method-assign]  # as it was
    desk.clock.advance(2 * MINUTE)


async def test_a_listing_is_taken_up_where_the_last_commit_was(tmp_path: Path) -> None:
    """What was listed and spooled is not listed again; counts are those of the whole run."""
    store = Counting("store", page_size=2)
    async with open_desk(tmp_path, stores=[store]) as desk:
        for n in range(16):
            await desk.written(n, subject=f"s:{n}")
        orphans = [await desk.orphan("store") for _ in range(4)]
        begun = desk.clock.now()
        await crash_at_note(desk, 6)
        assert store.shown < 20
        assert await desk.ledger.notes("sweep-run") != []
        result = await desk.repair(max_removals=4)
        assert result.resumed is not None
        assert begun <= result.resumed <= begun + MINUTE
        assert result.before == result.resumed - timedelta(minutes=10)
        assert dict(result.scanned) == {"store": 20}
        assert 20 <= store.shown <= 24, "more than a batch was listed again"
        assert {r.external_id for r in result.repaired} == set(orphans)
        assert result.complete
        assert await desk.ledger.notes("sweep-run") == []
        assert (await desk.repair()).resumed is None


async def test_a_store_without_cursors_is_listed_from_its_beginning(tmp_path: Path) -> None:
    """Its entries are counted once and its candidates stand in the spool once."""
    store, other = Unpaged("a", page_size=2), Counting("b", page_size=2)
    assert not lists_pages(store)
    async with open_desk(tmp_path, stores=[store, other]) as desk:
        for n in range(6):
            await desk.written(n, subject=f"s:{n}")
        await desk.orphan("a")
        await desk.orphan("b")
        await crash(desk, FaultPoint.SWEEP_SPOOLED)
        shown = store.shown
        assert (await desk.repair()).complete
        assert store.shown == shown, "it was listed although it was done"
        await desk.orphan("a")
        await crash_at_note(desk, 3)
        assert kinds_of(await desk.repair()) == [("a", "orphan", "verified")]


async def test_a_sweep_that_died_while_working_does_not_list_again(tmp_path: Path) -> None:
    """It goes on working off; what was recorded before is drained, and nothing is recorded twice."""
    store = Counting("store", page_size=2)
    async with open_desk(tmp_path, stores=[store]) as desk:
        for n in range(8):
            await desk.written(n, subject=f"s:{n}")
        for _ in range(4):
            await desk.orphan("store")
        await crash(desk, FaultPoint.SWEEP_RECORDED, skip=2)
        shown = store.shown
        result = await desk.repair()
        assert result.complete
        assert store.shown == shown
        kinds = [row["event"]["kind"] async for row in desk.ledger.export()]
        assert kinds.count("repair") == 4
        assert len(await desk.judge_clean()) == 8


async def test_what_found_its_place_meanwhile_is_left(desk: Desk) -> None:
    """A candidate that a fact has come to stand behind since it was spooled is not touched."""
    base = await desk.written("pro")
    tip = await desk.written("free", supersedes=base)
    desk.stores["memories"].faults.silent_delete = True
    desk.stores["memories"].faults.silent_delete = False
    key = await desk.orphan("memories")
    desk.fail_next(FaultPoint.SWEEP_SPOOLED, Crash())
    with pytest.raises(Crash):
        await desk.repair()
    desk.stores["memories"].drop(key)
    desk.clock.advance(2 * MINUTE)
    result = await desk.repair()
    assert [r.outcome for r in result.repaired] == ["verified"]
    assert await desk.judge_clean() == {tip}


@pytest.mark.parametrize("how", ["fresh", "stores", "old", "before", "gone"])
async def test_what_is_begun_anew(desk: Desk, how: str) -> None:
    """Another selection, a store less, an order to, a reach that is too far and a day: the old spool goes."""
    key = await desk.orphan("memories")
    await crash(desk, FaultPoint.SWEEP_SPOOLED)
    more: dict[str, object] = {}
    if how == "fresh":
        more["fresh"] = True
    if how == "stores":
        more["stores"] = ["memories"]
    if how == "old":
        desk.clock.advance(timedelta(hours=25))
    if how == "before":
        more["before"] = desk.clock.now() - timedelta(hours=1)
    custody = desk.coordinator(stores=[desk.stores["memories"]]) if how == "gone" else desk.custody
    result = await custody.repair(actor="ops", reason="x", **more)  # type: ignore[arg-type]  # as above
    assert result.resumed is None
    assert (key in desk.stores["memories"].snapshot()) is (how == "before")
    assert await desk.ledger.notes("sweep-spool") == []


async def test_young_and_undated_entries_are_still_named_after_a_kill(desk: Desk) -> None:
    """What was seen and left alone is part of the resumed sweep's result."""
    young = await desk.orphan("memories", age=MINUTE)
    undated = await desk.orphan("memories", age=-timedelta(hours=1))
    await crash(desk, FaultPoint.SWEEP_SPOOLED)
    result = await desk.repair()
    assert [seen.external_id for seen in result.young] == [young]
    assert [seen.external_id for seen in result.undated] == [undated]
    assert not result.complete


async def test_the_breaker_counts_over_the_whole_run(tmp_path: Path) -> None:
    """Candidates from before the kill count with those from after it."""
    store = Counting("store", page_size=2)
    async with open_desk(tmp_path, stores=[store]) as desk:
        for _ in range(6):
            await desk.orphan("store")
        await crash_at_note(desk, 3)
        error = await error_of(desk.repair(), errors.BreakerOpen)
        assert (error.planned, error.scanned) == (6, 6)
        assert await desk.ledger.notes("sweep-spool") == []


async def test_a_limit_leaves_the_rest_for_the_next_call(desk: Desk) -> None:
    """At most so many removals, pending ones included; what is left is counted and goes on later."""
    gone = await desk.written("x", subject="s:gone")
    desk.stores["agent"].faults.refuse("delete")
    await desk.retract(gone)
    desk.stores["agent"].faults.allow()
    for n in range(20):
        await desk.written(n, subject=f"s:{n}")
    for _ in range(3):
        await desk.orphan("memories")
    first = await desk.repair(limit=2)
    assert kinds_of(first) == [("agent", "pending", "verified"), ("memories", "orphan", "verified")]
    assert (first.left_over, first.complete) == (2, False)
    last = await last_sweep(desk.ledger)
    assert last is not None
    assert (last.complete, dict(last.orphans)) == (False, {"memories": 3, "agent": 0})
    second = await desk.repair(limit=1)
    assert (len(second.repaired), second.left_over) == (1, 1)
    assert second.resumed is not None
    third = await desk.repair()
    assert (len(third.repaired), third.left_over, third.complete) == (1, 0, True)
    assert await desk.ledger.notes("sweep-spool") == []


async def test_only_what_is_selected(desk: Desk) -> None:
    """A store that was not named, or a space, is neither drained nor swept."""
    wrong = {name: await desk.written("x", subject="s", space=name) for name in ("org", "team:a", "team:b")}
    for name in desk.stores:
        desk.stores[name].faults.refuse("delete")
    for fact_id in wrong.values():
        await desk.retract(fact_id)
    for name in desk.stores:
        desk.stores[name].faults.allow()
        await desk.orphan(name)
    planned = await desk.repair(dry_run=True, stores=["agent"], space="team:*")
    assert {(r.store, r.fact_id) for r in planned.repaired} == {
        ("agent", wrong["team:a"]),
        ("agent", wrong["team:b"]),
    }
    result = await desk.repair(stores=["agent"], space="team:a")
    assert [(r.store, r.fact_id) for r in result.repaired] == [("agent", wrong["team:a"])]
    assert result.complete
    assert dict(result.scanned).keys() == {"agent"}
    result = await desk.repair(stores=["agent"])
    assert kinds_of(result) == [("agent", "orphan", "verified")] + [("agent", "pending", "verified")] * 2
    assert not any(store == "agent" for store, _ in desk.held())
    assert (await desk.repair()).complete
    assert await desk.judge_clean() == set()


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"stores": ["nowhere"]}, "'nowhere' is not configured here; agent, memories are"),
        ({"stores": []}, "at least one store"),
        ({"stores": "agent"}, "not one string"),
        ({"space": "a*b"}, "not its end"),
        ({"limit": 0}, "1 or more"),
        ({"part": Part(store="nowhere")}, "not configured"),
    ],
)
async def test_a_selection_that_cannot_be(desk: Desk, told: dict[str, object], said: str) -> None:
    """One sentence, before anything is done."""
    error = await error_of(desk.repair(**told), errors.InvalidInput)
    assert said in str(error)
    assert await desk.untouched()


async def test_parts_of_a_listing_are_swept_apart(tmp_path: Path) -> None:
    """Two stretches between cursors see each entry once, and together all of them."""
    store = MemoryStore("store", page_size=2)
    async with open_desk(tmp_path, stores=[store]) as desk:
        first = await desk.orphan("store")
        for n in range(8):
            await desk.written(n, subject=f"s:{n}")
        cursor = [page.cursor async for page in store.list_pages()][2]
        second = await desk.orphan("store")
        parts = [Part(store="store", until=cursor), Part(store="store", after=cursor)]
        results = [await desk.repair(part=part, max_removals=2) for part in parts]
        assert [dict(result.scanned) for result in results] == [{"store": 6}, {"store": 4}]
        assert [r.external_id for result in results for r in result.repaired] == [first, second]


async def test_a_store_that_vanishes_half_way_is_named_once(tmp_path: Path) -> None:
    """After five entries it did not answer for, what is left of it is neither recorded nor touched."""
    stores = [MemoryStore("down"), MemoryStore("up")]
    async with open_desk(tmp_path, stores=stores, patience=BRIEF) as desk:
        for store in stores:
            for _ in range(100):
                await desk.orphan(store.name)

        def vanish() -> None:
            stores[0].faults.refuse("delete")
            stores[0].faults.refuse("verify_deleted")

        desk.call_next(FaultPoint.SWEEP_SPOOLED, vanish)
        result = await desk.repair(max_removals=200)
        assert result.still_held == (
            "down: stopped answering; what is left of it was neither recorded nor touched",
        )
        assert not result.complete
        kinds = kinds_of(result)
        assert kinds.count(("up", "orphan", "verified")) == 100
        assert 5 <= kinds.count(("down", "orphan", "failed")) < 100
        recorded = [row["event"]["data"]["store"] async for row in desk.ledger.export()]
        assert recorded.count("down") < 200
        stores[0].faults = Faults()
        assert (await desk.repair(max_removals=200)).complete
        assert desk.held() == {}


async def test_a_listing_that_goes_on_for_ever_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that shows ever new entries ends at a stated number; what it showed is judged."""
    monkeypatch.setattr("custody_sync.repair.listing.MOST", 50)

    class Endless(MemoryStore):
        async def list_entries(self) -> AsyncIterator[Entry]:
            n = 0
            while True:
                n += 1
                yield Entry(store=self.name, external_id=str(n))
                if n % 5 == 0:
                    await asyncio.sleep(0)

    async with open_desk(tmp_path, stores=[Endless("endless"), MemoryStore("good")]) as desk:
        await desk.orphan("good")
        result = await desk.repair()
        assert result.still_held == ("endless: cannot list: it goes on after 50 entries",)
        assert kinds_of(result) == [("good", "orphan", "verified")]
        assert result.scanned["endless"] < 60


async def test_ended_facts_are_drained_from_every_store(desk: Desk) -> None:
    """An entry whose fact is over goes in the drain, on record first; no breaker counts it."""
    until = desk.clock.now() + timedelta(hours=1)
    for n in range(6):
        await desk.written(n, subject=f"s:{n}", valid_to=until)
    assert (await desk.repair(dry_run=True)).repaired == ()
    desk.clock.set(until + LATER)
    planned = await desk.repair(dry_run=True)
    assert len(planned.repaired) == 12
    result = await desk.repair()
    assert kinds_of(result) == [("agent", "stray", "verified")] * 6 + [("memories", "stray", "verified")] * 6
    assert result.complete
    assert desk.held() == {}


async def test_who_sweeps_and_what_the_last_sweep_came_to(desk: Desk) -> None:
    """A lease names its holder while it stands, and a finished sweep leaves its counts."""
    assert await holder(desk.ledger) is None
    assert await last_sweep(desk.ledger) is None
    await desk.orphan("memories")
    seen: list[str] = []

    async def look() -> None:
        note = await holder(desk.ledger)
        seen.append("" if note is None else str(note.holder))

    tasks: list[asyncio.Task[None]] = []
    desk.call_next(FaultPoint.SWEEP_SPOOLED, lambda: tasks.append(asyncio.ensure_future(look())))
    await desk.repair()
    await asyncio.gather(*tasks)
    last = await last_sweep(desk.ledger)
    assert last is not None
    assert (last.complete, dict(last.orphans), dict(last.strays)) == (
        True,
        {"memories": 1, "agent": 0},
        {"memories": 0, "agent": 0},
    )
    assert last.finished_at <= desk.clock.now()
    assert await holder(desk.ledger) is None


async def test_a_lease_is_as_long_as_it_was_told_to_be(tmp_path: Path) -> None:
    """A dead sweep keeps others away for so long on the ledger's clock, and has to outlast a page."""
    async with open_desk(tmp_path, deadlines=Deadlines(listing=2.0, lease=5.0)) as desk:
        desk.fail_next(FaultPoint.SWEEP_LEASED, Crash())
        desk.ledger.drop_notes, drop = _nothing, desk.ledger.drop_notes  # type: ignore[method-assign]  # it is dead
        with pytest.raises(Crash):
            await desk.repair()
        desk.ledger.drop_notes = drop  # type: ignore[method-assign]  # another process
        error = await error_of(desk.repair(), errors.SweepRunning)
        assert "ops, process" in error.holder
        desk.clock.advance(6)
        assert (await desk.repair()).complete
        with pytest.raises(errors.InvalidInput, match="lease must be longer than listing"):
            desk.coordinator(deadlines=Deadlines(listing=5.0, lease=5.0))
        with pytest.raises(errors.InvalidInput, match="an hour at most"):
            desk.coordinator(deadlines=Deadlines(lease=3601.0))


async def _nothing(*args: object, **more: object) -> None:
    return None


CHILD = """
import asyncio, sys
from custody_sync import AsyncCoordinator, Ledger
from custody_sync.stores import Deadlines
from custody_sync.testing import MemoryStore

class Slow(MemoryStore):
    async def list_entries(self):
        print("sweeping", flush=True)
        await asyncio.sleep(60)
        yield None

async def main():
    async with await Ledger.open(sys.argv[1], witness=False) as ledger:
        custody = AsyncCoordinator(ledger, stores=[Slow("s")], deadlines=Deadlines(listing=3.0, lease=3.5))
        await custody.repair(actor="first", reason="x")

asyncio.run(main())
"""


async def test_two_processes_and_the_holder_killed(tmp_path: Path) -> None:
    """One sweeps, the other says who does and since when; after a kill -9 the other takes over."""
    url = f"sqlite:///{tmp_path}/custody.db"
    async with await Ledger.open(url, create=True, witness=False, runtime=Runtime()) as ledger:
        child = subprocess.Popen([sys.executable, "-c", CHILD, url], stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220  # it is waited for below
        try:
            assert child.stdout is not None
            assert await asyncio.to_thread(child.stdout.readline) == "sweeping\n"
            custody = AsyncCoordinator(ledger, stores=[MemoryStore("s")])
            error = await error_of(custody.repair(actor="second", reason="x"), errors.SweepRunning)
            assert error.holder.startswith(f"first, process {child.pid}, ")
            assert error.since < error.until
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
            for _ in range(100):
                try:
                    result = await custody.repair(actor="second", reason="x")
                except errors.SweepRunning:
                    await asyncio.sleep(0.1)
                else:
                    break
            assert result.complete
        finally:
            child.kill()
            child.wait()
            if child.stdout is not None:
                child.stdout.close()


async def test_a_sweep_that_lost_its_lease_removes_nothing_more(tmp_path: Path) -> None:
    """Somebody took over while it slept: it stops before its next removal."""
    clock = ManualClock()
    store = MemoryStore("store", clock=clock)
    async with open_desk(tmp_path, stores=[store], clock=clock) as desk:
        for _ in range(3):
            await desk.orphan("store")

        async def take_over() -> None:
            clock.advance(61)
            other = {"holder": "other", "value": '""', "ttl": MINUTE}
            await desk.ledger.acquire("lease", "sweep", **other)  # type: ignore[arg-type]  # as above

        pages = desk.ledger.unaccounted

        async def slept(*args: object, **more: object) -> object:
            if await desk.ledger.notes("sweep-spool") and "other" not in str(await holder(desk.ledger)):
                await take_over()
            return await pages(*args, **more)  # type: ignore[arg-type]  # passed on

        desk.ledger.unaccounted = slept  # type: ignore[method-assign,assignment]  # in its sleep
        error = await error_of(desk.repair(), errors.SweepRunning)
        assert error.holder == "other"
        assert store.calls["delete"] == 0
        assert len(store.snapshot()) == 3


def test_a_class_with_a_listing_of_its_own_is_listed_by_it() -> None:
    """An inherited `list_pages` knows nothing of what a subclass or an object overrides."""
    assert lists_pages(MemoryStore("a"))
    assert lists_pages(Counting("a"))
    assert not lists_pages(Unpaged("a"))
    assert not lists_pages(object())
    replaced = MemoryStore("a")
    replaced.list_entries = Unpaged("b").list_entries  # type: ignore[method-assign]  # on the object
    assert not lists_pages(replaced)
    assert not lists_pages(MemoryStore("a", without=[Capability.LIST_ENTRIES]))


async def test_what_slept_through_its_lease_takes_nothing_of_another_run(desk: Desk) -> None:
    """A sweep drops and reads only rows of its own run, and the other finds all of its."""
    for n in range(30):
        await desk.written(n, subject=f"s:{n}")
    await desk.orphan("memories")
    await crash(desk, FaultPoint.SWEEP_SPOOLED)
    (run,) = await desk.ledger.notes("sweep-run")
    spooled = await desk.ledger.notes("sweep-spool")
    assert {note.holder for note in spooled} == {run.holder}
    late = Spool(desk.ledger, "another run")
    await late.drop([note.key for note in spooled])
    await late.clear()
    assert (await late.count(), [page async for page in late.pages(without=set())]) == (0, [])
    assert await desk.ledger.notes("sweep-spool") == spooled
    assert len((await desk.repair()).repaired) == 1


async def test_what_was_lost_of_a_killed_sweep_is_said(desk: Desk) -> None:
    """A sweep that goes on and finds fewer candidates than were spooled is not complete; the next one is."""
    for n in range(30):
        await desk.written(n, subject=f"s:{n}")
    await desk.orphan("memories")
    await crash_at_note(desk, 3)
    assert len(await desk.ledger.notes("sweep-spool")) == 1
    await desk.ledger.drop_notes("sweep-spool")
    result = await desk.repair()
    assert result.resumed is not None
    assert result.unrecorded == ("1 entries to remove were lost on the way; run repair again",)
    assert not result.complete
    assert (await desk.repair()).complete


async def test_a_killed_sweep_names_no_space(desk: Desk) -> None:
    """What it was about is kept as a hash, and where it is done listing no cursor is."""
    await desk.written(space="user:CANARY")
    desk.fail_next(FaultPoint.SWEEP_SPOOLED, Crash())
    with pytest.raises(Crash):
        await desk.repair(space="user:CANARY")
    (run,) = await desk.ledger.notes("sweep-run")
    assert "CANARY" not in run.value
    assert '"names": false' in run.value
    assert (await desk.repair(space="user:CANARY")).resumed is not None
