"""The failure table of the coordinator, row by row, and every clause of the rules under it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from fix_custody import ACTOR, BRIEF, LATER, Desk, error_of, open_desk

from custody_sync import AsyncCoordinator, errors
from custody_sync.faultpoints import FaultPoint
from custody_sync.ledger import Ledger, Retract
from custody_sync.model import (
    Capability,
    Entry,
    Fact,
    Label,
    Limits,
    Outcome,
    PlacementState,
    Provenance,
)
from custody_sync.removal import Mandate, Patience
from custody_sync.stores import Deadlines
from custody_sync.testing import FOREVER, ManualClock, MemoryStore, testing_runtime

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


async def nothing_happened(desk: Desk) -> None:
    """Check that no store was called and no event was appended."""
    assert not any(store.calls for store in desk.stores.values())
    assert (await desk.ledger.head()).seq == 0


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
    await nothing_happened(desk)


async def test_validate_limits_over_all_stores(tmp_path: Path) -> None:
    """A text over the limit of any one store is refused before the others take it."""
    stores = [MemoryStore("wide"), MemoryStore("narrow", limits=Limits(text_bytes=8))]
    async with open_desk(tmp_path, stores=stores) as desk:
        error = await error_of(desk.write(text="äöüäö"), errors.TextTooLong)
        assert (error.store, error.size, error.unit) == ("narrow", 10, "bytes")
        await nothing_happened(desk)
        assert (await desk.write(text="fits")).complete


async def test_validate_validators(tmp_path: Path) -> None:
    """A validator that raises stops the write before any store is touched."""

    async def refuse(fact: Fact, view: object) -> Fact:
        raise ValueError("no")

    async with open_desk(tmp_path, validators=[refuse]) as desk:
        error = await error_of(desk.write(), errors.ValidatorFailed)
        assert (error.validator, error.problem) == ("refuse", "it raised ValueError")
        await nothing_happened(desk)


async def test_c14_validate_ledgers_own_checks(desk: Desk) -> None:
    """C14: a write that the ledger refuses (unknown target) reaches no store."""
    await error_of(desk.write(supersedes="nobody"), errors.UnknownFact)
    await nothing_happened(desk)


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
            await nothing_happened(desk)
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
    """A put whose thread outlives its deadline is unknown: named as left, and swept when it lands after all."""
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
    """What was taken is deleted and asked about until it is seen gone."""
    three.stores["a"].faults.index_lag = 2
    three.stores["b"].faults.refuse("put", errors.StoreRefused(store="b", operation="put", cause="no"))
    error = await error_of(three.write(), errors.StoreWriteFailed)
    assert (error.store, error.cause) == ("b", "no")
    assert (sorted(error.removed), error.left) == (["a", "c"], [])
    assert three.stores["a"].calls["verify_deleted"] == 3
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


# --- ledger ---------------------------------------------------------------------------------


async def test_ledger_appends_with_the_placements(desk: Desk) -> None:
    """The assert carries every placement, as the stores hold them."""
    written = await desk.write()
    (event,) = await desk.ledger.history(written.fact.fact_id)
    placed = {p["store"]: p["external_id"] for p in event.sealed["refs"]["placements"]}  # type: ignore[index,union-attr,call-overload]
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
        ("agent", "not recorded (stale_placement)"),
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


@pytest.mark.parametrize("error", [errors.LedgerFull, errors.LedgerBusy, errors.LedgerReadOnly])
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


# --- ledger first, then stores --------------------------------------------------------------


@pytest.mark.parametrize("act", ["retract", "forget", "supersede"])
async def test_removal_is_ledger_first(desk: Desk, act: str) -> None:
    """Retract, forget and supersession are recorded before a store is asked to delete."""
    fact_id = await desk.written()
    heads: list[int] = []
    first = (await desk.ledger.head()).seq

    def look() -> None:
        heads.append(int(desk.plan.reached[FaultPoint.AFTER_COMMIT]))

    commits = desk.plan.reached[FaultPoint.AFTER_COMMIT]
    desk.call_next(FaultPoint.BEFORE_DELETE, look)
    if act == "supersede":
        await desk.written("free", supersedes=fact_id)
    else:
        await getattr(desk, act)(fact_id)
    assert heads == [commits + 1]
    assert (await desk.ledger.head()).seq > first
    await desk.judge_clean()


async def test_stores_follow_the_difference_of_the_believed_set(desk: Desk) -> None:
    """What a retraction makes believed again is placed again, under a new generation."""
    base = await desk.write("pro")
    tip = await desk.written("free", supersedes=base.fact.fact_id)
    result = await desk.retract(tip)
    assert result.complete
    assert {(item.fact_id, item.store) for item in result.restored} == {
        (base.fact.fact_id, "memories"),
        (base.fact.fact_id, "agent"),
    }
    assert await desk.kinds(base.fact.fact_id) == [
        "assert",
        "remove",
        "remove",
        "place",
        "place",
    ]
    assert await desk.judge_clean() == {base.fact.fact_id}


@pytest.mark.parametrize("act", ["retract", "forget", "supersede"])
async def test_custody_does_not_depend_on_a_store(desk: Desk, act: str) -> None:
    """With a store down the ledger still records it, the other store is cleaned, and the rest is pending."""
    fact_id = await desk.written()
    down = desk.stores["agent"].faults
    for operation in ("put", "delete", "find", "verify_deleted", "search"):
        down.refuse(operation)  # type: ignore[arg-type]  # the names are operations
    if act == "supersede":
        down.allow("put")
        result: Any = await desk.write("free", supersedes=fact_id)
    else:
        result = await getattr(desk, act)(fact_id)
    assert not result.complete
    assert {(r.store, r.outcome) for r in result.removals} == {("memories", "verified"), ("agent", "failed")}
    assert [p.store for p in await desk.ledger.pending()] == ["agent"]
    assert fact_id not in await desk.judge()
    down.allow()
    assert (await desk.repair()).complete
    await desk.judge_clean()


async def test_c15_retract_with_one_store_down(desk: Desk) -> None:
    """C15: the down store's entry is `failed` and pending; `repair` verifies it later; one retract event in all."""
    fact_id = await desk.written()
    for operation in ("delete", "find", "verify_deleted"):
        desk.stores["agent"].faults.refuse(operation)  # type: ignore[arg-type]  # the names are operations
    result = await desk.retract(fact_id)
    assert {(r.store, r.outcome) for r in result.removals} == {("memories", "verified"), ("agent", "failed")}
    assert "memories" not in desk.held_of(fact_id)
    again = await desk.retract(fact_id)
    assert not again.complete
    desk.stores["agent"].faults.allow()
    repaired = await desk.repair()
    assert [(r.store, r.kind, r.outcome) for r in repaired.repaired] == [("agent", "pending", "verified")]
    kinds = await desk.kinds(fact_id)
    assert kinds.count("retract") == 1
    assert await desk.outcomes(fact_id) == [
        ("memories", "verified"),
        ("agent", "failed"),
        ("agent", "verified"),
    ]
    assert await desk.judge_clean() == set()


