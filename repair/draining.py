"""Draining: what the ledger itself knows is owed, before any store is listed.

Removals that were not verified yet, placements that a retraction or a beginning owes, entries whose
fact has come to its end, and erasures that a reader held up.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from custody_sync.errors import CustodyError, Refused
from custody_sync.finishing import together
from custody_sync.ledger import Ledger
from custody_sync.model import Leftover, Outcome, Placement
from custody_sync.placing import Placer
from custody_sync.removal import Mandate, Remover
from custody_sync.repair.findings import Findings
from custody_sync.repair.lease import Lease
from custody_sync.repair.pile import drop_left
from custody_sync.repair.reaching import Reach
from custody_sync.repair.selection import Selection
from custody_sync.results import Repaired, Restored
from custody_sync.stores import Gate

S = TypeVar("S")
T = TypeVar("T")

PAGE, PLANNED = 500, 1000
"""Rows that are worked off at once, and that are only told of."""


@dataclass(slots=True)
class Allowance:
    """How many removals a run may still begin; None is any number."""

    left: int | None = None
    refused: int = 0
    """How many it had no room for."""

    def take(self, wanted: int) -> int:
        """Return how many of so many may be begun."""
        if self.left is None:
            return wanted
        granted = min(wanted, self.left)
        self.left -= granted
        return granted

    def grant(self, wanted: int) -> int:
        """Return how many of so many may be begun, and remember the others as refused."""
        granted = self.take(wanted)
        self.refused += wanted - granted
        return granted


class Draining:
    """Works off what the ledger owes, within a selection.

    Args:
        ledger: what is owed.
        gates: the configured stores by name.
        remover: deletes and verifies.
        placer: places what is owed.
        lease: kept while it works.
        mandate: on whose behalf.
        selection: which stores and spaces.
        allowance: how many removals may be begun.
        reach: knows which stores answer.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        gates: Mapping[str, Gate],
        remover: Remover,
        placer: Placer,
        lease: Lease,
        mandate: Mandate,
        selection: Selection,
        allowance: Allowance,
        reach: Reach,
    ) -> None:
        self._ledger = ledger
        self._gates = gates
        self._remover = remover
        self._placer = placer
        self._lease = lease
        self._mandate = mandate
        self._selection = selection
        self._allowance = allowance
        self._reach = reach

    async def drain(self, findings: Findings) -> None:
        """Complete erasures, remove what is pending or has ended, and place what is owed."""
        await drop_left(self._ledger)
        findings.erasure = await self._ledger.erase()
        after: int | None = None
        while True:
            page = await self._ledger.pending(limit=PAGE, after=after)
            rows = await self._allowed(page)
            findings.repaired += await self._by_store(rows, lambda row: row.store, self.remove_pending)
            await self._lease.renew()
            after = page.next
            if after is None:
                break
        # Before anything is placed: a successor takes the room of the one that it replaces.
        for store in self._gates:
            await self._remove_ended(store, findings)
        last: tuple[str, str] | None = None
        while owed := await self._ledger.owed(limit=100, after=last):
            pairs = await self._selected_pairs(owed)
            findings.restored += await self._by_store(pairs, lambda pair: pair[1], self._place)
            last = owed[-1]
            await self._lease.renew()
        self._reach.tell(findings)

    async def _remove_ended(self, store: str, findings: Findings) -> None:
        after: int | None = None
        while True:
            page = await self._ledger.ended(store, limit=PAGE, after=after)
            rows = await self._allowed(page)
            done = await self._reach.each(store, rows, self.remove_stray)
            findings.repaired += [item for item in done if item is not None]
            await self._lease.renew()
            after = page.next
            if after is None:
                return

    async def _allowed(self, page: Sequence[Placement]) -> list[Placement]:
        rows: list[Placement] = []
        for row in await self._selected(page):
            if self._reach.is_out(row.store):
                self._reach.leave(row.store, 1)
            else:
                rows.append(row)
        return rows[: self._allowance.grant(len(rows))]

    async def remove_pending(self, row: Placement, once: bool = False) -> Repaired:
        """Remove an entry that has to go and was not yet seen gone."""
        removal = await self._remover.drain_row(row, self._mandate, once=once)
        return _drained(row, Leftover.PENDING, removal.outcome, removal.detail)

    async def remove_stray(self, row: Placement, once: bool = False) -> Repaired | None:
        """Remove an entry whose fact has ended: first on record, then in the store; None if it lives on."""
        try:
            await self._remover.record(row.to_entry(), Outcome.STARTED, "", self._mandate)
        except Refused:
            return None
        except CustodyError as error:
            detail = f"not recorded, so not touched ({error.code})"
            return _drained(row, Leftover.STRAY, Outcome.FAILED, detail)
        removal = await self._remover.drain_row(
            replace(row, outcome=Outcome.STARTED), self._mandate, once=once
        )
        return _drained(row, Leftover.STRAY, removal.outcome, removal.detail)

    async def _place(self, pair: tuple[str, str], _: bool) -> Restored:
        return await self._placer.place(*pair, self._mandate)

    async def _by_store(
        self,
        items: Sequence[S],
        store_of: Callable[[S], str],
        work: Callable[[S, bool], Coroutine[Any, Any, T]],
    ) -> list[T]:
        """Work on the items of each store apart, so that one that is down holds up no other."""
        by_store: dict[str, list[S]] = {}
        for item in items:
            by_store.setdefault(store_of(item), []).append(item)
        done = await together(self._reach.each(store, some, work) for store, some in by_store.items())
        return [result for some in done for result in some]

    # --- a dry run --------------------------------------------------------------------------

    async def plan(self, findings: Findings) -> None:
        """Say what would be drained, and change nothing."""
        after: int | None = None
        while True:
            page = await self._ledger.pending(limit=PLANNED, after=after)
            rows = await self._selected(page)
            findings.repaired += [_drained(row, Leftover.PENDING, Outcome.PLANNED) for row in rows]
            after = page.next
            if after is None:
                break
        for store in self._gates:
            after = None
            while True:
                page = await self._ledger.ended(store, limit=PLANNED, after=after)
                rows = await self._selected(page)
                findings.repaired += [_drained(row, Leftover.STRAY, Outcome.PLANNED) for row in rows]
                after = page.next
                if after is None:
                    break
        last: tuple[str, str] | None = None
        while owed := await self._ledger.owed(limit=PLANNED, after=last):
            findings.restored += [
                Restored(fact_id=fact_id, store=store, detail="planned")
                for fact_id, store in await self._selected_pairs(owed)
            ]
            last = owed[-1]

    # --- what is selected -------------------------------------------------------------------

    async def _selected(self, rows: Sequence[Placement]) -> list[Placement]:
        pairs = [(row.fact_id, row.store) for row in rows]
        chosen = set(await self._selected_pairs(pairs))
        return [row for row in rows if (row.fact_id, row.store) in chosen]

    async def _selected_pairs(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        chosen = [(fact_id, store) for fact_id, store in pairs if self._selection.has_store(store)]
        if self._selection.space is None:
            return chosen
        spaces = {fact_id: await self._space_of(fact_id) for fact_id, _ in chosen}
        return [pair for pair in chosen if self._selection.has_space(spaces[pair[0]])]

    async def _space_of(self, fact_id: str) -> str | None:
        fact = await self._ledger.get(fact_id)
        return None if fact is None else fact.space


def _drained(row: Placement, kind: Leftover, outcome: Outcome, detail: str = "") -> Repaired:
    return Repaired(
        store=row.store,
        external_id=row.external_id,
        fact_id=row.fact_id,
        kind=kind,
        outcome=outcome,
        detail=detail,
    )


__all__ = ["Allowance", "Draining"]
