"""The event format, version 1: canonical bodies, salted commitments and the hash chain.

An event's hash covers its body; in the body every erasable section stands only as
SHA-256(salt ‖ section). The salt is kept, and erased, with its section: afterwards the chain
still holds and the commitment can no longer be tried against guesses.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from custody_sync.canonical import canonical, canonical_plain, parse, quote, quoted
from custody_sync.ledger.drafts import (
    Assert,
    Confirm,
    Draft,
    Forget,
    Hold,
    Place,
    Release,
    Remove,
    Repair,
    Retract,
)
from custody_sync.ledger.rows import FactRow, Key, PlacementRow
from custody_sync.model import (
    Event,
    EventKind,
    Json,
    Observation,
    Placement,
    PlacementState,
    format_instant,
    read_instant,
)
from custody_sync.ports import Ids

FORMAT = 1
GENESIS = "0" * 64
SALT_BYTES = 16
SECTIONS = ("content", "identity", "refs")
_KINDS = {
    kind: EventKind(kind.__name__.lower())
    for kind in (Assert, Confirm, Forget, Hold, Place, Release, Remove, Repair, Retract)
}

# A union of types written where it is asked for would be made anew each time.
_PLACING = (Assert, Confirm, Place)
_EVENT_KINDS = {kind.value: kind for kind in EventKind}


class Section(NamedTuple):
    """One erasable part of an event: its canonical bytes, the salt, and the commitment to both."""

    fields: Mapping[str, Json]
    body: str
    salt: bytes
    commitment: str

    def __repr__(self) -> str:
        """Say which it is, and neither what stands in it nor what it could be guessed with."""
        return f"Section({self.commitment})"


class Prepared(NamedTuple):
    """A draft in its stored form, made before the ledger's lock is taken.

    `start` and `end` are the canonical body but for what its place in the chain decides; `fact` and
    `placements` the rows it adds, which the rules complete: it can be appended but once.
    """

    draft: Draft
    kind: EventKind
    data: dict[str, Json]
    sections: dict[str, Section]
    start: str
    end: str
    fact: FactRow | None
    placements: tuple[PlacementRow, ...]


def commit(body: str, salt: bytes) -> str:
    """Return the salted commitment to a section."""
    return hashlib.sha256(salt + body.encode()).hexdigest()


def prepare(draft: Draft, ids: Ids) -> Prepared:
    """Split a draft into what stays for ever and what can be erased, and commit to the latter."""
    kind = _KINDS[type(draft)]
    sections: dict[str, Section] = {}
    for name, fields, body in erasable(draft):
        salt = ids.secret(SALT_BYTES)
        sections[name] = Section(fields, body, salt, commit(body, salt))
    data = lasting(draft)
    start, end = _body_around(draft, kind, data, sections)
    return Prepared(draft, kind, data, sections, start, end, fact_row(draft, data), placement_rows(draft))


def fact_row(draft: Draft, data: dict[str, Any]) -> FactRow | None:
    """Return the row that an assert adds; the rules complete it."""
    if not isinstance(draft, Assert):
        return None
    fact = draft.fact
    return FactRow(
        fact_id=fact.fact_id,
        seq=0,
        root=fact.fact_id,
        supersedes=fact.supersedes,
        space=fact.space,
        subject=fact.subject,
        predicate=fact.predicate,
        provenance=data["provenance"],
        valid_from=data["valid_from"],
        valid_to=data["valid_to"],
        actor=fact.actor,
        receipt_id=fact.receipt_id,
    )


def placement_rows(draft: Draft) -> tuple[PlacementRow, ...]:
    """Return the placements that a draft adds; the rules complete them."""
    if not isinstance(draft, _PLACING):
        return ()
    return tuple(
        [
            PlacementRow(
                store=p.store,
                external_id=p.external_id,
                fact_id=p.fact_id,
                scope=p.scope,
                stored_at=_instant(p.stored_at),
                until=None,
                state=PlacementState.HELD,
            )
            for p in draft.placements
        ]
    )


def _body_around(
    draft: Draft, kind: EventKind, data: dict[str, Json], sections: dict[str, Section]
) -> tuple[str, str]:
    """Write the canonical body but for `prev`, `seq` and `tx_time`; RFC 8785 sorts its keys as here."""
    # The sections come in the order of `SECTIONS`, which is the order of their names.
    sealed = ",".join([f'"{name}":"{section.commitment}"' for name, section in sections.items()])
    start = (
        f'{{"actor":{quote(draft.actor)},"data":{canonical_plain(data)},'
        f'"event_id":{quote(draft.event_id)},"fact_id":{quote(draft.fact_id)},"kind":"{kind.value}","prev":"'
    )
    return start, f'","receipt_id":{quoted(draft.receipt_id)},"sealed":{{{sealed}}},"seq":'


def erasable(draft: Draft) -> Iterator[tuple[str, Mapping[str, Json], str]]:
    """Yield each erasable section's name, its fields, and their canonical form."""
    if isinstance(draft, Assert):
        yield "content", *_content(draft)
        fact = draft.fact
        identity: dict[str, Json] = {
            "predicate": fact.predicate,
            "space": fact.space,
            "subject": fact.subject,
        }
        yield (
            "identity",
            identity,
            f'{{"predicate":{quote(fact.predicate)},"space":{quote(fact.space)},"subject":{quote(fact.subject)}}}',
        )
    elif not isinstance(draft, Place | Remove) and draft.reason is not None:
        yield "identity", {"reason": draft.reason}, f'{{"reason":{quoted(draft.reason)}}}'
    if isinstance(draft, _PLACING):
        if draft.placements:
            yield "refs", *_refs(draft.placements, draft.replaces if isinstance(draft, Place) else ())
    elif isinstance(draft, Remove | Repair) and draft.external_id is not None:
        form = f'{{"external_id":{quoted(draft.external_id)},"scope":{quoted(draft.scope)}}}'
        yield "refs", {"external_id": draft.external_id, "scope": draft.scope}, form


