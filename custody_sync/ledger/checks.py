"""What a draft must look like before it comes near the ledger's transaction.

Whatever could fail while a group is decided on or written is refused here: inside the
transaction one draft's bad string would fail the others of its group.
"""

from __future__ import annotations

from datetime import UTC, datetime

from custody_sync.canonical import (
    canonical,
    check_instant,
    check_name,
    check_observation,
    check_optional,
    check_reason,
    check_text,
    check_value,
)
from custody_sync.errors import EvidenceDiffers, InvalidInput, LedgerError
from custody_sync.ledger.drafts import (
    Assert,
    Confirm,
    Draft,
    Forget,
    Hold,
    Place,
    Release,
    Remove,
    Repair,
    Retract,
)
from custody_sync.ledger.rows import MAX_PLACEMENTS
from custody_sync.model import ERASED_ID, Fact, Outcome, Placement, Provenance, format_instant

UNCOMPARED = "verified needs evidence that was compared"
FIRST = datetime(2, 1, 1, tzinfo=UTC)
LAST = datetime(9999, 1, 1, tzinfo=UTC)
"""Between these every sum with the library's own durations is an instant as well."""

# A union of types written where it is asked for would be made anew each time.
_PLACING = (Assert, Confirm, Place)
_TAKING_EFFECT = (Assert, Confirm)


def check_draft(draft: Draft) -> None:
    """Refuse a draft whose fields could not be stored, hashed or compared.

    Raises:
        InvalidInput: the field and its problem in one sentence.
    """
    if not isinstance(draft, Draft):
        raise InvalidInput(field="draft", problem=f"{type(draft).__name__} is no draft of an event")
    check_name(draft.event_id, "event_id")
    if isinstance(draft, Assert):
        check_fact(draft.fact)
        check_verified(draft.fact)
        check_optional(draft.request, "request")
        if type(draft.adopted) is not bool:
            raise InvalidInput(field="adopted", problem="must be true or false")
    else:
        check_name(draft.fact_id, "fact_id")
        check_name(draft.actor, "actor")
        check_optional(draft.receipt_id, "receipt_id")
        if not isinstance(draft, Place | Remove):
            check_reason(draft.reason)
    if isinstance(draft, _PLACING):
        if len(draft.placements) > MAX_PLACEMENTS:
            raise InvalidInput(field="placements", problem=f"are more than {MAX_PLACEMENTS}")
        for placement in draft.placements:
            _check_placement(placement, draft.fact_id)
    if isinstance(draft, _TAKING_EFFECT):
        for store in draft.kept:
            check_name(store, "kept")
        _check_owed(draft)
    elif isinstance(draft, Hold | Release):
        check_name(draft.hold_id, "hold_id")
    elif isinstance(draft, Remove | Repair):
        _check_entry(draft)
    elif isinstance(draft, Forget):
        _check_forget(draft)
    elif isinstance(draft, Place):
        _check_replaced(draft)
    else:
        assert isinstance(draft, Retract)  # noqa: S101  # nothing of its own to check


def check_fact(fact: Fact) -> None:
    """Refuse a fact whose fields could not be stored, hashed or compared.

    Raises:
        InvalidInput: the field and its problem in one sentence.
    """
    check_name(fact.fact_id, "fact_id")
    check_name(fact.space, "space")
    check_name(fact.subject, "subject")
    check_name(fact.predicate, "predicate")
    check_name(fact.actor, "actor")
    check_optional(fact.receipt_id, "receipt_id")
    check_optional(fact.supersedes, "supersedes")
    check_value(fact.value)
    if fact.text is None or not check_text(fact.text, "text").strip():
        raise InvalidInput(field="text", problem="must not be empty or blank")
    if not isinstance(fact.provenance, Provenance):
        raise InvalidInput(field="provenance", problem="must be claimed, attested or verified")
    if fact.evidence is not None:
        check_observation(fact.evidence)
    check_instant(fact.valid_from, "valid_from")
    if fact.valid_to is not None and check_instant(fact.valid_to, "valid_to") <= fact.valid_from:
        raise InvalidInput(field="valid_to", problem="must be later than valid_from")


