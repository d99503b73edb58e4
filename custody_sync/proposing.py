"""From a caller's arguments to a fact that may be written: shape, validators, limits, clocks.

Everything that can be refused is refused here, before any store is touched.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from custody_sync.canonical import (
    canonical,
    check_instant,
    check_name,
    check_observation,
    check_optional,
    check_text,
    check_value,
)
from custody_sync.errors import (
    ClockSkew,
    CustodyError,
    InvalidInput,
    LedgerReadOnly,
    TextTooLong,
    ValidatorFailed,
)
from custody_sync.errors.base import throw
from custody_sync.ledger import Ledger
from custody_sync.ledger.checks import UNCOMPARED, check_fact, check_verified
from custody_sync.model import (
    FREE_TEXT_PREDICATE,
    MAX_SKEW,
    Fact,
    Json,
    Observation,
    Provenance,
    format_instant,
)
from custody_sync.ports import Validator
from custody_sync.runtime import Runtime
from custody_sync.stores import Gate


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The arguments of a write, checked and copied, as the caller gave them."""

    space: str
    subject: str
    predicate: str
    value: Json
    text: str
    actor: str
    supersedes: str | None
    valid_from: datetime | None
    valid_to: datetime | None
    receipt_id: str | None
    idempotency_key: str | None
    provenance: Provenance
    evidence: Observation | None = None

    def digest(self) -> str:
        """Return what an idempotency key compares: everything the caller said."""
        said: list[Json] = [
            self.space,
            self.subject,
            self.predicate,
            self.value,
            self.text,
            self.supersedes,
            None if self.valid_from is None else format_instant(self.valid_from),
            None if self.valid_to is None else format_instant(self.valid_to),
            self.provenance.value,
        ]
        if self.evidence is not None:
            said.append([self.evidence.source, self.evidence.path, self.evidence.value])
        return hashlib.sha256(canonical(said)).hexdigest()

    def to_fact(self, fact_id: str, now: datetime) -> Fact:
        """Return the proposed fact; it is valid from now unless the caller said otherwise."""
        return Fact(
            fact_id=fact_id,
            space=self.space,
            subject=self.subject,
            predicate=self.predicate,
            value=self.value,
            text=self.text,
            actor=self.actor,
            provenance=self.provenance,
            valid_from=self.valid_from or now,
            valid_to=self.valid_to,
            supersedes=self.supersedes,
            receipt_id=self.receipt_id,
            evidence=self.evidence,
        )


def read_request(
    *,
    value: object,
    space: object,
    actor: object,
    subject: object,
    predicate: object,
    text: object,
    supersedes: object,
    valid_from: object,
    valid_to: object,
    receipt_id: object,
    idempotency_key: object,
    provenance: object,
    evidence: object = None,
) -> Request:
    """Check a write's arguments; free text needs only value, space and actor.

    Raises:
        InvalidInput: names the argument and its problem.
    """
    checked_space, copied = check_name(space, "space"), check_value(value)
    source = "value" if text is None else "text"
    if subject is None and predicate is None:
        if not isinstance(copied, str):
            raise InvalidInput(
                field="value", problem="of a memory without subject and predicate must be text"
            )
        subject, predicate = checked_space, FREE_TEXT_PREDICATE
        text = copied if text is None else text
    elif subject is None or predicate is None:
        missing = "subject" if subject is None else "predicate"
        raise InvalidInput(
            field=missing, problem="is missing; give subject and predicate, or neither for free text"
        )
    subject, predicate = check_name(subject, "subject"), check_name(predicate, "predicate")
    stated = default_text(subject, predicate, copied) if text is None else check_text(text, "text")
    if not stated.strip():
        raise InvalidInput(field=source, problem="must not be empty or blank")
    observed = None if evidence is None else check_observation(evidence)
    start = None if valid_from is None else read_when(valid_from, "valid_from")
    end = None if valid_to is None else read_when(valid_to, "valid_to")
    if start is not None and end is not None and end <= start:
        raise InvalidInput(field="valid_to", problem="must be later than valid_from")
    return Request(
        space=checked_space,
        subject=subject,
        predicate=predicate,
        value=copied,
        text=stated,
        actor=check_name(actor, "actor"),
        supersedes=check_optional(supersedes, "supersedes"),
        valid_from=start,
        valid_to=end,
        receipt_id=check_optional(receipt_id, "receipt_id"),
        idempotency_key=check_optional(idempotency_key, "idempotency_key"),
        provenance=read_provenance(provenance, observed),
        evidence=observed,
    )


def read_provenance(provenance: object, evidence: Observation | None = None) -> Provenance:
    """Return the provenance to propose: what the caller chose, `attested` until evidence was compared.

    A claim waits for somebody to confirm it, and evidence leaves nothing to wait for: both at once
    are refused.
    """
    if provenance == Provenance.VERIFIED:
        if evidence is None:
            raise InvalidInput(field="provenance", problem=UNCOMPARED)
        return Provenance.ATTESTED
    try:
        chosen = Provenance(str(provenance))
    except ValueError:
        raise InvalidInput(field="provenance", problem="must be claimed or attested") from None
    if evidence is not None and chosen is Provenance.CLAIMED:
        problem = "claimed does not go with evidence; give one of them"
        raise InvalidInput(field="provenance", problem=problem)
    return chosen