async def test_removal_acts_on_placements_and_what_find_shows(desk: Desk) -> None:
    """An entry that only the store's own look-up shows is removed with the placements."""
    fact_id = await desk.written()
    stray = await desk.orphan("agent", fact_id=fact_id)
    result = await desk.retract(fact_id)
    assert {r.external_id for r in result.removals} >= {stray}
    assert result.complete
    assert desk.held() == {}


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        ("none", "verified"),
        ("once", "verified"),
        ("five", "verified"),
        ("six", "still_indexed"),
        ("forever", "still_indexed"),
        ("silent", "still_indexed"),
        ("search", "unverified"),
        ("no_question", "unverified"),
        ("no_proof", "unverified"),
        ("delete", "failed"),
        ("delete_but_gone", "verified"),
        ("flaky_delete", "verified"),
    ],
)
async def test_c16_how_a_removal_ends(tmp_path: Path, fault: str, outcome: str) -> None:
    """C16: verified, still_indexed, unverified or failed, each for its reason; never verified on an error."""
    without = [Capability.VERIFY_DELETED] if fault == "no_question" else []
    store = MemoryStore("store", without=without)
    async with open_desk(tmp_path, stores=[store]) as desk:
        fact_id = await desk.written()
        lag = {"once": 1, "five": 5, "six": 6, "forever": FOREVER}
        store.faults.index_lag = lag.get(fault, 0)
        store.faults.silent_delete = fault == "silent"
        if fault == "search":
            store.faults.refuse("search")
        if fault == "no_proof":
            proof = errors.NoProof(store="store", operation="verify_deleted", cause="an empty index")
            store.faults.refuse("verify_deleted", proof)
        if fault == "delete":
            store.faults.refuse("delete")
        if fault == "delete_but_gone":
            store.drop(next(iter(store.snapshot())))
            store.faults.refuse("delete")
        if fault == "flaky_delete":
            store.faults.refuse("delete", times=2)
        result = await desk.retract(fact_id)
        assert [r.outcome for r in result.removals] == [outcome]
        assert result.complete is (outcome == "verified")
        assert await desk.outcomes(fact_id) == [("store", outcome)]
        if fault == "once":
            assert store.calls["verify_deleted"] == 2
        if fault == "five":
            assert store.calls["verify_deleted"] == 6
        if fault == "no_proof":
            assert store.calls["verify_deleted"] == 1


