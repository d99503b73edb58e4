"""All that is believed goes into a store that came later: once, whoever else puts at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fix_custody import ACTOR, LATER, Crash, Desk, error_of, open_desk

from custody_sync import errors
from custody_sync.coordinator import AsyncCoordinator
from custody_sync.faultpoints import FaultPoint
from custody_sync.model import Capability, Limits
from custody_sync.testing import MemoryStore


def added(desk: Desk, **options: Any) -> AsyncCoordinator:
    """Return a coordinator over the desk's stores and one that came later."""
    options.setdefault("name", "new")
    store = MemoryStore(options.pop("name"), clock=desk.clock, **options)
    desk.stores[store.name] = store
    return desk.coordinator()


async def some(desk: Desk, count: int, **more: Any) -> list[str]:
    """Write facts about several accounts."""
    return [await desk.written(f"v{n}", subject=f"acct:{n}", **more) for n in range(count)]


async def backfill(custody: AsyncCoordinator, store: str = "new", **more: Any) -> Any:
    """Fill for good, unless told otherwise."""
    return await custody.backfill(store, **({"actor": ACTOR, "dry_run": False} | more))


async def test_all_that_is_believed(desk: Desk) -> None:
    """Neither claims nor what was retracted, superseded or forgotten goes into the new store."""
    kept = await some(desk, 4)
    await desk.retract(kept.pop())
    await desk.forget(kept.pop())
    kept.append(await desk.written("later", subject="acct:0", supersedes=kept.pop(0)))
    await desk.written("claim", subject="acct:9", provenance="claimed")
    custody = added(desk)
    result = await backfill(custody)
    assert (result.lacking, result.placed, result.complete) == (2, 2, True)
    assert {entry.fact_id for entry in desk.stores["new"].snapshot().values()} == set(kept)
    assert await desk.judge_clean() == set(kept)
    assert desk.stores["new"].calls["put_many"] == 1


async def test_a_dry_run_only_counts(desk: Desk) -> None:
    """It is the default, and says what the store would refuse."""
    await some(desk, 3)
    await desk.written("much too long for that store", subject="acct:long")
    custody = added(desk, limits=Limits(text_chars=25))
    head = await desk.ledger.head()
    result = await custody.backfill("new", actor=ACTOR)
    assert (result.dry_run, result.lacking, result.placed) == (True, 4, 3)
    assert list(result.refused) == ["its text is longer than the 25 characters that store 'new' takes"]
    assert (desk.stores["new"].snapshot(), await desk.ledger.head()) == ({}, head)
    done = await backfill(custody)
    assert (done.placed, done.refused, done.complete) == (3, result.refused, False)


async def test_again_there_is_nothing_to_do(desk: Desk) -> None:
    """A second run finds it done and puts nothing."""
    await some(desk, 3)
    custody = added(desk)
    await backfill(custody)
    head = await desk.ledger.head()
    again = await backfill(custody)
    assert (again.lacking, again.placed, again.complete) == (0, 0, True)
    assert await desk.ledger.head() == head


async def test_a_space_and_a_limit(desk: Desk) -> None:
    """Only what was asked for is put; what a limit left of it is told, and the next run goes on."""
    for n in range(6):
        await desk.written(n, subject=f"acct:{n}", space=f"user:{n % 2}")
    custody = added(desk)
    for placed, more in ((2, True), (1, False)):
        result = await backfill(custody, space="user:1", limit=2)
        assert (result.placed, result.more, result.complete) == (placed, more, not more)
    assert {e.space for e in desk.stores["new"].snapshot().values()} == {"user:1"}
    assert (await backfill(custody, space="user:*")).placed == 3


async def test_what_a_batch_cannot_say(desk: Desk) -> None:
    """A batch that fails is taken back, and each fact says by itself what is wrong with it."""
    await some(desk, 5)
    custody = added(desk)
    store = desk.stores["new"]
    real, batch = store.put, store.put_many

    async def halves(items: Sequence[Any]) -> Any:
        await batch(items[:2])
        raise errors.StoreUnavailable(store="new", operation="put_many", cause="E 500")

    async def picky(fact: Any, label: Any) -> Any:
        if fact.subject == "acct:3":
            raise errors.StoreRefused(store="new", operation="put", cause="E 422")
        return await real(fact, label)

    store.put, store.put_many = picky, halves  # type: ignore[method-assign]
    result = await backfill(custody)
    assert (result.placed, result.refused) == (4, {"put failed (E 422)": 1})
    assert len(store.snapshot()) == 4
    store.put, store.put_many = real, batch  # type: ignore[method-assign]
    assert (await backfill(custody)).placed == 1
    assert len(await desk.judge_clean()) == 5


