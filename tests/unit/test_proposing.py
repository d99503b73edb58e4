"""From arguments to a proposed fact: shape, defaults, validators."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from pathlib import Path
from typing import Any

import pytest
from fix_custody import ACTOR, error_of

from custody_sync import errors
from custody_sync.gates import open_gates
from custody_sync.ledger import Ledger
from custody_sync.model import Fact, Limits, Provenance
from custody_sync.proposing import Proposals, Request, default_text, read_request
from custody_sync.stores import Deadlines
from custody_sync.testing import ManualClock, MemoryStore, testing_runtime

NOW = ManualClock().now()


def request(**more: Any) -> Request:
    """Read a write's arguments, with good ones for those not given."""
    told: dict[str, Any] = {
        "value": "pro",
        "space": "org",
        "actor": ACTOR,
        "subject": "acct:42",
        "predicate": "plan",
        "text": None,
        "supersedes": None,
        "valid_from": None,
        "valid_to": None,
        "receipt_id": None,
        "idempotency_key": None,
        "provenance": "attested",
    }
    return read_request(**(told | more))


def refused(**more: Any) -> errors.InvalidInput:
    """Return the refusal of a write's arguments."""
    with pytest.raises(errors.InvalidInput) as caught:
        request(**more)
    return caught.value


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    """An empty ledger at noon."""
    async with await Ledger.open(
        f"sqlite:///{tmp_path}/l.db", create=True, runtime=testing_runtime()
    ) as opened:
        yield opened


def proposals(ledger: Ledger, *validators: Any, deadline: float = 5.0, **limits: int) -> Proposals:
    """Return proposals with one store of given limits."""
    runtime = testing_runtime()
    stores = [MemoryStore("store", limits=Limits(**limits))]
    gates = open_gates(stores, runtime, Deadlines(), "remove")
    return Proposals(ledger, validators, gates.values(), runtime, deadline)


# --- shape ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("pro", "acct:42 plan: pro"),
        (12, "acct:42 plan: 12"),
        ({"b": 1, "a": None}, 'acct:42 plan: {"a":null,"b":1}'),
        (True, "acct:42 plan: true"),
        (None, "acct:42 plan: null"),
    ],
)
def test_default_text(value: Any, text: str) -> None:
    """Without a text the stores index `subject predicate: value`, JSON in canonical form."""
    assert request(value=value).text == text
    assert default_text("acct:42", "plan", value) == text


def test_free_text() -> None:
    """A memory that is just a sentence is about its space, and its text is the sentence."""
    read = request(value="I drink my coffee black", subject=None, predicate=None, space="user:42")
    assert (read.subject, read.predicate, read.text) == ("user:42", "memory", "I drink my coffee black")


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"subject": None, "predicate": None, "value": 3}, "value"),
        ({"subject": None, "predicate": None, "value": " "}, "value"),
        ({"subject": None}, "subject"),
        ({"predicate": None}, "predicate"),
        ({"text": ""}, "text"),
        ({"text": 3}, "text"),
        ({"text": "a\x00"}, "text"),
        ({"actor": None}, "actor"),
        ({"actor": "x" * 1001}, "actor"),
        ({"space": 7}, "space"),
        ({"receipt_id": ""}, "receipt_id"),
        ({"idempotency_key": " "}, "idempotency_key"),
        ({"supersedes": ""}, "supersedes"),
        ({"valid_from": datetime(2026, 1, 1)}, "valid_from"),  # naive on purpose
        ({"valid_to": "tomorrow"}, "valid_to"),
        ({"valid_from": NOW, "valid_to": NOW}, "valid_to"),
        ({"provenance": "verified"}, "provenance"),
        ({"provenance": Provenance.VERIFIED}, "provenance"),
        ({"provenance": None}, "provenance"),
        ({"value": [float("inf")]}, "value"),
        ({"value": {"a": {1, 2}}}, "value"),
    ],
)
def test_refused_arguments(wrong: dict[str, Any], field: str) -> None:
    """Each bad argument is one sentence that names it."""
    assert refused(**wrong).field == field


def test_value_is_copied() -> None:
    """The caller's object is copied on the way in: changing it later changes nothing."""
    value = {"tags": ["a"]}
    read = request(value=value)
    value["tags"].append("b")
    assert read.value == {"tags": ["a"]}


