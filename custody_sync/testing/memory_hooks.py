"""What the contract suite may do to a `MemoryStore`, and an example of what an adapter's fixtures offer."""

from __future__ import annotations

import copy

from custody_sync.model import Entry, Json
from custody_sync.testing.contract_case import StoreHooks, Trouble
from custody_sync.testing.memory import MemoryStore


class MemoryHooks(StoreHooks):
    """Sabotage and trouble of a `MemoryStore`."""

    pause = 0.0

    async def break_delete(self, store: MemoryStore) -> None:
        """Make deletions succeed without effect."""
        store.faults.silent_delete = True

    async def break_search(self, store: MemoryStore) -> None:
        """Make the search fail."""
        store.faults.refuse("search")

    async def put_unlabelled(self, store: MemoryStore, text: str) -> str:
        """Hold a text without a label."""
        return store.put_raw(text)

    async def value_of(self, store: MemoryStore, entry: Entry) -> Json:
        """Return the value as it is held."""
        return store.value(entry.external_id)

    async def reopened(self, store: MemoryStore) -> MemoryStore:
        """Return another handle on what the store holds."""
        return copy.copy(store)

    async def make_trouble(self, store: MemoryStore, trouble: Trouble, times: float = 1) -> None:
        """Let the store behave as the services behind adapters do."""
        faults = store.faults
        match trouble:
            case Trouble.LAG:
                faults.index_lag = times
            case Trouble.SEARCH_FAILS:
                faults.refuse("search", times=times)
            case Trouble.THROTTLED | Trouble.RESET:
                faults.turn_away(times=times, throttled=trouble is Trouble.THROTTLED)
            case Trouble.FAILS_AFTER | Trouble.LOST_REPLY:
                faults.lost_writes = times
            case Trouble.REPEATS:
                faults.rough_pages = True
            case Trouble.SKIPS:
                faults.short_listings = times
            case Trouble.LYING_DELETE:
                faults.silent_delete = True
            case Trouble.PENDING:
                faults.pending = True
            case Trouble.EMPTY_BODY:
                faults.empty_replies = times


__all__ = ["MemoryHooks"]
