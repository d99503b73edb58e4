"""Reading what a store lists, and sorting out what the ledger does not stand behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime

from custody_sync.errors import StoreError, StoreUnavailable
from custody_sync.ledger import Ledger
from custody_sync.ledger.storage import Unaccounted
from custody_sync.model import (
    MAX_SKEW,
    Entry,
    Leftover,
    PlacementState,
    Standing,
    read_instant,
)
from custody_sync.results import (
    Seen,
)
from custody_sync.shown import Circle, Spoiled
from custody_sync.stores import Gate

BATCH = 10_000
"""Entries the ledger is asked about at once; with few hand-overs the question hides behind the listing."""
SPOILED_NAMED = 20
"""More spoiled rows of one store than these are only counted."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An entry that has to go, and why."""

    entry: Entry
    kind: Leftover
    recorded: bool
    """True when the ledger has its event already: an earlier sweep began with it."""


@dataclass(slots=True)
class Listing:
    """What one store's listing came to."""

    scanned: int = 0
    labelled: int = 0
    planned: int = 0
    contested: list[Seen] = field(default_factory=list)
    """Entries under one fact's label whose external id the ledger placed for another fact."""
    taken: set[str] = field(default_factory=set)
    """External ids already reported, since a listing may show an entry twice."""
    young: list[Seen] = field(default_factory=list)
    undated: list[Seen] = field(default_factory=list)
    spoiled: list[Spoiled] = field(default_factory=list)
    spoiled_more: int = 0
    circles: bool = False
    """True when it came back to the same entries again and again, and would never have ended."""
    _circle: Circle = field(default_factory=Circle)

    def take(self, page: list[Entry | Spoiled], ledger_id: str) -> list[Entry]:
        """Count a page and return what has this ledger's label; nothing of one that came before."""
        if (length := self._circle.length_in(page)) is not None:
            # The breaker goes by what there is, not by how often it was shown.
            self.labelled, self.scanned = self.labelled * length // max(self.scanned, 1), length
            self.circles = True
            return []
        ours = [
            row
            for row in page
            if isinstance(row, Entry) and row.fact_id is not None and row.ledger_id == ledger_id
        ]
        for row in page:
            if isinstance(row, Spoiled):
                self._name(row, ledger_id)
        self.scanned += len(page)
        self.labelled += len(ours)
        return ours

    def _name(self, row: Spoiled, ledger_id: str) -> None:
        if row.ledger_id not in (None, ledger_id):
            # Somebody else's to read.
            return
        if len(self.spoiled) < SPOILED_NAMED:
            self.spoiled.append(row)
        else:
            self.spoiled_more += 1


async def sort_out(
    ledger: Ledger, gate: Gate, cutoff: datetime, now: datetime, listing: Listing
) -> AsyncGenerator[list[Candidate]]:
    """Yield batches of candidates for removal while the store lists; counts go into `listing`.

    Only entries with our label and this ledger's id are looked at. What is too young, dated in the
    future or cannot be used is reported and never a candidate. The ledger looks one batch up while
    the store lists the next, so the first batch is empty.
    """
    asked: asyncio.Task[list[Candidate]] | None = None
    problem: StoreError | None = None
    try:
        try:
            async with aclosing(gate.pages(BATCH)) as pages:
                async for page in pages:
                    ours = listing.take(page, ledger.ledger_id)
                    before = asked
                    asked = asyncio.create_task(_sort_batch(ledger, gate, ours, cutoff, now, listing))
                    yield await before if before is not None else []
                    if listing.circles:
                        cause = "it comes back to the same entries again and again"
                        raise StoreUnavailable(store=gate.name, operation="list", cause=cause)
        except StoreError as error:
            problem = error
        if asked is not None:
            yield await asked
    finally:
        if asked is not None:
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
    if problem is not None:
        raise problem


async def _sort_batch(
    ledger: Ledger, gate: Gate, ours: list[Entry], cutoff: datetime, now: datetime, listing: Listing
) -> list[Candidate]:
    pairs = {entry.external_id: entry.fact_id or "" for entry in ours}
    candidates: list[Candidate] = []
    unaccounted = await ledger.unaccounted(gate.name, pairs, keep=gate.keeps)
    batch = {entry.external_id: entry for entry in ours} if unaccounted else {}
    for found in unaccounted:
        entry = batch[found.external_id]
        age_from = entry.stored_at or read_instant(entry.created_at)
        seen = Seen(
            store=gate.name, external_id=entry.external_id, fact_id=entry.fact_id or "", since=age_from
        )
        if found.state is PlacementState.DUE and found.owner == entry.fact_id:
            # Pending in the ledger already: draining takes care of it, however young it is.
            continue
        if entry.external_id in listing.taken:
            continue
        listing.taken.add(entry.external_id)
        if age_from is not None and age_from > now + MAX_SKEW:
            listing.undated.append(seen)
        elif age_from is None or age_from > cutoff:
            listing.young.append(seen)
        elif found.owner not in (None, entry.fact_id) and found.state is not PlacementState.GONE:
            listing.contested.append(seen)
        else:
            candidates.append(_candidate(entry, found))
    listing.planned += len(candidates)
    return candidates


def _candidate(entry: Entry, found: Unaccounted) -> Candidate:
    kind = Leftover.STRAY if found.standing is Standing.ASSERTED else Leftover.ORPHAN
    return Candidate(entry, kind, recorded=found.state is not None and found.owner == entry.fact_id)
