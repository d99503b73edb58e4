"""The failure table of the coordinator, row by row, and every clause of the rules under it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fix_custody import ACTOR, LATER, Desk, error_of, open_desk

from custody_sync import errors
from custody_sync.faultpoints import FaultPoint
from custody_sync.model import (
    Capability,
    Fact,
    Label,
    Limits,
    Outcome,
)
from custody_sync.stores import Deadlines
from custody_sync.testing import ManualClock, MemoryStore, testing_runtime

MINUTE = timedelta(minutes=1)


@pytest.fixture
async def three(tmp_path: Path) -> AsyncIterator[Desk]:
    """A desk with three stores; the third cannot be asked by fact id."""

    def stores(clock: ManualClock) -> list[MemoryStore]:
        return [
            MemoryStore("a", clock=clock),
            MemoryStore("b", own_ids=True, clock=clock),
            MemoryStore("c", own_ids=True, without=[Capability.FIND], clock=clock),
        ]

    async with open_desk(tmp_path, stores=stores) as desk:
        yield desk


# --- validate -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"subject": " "}, "subject"),
        ({"predicate": ""}, "predicate"),
        ({"space": ""}, "space"),
        ({"actor": "\t"}, "actor"),
        ({"value": float("nan")}, "value"),
        ({"value": 2**53}, "value"),
        ({"value": b"x"}, "value"),
        ({"value": {1: 2}}, "value"),
        ({"value": "a\x00b"}, "value"),
        ({"value": "\ud800"}, "value"),
        ({"valid_from": "2026-01-01"}, "valid_from"),
        ({"valid_from": ManualClock().now().replace(tzinfo=None)}, "valid_from"),
        ({"provenance": "verified"}, "provenance"),
        ({"provenance": "believed"}, "provenance"),
        ({"subject": None}, "subject"),
        ({"text": "  "}, "text"),
        ({"valid_to": ManualClock().now() - MINUTE}, "valid_to"),
    ],
)
async def test_validate_shape(desk: Desk, wrong: dict[str, Any], field: str) -> None:
    """A malformed write is a named error before any store is touched."""
    error = await error_of(desk.write(**{"value": "pro"} | wrong), errors.InvalidInput)
    assert error.field == field
    assert await desk.untouched()


async def test_validate_limits_over_all_stores(tmp_path: Path) -> None:
    """A text over the limit of any one store is refused before the others take it."""
    stores = [MemoryStore("wide"), MemoryStore("narrow", limits=Limits(text_bytes=8))]
    async with open_desk(tmp_path, stores=stores) as desk:
        error = await error_of(desk.write(text="äöüäö"), errors.TextTooLong)
        assert (error.store, error.size, error.unit) == ("narrow", 10, "bytes")
        assert await desk.untouched()
        assert (await desk.write(text="fits")).complete


async def test_validate_validators(tmp_path: Path) -> None:
    """A validator that raises stops the write before any store is touched."""

    async def refuse(fact: Fact, view: object) -> Fact:
        raise ValueError("no")

    async with open_desk(tmp_path, validators=[refuse]) as desk:
        error = await error_of(desk.write(), errors.ValidatorFailed)
        assert (error.validator, error.problem) == ("refuse", "it raised ValueError")
        assert await desk.untouched()


async def test_c14_validate_ledgers_own_checks(desk: Desk) -> None:
    """C14: a write that the ledger refuses (unknown target) reaches no store."""
    await error_of(desk.write(supersedes="nobody"), errors.UnknownFact)
    assert await desk.untouched()


async def test_validate_ledgers_own_checks_by_name(desk: Desk) -> None:
    """Covered, retracted, earlier and other targets are refused by name before any store is touched."""
    first = await desk.written("pro")
    await desk.written("trial", supersedes=first)
    gone = await desk.written("x", subject="acct:7")
    await desk.retract(gone)
    third = await desk.written("x", subject="acct:8")
    puts = {name: store.calls["put"] for name, store in desk.stores.items()}
    head = await desk.ledger.head()
    await error_of(desk.write("free", supersedes=first), errors.AlreadyCovered)
    await error_of(desk.write("free", subject="acct:7", supersedes=gone), errors.AlreadyRetracted)
    early = desk.clock.now() - MINUTE
    await error_of(
        desk.write("y", subject="acct:8", supersedes=third, valid_from=early), errors.StartsTooEarly
    )
    await error_of(desk.write("y", subject="acct:9", supersedes=third), errors.OtherStatement)
    assert {name: store.calls["put"] for name, store in desk.stores.items()} == puts
    assert await desk.ledger.head() == head
    await desk.judge_clean()


@pytest.mark.parametrize(("skew", "refused"), [(120, False), (121, True), (-121, True)])
async def test_validate_clock_skew(tmp_path: Path, skew: int, refused: bool) -> None:
    """Two clocks more than two minutes apart refuse the write; two minutes are allowed."""
    async with open_desk(tmp_path) as desk:
        other = testing_runtime(clock=ManualClock(desk.clock.now() + timedelta(seconds=skew)), seed=1)
        custody = desk.coordinator(runtime=other)
        call = custody.write(value="x", space="org", actor=ACTOR)
        if refused:
            assert (await error_of(call, errors.ClockSkew)).seconds == 121
            assert await desk.untouched()
        else:
            assert (await call).complete


async def test_validate_keyed_write_reserves_its_id(desk: Desk) -> None:
    """A keyed write has reserved its id by the time validation is over, and gives it back at the end."""
    seen: list[int] = []

    def look() -> None:
        async def ask() -> None:
            seen.append(len(await desk.ledger.notes("reservation")))

        asked.append(asyncio.ensure_future(ask()))

    asked: list[asyncio.Future[None]] = []
    desk.call_next(FaultPoint.VALIDATED, look)
    await desk.write(idempotency_key="k")
    await asyncio.gather(*asked)
    assert seen == [1]
    assert await desk.ledger.notes("reservation") == []


# --- stores ---------------------------------------------------------------------------------


async def test_stores_put_at_once(tmp_path: Path) -> None:
    """All stores are asked at once: none waits for another's answer."""
    both = asyncio.Barrier(2)

    class Meeting(MemoryStore):
        async def put(self, fact: Fact, label: Label) -> Sequence[str]:
            await both.wait()
            return await super().put(fact, label)

    async with open_desk(tmp_path, stores=[Meeting("a"), Meeting("b")]) as desk:
        assert (await desk.write()).complete


