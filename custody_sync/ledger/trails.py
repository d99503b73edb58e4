"""Where entries and facts lead along their chains of supersession: the same on every engine.

An engine finds the rows; what they mean at two instants is decided here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, cast

from custody_sync.canonical import is_text
from custody_sync.ledger.answers import ANSWERED, Row, fact_of
from custody_sync.ledger.questions import Instants, Trail
from custody_sync.model import ERASED_ID, Entry, Fact, format_instant
from custody_sync.recalled import Belief, Followed, Link, followed_to

LINK = f"f.root, f.live, f.retract_seq, f.forget_seq, {ANSWERED}"
"""The columns of a link, of `facts f` and `sealed s`; others may stand behind them."""
_ROOT, _LIVE, _RETRACTED, _FORGOTTEN, _ANSWERED = range(5)
_END = LINK.count(",") + 1
_SEQ, _VALID_FROM, _VALID_TO, _EFFECT = (_ANSWERED + place for place in (0, 7, 8, 12))
OWN = 3
"""So many columns stand before a link where entries are followed: the entry's place, its fact's id, and
the event that claimed that id where it is no fact."""
_BELIEVED = Belief.BELIEVED
_COVERED = (_BELIEVED, Belief.ENDED)
"""What a later link that is in effect makes superseded."""


def askable(text: str | None) -> str | None:
    """Return a text, or None for what no ledger can hold, such as one with a NUL character."""
    return text if text is not None and is_text(text) else None


def asked_of(entries: Sequence[Entry], trail: Trail) -> tuple[list[str | None], list[dict[str, Any]]]:
    """Return the fact id of each entry that has a label, and where to look for the owner of the others."""
    unlabelled = [
        {
            "place": place,
            "store": askable(entry.store),
            "external_id": askable(entry.external_id),
            "scope": entry.scope,
            "adopted": trail.adopted[place] if trail.adopted else (),
        }
        for place, entry in enumerate(entries)
        # What stands for an id that an erasure took is no entry's own.
        if entry.fact_id is None
        and askable(entry.scope) == entry.scope
        and not entry.external_id.startswith(ERASED_ID)
    ]
    ids = [entry.fact_id for entry in entries]
    # A page of ids is looked at in one; only where one of them is odd is each by itself.
    if set(map(type, ids)) == {str} and is_text("".join(cast(list[str], ids))):
        return ids, unlabelled
    return [askable(fact_id) for fact_id in ids], unlabelled


def followed_of(
    rows: Iterable[Row],
    last: Iterable[Row],
    entries: Sequence[Entry],
    at: Instants,
    trail: Trail,
) -> tuple[list[Followed], list[str]]:
    """Return where each entry leads: only the link of a chain that is in effect last can be believed.

    `rows` are of `OWN` columns and a link, `last` are the links in effect last of chains where that is not
    seen from `rows`.

    Returns:
        what was found, and the roots of such chains that `last` has no link of.
    """
    found: list[Followed | None] = [None] * len(entries)
    head, valid_at = at.head.seq, format_instant(at.valid_at)
    is_now = trail.tx_at is None
    ends = {link[_ROOT]: link for link in last}
    made: dict[int, Fact] = {}
    lacking: dict[str, None] = {}
    for row in rows:
        entry, link, fact = entries[row[0]], row[OWN:], None
        # At the head what is live is in effect, the last of its chain, and neither taken back nor erased.
        is_last = is_now and bool(link[_ROOT] is not None and link[_LIVE] and link[_VALID_FROM] <= valid_at)
        if link[_ROOT] is None:
            belief = _of_no_fact(row[2], head)
        elif entry.fact_id is None and _is_another(entry, _fact(link, head)):
            continue
        elif is_last and not _is_past(link[_VALID_TO], valid_at):
            belief = _BELIEVED
            fact = made.get(link[_SEQ]) or made.setdefault(link[_SEQ], _fact(link, head))
        else:
            belief = belief_of(link, head, valid_at)
            waits = trail.include_claimed and belief is Belief.CLAIMED and _is_valid(link, valid_at)
            end = link if waits or is_last else ends.get(link[_ROOT])
            if end is None:
                lacking[link[_ROOT]] = None
            else:
                if belief in _COVERED and end[_EFFECT] > link[_EFFECT]:
                    belief = Belief.SUPERSEDED
                if _is_valid(end, valid_at) and not _is_past(end[_FORGOTTEN], head):
                    fact = made.get(end[_SEQ]) or made.setdefault(end[_SEQ], _fact(end, head))
        found[row[0]] = followed_to(belief, row[1] if entry.fact_id is None else entry.fact_id, fact)
    # What a row was passed over for, or has none, is nobody's.
    told = [
        one or followed_to(Belief.UNKNOWN, entry.fact_id, None)
        for one, entry in zip(found, entries, strict=True)
    ]
    return told, list(lacking)


def links_of(rows: Iterable[Row], fact_ids: Sequence[str], at: Instants) -> list[tuple[Link, ...]]:
    """Return the chain of each fact, oldest link first; facts of one chain share it.

    Of each chain that was asked for, `rows` are all its links in order, once.
    """
    head, valid_at = at.head.seq, format_instant(at.valid_at)
    found: dict[str, tuple[Link, ...]] = {}
    for _, chain in groupby(rows, key=itemgetter(_ROOT)):
        links = list(chain)
        covers = max((link[_EFFECT] for link in links if _covers(link, head, valid_at)), default=0)
        told = []
        for link in links:
            belief = belief_of(link, head, valid_at)
            if belief in _COVERED and link[_EFFECT] < covers:
                belief = Belief.SUPERSEDED
            if link[_SEQ] <= head:
                told.append(Link(_fact(link, head), belief))
        found |= dict.fromkeys((link[_ANSWERED + 1] for link in links), tuple(told))
    return [found.get(fact_id, ()) for fact_id in fact_ids]


def belief_of(link: Row, head: int, valid_at: str) -> Belief:
    """Return where a link stands, as if nothing superseded it."""
    if link[_SEQ] > head:
        return Belief.LATER
    if _is_past(link[_FORGOTTEN], head):
        return Belief.FORGOTTEN
    if _is_past(link[_RETRACTED], head):
        return Belief.RETRACTED
    if not _is_past(link[_EFFECT], head):
        return Belief.CLAIMED
    if link[_VALID_FROM] > valid_at:
        return Belief.LATER
    return Belief.BELIEVED if _is_valid(link, valid_at) else Belief.ENDED


def _is_another(entry: Entry, fact: Fact) -> bool:
    """Tell whether an entry has another text than the fact whose id it has; of a forgotten one nobody can."""
    return None not in (entry.text, fact.text) and entry.text != fact.text


def _of_no_fact(claimed_at: int | None, head: int) -> Belief:
    if claimed_at is None:
        return Belief.UNKNOWN
    return Belief.REPAIRED if claimed_at <= head else Belief.LATER


def _covers(link: Row, head: int, valid_at: str) -> bool:
    """Tell whether a link covers those that took effect before it; a forgotten one does, too."""
    in_effect = _is_past(link[_EFFECT], head) and not _is_past(link[_RETRACTED], head)
    return in_effect and bool(link[_VALID_FROM] <= valid_at)


def _is_valid(link: Row, valid_at: str) -> bool:
    return bool(link[_VALID_FROM] <= valid_at) and not _is_past(link[_VALID_TO], valid_at)


def _is_past(mark: Any, now: Any) -> bool:
    return mark is not None and bool(mark <= now)


def _fact(link: Row, head: int) -> Fact:
    return fact_of(link[_ANSWERED:_END], head)


__all__ = ["LINK", "OWN", "askable", "asked_of", "belief_of", "followed_of", "links_of"]
