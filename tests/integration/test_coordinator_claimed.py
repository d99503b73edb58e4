"""Claimed facts: quarantined until a confirm, which is stores first, then ledger."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from fix_custody import ACTOR, LATER, Desk, error_of

from custody_sync import errors
from custody_sync.model import Fact, Provenance
from custody_sync.testing import MemoryStore


async def test_claimed_is_quarantined(desk: Desk) -> None:
    """A claimed fact is recorded, in no store, not read by default, and supersedes nothing yet."""
    base = await desk.written("pro")
    puts = desk.stores["memories"].calls["put"]
    written = await desk.write("free", supersedes=base, provenance="claimed")
    assert (dict(written.placements), written.removals, written.complete) == ({}, (), True)
    assert written.fact.provenance is Provenance.CLAIMED
    assert not written.fact.confirmed
    assert desk.stores["memories"].calls["put"] == puts
    assert await desk.judge_clean() == {base}
    both = await desk.ledger.as_of(include_claimed=True)
    assert [fact.fact_id for fact in both] == [base, written.fact.fact_id]


async def test_confirm_places_and_supersedes(desk: Desk) -> None:
    """A confirm puts the fact into every store, records it, and removes what it supersedes."""
    base = await desk.written("pro")
    claimed = await desk.written("free", supersedes=base, provenance="claimed")
    result = await desk.confirm(claimed, reason="checked", receipt_id="r-1")
    assert set(result.placements) == {"memories", "agent"}
    assert {(r.fact_id, r.outcome) for r in result.removals} == {(base, "verified")}
    assert result.complete
    assert result.fact.confirmed
    assert result.fact == await desk.ledger.get(claimed)
    assert await desk.judge_clean() == {claimed}
    (_, event) = await desk.ledger.history(claimed)
    assert (event.kind, event.actor, event.receipt_id, event.reason) == ("confirm", ACTOR, "r-1", "checked")


async def test_confirm_checks_again(desk: Desk) -> None:
    """What the supersession needs is checked when it is confirmed: the target was covered meanwhile."""
    base = await desk.written("pro")
    claimed = await desk.written("free", supersedes=base, provenance="claimed")
    other = await desk.written("trial", supersedes=base)
    puts = desk.stores["memories"].calls["put"]
    await error_of(desk.confirm(claimed), errors.AlreadyCovered)
    assert desk.stores["memories"].calls["put"] == puts
    assert await desk.judge_clean() == {other}


@pytest.mark.parametrize("state", ["attested", "confirmed", "retracted", "forgotten", "unknown"])
async def test_confirm_refused_by_name(desk: Desk, state: str) -> None:
    """Only a claimed fact that still stands can be confirmed, and no store is asked otherwise."""
    fact_id = await desk.written(provenance="attested" if state == "attested" else "claimed")
    expected: dict[str, type[errors.CustodyError]] = {
        "attested": errors.AlreadyConfirmed,
        "confirmed": errors.AlreadyConfirmed,
        "retracted": errors.AlreadyRetracted,
        "forgotten": errors.Forgotten,
        "unknown": errors.UnknownFact,
    }
    if state == "confirmed":
        await desk.confirm(fact_id)
    if state == "retracted":
        await desk.retract(fact_id)
    if state == "forgotten":
        await desk.forget(fact_id)
    puts = desk.stores["memories"].calls["put"]
    await error_of(desk.confirm("nobody" if state == "unknown" else fact_id), expected[state])
    assert desk.stores["memories"].calls["put"] == puts


async def test_confirm_race(desk: Desk) -> None:
    """Of several confirms at once one is recorded; the others take their entries back."""
    claimed = await desk.written(provenance="claimed")
    answers = await asyncio.gather(*(desk.confirm(claimed) for _ in range(5)), return_exceptions=True)
    lost = [a for a in answers if isinstance(a, BaseException)]
    assert [type(a) for a in lost] == [errors.AlreadyConfirmed] * 4
    assert (await desk.kinds(claimed)).count("confirm") == 1
    assert await desk.judge_clean() == {claimed}


async def test_confirm_race_in_a_folding_store(desk: Desk) -> None:
    """Where a store folds the racing puts into one entry, the loser does not take the winner's entry."""
    folding = MemoryStore("folding", own_ids=True)
    folding.faults.shared_ids = True
    custody = desk.coordinator(stores=[folding])
    claimed = (await custody.write(value="x", space="org", actor=ACTOR, provenance="claimed")).fact.fact_id
    answers = await asyncio.gather(
        *(custody.confirm(claimed, actor=ACTOR) for _ in range(3)), return_exceptions=True
    )
    assert sum(isinstance(a, BaseException) for a in answers) == 2
    (placement,) = await desk.ledger.placements(claimed)
    assert placement.external_id in folding.snapshot()


async def test_two_claims_on_one_target(desk: Desk) -> None:
    """Two claimed replacements confirmed at once: one takes effect, the other leaves nothing."""
    base = await desk.written("pro")
    ids = [await desk.written(v, supersedes=base, provenance="claimed") for v in ("free", "trial")]
    answers = await asyncio.gather(*(desk.confirm(i) for i in ids), return_exceptions=True)
    assert sorted(type(a).__name__ for a in answers) == ["AlreadyCovered", "WriteResult"]
    believed = await desk.judge_clean()
    assert len(believed) == 1
    assert believed < set(ids)


async def test_confirm_with_a_store_that_refuses(desk: Desk) -> None:
    """A confirm that one store refuses is not recorded, and the others are taken back."""
    base = await desk.written("pro")
    claimed = await desk.written("free", supersedes=base, provenance="claimed")
    desk.stores["agent"].faults.refuse(
        "put", errors.StoreRefused(store="agent", operation="put", cause="no"), times=1
    )
    error = await error_of(desk.confirm(claimed), errors.StoreWriteFailed)
    assert (error.removed, error.left) == (["memories"], [])
    assert await desk.judge_clean() == {base}
    assert (await desk.confirm(claimed)).complete
    assert await desk.judge_clean() == {claimed}


async def test_confirm_after_its_end(desk: Desk) -> None:
    """A claimed fact whose validity is over can be confirmed for the past; no store gets it."""
    claimed = await desk.written(provenance="claimed", valid_to=desk.clock.now() + timedelta(minutes=1))
    desk.clock.advance(LATER)
    result = await desk.confirm(claimed)
    assert dict(result.placements) == {}
    assert await desk.judge_clean() == set()


async def test_confirm_does_not_run_validators_again(desk: Desk) -> None:
    """Validators saw the claimed fact when it was written; a confirm takes it as it stands in the ledger."""
    seen: list[str] = []

    async def count(fact: Fact, view: Any) -> Fact:
        seen.append(fact.fact_id)
        return fact

    custody = desk.coordinator(validators=[count])
    claimed = (await custody.write(value="x", space="org", actor=ACTOR, provenance="claimed")).fact.fact_id
    await custody.confirm(claimed, actor=ACTOR)
    assert seen == [claimed]


async def test_forget_and_retract_of_a_claimed_fact(desk: Desk) -> None:
    """A claimed fact that was never placed is retracted and forgotten without any removal."""
    first = await desk.written(provenance="claimed")
    second = await desk.written("x", subject="acct:2", provenance="claimed")
    assert (await desk.retract(first)).removals == ()
    result = await desk.forget(second)
    assert (result.removals, result.complete) == ((), True)
    assert await desk.judge_clean() == set()
