"""Mem0's `Memory` and `AsyncMemory` with a ledger under them.

Construct one of these instead; what is called on it stays as it was. Searches go through the wrapped
Mem0 and return only what the ledger believes, in the ledger's words; listings, `get` and `history` are the
ledger's. An update supersedes, a deletion erases and is verified. docs/faces/mem0.md has the differences.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Literal, Self, TypeVar

from custody_sync.adapters._shared import vendor
from custody_sync.coordinator import AsyncCoordinator
from custody_sync.errors import InsideEventLoop
from custody_sync.faces import _mem0_asked as asked
from custody_sync.faces import _mem0_reading as reading
from custody_sync.faces import _mem0_writing as writing
from custody_sync.faces._bridge import Work
from custody_sync.faces._closing import AsyncClosing, Closing
from custody_sync.faces._mem0_chain import history_of
from custody_sync.faces._mem0_face import LEDGER, Face, store_over
from custody_sync.faces._mem0_scope import read_scope
from custody_sync.faces._mem0_shape import Shown, as_memory
from custody_sync.faces._mem0_view import Pending
from custody_sync.faces._options import check_options
from custody_sync.ledger import Ledger
from custody_sync.ports import Store
from custody_sync.runtime import Runtime

T = TypeVar("T")
_UNSET: Any = asked.UNSET


class Memory(Closing, Face):
    """Mem0's `Memory` over a ledger.

    Every method takes and returns what mem0ai's does; docs/faces/mem0.md names what differs.
    """

    @classmethod
    def from_config(cls, config_dict: dict[str, Any], *, ledger: str = LEDGER, **options: Any) -> Self:
        """Make a `Memory` of mem0ai from its configuration and put a ledger under it; `close` closes both."""
        mem0 = vendor("mem0", feature="the Mem0 face", extra="mem0")
        original = mem0.Memory.from_config(config_dict)
        try:
            face = cls.over(original, ledger, **options)
        except BaseException:
            original.close()
            raise
        face._closing = (*face._closing, original.close)
        return face

    def add(
        self,
        messages: Any,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        run_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        timestamp: Any = None,
        expiration_date: Any = None,
        infer: bool = True,
        memory_type: str | None = None,
        prompt: str | None = None,
    ) -> Shown:
        """Write each message as a memory, to the store first and then to the ledger.

        Raises:
            InvalidInput: an argument; `infer=True` unless it was switched on. Nothing was written.
            CustodyError: a message was not written; a note names those before it that were.
        """
        scope = (user_id, agent_id, run_id)
        request = asked.read_add(
            messages, scope, metadata, timestamp, expiration_date, infer, memory_type, prompt,
            may_infer=self._view.inferring is not None,
        )  # fmt: skip
        return self._run(lambda custody: writing.add(custody, self._view, request), "add")

    def search(
        self,
        query: str,
        *,
        top_k: int = 20,
        filters: Mapping[str, Any] | None = None,
        threshold: float | None = 0.1,
        rerank: bool = False,
        explain: bool = False,
        reference_date: Any = None,
        show_expired: bool = False,
        **kwargs: Any,
    ) -> Shown:
        """Return what the store finds and the ledger believes; nothing deleted or updated away is in it.

        Raises:
            InvalidInput: an argument; filters have to name a user, an agent or a run.
            StoreError: the store did not answer.
        """
        request = asked.read_search(
            query, top_k, filters, threshold, rerank, explain, reference_date, show_expired, kwargs
        )
        return self._run(lambda custody: reading.search(custody, self._view, request), "search")

    def get(self, memory_id: str) -> Shown | None:
        """Return a memory; None once it is deleted, or was never there."""
        wanted = asked.read_memory_id(memory_id)
        return self._run(lambda custody: reading.get(custody, self._view, wanted), "get")

    def get_all(
        self,
        *,
        filters: Mapping[str, Any] | None = None,
        top_k: int = 20,
        show_expired: bool = False,
        **kwargs: Any,
    ) -> Shown:
        """List memories from the ledger, in the order they were written."""
        request = asked.read_listing(filters, top_k, show_expired, kwargs)
        return self._run(lambda custody: reading.get_all(custody, self._view, request), "get_all")

    def update(
        self,
        memory_id: str,
        text: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        expiration_date: Any = _UNSET,
        data: str | None = None,
    ) -> Shown:
        """Supersede a memory; it keeps its id, and what it said before stays in its history.

        Raises:
            InvalidInput: there is no such memory, or an argument.
        """
        request = asked.read_update(memory_id, text, metadata, expiration_date, data)
        return self._run(lambda custody: writing.update(custody, self._view, request), "update")

    def delete(self, memory_id: str) -> Shown:
        """Erase a memory and every earlier version of it, from the ledger and then from every store.

        Raises:
            InvalidInput: there is no such memory.
            OnHold: a hold keeps it; nothing was done.
        """
        wanted = asked.read_memory_id(memory_id)
        return self._run(lambda custody: writing.delete(custody, self._view, wanted), "delete")

    def delete_all(
        self, user_id: str | None = None, agent_id: str | None = None, run_id: str | None = None
    ) -> Shown:
        """Erase every memory that has all of these ids; an empty one, or none at all, is refused.

        Raises:
            InvalidInput: no id, or a blank one; nothing was done.
            OnHold: a hold keeps one of them; all others are erased.
        """
        scope = read_scope(user_id, agent_id, run_id)
        return self._run(lambda custody: writing.delete_all(custody, self._view, scope), "delete_all")

    def history(self, memory_id: str) -> list[Shown]:
        """Return what happened to a memory, from the ledger; of a deleted one no text."""
        wanted = asked.read_memory_id(memory_id)
        return self._run(lambda custody: history_of(custody, wanted), "history")

    def confirm(self, memory_id: str, *, reason: str | None = None) -> Shown:
        """Believe a memory that Mem0's model made; until then it is a claim and is not served."""
        wanted = asked.read_memory_id(memory_id)
        return self._run(lambda custody: writing.confirm(custody, self._view, wanted, reason), "confirm")

    def close(self) -> None:
        """Close what `over` or `from_config` opened; what was passed in stays open."""
        self._close_all()

    def _run(self, work: Work[T], name: str) -> T:
        return self._bridge.run(work, instead=f"AsyncMemory.{name}")


