"""The events of a stored log, and the drafts that they were: what a reference model can be asked about."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from fix_books import Row

from custody_sync.ledger import Assert, Confirm, Digest, Forget, Hold, Place, Release, Remove, Repair, Retract
from custody_sync.ledger.drafts import Draft
from custody_sync.model import Fact, Outcome, Placement, Provenance, read_instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """One event as it stands in the log."""

    seq: int
    event_id: str
    kind: str
    fact_id: str
    tx: datetime
    actor: str = "anybody"
    receipt: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    sealed: Mapping[str, Any] = field(default_factory=dict)


def logged(rows: Iterable[Row]) -> list[Logged]:
    """Read stored rows."""
    found = []
    for row in rows:
        said = json.loads(row.body)
        tx = read_instant(said["tx_time"])
        assert tx is not None
        sealed = {name: json.loads(text) for name, (text, _) in row.sealed.items() if text is not None}
        found.append(
            Logged(
                seq=row.seq,
                event_id=said["event_id"],
                kind=said["kind"],
                fact_id=said["fact_id"],
                tx=tx,
                actor=said["actor"],
                receipt=said["receipt_id"],
                data=said["data"],
                sealed=sealed,
            )
        )
    return found


def draft_of(event: Logged) -> Draft:
    """Return the draft that an event was; what was erased of it is missing."""
    data = event.data
    act: dict[str, Any] = {
        "event_id": event.event_id,
        "fact_id": event.fact_id,
        "actor": event.actor,
        "receipt_id": event.receipt,
    }
    if event.kind == "assert":
        return _assert(event)
    if event.kind == "confirm":
        return Confirm(**act, placements=_placements(event), kept=tuple(data["kept"]))
    if event.kind == "place":
        replaces = event.sealed.get("refs", {}).get("replaces", ())
        pairs = tuple((entry["store"], entry["external_id"]) for entry in replaces)
        return Place(**act, placements=_placements(event), replaces=pairs)
    if event.kind == "hold":
        return Hold(**act, hold_id=data["hold_id"])
    if event.kind == "release":
        return Release(**act, hold_id=data["hold_id"])
    if event.kind == "forget":
        digest = None if data["digest"] is None else Digest(**data["digest"])
        return Forget(**act, identity=data["identity"], digest=digest)
    if event.kind == "retract":
        return Retract(**act)
    refs, at = event.sealed.get("refs", {}), read_instant(data["stored_at"])
    where = {"store": data["store"], "external_id": refs.get("external_id"), "scope": refs.get("scope")}
    if event.kind == "repair":
        return Repair(**act, **where, stored_at=at)
    outcome = Outcome(data["outcome"])
    return Remove(**act, **where, outcome=outcome, stored_at=at, detail=data["detail"])


def _assert(event: Logged) -> Assert:
    data, identity = event.data, event.sealed.get("identity", {})
    content = event.sealed.get("content", {})
    begins = read_instant(data["valid_from"])
    assert begins is not None
    fact = Fact(
        fact_id=event.fact_id,
        space=identity.get("space", ""),
        subject=identity.get("subject", ""),
        predicate=identity.get("predicate", ""),
        value=content.get("value"),
        text=content.get("text"),
        actor=event.actor,
        provenance=Provenance(data["provenance"]),
        valid_from=begins,
        valid_to=read_instant(data["valid_to"]),
        supersedes=data["supersedes"],
        receipt_id=event.receipt,
    )
    return Assert(
        event_id=event.event_id,
        fact=fact,
        placements=_placements(event),
        kept=tuple(data["kept"]),
        request=content.get("request"),
        owes=tuple(data.get("owes", ())),
        adopted=bool(data.get("adopted")),
    )


def _placements(event: Logged) -> tuple[Placement, ...]:
    return tuple(
        Placement(
            store=entry["store"],
            external_id=entry["external_id"],
            fact_id=event.fact_id,
            scope=entry["scope"],
            stored_at=read_instant(entry["stored_at"]),
        )
        for entry in event.sealed.get("refs", {}).get("placements", ())
    )
