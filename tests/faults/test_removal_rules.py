"""The rules of removal under the failure table: ledger first, then stores, and honest about the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from fix_custody import ACTOR, BRIEF, LATER, Desk, open_desk

from custody_sync import errors
from custody_sync.faultpoints import FaultPoint
from custody_sync.model import (
    Capability,
    Entry,
    Fact,
    Label,
    Outcome,
)
from custody_sync.removal import Patience
from custody_sync.testing import FOREVER, MemoryStore

MINUTE = timedelta(minutes=1)
DOWN = {("memories", "verified"), ("agent", "failed"), ("agent", "unverified")}
"""What a removal says while one of two stores is down: its entry, and what else it may hold."""


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
    assert {(r.store, r.outcome) for r in result.removals} == DOWN
    assert [p.store for p in await desk.ledger.pending()] == ["agent"]
    assert fact_id not in await desk.judge()
    down.allow()
    assert (await desk.repair()).complete
    await desk.judge_clean()


async def test_c15_retract_with_one_store_down(desk: Desk) -> None:
    """C15: the down store's entry is `failed` and pending; `repair` verifies it; one retract in all."""
    fact_id = await desk.written()
    for operation in ("delete", "find", "verify_deleted"):
        desk.stores["agent"].faults.refuse(operation)  # type: ignore[arg-type]  # the names are operations
    result = await desk.retract(fact_id)
    assert {(r.store, r.outcome) for r in result.removals} == DOWN
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
            assert store.calls["verify_deleted"] == 3


async def test_an_answer_that_decides_nothing_yet_is_asked_for_again(tmp_path: Path) -> None:
    """A store whose index lags may say so instead of showing the entry; a moment later it can tell."""
    store = MemoryStore("store")
    async with open_desk(tmp_path, stores=[store]) as desk:
        fact_id = await desk.written()
        lags = errors.NoProof(store="store", operation="verify_deleted", cause="index_not_ready")
        store.faults.refuse("verify_deleted", lags, times=2)
        assert (await desk.retract(fact_id)).complete
        assert await desk.outcomes(fact_id) == [("store", "verified")]


async def test_removal_asks_six_times_with_growing_waits(tmp_path: Path) -> None:
    """By default a store is asked at least six times, with growing waits of ten seconds in all at most."""
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
        waits = [b - a for a, b in pairwise(times)]
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
    """An entry with one fact's label under an id placed for another is left alone by retract and repair."""
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
    """The text goes to the store only while `forget` runs; later questions go by id and label."""
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
    """Once recorded, trouble in stores or ledger makes the result incomplete; nothing raises."""
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
        storage: Any = desk.ledger._storage

        async def answer(*question: object) -> None:
            raise errors.ClosedError(what="the ledger")

        def close() -> None:
            storage._read = storage._read_briefly = answer

        desk.call_next(FaultPoint.RECORDED, close)
        if act == "write":
            result: Any = await desk.write("trial", supersedes=fact_id)
        else:
            result = await getattr(desk, act)(fact_id)
        assert not result.complete
        del storage._read, storage._read_briefly


@pytest.mark.parametrize("act", ["retract", "forget"])
async def test_a_failed_find_is_never_complete(desk: Desk, act: str) -> None:
    """A store that cannot be asked by fact id may hold more than its placements, and is named for it."""
    fact_id = await desk.written()
    agent = desk.stores["agent"]
    stray = agent.put_raw("it", agent.metadata(desk.held_of(fact_id)["agent"][0]))
    agent.faults.refuse("find")
    result = await getattr(desk, act)(fact_id)
    assert not result.complete
    unasked = [r for r in result.removals if r.external_id == ""]
    assert [(r.store, r.outcome, r.detail) for r in unasked] == [
        ("agent", "unverified", "cannot be asked (refused)")
    ]
    agent.faults.allow()
    assert (await getattr(desk, act)(fact_id)).complete
    assert stray not in agent.snapshot()


async def test_an_adapters_sentences_are_on_no_event(tmp_path: Path) -> None:
    """Why a store cannot prove an absence is told in results; the event has fixed words for ever."""
    store = MemoryStore("mute", without=[Capability.VERIFY_DELETED])
    async with open_desk(tmp_path, stores=[store]) as desk:
        fact_id = await desk.written()
        (removal,) = (await desk.retract(fact_id)).removals
        reason = "this memory store was built without it"
        assert removal.detail == f"it cannot prove an absence ({reason})"
        events = await desk.ledger.history(fact_id)
        assert [e.data["detail"] for e in events if e.kind == "remove"] == ["it cannot prove an absence"]
