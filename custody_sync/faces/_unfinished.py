"""Which forgotten facts a store may still hold, so that deleting them again goes on where it stopped."""

from __future__ import annotations

from collections.abc import Sequence

from custody_sync.coordinator import AsyncCoordinator
from custody_sync.model import PlacementState

_PAGE = 1000


async def unfinished(custody: AsyncCoordinator, forgotten: Sequence[str]) -> set[str]:
    """Return which of these facts the ledger has not seen gone from every store.

    It is asked in the ledger, so another process, or this one after a crash, goes on as well. Mostly one
    question is enough for all of them: nothing is pending, or little is.
    """
    if not forgotten:
        return set()
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
