"""Before a sweep: is this the ledger that goes on, is it whole, and does its clock go right?

A ledger that was put back from a backup, or copied, does not know of entries that another one stands
behind, and would take them for leftovers. The breaker stops the worst of that by counting; what is
asked here stops it by knowing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from custody_sync.errors import ClockSkew, CustodyError, LedgerElsewhere, LedgerRestored
from custody_sync.ledger import Ledger
from custody_sync.ledger.storage import Note
from custody_sync.model import MAX_SKEW

TOPIC = "place"
KEY = "place"


@dataclass(frozen=True, slots=True)
class Doubts:
    """What speaks against a sweep: what forbids it, and what is only said."""

    refusals: tuple[CustodyError, ...]
    notices: tuple[str, ...]
    place: str
    """Where the ledger is now."""


async def doubts_of(ledger: Ledger) -> Doubts:
    """Return what speaks against a sweep by this ledger; it is only asked, nothing is changed."""
    refusals: list[CustodyError] = []
    notices: list[str] = []
    seen = await ledger.witness.read()
    if seen is not None and seen.seq > 0 and not await ledger.has(seen):
        path = str(ledger.witness.path)
        refusals.append(LedgerRestored(name=ledger.name, seq=seen.seq, path=path))
    here = await ledger.whereabouts()
    for note in await ledger.notes(TOPIC, limit=1):
        before = json.loads(note.value)
        if before != here.place:
            refusals.append(LedgerElsewhere(name=ledger.name, before=before, here=here.place))
    now = ledger.now()
    if here.server_time is not None and abs(here.server_time - now) > MAX_SKEW:
        refusals.append(ClockSkew(seconds=int(abs(here.server_time - now).total_seconds())))
    head = await ledger.head()
    if head.tx_time is not None and head.tx_time - now > MAX_SKEW:
        ahead = int((head.tx_time - now).total_seconds())
        said = f"the ledger's last event is dated {ahead} s after this clock"
        notices.append(f"{said}: this one is slow, or another was fast")
    return Doubts(tuple(refusals), tuple(notices), here.place)


async def guard(ledger: Ledger, *, moved: bool) -> tuple[str, ...]:
    """Refuse a sweep that might take live entries for leftovers; return what is to be said of it.

    The place of the first sweep is noted, and that of one that is said to have moved.

    Raises:
        LedgerRestored: the ledger is older than what its witness has seen.
        LedgerElsewhere: it swept at another place before.
        ClockSkew: its server has another time.
    """
    doubts = await doubts_of(ledger)
    for refusal in doubts.refusals:
        if not (moved and isinstance(refusal, LedgerElsewhere)):
            raise refusal
    note = Note(topic=TOPIC, key=KEY, value=json.dumps(doubts.place), since=ledger.now())
    await ledger.put_notes([note])
    return doubts.notices


__all__ = ["Doubts", "doubts_of", "guard"]