async def test_removal_asks_six_times_with_growing_waits(tmp_path: Path) -> None:
    """By default a store is asked at least six times, the waits grow, and together they stay under ten seconds."""
    store = MemoryStore("store")
    async with open_desk(tmp_path, stores=[store]) as desk:
        fact_id = await desk.written()
        store.faults.index_lag = FOREVER
        times = []

        ask = store.verify_deleted

        async def watched(entry: Entry) -> bool:
            times.append(desk.clock.now())
            return await ask(entry)

        store.verify_deleted = watched  # type: ignore[method-assign]  # watched from outside
        await desk.retract(fact_id)
        waits = [b - a for a, b in zip(times, times[1:], strict=False)]
        assert len(times) >= 6
        assert waits == sorted(waits)
        assert waits[0] < waits[-1]
        assert times[-1] - times[0] <= timedelta(seconds=10)


async def test_removal_gives_up_after_its_patience(tmp_path: Path) -> None:
    """A store that hangs on every question ends as unverified when the patience is over."""
    store = MemoryStore("store")
    patience = Patience(total=0.05)
    async with open_desk(tmp_path, stores=[store], patience=patience) as desk:
        fact_id = await desk.written()
        store.faults.delays["verify_deleted"] = 3600
        result = await desk.retract(fact_id)
        assert [(r.outcome, r.detail) for r in result.removals] == [("unverified", "no answer in time")]


async def test_c17_a_crowd_of_equal_texts(tmp_path: Path) -> None:
    """C17: thirteen equal texts and a delete that silently did nothing: not verified."""
    store = MemoryStore("store")
    async with open_desk(tmp_path, stores=[store]) as desk:
        ids = [await desk.written("same", text="same", subject=f"s:{n}") for n in range(13)]
        store.faults.silent_delete = True
        result = await desk.forget(ids[-1])
        assert [r.outcome for r in result.removals] == ["still_indexed"]
        assert not result.complete


async def test_c18_already_gone_is_success_but_still_asked(tmp_path: Path) -> None:
    """C18: deleting what is already gone is success, and it is verified all the same."""
    store = MemoryStore("store")
    async with open_desk(tmp_path, stores=[store]) as desk:
        written = await desk.write()
        store.drop(written.placements["store"][0])
        result = await desk.retract(written.fact.fact_id)
        assert [r.outcome for r in result.removals] == ["verified"]
        assert store.calls["verify_deleted"] == 1


