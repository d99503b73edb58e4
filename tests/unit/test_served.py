"""Several answers of a store as one: nothing that it served is lost, and its own order is kept."""

from __future__ import annotations

import pytest

from custody_sync.model import Entry
from custody_sync.served import Served, in_order, joined

Told = tuple[str, float | None]


def rows(*told: Told) -> list[Served]:
    """Return what was served: ids with scores."""
    return [(Entry(store="s", external_id=external_id), score) for external_id, score in told]


def shown(served: list[Served]) -> list[str]:
    """Return the ids alone."""
    return [entry.external_id for entry, _ in served]


@pytest.mark.parametrize(
    ("newer", "older", "expected"),
    [
        ([], [("a", 1.0)], "a"),
        ([("a", 1.0)], [], "a"),
        # By score, where both fall and score alike what both have.
        ([("x", 0.9), ("y", 0.3)], [("a", 0.5), ("b", 0.1)], "xayb"),
        ([("x", 0.9), ("a", 0.5), ("y", 0.3)], [("a", 0.5), ("b", 0.4)], "xaby"),
        # Otherwise as the newer answer ranks it, and then the rest as the older one does.
        ([("x", None), ("a", None)], [("a", None), ("b", None)], "xab"),
        ([("x", 0.1), ("y", 0.2)], [("b", 0.9)], "xyb"),
        ([("x", 0.3)], [("b", 0.1), ("c", 0.9)], "xbc"),
        ([("x", 0.3), ("a", 0.2)], [("a", 0.4), ("b", 0.9)], "xab"),
        ([("x", 0.3)], [("b", 0.9), ("c", None)], "xbc"),
        # What one answer has twice stays twice.
        ([("x", None), ("x", None)], [("b", None), ("b", None), ("x", None)], "xxbb"),
    ],
)
def test_two_answers_are_one(newer: list[Told], older: list[Told], expected: str) -> None:
    """Everything either has is there, what both have once, in an order that the store would give."""
    assert "".join(shown(joined(rows(*newer), rows(*older)))) == expected


def test_one_id_under_two_labels_is_two_entries() -> None:
    """A label that one answer does not show takes away nothing that the other leads to."""
    plain = Entry(store="s", external_id="a")
    labelled = Entry(store="s", external_id="a", fact_id="f", ledger_id="l")
    assert joined([(plain, None)], [(labelled, None)]) == [(plain, None), (labelled, None)]


def test_what_scored_alike_is_in_order_of_id() -> None:
    """Only that: another score, or none, keeps its place."""
    served = rows(("c", 1.0), ("b", 0.5), ("a", 0.5), ("z", None), ("y", None))
    assert "".join(shown(in_order(served))) == "cabzy"
