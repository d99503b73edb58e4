"""What a caller asked for, read and copied before anything is done."""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from custody_sync.canonical import check_name, check_text, check_value
from custody_sync.errors import InvalidInput
from custody_sync.faces._mem0_filters import Filter, read_filters
from custody_sync.faces._mem0_scope import Scope, read_scope
from custody_sync.faces._mem0_shape import IDENTITY, end_of, read_day
from custody_sync.model import Json
from custody_sync.serving import LARGEST_K, check_flag

log = logging.getLogger("custody_sync.faces")

UNSET: Final = object()
"""Stands for an expiration date that was not given, where None takes one away."""
PROCEDURAL = "procedural_memory"
_INFER = (
    "lets Mem0's model write before the ledger: pass infer=False to keep the messages as they are, or "
    "make the face with infer='adopt'"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One message that becomes a memory."""

    text: str
    role: str
    actor_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Adding:
    """An `add`: what was said, in whose memory, and whether Mem0's model is to make memories of it."""

    said: tuple[Said, ...]
    messages: list[Any]
    scope: Scope
    metadata: dict[str, Json]
    expiration_date: str | None
    infer: bool
    options: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Searching:
    """A `search`."""

    query: str
    filter: Filter
    top_k: int
    threshold: float
    rerank: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A `get_all`."""

    filter: Filter
    top_k: int
    show_expired: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Updating:
    """An `update`; what is None is left as it is."""

    memory_id: str
    text: str | None
    metadata: dict[str, Json] | None
    expires: bool
    expiration_date: str | None


def read_add(
    messages: object,
    scope: tuple[object, object, object],
    metadata: object,
    timestamp: object,
    expiration_date: object,
    infer: object,
    memory_type: object,
    prompt: object,
    llm: object = None,
    *,
    may_infer: bool,
) -> Adding:
    """Read an `add`, and refuse what would let the vendor write first unless that was switched on."""
    if timestamp is not None:
        raise InvalidInput(field="timestamp", problem="is for Mem0's service only; use metadata.created_at")
    if memory_type not in (None, PROCEDURAL):
        raise InvalidInput(field="memory_type", problem=f"must be {PROCEDURAL!r} or None")
    # Such a memory is made by the model whatever `infer` says, where it is of an agent.
    is_made = check_flag(infer, "infer") or (memory_type is not None and scope[1] is not None)
    if is_made and not may_infer:
        raise InvalidInput(field="infer", problem=_INFER)
    options = {"prompt": prompt, "memory_type": memory_type}
    heard = _read_messages(messages)
    day = read_day(expiration_date)
    return Adding(
        said=() if is_made else tuple(_said(heard)),
        messages=heard,
        scope=read_scope(*scope),
        metadata=read_metadata(metadata),
        expiration_date=day,
        infer=is_made,
        options={
            **{name: check_text(value, name) for name, value in options.items() if value is not None},
            **({} if llm is None else {"llm": llm}),
        },
    )


def read_search(
    query: object,
    top_k: object,
    filters: object,
    threshold: object,
    rerank: object,
    explain: object,
    reference_date: object,
    show_expired: object,
    more: Mapping[str, object],
) -> Searching:
    """Read a `search`; what a guarded one cannot keep is refused, never left out in silence."""
    if not isinstance(query, str) or not query.strip():
        raise InvalidInput(field="query", problem="must be a text that is not empty")
    if reference_date is not None:
        raise InvalidInput(field="reference_date", problem="is for Mem0's service only")
    if check_flag(explain, "explain"):
        raise InvalidInput(field="explain", problem="is not kept: a score comes as the store gave it")
    if check_flag(show_expired, "show_expired"):
        problem = "has no search: what expired leaves the stores; get_all(show_expired=True) lists it"
        raise InvalidInput(field="show_expired", problem=problem)
    limit = 0.1 if threshold is None else threshold
    if isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 <= limit <= 1:
        raise InvalidInput(field="threshold", problem="must be a number between 0 and 1")
    size = _read_top_k(top_k)
    if size > LARGEST_K:
        raise InvalidInput(field="top_k", problem=f"must be at most {LARGEST_K}")
    return Searching(
        query=query.strip(),
        filter=read_filters(filters, more),
        top_k=size,
        threshold=float(limit),
        rerank=check_flag(rerank, "rerank"),
    )


def read_listing(filters: object, top_k: object, show_expired: object, more: Mapping[str, object]) -> Listing:
    """Read a `get_all`."""
    return Listing(
        filter=read_filters(filters, more),
        top_k=_read_top_k(top_k),
        show_expired=check_flag(show_expired, "show_expired"),
    )


def read_update(
    memory_id: object, text: object, metadata: object, expiration_date: object, data: object
) -> Updating:
    """Read an `update`; something has to change."""
    words = data if text is None else text
    if words is None and metadata is None and expiration_date is UNSET:
        problem = "or metadata or expiration_date has to be given: at least one of them"
        raise InvalidInput(field="text", problem=problem)
    expires = expiration_date is not UNSET
    changed = None if metadata is None else read_metadata(metadata)
    if changed is not None:
        # When it began is not changed by an update, in Mem0 neither.
        changed.pop("created_at", None)
    return Updating(
        memory_id=read_memory_id(memory_id),
        text=None if words is None else check_text(words, "text"),
        metadata=changed,
        expires=expires,
        expiration_date=read_day(expiration_date) if expires else None,
    )


def read_memory_id(memory_id: object) -> str:
    """Return a memory's id, or refuse an empty one."""
    if isinstance(memory_id, str) and not memory_id.strip():
        raise InvalidInput(field="memory_id", problem="must not be empty")
    return check_name(memory_id, "memory_id")


def read_metadata(metadata: object) -> dict[str, Json]:
    """Return a copy without what would say whose memory it is, as Mem0 drops that."""
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise InvalidInput(field="metadata", problem=f"must be a dict, not {type(metadata).__name__}")
    copied = check_value(dict(metadata), "metadata")
    assert isinstance(copied, dict)  # noqa: S101  # a copy of a dict
    dropped = [name for name in IDENTITY if copied.pop(name, None) is not None]
    if dropped:
        log.warning("metadata cannot set %s; it was left out", ", ".join(dropped))
    return copied


def check_day(day: str | None, now: datetime) -> None:
    """Refuse a day that is over: nothing can begin after its end."""
    if day is not None and end_of(day) <= now:
        raise InvalidInput(field="expiration_date", problem="is over; delete the memory instead")


def _read_messages(messages: object) -> list[Any]:
    if isinstance(messages, str):
        return [{"role": "user", "content": messages}]
    if isinstance(messages, Mapping):
        return [copy.deepcopy(dict(messages))]
    if not isinstance(messages, list):
        raise InvalidInput(field="messages", problem="must be str, dict or list[dict]")
    return copy.deepcopy(messages)


def _said(messages: list[Any]) -> list[Said]:
    """Return what Mem0 keeps of messages: not a system's, and not what has no role or no words."""
    said: list[Said] = []
    for message in messages:
        role = message.get("role") if isinstance(message, dict) else None
        content = message.get("content") if isinstance(message, dict) else None
        if role == "system":
            continue
        if not isinstance(role, str) or content is None:
            log.warning("a message without a role or without content was left out")
            continue
        text = _text_in(content)
        if text is None:
            log.warning("a message without any text was left out")
            continue
        if not text.strip():
            raise InvalidInput(field="messages", problem="a message must not be empty or blank")
        name = message.get("name")
        actor_id = check_name(name, "messages.name") if name else None
        said.append(Said(text=check_text(text, "messages"), role=role, actor_id=actor_id))
    return said


def _text_in(content: object) -> str | None:
    """Return the text of a content; of several parts, those that are text, as Mem0 joins them."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text") for part in parts if isinstance(part, dict) and part.get("type") == "text"]
    found = [text for text in texts if isinstance(text, str)]
    return " ".join(found) if found else None


def _read_top_k(top_k: object) -> int:
    if type(top_k) is not int or top_k < 0:
        raise InvalidInput(field="top_k", problem="must be a whole number, not below 0")
    return top_k


__all__ = [
    "UNSET",
    "Adding",
    "Listing",
    "Said",
    "Searching",
    "Updating",
    "check_day",
    "read_add",
    "read_listing",
    "read_memory_id",
    "read_metadata",
    "read_search",
    "read_update",
]