def test_digest_compares_what_was_said() -> None:
    """The digest behind an idempotency key covers the body, not who sent it when or under which receipt."""
    same = request(actor="other", receipt_id="r-2", idempotency_key="x")
    assert same.digest() == request().digest()
    zoned = NOW.astimezone(timezone(timedelta(hours=2)))
    assert request(valid_from=zoned).digest() == request(valid_from=NOW).digest()
    others = [
        request(value="free"),
        request(space="user:1"),
        request(text="x"),
        request(supersedes="f"),
        request(valid_from=NOW),
        request(valid_to=NOW),
        request(provenance="claimed"),
    ]
    assert len({request().digest(), *(r.digest() for r in others)}) == 8


def test_valid_from_defaults_to_now() -> None:
    """A fact is valid from the moment its write began, unless said otherwise."""
    assert request().to_fact("f", NOW).valid_from == NOW
    assert request(valid_from=NOW - timedelta(days=1)).to_fact("f", NOW).valid_from == NOW - timedelta(days=1)


# --- validators -----------------------------------------------------------------------------


async def test_validator_rewrites_and_derived_text_follows(ledger: Ledger) -> None:
    """A text that was only derived follows the rewritten value; a text of its own stays."""

    async def redact(fact: Fact, view: Any) -> Fact:
        return replace(fact, value="[redacted]")

    checked = proposals(ledger, redact)
    derived = await checked.validate(request(value="123-45-6789").to_fact("f", NOW))
    assert (derived.value, derived.text) == ("[redacted]", "acct:42 plan: [redacted]")
    free = request(value="my number is 123-45-6789", subject=None, predicate=None).to_fact("f", NOW)
    assert (await checked.validate(free)).text == "[redacted]"
    own = await checked.validate(request(text="own words").to_fact("f", NOW))
    assert own.text == "own words"


async def test_validators_run_in_order_on_each_others_result(ledger: Ledger) -> None:
    """Each validator sees what the one before returned."""

    def add(letter: str) -> Any:
        async def validator(fact: Fact, view: Any) -> Fact:
            return replace(fact, value=f"{fact.value}{letter}")

        return validator

    fact = await proposals(ledger, add("a"), add("b")).validate(request(value="").to_fact("f", NOW))
    assert (fact.value, fact.text) == ("ab", "acct:42 plan: ab")


async def test_validator_may_ask_the_ledger(ledger: Ledger) -> None:
    """A validator gets a view that answers as-of questions."""
    seen: list[int] = []

    async def look(fact: Fact, view: Any) -> Fact:
        seen.append(len(await view.as_of(space=fact.space)))
        return fact

    await proposals(ledger, look).validate(request().to_fact("f", NOW))
    assert seen == [0]


async def test_p8_validator_that_edits_in_place_and_raises(ledger: Ledger) -> None:
    """P8: what a validator does to its copy before it raises reaches nobody."""

    async def vandal(fact: Fact, view: Any) -> Fact:
        fact.value["tags"].append("b")  # type: ignore[index,call-overload,union-attr]  # what a vandal does
        raise ValueError("no")

    fact = request(value={"tags": ["a"]}).to_fact("f", NOW)
    await error_of(proposals(ledger, vandal).validate(fact), errors.ValidatorFailed)
    assert fact.value == {"tags": ["a"]}


async def test_p8_validator_that_keeps_its_value(ledger: Ledger) -> None:
    """P8: an object that a validator returns is copied: changing it afterwards changes nothing."""
    kept: list[Any] = []

    async def hoarder(fact: Fact, view: Any) -> Fact:
        kept.append({"tags": ["a"]})
        return replace(fact, value=kept[0])

    fact = await proposals(ledger, hoarder).validate(request().to_fact("f", NOW))
    kept[0]["tags"].append("b")
    assert fact.value == {"tags": ["a"]}


async def test_validator_deadline(ledger: Ledger) -> None:
    """A validator that does not finish in time fails the write, by name."""

    async def sleeper(fact: Fact, view: Any) -> Fact:
        await asyncio.Event().wait()
        return fact

    error = await error_of(
        proposals(ledger, sleeper, deadline=0.01).validate(request().to_fact("f", NOW)),
        errors.ValidatorFailed,
    )
    assert (error.validator, error.problem) == ("sleeper", "it did not finish in time")


@pytest.mark.parametrize(
    "change",
    [
        {"fact_id": "other"},
        {"space": "user:1"},
        {"actor": "somebody"},
        {"supersedes": "x"},
        {"provenance": Provenance.VERIFIED},
        {"receipt_id": "r"},
        {"tx_time": NOW},
        {"seq": 1},
        {"confirmed": True},
        {"forgotten": True},
    ],
)
async def test_what_a_validator_may_not_change(ledger: Ledger, change: dict[str, Any]) -> None:
    """Identity, actor, provenance and the ledger's own fields are not a validator's to change."""

    async def forger(fact: Fact, view: Any) -> Fact:
        return replace(fact, **change)

    error = await error_of(
        proposals(ledger, forger).validate(request().to_fact("f", NOW)), errors.ValidatorFailed
    )
    assert error.problem == f"it changed {next(iter(change))}"


