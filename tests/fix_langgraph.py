"""LangGraph's own stores, each fresh, with an index where this Python can have one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

BACKENDS = ("memory", "sqlite", "async sqlite", "postgres", "async postgres")
DIMENSIONS = 64


class CountingEmbedder:
    """An embedder in LangGraph's shape that remembers what it was asked for."""

    def __init__(self) -> None:
        from custody_sync.testing.embedding import WordEmbedder

        self._embed = WordEmbedder(DIMENSIONS)
        self.asked: list[str] = []

    def __call__(self, texts: list[str]) -> list[list[float]]:
        """Return the vectors of several texts."""
        self.asked += texts
        return self._embed.many(texts)


@pytest.fixture
def graph_embedder() -> CountingEmbedder:
    """Return the embedder that the stores of `graph_store` use."""
    return CountingEmbedder()


@pytest.fixture(params=BACKENDS)
async def graph_store(
    request: pytest.FixtureRequest, tmp_path: Path, graph_embedder: CountingEmbedder
) -> AsyncIterator[Any]:
    """Yield each of LangGraph's stores; SQLite's have no index, which needs loadable extensions."""
    from langgraph.store.memory import InMemoryStore
    from langgraph.store.postgres import AsyncPostgresStore, PostgresStore
    from langgraph.store.sqlite import AsyncSqliteStore, SqliteStore

    index: Any = {"dims": DIMENSIONS, "embed": graph_embedder, "fields": ["text"]}
    pool: Any = {"pool_config": {"min_size": 1, "max_size": 4}, "index": index}
    file = str(tmp_path / "store.db")
    async with AsyncExitStack() as stack:
        match request.param:
            case "memory":
                yield InMemoryStore(index=index)
            case "sqlite":
                yield stack.enter_context(SqliteStore.from_conn_string(file))
            case "async sqlite":
                yield await stack.enter_async_context(AsyncSqliteStore.from_conn_string(file))
            case "postgres":
                uri = request.getfixturevalue("database_uri")
                store = stack.enter_context(PostgresStore.from_conn_string(uri, **pool))
                store.setup()
                yield store
            case _:
                uri = request.getfixturevalue("database_uri")
                other = await stack.enter_async_context(AsyncPostgresStore.from_conn_string(uri, **pool))
                await other.setup()
                yield other