async def test_c18_a_404_for_a_wrong_scope_is_no_proof(tmp_path: Path) -> None:
    """C18: a delete addressed to a wrong scope finds nothing, and the entry is not reported gone."""

    class Moved(MemoryStore):
        def scope_of(self, fact: Fact) -> str | None:
            return "new"

        async def put(self, fact: Fact, label: Label) -> Sequence[str]:
            self._scope = "old"
            ids = self._take(fact, label)
            self._held[ids[0]] = replace(self._held[ids[0]], scope="old")
            return ids

        async def verify_deleted(self, entry: Entry) -> bool:
            if entry.scope != "old":
                raise errors.NoProof(store=self.name, operation="verify_deleted", cause="no such scope")
            return await super().verify_deleted(entry)

    store = Moved("store", without=[Capability.FIND])
    async with open_desk(tmp_path, stores=[store]) as desk:
        fact_id = await desk.written()
        result = await desk.retract(fact_id)
        assert [r.outcome for r in result.removals] == ["unverified"]
        assert len(store.snapshot()) == 1


async def test_external_id_of_another_fact_is_never_deleted(desk: Desk) -> None:
    """An entry that shows one fact's label under an id placed for another is left alone by retract and repair."""
    first = await desk.write("pro")
    second = await desk.written("x", subject="acct:2")
    (key,) = first.placements["agent"]
    relabelled = dict(desk.stores["agent"].metadata(key)) | {"fact_id": second}
    held = desk.stores["agent"]._held[key]
    desk.stores["agent"]._held[key] = replace(held, metadata=relabelled)
    result = await desk.retract(second)
    assert key not in {r.external_id for r in result.removals}
    assert key in desk.stores["agent"].snapshot()
    desk.clock.advance(LATER)
    swept = await desk.repair()
    assert key in desk.stores["agent"].snapshot()
    assert swept.unrecorded == (f"agent/{key}: placed for another fact",)
    assert not swept.complete


async def test_store_that_is_not_configured(desk: Desk) -> None:
    """A placement in a store that is not configured here is `failed`, pending, and never called gone."""
    fact_id = await desk.written()
    few = desk.coordinator(stores=[desk.stores["memories"]])
    result = await few.retract(fact_id, actor=ACTOR, reason="wrong")
    assert {(r.store, r.outcome, r.detail) for r in result.removals} == {
        ("memories", "verified", ""),
        ("agent", "failed", "this store is not configured here"),
    }
    assert not result.complete
    swept = await few.repair(actor=ACTOR, reason="sweep")
    assert not swept.complete
    asked = await few.verify(actor=ACTOR)
    assert not asked.complete
    assert await desk.outcomes(fact_id) == [("memories", "verified"), ("agent", "failed")]
    assert (await desk.repair()).complete
    assert await desk.judge_clean() == set()


async def test_pending_is_drained_by_calling_again_and_by_verify(desk: Desk) -> None:
    """Each change of outcome is one `remove` event; calling again resumes, and so does `verify`."""
    store = desk.stores["agent"]
    first, second = await desk.written(), await desk.written(subject="acct:2")
    store.faults.index_lag = FOREVER
    await desk.retract(first)
    await desk.retract(first)
    assert await desk.outcomes(first) == [("memories", "verified"), ("agent", "still_indexed")]
    await desk.retract(second)
    store.faults.index_lag = 0
    again = await desk.retract(first)
    assert again.complete
    assert await desk.outcomes(first) == [
        ("memories", "verified"),
        ("agent", "still_indexed"),
        ("agent", "verified"),
    ]
    assert (await desk.verify(fact_ids=[second])).complete
    assert await desk.ledger.pending() == []
    assert await desk.judge_clean() == set()


