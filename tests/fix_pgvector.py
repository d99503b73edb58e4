"""Pools on an empty database with pgvector, adapters on them, and questions past the adapter."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pytest

from custody_sync.testing.contract_case import Case, StoreHooks
from custody_sync.testing.embedding import WordEmbedder

if TYPE_CHECKING:
    from psycopg_pool import AsyncConnectionPool

    from custody_sync.adapters.pgvector import PgVectorStore
    from custody_sync.model import Fact, Label

DIMENSIONS = 32
EMBED = WordEmbedder(DIMENSIONS)

Connect: TypeAlias = "Callable[..., AsyncConnectionPool[Any]]"
Index: TypeAlias = 'Literal["hnsw"] | None'


@pytest.fixture
async def connect(database_uri: str) -> AsyncIterator[Connect]:
    """Return a maker of pools on an empty database; all of them are closed afterwards."""
    from psycopg_pool import AsyncConnectionPool

    pools: list[AsyncConnectionPool[Any]] = []

    def make(uri: str = database_uri, **options: Any) -> AsyncConnectionPool[Any]:
        settings: dict[str, Any] = {"min_size": 1, "max_size": 4, "kwargs": {"autocommit": True}} | options
        pools.append(AsyncConnectionPool(uri, open=False, **settings))
        return pools[-1]

    yield make
    for pool in pools:
        await pool.close()


def store_of(pool: AsyncConnectionPool[Any], **options: Any) -> PgVectorStore:
    """Return an adapter on the table `facts`."""
    from custody_sync.adapters.pgvector import PgVectorStore

    settings: dict[str, Any] = {"table": "facts", "dimensions": DIMENSIONS, "embed": EMBED} | options
    return PgVectorStore(pool, **settings)


def database_of(uri: str) -> str:
    """Return the name of the database a connection string leads to."""
    from psycopg.conninfo import conninfo_to_dict

    return str(conninfo_to_dict(uri)["dbname"])


def case_of(store: PgVectorStore) -> Case:
    """Return the contract's toolbox for one store."""
    return Case("integration", store, StoreHooks())


async def ask(uri: str, statement: str, parameters: Sequence[object] | None = None) -> list[tuple[Any, ...]]:
    """Ask the database past the adapter."""
    import psycopg

    async with await psycopg.AsyncConnection.connect(uri, autocommit=True) as connection:
        cursor = await connection.execute(statement.encode(), parameters)
        return await cursor.fetchall() if cursor.description else []


async def fill(case: Case, count: int) -> list[tuple[Fact, Label]]:
    """Put many facts at once."""
    facts = [case.fact(f"note {n}", space=f"user:{n % 5}") for n in range(count)]
    pairs = [(fact, case.label(fact)) for fact in facts]
    await case.store.put_many(pairs)
    return pairs
