"""Reconciling in trouble: killed anywhere, stores that lag, lie or refuse, and what looks like a mistake."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fix_custody import BRIEF, LATER, Crash, Desk, error_of, open_desk
from fix_reconcile import alter, found, key_of, reconcile

from custody_sync import errors
from custody_sync.faultpoints import FaultPoint
from custody_sync.mended import Drift, Mended
from custody_sync.model import Capability, Entry, Erasure
from custody_sync.ports import Listed
from custody_sync.repair.differing import Drifted
from custody_sync.repair.pile import Pile
from custody_sync.testing import MemoryStore

POINTS = (
    FaultPoint.RECONCILE_PILED,
    FaultPoint.RECONCILE_PLACED,
    FaultPoint.RECONCILE_DONE,
    FaultPoint.RESTORED,
    FaultPoint.BEFORE_PUT,
    FaultPoint.AFTER_PUT,
    FaultPoint.BEFORE_COMMIT,
    FaultPoint.AFTER_COMMIT,
    FaultPoint.BEFORE_DELETE,
    FaultPoint.AFTER_DELETE,
    FaultPoint.AFTER_QUESTION,
    FaultPoint.REMOVED,
    FaultPoint.SWEEP_RECORDED,
)


async def drifted(desk: Desk) -> list[str]:
    """Write five facts and let both stores drift from the ledger in every way."""
    ids = [await desk.written(n, subject=f"s:{n}") for n in range(5)]
    for name, store in desk.stores.items():
        store.drop(key_of(desk, name, ids[0]))
        alter(store, key_of(desk, name, ids[1]), text="altered")
        alter(store, key_of(desk, name, ids[2]), space="elsewhere")
        await desk.orphan(name)
        await desk.orphan(name, fact_id=ids[3])
    return ids


@pytest.mark.parametrize("skip", [0, 1, 3])
@pytest.mark.parametrize("point", POINTS)
async def test_killed_anywhere_it_converges(desk: Desk, point: FaultPoint, skip: int) -> None:
    """However a run ends, the next ones past the cutoff leave every believed fact in every store once."""
    await drifted(desk)
    desk.fail_next(point, Crash(), skip=skip)
    with contextlib.suppress(Crash, errors.CustodyError):
        await reconcile(desk, "all", max_removals=100)
    desk.plan._actions.clear()
    # A killed process holds its lease until it lapses, and what it put is young.
    desk.clock.advance(LATER)
    await reconcile(desk, "all", max_removals=100)
    again = await reconcile(desk, "all", max_removals=100)
    assert (found(again), again.complete) == ([], True)
    await desk.judge_clean()
    assert await desk.ledger.notes("reconcile-pile") == []


@pytest.mark.parametrize("by_plan", [False, True])
async def test_what_a_killed_run_left_holds_up_no_erasure(desk: Desk, tmp_path: Path, by_plan: bool) -> None:
    """A sweep drops the pile of a run that is no more: it may name what an erasure takes."""
    fact_id = await desk.written()
    entries = [Entry(store=name, external_id=key_of(desk, name, fact_id)) for name in desk.stores]
    for store in desk.stores.values():
        store.faults.silent_delete = True
    assert not (await desk.forget(fact_id, identity=True)).complete
    pile = Pile(desk.ledger, "a run that is no more")
    await pile.add([Drifted(Drift.STRAY, entry, fact_id) for entry in entries])
    await pile.flush()
    for store in desk.stores.values():
        store.faults.silent_delete = False
    desk.clock.advance(LATER)
    if by_plan:
        await desk.repair(plan=tmp_path / "plan")
    swept = await desk.repair(**({"apply": tmp_path / "plan"} if by_plan else {}))
    assert (swept.erasure, swept.complete) == (Erasure.DONE, True)
    assert await desk.ledger.notes("reconcile-pile") == []


async def test_one_at_a_time(desk: Desk) -> None:
    """While a sweep or another reconciliation holds the lease a second one is refused, a dry run is not."""
    await drifted(desk)
    refused: list[Any] = []

    async def second() -> None:
        refused.append(await error_of(reconcile(desk, "all"), errors.SweepRunning))
        refused.append(await error_of(desk.repair(), errors.SweepRunning))
        refused.append((await reconcile(desk)).complete)

    original = desk.stores["memories"].relabel

    async def relabel(*args: Any) -> None:
        await second()
        await original(*args)

    desk.stores["memories"].relabel = relabel  # type: ignore[method-assign]
    await reconcile(desk, "all", max_removals=100)
    assert [type(one).__name__ for one in refused] == ["SweepRunning", "SweepRunning", "bool"]


async def test_an_emptied_store_is_not_filled_unasked(tmp_path: Path) -> None:
    """More than a hundred missing that are over a third stop the run, unless `max_puts` allows them."""
    store = MemoryStore("a")
    async with open_desk(tmp_path, stores=[store]) as desk:
        for n in range(101):
            await desk.write(n, subject=f"s:{n}")
        for key in store.snapshot():
            store.drop(key)
        head = await desk.ledger.head()
        error = await error_of(reconcile(desk, ["missing"]), errors.TooManyPuts)
        assert (error.fields["planned"], error.fields["expected"]) == (101, 101)
        assert "max_puts=101" in str(error)
        assert (await desk.ledger.head(), store.snapshot()) == (head, {})
        await error_of(reconcile(desk, ["missing"], max_puts=100), errors.TooManyPuts)
        result = await reconcile(desk, ["missing"], max_puts=101)
        assert result.complete
        await desk.judge_clean()


async def test_removals_have_the_sweeps_breaker(desk: Desk) -> None:
    """More removals than a sweep would begin unasked are not begun here either."""
    for _ in range(4):
        await desk.orphan("memories")
    await error_of(reconcile(desk, ["orphan"]), errors.BreakerOpen)
    assert len(desk.stores["memories"].snapshot()) == 4
    assert (await reconcile(desk, ["missing"])).count(Drift.ORPHAN) == 4
    assert (await reconcile(desk, ["orphan"], max_removals=4)).complete


async def test_a_listing_that_skips_is_asked_again(desk: Desk) -> None:
    """What a listing did not show and the store finds when asked is not missing."""
    fact_id = await desk.written()
    key = key_of(desk, "memories", fact_id)
    store = desk.stores["memories"]
    whole = store.list_entries

    async def listing() -> Any:
        async for entry in whole():
            if entry.external_id != key:
                yield entry

    store.list_entries = listing  # type: ignore[method-assign]
    result = await reconcile(desk, "all")
    assert (result.differences, result.complete) == ((), True)


@pytest.mark.parametrize("operation", ["find", "verify_deleted"])
async def test_a_question_unanswered_is_not_missing(desk: Desk, operation: Any) -> None:
    """Where the store cannot say whether it has an entry, that is said, and nothing is put."""
    fact_id = await desk.written()
    store = desk.stores["memories"]
    store.drop(key_of(desk, "memories", fact_id))
    store.faults.refuse(operation)
    puts = store.calls["put"]
    result = await reconcile(desk, "all")
    assert result.differences == ()
    assert len(result.unanswered) == 1
    assert not result.complete
    assert store.calls["put"] == puts


async def test_a_store_that_cannot_be_asked(tmp_path: Path) -> None:
    """A listing alone does not make an entry missing."""
    store = MemoryStore("a", without=(Capability.FIND, Capability.VERIFY_DELETED))
    async with open_desk(tmp_path, stores=[store], patience=BRIEF) as desk:
        fact_id = await desk.written()
        store.drop(key_of(desk, "a", fact_id))
        result = await reconcile(desk, "all")
        assert (result.differences, result.complete) == ((), False)
        assert "cannot be asked" in result.unanswered[0]


async def test_a_put_that_fails_leaves_the_old_entry(desk: Desk) -> None:
    """An altered entry stays until its successor is there."""
    fact_id = await desk.written()
    key = key_of(desk, "memories", fact_id)
    alter(desk.stores["memories"], key, text="altered")
    desk.stores["memories"].faults.refuse("put")
    result = await reconcile(desk, "all")
    (only,) = result.differences
    assert (only.outcome, "put failed" in only.detail) == (Mended.LEFT, True)
    assert key in desk.stores["memories"].snapshot()
    desk.stores["memories"].faults.allow("put")
    assert (await reconcile(desk, "all")).complete


async def test_a_delete_that_fails_stays_pending(desk: Desk) -> None:
    """What could not be removed is named, pending in the ledger, and done by the next run."""
    fact_id = await desk.written()
    key = key_of(desk, "memories", fact_id)
    alter(desk.stores["memories"], key, text="altered")
    desk.stores["memories"].faults.refuse("delete")
    result = await reconcile(desk, "all")
    assert found(result) == [("memories", "altered_text", "left")]
    assert [row.external_id for row in await desk.ledger.pending()] == [key]
    desk.stores["memories"].faults.allow("delete")
    assert (await reconcile(desk, "all")).complete
    await desk.judge_clean()


async def test_a_label_that_cannot_be_mended_is_reported(desk: Desk) -> None:
    """A refused relabel leaves the entry as it is and says so."""
    fact_id = await desk.written()
    alter(desk.stores["memories"], key_of(desk, "memories", fact_id), space="elsewhere")
    desk.stores["memories"].faults.refuse("relabel")
    result = await reconcile(desk, "all")
    (only,) = result.differences
    assert (only.outcome, "keeps its label" in only.detail) == (Mended.LEFT, True)
    assert not result.complete


async def test_an_index_that_lags(tmp_path: Path) -> None:
    """A removal is verified once the store's index has caught up."""
    store = MemoryStore("a")
    async with open_desk(tmp_path, stores=[store]) as desk:
        fact_id = await desk.written()
        alter(store, key_of(desk, "a", fact_id), text="altered")
        store.faults.index_lag = 3
        assert (await reconcile(desk, "all")).complete


