"""Taking over events that were admitted before: by another storage, or by an earlier version.

Everything beside the log is derived from it, so moving a ledger is moving its events. They obey
the rules already, except those that asked the clock; what an erasure took is left out of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from custody_sync.canonical import canonical
from custody_sync.errors import InvalidInput, LedgerBroken, Refused
from custody_sync.ledger.chain import (
    FORMAT,
    SECTIONS,
    Prepared,
    Section,
    commit,
    fact_row,
    placement_rows,
    read_evidence,
)
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
from custody_sync.ledger.rows import FactRow, PlacementRow
from custody_sync.ledger.rules import RULES, Group
from custody_sync.ledger.state import Appended, Position
from custody_sync.model import (
    ERASED_ID,
    EventKind,
    Fact,
    Outcome,
    Placement,
    PlacementState,
    Provenance,
    format_instant,
    read_instant,
)

KEYS = frozenset(
    ("actor", "data", "event_id", "fact_id", "kind", "prev", "receipt_id", "sealed", "seq", "tx_time", "v")
)


class Stored(NamedTuple):
    """One event as it is stored and exported."""

    doc: Mapping[str, Any]
    body: str
    hash: str
    sections: dict[str, Section]

    @property
    def seq(self) -> int:
        """Its place in the log."""
        seq: int = self.doc["seq"]
        return seq

    @property
    def tx_time(self) -> datetime:
        """When the ledger took it in."""
        instant = read_instant(self.doc["tx_time"])
        if instant is None:
            raise ValueError("tx_time")
        return instant

    def position(self) -> Position:
        """Return where the log ends with it."""
        return Position(self.seq, self.tx_time, self.hash)


def read_stored(row: object) -> Stored:
    """Read an event as `Ledger.export` yields it.

    Raises:
        ValueError: it has not the shape of one; says what is missing.
    """
    if not isinstance(row, Mapping) or not row.keys() <= {"event", "hash", "sealed"}:
        raise ValueError("is no exported event")
    doc, sealed = row.get("event"), row.get("sealed")
    if not isinstance(doc, Mapping) or not isinstance(sealed, Mapping) or frozenset(map(str, doc)) != KEYS:
        raise ValueError("is no exported event")
    commitments = doc["sealed"]
    if not isinstance(commitments, Mapping) or not sealed.keys() <= commitments.keys() <= set(SECTIONS):
        raise ValueError("its sealed sections are not those it commits to")
    try:
        body = canonical(doc).decode()
        sections = {name: _section(sealed[name], commitments[name]) for name in SECTIONS if name in sealed}
    except (InvalidInput, KeyError, TypeError, ValueError):
        raise ValueError("its fields cannot be read") from None
    return Stored(doc, body, str(row.get("hash")), sections)


def _section(section: Mapping[str, Any], commitment: str) -> Section:
    fields, salt = section["body"], section["salt"]
    # Upper case, or spaces, would be other bytes for the same salt.
    if set(section) != {"body", "salt"} or not isinstance(fields, Mapping) or salt != salt.lower().strip():
        raise ValueError("section")
    return Section(fields, canonical(fields).decode(), bytes.fromhex(salt), commitment)


def problem_of(stored: Stored, after: Position) -> str | None:
    """Say what is wrong with an event that should follow a position, or None."""
    doc = stored.doc
    if doc["v"] != FORMAT:
        return f"it is of event format {doc['v']}, and this version knows {FORMAT}"
    if doc["seq"] != after.seq + 1:
        return f"event {after.seq + 1} is missing or out of its place"
    if doc["prev"] != after.hash:
        return "it does not follow the event before it"
    if hashlib.sha256(stored.body.encode()).hexdigest() != stored.hash:
        return "its fields are not those its hash was made of"
    for name, section in stored.sections.items():
        if commit(section.body, section.salt) != section.commitment:
            return f"its {name} is not what was committed to"
    tx_time = read_instant(doc["tx_time"])
    if tx_time is None or format_instant(tx_time) != doc["tx_time"]:
        return "its time cannot be read"
    if after.tx_time is not None and tx_time <= after.tx_time:
        return "its time is not later than that of the event before it"
    return None


def redraft(stored: Stored) -> Prepared:
    """Return the draft that became an event, as far as erasures left it, in the form rules work on.

    Raises:
        ValueError: a field is missing or cannot be read.
    """
    try:
        kind = EventKind(stored.doc["kind"])
        draft = _DRAFTS[kind](stored, stored.doc["data"])
        data = dict(stored.doc["data"])
        rows = fact_row(draft, data), placement_rows(draft)
        return Prepared(draft, kind, data, stored.sections, "", "", *rows)
    except (KeyError, TypeError, AttributeError):
        raise ValueError("its fields cannot be read") from None


def prepare_replay(events: Sequence[Stored], after: Position, name: str) -> list[Prepared]:
    """Check that events follow a position and each other, and return what they were made of.

    Raises:
        LedgerBroken: says of which event what is wrong.
    """
    prepared: list[Prepared] = []
    for stored in events:
        problem = problem_of(stored, after)
        if problem is None:
            try:
                prepared.append(redraft(stored))
            except ValueError as error:
                problem = str(error)
        if problem is not None:
            raise LedgerBroken(name=name, seq=after.seq + 1, problem=problem)
        after = stored.position()
    return prepared


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


def _instant(text: object) -> datetime:
    instant = read_instant(text)
    if instant is None:
        raise ValueError("a time cannot be read")
    return instant


def _confirm(stored: Stored, data: Mapping[str, Any]) -> Draft:
    return Confirm(**_reasoned(stored), placements=_placements(stored), kept=tuple(data["kept"]))


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
    EventKind.PLACE: lambda stored, _: Place(**_act(stored), placements=_placements(stored)),
    EventKind.REMOVE: _remove,
}


class Replay(Group):
    """A group of events that were admitted before.

    What asked the clock is not asked again, and where an erasure took the ids of entries, one
    placement a store stands for all that were removed from it.
    """

    def take_all(self, events: Sequence[Stored], prepared: Sequence[Prepared], name: str) -> None:
        """Append events as they are.

        Raises:
            LedgerBroken: no ledger can have admitted one of them there.
        """
        for stored, draft in zip(events, prepared, strict=True):
            try:
                self.take(stored, draft)
            except Refused as refusal:
                problem = f"it breaks a rule ({refusal.code})"
                raise LedgerBroken(name=name, seq=stored.seq, problem=problem) from None

    def take(self, stored: Stored, prepared: Prepared) -> None:
        """Append an event as it is.

        Raises:
            Refused: no ledger can have admitted it here.
        """
        draft, data = prepared.draft, prepared.data
        self.tx = stored.tx_time
        if isinstance(draft, Remove) and "refs" not in prepared.sections:
            self._stand_in(self.state.facts.get(draft.fact_id), [draft.store])
        else:
            RULES[type(draft)](self, prepared, draft, stored.seq)
        if isinstance(draft, Assert | Confirm | Place) and not draft.placements and data["stores"]:
            stores: Any = data["stores"]
            self._stand_in(self.state.facts[draft.fact_id], stores)
        self.position = stored.position()
        prev = str(stored.doc["prev"])
        self.appended.append(
            Appended(
                prepared, stored.seq, self.tx, str(stored.doc["tx_time"]), prev, stored.body, stored.hash
            )
        )
        # The log shows erasures as done.
        self.state.forgotten.clear()
        self.state.dereferenced.clear()

    def _stand_in(self, fact: FactRow | None, stores: Sequence[str]) -> None:
        if fact is None:
            return
        for store in stores:
            external_id = f"{ERASED_ID}{fact.seq}"
            if (store, external_id) not in self.state.placements:
                self.state.new_placement(
                    PlacementRow(
                        store=store,
                        external_id=external_id,
                        fact_id=fact.fact_id,
                        scope=None,
                        stored_at=None,
                        until=fact.valid_to,
                        state=PlacementState.GONE,
                        outcome=Outcome.VERIFIED,
                    )
                )

    def _is_stale(self, stored_at: datetime | None) -> bool:
        return False

    def _check_settled(self, draft: Remove) -> None:
        return

    def _is_same_statement(self, row: FactRow, target: FactRow, field: str) -> bool:
        return not row.space or not target.space or super()._is_same_statement(row, target, field)
