"""What a store ought to hold and its listing did not show, and what it was never given.

The one is asked for again before it is called missing; the other is counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from custody_sync.errors import CustodyError
from custody_sync.finishing import together
from custody_sync.gathering import FEW, Gathering
from custody_sync.ledger import Ledger
from custody_sync.ledger.storage import Held
from custody_sync.mended import Drift
from custody_sync.model import Placement, PlacementState
from custody_sync.repair.differing import WAITS, Comparison, Drifted, waits
from custody_sync.repair.marks import event_of
from custody_sync.repair.selection import Selection
from custody_sync.stores import Gate, describe

PAGE = 10_000
CONCURRENCY = 64
CURRENT = (PlacementState.HELD, PlacementState.KEPT)


@dataclass(frozen=True, slots=True)
class Unknown:
    """A placement that was not listed and of which nobody can say whether it is there."""

    placement: Placement
    problem: str


class Absences:
    """Looks for what a whole listing left out.

    A listing under change may skip an entry, so a placement is missing only if the store itself says
    that it does not have it, and the ledger still counts on it after that.

    Args:
        ledger: what ought to be there.
        selection: which spaces.
    """

    def __init__(self, ledger: Ledger, selection: Selection) -> None:
        self._ledger = ledger
        self._selection = selection
        self._limiter = asyncio.Semaphore(CONCURRENCY)
        self._fact = Gathering(ledger.facts, at_once=FEW)
        self._placements = Gathering(ledger.placements_of, at_once=FEW)

    async def pages(self, comparison: Comparison) -> AsyncGenerator[list[Drifted | Unknown]]:
        """Yield what is missing, or may be; how much is expected at all goes into the comparison."""
        gate = comparison.gate
        asked = asyncio.create_task(self._ledger.held(gate.name, limit=PAGE))
        try:
            while True:
                page = await asked
                if page.next is not None:
                    asked = asyncio.create_task(self._ledger.held(gate.name, limit=PAGE, after=page.next))
                unseen = self._unseen(page, comparison)
                answers = await together(self._look(gate, placement) for placement in unseen)
                found = [answer for answer in answers if answer is not None]
                comparison.found[Drift.MISSING] += sum(isinstance(one, Drifted) for one in found)
                yield found
                if page.next is None:
                    return
        finally:
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)

    def _unseen(self, page: Sequence[Held], comparison: Comparison) -> list[Placement]:
        """Return what was on record when the listing began, and was not in it."""
        marks, keeps = comparison.marks, comparison.gate.keeps
        expected = [held for held in page if keeps or held.placement.state is not PlacementState.KEPT]
        comparison.expected += len(expected)
        return [
            held.placement
            for held in expected
            if held.place not in marks and event_of(held.place) <= comparison.head
        ]

    async def _look(self, gate: Gate, placement: Placement) -> Drifted | Unknown | None:
        async with self._limiter:
            if self._selection.space is not None:
                fact = await self._fact(placement.fact_id)
                if fact is None or not self._selection.has_space(fact.space):
                    return None
            try:
                is_there = await gate.holds(placement.to_entry())
            except CustodyError as error:
                return Unknown(placement, f"cannot be asked ({describe(error)})")
            if is_there is None:
                return Unknown(placement, "its listing does not show it, and it cannot be asked")
            rows = [] if is_there else await self._placements(placement.fact_id)
        address = (placement.store, placement.external_id)
        if not any((row.store, row.external_id) == address and row.state in CURRENT for row in rows):
            return None
        fact = await self._fact(placement.fact_id)
        detail = WAITS if fact is not None and waits(fact) else ""
        return Drifted(Drift.MISSING, placement.to_entry(), placement.fact_id, detail)


async def count_unplaced(ledger: Ledger, selection: Selection, comparison: Comparison) -> None:
    """Count what a store was never given: what a repair will put there, and the rest, for `backfill`."""
    store, after = comparison.gate.name, None
    while True:
        page = await ledger.lacking(store, limit=PAGE, after=after)
        lacking = set(page)
        if selection.space is not None:
            facts = (await ledger.facts(page)).values()
            lacking = {f.fact_id for f in facts if f is not None and selection.has_space(f.space)}
        owed = await _owed_of(ledger, lacking, store)
        comparison.found[Drift.OWED] += owed
        comparison.found[Drift.UNPLACED] += len(lacking) - owed
        after = page.next
        if after is None:
            return


async def _owed_of(ledger: Ledger, lacking: set[str], store: str) -> int:
    """Return how many of a page's facts are owed to a store; only their stretch of the debts is read."""
    count, last = 0, (min(lacking, default=""), "")
    while lacking and (pairs := await ledger.owed(limit=PAGE, after=last)):
        count += sum(fact_id in lacking and name == store for fact_id, name in pairs)
        last = pairs[-1]
        if last[0] > max(lacking):
            break
    return count


__all__ = ["Absences", "Unknown", "count_unplaced"]
