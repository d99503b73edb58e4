"""Rows as a storage keeps them, turned into what a ledger answers: the same on every engine."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from custody_sync.canonical import parse
from custody_sync.ledger.chain import SECTIONS, commit, read_event, read_evidence
from custody_sync.ledger.storage import Account, Compared, Held, Mark, Note, Unaccounted, Waiting, Way
from custody_sync.model import (
    Event,
    Fact,
    Head,
    Outcome,
    Page,
    Placement,
    PlacementState,
    Provenance,
    Standing,
    read_instant,
)

Row = Sequence[Any]

ANSWERED = (
    "f.seq, f.fact_id, f.space, f.subject, f.predicate, f.actor, f.provenance, f.valid_from, f.valid_to, "
    "f.supersedes, f.receipt_id, f.tx_time, f.effect_seq, s.content"
)
"""The columns that `fact_of` reads, of `facts f` and `sealed s`."""

STANDINGS = {standing.value: standing for standing in Standing}
"""A look-up takes a fifth of what making a member of an enumeration takes."""
_STATES = {state.value: state for state in PlacementState}
_PROVENANCES = {provenance.value: provenance for provenance in Provenance}
_CLAIMED = Provenance.CLAIMED

NOTHING: Row = (None, None, None, None, None, None, False)
"""What there is on an entry that is on record nowhere and names nobody, in the columns of `compared_of`."""

NO_EVENT = Head(0, None, "0" * 64)
"""The head of a ledger before its first event."""


def head_of(row: Row | None) -> Head:
    """Return the head that (seq, tx_time, hash) describe; none is before the first event."""
    return NO_EVENT if row is None else Head(row[0], read_instant(row[1]), row[2])


def fact_of(row: Row, head_seq: int) -> Fact:
    """Return a fact as of a head; the row is of the columns unpacked here."""
    (
        seq, fact_id, space, subject, predicate, actor, provenance, valid_from, valid_to,
        supersedes, receipt_id, tx_time, effect_seq, content,
    ) = row  # fmt: skip
    body = {} if content is None else parse(content)
    provenance = _PROVENANCES[provenance]
    fact: Any = _Fact()
    fact.fact_id = fact_id
    fact.space = space
    fact.subject = subject
    fact.predicate = predicate
    fact.value = body.get("value")
    fact.text = body.get("text")
    fact.actor = actor
    fact.provenance = provenance
    fact.valid_from = _instant(valid_from)
    fact.valid_to = None if valid_to is None else _instant(valid_to)
    fact.supersedes = supersedes
    fact.receipt_id = receipt_id
    # Most hold since they were stated.
    fact.tx_time = fact.valid_from if tx_time == valid_from else _instant(tx_time)
    fact.seq = seq
    fact.confirmed = provenance is _CLAIMED and effect_seq is not None and effect_seq <= head_seq
    fact.forgotten = content is None
    fact.evidence = read_evidence(body) if "evidence" in body else None
    fact.__class__ = Fact
    made: Fact = fact
    return made


class _Fact:
    """A fact while it is filled in: a frozen one takes ten times as long to make, and pages have many."""

    __slots__ = Fact.__slots__


def _instant(text: str) -> datetime:
    """Read an instant that the schema has NOT NULL, written by `format_instant`."""
    try:
        instant = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise ValueError("instant") from None
    if instant.tzinfo is not UTC:
        raise ValueError("instant")
    return instant


def event_at(row: Row) -> Event:
    """Return the event of (body, hash, content, identity, refs)."""
    body, digest, content, identity, refs = row
    return read_event(body, digest, {"content": content, "identity": identity, "refs": refs})


def exported(row: Row) -> dict[str, Any]:
    """Return (body, hash, then text and salt of each section) ready to be written as a JSON line.

    Raises:
        ValueError: the bytes are not those that were committed, whatever they read like.
    """
    body, digest, *sections = row
    doc = parse(body)
    if hashlib.sha256(body.encode()).hexdigest() != digest:
        raise ValueError("body")
    sealed = {}
    for i, name in enumerate(SECTIONS):
        text, salt = sections[2 * i], sections[2 * i + 1]
        if text is not None:
            if commit(text, salt) != doc["sealed"].get(name):
                raise ValueError(name)
            sealed[name] = {"body": parse(text), "salt": salt.hex()}
        elif salt is not None:
            raise ValueError(name)
    return {"event": doc, "hash": digest, "sealed": sealed}


def account_of(row: Row, holds: Sequence[str]) -> Account:
    """Return what there is on one fact; `holds` in any order."""
    seq, fact_id, space, subject, predicate, learned, retracted, forgotten, anonymous, superseded = row
    return Account(
        seq=seq,
        fact_id=fact_id,
        space=space,
        subject=subject,
        predicate=predicate,
        learned_at=_instant(learned),
        superseded_at=read_instant(superseded),
        retracted=bool(retracted),
        forgotten=bool(forgotten),
        identity_gone=bool(anonymous),
        holds=tuple(sorted(holds)),
    )


def placement_of(row: Row) -> Placement:
    """Return the placement of (store, external id, fact id, scope, stored_at, state, outcome)."""
    made: Any = _Placement()
    made.store, made.external_id, made.fact_id, made.scope, stored_at, state, outcome = row
    made.stored_at = read_instant(stored_at)
    made.state = _STATES[state]
    made.outcome = None if outcome is None else Outcome(outcome)
    made.__class__ = Placement
    placement: Placement = made
    return placement


class _Placement:
    """One while it is filled in, as with facts: whoever compares a store reads all of its placements."""

    __slots__ = Placement.__slots__


def unaccounted_of(
    external_id: str, fact_id: str, standing: str | None, state: str | None, owner: str | None
) -> Unaccounted:
    """Return what a ledger says about one listed entry."""
    return Unaccounted(
        external_id,
        fact_id,
        Standing(standing or Standing.UNKNOWN),
        None if state is None else PlacementState(state),
        owner,
    )


def compared_of(external_id: str, row: Row) -> Compared:
    """Return what there is on one listed entry.

    The row is of the entry, its standing, then place, owner and state of its placement, when it was stored
    and whether it is current, then `ANSWERED` where it is.
    """
    standing, place, state, current = row[1], row[2], row[4], row[6]
    made: Any = _Compared()
    made.external_id = external_id
    made.place = place
    made.owner = row[3]
    made.state = None if place is None else _STATES[state]
    made.standing = Standing.UNKNOWN if standing is None else STANDINGS[standing]
    made.current = bool(current)
    made.fact = fact_of(row[7:], row[19] or 0) if current else None
    made.stored_at = read_instant(row[5]) if current else None
    made.__class__ = Compared
    compared: Compared = made
    return compared


class _Compared:
    """One while it is filled in: as with facts, a batch has ten thousand."""

    __slots__ = Compared.__slots__


def held_of(row: Row) -> Held:
    """Return the placement of (place, then the columns of `placement_of`)."""
    made: Any = _Held()
    made.place = row[0]
    made.placement = placement_of(row[1:])
    made.__class__ = Held
    held: Held = made
    return held


class _Held:
    """One while it is filled in, as many as there are placements."""

    __slots__ = Held.__slots__


def waiting_of(rows: Sequence[Row], limit: int, head: Head) -> Page[Waiting]:
    """Return a page of so many facts of (seq, fact id, store, due_at); one more says that it goes on."""
    facts = list(dict.fromkeys(row[0] for row in rows))
    shown = set(facts[:limit])
    found = [Waiting(row[1], row[2], _instant(row[3])) for row in rows if row[0] in shown]
    return Page(found, head=head, next=facts[limit - 1] if len(facts) > limit else None)


def note_of(row: Row) -> Note:
    """Return the note of (topic, key, value, holder, since, expires_at)."""
    topic, key, value, holder, since, expires_at = row
    return Note(
        topic=topic,
        key=key,
        value=value,
        holder=holder,
        since=_instant(since),
        expires_at=read_instant(expires_at),
    )


def mark_of(row: Row) -> Mark:
    """Return the mark of a note's (key, value, holder)."""
    return Mark(Way(row[0]), row[1], row[2])
