"""The other rules under the failure table: ids, keys, actors, policies, and what is refused by name."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from fix_custody import ACTOR, LATER, Desk, error_of, open_desk

from custody_sync import AsyncCoordinator, errors
from custody_sync.ledger import Ledger, Retract
from custody_sync.model import (
    Outcome,
    PlacementState,
    Provenance,
)
from custody_sync.removal import Mandate
from custody_sync.testing import MemoryStore

MINUTE = timedelta(minutes=1)


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


@pytest.mark.parametrize("back", [1, 119])
async def test_a_replacement_never_begins_before_what_it_replaces(desk: Desk, back: int) -> None:
    """A clock that was set back, or runs behind another, does not make a replacement begin too early."""
    base = await desk.write("pro")
    desk.clock.set(desk.clock.now() - timedelta(seconds=back))
    tip = await desk.write("free", supersedes=base.fact.fact_id)
    assert tip.fact.valid_from == base.fact.valid_from
    desk.clock.advance(back)
    assert [fact.value for fact in await desk.ledger.as_of()] == ["free"]
    given = desk.clock.now() - timedelta(seconds=1)
    early = desk.write("late", supersedes=tip.fact.fact_id, valid_from=given)
    await error_of(early, errors.StartsTooEarly)
