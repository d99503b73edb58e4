"""Open source Mem0 on a local Qdrant keeps the contract: the real library and the real vector store."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fakes.faiss import Faiss
from fix_mem0 import DIMENSIONS

from custody_sync.adapters.mem0 import Mem0Store
from custody_sync.model import Capability
from custody_sync.testing import NotApplicable, StoreContract, StoreHooks, Trouble


class Throttled(Exception):
    """What an embedding service's client raises on 429, quoting what it was asked."""

    status_code = 429
    response = httpx.Response(429, headers={"Retry-After": "0"})


class LocalHooks(StoreHooks):
    """Sabotage below Mem0: in its vector store, its embedding model and its history."""

    own_keys = False
    memory: Any

    def adapter(self, memory: Any) -> Mem0Store:
        """Wrap a memory; small pages."""
        self.memory = memory
        return Mem0Store(memory, page_size=20)

    async def break_delete(self, store: Mem0Store) -> None:
        """Let the vector store ignore deletes."""
        self.memory.vector_store.delete = lambda vector_id: None

    async def break_search(self, store: Mem0Store) -> None:
        """Let every search of the vector store fail, quoting what was asked."""
        self._fail("search", math.inf)

    async def put_unlabelled(self, store: Mem0Store, text: str) -> str:
        """Add a memory as an agent does without custody."""
        call = self.memory.add
        options = {"user_id": "a-stranger", "infer": False, "metadata": {"source": "agent"}}
        made = await call(text, **options) if asyncio.iscoroutinefunction(call) else call(text, **options)
        return str(made["results"][0]["id"])

    async def reopened(self, store: Mem0Store) -> Mem0Store:
        """Wrap the same memory once more: a local Qdrant has one owner."""
        return self.adapter(self.memory)

    async def make_trouble(self, store: Mem0Store, trouble: Trouble, times: float = 1) -> None:
        """Make what can go wrong without a network in between."""
        match trouble:
            case Trouble.SEARCH_FAILS:
                self._fail("search", times)
            case Trouble.FAILS_AFTER:
                self._lose_history(times)
            case Trouble.LYING_DELETE:
                await self.break_delete(store)
            case Trouble.LAG:
                self._lag(times)
            case Trouble.THROTTLED | Trouble.RESET:
                raise NotApplicable("only what embeds leaves the process; see the tests of the embedder")
            case _:
                raise NotApplicable("no connection and no pages lie between the adapter and the store")

    def _fail(self, method: str, times: float) -> None:
        works, left = getattr(self.memory.vector_store, method), times

        def failing(**options: Any) -> Any:
            nonlocal left
            left -= 1
            if left >= 0:
                raise ConnectionError(f"no answer to {options.get('query')}")
            return works(**options)

        setattr(self.memory.vector_store, method, failing)

    def _lose_history(self, times: float) -> None:
        works, left = self.memory.db.add_history, times

        def failing(*args: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left >= 0:
                raise ValueError(f"no history of {args}")
            return works(*args, **options)

        self.memory.db.add_history = failing

    def _lag(self, times: float) -> None:
        """Let the search of the vector store serve what is deleted from now on for so many questions."""
        store, ghosts = self.memory.vector_store, dict[str, tuple[Any, float]]()
        delete: Callable[..., Any] = getattr(self, "_delete", store.delete)
        search: Callable[..., Any] = getattr(self, "_search", store.search)
        self._delete, self._search = delete, search

        def deleting(vector_id: str) -> None:
            point = store.get(vector_id=vector_id)
            ghosts[vector_id] = (SimpleNamespace(id=point.id, payload=point.payload, score=1.0), times)
            delete(vector_id=vector_id)

        def searching(**options: Any) -> list[Any]:
            hits = list(search(**options))
            for vector_id, (point, left) in list(ghosts.items()):
                ghosts[vector_id] = (point, left - 1)
                if left > 0:
                    hits.append(point)
            return hits

        store.delete, store.search = deleting, searching


class TestMemory(LocalHooks, StoreContract):
    """The blocking library, in worker threads behind one lock."""

    @pytest.fixture
    def store(self, mem0_memory: Any) -> Mem0Store:
        """Return one on a fresh folder."""
        return self.adapter(mem0_memory)


class TestMemoryThatFiltersLate(LocalHooks, StoreContract):
    """Mem0's library on a vector store that filters after its cut, as with FAISS: a part is declared so."""

    many, crowd = 330, 121

    @pytest.fixture
    def store(self, mem0_memory: Any) -> Mem0Store:
        """Return one whose vector store is exchanged."""
        mem0_memory.vector_store.client.close()
        mem0_memory.vector_store = Faiss(DIMENSIONS)
        return self.adapter(mem0_memory)

    async def put_unlabelled(self, store: Mem0Store, text: str) -> str:
        """Say why a stranger's memory is not looked for."""
        raise NotApplicable(store.capabilities[Capability.LIST_ENTRIES].reason)


class TestAsyncMemory(LocalHooks, StoreContract):
    """The asynchronous library, called in threads too: the lock has to outlast whoever asked."""

    many, crowd = 330, 121

    @pytest.fixture
    def store(self, mem0_async_memory: Any) -> Mem0Store:
        """Return one on a fresh folder."""
        return self.adapter(mem0_async_memory)