async def test_a_listing_that_breaks_off(desk: Desk) -> None:
    """What a broken listing did not come to is not called missing; what it showed is judged."""
    for n in range(4):
        await desk.write(n, subject=f"s:{n}")
    orphan = await desk.orphan("agent")
    desk.stores["memories"].faults.list_breaks_after = 2
    result = await reconcile(desk, "all")
    assert [d.external_id for d in result.differences] == [orphan]
    assert result.unanswered[0].startswith("memories: cannot list")
    assert not result.complete


async def test_a_listing_in_a_circle_ends(desk: Desk) -> None:
    """A listing that would never end is broken off, and nothing is missing for it."""
    await desk.write()
    store = desk.stores["memories"]
    whole = store.list_entries

    async def listing() -> Any:
        while True:
            async for entry in whole():
                yield entry

    store.list_entries = listing  # type: ignore[method-assign]
    result = await reconcile(desk)
    assert "cannot list" in result.unanswered[0]
    assert result.count(Drift.MISSING) == 0


async def test_hostile_rows_stop_nothing(desk: Desk) -> None:
    """A row that cannot be used is named, and the others are compared."""
    fact_id = await desk.written()
    store = desk.stores["memories"]
    alter(store, key_of(desk, "memories", fact_id), text="altered")
    whole = store.list_entries

    async def listing() -> Any:
        yield "no entry at all"
        yield Entry(store="memories", external_id="a\0b", fact_id="f", ledger_id=desk.ledger.ledger_id)
        yield replace(Entry(store="memories", external_id="c"), external_id="plain\0")
        async for entry in whole():
            yield entry

    store.list_entries = listing  # type: ignore[method-assign]
    result = await reconcile(desk)
    assert result.found["memories"] == {"altered_text": 1, "unusable": 2, "unlabelled": 1}
    assert not result.complete


