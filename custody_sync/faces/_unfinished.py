"""Which forgotten facts a store or a file may still hold, so that a second deletion goes on with them."""

from __future__ import annotations

from collections.abc import Sequence

from custody_sync.coordinator import AsyncCoordinator
from custody_sync.model import Erasure, PlacementState

_PAGE = 1000


async def unfinished(custody: AsyncCoordinator, forgotten: Sequence[str]) -> set[str]:
    """Return which of these facts have to be forgotten again to be gone from every store and file.

    While the ledger's own files still hold erased values one of them stands for that: forgetting it goes
    on with the erasure, and says how it ended.

    It is asked in the ledger, so another process, or this one after a crash, goes on as well. Mostly one
    question is enough for all of them: nothing is pending, or little is.
    """
    if not forgotten:
        return set()
    due = await _due(custody, forgotten)
    if not due and await custody.ledger.erase() is Erasure.PENDING:
        return {forgotten[-1]}
    return due


async def _due(custody: AsyncCoordinator, forgotten: Sequence[str]) -> set[str]:
    pending = await custody.ledger.pending(limit=_PAGE)
    if pending.next is None:
        return {row.fact_id for row in pending} & set(forgotten)
    due: set[str] = set()
    for fact_id in forgotten:
        rows = await custody.ledger.placements(fact_id)
        if any(row.state is PlacementState.DUE for row in rows):
            due.add(fact_id)
    return due


__all__ = ["unfinished"]