async def test_stores_each_with_its_limiter(tmp_path: Path) -> None:
    """Each store runs at most `concurrency` calls at once, and one store's queue holds up no other."""

    class Counting(MemoryStore):
        running = most = 0

        async def put(self, fact: Fact, label: Label) -> Sequence[str]:
            self.running += 1
            self.most = max(self.most, self.running)
            await asyncio.sleep(0)
            self.running -= 1
            return await super().put(fact, label)

    stores = [Counting("a"), Counting("b")]
    async with open_desk(tmp_path, stores=stores, deadlines=Deadlines(concurrency=2)) as desk:
        await asyncio.gather(*(desk.write(n, subject=f"s:{n}") for n in range(8)))
        assert [store.most for store in stores] == [2, 2]
        await desk.judge_clean()


async def test_stores_each_with_its_timeout(tmp_path: Path) -> None:
    """A store that does not answer within its deadline fails the write, and the others are taken back."""
    slow, quick = MemoryStore("slow"), MemoryStore("quick")
    slow.faults.delays["put"] = 3600
    async with open_desk(tmp_path, stores=[quick, slow], deadlines=Deadlines(put=0.02)) as desk:
        error = await error_of(desk.write(), errors.StoreWriteFailed)
        assert (error.store, error.cause) == ("slow", "TimeoutError")
        assert quick.snapshot() == {}
        await desk.judge(left=error.left)


async def test_stores_stamp_after_the_limiters_wait(tmp_path: Path) -> None:
    """`stored_at` is stamped when the limiter lets a put through, not when it begins to queue."""
    clock = ManualClock()

    class Passing(MemoryStore):
        async def put(self, fact: Fact, label: Label) -> Sequence[str]:
            clock.advance(60)
            return await super().put(fact, label)

    store = Passing("a", clock=clock)
    async with open_desk(tmp_path, stores=[store], clock=clock, deadlines=Deadlines(concurrency=1)) as desk:
        start = clock.now()
        await asyncio.gather(*(desk.write(n, subject=f"s:{n}") for n in range(3)))
        stamps = sorted(e.stored_at for e in store.snapshot().values() if e.stored_at)
        assert stamps == [start, start + MINUTE, start + 2 * MINUTE]


async def test_stores_wait_for_all_to_settle(tmp_path: Path) -> None:
    """Compensation begins only when every put has settled, so none lands behind its back."""
    refused, slow = MemoryStore("refused"), MemoryStore("slow")
    refused.faults.refuse("put", errors.StoreRefused(store="refused", operation="put", cause="no"))
    done: list[str] = []

    async def wait(seconds: float) -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        done.append("put")

    slow._sleep = wait
    slow.faults.delays["put"] = 1
    async with open_desk(tmp_path, stores=[refused, slow]) as desk:
        desk.call_next(FaultPoint.BEFORE_COMPENSATION, lambda: done.append("compensation"))
        error = await error_of(desk.write(), errors.StoreWriteFailed)
        assert done == ["put", "compensation"]
        assert (error.removed, error.left) == (["slow"], [])
        assert await desk.judge_clean() == set()