async def test_retracted_while_it_is_mended(desk: Desk) -> None:
    """A fact that stops being believed meanwhile is not put again."""
    fact_id = await desk.written()
    desk.stores["memories"].drop(key_of(desk, "memories", fact_id))
    original, once = desk.stores["memories"].put, []

    async def put(*args: Any) -> Any:
        if not once:
            once.append(1)
            await desk.retract(fact_id)
        return await original(*args)

    desk.stores["memories"].put = put  # type: ignore[method-assign]
    result = await reconcile(desk, "all")
    (only,) = result.differences
    assert (only.outcome, "already_retracted" in only.detail) == (Mended.LEFT, True)
    assert desk.held() == {}


async def test_many_differences_are_counted(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """More differences than are named are counted, and mended all the same."""
    monkeypatch.setattr("custody_sync.repair.account.NAMED", 2)
    ids = [await desk.written(n, subject=f"s:{n}") for n in range(5)]
    for fact_id in ids:
        desk.stores["memories"].drop(key_of(desk, "memories", fact_id))
    result = await reconcile(desk, "all")
    assert (len(result.differences), result.unnamed) == (2, 3)
    assert result.outcomes == {"memories": {"mended": 5}}
    await desk.judge_clean()


async def test_pages_of_a_listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What differs is found on every page, and once however often it is listed."""
    monkeypatch.setattr("custody_sync.repair.reconcile.LISTED", 2)
    monkeypatch.setattr("custody_sync.repair.absent.PAGE", 2)
    monkeypatch.setattr("custody_sync.repair.pile.PAGE", 2)
    store = MemoryStore("a", page_size=2)
    store.faults.repeat_pages = True
    async with open_desk(tmp_path, stores=[store]) as desk:
        ids = [await desk.written(n, subject=f"s:{n}") for n in range(9)]
        for fact_id in ids[:3]:
            alter(store, key_of(desk, "a", fact_id), text="altered")
        store.drop(key_of(desk, "a", ids[8]))
        result = await reconcile(desk, "all")
        assert result.found["a"] == {"missing": 1, "altered_text": 3}
        await desk.judge_clean()


class Meanwhile(MemoryStore):
    """Something happens once, while it begins to list."""

    happens: Callable[[], Awaitable[object]] | None = None

    async def list_pages(self, after: str | None = None, until: str | None = None) -> AsyncIterator[Listed]:
        """Let the ledger answer whatever it is asked, then let it happen, then list."""
        happens, self.happens = self.happens, None
        if happens is not None:
            for _ in range(20):
                await asyncio.sleep(0.005)
            await happens()
        async for page in super().list_pages(after, until):
            yield page


@pytest.mark.parametrize("asks", [True, False])
@pytest.mark.parametrize("how", ["retracted", "ended"])
async def test_what_went_while_the_store_began_to_list_is_not_missed(
    tmp_path: Path, how: str, asks: bool
) -> None:
    """What is expected is known once all was listed: nothing is missing, and nobody has to be asked."""
    without = () if asks else (Capability.FIND, Capability.VERIFY_DELETED)
    async with open_desk(
        tmp_path, stores=lambda clock: [Meanwhile("a", clock=clock, without=without)]
    ) as desk:
        fact_id = await desk.written(valid_to=desk.clock.now() + timedelta(hours=1))
        store = desk.stores["a"]
        assert isinstance(store, Meanwhile)

        async def end() -> None:
            desk.clock.advance(timedelta(hours=2))
            desk.stores["a"].drop(key_of(desk, "a", fact_id))

        store.happens = end if how == "ended" else partial(desk.retract, fact_id)
        result = await reconcile(desk)
        assert store.happens is None
        assert (result.complete, result.found["a"], result.unanswered) == (True, {}, ())
        assert result.expected == {"a": 0}