def _content(draft: Assert) -> tuple[Mapping[str, Json], str]:
    content: dict[str, Json] = {"text": draft.fact.text, "value": draft.fact.value}
    if draft.request is not None:
        content["request"] = draft.request
    if draft.fact.evidence is not None:
        content["evidence"] = {"path": draft.fact.evidence.path, "source": draft.fact.evidence.source}
    if isinstance(draft.fact.value, str) and draft.fact.text is not None and len(content) == 2:
        return content, f'{{"text":{quote(draft.fact.text)},"value":{quote(draft.fact.value)}}}'
    if isinstance(draft.fact.value, str | bool | None) and draft.fact.evidence is None:
        return content, canonical_plain(content)
    form = canonical(content).decode()
    # The value may be the caller's own object, which can change under us.
    return parse(form), form


def _refs(placements: tuple[Placement, ...], replaces: tuple[Key, ...]) -> tuple[Mapping[str, Json], str]:
    refs: list[Json] = []
    forms: list[str] = []
    for p in placements:
        stored_at = _instant(p.stored_at)
        refs.append(
            {"external_id": p.external_id, "scope": p.scope, "store": p.store, "stored_at": stored_at}
        )
        forms.append(
            f'{{"external_id":{quote(p.external_id)},"scope":{quoted(p.scope)},'
            f'"store":{quote(p.store)},"stored_at":{quoted(stored_at)}}}'
        )
    if not replaces:
        return {"placements": refs}, f'{{"placements":[{",".join(forms)}]}}'
    replaced: list[Json] = [{"external_id": external_id, "store": store} for store, external_id in replaces]
    fields: dict[str, Json] = {"placements": refs, "replaces": replaced}
    return fields, canonical_plain(fields)


def lasting(draft: Draft) -> dict[str, Json]:
    """Return what stays of a draft for ever, erasures or not."""
    if isinstance(draft, Assert):
        fact = draft.fact
        data: dict[str, Json] = {
            "kept": list(draft.kept),
            "provenance": fact.provenance.value,
            "stores": _stores(draft.placements),
            "supersedes": fact.supersedes,
            "valid_from": format_instant(fact.valid_from),
            "valid_to": None if fact.valid_to is None else format_instant(fact.valid_to),
        }
        if draft.adopted:
            data["adopted"] = True
        return data | _owed(draft.owes)
    if isinstance(draft, Confirm):
        return {"kept": list(draft.kept), "stores": _stores(draft.placements), **_owed(draft.owes)}
    if isinstance(draft, Place):
        return {"stores": _stores(draft.placements)}
    if isinstance(draft, Hold | Release):
        return {"hold_id": draft.hold_id}
    if isinstance(draft, Forget):
        digest = draft.digest
        return {
            "identity": draft.identity,
            "digest": None if digest is None else {"alg": digest.alg, "hex": digest.hex},
        }
    if isinstance(draft, Repair):
        return {"store": draft.store, "stored_at": _instant(draft.stored_at)}
    if isinstance(draft, Remove):
        return {
            "detail": draft.detail,
            "outcome": draft.outcome.value,
            "store": draft.store,
            "stored_at": _instant(draft.stored_at),
        }
    return {}


