"""Open source Mem0: `Memory` and `AsyncMemory` on a vector store of one's own (mem0ai 2.2.1).

Filters are flat equalities, the one form that every vector store of it understands, and what comes back
is checked again: some stores drop filters they do not know (https://github.com/mem0ai/mem0/issues/6423).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from custody_sync.adapters._failures import translated
from custody_sync.adapters._mem0_clients import is_blocking
from custody_sync.adapters._mem0_engines import Engine, engine_of
from custody_sync.adapters._mem0_place import collection_of
from custody_sync.adapters._mem0_rows import Row, added, metadata_of, read_row, read_time, rows_of
from custody_sync.adapters._shared import WorkerThreads
from custody_sync.errors import NoProof, StoreRefused, StoreUnavailable
from custody_sync.model import Capability, Entry, Label, Level, Support

_FIRST, _GROWTH = 1_000, 8
_PROBE, _PROBE_GROWTH, _PROBE_MOST = 100, 8, 100_000
# Two computations of one similarity may differ in the last bits; what differs less is a tie.
_TIE = 1e-6
_NO_RELABEL = (
    "an update reads the row and writes it whole, so it could bring back one that is deleted at that moment; "
    "delete it and put it again"
)
_NO_BATCH = "one call takes one metadata for all its messages"
_CUTS_FIRST = (
    "{kind} picks its candidates before it filters them, so entries of other spaces can crowd one out"
)
_NO_WILDCARD = "{kind} shows only what custody wrote; entries of others are not enumerated"


class Local:
    """One `Memory` of this process.

    Args:
        memory: A `Memory` or `AsyncMemory`.
        name: The store's name, for errors.
        agent_id: Written on every row, so that one question reaches the rows of all users.
        threads: Where blocking calls run.
        page_size: Rows on a page of a listing, where the vector store has pages.
    """

    def __init__(
        self, memory: Any, name: str, *, agent_id: str, threads: WorkerThreads, page_size: int
    ) -> None:
        self._memory = memory
        self._name = name
        self._agent_id = agent_id
        self._threads = threads
        self._page_size = page_size
        self._blocking = is_blocking(memory)
        self._engine = engine_of(memory)
        self._is_ready = not self._engine.makes_its_table
        self._making = threading.Lock()
        self._ours = {"agent_id": agent_id}
        self._widest = {"user_id": "*"} if self._engine.enumerates else self._ours
        self.place = collection_of(memory)
        self.leaves = self._engine.leaves
        self.capabilities = _capabilities(self._engine)

    # --- writing ---------------------------------------------------------------------------

    async def add(self, text: str, user_id: str, label: Label) -> str:
        """Store one text verbatim, as the words of a user: other roles were dropped or need a name."""
        said = [{"role": "user", "content": text}]
        options = {"user_id": user_id, "agent_id": self._agent_id, "infer": False}
        try:
            answer = await self._ask("put", "add", said, **options, metadata=metadata_of(label))
        except StoreRefused as refusal:
            # The row is written before its history; only what carries a status comes from before both.
            if str(refusal.fields.get("cause"))[-3:].isdigit():
                raise
            problem = self._unavailable("put", str(refusal.fields.get("cause")))
        else:
            rows = rows_of(answer) or []
            if len(rows) == 1:
                return rows[0].external_id
            problem = self._unavailable("put", "NoResult")
        raise problem

    async def infer(self, messages: Sequence[Any], **options: Any) -> list[str]:
        """Let the model make memories of messages and return the ids of those that it added."""
        return added(await self._ask("infer", "add", list(messages), infer=True, **options))

    async def delete(self, external_id: str) -> None:
        """Delete one row; an unknown one is a `ValueError`, and so is much else."""
        try:
            await self._ask("delete", "delete", external_id)
        except StoreRefused:
            if await self.get("delete", external_id) is not None:
                raise

    async def relabel(self, row: Row, metadata: Mapping[str, str]) -> None:
        """Refuse: see the capability's reason."""
        raise StoreRefused(store=self._name, operation="relabel", cause="NotSupported")

    # --- reading ---------------------------------------------------------------------------

    async def get(self, operation: str, external_id: str) -> Row | None:
        """Return the row of an id."""
        answer = await self._ask(operation, "get", external_id)
        if answer is None:
            return None
        row = read_row(answer)
        if row is None:
            raise self._unavailable(operation, "UnreadableAnswer")
        return row

    async def is_listed(self, external_id: str) -> bool:
        """Return False: the lookup by id reads the same rows."""
        return False

    async def of_fact(self, operation: str, fact_id: str) -> list[Row]:
        """Filter by agent and fact id, and check the fact id again."""
        rows = await self._all(operation, {**self._ours, "fact_id": fact_id})
        return [row for row in rows if row.metadata.get("fact_id") == fact_id]

    async def everything(self) -> AsyncIterator[Row]:
        """Yield every row: along the key where the store has one, else from one answer."""
        if self._engine.pages:
            async for row in self._pages():
                yield row
            return
        for row in await self._all("list_entries", self._widest):
            yield row

    async def nearest(self, query: str, k: int, user_id: str | None, space: str | None) -> list[Row]:
        """Search as recall does; without a user, among what custody wrote."""
        only = {"user_id": user_id} if user_id is not None else dict(self._ours)
        if space is not None:
            only["space"] = space
        return await self._search("search", query, only, k)

    async def serves(self, entry: Entry, text: str) -> bool:
        """Search with the text: for the fact alone, and wider until the store could have answered."""
        scope, narrowed = {"user_id": entry.scope} if entry.scope else self._ours, False
        if not self._engine.filters_first:
            # Its candidates are the same whatever the filter is: the widest shows most of them.
            scope = self._widest
        elif entry.fact_id is not None:
            narrowed = True
            near = await self._probe(text, {**scope, "fact_id": entry.fact_id}, _PROBE)
            if any(row.external_id == entry.external_id for row in near):
                return True
        top_k = _PROBE
        while top_k <= _PROBE_MOST:
            wide = await self._probe(text, scope, top_k)
            if any(row.external_id == entry.external_id for row in wide):
                return True
            decided = len(wide) < top_k and (self._engine.filters_first or _falls_off(wide))
            if decided or narrowed or await self._is_all(len(wide), top_k):
                return False
            top_k *= _PROBE_GROWTH
        raise NoProof(store=self._name, operation="verify_deleted", cause="CrowdedSearch")

    async def _is_all(self, shown: int, top_k: int) -> bool:
        """Tell whether a search showed every row there is, or looked at every one of them."""
        if self._engine.filters_first:
            return False
        found = await self._in_process("verify_deleted", self._memory.vector_store.col_info)
        held = found.get("count") if isinstance(found, Mapping) else None
        looked = max(shown, top_k if self._engine.looks_at_all else 0)
        return isinstance(held, int) and looked >= held

    # --- calling the vendor ----------------------------------------------------------------

    async def _all(self, operation: str, only: Mapping[str, str]) -> list[Row]:
        """Read everything in one answer, asking for more until fewer come: there are no pages."""
        top_k = _FIRST
        while True:
            answer = await self._ask(operation, "get_all", filters=dict(only), top_k=top_k, show_expired=True)
            rows = rows_of(answer)
            if rows is None:
                raise self._unavailable(operation, "UnreadableAnswer")
            if len(rows) < top_k:
                return rows
            top_k *= _GROWTH

    async def _pages(self) -> AsyncIterator[Row]:
        """Page through Qdrant itself, in the order of its ids, which no deletion moves."""
        store, offset = self._memory.vector_store, None
        while True:
            points, offset = await self._in_process(
                "list_entries",
                partial(
                    store.client.scroll,
                    collection_name=store.collection_name,
                    limit=self._page_size,
                    offset=offset,
                    with_payload=True,
                    with_vectors=False,
                ),
            )
            for point in points:
                yield _row_of_point(point)
            if offset is None:
                return

    async def _search(
        self, operation: str, query: str, only: Mapping[str, str], top_k: int, **options: Any
    ) -> list[Row]:
        answer = await self._ask(
            operation, "search", query, filters=dict(only), top_k=top_k, threshold=0.0, **options
        )
        rows = rows_of(answer)
        if rows is None:
            raise self._unavailable(operation, "UnreadableAnswer")
        return rows

    async def _probe(self, text: str, only: Mapping[str, str], top_k: int) -> list[Row]:
        return await self._search("verify_deleted", text, only, top_k, show_expired=True, explain=True)

    async def _ask(self, operation: str, method: str, *args: Any, **options: Any) -> Any:
        if not self._is_ready:
            await translated(self._name, operation, self._threads.run(self._make_table))
        call = partial(getattr(self._memory, method), *args, **options)
        if self._blocking:
            return await self._in_process(operation, call)
        if self._engine.lock is not None:
            # In a loop of its own, inside a thread: the lock is then held until the vendor is done, even
            # if whoever asked has gone.
            return await self._in_process(operation, lambda: asyncio.run(call()))
        return await translated(self._name, operation, call())

    def _make_table(self) -> None:
        """Let one reading go first: mem0ai 2.2.1 makes the table at the first call, and holds no lock."""
        with self._making:
            if not self._is_ready:
                self._memory.vector_store.list(top_k=1)
                self._is_ready = True

    async def _in_process(self, operation: str, call: Callable[[], Any]) -> Any:
        lock = self._engine.lock

        def locked() -> Any:
            if lock is None:
                return call()
            with lock:
                return call()

        return await translated(self._name, operation, self._threads.run(locked))

    def _unavailable(self, operation: str, cause: str) -> StoreUnavailable:
        return StoreUnavailable(store=self._name, operation=operation, cause=cause)


