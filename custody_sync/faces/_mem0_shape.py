"""A memory as a fact, and a fact as Mem0 shows a memory.

The subject is the memory's id, so that a whole chain of updates has the one id that the caller was
given; the predicate is `memory`, the text its words. What else Mem0 keeps is in the value, and is erased
with it.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, TypeAlias

from custody_sync.errors import InvalidInput
from custody_sync.faces._mem0_scope import ENTITIES, ids_in
from custody_sync.model import FREE_TEXT_PREDICATE, Entry, Fact, Json, read_instant
from custody_sync.repair import Adoption

Shown: TypeAlias = dict[str, Any]
"""A memory in one of Mem0's answers."""

_OWN = ("actor_id", "role", "expiration_date")
IDENTITY = (*ENTITIES, "actor_id")
"""What metadata cannot set: whose a memory is, and who said it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What a memory says, and everything that Mem0 keeps beside it."""

    memory: str
    ids: Mapping[str, str]
    metadata: Mapping[str, Json]
    role: str | None = None
    actor_id: str | None = None
    expiration_date: str | None = None
    created_at: str | None = None
    """When it was first written, on everything but the first link of its chain."""

    def to_value(self) -> dict[str, Json]:
        """Return the value of the fact; what there is none of is left out."""
        said: dict[str, Json] = {
            "memory": self.memory,
            **self.ids,
            "role": self.role,
            "actor_id": self.actor_id,
            "expiration_date": self.expiration_date,
            "created_at": self.created_at,
            "metadata": dict(self.metadata) or None,
        }
        return {key: value for key, value in said.items() if value is not None}

    @property
    def valid_to(self) -> datetime | None:
        """The end of its last day, in UTC, where it has one."""
        return None if self.expiration_date is None else end_of(self.expiration_date)


def is_own(fact: Fact) -> bool:
    """Tell whether a fact has a memory's form: free text has its space for a subject."""
    return fact.predicate == FREE_TEXT_PREDICATE and fact.subject != fact.space


def content_of(fact: Fact) -> Content:
    """Read a fact as a memory; one that was not written as such is its text alone."""
    said: Mapping[str, Json] = fact.value if isinstance(fact.value, dict) and is_own(fact) else {}
    # Whose a memory is, is where it lies; what a value says of a user has no say in that.
    stated = {name: value for name in ENTITIES[1:] if isinstance(value := said.get(name), str)}
    metadata = said.get("metadata")
    return Content(
        memory=fact.text or "",
        ids={**ids_in(fact.space), **stated},
        metadata=copy.deepcopy(metadata) if isinstance(metadata, dict) else {},
        **{name: value for name in (*_OWN, "created_at") if isinstance(value := said.get(name), str)},
    )


def row_of(fact: Fact) -> Shown:
    """Return a fact flat, as filters read it."""
    content = content_of(fact)
    return {
        **content.metadata,
        "data": content.memory,
        "created_at": content.created_at or fact.valid_from.isoformat(),
        "updated_at": fact.valid_from.isoformat(),
        **{name: value for name in _OWN if (value := getattr(content, name)) is not None},
        **content.ids,
    }


def shown(fact: Fact, memory_id: str, *, first: Fact | None = None, **more: float | None) -> Shown:
    """Return a fact as Mem0 shows it.

    Args:
        fact: the link of the chain that is shown.
        memory_id: its id.
        first: the first link, where the fact itself does not say when that was.
        more: what only some of Mem0's answers have.
    """
    content = content_of(fact)
    began = content.created_at or (first or fact).valid_from.isoformat()
    answer: Shown = {
        "id": memory_id,
        "memory": content.memory,
        "hash": hashlib.md5(content.memory.encode(), usedforsecurity=False).hexdigest(),
        "metadata": dict(content.metadata) or None,
        **more,
        "created_at": began,
        "updated_at": fact.valid_from.isoformat(),
        **content.ids,
    }
    for name in _OWN:
        if (value := getattr(content, name)) is not None:
            answer[name] = value
    return answer


def as_memory(entry: Entry) -> Adoption | None:
    """Say what a memory that Mem0 had before becomes: a fact under its own id, in its user's space.

    For `adopt`, also on the command line: `--map custody_sync.faces.mem0:as_memory`. One without a user is
    left as it is.
    """
    if entry.scope is None:
        return None
    return Adoption(space=f"user:{entry.scope}", subject=entry.external_id, predicate=FREE_TEXT_PREDICATE)


# --- dates ----------------------------------------------------------------------------------


def read_day(given: object) -> str | None:
    """Return an expiration date as `YYYY-MM-DD`; None is none.

    Raises:
        InvalidInput: it is no date.
    """
    if given is None:
        return None
    if isinstance(given, datetime):
        return given.date().isoformat()
    if isinstance(given, date):
        return given.isoformat()
    if isinstance(given, str):
        try:
            return date.fromisoformat(given).isoformat()
        except ValueError:
            pass
    raise InvalidInput(field="expiration_date", problem="must be a date in the form YYYY-MM-DD")


def end_of(day: str) -> datetime:
    """Return when a memory that expires on a day is over: Mem0 still serves it on that day, in UTC."""
    try:
        return datetime.combine(date.fromisoformat(day) + timedelta(days=1), time(), UTC)
    except OverflowError:
        raise InvalidInput(field="expiration_date", problem="is beyond the calendar") from None


def read_start(metadata: dict[str, Json], now: datetime) -> datetime | None:
    """Take `created_at` out of metadata, as Mem0 does: since when it is known, if not since now.

    Raises:
        InvalidInput: it is no instant, or still to come.
    """
    given = metadata.pop("created_at", None)
    if given is None:
        return None
    start = read_instant(given) if isinstance(given, str) else None
    if start is None:
        problem = "must be an instant with its offset, as in 2026-01-12T09:00:00+00:00"
        raise InvalidInput(field="metadata.created_at", problem=problem)
    if start > now:
        raise InvalidInput(field="metadata.created_at", problem="is still to come")
    return start


def roots(facts: Sequence[Fact], chains: Mapping[str, Fact]) -> list[tuple[Fact, str, Fact | None]]:
    """Pair facts with the ids of their memories, and with the first link where they do not name it.

    Args:
        facts: what is to be shown.
        chains: the first link of every fact that is not in a memory's form and corrects another.
    """
    pairs: list[tuple[Fact, str, Fact | None]] = []
    for fact in facts:
        first = None if is_own(fact) else chains.get(fact.fact_id)
        pairs.append((fact, fact.subject if is_own(fact) else (first or fact).fact_id, first))
    return pairs


__all__ = [
    "IDENTITY",
    "Content",
    "Shown",
    "as_memory",
    "content_of",
    "end_of",
    "is_own",
    "read_day",
    "read_start",
    "roots",
    "row_of",
    "shown",
]