def _instant(instant: datetime | None) -> str | None:
    return None if instant is None else format_instant(instant)


def _owed(stores: tuple[str, ...]) -> dict[str, Json]:
    return {"owes": list(stores)} if stores else {}


def _stores(placements: tuple[Placement, ...]) -> list[Json]:
    return list(dict.fromkeys([p.store for p in placements]))


def seal(prepared: Prepared, *, seq: int, tx_time: str, prev: str) -> tuple[str, str]:
    """Return an event's body and its hash, given its place in the chain."""
    body = f'{prepared.start}{prev}{prepared.end}{seq},"tx_time":"{tx_time}","v":{FORMAT}}}'
    return body, hashlib.sha256(body.encode()).hexdigest()


def read_event(body: str, digest: str, sealed: Mapping[str, str | None]) -> Event:
    """Return the event that a stored body and its remaining sections describe."""
    left = {name: text for name, text in sealed.items() if text is not None}
    # As one document: for each of four, beginning to read takes as long as reading.
    doc, *fields = parse(f"[{','.join((body, *left.values()))}]")
    tx_time = read_instant(doc["tx_time"])
    if tx_time is None:
        raise ValueError("tx_time")
    return new_event(
        doc["seq"],
        doc["event_id"],
        _EVENT_KINDS[doc["kind"]],
        tx_time,
        doc["actor"],
        doc["receipt_id"],
        doc["fact_id"],
        doc["data"],
        dict(zip(left, fields, strict=True)),
        doc["prev"],
        digest,
        tuple([name for name in doc["sealed"] if sealed.get(name) is None]),
    )


class _Event:
    """An event while it is filled in: a frozen one takes ten times as long to make."""

    __slots__ = Event.__slots__


def new_event(
    seq: int,
    event_id: str,
    kind: EventKind,
    tx_time: datetime,
    actor: str,
    receipt_id: str | None,
    fact_id: str,
    data: Mapping[str, Json],
    sealed: Mapping[str, Mapping[str, Json]],
    prev: str,
    digest: str,
    erased: tuple[str, ...] = (),
) -> Event:
    """Return an event of these fields; a history has many, and every append makes one."""
    event: Any = _Event()
    event.seq = seq
    event.event_id = event_id
    event.kind = kind
    event.tx_time = tx_time
    event.actor = actor
    event.receipt_id = receipt_id
    event.fact_id = fact_id
    event.data = data
    event.sealed = sealed
    event.prev = prev
    event.hash = digest
    event.erased = erased
    event.__class__ = Event
    made: Event = event
    return made


def read_evidence(content: Mapping[str, Any]) -> Observation | None:
    """Return what a fact was compared with, from its content: a value equal to the fact's own."""
    evidence = content.get("evidence")
    if evidence is None:
        return None
    return Observation(source=evidence["source"], path=evidence["path"], value=content.get("value"))


def same_event(prepared: Prepared, committed: Event, erased: Collection[str] = ()) -> bool:
    """Tell whether a committed event is this very draft: equal in all that lasts and all that is left.

    Args:
        prepared: the draft.
        committed: the event under its event id.
        erased: sections of the event that have gone since it was read.
    """
    draft = prepared.draft
    if (committed.kind, committed.fact_id) != (prepared.kind, draft.fact_id):
        return False
    if (committed.actor, committed.receipt_id) != (draft.actor, draft.receipt_id):
        return False
    if canonical_plain(dict(committed.data)) != canonical_plain(dict(prepared.data)):
        return False
    if prepared.sections.keys() != committed.sealed.keys() | set(committed.erased):
        return False
    return all(
        prepared.sections[name].body == canonical(fields).decode()
        for name, fields in committed.sealed.items()
        if name not in erased
    )
