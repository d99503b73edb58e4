"""A pgvector table keeps the contract with and without an approximate index, and so does its sabotage."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fakes.pgvector_tables import APP, LANGCHAIN, MEM0, Shape
from fakes.postgres_line import Line, lined
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from custody_sync.adapters.pgvector import Distance, PgVectorStore, VectorType
from custody_sync.testing import NotApplicable, StoreContract, StoreHooks
from custody_sync.testing.contract_case import Trouble
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


ABSENT = {
    Trouble.LAG: "an HNSW index is part of the table's transactions: what is deleted is served no more",
    Trouble.THROTTLED: "Postgres has no rate limit; too many connections are an outage",
    Trouble.FAILS_AFTER: "Postgres answers with an error only if nothing was committed",
    Trouble.REPEATS: "a page begins after the last key, whatever the page before had",
    Trouble.SKIPS: "a page is one statement, which leaves out no row that is there",
    Trouble.PENDING: "a commit is answered when it is done",
    Trouble.EMPTY_BODY: "Postgres has no empty answers",
}


class PgVectorHooks(StoreHooks):
    """Sabotage in the database itself and on the line to it, and a stranger's row."""

    uri: str
    embed: FragileEmbedder
    line: Line
    table = TABLE
    embedding = "embedding"

    @asynccontextmanager
    async def pool(self, uri: str, options: str = "") -> AsyncIterator[AsyncConnectionPool[AsyncConnection]]:
        """Yield a pool on a database of the test's own, over a line that may break."""
        self.uri, self.embed = uri, FragileEmbedder(DIMENSIONS)
        # Prepared statements would keep from the line what is asked.
        settings = {"options": options, "prepare_threshold": None}
        async with (
            lined(uri) as (through, self.line),
            AsyncConnectionPool(through, min_size=1, max_size=8, open=False, kwargs=settings) as pool,
        ):
            yield pool

    async def execute(self, *statements: str, parameters: Any = None) -> Any:
        """Run statements past the store and return the first value of the last one's answer."""
        async with await AsyncConnection.connect(self.uri, autocommit=True) as connection:
            for statement in statements:
                cursor = await connection.execute(statement.encode(), parameters)
            row = await cursor.fetchone() if cursor.description else None
        return row and row[0]

    async def break_delete(self, store: PgVectorStore) -> None:
        """Let a trigger swallow every delete, which then reports success."""
        await self.execute(
            "create function keep() returns trigger language plpgsql as 'begin return null; end'",
            f"create trigger keep before delete on {self.table} for each row execute function keep()",
        )

    async def break_search(self, store: PgVectorStore) -> None:
        """Take the column of vectors away, so that only lookups by key still work."""
        await self.execute(f'alter table {self.table} rename column "{self.embedding}" to lost')

    async def make_trouble(self, store: PgVectorStore, trouble: Trouble, times: float = 1) -> None:
        """Break the line, or the deletes."""
        if trouble in ABSENT:
            raise NotApplicable(ABSENT[trouble])
        if trouble is Trouble.LYING_DELETE:
            await self.break_delete(store)
        else:
            self.line.make(trouble, times)

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


class ExistingTableHooks(PgVectorHooks):
    """A table that another program made."""

    shape: Shape

    @pytest.fixture
    async def store(self, database_uri: str) -> AsyncIterator[PgVectorStore]:
        """Yield an adapter of such a table in a fresh database."""
        async with self.pool(database_uri) as pool:
            await self.execute(*self.shape.ddl)
            schema = self.shape.existing.schema
            self.table = self.shape.table if schema is None else f"{schema}.{self.shape.table}"
            self.embedding = self.shape.existing.embedding
            yield PgVectorStore(
                pool,
                table=self.shape.table,
                dimensions=DIMENSIONS,
                embed=self.embed,
                page_size=20,
                existing=self.shape.existing,
            )

    async def put_unlabelled(self, store: PgVectorStore, text: str) -> str:
        """Insert a row as that program does."""
        vector = "[1" + ",0" * (DIMENSIONS - 1) + "]"
        return str(await self.execute(self.shape.stranger, parameters={"text": text, "vector": vector}))


class TestLangChainsTable(ExistingTableHooks, StoreContract):
    """The table of langchain-postgres: text ids, the label in JSON, one collection, vectors of any length."""

    many, crowd = 330, 121

    shape = LANGCHAIN


class TestApplicationsTable(ExistingTableHooks, StoreContract):
    """A table with ids that the database gives, the label in columns, a tenant and a required column."""

    many, crowd = 330, 121

    shape = APP


class TestMem0sTable(ExistingTableHooks, StoreContract):
    """Mem0's table: uuid ids, the text and the label in one JSON."""

    many, crowd = 330, 121

    shape = MEM0


class TestPgVectorStoreWithHnsw(PgVectorHooks, StoreContract):
    """A table with an HNSW index, which a filter, a crowd and dead rows could hide entries from."""

    vector_type: VectorType = "vector"
    distance: Distance = "cosine"

    @pytest.fixture
    async def store(self, database_uri: str) -> AsyncIterator[PgVectorStore]:
        """Yield one in a fresh database."""
        # In a small table the planner would pass over the index, and with it over what the index does.
        async with self.pool(database_uri, "-c enable_seqscan=off -c enable_sort=off") as pool:
            yield PgVectorStore(
                pool,
                table=TABLE,
                dimensions=DIMENSIONS,
                embed=self.embed,
                index="hnsw",
                vector_type=self.vector_type,
                distance=self.distance,
            )

    async def break_search(self, store: PgVectorStore) -> None:
        """Take the embedding service away."""
        self.embed.is_down = True


class TestPgVectorStoreWithHalfvec(TestPgVectorStoreWithHnsw):
    """Vectors of half precision under an HNSW index on Euclidean distance."""

    many, crowd = 330, 121

    vector_type = "halfvec"
    distance = "l2"
