"""The stores of the comparison: each client once, for the peer alone and under custody-sync alike."""

from __future__ import annotations

import importlib
import os
import shutil
import tempfile
import uuid
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from _faults_wire import RECORD, Kind, Wire

from custody_sync.testing.embedding import WordEmbedder

DIMENSIONS = 64
_MAIN = "mem0.memory.main"


class GraphStores:
    """LangGraph stores in memory.

    Args:
        wire: what calls of them go over.
        names: one name for each.
    """

    def __init__(self, wire: Wire, names: Sequence[str]) -> None:
        base = importlib.import_module("langgraph.store.base")
        memory = importlib.import_module("langgraph.store.memory").InMemoryStore
        # The class itself has no room for attributes.
        kind: Any = type("InMemoryStore", (memory,), {})
        index = {"dims": DIMENSIONS, "embed": word_embeddings(), "fields": ["text"]}
        self.stores: dict[str, Any] = {name: kind(index=index) for name in names}
        self._everything: Callable[[Any], list[Any]] = lambda store: memory.batch(
            store, [base.SearchOp(namespace_prefix=(), limit=1000)]
        )

        def kind_of(ops: Sequence[Any]) -> Kind:
            if not all(isinstance(op, base.PutOp) for op in ops):
                return Kind.ASK
            return Kind.DELETE if all(op.value is None for op in ops) else Kind.PUT

        for name, store in self.stores.items():
            wire.attach_batches(store, name, kind_of)

    def held(self) -> dict[str, list[str]]:
        """Return the texts of each, past the wire."""
        return {
            name: [item.value["text"] for item in self._everything(store)[0] if "text" in item.value]
            for name, store in self.stores.items()
        }

    def close(self) -> None:
        """Nothing is held."""


class VectorStore:
    """LangChain's vector store in memory.

    Args:
        wire: what calls of it go over.
    """

    def __init__(self, wire: Wire) -> None:
        kind = importlib.import_module("langchain_core.vectorstores").InMemoryVectorStore
        self.store: Any = kind(word_embeddings())
        wire.attach(
            self.store,
            "vectors",
            {
                "add_documents": Kind.PUT,
                "delete": Kind.DELETE,
                "get_by_ids": Kind.ASK,
                "similarity_search": Kind.ASK,
                "similarity_search_with_score": Kind.ASK,
            },
        )

    def held(self) -> dict[str, list[str]]:
        """Return the texts of it, past the wire."""
        return {"vectors": [row["text"] for row in self.store.store.values()]}

    def close(self) -> None:
        """Nothing is held."""


def word_embeddings() -> Any:
    """Return words for vectors as LangChain and LangGraph ask for them, at once and in no other thread."""
    words = WordEmbedder(DIMENSIONS)

    async def many_later(self: Any, texts: list[str]) -> list[list[float]]:
        return words.many(texts)

    async def one_later(self: Any, text: str) -> list[float]:
        return words(text)

    methods = {
        "embed_documents": lambda self, texts: words.many(texts),
        "embed_query": lambda self, text: words(text),
        "aembed_documents": many_later,
        "aembed_query": one_later,
    }
    base = importlib.import_module("langchain_core.embeddings").Embeddings
    return type("WordEmbeddings", (base,), methods)()


class Mem0Memory:
    """Mem0's library over a Qdrant that outlives the process, as a server does, with words for vectors.

    Args:
        wire: what calls of its vector store and of its history go over.
    """

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._folder = Path(tempfile.mkdtemp())
        self._collection = f"c{uuid.uuid4().hex}"
        self._qdrant = importlib.import_module("qdrant_client").QdrantClient(":memory:")
        self.memory: Any = None
        self.open()

    def open(self) -> None:
        """Open it, in what counts as a new process if it was open before."""
        if self.memory is not None:
            self.memory.close()
        qdrant = {
            "collection_name": self._collection,
            "embedding_model_dims": DIMENSIONS,
            "client": self._qdrant,
        }
        settings = {
            "vector_store": {"provider": "qdrant", "config": qdrant},
            "history_db_path": str(self._folder / "history.db"),
        }
        # Nothing is inferred, so no client of a model has to be made.
        kind = mem0().Memory
        models = patch(f"{_MAIN}.LlmFactory.create"), patch(f"{_MAIN}.EmbedderFactory.create")
        with models[0], models[1], warnings.catch_warnings():
            # Qdrant says that it needs no index here.
            warnings.simplefilter("ignore")
            self.memory = kind.from_config(settings)
        self.memory.embedding_model = _Embedder()
        calls = {"insert": Kind.PUT, "update": Kind.PUT, "delete": Kind.DELETE}
        questions = dict.fromkeys(("get", "list", "search", "keyword_search"), Kind.ASK)
        self._wire.attach(self.memory.vector_store, "mem0", calls | questions)
        self._wire.attach(self.memory.db, RECORD, {"add_history": Kind.RECORD})

    def held(self) -> dict[str, list[str]]:
        """Return the texts of it, past the wire."""
        points, _ = self._qdrant.scroll(collection_name=self._collection, limit=1000, with_payload=True)
        return {"mem0": [point.payload["data"] for point in points]}

    def close(self) -> None:
        """Close it and remove its folder."""
        self.memory.close()
        self._qdrant.close()
        shutil.rmtree(self._folder)


class _Embedder:
    """What Mem0 asks of an embedding model, without a model."""

    def __init__(self) -> None:
        self._embed = WordEmbedder(DIMENSIONS)

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        return self._embed(text)

    def embed_batch(self, texts: list[str], memory_action: str | None = None) -> list[list[float]]:
        return [self._embed(text) for text in texts]


def mem0() -> Any:
    """Import mem0 with its telemetry off; the switch and the folder are read at import."""
    told: Mapping[str, str] = {"MEM0_TELEMETRY": "False", "MEM0_DIR": tempfile.gettempdir()}
    for name, value in told.items():
        os.environ.setdefault(name, value)
    with warnings.catch_warnings():
        # It and its dependencies warn of their own future while they are imported.
        warnings.simplefilter("ignore")
        return importlib.import_module("mem0")
