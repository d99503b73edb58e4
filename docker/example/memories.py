"""The stores that the command reaches: one pgvector table. Put your own beside custody.toml in its place."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from psycopg_pool import AsyncConnectionPool

from custody_sync import Store
from custody_sync.adapters.pgvector import PgVectorStore


async def embed(text: str) -> list[float]:
    """Stand for your embedding model: it has to be the one that the application writes with."""
    return [float(text.count(letter)) + 0.1 for letter in "aeinorst"]


@asynccontextmanager
async def stores() -> AsyncIterator[list[Store]]:
    """Open what the application writes to, by the name that it has there."""
    async with AsyncConnectionPool(os.environ["MEMORIES_URL"], open=False) as pool:
        yield [PgVectorStore(pool, table="notes", dimensions=8, embed=embed, name="notes")]
