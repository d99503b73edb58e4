"""What a row of the pgvector table says, and what is written into one."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

from custody_sync.model import Entry, Fact, Label


def row_of(fact: Fact, label: Label, vector: str) -> dict[str, Any]:
    """Return the parameters that write one row."""
    return {
        "key": label.key,
        "fact_id": label.fact_id,
        "ledger_id": label.ledger_id,
        "space": label.space,
        "stored_at": label.stored_at,
        "custody": label.to_metadata()["custody"],
        "text": fact.text or "",
        "vector": vector,
    }


def entry_of(store: str, row: tuple[Any, ...], text: str | None = None) -> Entry:
    """Read a row back; one without fact id and ledger id is nobody's we know."""
    key, fact_id, ledger_id, space, stored_at, created_at = row[:6]
    if fact_id is None or ledger_id is None:
        fact_id = ledger_id = space = stored_at = None
    # Our keys are `label.key`; the generation of a row that is called otherwise is not known.
    own = f"{fact_id}."
    return Entry(
        store=store,
        external_id=key,
        fact_id=fact_id,
        stored_at=_in_utc(stored_at),
        text=text,
        ledger_id=ledger_id,
        space=space,
        created_at=_in_utc(created_at),
        generation=key[len(own) :] if fact_id is not None and key.startswith(own) else None,
    )


def score_of(similarity: float | None) -> float | None:
    """Return a similarity; a row without direction has none."""
    return None if similarity is None or math.isnan(similarity) else similarity


def _in_utc(instant: datetime | None) -> datetime | None:
    return None if instant is None else instant.astimezone(UTC)
