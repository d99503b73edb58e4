"""A pgvector table keeps the contract with and without an approximate index, and so does its sabotage."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from custody_sync.adapters.pgvector import PgVectorStore
from custody_sync.testing import StoreContract, StoreHooks
from custody_sync.testing.embedding import WordEmbedder

DIMENSIONS = 64
TABLE = "facts"


class FragileEmbedder(WordEmbedder):
    """An embedder whose service can go away, quoting what it was asked for."""

    is_down = False

    def __call__(self, text: str) -> list[float]:
        """Return the vector, or fail."""
        if self.is_down:
            raise ConnectionError(f"no vector for {text}")
        return super().__call__(text)


class PgVectorHooks(StoreHooks):
    """Sabotage in the database itself, and a stranger's row."""

    uri: str
    embed: FragileEmbedder

    def pool(self, uri: str, options: str = "") -> AsyncConnectionPool[AsyncConnection]:
        """Return an unopened pool on a database of the test's own."""
        self.uri, self.embed = uri, FragileEmbedder(DIMENSIONS)
        return AsyncConnectionPool(uri, min_size=1, max_size=8, open=False, kwargs={"options": options})

    async def execute(self, *statements: str) -> None:
        """Run statements past the store."""
        async with await AsyncConnection.connect(self.uri, autocommit=True) as connection:
            for statement in statements:
                await connection.execute(statement.encode())

    async def break_delete(self, store: PgVectorStore) -> None:
        """Let a trigger swallow every delete, which then reports success."""
        await self.execute(
            "create function keep() returns trigger language plpgsql as 'begin return null; end'",
            f"create trigger keep before delete on {TABLE} for each row execute function keep()",
        )

    async def break_search(self, store: PgVectorStore) -> None:
        """Take the column of vectors away, so that only lookups by key still work."""
        await self.execute(f"alter table {TABLE} rename column embedding to lost")

    async def put_unlabelled(self, store: PgVectorStore, text: str) -> str:
        """Insert a row as another program would."""
        await store.find("nothing")
        zeros = ",".join("0" * (DIMENSIONS - 1))
        await self.execute(
            f"insert into {TABLE} (key, text, embedding) values ('strange', '{text}', '[1,{zeros}]')"
        )
        return "strange"


class TestPgVectorStore(PgVectorHooks, StoreContract):
    """A table without an approximate index; its listing has small pages."""

    @pytest.fixture
    async def store(self, database_uri: str) -> AsyncIterator[PgVectorStore]:
        """Yield one in a fresh database."""
        async with self.pool(database_uri) as pool:
            yield PgVectorStore(pool, table=TABLE, dimensions=DIMENSIONS, embed=self.embed, page_size=20)


class TestPgVectorStoreWithHnsw(PgVectorHooks, StoreContract):
    """A table with an HNSW index, which a filter, a crowd and dead rows could hide entries from."""

    @pytest.fixture
    async def store(self, database_uri: str) -> AsyncIterator[PgVectorStore]:
        """Yield one in a fresh database."""
        # In a small table the planner would pass over the index, and with it over what the index does.
        async with self.pool(database_uri, "-c enable_seqscan=off -c enable_sort=off") as pool:
            yield PgVectorStore(pool, table=TABLE, dimensions=DIMENSIONS, embed=self.embed, index="hnsw")

    async def break_search(self, store: PgVectorStore) -> None:
        """Take the embedding service away."""
        self.embed.is_down = True
