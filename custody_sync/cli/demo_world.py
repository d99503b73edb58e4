"""The demo's two stores in one Postgres, and what they say without us: their own search and rows.

Nothing here asks our adapters what is held or served. LangGraph is asked through its own API, the
pgvector table with plain SQL, as an application would that never heard of custody.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, LiteralString

from langgraph.store.postgres import AsyncPostgresStore
from psycopg_pool import AsyncConnectionPool

from custody_sync.adapters.langgraph import LangGraphStore
from custody_sync.adapters.pgvector import PgVectorStore
from custody_sync.ports import Store
from custody_sync.testing.embedding import WordEmbedder

AGENT, MEMORIES = "agent", "memories"
DIMENSIONS = 64
SHOWN = 3
"""How many hits a search is asked for; an agent that recalls gets about as many."""

_NEAREST: LiteralString = "select fact_id, key, text from memories order by embedding <=> %s::vector limit %s"
_ALL: LiteralString = "select fact_id, key, text from memories order by key"


@dataclass(frozen=True, slots=True)
class Held:
    """One entry, as its store shows it to anyone."""

    fact_id: str
    external_id: str
    text: str


class World:
    """Both stores, once as custody uses them and once as everybody else does."""

    def __init__(
        self, agent: AsyncPostgresStore, pool: AsyncConnectionPool[Any], embed: WordEmbedder
    ) -> None:
        self._agent, self._pool, self._embed = agent, pool, embed
        self.stores: tuple[Store, Store] = (
            LangGraphStore(agent, namespace=("memories", "{space}"), name=AGENT),
            PgVectorStore(pool, table=MEMORIES, dimensions=DIMENSIONS, embed=embed, name=MEMORIES),
        )

    async def set_up(self) -> None:
        """Make LangGraph's tables; the pgvector table makes itself at the first use."""
        await self._agent.setup()

    async def search(self, text: str) -> dict[str, list[Held]]:
        """Return each store's own best hits for a text, nearest first."""
        items = await self._agent.asearch(("memories",), query=text, limit=SHOWN)
        async with self._pool.connection() as connection:
            cursor = await connection.execute(_NEAREST, (str(self._embed(text)), SHOWN))
            rows = await cursor.fetchall()
        return {AGENT: [_item(item) for item in items], MEMORIES: [Held(*row) for row in rows]}

    async def held(self) -> dict[str, list[Held]]:
        """Return everything that each store holds."""
        items: list[Any] = []
        while page := await self._agent.asearch(("memories",), limit=1_000, offset=len(items)):
            items += page
        async with self._pool.connection() as connection:
            rows = await (await connection.execute(_ALL)).fetchall()
        return {AGENT: [_item(item) for item in items], MEMORIES: [Held(*row) for row in rows]}


def _item(item: Any) -> Held:
    return Held(str(item.value.get("fact_id")), str(item.key), str(item.value.get("text")))


@asynccontextmanager
async def open_world(uri: str) -> AsyncIterator[World]:
    """Connect both stores to one Postgres and disconnect them afterwards."""
    embed = WordEmbedder(DIMENSIONS)
    pool: AsyncConnectionPool[Any] = AsyncConnectionPool(uri, min_size=1, max_size=8, open=False)
    async with (
        AsyncPostgresStore.from_conn_string(
            uri,
            pool_config={"min_size": 1, "max_size": 4},
            index={"dims": DIMENSIONS, "embed": embed.many, "fields": ["text"]},
        ) as agent,
        pool,
    ):
        yield World(agent, pool, embed)
