"""Where entries of ours may lie: below the template's root, below earlier ones, in noted namespaces."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Hashable, Iterable
from typing import TYPE_CHECKING

from custody_sync.adapters._langgraph_calls import Calls, address_of
from custody_sync.adapters._langgraph_namespaces import Namespace, outermost, written
from custody_sync.adapters._scopes import LooseNotes
from custody_sync.errors import StoreRefused
from custody_sync.ports import Notebook

if TYPE_CHECKING:
    from langgraph.store.base import SearchItem


class Places:
    """Know every namespace that was used, also by another process or under another template.

    Args:
        calls: Calls the store.
        root: The labels that every namespace of the template begins with.
        is_known: Whether the store is one of LangGraph's own.
    """

    def __init__(self, calls: Calls, root: Namespace, is_known: bool) -> None:
        self.notes: Notebook = LooseNotes()
        self._calls = calls
        self._root = root
        self._is_known = is_known

    async def note(self, namespaces: Iterable[Namespace]) -> None:
        """Note where something is put, before it is.

        One of LangGraph's own stores enumerates what lies below a root; of others that is not known.
        """
        used = [self._root] if self._is_known else sorted(set(namespaces))
        for place in used:
            await self.notes.claim(written(place), "namespace")

    async def _noted(self) -> list[Namespace]:
        return [tuple(json.loads(key)) for key in await self.notes.read()]

    async def roots(self) -> list[Namespace]:
        """Return the prefixes below which anything of ours may lie; a changed template leaves old ones."""
        return outermost([self._root, *await self._noted()])

    async def everywhere(self, operation: str, only: dict[str, str]) -> list[SearchItem]:
        """Read below every root, once each.

        A third party's store may know no search above all namespaces; it is asked place by place.
        """
        found: dict[Hashable, SearchItem] = {}
        roots = await self.roots()
        try:
            answers = [await self._calls.everything(operation, root, only) for root in roots]
        except StoreRefused:
            if self._is_known or not (noted := await self._noted()):
                raise
            answers = [await self._calls.everything(operation, place, only) for place in noted]
        for items in answers:
            found.update((address_of(item), item) for item in items)
        return list(found.values())

    async def namespaces(self) -> list[Namespace]:
        """Return what the store enumerates below every root, and what was noted where it cannot."""
        found: dict[Namespace, None] = {}
        noted = [] if self._is_known else await self._noted()
        try:
            for root in await self.roots():
                found.update(dict.fromkeys(await self._namespaces_below(root)))
        except StoreRefused:
            if not noted:
                raise
        return list(found | dict.fromkeys(noted))

    async def _namespaces_below(self, root: Namespace) -> list[Namespace]:
        def ask(limit: int, offset: int) -> Awaitable[list[Namespace]]:
            options = {"prefix": root or None, "limit": limit, "offset": offset}
            return self._calls.call("list_entries", "list_namespaces", **options)

        found = dict.fromkeys(map(tuple, await self._calls.all(ask, tuple)))
        return [namespace for namespace in found if namespace[: len(root)] == root]
