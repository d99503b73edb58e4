"""Facts and labels for a store alone, dated on one day."""

from __future__ import annotations

from datetime import UTC, datetime

from custody_sync.model import Fact, Json, Label, Provenance
from custody_sync.testing import SteppingIds

NOW = datetime(2026, 5, 1, tzinfo=UTC)
IDS = SteppingIds()


def fact(text: str, *, space: str = "org", value: Json = None) -> Fact:
    """Return a new fact with that text."""
    return Fact(
        fact_id=IDS.fact_id(NOW),
        space=space,
        subject=space,
        predicate="memory",
        value=text if value is None else value,
        text=text,
        actor="agent:test",
        provenance=Provenance.ATTESTED,
        valid_from=NOW,
    )


def label(of: Fact) -> Label:
    """Return a label of a new generation."""
    return Label(
        ledger_id="ledger-1",
        fact_id=of.fact_id,
        space=of.space,
        stored_at=NOW,
        generation=IDS.generation(),
        actor=of.actor,
        provenance=of.provenance,
        valid_from=of.valid_from,
    )