@pytest.mark.parametrize(
    "change",
    [
        {"value": float("nan")},
        {"text": " "},
        {"text": None},
        {"subject": ""},
        {"valid_from": NOW.replace(tzinfo=None)},
        {"valid_to": NOW - timedelta(days=1)},
    ],
)
async def test_what_a_validator_returns_is_checked(ledger: Ledger, change: dict[str, Any]) -> None:
    """A rewritten fact is held to the same rules as the caller's."""

    async def clumsy(fact: Fact, view: Any) -> Fact:
        return replace(fact, **change)

    await error_of(proposals(ledger, clumsy).validate(request().to_fact("f", NOW)), errors.InvalidInput)


@pytest.mark.parametrize("answer", [None, "fact", True])
async def test_validator_must_return_a_fact(ledger: Ledger, answer: Any) -> None:
    """Anything but a fact is refused, and its type named."""

    async def forgetful(fact: Fact, view: Any) -> Any:
        return answer

    error = await error_of(
        proposals(ledger, forgetful).validate(request().to_fact("f", NOW)), errors.ValidatorFailed
    )
    assert error.problem == f"it returned {type(answer).__name__}, not a Fact"


async def test_validators_own_refusal_is_passed_on(ledger: Ledger) -> None:
    """An error of ours that a validator raises reaches the caller as it is."""

    async def strict(fact: Fact, view: Any) -> Fact:
        raise errors.InvalidInput(field="value", problem="names a person")

    error = await error_of(proposals(ledger, strict).validate(request().to_fact("f", NOW)))
    assert (type(error), error.problem) == (errors.InvalidInput, "names a person")


async def test_rewritten_text_meets_the_limits(ledger: Ledger) -> None:
    """Limits hold for what the validators made of the text."""

    async def longer(fact: Fact, view: Any) -> Fact:
        return replace(fact, text="x" * 11)

    error = await error_of(
        proposals(ledger, longer, text_chars=10).validate(request(text="short").to_fact("f", NOW)),
        errors.TextTooLong,
    )
    assert (error.size, error.unit, error.limit, error.store) == (11, "characters", 10, "store")


async def test_times_become_utc(ledger: Ledger) -> None:
    """A validator may answer with any zone; the fact that is recorded is in UTC."""
    zone = timezone(timedelta(hours=5))

    async def local(fact: Fact, view: Any) -> Fact:
        return replace(fact, valid_from=fact.valid_from.astimezone(zone))

    fact = await proposals(ledger, local).validate(request().to_fact("f", NOW))
    assert fact.valid_from == NOW
    assert fact.valid_from.tzinfo is UTC


async def test_nothing_of_a_validators_error_hangs_on_ours(ledger: Ledger) -> None:
    """A validator's own error may quote the value; our error neither shows nor carries it."""

    async def talkative(fact: Fact, view: Any) -> Fact:
        raise ValueError(f"bad value {fact.value}")

    fact = request(value="canary").to_fact("f", NOW)
    error = await error_of(proposals(ledger, talkative).validate(fact), errors.ValidatorFailed)
    assert error.problem == "it raised ValueError"
    assert (error.__cause__, error.__context__) == (None, None)


class Failing(tzinfo):
    """A time zone that does not work."""

    def utcoffset(self, _: datetime | None) -> timedelta:
        """Fail."""
        raise RuntimeError("canary")


@pytest.mark.parametrize("field", ["valid_from", "valid_to"])
def test_a_time_zone_that_fails(field: str) -> None:
    """An instant whose time zone raises is refused by name, and its error does not hang on ours."""
    error = refused(**{field: datetime(2026, 1, 1, tzinfo=Failing())})
    assert (error.field, error.problem) == (field, "its time zone raised RuntimeError")
    assert error.__context__ is None


async def test_a_validator_whose_time_zone_fails(ledger: Ledger) -> None:
    """The instants of a validator's fact are checked like a caller's."""

    async def zoned(fact: Fact, view: Any) -> Fact:
        return replace(fact, valid_from=datetime(2026, 1, 1, tzinfo=Failing()))

    fact = request().to_fact("f", NOW)
    error = await error_of(proposals(ledger, zoned).validate(fact), errors.InvalidInput)
    assert error.field == "valid_from"
