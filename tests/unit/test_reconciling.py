"""What reconciling is made of: marks of placements, labels compared part by part, and what may be mended."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody_sync.errors import InvalidInput
from custody_sync.ledger.rows import place_of
from custody_sync.mended import MENDABLE, Drift
from custody_sync.model import Entry, Fact, Label, Provenance
from custody_sync.repair.differing import differing_parts
from custody_sync.repair.marks import Marks, event_of
from custody_sync.repair.reconcile import read_fix

NOW = datetime(2026, 3, 1, tzinfo=UTC)
PLACES = st.builds(place_of, st.integers(1, 2_000_000), st.integers(0, 9))


@given(st.sets(PLACES, max_size=50), st.sets(PLACES, max_size=50))
def test_marks_are_a_set(marked: set[int], others: set[int]) -> None:
    """A place is marked if and only if it was added, however often."""
    marks = Marks()
    marks.add(marked)
    marks.add(marked)
    assert marks.count == len(marked)
    assert {place for place in marked | others if place in marks} == marked


def test_marks_are_small() -> None:
    """A million neighbouring events take a bit each and a part of a block."""
    marks = Marks()
    marks.add(place_of(seq, 0) for seq in range(1, 1_000_000))
    assert sum(map(len, marks._blocks.values())) < 140_000
    assert event_of(place_of(4711, 3)) == 4711


def stated() -> tuple[Fact, Label]:
    """Return a fact and its label."""
    told: dict[str, Any] = {"fact_id": "f-1", "space": "org", "actor": "ana", "valid_from": NOW}
    fact = Fact(
        **told, subject="s", predicate="p", value="v", text="t", provenance=Provenance.CLAIMED, receipt_id="r"
    )
    label = Label(
        **told,
        ledger_id="l",
        stored_at=NOW,
        generation="g1",
        provenance=Provenance.CLAIMED,
        receipt_id="r",
    )
    return fact, label


def entry_of(label: Label, external_id: str = "m-1") -> Entry:
    """Return the entry that a store shows under a label."""
    return Entry.from_metadata(label.to_metadata(), store="a", external_id=external_id)


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({}, []),
        ({"space": "other"}, ["space"]),
        ({"stored_at": NOW.replace(year=2025)}, ["stored_at"]),
        ({"actor": "bob", "receipt_id": None}, ["actor", "receipt_id"]),
        ({"valid_from": NOW.replace(year=2025)}, ["valid_from"]),
        ({"provenance": Provenance.ATTESTED}, ["provenance"]),
        ({"generation": "g2"}, []),
    ],
)
def test_parts_of_a_label(change: dict[str, Any], parts: list[str]) -> None:
    """Each part of a label that differs is named; a generation that stands nowhere else is not."""
    fact, label = stated()
    assert differing_parts(entry_of(replace(label, **change)), fact, NOW) == parts


def test_generation_where_the_id_has_it() -> None:
    """Where our key is the id, a label's generation has to be that of the key, or of the part's key."""
    fact, label = stated()
    assert differing_parts(entry_of(label, "f-1.g1"), fact, NOW) == []
    assert differing_parts(entry_of(label, "f-1.g1/2"), fact, NOW) == []
    assert differing_parts(entry_of(label, "f-1.g9"), fact, NOW) == ["generation"]


def test_a_confirmed_claim_is_attested() -> None:
    """The label of a claim that was confirmed has to say that it is attested."""
    fact, label = stated()
    confirmed = replace(fact, confirmed=True)
    assert differing_parts(entry_of(label), confirmed, NOW) == ["provenance"]
    assert differing_parts(entry_of(replace(label, provenance=Provenance.ATTESTED)), confirmed, NOW) == []


def test_what_nobody_read_is_not_compared() -> None:
    """What an adapter does not tell is not compared, nor a date that is not on record."""
    fact, label = stated()
    bare = replace(entry_of(label), custody=None)
    assert differing_parts(bare, replace(fact, actor="somebody"), None) == []


def test_what_may_be_mended() -> None:
    """Kinds go by name, `all` is those that can be mended, and one string is one name."""
    assert read_fix("all") == read_fix(["all"]) == set(MENDABLE)
    assert read_fix([]) == set()
    assert read_fix(["missing", Drift.STRAY]) == {Drift.MISSING, Drift.STRAY}
    assert [kind for kind in Drift if kind.can_be_mended] == list(MENDABLE)
    for wrong in (["young"], ["no such"], "missing"):
        with pytest.raises(InvalidInput):
            read_fix(wrong)
