"""Calling a Zep client: synchronous or not, page by page, each request sent once, each wait bounded."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator
from concurrent.futures import Executor
from functools import partial
from math import inf
from operator import attrgetter
from typing import Any

from custody_sync.adapters._failures import paged, translated
from custody_sync.adapters._shared import OneLoop, WorkerThreads
from custody_sync.errors import InvalidStore, StoreError, StoreUnavailable
from custody_sync.ports import Sleep

# The client repeats 408, 409, 429 and 5xx by itself and sleeps between (zep-cloud 4.0.1,
# core/http_client.py); how long to wait is the coordinator's decision, which knows the deadline.
_ONCE = {"max_retries": 0}
_METHODS = (
    "graph.create",
    "graph.edge.delete",
    "graph.edge.get",
    "graph.edge.list",
    "graph.episode.add",
    "graph.episode.delete",
    "graph.episode.get",
    "graph.episode.list",
    "graph.episode.update",
    "graph.get",
    "graph.get_content_policy",
    "graph.list",
    "graph.node.get",
    "graph.node.list",
    "graph.observation.get",
    "graph.observation.list",
    "graph.search_edges",
    "graph.search_episodes",
    "graph.search_nodes",
    "graph.search_observations",
    "project.get",
    "task.get",
)
_OLD = (
    "is a client of Zep's v3 API; install zep-cloud 4 (pip install 'custody-sync[zep]') and pass its Zep or "
    "AsyncZep: both APIs serve the same project"
)
_FIRST_WAIT, _LONGEST_WAIT, _GROWTH = 0.1, 2.0, 1.6


class Calls:
    """Send requests through a `Zep` in worker threads, or through an `AsyncZep` in its own loop.

    Args:
        client: `Zep` or `AsyncZep` of zep-cloud 4.
        store: The store's name, for errors.
        threads: How many calls of a `Zep` may run at once.
        executor: Runs the calls of a `Zep` instead of own threads.
    """

    def __init__(self, client: Any, store: str, *, threads: int, executor: Executor | None) -> None:
        _check(client, store)
        self.store = store
        self._client = client
        self._loop = OneLoop(store)
        self._threads: WorkerThreads | None = None
        if not inspect.iscoroutinefunction(client.graph.episode.add):
            self._threads = WorkerThreads(store, limit=threads, executor=executor)

    async def ask(self, operation: str, method: str, *args: Any, **options: Any) -> Any:
        """Call a method of the client, such as `graph.episode.get`, and return its answer."""
        call = partial(attrgetter(method)(self._client), *args, **options, request_options=_ONCE)
        if self._threads is not None:
            return await translated(self.store, operation, self._threads.run(call))
        self._loop.check()
        return await translated(self.store, operation, call())

    async def pages(
        self, operation: str, method: str, *args: Any, most: float = inf, **options: Any
    ) -> AsyncGenerator[list[Any]]:
        """Yield a list's pages, at most so many: what the client returns holds only the first one."""
        cursor: str | None = None
        read = 0
        while read < most:
            read_page = partial(self.ask, operation, method, *args, cursor=cursor, **options)
            page = await paged(operation, read_page)
            yield self._items(operation, page)
            read += 1
            before, cursor = cursor, page.response.next_cursor
            if not cursor:
                return
            if cursor == before:
                raise self.unavailable(operation, "cursor_repeats")

    async def rows(self, operation: str, method: str, *args: Any, **options: Any) -> list[Any]:
        """Return the rows of all pages, or of at most so many."""
        pages = self.pages(operation, method, *args, **options)
        return [row async for page in pages for row in page]

    def _items(self, operation: str, page: Any) -> list[Any]:
        """Return a page's rows: an answer that is no page, or names no row, is no empty page."""
        items: list[Any] | None = page.items
        if items is None:
            raise self.unavailable(operation, "page_without_items")
        if not all(row.uuid_ for row in items):
            raise self.unavailable(operation, "row_without_uuid")
        return items

    def unavailable(self, operation: str, cause: str) -> StoreUnavailable:
        """Return the error for an answer that leaves open what happened."""
        return StoreUnavailable(store=self.store, operation=operation, cause=cause)


class Waiting:
    """Spend a number of seconds in waits that grow, and say when they are spent.

    Args:
        seconds: What all waits may take together.
        sleep: What to wait with.
    """

    def __init__(self, seconds: float, sleep: Sleep) -> None:
        self._left = seconds
        self._next = _FIRST_WAIT
        self._sleep = sleep

    async def more(self) -> bool:
        """Wait for a moment; False, at once, when nothing is left."""
        if self._left <= 0:
            return False
        wait = min(self._next, self._left)
        self._left -= wait
        self._next = min(self._next * _GROWTH, _LONGEST_WAIT)
        await self._sleep(wait)
        return True


def status_in(problem: StoreError) -> int | None:
    """Return the HTTP status that an error of ours names."""
    last = str(problem.fields.get("cause", "")).rpartition(" ")[2]
    return int(last) if last.isascii() and last.isdigit() else None


def is_missing(problem: StoreError) -> bool:
    """Tell whether Zep knows no such graph, episode, edge or task."""
    return status_in(problem) == 404


def _check(client: Any, store: str) -> None:
    kind = type(client).__name__
    if callable(getattr(getattr(client, "graph", None), "add", None)):
        raise InvalidStore(store=store, problem=f"{kind} {_OLD}")
    for method in _METHODS:
        try:
            found = attrgetter(method)(client)
        except AttributeError:
            found = None
        if not callable(found):
            problem = f"{kind} is not a Zep or AsyncZep client of zep-cloud 4: it has no {method}()"
            raise InvalidStore(store=store, problem=problem)


__all__ = ["Calls", "Waiting", "is_missing", "status_in"]
