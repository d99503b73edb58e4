"""Reading what a store lists, and sorting out what the ledger does not stand behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime

from custody_sync.errors import StoreError, StoreRefused, StoreUnavailable
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
from custody_sync.ports import MixesIds
from custody_sync.repair.selection import EVERYTHING, Selection
from custody_sync.results import Seen
from custody_sync.shown import Circle, Spoiled
from custody_sync.stores import Gate, Shown

BATCH = 10_000
"""Entries that are listed and looked up at a time; a sweep that is killed repeats no more."""
MOST = 100_000_000
"""Entries after which a store's listing counts as one that never ends; no store in use has so many."""
SPOILED_NAMED = 20
"""More spoiled rows of one store than these are only counted."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An entry that has to go, and why."""

    entry: Entry
    kind: Leftover
    recorded: bool
    """True when the ledger has its event already: an earlier sweep began with it."""

    @property
    def is_orphan(self) -> bool:
        """Tell whether the ledger never knew it."""
        return self.kind is Leftover.ORPHAN


@dataclass(slots=True)
class Listing:
    """What one store's listing came to."""

    scanned: int = 0
    labelled: int = 0
    orphans: int = 0
    strays: int = 0
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
    misread: bool = False
    """True when it shows what is live under other ids, so that nothing it says is to be acted upon."""
    failed: str | None = None
    """Why it broke off."""
    _circle: Circle = field(default_factory=Circle)

    @property
    def planned(self) -> int:
        """Tell how many of its entries have to go."""
        return self.orphans + self.strays

    def take(
        self, page: list[Entry | Spoiled], ledger_id: str, selection: Selection = EVERYTHING
    ) -> list[Entry]:
        """Count a page and return what has this ledger's label and is selected; nothing that came before."""
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
        if selection.space is not None:
            ours = [row for row in ours if selection.has_space(row.space)]
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


@dataclass(slots=True, kw_only=True)
class Batch:
    """What became of a page of a listing, and how far that had come by then."""

    cursor: str | None
    scanned: int
    labelled: int
    spoiled: tuple[Spoiled, ...]
    spoiled_more: int
    candidates: list[Candidate] = field(default_factory=list)
    young: list[Seen] = field(default_factory=list)
    undated: list[Seen] = field(default_factory=list)
    contested: list[Seen] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sorter:
    """Sorts out what a store lists.

    Only entries with our label and this ledger's id are looked at, and of those only the ones that were
    selected. What is too young, dated in the future or cannot be used is reported and never a candidate.
    """

    ledger: Ledger
    selection: Selection
    cutoff: datetime
    now: datetime

    async def sort(self, gate: Gate, listing: Listing, *, after: str | None = None) -> AsyncGenerator[Batch]:
        """Yield a batch for each page while the store lists on behind a cursor; counts go into `listing`.

        The ledger looks one page up while the store lists the next.
        """
        asked: asyncio.Task[Batch] | None = None
        problem: StoreError | None = None
        part = self.selection.part
        if part is not None and after is None:
            after = part.after
        until = None if part is None else part.until
        # Two pages are under way at once, and a kill may lose both.
        size = max(BATCH // 2, 1)
        try:
            try:
                async with aclosing(gate.listing(size, after=after, until=until)) as pages:
                    async for page in pages:
                        before, asked = asked, self._ask(gate, page, listing)
                        if before is not None:
                            yield await before
                        _check_end(gate, listing)
            except StoreError as error:
                problem = error
            if asked is not None and (problem is None or not listing.misread):
                yield await asked
        finally:
            if asked is not None:
                asked.cancel()
                await asyncio.gather(asked, return_exceptions=True)
        if problem is not None:
            raise problem

    def _ask(self, gate: Gate, page: Shown, listing: Listing) -> asyncio.Task[Batch]:
        ours = listing.take(page.rows, self.ledger.ledger_id, self.selection)
        batch = Batch(
            cursor=page.cursor,
            scanned=listing.scanned,
            labelled=listing.labelled,
            spoiled=tuple(listing.spoiled),
            spoiled_more=listing.spoiled_more,
        )
        return asyncio.create_task(self._sort_page(gate, ours, listing, batch))

    async def _sort_page(self, gate: Gate, ours: list[Entry], listing: Listing, batch: Batch) -> Batch:
        pairs = {entry.external_id: entry.fact_id or "" for entry in ours}
        unaccounted = await self.ledger.unaccounted(gate.name, pairs, keep=gate.keeps)
        entries = {entry.external_id: entry for entry in ours} if unaccounted else {}
        for found in unaccounted:
            entry = entries[found.external_id]
            if found.owner == entry.fact_id and _is_drained(found.state, keeps=gate.keeps):
                continue
            if entry.external_id in listing.taken:
                continue
            if found.standing is Standing.ASSERTED:
                try:
                    await refuse_mixed(self.ledger, gate, entry)
                except StoreRefused:
                    listing.misread = True
                    raise
            listing.taken.add(entry.external_id)
            self._judge(entry, found, batch)
        return batch

    def _judge(self, entry: Entry, found: Unaccounted, batch: Batch) -> None:
        age_from = entry.stored_at or read_instant(entry.created_at)
        seen = Seen(
            store=entry.store, external_id=entry.external_id, fact_id=entry.fact_id or "", since=age_from
        )
        if age_from is not None and age_from > self.now + MAX_SKEW:
            batch.undated.append(seen)
        elif age_from is None or age_from > self.cutoff:
            batch.young.append(seen)
        elif found.owner not in (None, entry.fact_id) and found.state is not PlacementState.GONE:
            batch.contested.append(seen)
        else:
            batch.candidates.append(_candidate(entry, found))


async def refuse_mixed(ledger: Ledger, gate: Gate, entry: Entry) -> None:
    """Refuse a store that shows a live entry under its id in another type: it would look like a stray.

    Raises:
        StoreRefused: the listing tells nothing, as one that failed; its cause says what to do.
    """
    store: object = gate.store
    if not isinstance(store, MixesIds):
        return
    for row in await ledger.placements(entry.fact_id or ""):
        is_here = row.store == gate.name and row.state is not PlacementState.GONE
        if is_here and store.is_same_id(row.external_id, entry.external_id):
            problem = str(store.mixed_ids(row.external_id).fields["problem"])
            raise StoreRefused(store=gate.name, operation="list", cause=problem)


def _is_drained(state: PlacementState | None, *, keeps: bool) -> bool:
    """Tell of an entry's own placement whether draining takes care of it: pending, or its fact is over."""
    over = (PlacementState.HELD, PlacementState.KEPT) if keeps else (PlacementState.HELD,)
    return state is PlacementState.DUE or state in over


def _check_end(gate: Gate, listing: Listing) -> None:
    """Break off a listing that will not end by itself."""
    cause = ""
    if listing.circles:
        cause = "it comes back to the same entries again and again"
    elif listing.scanned >= MOST:
        cause = f"it goes on after {MOST:,} entries"
    if cause:
        raise StoreUnavailable(store=gate.name, operation="list", cause=cause)


def _candidate(entry: Entry, found: Unaccounted) -> Candidate:
    kind = Leftover.STRAY if found.standing is Standing.ASSERTED else Leftover.ORPHAN
    return Candidate(entry, kind, recorded=found.state is not None and found.owner == entry.fact_id)
