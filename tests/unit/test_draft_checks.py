"""What a draft must look like: whatever could fail inside the ledger's transaction is refused before it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fix_ledger import START, Drafts

from custody_sync.errors import EvidenceDiffers, InvalidInput, LedgerError
from custody_sync.ledger import Digest, Place
from custody_sync.ledger.chain import GENESIS, prepare, read_event, read_evidence, seal
from custody_sync.ledger.checks import FIRST, LAST, check_calendar, check_draft
from custody_sync.ledger.rows import MAX_PLACEMENTS
from custody_sync.model import Observation, Outcome, Provenance, format_instant
from custody_sync.testing import ManualClock, SteppingIds

TICK = timedelta(microseconds=1)
M1 = ("memories", "m-1")
SEEN = Observation(source="crm", path="/plan", value="pro")
Make = Callable[[Drafts], Any]


def a_state(drafts: Drafts, /, **more: Any) -> Any:
    """Return an assert with an entry, of which fields of the draft are changed."""
    return replace(drafts.state(held=[M1]), **more)


def a_fact(drafts: Drafts, /, **more: Any) -> Any:
    """Return an assert of which fields of the fact are changed."""
    draft = drafts.state()
    return replace(draft, fact=replace(draft.fact, **more))


def an_entry(drafts: Drafts, /, **more: Any) -> Any:
    """Return an assert with one placement of which fields are changed."""
    draft = drafts.state(held=[M1])
    return replace(draft, placements=(replace(draft.placements[0], **more),))


def a_place(drafts: Drafts, /, **more: Any) -> Place:
    """Return a placement that replaces another one."""
    return replace(drafts.place("f", [("memories", "m-2")]), **{"replaces": (M1,), **more})


BAD: list[tuple[str, Make]] = [
    ("draft", lambda d: "no draft"),
    ("event_id", lambda d: replace(d.retract("f"), event_id="")),
    ("fact_id", lambda d: d.retract("")),
    ("actor", lambda d: replace(d.retract("f"), actor=" ")),
    ("receipt_id", lambda d: replace(d.retract("f"), receipt_id="")),
    ("reason", lambda d: d.retract("f", reason="\0")),
    ("request", lambda d: a_state(d, request="")),
    ("adopted", lambda d: a_state(d, adopted=1)),
    ("fact_id", lambda d: a_fact(d, fact_id="")),
    ("space", lambda d: a_fact(d, space="")),
    ("subject", lambda d: a_fact(d, subject="")),
    ("predicate", lambda d: a_fact(d, predicate="")),
    ("actor", lambda d: a_fact(d, actor="")),
    ("receipt_id", lambda d: a_fact(d, receipt_id="")),
    ("supersedes", lambda d: a_fact(d, supersedes="")),
    ("value", lambda d: a_fact(d, value=object())),
    ("text", lambda d: a_fact(d, text=" \n")),
    ("text", lambda d: a_fact(d, text=None)),
    ("provenance", lambda d: a_fact(d, provenance="attested")),
    ("provenance", lambda d: a_fact(d, provenance=Provenance.VERIFIED)),
    ("provenance", lambda d: a_fact(d, evidence=SEEN)),
    ("valid_from", lambda d: a_fact(d, valid_from=START.replace(tzinfo=None))),
    ("valid_to", lambda d: a_fact(d, valid_to=START.replace(tzinfo=None))),
    ("valid_to", lambda d: a_fact(d, valid_from=START, valid_to=START)),
    ("placements", lambda d: a_state(d, placements=d.held("another", [M1]))),
    ("placements", lambda d: a_state(d, placements=d.held("f", [M1]) * (MAX_PLACEMENTS + 1))),
    ("store", lambda d: an_entry(d, store="")),
    ("external_id", lambda d: an_entry(d, external_id="")),
    ("external_id", lambda d: an_entry(d, external_id="erased~1")),
    ("scope", lambda d: an_entry(d, scope="\0")),
    ("stored_at", lambda d: an_entry(d, stored_at=START.replace(tzinfo=None))),
    ("kept", lambda d: a_state(d, kept=("",))),
    ("owes", lambda d: a_state(d, owes=("",))),
    ("owes", lambda d: a_state(d, owes=("memories",))),
    ("owes", lambda d: replace(a_fact(d, provenance=Provenance.CLAIMED), owes=("agent",))),
    ("kept", lambda d: d.confirm("f", kept=("",))),
    ("owes", lambda d: d.confirm("f", [M1], owes=("memories",))),
    ("hold_id", lambda d: d.hold("f", "")),
    ("hold_id", lambda d: d.release("f", "")),
    ("external_id", lambda d: d.repair("f", "memories")),
    ("external_id", lambda d: d.repair("f", None, "m-1")),
    ("external_id", lambda d: d.repair("f", "memories", "")),
    ("store", lambda d: d.repair("f", "", "m-1")),
    ("scope", lambda d: d.repair("f", *M1, scope="\0")),
    ("stored_at", lambda d: d.repair("f", *M1, stored_at=START.replace(tzinfo=None))),
    ("detail", lambda d: d.remove("f", *M1, detail="\0")),
    ("outcome", lambda d: d.remove("f", *M1, outcome=Outcome.PLANNED)),
    ("outcome", lambda d: d.remove("f", *M1, outcome="verified")),
    ("identity", lambda d: d.forget("f", identity=1)),
    ("digest", lambda d: d.forget("f", Digest("", "ab"))),
    ("digest", lambda d: d.forget("f", Digest("sha256", ""))),
    ("replaces", lambda d: a_place(d, replaces=(("agent", "a-1"),))),
    ("replaces", lambda d: a_place(d, replaces=(M1,) * (MAX_PLACEMENTS + 1))),
    ("external_id", lambda d: a_place(d, replaces=(("memories", ""),))),
    ("store", lambda d: a_place(d, replaces=(("", "m-1"),))),
    ("placements", lambda d: a_place(d, placements=d.held("another", [M1]))),
]
GOOD: list[Make] = [
    lambda d: d.state(held=[M1], valid_to=START + TICK),
    lambda d: a_state(d, owes=("agent",), kept=("memories",), request="digest", adopted=True),
    lambda d: an_entry(d, scope=None, stored_at=None),
    lambda d: a_fact(d, provenance=Provenance.VERIFIED, evidence=SEEN),
    lambda d: a_fact(d, provenance=Provenance.CLAIMED, supersedes="f"),
    lambda d: a_state(d, placements=d.held("f", [])),
    lambda d: d.confirm("f", [M1], owes=("agent",), kept=("memories",)),
    lambda d: d.retract("f", reason="why"),
    lambda d: d.hold("f"),
    lambda d: d.release("f"),
    lambda d: d.repair("f"),
    lambda d: d.repair("f", *M1, scope="s", stored_at=START),
    lambda d: d.remove("f", *M1, detail="said"),
    lambda d: d.forget("f", Digest("sha256", "ab"), identity=True),
    a_place,
]


@pytest.fixture
def drafts() -> Drafts:
    """Drafts at a clock that stands."""
    return Drafts(ManualClock(START))


@pytest.mark.parametrize(("field", "make"), BAD, ids=[f"{n}-{field}" for n, (field, _) in enumerate(BAD)])
def test_a_draft_that_could_fail_later_is_refused_by_its_field(
    field: str, make: Make, drafts: Drafts
) -> None:
    """The field is named, and a sentence says what is wrong with it."""
    with pytest.raises(InvalidInput) as caught:
        check_draft(make(drafts))
    assert caught.value.fields["field"] == field
    assert caught.value.fields["problem"]


@pytest.mark.parametrize("make", GOOD)
def test_a_draft_that_can_be_stored_is_taken(make: Make, drafts: Drafts) -> None:
    """What may be left out may be left out, and what is at its limit is within it."""
    check_draft(make(drafts))


def test_evidence_of_another_value_is_refused(drafts: Drafts) -> None:
    """What was observed has to be what the fact says; the refusal tells where it was observed."""
    with pytest.raises(EvidenceDiffers) as caught:
        check_draft(a_fact(drafts, provenance=Provenance.VERIFIED, value="free", evidence=SEEN))
    assert caught.value.fields == {"source": "crm", "path": "/plan"}


def test_as_many_placements_as_an_event_may_name_are_taken(drafts: Drafts) -> None:
    """The limit itself is no problem."""
    most = drafts.held("f", [M1]) * MAX_PLACEMENTS
    check_draft(replace(drafts.place("f", []), placements=most, replaces=(M1,) * MAX_PLACEMENTS))


def test_an_event_at_the_end_of_the_calendar_is_refused() -> None:
    """Nothing could follow it; what is within is returned."""
    for edge in (FIRST, LAST):
        with pytest.raises(LedgerError) as caught:
            check_calendar(edge, "sqlite", "the clock says")
        said = caught.value.fields
        assert said["name"] == "sqlite"
        assert said["problem"].startswith(f"the clock says {format_instant(edge)}, where the calendar ends")
    for inside in (FIRST + TICK, LAST - TICK, datetime(2026, 1, 1, tzinfo=UTC)):
        assert check_calendar(inside, "sqlite", "the clock says") == inside


def test_an_event_without_a_time_is_damaged(drafts: Drafts) -> None:
    """No time is made up for it."""
    prepared = prepare(drafts.retract("f"), SteppingIds())
    body, digest = seal(prepared, seq=1, tx_time=format_instant(START), prev=GENESIS)
    assert read_event(body, digest, {}).tx_time == START
    with pytest.raises(ValueError, match="tx_time"):
        read_event(json.dumps({**json.loads(body), "tx_time": None}), digest, {})


def test_what_a_fact_was_compared_with_is_read_from_its_content() -> None:
    """The value that was observed equals the fact's own, and is kept once."""
    content = {"value": "pro", "text": "t", "evidence": {"source": "crm", "path": "/plan"}}
    assert read_evidence(content) == SEEN
    assert read_evidence({"value": "pro", "text": "t"}) is None
