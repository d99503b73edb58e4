"""What a crash before the append leaves in a store: an entry that no event stands behind."""

from __future__ import annotations

from datetime import datetime

from custody_sync.model import Fact, Label, Provenance


def lost_fact(fact_id: str, value: str, actor: str, now: datetime) -> Fact:
    """Return the fact that was put and never recorded."""
    return Fact(
        fact_id=fact_id,
        space="org",
        subject="acct:lost",
        predicate="plan",
        value=value,
        text=f"acct:lost plan: {value}",
        actor=actor,
        provenance=Provenance.ATTESTED,
        valid_from=now,
    )


def label_of(fact: Fact, ledger_id: str, generation: str) -> Label:
    """Return the label that it was put with, then."""
    return Label(
        ledger_id=ledger_id,
        fact_id=fact.fact_id,
        space=fact.space,
        stored_at=fact.valid_from,
        generation=generation,
        actor=fact.actor,
        provenance=fact.provenance,
        valid_from=fact.valid_from,
    )
