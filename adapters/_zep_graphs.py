"""Which graph of Zep belongs to a scope: Zep makes up its id, so the id has to be known again.

What is claimed stands in the notebook. Every graph also carries a mark in its description, so that
one whose maker crashed before the claim is found again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from custody_sync.adapters._scopes import LooseNotes
from custody_sync.adapters._zep_calls import Calls, is_missing
from custody_sync.errors import StoreError, StoreRefused
from custody_sync.ports import Notebook

_MARK = "custody-sync"
_KEY, _PROJECT = "graph:", "project"
_PAGE = 100
_LONGEST = 200
# Scopes as users name them never begin with a single "=": `encoded` doubles it.
_UNCLAIMED, _LONG = "=graph:", "=long:"


def encoded(scope: str) -> str:
    """Return a scope that fits into a description, and that no name a user chose can collide with."""
    if len(scope) > _LONGEST:
        return f"{_LONG}{_digest(scope)}"
    return f"={scope}" if scope.startswith("=") else scope


class Graphs:
    """Find and make the graphs of a store.

    Args:
        calls: The client.
        given: Graphs that are there already, by scope.
    """

    def __init__(self, calls: Calls, given: Mapping[str, str]) -> None:
        self.notebook: Notebook = LooseNotes()
        self._calls = calls
        self._given = {encoded(scope): graph for scope, graph in given.items()}
        self._mark = f"{_MARK}:{_digest(calls.store)}:"
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakValueDictionary[str, asyncio.Lock]] = (
            WeakKeyDictionary()
        )

    async def of(self, operation: str, scope: str) -> str | None:
        """Return the graph of a scope; None if there is none."""
        known = await self._known(scope)
        if known is not None:
            return known
        marked = await self._marked(operation, _digest(scope))
        if not marked:
            return None
        # The oldest, as every other process would choose.
        first = min(marked, key=lambda graph: (graph.created_at or "", graph.uuid_))
        await self._know_project(operation)
        return await self.notebook.claim(_KEY + scope, first.uuid_)

    async def make(self, operation: str, scope: str) -> str:
        """Return the graph of a scope, made and claimed if there was none.

        Raises:
            StoreRefused: The client's key belongs to another project than the graphs that are known.
        """
        known = await self._known(scope)
        if known is None:
            async with self._lock(scope):
                known = await self.of(operation, scope)
                known = known if known is not None else await self._make(operation, scope)
        elif await self.notebook.get(_PROJECT) is None:
            await self._know_project(operation)
        return known

    async def all(self, operation: str) -> dict[str, str]:
        """Return the scope of every graph that is given, claimed or marked, by the graph's id."""
        found = {graph: scope for scope, graph in self._given.items()}
        for key, graph in (await self.notebook.read()).items():
            if key.startswith(_KEY):
                found.setdefault(graph, key.removeprefix(_KEY))
        for graph in await self._marked(operation, ""):
            if graph.uuid_ not in found:
                scope = _scope_in(graph.description)
                claimed = scope is not None and await self.of(operation, scope) == graph.uuid_
                found[graph.uuid_] = scope if scope and claimed else f"{_UNCLAIMED}{graph.uuid_}"
        return found

    async def is_deleted(self, operation: str, graph: str) -> bool:
        """Tell whether a graph that Zep does not know was deleted; a key of another project knows none."""
        try:
            await self._calls.ask(operation, "graph.get", graph)
        except StoreError as problem:
            if not is_missing(problem):
                raise
            known = await self.notebook.get(_PROJECT)
            return known is not None and known == await self._project(operation)
        return False

    async def drop(self, scope: str, graph: str) -> bool:
        """Forget that a scope had a graph, so that it gets a new one; False where the caller gave it."""
        if scope in self._given or scope.startswith(_UNCLAIMED):
            return False
        if await self.notebook.get(_KEY + scope) == graph:
            await self.notebook.drop(_KEY + scope)
        return True

    async def _known(self, scope: str) -> str | None:
        if scope.startswith(_UNCLAIMED):
            return scope.removeprefix(_UNCLAIMED)
        return self._given.get(scope) or await self.notebook.get(_KEY + scope)

    async def _make(self, operation: str, scope: str) -> str:
        await self._know_project(operation)
        description = f"{self._mark}{_digest(scope)} {json.dumps({'scope': scope}, ensure_ascii=False)}"
        made = await self._calls.ask(operation, "graph.create", name=scope, description=description)
        if not made.uuid_:
            raise self._calls.unavailable(operation, "no_graph_uuid")
        mine: str = made.uuid_
        claimed = await self.notebook.claim(_KEY + scope, mine)
        if claimed != mine:
            await self._discard(operation, mine)
        return claimed

    async def _discard(self, operation: str, graph: str) -> None:
        """Delete the graph of the slower of two processes, unless somebody has written into it."""
        try:
            page = await self._calls.ask(operation, "graph.episode.list", graph, page_size=1)
            if not page.items:
                await self._calls.ask(operation, "graph.delete", graph)
        except StoreError:
            # It is empty or marked, so a listing covers it; the put must not fail for it.
            return

    async def _know_project(self, operation: str) -> None:
        known, here = await self.notebook.get(_PROJECT), await self._project(operation)
        if here is not None and await self.notebook.claim(_PROJECT, known or here) != here:
            raise StoreRefused(store=self._calls.store, operation=operation, cause="key_of_another_project")

    async def _project(self, operation: str) -> str | None:
        project: str | None = (await self._calls.ask(operation, "project.get")).uuid_
        return project

    async def _marked(self, operation: str, digest: str) -> list[Any]:
        mark = f"{self._mark}{digest}"
        rows = await self._calls.rows(operation, "graph.list", search=mark, page_size=_PAGE)
        return [graph for graph in rows if (graph.description or "").startswith(mark) and graph.uuid_]

    def _lock(self, scope: str) -> asyncio.Lock:
        loop = asyncio.get_running_loop()
        locks = self._locks.setdefault(loop, WeakValueDictionary())
        lock = locks.get(scope)
        if lock is None:
            lock = locks[scope] = asyncio.Lock()
        return lock


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _scope_in(description: str | None) -> str | None:
    """Read the scope out of a mark; None where somebody edited it."""
    mark, _, said = (description or "").partition(" ")
    try:
        scope = json.loads(said).get("scope")
    except (AttributeError, ValueError):
        return None
    return scope if isinstance(scope, str) and mark.endswith(_digest(scope)) else None


__all__ = ["Graphs", "encoded"]