async def test_a_lost_reply_that_nobody_can_ask_after(desk: Desk) -> None:
    """A store that may have taken a batch, and cannot be asked, is named: what it may hold is for repair."""
    await some(desk, 3)
    custody = added(desk, without=[Capability.FIND])
    desk.stores["new"].faults.lose_reply("put_many")
    result = await backfill(custody)
    assert (result.placed, result.left, result.complete) == (3, 3, False)
    assert len(set(result.leftovers)) == 3
    assert len(desk.stores["new"].snapshot()) == 6
    desk.clock.advance(LATER)
    assert (await custody.repair(actor=ACTOR, reason="left", max_removals=3)).complete
    assert len(desk.stores["new"].snapshot()) == 3


async def test_what_cannot_be_taken_back_is_told(desk: Desk) -> None:
    """A fact forgotten between put and place leaves its entry where the store refuses to give it up."""
    gone, *_ = await some(desk, 2)
    custody = added(desk)
    store = desk.stores["new"]
    put_many = store.put_many

    async def overtaken(items: Any) -> Any:
        answer = await put_many(items)
        await desk.forget(gone)
        store.faults.refuse("delete")
        return answer

    store.put_many = overtaken  # type: ignore[method-assign]  # the race, made certain
    result = await backfill(custody)
    assert (result.placed, result.placed_elsewhere, result.left) == (1, 1, 1)
    assert (result.leftovers, result.complete) == ((gone,), False)


@pytest.mark.parametrize("without", [[], [Capability.PUT_MANY]])
async def test_two_at_once(desk: Desk, without: list[Capability]) -> None:
    """Each fact is placed once; whoever comes second takes its own entry back."""
    facts = await some(desk, 30)
    custody = added(desk, without=without)
    one, two = await asyncio.gather(backfill(custody), backfill(desk.coordinator()))
    assert one.placed + two.placed == 30
    assert (one.complete, two.complete) == (True, True)
    assert await desk.judge_clean() == set(facts)


async def test_writers_beside_it(desk: Desk) -> None:
    """What is written and retracted meanwhile is right in the new store, too."""
    facts = await some(desk, 10)
    custody = added(desk)

    async def change() -> None:
        for fact_id in facts[::2]:
            await custody.retract(fact_id, actor=ACTOR, reason="wrong")
        for n in range(5):
            await custody.write(value=n, subject=f"new:{n}", predicate="plan", space="org", actor=ACTOR)

    await asyncio.gather(backfill(custody), change())
    desk.clock.advance(LATER)
    assert (await custody.repair(actor="ops", reason="after")).complete
    assert len(await desk.judge_clean()) == 10


async def test_killed_between_put_and_place(desk: Desk) -> None:
    """What was put and not recorded is a stray that the sweep removes; the next run puts it again."""
    facts = await some(desk, 3)
    custody = added(desk)
    for _ in range(2):
        desk.fail_next(FaultPoint.RESTORED, Crash())
        with pytest.raises(Crash):
            await backfill(custody)
    assert len(desk.stores["new"].snapshot()) == 6
    assert (await backfill(custody)).placed == 3
    desk.clock.advance(LATER)
    await custody.repair(actor="ops", reason="after a crash", max_removals=6)
    assert await desk.judge_clean() == set(facts)


async def test_a_ledger_that_goes(desk: Desk) -> None:
    """The run ends with a result that says so, and the next one goes on."""
    await some(desk, 2)
    custody = added(desk)
    desk.fail_next(FaultPoint.BEFORE_COMMIT, errors.LedgerFull(name="custody.db"))
    result = await backfill(custody)
    assert (result.stopped, result.complete) == ("ledger_full", False)
    desk.clock.advance(timedelta(seconds=1))
    again = await backfill(custody)
    assert result.placed + again.placed == 2


async def test_arguments(tmp_path: Path) -> None:
    """A store that is not configured, a limit of none and an odd space are refused."""
    async with open_desk(tmp_path) as desk:
        for wrong in ({"limit": 0}, {"space": "a*b"}):
            await error_of(backfill(desk.custody, "agent", **wrong), errors.InvalidInput)
        await error_of(backfill(desk.custody, "nowhere"), errors.InvalidInput)
        assert await desk.untouched()


async def test_a_store_without_ids_of_ours(desk: Desk) -> None:
    """Where the store makes the ids they are recorded as it gave them."""
    facts = await some(desk, 3)
    custody = added(desk, own_ids=True)
    assert (await backfill(custody)).placed == 3
    rows = [row for f in facts for row in await desk.ledger.placements(f) if row.store == "new"]
    assert sorted(row.external_id for row in rows) == sorted(desk.stores["new"].snapshot())
    assert replace(rows[0]).stored_at is not None