def default_text(subject: str, predicate: str, value: Json) -> str:
    """Return what a store indexes when the caller gave no text: `subject predicate: value`."""
    shown = value if isinstance(value, str) else canonical(value).decode()
    return f"{subject} {predicate}: {shown}"


class Proposals:
    """Runs a proposed fact through validators, limits and clocks.

    Args:
        ledger: asked by validators, and whose clock must agree with ours.
        validators: each gets its own copy of the fact and its own deadline.
        gates: whose limits apply.
        runtime: our clock.
        deadline: seconds per validator.
    """

    def __init__(
        self,
        ledger: Ledger,
        validators: Sequence[Validator],
        gates: Iterable[Gate],
        runtime: Runtime,
        deadline: float,
    ) -> None:
        self._ledger = ledger
        self._validators = tuple(validators)
        self._gates = tuple(gates)
        self._runtime = runtime
        self._deadline = deadline

    def check_clock(self) -> datetime:
        """Return the time, unless our clock and the ledger's are more than two minutes apart."""
        now = self._runtime.clock.now()
        skew = abs(now - self._ledger.now())
        if skew > MAX_SKEW:
            raise ClockSkew(seconds=int(skew.total_seconds()))
        return now

    def check_writable(self) -> None:
        """Refuse early where the ledger could not record what the stores would take."""
        if not self._ledger.writable:
            raise LedgerReadOnly(name=self._ledger.name, cause="no write permission")

    async def validate(self, fact: Fact) -> Fact:
        """Return the fact as the validators leave it, or raise.

        Raises:
            ValidatorFailed: a validator raised, timed out or returned something else.
            TextTooLong: a configured store could not take the text; names the one that takes least.
            EvidenceDiffers: the value that the validators left is not the one that was observed.
        """
        for validator in self._validators:
            fact = await self._run(validator, fact)
        if fact.evidence is not None:
            fact = replace(fact, provenance=Provenance.VERIFIED)
        check_fact(fact)
        check_verified(fact)
        self.check_text(fact)
        return fact

    def check_text(self, fact: Fact) -> None:
        """Refuse a text that a configured store would refuse: longer than the least of them takes.

        A validator may have rewritten it, and the stores may be others than when a claim was written.
        """
        text = fact.text or ""
        refused: list[TextTooLong] = []
        for gate in self._gates:
            try:
                gate.check_text(text)
            except TextTooLong as error:
                refused.append(error)
        if refused:
            throw(min(refused, key=_room))

    async def _run(self, validator: Validator, fact: Fact) -> Fact:
        name = getattr(validator, "__name__", type(validator).__name__)
        private = replace(fact, value=copy.deepcopy(fact.value), evidence=copy.deepcopy(fact.evidence))
        passed: object = None
        problem = ""
        try:
            async with asyncio.timeout(self._deadline):
                passed = await validator(private, self._ledger)
        except CustodyError:
            raise
        except TimeoutError:
            problem = "it did not finish in time"
        except Exception as error:
            problem = f"it raised {type(error).__name__}"
        if not problem and isinstance(passed, Fact):
            return _rewritten(fact, passed, name)
        # Raised here, so that a validator's error, which may quote the value, does not hang on ours.
        problem = problem or f"it returned {type(passed).__name__}, not a Fact"
        raise ValidatorFailed(validator=name, problem=problem)


def _room(refusal: TextTooLong) -> tuple[float, str]:
    """Order limits by how much of the text they leave; a limit in bytes is compared as a share of its own."""
    return refusal.limit / refusal.size, refusal.store


def read_when(instant: object, field: str) -> datetime:
    """Return an aware instant in UTC; its time zone is the caller's code, and may fail.

    Raises:
        InvalidInput: it is none, or its time zone does not work.
    """
    try:
        return check_instant(instant, field)
    except InvalidInput as error:
        problem = error
    except Exception as error:
        problem = InvalidInput(field=field, problem=f"its time zone raised {type(error).__name__}")
    raise problem


def _rewritten(before: Fact, after: Fact, name: str) -> Fact:
    """Accept a validator's rewriting; a text that was only derived follows the value it came from."""
    fixed = (
        "fact_id", "space", "actor", "supersedes", "provenance", "receipt_id",
        "tx_time", "seq", "confirmed", "forgotten", "evidence",
    )  # fmt: skip
    changed = [field for field in fixed if getattr(before, field) != getattr(after, field)]
    if changed:
        raise ValidatorFailed(validator=name, problem=f"it changed {changed[0]}")
    if after.text == before.text and before.text is not None:
        derived = default_text(before.subject, before.predicate, before.value)
        if before.text == derived:
            after = replace(after, text=default_text(after.subject, after.predicate, after.value))
        elif before.text == before.value and isinstance(after.value, str):
            after = replace(after, text=after.value)
    after = replace(
        after,
        evidence=before.evidence,
        valid_from=read_when(after.valid_from, "valid_from"),
        valid_to=None if after.valid_to is None else read_when(after.valid_to, "valid_to"),
    )
    check_fact(after)
    return replace(after, value=check_value(after.value))
