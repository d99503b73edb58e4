"""Evidence: a value that equals what the caller observed is verified, and nothing else ever is."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fix_custody import Desk, error_of, open_desk

from custody_sync.errors import EvidenceDiffers, IdempotencyConflict, InvalidInput, ValidatorFailed
from custody_sync.ledger import Assert
from custody_sync.model import Fact, Observation, Provenance
from custody_sync.validators import redact

PAGE = Observation(source="https://example.org/prices", path="/pro", value={"amount": 10, "unit": "USD"})


async def test_an_equal_observation_verifies(desk: Desk) -> None:
    """Equal means equal as JSON: the order of keys and the spelling of a number do not count."""
    written = await desk.write({"unit": "USD", "amount": 10.0}, evidence=PAGE)
    assert written.fact.provenance is Provenance.VERIFIED
    assert written.fact.evidence == PAGE
    fact = await desk.ledger.get(written.fact.fact_id)
    assert fact is not None
    assert (fact.provenance, fact.evidence) == (Provenance.VERIFIED, PAGE)
    assert [f.evidence for f in await desk.ledger.as_of()] == [PAGE]
    assert desk.held_of(fact.fact_id).keys() == desk.stores.keys()


@pytest.mark.parametrize("value", [{"amount": 11, "unit": "USD"}, "10 USD", None, True, [10]])
async def test_another_value_is_refused_before_any_store(desk: Desk, value: Any) -> None:
    """A difference is named by source and path, without either value, and nothing is touched."""
    observed = replace(PAGE, value={"amount": 10, "unit": "secret-observed"})
    error = await error_of(desk.write(value, text="a price", evidence=observed), EvidenceDiffers)
    assert (error.source, error.path, error.exit_code) == (PAGE.source, PAGE.path, 4)
    assert "secret-observed" not in str(error.to_dict())
    assert "11" not in str(error.to_dict())
    assert await desk.untouched()


@pytest.mark.parametrize(("value", "seen"), [(1, True), (0, False), ("1", 1), (None, ""), ([], {})])
async def test_types_are_told_apart(desk: Desk, value: Any, seen: Any) -> None:
    """What Python calls equal, or nothing, JSON does not."""
    await error_of(desk.write(value, evidence=replace(PAGE, value=seen)), EvidenceDiffers)
    assert await desk.untouched()


async def test_verified_needs_evidence(desk: Desk) -> None:
    """Nobody can say `verified` by themselves, in a write or in a draft."""
    said = await error_of(desk.write(provenance="verified"), InvalidInput)
    assert said.field == "provenance"
    assert await desk.untouched()
    written = await desk.write(PAGE.value, evidence=PAGE, provenance="verified")
    assert written.fact.provenance is Provenance.VERIFIED
    for wrong in (
        replace(written.fact, evidence=None),
        replace(written.fact, provenance=Provenance.ATTESTED),
        replace(written.fact, value="other"),
        replace(written.fact, evidence=replace(PAGE, source=" ")),
    ):
        draft = Assert(event_id="e-1", fact=replace(wrong, fact_id="f-1", tx_time=None, seq=None))
        await error_of(desk.ledger.append(draft), InvalidInput)
    assert (await desk.ledger.head()).seq == 1


async def test_evidence_does_not_go_with_a_claim(desk: Desk) -> None:
    """A claim waits for somebody to confirm it; evidence leaves nothing to wait for."""
    error = await error_of(desk.write(PAGE.value, evidence=PAGE, provenance="claimed"), InvalidInput)
    assert error.field == "provenance"
    assert await desk.untouched()


@pytest.mark.parametrize(
    ("evidence", "field"),
    [
        ({"source": "a", "path": "b", "value": 1}, "evidence"),
        (replace(PAGE, source=""), "evidence.source"),
        (replace(PAGE, path=" \t"), "evidence.path"),
        (replace(PAGE, source="x" * 1001), "evidence.source"),
        (replace(PAGE, path="a\x00b"), "evidence.path"),
        (replace(PAGE, source="\ud800"), "evidence.source"),
        (replace(PAGE, value=float("nan")), "evidence.value"),
        (replace(PAGE, value={1: 2}), "evidence.value"),
        (replace(PAGE, value="a\x00b"), "evidence.value"),
    ],
)
async def test_evidence_that_cannot_be_kept_is_refused(desk: Desk, evidence: Any, field: str) -> None:
    """Source and path are there to be looked up: not blank, not endless, storable; the value is JSON."""
    assert (await error_of(desk.write(PAGE.value, evidence=evidence), InvalidInput)).field == field
    assert await desk.untouched()


async def test_what_validators_leave_is_compared(tmp_path: Path) -> None:
    """A validator that rewrites the value decides what the observation has to equal."""
    async with open_desk(tmp_path, validators=[redact(r"\d+")]) as desk:
        seen = replace(PAGE, value="card 4111")
        await error_of(desk.write("card 4111", evidence=seen), EvidenceDiffers)
        assert await desk.untouched()
        written = await desk.write("card 4111", evidence=replace(PAGE, value="card [redacted]"))
        assert written.fact.value == "card [redacted]"
        assert written.fact.provenance is Provenance.VERIFIED


async def test_a_validator_cannot_touch_the_evidence(tmp_path: Path) -> None:
    """A validator sees a fact that is attested still, and its own copy of the observation."""
    seen: list[Provenance] = []

    async def meddle(fact: Fact, view: object) -> Fact:
        seen.append(fact.provenance)
        assert fact.evidence is not None
        assert isinstance(fact.evidence.value, dict)
        fact.evidence.value["amount"] = 999
        return fact

    async with open_desk(tmp_path, validators=[meddle]) as desk:
        error = await error_of(desk.write(PAGE.value, evidence=PAGE), ValidatorFailed)
        assert "it changed evidence" in str(error)
        assert (seen, PAGE.value) == ([Provenance.ATTESTED], {"amount": 10, "unit": "USD"})

    async def vouch(fact: Fact, view: object) -> Fact:
        return replace(fact, evidence=PAGE)

    (tmp_path / "second").mkdir()
    async with open_desk(tmp_path / "second", validators=[vouch]) as desk:
        await error_of(desk.write(PAGE.value), ValidatorFailed)
        assert await desk.untouched()


async def test_the_callers_object_may_change_afterwards(desk: Desk) -> None:
    """What was observed is copied before the first await."""
    value = {"amount": 10}
    desk.stores["memories"].faults.delays["put"] = 0.01
    writing = asyncio.create_task(desk.write({"amount": 10}, evidence=replace(PAGE, value=value)))
    await asyncio.sleep(0)
    value["amount"] = 11
    assert (await writing).fact.evidence == replace(PAGE, value={"amount": 10})


async def test_evidence_is_part_of_a_keyed_body(desk: Desk) -> None:
    """The same key with other evidence, or with none, is another write."""
    key = {"idempotency_key": "k"}
    first = await desk.write(PAGE.value, evidence=PAGE, **key)
    again = await desk.write(PAGE.value, evidence=PAGE, **key)
    assert again.duplicate
    assert again.fact.evidence == first.fact.evidence
    for other in (None, replace(PAGE, path="/plans/team"), replace(PAGE, source="elsewhere")):
        await error_of(desk.write(PAGE.value, evidence=other, **key), IdempotencyConflict)


async def test_a_forget_takes_the_evidence(desk: Desk) -> None:
    """Source and path go with the value: a path may say as much as the value does."""
    seen = Observation(source="crm", path="/customers/heron-4711", value="violet-heron-7731")
    fact_id = await desk.written("violet-heron-7731", evidence=seen)
    assert (await desk.forget(fact_id)).complete
    fact = await desk.ledger.get(fact_id)
    assert fact is not None
    assert (fact.evidence, fact.value, fact.provenance) == (None, None, Provenance.VERIFIED)
    left = b"".join(path.read_bytes() for path in desk.path.parent.iterdir())
    assert b"heron" not in left


async def test_a_correction_may_be_verified(desk: Desk) -> None:
    """A verified fact supersedes an attested one like any other."""
    old = await desk.written("9 USD")
    await desk.written("10 USD", evidence=replace(PAGE, value="10 USD"), supersedes=old)
    assert [f.value for f in await desk.ledger.as_of()] == ["10 USD"]
    await desk.judge_clean()
