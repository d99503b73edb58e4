"""The two real stores of most rings: a LangGraph `PostgresStore` with an index, and a pgvector table."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from langgraph.store.postgres import AsyncPostgresStore, PostgresStore
from psycopg_pool import AsyncConnectionPool

from custody_sync.adapters._pgvector_vectors import Embed
from custody_sync.adapters.langgraph import LangGraphStore
from custody_sync.adapters.pgvector import PgVectorStore
from custody_sync.testing.embedding import WordEmbedder

AGENT, MEMORIES = "agent", "memories"
"""The stores' names; the pgvector table is called `memories` too."""
DIMENSIONS = 64
EMBED = WordEmbedder(DIMENSIONS)
INDEX: Any = {"dims": DIMENSIONS, "embed": EMBED.many, "fields": ["text"]}


@dataclass(frozen=True)
class ShiftedClock:
    """The machine's clock, moved by as many seconds."""

    by: float

    def now(self) -> datetime:
        """Return the moved instant."""
        return datetime.now(UTC) + timedelta(seconds=self.by)


@dataclass(frozen=True)
class World:
    """Both stores behind their adapters."""

    agent: LangGraphStore
    memories: PgVectorStore

    @property
    def stores(self) -> tuple[LangGraphStore, PgVectorStore]:
        """What a coordinator is given."""
        return self.agent, self.memories


@asynccontextmanager
async def open_world(uri: str, *, embed: Embed = EMBED, setup: bool = True) -> AsyncIterator[World]:
    """Connect both stores, LangGraph's blocking one through a single connection and worker threads.

    Args:
        uri: the database; a search path in it keeps several worlds in one.
        embed: of the pgvector table.
        setup: make LangGraph's tables, which waits for every open transaction in the database.
    """
    with PostgresStore.from_conn_string(uri, index=INDEX) as raw:
        if setup:
            raw.setup()
        async with AsyncConnectionPool(uri, min_size=1, max_size=4, open=False) as pool:
            # A world may be a copy of another one, ledger and all, and is then another place.
            here = {"table": MEMORIES, "dimensions": DIMENSIONS, "name": MEMORIES, "place": uri}
            yield World(
                LangGraphStore(raw, namespace=("memories", "{space}"), name=AGENT),
                PgVectorStore(pool, embed=embed, **here),
            )


@asynccontextmanager
async def open_busy_world(uri: str) -> AsyncIterator[World]:
    """Connect both stores for many calls at once, with LangGraph's asynchronous store."""
    config: Any = {"min_size": 1, "max_size": 8}
    async with (
        AsyncPostgresStore.from_conn_string(uri, pool_config=config, index=INDEX) as raw,
        AsyncConnectionPool(uri, min_size=1, max_size=8, open=False) as pool,
    ):
        await raw.setup()
        yield World(
            LangGraphStore(raw, namespace=("memories", "{space}"), name=AGENT),
            PgVectorStore(pool, table=MEMORIES, dimensions=DIMENSIONS, embed=EMBED, name=MEMORIES),
        )
