"""Custody for any LangGraph store: in memory, SQLite or Postgres, synchronous or asynchronous.

A fact is one item: its key is `label.key`, its value the text beside the label's flat keys, its
namespace made from a template. Everything is read without offsets: one statement is one snapshot,
while pages of a store that orders by a time lose items whose times are equal or move.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping, Sequence
from concurrent.futures import Executor
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from custody_sync.adapters._failures import translated
from custody_sync.adapters._langgraph_backend import Backend, backend_of
from custody_sync.adapters._langgraph_namespaces import Namespace, Namespaces, read, written
from custody_sync.adapters._shared import OneLoop, WorkerThreads, vendor
from custody_sync.errors import InvalidStore, NoProof, StoreRefused
from custody_sync.model import SOURCE, Capability, Entry, Fact, Hit, Label, Level, Limits, Support

if TYPE_CHECKING:
    from langgraph.store.base import BaseStore, Item, SearchItem

T = TypeVar("T")

_FIRST, _GROWTH = 1_000, 8
_PROBE, _PROBE_GROWTH, _PROBE_MOST = 100, 4, 1_000_000
_SIDE_BY_SIDE = 16
_METHODS = ("get", "put", "delete", "search", "list_namespaces")
# Two computations of one similarity may differ in the last bits; what differs less is a tie.
_TIE = 1e-6
_UNADDRESSED = "neither its namespace nor its fact id is known"


class LangGraphStore:
    """Keep facts in a LangGraph `BaseStore`.

    The asynchronous stores and `InMemoryStore` are awaited in the caller's loop, and a store that
    lives in another loop is refused. All others, `SqliteStore`, `PostgresStore` and stores of
    third parties, are called in worker threads.

    Args:
        store: The store, set up and opened by the caller, who also closes it.
        namespace: Labels, each fixed or with `{space}` in it, or a function of the fact. Labels
            are escaped where LangGraph forbids a character, so every space has a namespace.
        name: The store's name in a coordinator.
        blocking: Whether to call a third party's store in threads; False awaits its `a` methods.
        threads: How many blocking calls may run at once.
        executor: Runs the blocking calls instead of own threads.
        limits: The largest text the index's embedding model takes, if that is known.
    """

    def __init__(
        self,
        store: BaseStore,
        namespace: Sequence[str] | Callable[[Fact], Sequence[str]] = ("memories", "{space}"),
        name: str = "langgraph",
        *,
        blocking: bool | None = None,
        threads: int = 16,
        executor: Executor | None = None,
        limits: Limits | None = None,
    ) -> None:
        vendor("langgraph.store.base", feature="LangGraphStore", extra="langgraph")
        kind = type(store).__name__
        if any(not callable(getattr(store, method, None)) for method in _METHODS):
            raise InvalidStore(store=name, problem=f"{kind} is not a LangGraph BaseStore")
        self.name = name
        self.limits = limits or Limits()
        self._store: Any = store
        self._backend: Backend = backend_of(store, name)
        self._blocking = self._backend.blocking if blocking is None else blocking
        if self._backend.is_known and self._blocking is not self._backend.blocking:
            raise InvalidStore(
                store=name, problem=f"{kind} decides by itself how it is called; leave out blocking"
            )
        self._threads = WorkerThreads(name, limit=threads, executor=executor)
        self._loop = OneLoop(name, self._backend.home) if self._backend.home is not None else None
        self._namespaces = Namespaces(namespace)
        self._root = self._namespaces.root
        self.capabilities = _capabilities(self._backend)

    # --- the two verbs ---------------------------------------------------------------------

    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        """Store text and label under `label.key`, for as long as custody says and no default TTL."""
        value = {**label.to_metadata(), "text": fact.text or ""}
        where = self._namespaces.of_fact(fact)
        await self._call("put", "put", where, label.key, value, index=["text"], ttl=None)
        return (label.key,)

    async def delete(self, entry: Entry) -> None:
        """Delete the item, and in SQLite the vector that the store itself would leave behind."""
        for where in await self._places(entry):
            await self._call("delete", "delete", where, entry.external_id)
            if self._backend.drop_vectors is not None:
                await self._run("delete", partial(self._backend.drop_vectors, where, entry.external_id))

    # --- what it can be asked --------------------------------------------------------------

    async def find(self, fact_id: str) -> list[Entry]:
        """Return every entry of the fact, in whatever namespace below the fixed labels it lies."""
        items = await self._everything("find", self._root, {"fact_id": fact_id})
        return [entry for entry in map(self._entry, items) if entry.fact_id == fact_id]

    async def list_entries(self) -> AsyncIterator[Entry]:
        """Yield every item below the fixed labels, without its text.

        A namespace is read to its end before any of it is yielded, so deletes cannot hide items.
        """

        def ask(limit: int, offset: int) -> Awaitable[list[Namespace]]:
            options = {"prefix": self._root or None, "limit": limit, "offset": offset}
            return self._call("list_entries", "list_namespaces", **options)

        found = dict.fromkeys(map(tuple, await self._all(ask, tuple)))
        namespaces = [namespace for namespace in found if namespace[: len(self._root)] == self._root]
        for start in range(0, len(namespaces), _SIDE_BY_SIDE):
            some = namespaces[start : start + _SIDE_BY_SIDE]
            for entries in await asyncio.gather(*map(self._listed, some)):
                for entry in entries:
                    yield entry

    async def verify_deleted(self, entry: Entry) -> bool:
        """Ask by key, by fact id and, while the text is known, with the text; True only if all miss it."""
        where = read(entry.scope)
        if where is None and entry.fact_id is None:
            raise self._no_proof(_UNADDRESSED)
        if where is not None:
            item = await self._call("verify_deleted", "get", where, entry.external_id, refresh_ttl=False)
            if item is not None:
                return False
        prefix = where or self._root
        if entry.fact_id is not None:
            held = await self._everything("verify_deleted", prefix, {"fact_id": entry.fact_id})
            if any(_is(entry, item, where) for item in held):
                return False
        if not entry.text or not self._backend.may_index:
            return True
        return not await self._is_served(prefix, where, entry, entry.text)

    async def search(self, query: str, k: int, spaces: Sequence[str] | None) -> list[Hit]:
        """Return what the store's own search serves, asked once per space and merged by score."""
        if k < 1:
            return []
        asked: list[tuple[Namespace, dict[str, str] | None]] = [(self._root, None)]
        if spaces is not None and self._namespaces.is_per_space:
            asked = [(self._namespaces.of_space(space), None) for space in dict.fromkeys(spaces)]
        elif spaces is not None:
            asked = [(self._root, {"space": space}) for space in dict.fromkeys(spaces)]
        answers = await asyncio.gather(
            *(self._search("search", where, query=query, filter=only, limit=k) for where, only in asked)
        )
        hits = [Hit(entry=self._entry(item), score=item.score) for items in answers for item in items]
        hits.sort(key=lambda hit: (hit.score is None, -(hit.score or 0.0)))
        return hits[:k]

    def scope_of(self, fact: Fact) -> str:
        """Return the fact's namespace as a JSON list."""
        return written(self._namespaces.of_fact(fact))

    async def after_forget(self, entries: Sequence[Entry]) -> Sequence[str]:
        """Say what a deletion in this kind of store leaves on disk, and until when."""
        return self._backend.leaves if entries else ()

    # --- reading whole ---------------------------------------------------------------------

    async def _places(self, entry: Entry) -> list[Namespace]:
        where = read(entry.scope)
        if where is not None:
            return [where]
        if entry.fact_id is None:
            raise StoreRefused(store=self.name, operation="delete", cause=_UNADDRESSED)
        found = await self._everything("delete", self._root, {"fact_id": entry.fact_id})
        return [tuple(item.namespace) for item in found if item.key == entry.external_id]

    async def _listed(self, namespace: Namespace) -> list[Entry]:
        items = await self._everything("list_entries", namespace, None)
        return [self._entry(item, with_text=False) for item in items if tuple(item.namespace) == namespace]

    async def _everything(
        self, operation: str, prefix: Namespace, only: dict[str, str] | None
    ) -> list[SearchItem]:
        def ask(limit: int, offset: int) -> Awaitable[list[SearchItem]]:
            return self._search(operation, prefix, filter=only, limit=limit, offset=offset)

        return await self._all(ask, _address)

    async def _all(
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
            while page := await ask(_FIRST, offset):
                held.update((address(item), item) for item in page)
                offset += len(page)
        return list(held.values())

    # --- whether its index still serves a text ---------------------------------------------

    async def _is_served(self, prefix: Namespace, where: Namespace | None, entry: Entry, text: str) -> bool:
        """Search with the text, wider until the store could have answered, else raise `NoProof`."""
        probe = partial(self._search, "verify_deleted", prefix, query=text)
        if entry.fact_id is not None:
            near = await probe(filter={"fact_id": entry.fact_id}, limit=_PROBE)
            if any(_is(entry, item, where) for item in near):
                return True
        limit = _PROBE
        while limit <= _PROBE_MOST:
            hits = await probe(limit=limit)
            if any(_is(entry, item, where) for item in hits):
                return True
            if self._backend.nearest_first and _falls_off(hits):
                return False
            if len(hits) < limit:
                await self._check_complete(prefix, hits)
                return False
            limit *= _PROBE_GROWTH
        raise self._no_proof("too many entries are as near as the text asked for")

    async def _check_complete(self, prefix: Namespace, hits: Sequence[SearchItem]) -> None:
        """Raise `NoProof` when a search that seems to have shown all left out what is known to be indexed.

        An approximate index does that when equal texts, or deleted ones, crowd its candidates.
        """
        shown = set(map(_address, hits))
        for item in await self._everything("verify_deleted", prefix, None):
            is_indexed = item.value.get("source") == SOURCE and bool(item.value.get("text"))
            if is_indexed and _address(item) not in shown:
                raise self._no_proof("its search left out entries that it holds")

    def _no_proof(self, cause: str) -> NoProof:
        return NoProof(store=self.name, operation="verify_deleted", cause=cause)

    # --- calling the vendor ----------------------------------------------------------------

    async def _search(self, operation: str, prefix: Namespace, **options: Any) -> list[SearchItem]:
        # Reading must not prolong the life of other people's items.
        found: list[SearchItem] = await self._call(operation, "search", prefix, refresh_ttl=False, **options)
        return found

    async def _call(self, operation: str, method: str, *args: Any, **options: Any) -> Any:
        name = method if self._blocking else f"a{method}"
        return await self._run(operation, partial(getattr(self._store, name), *args, **options))

    async def _run(self, operation: str, call: Callable[[], Any]) -> Any:
        if self._blocking:
            return await translated(self.name, operation, self._threads.run(call))
        if self._loop is not None:
            self._loop.check()
        return await translated(self.name, operation, call())

    def _entry(self, item: Item, *, with_text: bool = True) -> Entry:
        text = item.value.get("text") if with_text else None
        return Entry.from_metadata(
            item.value,
            store=self.name,
            external_id=item.key,
            scope=written(item.namespace),
            text=text if isinstance(text, str) else None,
            created_at=self._dated(item.created_at),
        )

    def _dated(self, created_at: object) -> datetime | None:
        if not isinstance(created_at, datetime):
            return None
        if created_at.tzinfo is not None:
            return created_at.astimezone(UTC)
        return created_at.replace(tzinfo=UTC) if self._backend.naive_is_utc else None


def _address(item: Item) -> tuple[Namespace, str]:
    return tuple(item.namespace), item.key


def _is(entry: Entry, item: Item, where: Namespace | None) -> bool:
    return item.key == entry.external_id and (where is None or tuple(item.namespace) == where)


def _falls_off(hits: Sequence[SearchItem]) -> bool:
    """Tell whether the hits go on past every entry that could be as near as the text itself."""
    scores = [hit.score for hit in hits if hit.score is not None]
    return len(scores) > 1 and scores[0] - scores[-1] > _TIE


def _capabilities(backend: Backend) -> Mapping[Capability, Support]:
    found: dict[Capability, Support] = {}
    if not backend.may_index:
        reason = "the store has no index, so its search returns entries in its own order, not the nearest"
        found[Capability.SEARCH] = Support(Level.PARTIAL, reason)
    if backend.approximate:
        crowded = "nearer entries, deleted or of other spaces, can crowd one out of its approximate index"
        found[Capability.SEARCH] = Support(Level.PARTIAL, crowded)
        reason = "where equal texts crowd its approximate index, only the questions by key and fact id decide"
        found[Capability.VERIFY_DELETED] = Support(Level.PARTIAL, reason)
    return found


__all__ = ["LangGraphStore"]
