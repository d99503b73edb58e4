"""Where entries and facts lead along their chains of supersession: the same on every engine.

An engine finds the rows; what they mean at two instants is decided here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from custody_sync.canonical import is_text
from custody_sync.ledger.answers import Row, fact_of
from custody_sync.ledger.questions import Instants
from custody_sync.model import Entry, format_instant
from custody_sync.recalled import Belief, Followed, Link

MARKS = "{f}.seq, {f}.effect_seq, {f}.retract_seq, {f}.forget_seq, {f}.valid_from, {f}.valid_to"
"""The columns that `belief_of` reads, of a row `{f}` of facts."""
_MARKS = 6


def asked_of(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Return what is asked of each entry; what no ledger can hold asks for nothing."""
    return [
        {
            "place": place,
            "fact_id": _askable(entry.fact_id),
            "store": _askable(entry.store),
            "external_id": _askable(entry.external_id) if entry.fact_id is None else None,
            "scope": _askable(entry.scope),
        }
        for place, entry in enumerate(entries)
    ]


def _askable(text: str | None) -> str | None:
    return text if text is not None and is_text(text) else None


def followed_of(rows: Iterable[Row], size: int, at: Instants) -> list[Followed]:
    """Return where each entry leads.

    A row is of a place, the fact's id, its standing and the event that claimed it, `MARKS` of the fact and
    `ANSWERED` of the link that is believed.
    """
    found: list[Followed | None] = [None] * size
    for row in rows:
        place, owner, standing, claimed_at = row[:4]
        marks, led = row[4 : 4 + _MARKS], row[4 + _MARKS :]
        if standing is None:
            found[place] = Followed(Belief.UNKNOWN, owner, None)
        elif claimed_at > at.head.seq:
            found[place] = Followed(Belief.LATER, owner, None)
        elif marks[0] is None:
            found[place] = Followed(Belief.REPAIRED, owner, None)
        else:
            fact = None if led[0] is None else fact_of(led, at.head.seq)
            own = fact is not None and fact.seq == marks[0]
            earlier = found[place]
            if earlier is not None and earlier.fact is not None and not own:
                continue  # the claim that was asked for itself
            belief = belief_of(marks, at)
            if belief is Belief.BELIEVED and not own:
                belief = Belief.SUPERSEDED
            found[place] = Followed(belief, owner, fact)
    return [one or Followed(Belief.UNKNOWN, None, None) for one in found]


def belief_of(marks: Row, at: Instants) -> Belief:
    """Return where a fact stands, as if nothing superseded it."""
    seq, effect, retracted, forgotten, valid_from, valid_to = marks
    head, valid_at = at.head.seq, format_instant(at.valid_at)
    if seq > head:
        return Belief.LATER
    if forgotten is not None and forgotten <= head:
        return Belief.FORGOTTEN
    if retracted is not None and retracted <= head:
        return Belief.RETRACTED
    if effect is None or effect > head:
        return Belief.CLAIMED
    if valid_from > valid_at:
        return Belief.LATER
    return Belief.ENDED if valid_to is not None and valid_to <= valid_at else Belief.BELIEVED


def links_of(rows: Iterable[Row], size: int, at: Instants) -> list[tuple[Link, ...]]:
    """Return each chain that was asked for, oldest link first.

    A row is of a place, `MARKS` and `ANSWERED` of one link; of a chain that was asked for it has them all.
    """
    found: list[tuple[Link, ...]] = [()] * size
    for place, group in groupby(rows, key=itemgetter(0)):
        chain = [(row[1 : 1 + _MARKS], row[1 + _MARKS :]) for row in group]
        covers = max((marks[1] for marks, _ in chain if _covers(marks, at)), default=0)
        links = []
        for marks, answered in chain:
            belief = belief_of(marks, at)
            if belief in (Belief.BELIEVED, Belief.ENDED) and marks[1] < covers:
                belief = Belief.SUPERSEDED
            links.append(Link(fact_of(answered, at.head.seq), belief))
        found[place] = tuple(links)
    return found


def _covers(marks: Row, at: Instants) -> bool:
    """Tell whether a link covers those that took effect before it; a forgotten one does, too."""
    _, effect, retracted, _, valid_from, _ = marks
    head = at.head.seq
    in_effect = effect is not None and effect <= head and (retracted is None or retracted > head)
    return in_effect and valid_from <= format_instant(at.valid_at)


__all__ = ["MARKS", "asked_of", "belief_of", "followed_of", "links_of"]