def _falls_off(rows: list[Row]) -> bool:
    """Tell whether the candidates went on past every row that is as near as the text itself.

    Only the similarity of the vectors decides that: keywords and names raise the score of some rows.
    """
    near = [row.similarity for row in rows if row.similarity is not None]
    return len(near) > 1 and max(near) - min(near) > _TIE


def _row_of_point(point: Any) -> Row:
    """Read a row as Mem0 lays it out in a vector store: one flat payload."""
    payload: Mapping[str, Any] = point.payload or {}
    text, user_id = payload.get("data"), payload.get("user_id")
    return Row(
        external_id=str(point.id),
        text=text if isinstance(text, str) else None,
        user_id=user_id if isinstance(user_id, str) else None,
        metadata=payload,
        created_at=read_time(payload.get("created_at")),
    )


def _capabilities(engine: Engine) -> Mapping[Capability, Support]:
    found = {
        Capability.RELABEL: Support(Level.NONE, _NO_RELABEL),
        Capability.PUT_MANY: Support(Level.NONE, _NO_BATCH),
    }
    if not engine.filters_first:
        reason = _CUTS_FIRST.format(kind=engine.kind)
        found[Capability.SEARCH] = found[Capability.VERIFY_DELETED] = Support(Level.PARTIAL, reason)
    if not engine.enumerates:
        found[Capability.LIST_ENTRIES] = Support(Level.PARTIAL, _NO_WILDCARD.format(kind=engine.kind))
    return found


__all__ = ["Local"]
