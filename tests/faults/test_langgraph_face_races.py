"""Puts and deletes of one item at once, in one process and in several, and what a crash leaves."""

from __future__ import annotations

import asyncio
import hashlib
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from fix_custody import BRIEF, LATER, Crash
from fix_langgraph_face import Counter, open_counter
from langgraph.store.base import PutOp

from custody_sync.coordinator import AsyncCoordinator
from custody_sync.errors import LedgerUnavailable, WriteInProgress
from custody_sync.faces.langgraph import CustodyStore
from custody_sync.faultpoints import FaultPoint
from custody_sync.keyed import RESERVED_FOR
from custody_sync.testing import MemoryStore, testing_runtime

SEEDS = count(7)


@pytest.fixture
async def counter(tmp_path: Path) -> Any:
    """A face over a store in memory."""
    async with open_counter(tmp_path, MemoryStore("memories"), patience=BRIEF) as opened:
        yield opened


def another(counter: Counter) -> CustodyStore:
    """Return a face that shares nothing with the first but ledger and store, as another process would."""
    gate = next(iter(counter.custody._gates.values()))
    runtime = testing_runtime(clock=counter.clock, seed=next(SEEDS))
    return CustodyStore(AsyncCoordinator(counter.ledger, stores=[gate.store], runtime=runtime))


async def held(counter: Counter) -> int:
    """Count what the store really holds."""
    store: Any = next(iter(counter.custody._gates.values())).store
    return len(store.snapshot())


async def test_puts_of_one_new_key_at_once_make_one_item(counter: Counter) -> None:
    """Two processes that put a new key at once make one chain, of which the last link is the item."""
    faces = [counter.store, another(counter)]
    await asyncio.gather(*(faces[n % 2].aput(("n",), "k", {"n": n}) for n in range(8)))
    (item,) = await counter.store.asearch(("n",))
    assert await faces[1].asearch(("n",)) == [item]
    facts = await counter.ledger.as_of()
    assert [fact.value for fact in facts] == [item.value]
    _, (chain,) = await counter.ledger.links([facts[0].fact_id])
    assert sorted(link.fact.value["n"] for link in chain) == list(range(8))  # type: ignore[call-overload, index]
    assert await held(counter) == 1


async def test_the_same_value_put_twice_at_once_is_one_item(counter: Counter) -> None:
    """Equal first puts of two processes are one item, whichever of them wrote it."""
    await asyncio.gather(*(face.aput(("n",), "k", {"n": 1}) for face in (counter.store, another(counter))))
    assert await counter.values() == [{"n": 1}]
    assert await held(counter) == 1


async def test_puts_and_deletes_at_once_leave_one_or_none(counter: Counter) -> None:
    """Whatever the order, afterwards there is one version or none, and the store holds just that."""
    faces = [counter.store, another(counter)]
    for _ in range(3):
        await asyncio.gather(
            *(faces[n % 2].aput(("n",), "k", {"n": n}) for n in range(4)),
            *(face.adelete(("n",), "k") for face in faces),
        )
        left = await counter.values()
        assert len(left) <= 1
        assert await held(counter) == len(left)
        item = await faces[1].aget(("n",), "k")
        assert ([] if item is None else [item.value]) == left


async def test_a_key_lives_again_after_every_end(counter: Counter) -> None:
    """After a delete, an erasure of its identity, a retraction or its lifetime a key can be put anew."""
    store, value = counter.store, {"text": "the same"}
    for ending in ("delete", "identity", "retract", "lifetime", "identity", "delete"):
        await store.aput(("n",), "k", value, ttl=1 if ending == "lifetime" else None)
        (fact,) = await counter.ledger.as_of()
        if ending == "delete":
            await another(counter).adelete(("n",), "k")
        elif ending == "identity":
            await counter.custody.forget(fact.fact_id, actor="dpo", reason="asked to", identity=True)
        elif ending == "retract":
            await counter.custody.retract(fact.fact_id, actor="ops", reason="was never so")
        else:
            counter.clock.advance(60)
        assert await store.aget(("n",), "k") is None, ending
    await store.aput(("n",), "k", value)
    assert await counter.values() == [value]


async def test_a_first_put_that_a_killed_process_began_is_waited_for(counter: Counter) -> None:
    """While another process may still make the first version a put waits, and says so in the end.

    Five minutes after that process was killed the key can be put.
    """
    key = hashlib.sha256(b" n/k").hexdigest()
    reserved = counter.ledger.keyed_id("n", f"item {key}")
    await counter.ledger.acquire("reservation", reserved, holder="killed", value='""', ttl=RESERVED_FOR)
    began = counter.clock.now()
    with pytest.raises(WriteInProgress):
        await counter.store.aput(("n",), "k", {"n": 1})
    assert timedelta(seconds=3) < counter.clock.now() - began < timedelta(seconds=30)
    assert await counter.store.aget(("n",), "k") is None
    counter.clock.advance(RESERVED_FOR)
    await counter.store.aput(("n",), "k", {"n": 2})
    assert await counter.values() == [{"n": 2}]


async def test_what_a_crash_leaves_between_store_and_ledger_is_never_served(counter: Counter) -> None:
    """A put that was not recorded is in no answer; the sweep removes it, and the earlier version stands."""
    await counter.store.aput(("n",), "k", {"text": "old words"})
    counter.plan.fail(FaultPoint.STORED, Crash(), at=counter.plan.reached[FaultPoint.STORED] + 1)
    with pytest.raises(Crash):
        await counter.store.aput(("n",), "k", {"text": "new words"})
    assert await counter.values("n", query="new words") == [{"text": "old words"}]
    assert await counter.values() == [{"text": "old words"}]
    assert await held(counter) == 2
    counter.clock.advance(LATER)
    assert (await counter.custody.repair(actor="ops", reason="after a crash")).complete
    assert await held(counter) == 1
    assert await counter.values("n", query="new words") == [{"text": "old words"}]


async def test_a_delete_that_was_cut_short_goes_on(counter: Counter) -> None:
    """A crash amid the versions leaves the item readable or gone, never half; the next delete ends it."""
    for n in range(3):
        await counter.store.aput(("n",), "k", {"n": n})
    counter.plan.fail(FaultPoint.RECORDED, Crash(), at=counter.plan.reached[FaultPoint.RECORDED] + 2)
    with pytest.raises(Crash):
        await counter.store.adelete(("n",), "k")
    assert await counter.values() == [{"n": 2}]
    await counter.store.adelete(("n",), "k")
    assert await counter.values() == []
    assert all(account.forgotten for account in await counter.ledger.accounts())
    counter.clock.advance(LATER)
    await counter.custody.repair(actor="ops", reason="after a crash")
    assert await held(counter) == 0


async def test_of_a_batch_the_other_puts_stand(counter: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one put of a batch fails the others are made, and its error is the batch's."""
    real = counter.custody.write

    async def write(**said: Any) -> Any:
        if said["subject"] == "n/bad":
            raise LedgerUnavailable(fact_id="f-1", entries=(), cause="gone")
        return await real(**said)

    monkeypatch.setattr(counter.custody, "write", write)
    puts = [PutOp(("n",), key, {"key": key}) for key in ("a", "bad", "b")]
    with pytest.raises(LedgerUnavailable):
        await counter.store.abatch(puts)
    assert {value["key"] for value in await counter.values()} == {"a", "b"}
