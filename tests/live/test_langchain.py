"""LangChain's vector stores, one engine each: its own in memory, and Chroma and Qdrant in this process."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from contract.test_langchain_store import LangChainHooks, TestInMemoryVectorStore
from fakes.langchain_store import Words
from langchain_core.documents import Document

from custody_sync.adapters.langchain import LangChainStore
from custody_sync.testing import NotApplicable, StoreContract
from custody_sync.testing.contract_case import Trouble
from live.engine import Engine, Live

DIMENSIONS = 64


def _engine(key: str, title: str, *packages: str) -> Engine:
    return Engine(key, title, "langchain", "library", ("langchain-core", *packages))


class TestMemory(Live, TestInMemoryVectorStore):
    """In memory."""

    engine = _engine("langchain-memory", "LangChain InMemoryVectorStore")


class RealHooks(LangChainHooks):
    """What can be done to a store of which only the methods are ours to bend."""

    raw: Any
    strange = "strange"

    async def break_delete(self, store: LangChainStore) -> None:
        """Make deletions do nothing."""
        self.raw.delete = lambda ids, **options: None

    async def break_search(self, store: LangChainStore) -> None:
        """Make every search fail, quoting what was asked."""

        def fail(query: str, **options: Any) -> Any:
            raise ConnectionError(f"no answer to {query}")

        self.raw.similarity_search_with_score = fail

    async def make_trouble(self, store: LangChainStore, trouble: Trouble, times: float = 1) -> None:
        """Leave it to the in-memory store, whose every call can be bent."""
        if trouble is not Trouble.LYING_DELETE:
            raise NotApplicable("a real engine in this process is not bent; the in-memory store is")
        await self.break_delete(store)

    async def put_unlabelled(self, store: LangChainStore, text: str) -> str:
        """Add a document as an application does without custody."""
        strange = Document(page_content=text, metadata={"source": "handbook.pdf"})
        return str(self.raw.add_documents([strange], ids=[self.strange])[0])


class TestChroma(Live, RealHooks, StoreContract):
    """Chroma, in this process."""

    engine = _engine("langchain-chroma", "LangChain Chroma", "langchain-chroma", "chromadb")

    @pytest.fixture
    def store(self) -> LangChainStore:
        """Return one over a fresh collection."""
        import chromadb
        from langchain_chroma import Chroma

        client = chromadb.EphemeralClient(chromadb.Settings(anonymized_telemetry=False))
        return self.adapter(Chroma(f"facts-{uuid.uuid4().hex}", Words(DIMENSIONS), client=client))


class TestQdrant(Live, RealHooks, StoreContract):
    """Qdrant, in this process."""

    engine = _engine("langchain-qdrant", "LangChain QdrantVectorStore", "langchain-qdrant", "qdrant-client")
    strange = str(uuid.uuid4())

    @pytest.fixture
    def store(self) -> LangChainStore:
        """Return one over a fresh collection."""
        from langchain_qdrant import QdrantVectorStore
        from qdrant_client import QdrantClient
        from qdrant_client.models import Distance, VectorParams

        client = QdrantClient(":memory:")
        client.create_collection(
            "facts", vectors_config=VectorParams(size=DIMENSIONS, distance=Distance.COSINE)
        )
        return self.adapter(QdrantVectorStore(client, "facts", Words(DIMENSIONS)))
