"""The rules of Mem0's hosted service that its stand-in keeps: records, switches, filters, ranking."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

ENTITIES = ("user_id", "agent_id", "app_id", "run_id")
FILTERS = frozenset(
    (
        *ENTITIES,
        "AND",
        "OR",
        "NOT",
        "created_at",
        "updated_at",
        "timestamp",
        "expiration_date",
        "text",
        "categories",
        "metadata",
        "keywords_search",
        "memory_ids",
        "keywords",
    )
)
WORD = re.compile(r"\w+")


class Dropped(Exception):
    """The connection ends without an answer."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A status, a body that is JSON unless it is None, and headers."""

    status: int
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def content(self) -> bytes:
        """The body as it goes over the wire."""
        return b"" if self.body is None else json.dumps(self.body).encode()


class Refused(Exception):
    """A request that the service turns away."""

    def __init__(self, status: int, body: Any, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status)
        self.reply = Reply(status, body, headers or {})


@dataclass(slots=True, kw_only=True)
class Memory:
    """One stored memory."""

    memory_id: str
    text: str
    scope: dict[str, str]
    metadata: dict[str, Any]
    created_at: datetime
    expiration_date: str | None = None
    replaced_by: str | None = None
    is_merged: bool = False
    words: frozenset[str] = frozenset()

    @property
    def is_expired(self) -> bool:
        """Whether its day has passed."""
        return self.expiration_date is not None and date.fromisoformat(self.expiration_date) < date.today()


@dataclass(slots=True)
class Switches:
    """What the service does wrong; counts go down by one with each time."""

    lag: float = 0
    lag_reaches: frozenset[str] = frozenset({"search"})
    """Which readings show a deleted memory while the lag lasts: search, list, get."""
    search_fails: float = 0
    throttled: float = 0
    fails_after: float = 0
    lost_reply: float = 0
    reset: float = 0
    repeats: bool = False
    skips: float = 0
    lying_delete: bool = False
    pending: bool = False
    infers: bool = False
    """Its model makes each message a memory of its own; otherwise an inference never ends."""
    empty_body: float = 0
    retry_after: str = "0"
    collapses: bool = True
    """Exact repeats of a text in one scope are dropped, as the service documents."""
    collapse_ignores_run: bool = False
    """The scope of a repeat is the user alone: what the service's page on duplicates leaves open."""
    collapse_shares_id: bool = False
    """A repeat is answered with the id of the memory that is there, instead of with no result."""
    polls: int = 0
    """How often a write's event is still RUNNING before it is done; 0 answers at once."""
    merged_hidden_by_id: bool = False
    """A lookup by id hides a merged memory, as the service's page on reads leaves open."""
    null_scoping: bool = False
    """An id that a filter does not name has to be empty, as older pages of the service say."""
    envelope_omits: frozenset[str] = frozenset()
    """Keys that are missing around the rows of a list."""
    bare_list: bool = False
    """A list is answered without an envelope, as the service's first version did."""
    renames: Mapping[str, str] = field(default_factory=dict)
    """Keys that rows have under another name, or, if that is empty, not at all."""
    metadata_as_text: bool = False
    """Metadata is shown as the JSON text of itself."""
    filters_last: bool = False
    """Filters on ids and metadata are applied after the cut to `top_k`."""

    def take(self, name: str) -> bool:
        """Return whether a counted switch is on, and count it."""
        left = getattr(self, name)
        if left <= 0:
            return False
        setattr(self, name, left - 1)
        return True


def scope_of(filters: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a filter that names entities."""
    return {key: value for key, value in filters.items() if key in ENTITIES}


def check_filters(body: dict[str, Any]) -> None:
    """Refuse a filter with unknown keys or without an entity."""
    filters = body.get("filters")
    if not isinstance(filters, dict) or any(name in body for name in ENTITIES):
        raise Refused(400, {"error": "entity ids must be inside filters"})
    unknown = filters.keys() - FILTERS
    if unknown:
        raise Refused(400, {"error": f"Invalid filter keys: {sorted(unknown)}"})
    if not any(name in json.dumps(filters) for name in ENTITIES):
        raise Refused(400, {"error": "filters must contain an entity id"})


def is_wanted(memory: Memory, body: dict[str, Any]) -> bool:
    """Tell whether a read shows a memory: not hidden, and fitting the filter."""
    hidden = (memory.is_expired and not body.get("show_expired")) or (
        memory.is_merged and not body.get("include_merged")
    )
    return not hidden and _fits(memory, body["filters"])


def _fits(memory: Memory, filters: dict[str, Any]) -> bool:
    for key, wanted in filters.items():
        match key:
            case "AND":
                fits = all(_fits(memory, each) for each in wanted)
            case "OR":
                fits = any(_fits(memory, each) for each in wanted)
            case "NOT":
                fits = not any(_fits(memory, each) for each in wanted)
            case "metadata":
                fits = all(memory.metadata.get(name) == value for name, value in wanted.items())
            case "memory_ids":
                fits = memory.memory_id in wanted
            case _:
                held = memory.scope.get(key)
                fits = held is not None if wanted == "*" else held == wanted
        if not fits:
            return False
    return True


def score_of(query: str, words: frozenset[str], memory: Memory) -> float:
    """Rank an equal text first, then by words in common."""
    if query.strip() == memory.text.strip():
        return 1.0
    either = len(words | memory.words)
    return 0.9 * len(words & memory.words) / either if either else 0.0
