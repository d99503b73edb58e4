"""Every LangGraph store keeps the contract behind the adapter, and so does sabotage of each."""

from __future__ import annotations

import math
import sqlite3
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.langgraph_store import (
    BentAsyncPostgres,
    BentAsyncSqlite,
    BentCapped,
    BentMemory,
    BentPostgres,
    BentSqlite,
    CappedStore,
    run,
)
from langgraph.store.base import IndexConfig, PutOp

from custody_sync.adapters.langgraph import LangGraphStore
from custody_sync.testing import NotApplicable, StoreContract, StoreHooks
from custody_sync.testing.contract_case import Trouble
from custody_sync.testing.embedding import WordEmbedder

DIMENSIONS = 64
INDEX: IndexConfig = {"dims": DIMENSIONS, "embed": WordEmbedder(DIMENSIONS).many, "fields": ["text"]}


# In a small table the planner would pass over the vector index, and with it over what the index does.
BY_INDEX = "&options=-c%20enable_seqscan%3Doff%20-c%20enable_sort%3Doff"

ABSENT = {
    Trouble.PENDING: "a store of LangGraph answers when a put is carried out",
    Trouble.EMPTY_BODY: "puts and deletes of LangGraph answer nothing anyway",
}
EXACT = "&options=-c%20enable_indexscan%3Doff"


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
        self.raw.make(Trouble.LYING_DELETE, math.inf)

    async def break_search(self, store: LangGraphStore) -> None:
        """Make every search fail, quoting what was asked."""
        self.raw.make(Trouble.SEARCH_FAILS, math.inf)

    async def make_trouble(self, store: LangGraphStore, trouble: Trouble, times: float = 1) -> None:
        """Bend what the store is asked and answers."""
        if trouble in ABSENT:
            raise NotApplicable(ABSENT[trouble])
        if trouble in (Trouble.REPEATS, Trouble.SKIPS) and not isinstance(self.raw, CappedStore):
            raise NotApplicable("a namespace is read with one question, so there are no pages")
        self.raw.make(trouble, times)

    async def put_unlabelled(self, store: LangGraphStore, text: str) -> str:
        """Put an item as an agent does without custody."""
        where, value = (self.root, "a stranger"), {"text": text, "source": "agent"}
        await run(self.raw, [PutOp(where, "strange", value)])
        return "strange"


class TestInMemoryStore(LangGraphHooks, StoreContract):
    """In memory, with an index, one namespace for each space."""

    @pytest.fixture
    def store(self) -> LangGraphStore:
        """Return a fresh one."""
        return self.adapter(BentMemory(index=INDEX), "{space}")


class TestInMemoryStoreInOneNamespace(LangGraphHooks, StoreContract):
    """In memory, with an index, all spaces in one namespace: the filter has to keep them apart."""

    many, crowd = 330, 121

    @pytest.fixture
    def store(self) -> LangGraphStore:
        """Return a fresh one."""
        return self.adapter(BentMemory(index=INDEX))


class TestInMemoryStoreWithoutIndex(LangGraphHooks, StoreContract):
    """In memory, without an index: the search serves in its own order."""

    many, crowd = 330, 121

    @pytest.fixture
    def store(self) -> LangGraphStore:
        """Return a fresh one."""
        return self.adapter(BentMemory(), "{space}")


class TestSqliteStore(LangGraphHooks, StoreContract):
    """A SQLite file, called in worker threads."""

    many, crowd = 330, 121

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[LangGraphStore]:
        """Yield one on a fresh file."""
        with BentSqlite.from_conn_string(str(tmp_path / "store.db")) as raw:
            raw.setup()
            yield self.adapter(raw, "{space}")


class TestAsyncSqliteStore(LangGraphHooks, StoreContract):
    """A SQLite file, awaited."""

    many, crowd = 330, 121

    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[LangGraphStore]:
        """Yield one on a fresh file."""
        async with BentAsyncSqlite.from_conn_string(str(tmp_path / "store.db")) as raw:
            await raw.setup()
            yield self.adapter(raw, "{space}")


class TestThirdPartysStore(LangGraphHooks, StoreContract):
    """A store that is not LangGraph's own and caps its answers, so that it is paged through."""

    many, crowd = 330, 121

    @pytest.fixture
    def store(self) -> LangGraphStore:
        """Return a fresh one."""
        return self.adapter(BentCapped(index=INDEX), "{space}")


@pytest.mark.skipif(
    not hasattr(sqlite3.Connection, "enable_load_extension"),
    reason="this Python's sqlite3 cannot load extensions, and SqliteStore's index is one",
)
class TestSqliteStoreWithIndex(LangGraphHooks, StoreContract):
    """A SQLite file with a vector index."""

    many, crowd = 330, 121

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[LangGraphStore]:
        """Yield one on a fresh file."""
        with BentSqlite.from_conn_string(str(tmp_path / "store.db"), index=dict(INDEX)) as raw:
            raw.setup()
            yield self.adapter(raw, "{space}")


class TestPostgresStore(LangGraphHooks, StoreContract):
    """Postgres with an HNSW index, called in worker threads through a pool."""

    many, crowd = 330, 121

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

    many, crowd = 330, 121

    @pytest.fixture
    async def store(self, postgres_uri: str) -> AsyncIterator[LangGraphStore]:
        """Yield one below a fresh root label."""
        options = {"pool_config": {"min_size": 1, "max_size": 4}, "index": dict(INDEX)}
        async with BentAsyncPostgres.from_conn_string(postgres_uri + EXACT, **options) as raw:
            await raw.setup()
            yield self.adapter(raw)