def check_verified(fact: Fact) -> None:
    """Refuse a fact that says `verified` without equal evidence, or shows evidence and does not say so.

    Raises:
        InvalidInput: one is there without the other.
        EvidenceDiffers: what was observed is not the fact's value.
    """
    if fact.evidence is None:
        if fact.provenance is Provenance.VERIFIED:
            raise InvalidInput(field="provenance", problem=UNCOMPARED)
        return
    if fact.provenance is not Provenance.VERIFIED:
        raise InvalidInput(field="provenance", problem="of a fact with evidence is verified")
    if canonical(fact.evidence.value) != canonical(fact.value):
        raise EvidenceDiffers(source=fact.evidence.source, path=fact.evidence.path)


def _check_placement(placement: Placement, fact_id: str) -> None:
    if placement.fact_id != fact_id:
        raise InvalidInput(field="placements", problem="a placement is of another fact")
    check_name(placement.store, "store")
    _check_external_id(placement.external_id)
    if placement.external_id.startswith(ERASED_ID):
        raise InvalidInput(field="external_id", problem=f"must not begin with {ERASED_ID}")
    if placement.scope is not None:
        check_text(placement.scope, "scope")
    if placement.stored_at is not None:
        check_instant(placement.stored_at, "stored_at")


def _check_owed(draft: Assert | Confirm) -> None:
    """Refuse to owe what a store has already, and a claim, which belongs in no store."""
    for store in draft.owes:
        check_name(store, "owes")
    if not {placement.store for placement in draft.placements}.isdisjoint(draft.owes):
        raise InvalidInput(field="owes", problem="names a store that holds the fact already")
    if draft.owes and isinstance(draft, Assert) and draft.fact.provenance is Provenance.CLAIMED:
        raise InvalidInput(field="owes", problem="goes with the event that confirms a claim")


def _check_replaced(draft: Place) -> None:
    """Refuse to let go of an entry for which its store gets no other one: the fact would be missing there."""
    if len(draft.replaces) > MAX_PLACEMENTS:
        raise InvalidInput(field="replaces", problem=f"are more than {MAX_PLACEMENTS}")
    stores = {placement.store for placement in draft.placements}
    for store, external_id in draft.replaces:
        _check_external_id(external_id)
        if check_name(store, "store") not in stores:
            raise InvalidInput(field="replaces", problem="names a store that gets no other entry")


def _check_entry(draft: Remove | Repair) -> None:
    if (draft.store is None) is not (draft.external_id is None):
        raise InvalidInput(
            field="external_id", problem="store and external_id are given together or not at all"
        )
    if draft.store is not None:
        check_name(draft.store, "store")
        _check_external_id(draft.external_id)
    if draft.scope is not None:
        check_text(draft.scope, "scope")
    if draft.stored_at is not None:
        check_instant(draft.stored_at, "stored_at")
    if isinstance(draft, Remove):
        check_text(draft.detail, "detail")
        if type(draft.outcome) is not Outcome or draft.outcome is Outcome.PLANNED:
            raise InvalidInput(field="outcome", problem="must be what became of a removal")


def _check_external_id(external_id: object) -> None:
    if not check_text(external_id, "external_id"):
        raise InvalidInput(field="external_id", problem="must not be empty")


def _check_forget(draft: Forget) -> None:
    if type(draft.identity) is not bool:
        raise InvalidInput(field="identity", problem="must be true or false")
    if draft.digest is not None:
        check_name(draft.digest.alg, "digest")
        check_name(draft.digest.hex, "digest")


def check_calendar(instant: datetime, name: str, what: str) -> datetime:
    """Return an instant after which others can follow; an event at the end of the calendar would be the last.

    Raises:
        LedgerError: says what is at the edge of the calendar.
    """
    if not FIRST < instant < LAST:
        raise LedgerError(
            name=name,
            problem=f"{what} {format_instant(instant)}, where the calendar ends; nothing can follow",
        )
    return instant