async def test_text_probes_only_inside_the_forget_call(tmp_path: Path) -> None:
    """The text goes to the store only while `forget` runs; repair, verify and a second call go by id and label."""
    asked: list[str | None] = []

    class Listening(MemoryStore):
        async def verify_deleted(self, entry: Entry) -> bool:
            asked.append(entry.text)
            return await super().verify_deleted(entry)

    store = Listening("store")
    async with open_desk(tmp_path, stores=[store], patience=BRIEF) as desk:
        fact_id = await desk.written("123-45-6789")
        store.faults.silent_delete = True
        await desk.forget(fact_id)
        assert set(asked) == {"acct:42 plan: 123-45-6789"}
        asked.clear()
        await desk.verify()
        await desk.repair()
        store.faults.silent_delete = False
        assert (await desk.forget(fact_id)).complete
        assert asked
        assert set(asked) == {None}


@pytest.mark.parametrize("act", ["write", "retract", "forget", "confirm"])
@pytest.mark.parametrize("trouble", ["stores", "ledger"])
async def test_nothing_raises_after_the_ledger_committed(desk: Desk, act: str, trouble: str) -> None:
    """Once recorded, trouble in stores or ledger shows in the result, which is not complete; nothing raises."""
    base = await desk.written("pro")
    claimed = await desk.written("free", supersedes=base, provenance="claimed")

    def stores_down() -> None:
        for store in desk.stores.values():
            for operation in ("delete", "find", "verify_deleted"):
                store.faults.refuse(operation, RuntimeError("down"))

    def ledger_down() -> None:
        desk.fail_next(FaultPoint.BEFORE_COMMIT, errors.LedgerFull(name="ledger"), times=50)

    desk.call_next(FaultPoint.RECORDED, stores_down if trouble == "stores" else ledger_down)
    calls = {
        "write": lambda: desk.write("trial", supersedes=base),
        "confirm": lambda: desk.confirm(claimed),
        "retract": lambda: desk.retract(base),
        "forget": lambda: desk.forget(base),
    }
    result = await calls[act]()
    assert not result.complete
    assert {r.outcome for r in result.removals} & {Outcome.FAILED, Outcome.UNVERIFIED}
    for store in desk.stores.values():
        store.faults.allow()
    desk.plan._actions.clear()
    await desk.judge()
    desk.clock.advance(LATER)
    assert (await desk.repair()).complete
    await desk.judge_clean()


@pytest.mark.parametrize("act", ["write", "retract", "forget"])
async def test_ledger_closed_after_commit(tmp_path: Path, act: str) -> None:
    """A ledger that cannot even be read after the commit makes the result incomplete; nothing raises."""
    async with open_desk(tmp_path) as desk:
        base = await desk.written("pro")
        fact_id = await desk.written("free", supersedes=base)
        readers = desk.ledger._storage._readers  # type: ignore[attr-defined]  # the SQLite storage
        desk.call_next(FaultPoint.RECORDED, readers.shutdown)
        if act == "write":
            result: Any = await desk.write("trial", supersedes=fact_id)
        else:
            result = await getattr(desk, act)(fact_id)
        assert not result.complete
        readers._closed = False


async def test_future_validity(desk: Desk) -> None:
    """`valid_from` more than two minutes ahead is refused; two minutes are allowed."""
    error = await error_of(
        desk.write(valid_from=desk.clock.now() + timedelta(seconds=121)), errors.FutureValidity
    )
    assert error.field == "valid_from"
    await nothing_happened(desk)
    assert (await desk.write(valid_from=desk.clock.now() + timedelta(seconds=120))).complete


async def test_fact_ids(desk: Desk) -> None:
    """A fact id is a UUIDv7, or of a keyed write an HMAC of ledger secret, space and key."""
    plain, keyed = await desk.written(), await desk.written(subject="s", idempotency_key="k")
    assert UUID(plain).version == 7
    assert keyed == desk.ledger.keyed_id("org", "k")
    assert keyed != desk.ledger.keyed_id("team:x", "k")
    assert plain != keyed


