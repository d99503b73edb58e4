"""A store whose search is laid out by the test, and a watch on who is asked what during a recall."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fix_custody import Desk, open_desk

from custody_sync.ledger import Ledger
from custody_sync.model import SOURCE, Capability, Entry, Fact, Hit, Label
from custody_sync.recalled import Dropped, RecallResult
from custody_sync.testing import MemoryStore

UNASKED = (Capability.FIND, Capability.LIST_ENTRIES, Capability.VERIFY_DELETED)
"""A removal from a store that cannot be asked ends at once."""


class Shelf(MemoryStore):
    """Serves all it was ever given, in that order, whatever the query and whatever was deleted since.

    What lies on it may be changed at any time; `cap` is the most that one search serves.
    """

    def __init__(self, name: str = "shelf", *, cap: int | None = None, **more: Any) -> None:
        super().__init__(name, **({"without": UNASKED} | more))
        self.hits: list[Any] = []
        self.cap = cap
        self.sizes: list[int] = []
        """How many entries were asked for, question by question."""

    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        """Take an entry for good."""
        ids = await super().put(fact, label)
        self.hits += [Hit(entry=self.snapshot()[external_id]) for external_id in ids]
        return ids

    async def search(self, query: str, k: int, spaces: Sequence[str] | None) -> list[Hit]:
        """Serve what lies here from the first on."""
        self.sizes.append(k)
        return self.hits[: k if self.cap is None else min(k, self.cap)]

    def lay(self, *entries: Any) -> None:
        """Lay out these, the best one first; entries become hits."""
        self.hits = [Hit(entry=entry) if isinstance(entry, Entry) else entry for entry in entries]


@asynccontextmanager
async def open_shelf(folder: Path, **more: Any) -> AsyncIterator[tuple[Desk, Shelf]]:
    """Open a desk whose only store is a shelf."""
    async with open_desk(folder, stores=lambda clock: [Shelf(clock=clock)], **more) as desk:
        shelf = desk.stores["shelf"]
        assert isinstance(shelf, Shelf)
        yield desk, shelf


def entry_of(ledger: Ledger, fact_id: str, **more: Any) -> Entry:
    """Return an entry with a label of this ledger that names a fact, whoever wrote it."""
    label = {"source": SOURCE, "v": 1, "ledger_id": ledger.ledger_id, "fact_id": fact_id, "custody": "{}"}
    told = {"external_id": f"e-{fact_id}", "text": "what the store has", "space": "org"} | more
    metadata = label | {name: told.pop(name) for name in ("space", "ledger_id") if name in told}
    return Entry.from_metadata(metadata, store="shelf", **told)


def values_of(result: RecallResult) -> list[Any]:
    """Return the values that were served, in order."""
    return [hit.value for hit in result.hits]


def counts_of(result: RecallResult) -> dict[str, int]:
    """Return how many entries were left out, by reason."""
    return {Dropped(reason).value: count for reason, count in result.dropped.items()}


def watch(ledger: Ledger, stores: Iterable[MemoryStore], patch: Callable[..., None]) -> list[str]:
    """Note every question to the ledger and every search from now on, in the order they are answered."""
    seen: list[str] = []

    def noted(name: str, ask: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*args: Any, **more: Any) -> Any:
            answer = await ask(*args, **more)
            seen.append(name)
            return answer

        return call

    for name, method in inspect.getmembers(ledger, inspect.iscoroutinefunction):
        if not name.startswith("_"):
            patch(ledger, name, noted(name, method))
    for store in stores:
        patch(store, "search", noted("search", store.search))
    return seen
