"""Every LangGraph store keeps the contract behind the adapter, and so does sabotage of each."""

from __future__ import annotations

import asyncio
import sqlite3
import uuid
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.base import GetOp, IndexConfig, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore
from langgraph.store.postgres import AsyncPostgresStore, PostgresStore
from langgraph.store.sqlite import AsyncSqliteStore, SqliteStore

from custody_sync.adapters.langgraph import LangGraphStore
from custody_sync.testing import StoreContract, StoreHooks
from custody_sync.testing.embedding import WordEmbedder

DIMENSIONS = 64
INDEX: IndexConfig = {"dims": DIMENSIONS, "embed": WordEmbedder(DIMENSIONS).many, "fields": ["text"]}


# In a small table the planner would pass over the vector index, and with it over what the index does.
BY_INDEX = "&options=-c%20enable_seqscan%3Doff%20-c%20enable_sort%3Doff"

EXACT = "&options=-c%20enable_indexscan%3Doff"


class Sabotage:
    """Bend what reaches a LangGraph store, below every method it has."""

    ignores_deletes = False
    fails_searches = False

    def batch(self, ops: Iterable[Any]) -> list[Any]:
        """Run the operations, bent."""
        return super().batch([self._bent(op) for op in ops])  # type: ignore[misc]  # a store follows in the MRO

    async def abatch(self, ops: Iterable[Any]) -> list[Any]:
        """Run the operations, bent."""
        return await super().abatch([self._bent(op) for op in ops])  # type: ignore[misc]  # as above

    def _bent(self, op: Any) -> Any:
        if self.ignores_deletes and isinstance(op, PutOp) and op.value is None:
            return GetOp(op.namespace, op.key)
        # With an index only its own questions fail; without one every search is the same reading.
        by_index = bool(getattr(self, "index_config", None))
        if self.fails_searches and isinstance(op, SearchOp) and (op.query or not by_index):
            raise ConnectionError(f"no answer to {op.query}")
        return op


class LangGraphHooks(StoreHooks):
    """Sabotage and a stranger's item, for any LangGraph store."""

    raw: Any
    root: str

    def adapter(self, raw: Any, *labels: str) -> LangGraphStore:
        """Wrap a store under a root label that no other test uses."""
        self.raw, self.root = raw, f"memories-{uuid.uuid4().hex}"
        return LangGraphStore(raw, namespace=(self.root, *labels))

    async def break_delete(self, store: LangGraphStore) -> None:
        """Make deletions do nothing."""
        self.raw.ignores_deletes = True

    async def break_search(self, store: LangGraphStore) -> None:
        """Make every search fail, quoting what was asked."""
        self.raw.fails_searches = True

    async def put_unlabelled(self, store: LangGraphStore, text: str) -> str:
        """Put an item as an agent does without custody."""
        where, value = (self.root, "a stranger"), {"text": text, "source": "agent"}
        if isinstance(self.raw, SqliteStore | PostgresStore):
            await asyncio.to_thread(self.raw.put, where, "strange", value)
        else:
            await self.raw.aput(where, "strange", value)
        return "strange"


class BentMemory(Sabotage, InMemoryStore):
    """An `InMemoryStore` that can be sabotaged."""


class BentSqlite(Sabotage, SqliteStore):
    """A `SqliteStore` that can be sabotaged."""


class BentAsyncSqlite(Sabotage, AsyncSqliteStore):
    """An `AsyncSqliteStore` that can be sabotaged."""


class BentPostgres(Sabotage, PostgresStore):
    """A `PostgresStore` that can be sabotaged."""


class BentAsyncPostgres(Sabotage, AsyncPostgresStore):
    """An `AsyncPostgresStore` that can be sabotaged."""


class TestInMemoryStore(LangGraphHooks, StoreContract):
    """In memory, with an index, one namespace for each space."""

    @pytest.fixture
    def store(self) -> LangGraphStore:
        """Return a fresh one."""
        return self.adapter(BentMemory(index=INDEX), "{space}")


class TestInMemoryStoreInOneNamespace(LangGraphHooks, StoreContract):
    """In memory, with an index, all spaces in one namespace: the filter has to keep them apart."""

    @pytest.fixture
    def store(self) -> LangGraphStore:
        """Return a fresh one."""
        return self.adapter(BentMemory(index=INDEX))


class TestInMemoryStoreWithoutIndex(LangGraphHooks, StoreContract):
    """In memory, without an index: the search serves in its own order."""

    @pytest.fixture
    def store(self) -> LangGraphStore:
        """Return a fresh one."""
        return self.adapter(BentMemory(), "{space}")


class TestSqliteStore(LangGraphHooks, StoreContract):
    """A SQLite file, called in worker threads."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[LangGraphStore]:
        """Yield one on a fresh file."""
        with BentSqlite.from_conn_string(str(tmp_path / "store.db")) as raw:
            raw.setup()
            yield self.adapter(raw, "{space}")


class TestAsyncSqliteStore(LangGraphHooks, StoreContract):
    """A SQLite file, awaited."""

    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[LangGraphStore]:
        """Yield one on a fresh file."""
        async with BentAsyncSqlite.from_conn_string(str(tmp_path / "store.db")) as raw:
            await raw.setup()
            yield self.adapter(raw, "{space}")


@pytest.mark.skipif(
    not hasattr(sqlite3.Connection, "enable_load_extension"),
    reason="this Python's sqlite3 cannot load extensions, and SqliteStore's index is one",
)
class TestSqliteStoreWithIndex(LangGraphHooks, StoreContract):
    """A SQLite file with a vector index."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[LangGraphStore]:
        """Yield one on a fresh file."""
        with BentSqlite.from_conn_string(str(tmp_path / "store.db"), index=dict(INDEX)) as raw:
            raw.setup()
            yield self.adapter(raw, "{space}")


class TestPostgresStore(LangGraphHooks, StoreContract):
    """Postgres with an HNSW index, called in worker threads through a pool."""

    @pytest.fixture
    def store(self, database_uri: str) -> Iterator[LangGraphStore]:
        """Yield one in a fresh database."""
        options = {"pool_config": {"min_size": 1, "max_size": 4}, "index": dict(INDEX)}
        with BentPostgres.from_conn_string(database_uri + BY_INDEX, **options) as raw:
            raw.setup()
            yield self.adapter(raw, "{space}")


class TestAsyncPostgresStore(LangGraphHooks, StoreContract):
    """Postgres with an HNSW index, awaited, all spaces in one namespace."""

    @pytest.fixture
    async def store(self, database_uri: str) -> AsyncIterator[LangGraphStore]:
        """Yield one in a fresh database."""
        options = {"pool_config": {"min_size": 1, "max_size": 4}, "index": dict(INDEX)}
        async with BentAsyncPostgres.from_conn_string(database_uri + BY_INDEX, **options) as raw:
            await raw.setup()
            yield self.adapter(raw)


class TestAsyncPostgresStoreExact(LangGraphHooks, StoreContract):
    """Postgres that searches exactly, among the entries of everybody else who uses the database."""

    @pytest.fixture
    async def store(self, postgres_uri: str) -> AsyncIterator[LangGraphStore]:
        """Yield one below a fresh root label."""
        options = {"pool_config": {"min_size": 1, "max_size": 4}, "index": dict(INDEX)}
        async with BentAsyncPostgres.from_conn_string(postgres_uri + EXACT, **options) as raw:
            await raw.setup()
            yield self.adapter(raw)
