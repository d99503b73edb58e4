"""Mem0 itself for tests: imported once in a worker, silent, with its folder elsewhere; and its clients."""

from __future__ import annotations

import importlib
import uuid
import warnings
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import respx
from fakes.mem0_api import HOST, KEY, Mem0Api
from fakes.mem0_server import serving

from custody_sync.testing.embedding import WordEmbedder

DIMENSIONS = 64


class StubEmbedder:
    """What Mem0 asks of an embedding model, without a model; it can be turned away or lose its connection."""

    def __init__(self) -> None:
        self._embed = WordEmbedder(DIMENSIONS)
        self.errors: list[Exception] = []
        self.always: Exception | None = None

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        """Return the vector of one text, or the next error."""
        if self.always is not None:
            raise self.always
        if self.errors:
            raise self.errors.pop()
        return self._embed(text)

    def embed_batch(self, texts: list[str], memory_action: str | None = None) -> list[list[float]]:
        """Return the vectors of several texts."""
        return [self.embed(text, memory_action) for text in texts]


@pytest.fixture(scope="session")
def mem0(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Import mem0 with its telemetry off: the switch and the folder are read at import, for good."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.setenv("MEM0_TELEMETRY", "False")
        patch.setenv("MEM0_DIR", str(tmp_path_factory.mktemp("mem0")))
        # It and its dependencies warn of their own future while they are imported.
        warnings.simplefilter("ignore")
        yield importlib.import_module("mem0")


@pytest.fixture
def mem0_api() -> Mem0Api:
    """Return an empty project of the hosted service."""
    return Mem0Api()


@pytest.fixture
def mem0_client(mem0: Any, mem0_api: Mem0Api) -> Iterator[Any]:
    """Yield a `MemoryClient` of the project."""
    with respx.mock(assert_all_called=False) as router:
        router.route(host=HOST.partition("://")[2]).mock(side_effect=mem0_api.respx_side_effect)
        client = mem0.MemoryClient(api_key=KEY)
        yield client
        client.client.close()


@pytest.fixture
async def mem0_async_client(
    mem0: Any, mem0_api: Mem0Api, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Any]:
    """Yield an `AsyncMemoryClient` of the project, over loopback: its constructor does not use httpx."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving(mem0_api) as host:
        async with mem0.AsyncMemoryClient(api_key=KEY, host=host) as client:
            yield client


def open_memory(kind: Any, folder: Path, **changes: Any) -> Any:
    """Make a `Memory` or `AsyncMemory` on a local Qdrant, with a stub for its embedding model."""
    settings = {
        "vector_store": {
            "provider": "qdrant",
            "config": {
                "collection_name": f"c{uuid.uuid4().hex}",
                "embedding_model_dims": DIMENSIONS,
                "path": str(folder / "qdrant"),
                "on_disk": True,
            },
        },
        "embedder": {"provider": "openai", "config": {"api_key": "unused"}},
        "llm": {"provider": "openai", "config": {"api_key": "unused"}},
        "history_db_path": ":memory:",
    }
    memory = kind.from_config({**settings, **changes})
    memory.embedding_model = StubEmbedder()
    return memory


def close_memory(memory: Any) -> None:
    """Close a memory's history and give its folder free."""
    memory.close()
    client = getattr(memory.vector_store, "client", None)
    if client is not None:
        client.close()


@pytest.fixture
def mem0_memory(mem0: Any, tmp_path: Path) -> Iterator[Any]:
    """Yield a `Memory` on a local Qdrant."""
    memory = open_memory(mem0.Memory, tmp_path)
    yield memory
    close_memory(memory)


@pytest.fixture
def mem0_async_memory(mem0: Any, tmp_path: Path) -> Iterator[Any]:
    """Yield an `AsyncMemory` on a local Qdrant."""
    memory = open_memory(mem0.AsyncMemory, tmp_path)
    yield memory
    close_memory(memory)
