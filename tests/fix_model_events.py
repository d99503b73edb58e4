"""The model's log: what stays of an event for ever, and what an erasure can take of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from custody_sync.ledger import Assert, Confirm, Forget, Hold, Place, Release, Remove, Repair
from custody_sync.ledger.drafts import Draft
from custody_sync.model import format_instant


@dataclass
class Record:
    """One event of the log, and which of its sections an erasure took."""

    seq: int
    tx: datetime
    draft: Draft
    gone: set[str] = field(default_factory=set)

    def left(self) -> dict[str, Any]:
        """Return the sections that are still there."""
        return {name: part for name, part in sections(self.draft).items() if name not in self.gone}

    def is_same(self, draft: Draft) -> bool:
        """Tell whether a draft is the one this event was, as far as anybody can still tell."""
        mine, theirs = (sections(d) for d in (self.draft, draft))
        if lasting(self.draft) != lasting(draft) or mine.keys() != theirs.keys():
            return False
        return all(mine[name] == theirs[name] for name in mine.keys() - self.gone)


def lasting(draft: Draft) -> dict[str, Any]:
    """Return what no erasure takes: who, what about, and the event's data."""
    return {
        "kind": type(draft).__name__.lower(),
        "event_id": draft.event_id,
        "fact_id": draft.fact_id,
        "actor": draft.actor,
        "receipt_id": draft.receipt_id,
        "data": data_of(draft),
    }


def data_of(draft: Draft) -> dict[str, Any]:
    """Return an event's lasting data."""
    if isinstance(draft, Assert):
        fact = draft.fact
        return {
            "kept": list(draft.kept),
            "provenance": fact.provenance.value,
            "stores": stores_of(draft),
            "supersedes": fact.supersedes,
            "valid_from": written(fact.valid_from),
            "valid_to": written(fact.valid_to),
            **({"adopted": True} if draft.adopted else {}),
            **({"owes": list(draft.owes)} if draft.owes else {}),
        }
    if isinstance(draft, Confirm):
        owes = {"owes": list(draft.owes)} if draft.owes else {}
        return {"kept": list(draft.kept), "stores": stores_of(draft), **owes}
    if isinstance(draft, Place):
        return {"stores": stores_of(draft)}
    if isinstance(draft, Hold | Release):
        return {"hold_id": draft.hold_id}
    if isinstance(draft, Forget):
        digest = None if draft.digest is None else {"alg": draft.digest.alg, "hex": draft.digest.hex}
        return {"identity": draft.identity, "digest": digest}
    if isinstance(draft, Repair):
        return {"store": draft.store, "stored_at": written(draft.stored_at)}
    if isinstance(draft, Remove):
        return {
            "detail": draft.detail,
            "outcome": draft.outcome.value,
            "store": draft.store,
            "stored_at": written(draft.stored_at),
        }
    return {}


def sections(draft: Draft) -> dict[str, Any]:
    """Return what an erasure can take of an event, by the name of its section."""
    found: dict[str, Any] = {}
    if isinstance(draft, Assert):
        fact = draft.fact
        found["content"] = {"text": fact.text, "value": fact.value}
        if draft.request is not None:
            found["content"]["request"] = draft.request
        if fact.evidence is not None:
            found["content"]["evidence"] = {"path": fact.evidence.path, "source": fact.evidence.source}
        found["identity"] = {
            "predicate": fact.predicate,
            "space": fact.space,
            "subject": fact.subject,
        }
    elif not isinstance(draft, Place | Remove) and draft.reason is not None:
        found["identity"] = {"reason": draft.reason}
    if isinstance(draft, Assert | Confirm | Place):
        if draft.placements:
            found["refs"] = {
                "placements": [
                    {
                        "external_id": p.external_id,
                        "scope": p.scope,
                        "store": p.store,
                        "stored_at": written(p.stored_at),
                    }
                    for p in draft.placements
                ]
            }
        if isinstance(draft, Place) and draft.replaces:
            found["refs"]["replaces"] = [{"external_id": x, "store": store} for store, x in draft.replaces]
    elif isinstance(draft, Remove | Repair) and draft.external_id is not None:
        found["refs"] = {"external_id": draft.external_id, "scope": draft.scope}
    return found


def stores_of(draft: Draft) -> list[str]:
    """Return the stores that an event names, each once, in its order."""
    if isinstance(draft, Assert | Confirm | Place):
        return list(dict.fromkeys(p.store for p in draft.placements))
    store = draft.store if isinstance(draft, Remove | Repair) else None
    return [] if store is None else [store]


def written(instant: datetime | None) -> str | None:
    """Return an instant as the log has it."""
    return None if instant is None else format_instant(instant)
