"""Which graph of Zep belongs to a scope: Zep makes up its id, so the id has to be known again.

What is claimed stands in the notebook. Every graph also carries a mark in its description, so that
one whose maker crashed before the claim is found again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from custody_sync.adapters._scopes import LooseNotes
from custody_sync.adapters._zep_calls import Calls, is_missing
from custody_sync.errors import StoreError, StoreRefused
from custody_sync.ports import Notebook

_MARK = "custody-sync"
_KEY, _AFTER, _PROJECT = "graph:", "after:", "project"
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

    async def of(self, operation: str, scope: str) -> list[str]:
        """Return the graphs of a scope, the one to put into last; none if it has none.

        More than one only where one was deleted: if it comes back, so does what was in it.
        """
        known = await self._known(scope)
        if known:
            return known
        marked = await self._first_marked(operation, scope, ())
        if marked is None:
            return []
        await self._know_project(operation)
        await self.notebook.claim(_KEY + scope, marked)
        return await self._known(scope)

    async def make(self, operation: str, scope: str, *, instead_of: str | None = None) -> str:
        """Return the graph to put into, made and claimed if there was none, or if it is the deleted one.

        Raises:
            StoreRefused: The client's key belongs to another project than the graphs that are known.
        """
        known = await self._known(scope)
        if not known or known[-1] == instead_of:
            async with self._lock(scope):
                known = await self.of(operation, scope)
                if not known or known[-1] == instead_of:
                    return await self._make(operation, scope, known)
        elif await self.notebook.get(_PROJECT) is None:
            await self._know_project(operation)
        return known[-1]

    def makes(self, scope: str) -> bool:
        """Tell whether the graph of a scope is ours to make; one that the caller gave is not."""
        return scope not in self._given and not scope.startswith(_UNCLAIMED)

    async def all(self, operation: str) -> dict[str, str]:
        """Return the scope of every graph that is given, claimed or marked, by the graph's id."""
        found = {graph: scope for scope, graph in self._given.items()}
        for key in await self.notebook.read():
            if key.startswith(_KEY):
                scope = key.removeprefix(_KEY)
                for graph in await self._known(scope):
                    found.setdefault(graph, scope)
        for row in await self._marked(operation, ""):
            if row.uuid_ not in found:
                said = _scope_in(row.description)
                claimed = said is not None and row.uuid_ in await self.of(operation, said)
                found[row.uuid_] = said if said and claimed else f"{_UNCLAIMED}{row.uuid_}"
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

    async def _known(self, scope: str) -> list[str]:
        if scope.startswith(_UNCLAIMED):
            return [scope.removeprefix(_UNCLAIMED)]
        if scope in self._given:
            return [self._given[scope]]
        found: list[str] = []
        graph = await self.notebook.get(_KEY + scope)
        while graph is not None and graph not in found:
            found.append(graph)
            graph = await self.notebook.get(_AFTER + graph)
        return found

    async def _make(self, operation: str, scope: str, known: list[str]) -> str:
        """Return the graph that stands for a scope after those it had.

        A claim is never replaced: that a graph was deleted is what a claim after it says, so of several
        processes one decides. The graph of a slower one stays, empty and marked: between a look into it
        and its deletion somebody else may find it and put something there.
        """
        await self._know_project(operation)
        graph = await self._first_marked(operation, scope, known) if known else None
        if graph is None:
            description = f"{self._mark}{_digest(scope)} {json.dumps({'scope': scope}, ensure_ascii=False)}"
            made = await self._calls.ask(operation, "graph.create", name=scope, description=description)
            graph = made.uuid_
        if not graph:
            raise self._calls.unavailable(operation, "no_graph_uuid")
        return await self.notebook.claim(_AFTER + known[-1] if known else _KEY + scope, graph)

    async def _know_project(self, operation: str) -> None:
        known, here = await self.notebook.get(_PROJECT), await self._project(operation)
        if await self.notebook.claim(_PROJECT, known or here) != here:
            raise StoreRefused(store=self._calls.store, operation=operation, cause="key_of_another_project")

    async def _project(self, operation: str) -> str:
        project: str | None = (await self._calls.ask(operation, "project.get")).uuid_
        if not project:
            raise self._calls.unavailable(operation, "no_project_uuid")
        return project

    async def _first_marked(self, operation: str, scope: str, but: Sequence[str]) -> str | None:
        """Return the oldest marked graph of a scope, as every other process would choose."""
        marked = [graph for graph in await self._marked(operation, _digest(scope)) if graph.uuid_ not in but]
        first = min(marked, key=lambda graph: (graph.created_at or "", graph.uuid_), default=None)
        return None if first is None else str(first.uuid_)

    async def _marked(self, operation: str, digest: str) -> list[Any]:
        mark = f"{self._mark}{digest}"
        rows = await self._calls.rows(operation, "graph.list", search=mark, page_size=_PAGE)
        return [graph for graph in rows if (graph.description or "").startswith(mark)]

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
    except (AttributeError, RecursionError, ValueError):
        return None
    return scope if isinstance(scope, str) and mark.endswith(_digest(scope)) else None


__all__ = ["Graphs", "encoded"]