async def test_store_key_is_fact_id_and_generation(desk: Desk) -> None:
    """Where we choose the store's key it is the fact id and a generation, and it is never used twice."""
    base = await desk.write("pro")
    fact_id = base.fact.fact_id
    keys = [*base.placements["memories"]]
    for _ in range(3):
        tip = await desk.written("free", supersedes=fact_id)
        await desk.retract(tip)
        keys += desk.held_of(fact_id)["memories"]
    assert len(set(keys)) == 4
    assert all(key.startswith(f"{fact_id}.") for key in keys)


async def test_actor_and_receipt_travel_as_arguments(desk: Desk) -> None:
    """Two concurrent calls each record their own actor and receipt, on every event they cause."""
    base = [await desk.written("pro", subject=f"s:{n}") for n in range(4)]

    async def act(n: int) -> None:
        await desk.retract(base[n], actor=f"actor:{n}", receipt_id=f"r-{n}")

    await asyncio.gather(*(act(n) for n in range(4)))
    for n, fact_id in enumerate(base):
        events = await desk.ledger.history(fact_id)
        assert {(e.actor, e.receipt_id) for e in events[1:]} == {(f"actor:{n}", f"r-{n}")}
    written = await desk.write("a", actor="agent:x", receipt_id="r-9")
    label = desk.stores["memories"].metadata(written.placements["memories"][0])["custody"]
    assert '"actor":"agent:x"' in str(label)
    assert '"receipt_id":"r-9"' in str(label)


async def test_superseded_policy_per_store(tmp_path: Path) -> None:
    """`superseded=keep` leaves the predecessor in that store only; a later retract removes it there too."""
    stores = [MemoryStore("archive"), MemoryStore("live")]
    async with open_desk(tmp_path, stores=stores, superseded={"archive": "keep"}) as desk:
        base = await desk.written("pro")
        written = await desk.write("free", supersedes=base)
        assert written.complete
        assert set(desk.held_of(base)) == {"archive"}
        desk.clock.advance(LATER)
        assert (await desk.repair()).repaired == ()
        assert await desk.judge() == {written.fact.fact_id}
        assert (await desk.retract(base)).complete
        assert desk.held_of(base) == {}
        await desk.judge_clean()


async def test_superseded_policy_kept_entry_serves_again(tmp_path: Path) -> None:
    """A kept entry of a fact that is believed again is its placement again; only the other store is owed."""
    stores = [MemoryStore("archive"), MemoryStore("live")]
    async with open_desk(tmp_path, stores=stores, superseded={"archive": "keep"}) as desk:
        base = await desk.written("pro")
        kept = desk.held_of(base)["archive"]
        tip = await desk.written("free", supersedes=base)
        result = await desk.retract(tip)
        assert [item.store for item in result.restored] == ["live"]
        assert desk.held_of(base)["archive"] == kept
        assert await desk.judge_clean() == {base}


async def test_superseded_policy_withdrawn(tmp_path: Path) -> None:
    """When a store's policy changes back to remove, the sweep takes the kept entries as strays."""
    stores = [MemoryStore("archive"), MemoryStore("live")]
    async with open_desk(tmp_path, stores=stores, superseded="keep") as desk:
        base = await desk.written("pro")
        tip = await desk.written("free", supersedes=base)
        desk.clock.advance(LATER)
        strict = desk.coordinator(superseded="remove")
        result = await strict.repair(actor=ACTOR, reason="policy")
        assert {(r.store, r.kind, r.outcome) for r in result.repaired} == {
            ("archive", "stray", "verified"),
            ("live", "stray", "verified"),
        }
        assert desk.held_of(base) == {}
        assert set(desk.held_of(tip)) == {"archive", "live"}


