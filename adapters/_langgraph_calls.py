"""Calling a LangGraph store: in threads or in its loop, and reading it whole without offsets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from custody_sync.adapters._failures import translated
from custody_sync.adapters._langgraph_backend import Backend
from custody_sync.adapters._langgraph_namespaces import Namespace
from custody_sync.adapters._shared import OneLoop, WorkerThreads
from custody_sync.errors import StoreRefused

if TYPE_CHECKING:
    from langgraph.store.base import Item, PutOp, SearchItem

T = TypeVar("T")

FILTERED = "row_level_security"
_FIRST, _GROWTH = 1_000, 8
_BATCH = 1_000


class Calls:
    """Call one store.

    Args:
        name: The store's name in a coordinator, for errors.
        store: LangGraph's store.
        backend: What kind it is.
        blocking: Whether its verbs are called in threads, or their `a` twins awaited.
        threads: Where blocking calls run.
    """

    def __init__(
        self, name: str, store: Any, backend: Backend, blocking: bool, threads: WorkerThreads
    ) -> None:
        self._name = name
        self._store = store
        self._backend = backend
        self._blocking = blocking
        self._threads = threads
        self._loop = OneLoop(name, backend.home) if backend.home is not None else None

    async def search(self, operation: str, prefix: Namespace, **options: Any) -> list[SearchItem]:
        """Search without prolonging the life of other people's items."""
        found: list[SearchItem] = await self.call(operation, "search", prefix, refresh_ttl=False, **options)
        return found

    async def call(self, operation: str, method: str, *args: Any, **options: Any) -> Any:
        """Call one of the store's verbs."""
        name = method if self._blocking else f"a{method}"
        return await self.run(operation, partial(getattr(self._store, name), *args, **options))

    async def run(self, operation: str, call: Callable[[], Any]) -> Any:
        """Run a call in a thread, or await what it returns, and turn its errors into ours."""
        if self._blocking:
            return await translated(self._name, operation, self._threads.run(call))
        if self._loop is not None:
            self._loop.check()
        return await translated(self._name, operation, call())

    async def is_filtered(self, operation: str) -> bool:
        """Tell whether row-level security may hide items, so that not to be shown one says nothing."""
        ask = self._backend.is_filtered
        return ask is not None and bool(await self.run(operation, ask))

    async def check_unfiltered(self, operation: str) -> None:
        """Refuse an answer that may leave items out.

        Raises:
            StoreRefused: row-level security applies to the store's session.
        """
        if await self.is_filtered(operation):
            raise StoreRefused(store=self._name, operation=operation, cause=FILTERED)

    async def everything(
        self, operation: str, prefix: Namespace, only: dict[str, str] | None
    ) -> list[SearchItem]:
        """Return every item below a prefix, or those whose value has these keys."""

        def ask(limit: int, offset: int) -> Awaitable[list[SearchItem]]:
            return self.search(operation, prefix, filter=only, limit=limit, offset=offset)

        return await self.all(ask, address_of)

    async def all(
        self, ask: Callable[[int, int], Awaitable[list[T]]], address: Callable[[T], Hashable]
    ) -> list[T]:
        """Read everything in one answer, asking for more until fewer come.

        A store we do not know may cap its answers. It is paged through by offset, again and again
        until a pass finds nothing new.
        """
        limit = _FIRST
        while self._backend.is_known:
            found = await ask(limit, 0)
            if len(found) < limit:
                return found
            limit *= _GROWTH
        held: dict[Hashable, T] = {}
        before = -1
        while len(held) != before:
            before, offset = len(held), 0
            shown: set[Hashable] = set()
            # A page that shows nothing new in this pass is an end, also where a store repeats itself.
            while page := [item for item in await ask(_FIRST, offset) if address(item) not in shown]:
                shown.update(map(address, page))
                held.update((address(item), item) for item in page)
                offset = len(shown)
        return list(held.values())


def address_of(item: Item) -> tuple[Namespace, str]:
    """Return where an item lies, which no other item does."""
    return tuple(item.namespace), item.key


def batches_of(ops: Sequence[PutOp], *, apart: bool) -> list[list[PutOp]]:
    """Cut puts into batches of the store's size; with `apart`, equal texts go into different ones."""
    batches: list[list[PutOp]] = []
    seen: dict[str, int] = {}
    for op in ops:
        text = (op.value or {})["text"]
        n = seen.get(text, -1) + 1 if apart else max(len(batches) - 1, 0)
        while n < len(batches) and len(batches[n]) >= _BATCH:
            n += 1
        if n == len(batches):
            batches.append([])
        batches[n].append(op)
        seen[text] = n
    return batches
