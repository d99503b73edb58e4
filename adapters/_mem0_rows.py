"""What Mem0 answers with, in one shape: rows of the hosted service and of the open source library."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Protocol
from urllib.parse import quote

from custody_sync.adapters._shared import finite
from custody_sync.model import Capability, Entry, Label, Support
from custody_sync.ports import ANOTHER_LEDGER, NO_LABEL


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One memory as Mem0 shows it."""

    external_id: str
    text: str | None
    user_id: str | None
    metadata: Mapping[str, Any]
    created_at: datetime | None
    score: float | None = None
    similarity: float | None = None
    """The part of the score that the vectors alone make, where it was asked for."""

    def to_entry(self, store: str, *, with_text: bool = True) -> Entry:
        """Return the entry it is: ours if its metadata is a label, else unlabelled."""
        return Entry.from_metadata(
            self.metadata,
            store=store,
            external_id=self.external_id,
            scope=self.user_id,
            text=self.text if with_text else None,
            created_at=self.created_at,
        )


class Holder(Enum):
    """Whose the row under an entry's id is, by its label."""

    OURS = "ours"
    NOBODY = NO_LABEL
    ANOTHER_FACT = "IdOfAnotherFact"
    ANOTHER_LEDGER = ANOTHER_LEDGER


class Backend(Protocol):
    """What the adapter needs of Mem0, whichever of its two halves is behind it."""

    @property
    def place(self) -> str | None:
        """The project or collection that the client reaches; None if it does not say."""
        ...

    @property
    def capabilities(self) -> Mapping[Capability, Support]:
        """What it offers less than fully, and why."""
        ...

    @property
    def leaves(self) -> tuple[str, ...]:
        """What a deletion leaves, in sentences."""
        ...

    async def add(self, text: str, user_id: str, label: Label) -> str:
        """Store one text verbatim with its label and return its id, once it is certain."""
        ...

    async def infer(self, messages: Sequence[Any], **options: Any) -> list[str]:
        """Let the model make memories of messages and return the ids of those that it added."""
        ...

    async def get(self, operation: str, external_id: str) -> Row | None:
        """Return the row of an id; None only if there is none."""
        ...

    async def delete(self, external_id: str) -> None:
        """Delete one row; already gone is success."""
        ...

    async def of_fact(self, operation: str, fact_id: str) -> list[Row]:
        """Return every row whose metadata names the fact, in whatever scope and state."""
        ...

    def everything(self) -> AsyncIterator[Row]:
        """Yield every row that can be enumerated, each once, whatever comes and goes meanwhile."""
        ...

    async def nearest(self, query: str, k: int, user_id: str | None, space: str | None) -> list[Row]:
        """Return the best k rows of a user (None: of all), and of a space if one is named."""
        ...

    async def serves(self, entry: Entry, text: str) -> bool:
        """Tell whether a search with the text still shows the entry; raise `NoProof` if it cannot tell."""
        ...

    async def is_listed(self, external_id: str) -> bool:
        """Tell whether anything beside the lookup by id still shows the id."""
        ...

    async def relabel(self, row: Row, metadata: Mapping[str, str]) -> None:
        """Replace the label of one row and leave its text, and what else it carries, alone."""
        ...


def rows_of(answer: object) -> list[Row] | None:
    """Read a list of rows from an answer, an envelope or a bare list.

    None if it is neither, or if one row in it cannot be read: that could be the one that is asked about.
    """
    found = answer.get("results") if isinstance(answer, Mapping) else answer
    if not isinstance(found, list):
        return None
    rows = [row for row in map(read_row, found) if row is not None]
    return rows if len(rows) == len(found) else None


def read_row(raw: object) -> Row | None:
    """Read one row; None for what has no id, or a label that cannot be read.

    The text stands under `data.memory` in the reply to a direct import, under `memory` or `text`
    elsewhere (docs/openapi.json of mem0ai/mem0, 2026-08-22).
    """
    if not isinstance(raw, Mapping):
        return None
    external_id, metadata, user_id = raw.get("id"), raw.get("metadata"), raw.get("user_id")
    if not isinstance(external_id, str) or not external_id or not isinstance(metadata, Mapping | None):
        return None
    details = raw.get("score_details")
    return Row(
        external_id=external_id,
        text=text_of(raw),
        user_id=user_id if isinstance(user_id, str) else None,
        metadata=metadata or {},
        created_at=read_time(raw.get("created_at")),
        score=_number(raw.get("score")),
        similarity=_number(details.get("semantic_score")) if isinstance(details, Mapping) else None,
    )


def _number(raw: object) -> float | None:
    return finite(raw) if isinstance(raw, int | float) else None


def added(results: object) -> list[str]:
    """Return the ids of what an inference added; other events are of memories that were there before."""
    found = results.get("results") if isinstance(results, Mapping) else results
    rows = [raw for raw in found if isinstance(raw, Mapping)] if isinstance(found, list) else []
    ids = [raw.get("id") for raw in rows if raw.get("event", "ADD") == "ADD"]
    return [external_id for external_id in ids if isinstance(external_id, str) and is_id(external_id)]


def text_of(raw: Mapping[str, Any]) -> str | None:
    """Return a row's text, wherever this answer keeps it."""
    data = raw.get("data")
    places = [raw, data] if isinstance(data, Mapping) else [raw]
    for place in places:
        for key in ("memory", "text", "data"):
            if isinstance(found := place.get(key), str):
                return found
    return None


def read_time(raw: object) -> datetime | None:
    """Read an instant with any offset as UTC; without an offset it is UTC already.

    Releases before 1.0.7 wrote US/Pacific offsets (https://github.com/mem0ai/mem0/issues/4402), and
    list and search differ in form (https://github.com/mem0ai/mem0/pull/4463).
    """
    if not isinstance(raw, str):
        return None
    try:
        read = datetime.fromisoformat(raw)
        return read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def metadata_of(label: Label) -> dict[str, str]:
    """Write a label as flat texts: the only metadata that every vector store takes and can filter."""
    return {key: str(value) for key, value in label.to_metadata().items()}


def encoded(user_id: str) -> str:
    """Escape what Mem0 refuses in a user id or reads as a wildcard, so that no two spaces share one.

    White space is refused and trimmed, `*` means every user (mem0ai 2.2.1).
    """
    return "".join(quote(c, safe="") if c.isspace() or c in "%*" else c for c in user_id)


def is_id(external_id: str) -> bool:
    """Tell whether an id can be Mem0's: it makes up UUIDs, and refuses to look anything else up."""
    try:
        uuid.UUID(external_id)
    except ValueError:
        return False
    return True


def holder_of(row: Row, entry: Entry) -> Holder:
    """Tell whose the row under an entry's id is: the entry's fact's and, where it is known, ledger's."""
    label = row.to_entry("")
    if entry.fact_id is None:
        # What is known by its id alone is what nobody has labelled.
        return Holder.OURS if label.fact_id is None else Holder.ANOTHER_FACT
    if label.fact_id is None:
        return Holder.NOBODY
    if entry.ledger_id not in (None, label.ledger_id):
        return Holder.ANOTHER_LEDGER
    return Holder.OURS if label.fact_id == entry.fact_id else Holder.ANOTHER_FACT


def is_of(row: Row, label: Label) -> bool:
    """Tell whether a row carries this label: its fact, its ledger and its generation."""
    entry = row.to_entry("")
    return (entry.fact_id, entry.ledger_id, entry.generation) == (
        label.fact_id,
        label.ledger_id,
        label.generation,
    )