async def test_stores_timed_out_thread_counts_as_unknown(tmp_path: Path) -> None:
    """A put whose thread outlives its deadline is unknown: named as left, swept when it lands."""
    go, landed = threading.Event(), threading.Event()

    class Blocking(MemoryStore):
        async def put(self, fact: Fact, label: Label) -> Sequence[str]:
            def work() -> tuple[str, ...]:
                go.wait(30)
                ids = self._take(fact, label)
                landed.set()
                return ids

            return await asyncio.to_thread(work)

    clock = ManualClock()
    store = Blocking("blocking", clock=clock)
    async with open_desk(tmp_path, stores=[store], clock=clock, deadlines=Deadlines(put=0.02)) as desk:
        error = await error_of(desk.write(), errors.StoreWriteFailed)
        assert (error.removed, error.left) == ([], ["blocking"])
        assert store.snapshot() == {}
        go.set()
        await asyncio.to_thread(landed.wait, 30)
        assert len(store.snapshot()) == 1
        clock.advance(LATER)
        result = await desk.repair()
        assert [item.outcome for item in result.repaired] == [Outcome.VERIFIED]
        assert await desk.judge_clean() == set()


async def test_stores_compensate_deletes_and_verifies(three: Desk) -> None:
    """What was taken is deleted and asked about until seen gone; an id not shown to be ours is named."""
    three.stores["a"].faults.index_lag = 2
    three.stores["b"].faults.refuse("put", errors.StoreRefused(store="b", operation="put", cause="no"))
    error = await error_of(three.write(), errors.StoreWriteFailed)
    assert (error.store, error.cause) == ("b", "no")
    assert (error.removed, error.left) == (["a"], ["c"])
    assert three.stores["a"].calls["verify_deleted"] == 3
    assert await three.judge(left=["c"]) == set()
    three.clock.advance(LATER)
    assert (await three.repair()).complete
    assert await three.judge_clean() == set()


async def test_c13_second_store_refuses(desk: Desk) -> None:
    """C13: the second of two stores refuses: nothing is believed, the first is empty, the error names it."""
    second = desk.stores["agent"]
    second.faults.refuse("put", errors.StoreRefused(store="agent", operation="put", cause="HTTPError 422"))
    error = await error_of(desk.write(), errors.StoreWriteFailed)
    assert (error.store, error.cause, error.removed, error.left) == (
        "agent",
        "HTTPError 422",
        ["memories"],
        [],
    )
    assert await desk.current() == []
    assert desk.held() == {}
    assert (await desk.ledger.head()).seq == 0


async def test_stores_write_failed_names_what_may_be_left(three: Desk) -> None:
    """A lost reply is looked for where the store can be asked; else, and when a delete fails, it is named."""
    a, b, c = three.stores.values()
    a.faults.refuse("delete")
    b.faults.lose_reply("put")
    c.faults.lose_reply("put")
    error = await error_of(three.write(), errors.StoreWriteFailed)
    assert error.store == "b"
    assert (error.removed, sorted(error.left)) == (["b"], ["a", "c"])
    assert set(three.held_of(error.fact_id)) == {"a", "c"}
    await three.judge(left=error.left)
    a.faults.allow()
    three.clock.advance(LATER)
    assert (await three.repair()).complete
    assert await three.judge_clean() == set()


async def test_stores_c19_no_id_is_no_confirmation(tmp_path: Path) -> None:
    """C19: a store that answers without an id has not confirmed; no id is recorded that it does not have."""

    class Pending(MemoryStore):
        answer: Any = ()

        async def put(self, fact: Fact, label: Label) -> Sequence[str]:
            await super().put(fact, label)
            return self.answer

    store = Pending("queue")
    async with open_desk(tmp_path, stores=[store]) as desk:
        for answer in ((), None, "id", [""], [None], 7, ["a\x00"], ["erased~1"]):
            store.answer = answer
            error = await error_of(desk.write(), errors.StoreWriteFailed)
            assert error.store == "queue"
            assert await desk.judge_clean() == set()
        assert (await desk.ledger.head()).seq == 0


async def test_stores_scope_that_cannot_be_told(tmp_path: Path) -> None:
    """A scope callable that raises stops the put of its store; the others are taken back."""

    class Scoped(MemoryStore):
        def scope_of(self, fact: Fact) -> str | None:
            raise KeyError(fact.text)

    scoped = Scoped("scoped")
    async with open_desk(tmp_path, stores=[MemoryStore("plain"), scoped]) as desk:
        error = await error_of(desk.write(), errors.StoreWriteFailed)
        assert (error.store, error.cause, error.left) == ("scoped", "KeyError", [])
        assert not scoped.calls["put"]
        assert await desk.judge_clean() == set()


@pytest.mark.parametrize(("lost", "left"), [(True, ["memories"]), (False, [])])
async def test_stores_that_cannot_be_looked_into(desk: Desk, lost: bool, left: list[str]) -> None:
    """A lost reply of a store that cannot be looked into is named as left; a clear refusal is not."""
    faults = desk.stores["memories"].faults
    faults.refuse("find")
    if lost:
        faults.lose_reply("put")
    else:
        faults.refuse("put", errors.StoreRefused(store="memories", operation="put", cause="no"))
    error = await error_of(desk.write(), errors.StoreWriteFailed)
    assert (error.removed, error.left) == (["agent"], left)
    assert await desk.judge(left=error.left) == set()