class AsyncMemory(AsyncClosing, Face):
    """Mem0's `AsyncMemory` over a ledger: `Memory` with every call awaited."""

    @classmethod
    async def aover(
        cls,
        original: Any,
        ledger: str = LEDGER,
        *,
        create: bool = True,
        actor: str = "app",
        receipt_id: str | None = None,
        infer: Literal["refuse", "adopt"] = "refuse",
        include_claimed: bool = False,
        on_pending: Pending | None = None,
        stores: Iterable[Store] = (),
        runtime: Runtime | None = None,
        forget_key: bytes | None = None,
        **options: Any,
    ) -> Self:
        """Do what `over` does in the caller's own loop; `aclose` closes everything.

        Args:
            original: a `Memory`, `AsyncMemory`, `MemoryClient` or `AsyncMemoryClient` of mem0ai.
            ledger: the ledger's URL.
            create: make the ledger if it is missing.
            actor: who speaks through this face.
            receipt_id: the caller's reference, recorded with everything.
            infer: as for the constructor.
            include_claimed: as for the constructor.
            on_pending: as for the constructor.
            stores: further stores that hold the same memories.
            runtime: clock, ids and threads; the real ones by default.
            forget_key: key of the digests that an erasure may leave.
            options: as for `AsyncCoordinator`.
        """
        check_options(options)
        store = store_over(original)
        opened = await Ledger.open(ledger, create=create, runtime=runtime, forget_key=forget_key)
        try:
            custody = AsyncCoordinator(opened, stores=[store, *stores], runtime=runtime, **options)
            face = cls(
                custody,
                actor=actor,
                receipt_id=receipt_id,
                store=store.name,
                infer=infer,
                wrapped=store,
                include_claimed=include_claimed,
                reranker=getattr(original, "reranker", None),
                on_pending=on_pending,
            )
        except BaseException:
            await opened.close()
            raise
        face._awaited = (custody.close, opened.close)
        return face

    async def add(
        self,
        messages: Any,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        run_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        timestamp: Any = None,
        expiration_date: Any = None,
        infer: bool = True,
        memory_type: str | None = None,
        prompt: str | None = None,
        llm: Any = None,
    ) -> Shown:
        """Write each message as a memory, to the store first and then to the ledger; see `Memory.add`."""
        scope = (user_id, agent_id, run_id)
        request = asked.read_add(
            messages, scope, metadata, timestamp, expiration_date, infer, memory_type, prompt, llm,
            may_infer=self._view.inferring is not None,
        )  # fmt: skip
        return await self._run(lambda custody: writing.add(custody, self._view, request))

    async def search(
        self,
        query: str,
        *,
        top_k: int = 20,
        filters: Mapping[str, Any] | None = None,
        threshold: float | None = 0.1,
        rerank: bool = False,
        explain: bool = False,
        reference_date: Any = None,
        show_expired: bool = False,
        **kwargs: Any,
    ) -> Shown:
        """Return what the store finds and the ledger believes; see `Memory.search`."""
        request = asked.read_search(
            query, top_k, filters, threshold, rerank, explain, reference_date, show_expired, kwargs
        )
        return await self._run(lambda custody: reading.search(custody, self._view, request))

    async def get(self, memory_id: str) -> Shown | None:
        """Return a memory; see `Memory.get`."""
        wanted = asked.read_memory_id(memory_id)
        return await self._run(lambda custody: reading.get(custody, self._view, wanted))

    async def get_all(
        self,
        *,
        filters: Mapping[str, Any] | None = None,
        top_k: int = 20,
        show_expired: bool = False,
        **kwargs: Any,
    ) -> Shown:
        """List memories from the ledger, in the order they were written; see `Memory.get_all`."""
        request = asked.read_listing(filters, top_k, show_expired, kwargs)
        return await self._run(lambda custody: reading.get_all(custody, self._view, request))

    async def update(
        self,
        memory_id: str,
        text: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        expiration_date: Any = _UNSET,
        data: str | None = None,
    ) -> Shown:
        """Supersede a memory; see `Memory.update`."""
        request = asked.read_update(memory_id, text, metadata, expiration_date, data)
        return await self._run(lambda custody: writing.update(custody, self._view, request))

    async def delete(self, memory_id: str) -> Shown:
        """Erase a memory and every earlier version of it; see `Memory.delete`."""
        wanted = asked.read_memory_id(memory_id)
        return await self._run(lambda custody: writing.delete(custody, self._view, wanted))

    async def delete_all(
        self, user_id: str | None = None, agent_id: str | None = None, run_id: str | None = None
    ) -> Shown:
        """Erase every memory that has all of these ids; see `Memory.delete_all`."""
        scope = read_scope(user_id, agent_id, run_id)
        return await self._run(lambda custody: writing.delete_all(custody, self._view, scope))

    async def history(self, memory_id: str) -> list[Shown]:
        """Return what happened to a memory, from the ledger; see `Memory.history`."""
        wanted = asked.read_memory_id(memory_id)
        return await self._run(lambda custody: history_of(custody, wanted))

    async def confirm(self, memory_id: str, *, reason: str | None = None) -> Shown:
        """Believe a memory that Mem0's model made; see `Memory.confirm`."""
        wanted = asked.read_memory_id(memory_id)
        return await self._run(lambda custody: writing.confirm(custody, self._view, wanted, reason))

    async def aclose(self) -> None:
        """Close what `aover` or `over` opened; what was passed in stays open."""
        awaited, self._awaited = self._awaited, ()
        for close in awaited:
            await close()
        closing, self._closing = self._closing, ()
        for close in closing:
            await asyncio.to_thread(close)

    def close(self) -> None:
        """Close what `over` opened, for code without a loop.

        Raises:
            InsideEventLoop: a loop runs here, or the face lives in one: await `aclose`.
        """
        if self._awaited:
            raise InsideEventLoop(used="AsyncMemory.close", instead="AsyncMemory.aclose")
        self._close_all()

    async def _run(self, work: Work[T]) -> T:
        return await self._bridge.arun(work)


__all__ = ["AsyncMemory", "Memory", "as_memory", "store_over"]
