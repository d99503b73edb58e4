"""Calls to a LangChain vector store, in worker threads or awaited, with its errors in our words."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from custody_sync.adapters._failures import translated
from custody_sync.adapters._langchain_reach import Reach
from custody_sync.adapters._shared import OneLoop, WorkerThreads, finite

if TYPE_CHECKING:
    from langchain_core.documents import Document

T = TypeVar("T")

PAGE = 500
MOST = 10_000
"""A store is asked for no more hits than so many at once; hosted ones refuse more."""
GROWTH = 4


class Found(NamedTuple):
    """A document that a search served, and its score as the store has it."""

    document: Document
    score: float | None


class Calls:
    """Asks one vector store.

    Args:
        name: What errors call it.
        store: The vector store.
        reach: How it is reached beyond the interface.
        workers: Threads for blocking calls.
        blocking: Whether its methods are called in threads; else their `a` twins are awaited.
    """

    def __init__(
        self, name: str, store: Any, reach: Reach, workers: WorkerThreads, *, blocking: bool
    ) -> None:
        self._name = name
        self._store = store
        self._reach = reach
        self._workers = workers
        self._blocking = blocking
        self._loop = OneLoop(name)
        self._turn: AbstractContextManager[Any] = threading.Lock() if reach.alone else nullcontext()
        self.gets = self._has("get_by_ids")
        self.scored = self._has("similarity_search_with_score")

    async def call(self, operation: str, method: str, *args: Any, **options: Any) -> Any:
        """Call a method of LangChain's interface."""
        if self._blocking:
            return await self.run(operation, partial(getattr(self._store, method), *args, **options))
        self._loop.check()
        return await translated(self._name, operation, getattr(self._store, f"a{method}")(*args, **options))

    async def run(self, operation: str, call: Callable[[], T]) -> T:
        """Run what blocks in a thread."""

        def in_turn() -> T:
            with self._turn:
                return call()

        return await translated(self._name, operation, self._workers.run(in_turn))

    async def get(self, operation: str, ids: Sequence[str]) -> list[Document]:
        """Return the documents under some ids."""
        return list(await self.call(operation, "get_by_ids", list(ids)))

    async def ask(
        self, operation: str, query: str, k: int, only: Mapping[str, str] | None = None
    ) -> list[Found]:
        """Search once; `only` goes into the store's own filter, so it must have one."""
        where = self._reach.where
        options = {} if only is None or where is None else {"filter": where(only)}
        if not self.scored:
            documents = await self.call(operation, "similarity_search", query, k=k, **options)
            return [Found(document, None) for document in documents]
        pairs = await self.call(operation, "similarity_search_with_score", query, k=k, **options)
        return [Found(document, _number(score)) for document, score in pairs]

    async def pages(self, operation: str, ids: Callable[[], Iterable[str]]) -> AsyncIterator[list[str]]:
        """Yield ids a page at a time, read in a thread, and none twice where pages overlap."""
        source = await self.run(operation, lambda: iter(ids()))
        before: set[str] = set()
        while page := await self.run(operation, lambda: list(islice(source, PAGE))):
            yield [key for key in dict.fromkeys(page) if key not in before]
            before = set(page)

    def _has(self, method: str) -> bool:
        """Tell whether the store has a method of its own, and not only the interface's that raises."""
        named = method if self._blocking else f"a{method}"
        return any(
            named in vars(kind) or method in vars(kind)
            for kind in type(self._store).__mro__
            if kind.__name__ != "VectorStore"
        )


def _number(score: Any) -> float | None:
    try:
        return finite(score)
    except (TypeError, ValueError):
        return None


__all__ = ["GROWTH", "MOST", "PAGE", "Calls", "Found"]