async def test_retract_of_an_unknown_repaired_or_forgotten_fact(desk: Desk) -> None:
    """Retract and forget name what is wrong with their fact and touch no store."""
    fact_id = await desk.written()
    await desk.forget(fact_id)
    calls = {name: dict(store.calls) for name, store in desk.stores.items()}
    await error_of(desk.retract(fact_id), errors.Forgotten)
    await error_of(desk.retract("nobody"), errors.UnknownFact)
    await error_of(desk.forget("nobody"), errors.UnknownFact)
    assert {name: dict(store.calls) for name, store in desk.stores.items()} == calls


async def test_read_only_ledger_refuses_writes_and_reads(desk: Desk) -> None:
    """On a ledger opened for reading a write is refused before any store is touched, and reads work."""
    fact_id = await desk.written()
    puts = desk.stores["memories"].calls["put"]
    async with await Ledger.open(desk.url, read_only=True, runtime=desk.runtime) as ledger:
        reader = AsyncCoordinator(ledger, stores=desk.stores.values(), runtime=desk.runtime)
        await error_of(reader.write(value="x", space="org", actor=ACTOR), errors.LedgerReadOnly)
        await error_of(
            reader.write(value="x", space="org", actor=ACTOR, idempotency_key="k"), errors.LedgerReadOnly
        )
        await error_of(reader.retract(fact_id, actor=ACTOR, reason="x"), errors.LedgerReadOnly)
        await error_of(reader.repair(actor=ACTOR, reason="x"), errors.LedgerReadOnly)
        assert [fact.fact_id for fact in await ledger.as_of()] == [fact_id]
        assert (await reader.repair(actor=ACTOR, reason="x", dry_run=True)).repaired == ()
    assert desk.stores["memories"].calls["put"] == puts


async def test_a_fact_that_has_ended_is_recorded_and_put_nowhere(desk: Desk) -> None:
    """A fact whose validity is over is recorded for the past, believed then, and in no store."""
    now = desk.clock.now()
    written = await desk.write(valid_from=now - 3 * MINUTE, valid_to=now - MINUTE)
    assert written.placements == {}
    assert desk.held() == {}
    page = await desk.ledger.as_of(valid_at=now - 2 * MINUTE)
    assert [fact.fact_id for fact in page] == [written.fact.fact_id]
    assert await desk.judge_clean() == set()


async def test_closed_coordinator(desk: Desk) -> None:
    """A closed coordinator refuses every call and says so."""
    fact_id = await desk.written()
    await desk.custody.close()
    for call in (
        desk.write(),
        desk.confirm(fact_id),
        desk.retract(fact_id),
        desk.forget(fact_id),
        desk.repair(),
        desk.verify(),
    ):
        assert (await error_of(call, errors.ClosedError)).what == "the coordinator"


async def test_placement_states_after_a_retract(desk: Desk) -> None:
    """After a verified removal the ledger shows the placement as gone, by name."""
    fact_id = await desk.written()
    await desk.retract(fact_id)
    rows = await desk.ledger.placements(fact_id)
    assert {row.state for row in rows} == {PlacementState.GONE}
    assert {row.outcome for row in rows} == {Outcome.VERIFIED}


async def test_believed_fact_is_never_due(desk: Desk) -> None:
    """Removing a fact that is still believed changes nothing: there is nothing due."""
    fact_id = await desk.written()
    remover = desk.custody._remover
    assert await remover.remove_fact(fact_id, Mandate(actor=ACTOR)) == []
    assert await desk.judge_clean() == {fact_id}


async def test_retract_by_another_process_between(desk: Desk) -> None:
    """A retraction that another process recorded is followed up here when it is asked for again."""
    fact_id = await desk.written(provenance=Provenance.ATTESTED)
    await desk.ledger.append(Retract(event_id="other", fact_id=fact_id, actor="other", reason="x"))
    assert set(desk.held_of(fact_id)) == {"memories", "agent"}
    result = await desk.retract(fact_id)
    assert result.complete
    assert await desk.judge_clean() == set()
