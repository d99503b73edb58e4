"""The draft that became an event, made again from what is stored, as far as erasures left it.

A ledger writes one form of each draft. What does not give that form again was written by nobody's
ledger, however well its hashes fit, and would be stored, compared or sorted in a way of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from custody_sync.canonical import canonical_plain, check_name
from custody_sync.errors import InvalidInput
from custody_sync.ledger.chain import Prepared, erasable, fact_row, lasting, placement_rows, read_evidence
from custody_sync.ledger.checks import check_draft
from custody_sync.ledger.drafts import (
    Assert,
    Confirm,
    Digest,
    Draft,
    Forget,
    Hold,
    Place,
    Release,
    Remove,
    Repair,
    Retract,
)
from custody_sync.ledger.stored import Stored
from custody_sync.model import EventKind, Fact, Outcome, Placement, Provenance, read_instant

_ERASED = "-"
"""Stands for what an erasure took, while the rest is checked."""


def redraft(stored: Stored) -> Prepared:
    """Return the draft that became an event, as far as erasures left it, in the form rules work on.

    Raises:
        ValueError: a ledger writes no such event; says what is wrong, and quotes nothing of it.
    """
    try:
        kind = EventKind(stored.doc["kind"])
        data: dict[str, Any] = dict(stored.doc["data"])
        draft = _DRAFTS[kind](stored, data)
        check_draft(_whole(stored, draft))
        problem = _other_form(stored, draft, data)
        rows = fact_row(draft, data), placement_rows(draft)
    except InvalidInput as error:
        problem = f"its {error.field} {error.problem}"
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        problem = "its fields cannot be read"
    else:
        if problem is None:
            return Prepared(draft, kind, data, stored.sections, "", "", *rows)
    raise ValueError(problem)


def _whole(stored: Stored, draft: Draft) -> Draft:
    """Return a draft with something in place of what was erased."""
    if isinstance(draft, Assert):
        fact = draft.fact
        if "content" not in stored.sections:
            # What it was compared with is erased as well, so that the word stands alone.
            fact = replace(fact, text=_ERASED, provenance=Provenance.ATTESTED)
        if "identity" not in stored.sections:
            fact = replace(fact, space=_ERASED, subject=_ERASED, predicate=_ERASED)
        return replace(draft, fact=fact)
    if isinstance(draft, Remove) and "refs" not in stored.sections:
        return replace(draft, external_id=_ERASED)
    return draft


def _other_form(stored: Stored, draft: Draft, data: Mapping[str, Any]) -> str | None:
    """Say where an event is not what a ledger makes of this draft, or None."""
    commitments = stored.doc["sealed"]
    refers = isinstance(draft, Remove) or (isinstance(draft, Repair) and draft.store is not None)
    stays = lasting(draft)
    if isinstance(draft, Assert | Confirm | Place):
        stores = data["stores"]
        refers = bool(stores)
        if "refs" not in stored.sections:
            # The entries are erased; that there were some in these stores is not.
            stays["stores"] = list(dict.fromkeys(check_name(store, "stores") for store in stores))
    if canonical_plain(stays) != canonical_plain(dict(data)):
        return "its data are not those of such an event"
    named, stated = ("identity" in commitments), isinstance(draft, Assert)
    speechless = isinstance(draft, Place | Remove)
    if ("content" in commitments) is not stated or (named is False and stated) or (named and speechless):
        return "it commits to other sections than such an event"
    if ("refs" in commitments) is not refers:
        return "it commits to other sections than such an event"
    forms = {name: form for name, _, form in erasable(draft)}
    for name, section in stored.sections.items():
        if forms.get(name) != section.body:
            return f"its {name} is not that of such an event"
    return None


def _act(stored: Stored) -> dict[str, Any]:
    return {name: stored.doc[name] for name in ("event_id", "fact_id", "actor", "receipt_id")}


def _reasoned(stored: Stored) -> dict[str, Any]:
    return {**_act(stored), "reason": _fields(stored, "identity").get("reason")}


def _fields(stored: Stored, name: str) -> Mapping[str, Any]:
    section = stored.sections.get(name)
    return {} if section is None else section.fields


def _assert(stored: Stored, data: Mapping[str, Any]) -> Draft:
    doc, content, identity = stored.doc, _fields(stored, "content"), _fields(stored, "identity")
    fact = Fact(
        fact_id=doc["fact_id"],
        space=identity.get("space", ""),
        subject=identity.get("subject", ""),
        predicate=identity.get("predicate", ""),
        value=content.get("value"),
        text=content.get("text"),
        actor=doc["actor"],
        receipt_id=doc["receipt_id"],
        provenance=Provenance(data["provenance"]),
        valid_from=_instant(data["valid_from"]),
        valid_to=None if data["valid_to"] is None else _instant(data["valid_to"]),
        supersedes=data["supersedes"],
        evidence=read_evidence(content),
    )
    return Assert(
        event_id=doc["event_id"],
        fact=fact,
        placements=_placements(stored),
        kept=tuple(data["kept"]),
        request=content.get("request"),
        owes=tuple(data.get("owes", ())),
        adopted=data.get("adopted", False),
    )


def _placements(stored: Stored) -> tuple[Placement, ...]:
    return tuple(
        Placement(
            store=ref["store"],
            external_id=ref["external_id"],
            fact_id=stored.doc["fact_id"],
            scope=ref["scope"],
            stored_at=read_instant(ref["stored_at"]),
        )
        for ref in _fields(stored, "refs").get("placements", ())
    )


def _place(stored: Stored, _: Mapping[str, Any]) -> Draft:
    replaced = _fields(stored, "refs").get("replaces", ())
    return Place(
        **_act(stored),
        placements=_placements(stored),
        replaces=tuple((entry["store"], entry["external_id"]) for entry in replaced),
    )


def _instant(text: object) -> datetime:
    instant = read_instant(text)
    if instant is None:
        raise ValueError("a time cannot be read")
    return instant


def _confirm(stored: Stored, data: Mapping[str, Any]) -> Draft:
    return Confirm(
        **_reasoned(stored),
        placements=_placements(stored),
        kept=tuple(data["kept"]),
        owes=tuple(data.get("owes", ())),
    )


def _forget(stored: Stored, data: Mapping[str, Any]) -> Draft:
    digest = data["digest"]
    left = None if digest is None else Digest(digest["alg"], digest["hex"])
    return Forget(**_reasoned(stored), digest=left, identity=data["identity"])


def _repair(stored: Stored, data: Mapping[str, Any]) -> Draft:
    refs = _fields(stored, "refs")
    return Repair(
        **_reasoned(stored),
        store=data["store"],
        external_id=refs.get("external_id"),
        scope=refs.get("scope"),
        stored_at=read_instant(data["stored_at"]),
    )


def _remove(stored: Stored, data: Mapping[str, Any]) -> Draft:
    refs = _fields(stored, "refs")
    return Remove(
        **_act(stored),
        store=data["store"],
        external_id=refs.get("external_id", ""),
        scope=refs.get("scope"),
        stored_at=read_instant(data["stored_at"]),
        outcome=Outcome(data["outcome"]),
        detail=data["detail"],
    )


_DRAFTS: dict[EventKind, Callable[[Stored, Mapping[str, Any]], Draft]] = {
    EventKind.ASSERT: _assert,
    EventKind.CONFIRM: _confirm,
    EventKind.RETRACT: lambda stored, _: Retract(**_reasoned(stored)),
    EventKind.HOLD: lambda stored, data: Hold(**_reasoned(stored), hold_id=data["hold_id"]),
    EventKind.RELEASE: lambda stored, data: Release(**_reasoned(stored), hold_id=data["hold_id"]),
    EventKind.FORGET: _forget,
    EventKind.REPAIR: _repair,
    EventKind.PLACE: _place,
    EventKind.REMOVE: _remove,
}
