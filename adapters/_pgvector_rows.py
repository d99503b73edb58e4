"""What a row of the pgvector table says, and what is written into one."""

from __future__ import annotations

import math
from dataclasses import fields
from datetime import UTC
from typing import Any

from custody_sync.model import Entry, Fact, Label


def columns_of_label(label: Label) -> tuple[Any, ...]:
    """Return the label's columns, in the order in which COPY writes them."""
    custody = label.to_metadata()["custody"]
    return label.key, label.fact_id, label.ledger_id, label.space, label.stored_at, custody


def row_of(fact: Fact | None, label: Label, vector: str) -> dict[str, Any]:
    """Return the parameters that write one row, or change its label."""
    key, fact_id, ledger_id, space, stored_at, custody = columns_of_label(label)
    return {
        "key": key,
        "fact_id": fact_id,
        "ledger_id": ledger_id,
        "space": space,
        "stored_at": stored_at,
        "custody": custody,
        "text": None if fact is None else fact.text,
        "vector": vector,
    }


class _Unfrozen:
    """An entry while it is filled in.

    A listing makes one a row, and a frozen dataclass sets its fields by name, which takes seven
    times as long. This class has the same slots, so that what is filled in can become an entry.
    """

    __slots__ = tuple(field.name for field in fields(Entry))


def entry_of(store: str, row: tuple[Any, ...], text: str | None = None, custody: str | None = None) -> Entry:
    """Read a row back; one without fact id and ledger id is nobody's we know."""
    key, fact_id, ledger_id, space, stored_at, created_at = row[:6]
    if fact_id is None or ledger_id is None:
        fact_id = ledger_id = space = stored_at = custody = None
    # Our keys are `label.key`; the generation of a row that is called otherwise is not known.
    named, dot, generation = key.rpartition(".")
    made: Any = _Unfrozen()
    made.store = store
    made.external_id = key
    made.fact_id = fact_id
    made.scope = None
    made.stored_at = None if stored_at is None else stored_at.astimezone(UTC)
    made.text = text
    made.ledger_id = ledger_id
    made.space = space
    made.created_at = None if created_at is None else created_at.astimezone(UTC)
    made.generation = generation if dot and named == fact_id else None
    made.custody = custody
    made.__class__ = Entry
    entry: Entry = made
    return entry


def score_of(similarity: float | None) -> float | None:
    """Return a similarity; a row without direction has none."""
    return None if similarity is None or math.isnan(similarity) else similarity
