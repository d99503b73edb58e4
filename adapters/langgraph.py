"""Custody for any LangGraph store: in memory, SQLite or Postgres, synchronous or asynchronous.

A fact is one item: its key is `label.key`, its value the text beside the label's flat keys, its
namespace made from a template. Everything is read without offsets: one statement is one snapshot,
while pages of a store that orders by a time lose items whose times are equal or move.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from custody_sync.adapters._langgraph_backend import Backend, backend_of, capabilities_of
from custody_sync.adapters._langgraph_calls import FILTERED, Calls, address_of, batches_of
from custody_sync.adapters._langgraph_direct import Bare
from custody_sync.adapters._langgraph_namespaces import Namespace, Namespaces, read, written
from custody_sync.adapters._langgraph_places import Places
from custody_sync.adapters._shared import WorkerThreads, vendor
from custody_sync.errors import (
    InvalidInput,
    InvalidStore,
    NoProof,
    StoreError,
    StoreRefused,
    StoreUnavailable,
)
from custody_sync.model import SOURCE, Entry, Fact, Hit, Label, Limits, read_instant
from custody_sync.ports import Notebook, Whose, whose

if TYPE_CHECKING:
    from langgraph.store.base import BaseStore, Item, PutOp, SearchItem

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
        base = vendor("langgraph.store.base", feature="LangGraphStore", extra="langgraph")
        kind = type(store).__name__
        if any(not callable(getattr(store, method, None)) for method in _METHODS):
            raise InvalidStore(store=name, problem=f"{kind} is not a LangGraph BaseStore")
        self.name = name
        self.limits = limits or Limits()
        self._put_op: Callable[..., PutOp] = base.PutOp
        self._backend: Backend = backend_of(store, name)
        self._blocking = self._backend.blocking if blocking is None else blocking
        if self._backend.is_known and self._blocking is not self._backend.blocking:
            raise InvalidStore(
                store=name, problem=f"{kind} decides by itself how it is called; leave out blocking"
            )
        workers = WorkerThreads(name, limit=threads, executor=executor)
        self._calls = Calls(name, store, self._backend, self._blocking, workers)
        self._namespaces = Namespaces(namespace)
        self._root = self._namespaces.root
        self._noted = Places(self._calls, self._root, self._backend.is_known)
        self.capabilities = capabilities_of(self._backend)

    # --- the two verbs ---------------------------------------------------------------------

    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        """Store text and label under `label.key`, for as long as custody says and no default TTL."""
        value, where = _value(fact, label), self._namespaces.of_fact(fact)
        await self._noted.note([where])
        await self._calls.call("put", "put", where, label.key, value, index=["text"], ttl=None)
        return (label.key,)

    async def put_many(self, items: Sequence[tuple[Fact, Label]]) -> Sequence[Sequence[str]]:
        """Store many items in batches, each one call of the store's own `batch`.

        Raises:
            StoreUnavailable: a batch failed; those before it stand, so nothing is refused as a whole.
        """
        ops = [
            self._put_op(self._namespaces.of_fact(fact), label.key, _value(fact, label), ["text"], None)
            for fact, label in items
        ]
        await self._noted.note(op.namespace for op in ops)
        for n, some in enumerate(batches_of(ops, apart=self._backend.refuses_equal_texts)):
            failed: StoreError | None = None
            try:
                await self._calls.call("put_many", "batch", some)
            except StoreError as error:
                failed = error
            if failed is not None:
                is_first = n == 0
                raise failed if is_first else self._unavailable("put_many", failed)
        return [(label.key,) for _, label in items]

    async def relabel(self, entry: Entry, label: Label) -> None:
        """Replace the label's keys in the item, in one step that leaves text and vector alone.

        An item without a label gets one where its value has none of the label's keys.
        """
        patch = self._backend.patch
        if patch is None:
            raise StoreRefused(store=self.name, operation="relabel", cause="not supported")
        bare = Bare(entry.text) if entry.fact_id is None else None
        for where in await self._places(entry):
            await self._noted.note([where])
            call = partial(patch, where, entry.external_id, label.to_metadata(), bare)
            if await self._calls.run("relabel", call):
                return
        cause = "no such entry" if bare is None else "gone_changed_or_keys_taken"
        raise StoreRefused(store=self.name, operation="relabel", cause=cause)

    async def delete(self, entry: Entry) -> None:
        """Delete the item, and in SQLite the vector that the store itself would leave behind.

        Where the ledger is known it is looked at first: its key may be another's by now.
        """
        for where in await self._places(entry):
            if entry.ledger_id is not None and await self._held("delete", where, entry) is not Whose.OURS:
                continue
            await self._calls.call("delete", "delete", where, entry.external_id)
            if self._backend.drop_vectors is not None:
                await self._calls.run("delete", partial(self._backend.drop_vectors, where, entry.external_id))

    # --- what it can be asked --------------------------------------------------------------

    async def find(self, fact_id: str) -> list[Entry]:
        """Return every entry of the fact, in whatever namespace below the fixed labels it lies."""
        await self._calls.check_unfiltered("find")
        items = await self._noted.everywhere("find", {"fact_id": fact_id})
        return [entry for entry in map(self._entry, items) if entry.fact_id == fact_id]

    async def list_entries(self) -> AsyncIterator[Entry]:
        """Yield every item below the fixed labels, and below those noted before, without its text.

        A namespace is read to its end before any of it is yielded, so deletes cannot hide items.
        """
        async for item in self._items():
            yield self._entry(item, with_text=False)

    async def list_with_text(self) -> AsyncIterator[Entry]:
        """Yield every item as `list_entries` does, with its text."""
        async for item in self._items():
            yield self._entry(item)

    async def _items(self) -> AsyncIterator[Item]:
        await self._calls.check_unfiltered("list_entries")
        namespaces = await self._noted.namespaces()
        for start in range(0, len(namespaces), _SIDE_BY_SIDE):
            some = namespaces[start : start + _SIDE_BY_SIDE]
            for items in await asyncio.gather(*map(self._listed, some)):
                for item in items:
                    yield item

    async def verify_deleted(self, entry: Entry) -> bool:
        """Ask by key, by fact id and, while the text is known, with the text; True only if all miss it.

        Where Postgres may hide rows from the store's session, to miss it proves nothing.
        """
        is_gone = await self._is_missed(entry)
        if is_gone and await self._calls.is_filtered("verify_deleted"):
            raise self._no_proof(FILTERED)
        return is_gone

    async def _is_missed(self, entry: Entry) -> bool:
        where = read(entry.scope)
        if where is None and entry.fact_id is None:
            raise self._no_proof(_UNADDRESSED)
        if where is not None:
            found = await self._held("verify_deleted", where, entry)
            if found is Whose.ANOTHER_LEDGER or found is Whose.UNKNOWN:
                raise self._no_proof(found.value)
            if found is not None:
                return found is Whose.REPLACED
        if entry.fact_id is not None:
            only = {"fact_id": entry.fact_id}
            below = self._calls.everything("verify_deleted", where, only) if where else None
            held = await (below or self._noted.everywhere("verify_deleted", only))
            theirs = [self._whose(entry, item) for item in held if _is(entry, item, where)]
            if Whose.ANOTHER_LEDGER in theirs:
                raise self._no_proof(Whose.ANOTHER_LEDGER.value)
            if theirs:
                return False
        if not self._backend.may_index:
            return True
        for prefix in [where] if where else await self._noted.roots():
            if await self._is_served(prefix, where, entry):
                return False
        return True

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
            *(self._calls.search("search", where, query=query, filter=only, limit=k) for where, only in asked)
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

    def remember_in(self, notebook: Notebook) -> None:
        """Note in the ledger below which labels this store has put anything."""
        self._noted.notes = notebook

    # --- whose it is -----------------------------------------------------------------------

    async def _held(self, operation: str, where: Namespace, entry: Entry) -> Whose | None:
        """Read the item under an entry's key; None if there is none."""
        item = await self._calls.call(operation, "get", where, entry.external_id, refresh_ttl=False)
        return None if item is None else self._whose(entry, item)

    def _whose(self, entry: Entry, item: Item) -> Whose:
        # Who names no ledger goes by the key alone.
        return Whose.OURS if entry.ledger_id is None else whose(entry, self._entry(item))

    # --- reading whole ---------------------------------------------------------------------

    async def _places(self, entry: Entry) -> list[Namespace]:
        where = read(entry.scope)
        if where is not None:
            return [where]
        if entry.fact_id is None:
            raise StoreRefused(store=self.name, operation="delete", cause=_UNADDRESSED)
        found = await self._noted.everywhere("delete", {"fact_id": entry.fact_id})
        return [tuple(item.namespace) for item in found if item.key == entry.external_id]

    async def _listed(self, namespace: Namespace) -> list[Item]:
        items = await self._calls.everything("list_entries", namespace, None)
        return [item for item in items if tuple(item.namespace) == namespace]

    # --- whether its index still serves a text ---------------------------------------------

    async def _is_served(self, prefix: Namespace, where: Namespace | None, entry: Entry) -> bool:
        """Search with the text, wider until the store could have answered, else raise `NoProof`.

        Of LangGraph's own stores the search reads the very rows that the lookups read, so once the text
        is erased these decide; of others it is asked for the fact id.
        """
        probe = partial(self._calls.search, "verify_deleted", prefix, query=entry.text or entry.fact_id)
        if entry.fact_id is not None and (entry.text or not self._backend.is_known):
            near = await probe(filter={"fact_id": entry.fact_id}, limit=_PROBE)
            if any(_is(entry, item, where) for item in near):
                return True
        if not entry.text:
            return False
        if not self._backend.is_known:
            # It may cap its answers, so that only all of its pages together are an answer.
            hits = await self._calls.all(lambda limit, offset: probe(limit=limit, offset=offset), address_of)
            if any(_is(entry, item, where) for item in hits):
                return True
            await self._check_complete(prefix, hits)
            return False
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
        shown = set(map(address_of, hits))
        for item in await self._calls.everything("verify_deleted", prefix, None):
            is_indexed = item.value.get("source") == SOURCE and bool(item.value.get("text"))
            if is_indexed and address_of(item) not in shown:
                raise self._no_proof("its search left out entries that it holds")

    def _unavailable(self, operation: str, error: StoreError) -> StoreUnavailable:
        return StoreUnavailable(store=self.name, operation=operation, cause=str(error.fields["cause"]))

    def _no_proof(self, cause: str) -> NoProof:
        return NoProof(store=self.name, operation="verify_deleted", cause=cause)

    # --- what an item says -----------------------------------------------------------------

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
        if isinstance(created_at, datetime) and created_at.tzinfo is None and self._backend.naive_is_utc:
            return created_at.replace(tzinfo=UTC)
        return read_instant(created_at) if isinstance(created_at, datetime) else None


def _value(fact: Fact, label: Label) -> dict[str, Any]:
    """Return a new flat dictionary: `InMemoryStore` keeps the very object that it is given."""
    text = fact.text or ""
    if not text.strip():
        raise InvalidInput(field="text", problem="must not be empty or blank")
    return {**label.to_metadata(), "text": text}


def _is(entry: Entry, item: Item, where: Namespace | None) -> bool:
    return item.key == entry.external_id and (where is None or tuple(item.namespace) == where)


def _falls_off(hits: Sequence[SearchItem]) -> bool:
    """Tell whether the hits go on past every entry that could be as near as the text itself."""
    scores = [hit.score for hit in hits if hit.score is not None]
    return len(scores) > 1 and scores[0] - scores[-1] > _TIE


__all__ = ["LangGraphStore"]
