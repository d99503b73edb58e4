"""A store that keeps facts apart by scope, and can only look where its notebook says it put something."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from custody_sync.adapters._scopes import LooseNotes
from custody_sync.model import Entry, Fact, Label
from custody_sync.ports import Notebook
from custody_sync.testing import MemoryStore


class ScopedStore(MemoryStore):
    """As hosted stores are: what a vendor cannot enumerate has to be remembered."""

    def __init__(self, name: str = "scoped", *, scope: str = "{space}", **more: Any) -> None:
        super().__init__(name, scope=scope, **more)
        self.notebook: Notebook = LooseNotes()

    def remember_in(self, notebook: Notebook) -> None:
        """Take the ledger's notebook."""
        self.notebook = notebook

    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        """Claim the scope before anything is sent."""
        scope = self.scope_of(fact) or ""
        await self.notebook.claim(scope, f"uuid of {scope}")
        return await super().put(fact, label)

    async def list_entries(self) -> AsyncIterator[Entry]:
        """Yield what is in the scopes that were claimed."""
        scopes = await self.notebook.read()
        async for entry in super().list_entries():
            if entry.scope in scopes:
                yield entry

    def handle(self) -> ScopedStore:
        """Return what another process would have of the same store."""
        other = ScopedStore(self.name, scope=self._scope or "", clock=self._clock)
        other._held, other._ids = self._held, self._ids
        return other
