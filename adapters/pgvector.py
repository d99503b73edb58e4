"""Custody for a Postgres table with pgvector, one row per entry.

The table is ours: key, label, text and vector are columns, so that a fact can be found by its id,
listed by its key and proved absent without an approximate index having a say.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from custody_sync.adapters._failures import describe, translated
from custody_sync.adapters._pgvector_rows import entry_of, row_of, score_of
from custody_sync.adapters._pgvector_sql import COLUMNS, INDEXED, checked_table, compose, index_name, quoted
from custody_sync.adapters._pgvector_together import Together
from custody_sync.adapters._pgvector_vectors import Embed, Embedder
from custody_sync.adapters._shared import OneLoop, WorkerThreads, vendor
from custody_sync.errors import InvalidInput, InvalidStore, StoreError
from custody_sync.model import Capability, Entry, Fact, Hit, Label, Level, Limits, Support

if TYPE_CHECKING:
    from psycopg import AsyncConnection, AsyncCursor
    from psycopg_pool import AsyncConnectionPool

T = TypeVar("T")

_MOST_DIMENSIONS, _MOST_INDEXED = 16_000, 2_000
# Another session that makes the same thing without our lock; seen again, it is there.
_MADE_MEANWHILE = frozenset({"23505", "42710", "42P07"})
_ATTEMPTS = 3


class PgVectorStore:
    """Keep facts in a pgvector table.

    The extension, the table and its indexes are made at the first use, and that is tried again
    after a failure. The pool is the caller's: with any row factory, with or without autocommit,
    opened or not; an unopened one is opened at the first use and closed by its owner, or by
    `aclose`, which the synchronous `Coordinator` calls before its loop ends.

    Args:
        pool: A psycopg `AsyncConnectionPool`.
        table: A plain identifier.
        dimensions: The length of every vector.
        embed: Turns a text into a vector; a coroutine function, or a plain one, called in a thread.
        name: The store's name in a coordinator.
        index: "hnsw" makes an approximate index, which a search uses; None searches exactly.
        vacuum: Run VACUUM (INDEX_CLEANUP ON) after a forget. With a large HNSW index that takes
            minutes, so it is off by default.
        limits: The largest text the embedding model takes, if that is known.
        page_size: How many rows a page of a listing has.
        threads: How many calls of a blocking `embed` may run at once.
        executor: Runs these calls instead of own threads.
    """

    def __init__(
        self,
        pool: AsyncConnectionPool[Any],
        *,
        table: str,
        dimensions: int,
        embed: Embed,
        name: str = "pgvector",
        index: Literal["hnsw"] | None = None,
        vacuum: bool = False,
        limits: Limits | None = None,
        page_size: int = 5_000,
        threads: int = 16,
        executor: Executor | None = None,
    ) -> None:
        self.name = name
        self.limits = limits or Limits()
        self.capabilities: Mapping[Capability, Support] = {
            Capability.RELABEL: Support(Level.NONE, "a label is part of its row; put the fact again")
        }
        self._table = checked_table(table)
        self._dimensions = _checked_dimensions(dimensions, index)
        if page_size < 1:
            raise InvalidInput(field="page_size", problem=f"{page_size} is not at least 1")
        self._sql = compose(self._table, self._dimensions)
        self._rows = vendor("psycopg.rows", feature="PgVectorStore", extra="pgvector").tuple_row
        self._idle = vendor("psycopg.pq", feature="PgVectorStore", extra="pgvector").TransactionStatus.IDLE
        if not callable(getattr(pool, "connection", None)) or not callable(getattr(pool, "open", None)):
            raise InvalidStore(
                store=name, problem=f"{type(pool).__name__} is not a psycopg AsyncConnectionPool"
            )
        self._pool = pool
        threads_of_embed = WorkerThreads(name, limit=threads, executor=executor)
        self._embed = Embedder(name, embed, self._dimensions, threads_of_embed)
        self._index = index
        self._vacuum = vacuum
        self._page_size = page_size
        self._is_absent = Together(self._absent)
        self._is_dropped = Together(self._dropped)
        self._loop = OneLoop(name)
        self._is_set_up = False
        self._opened_here = False
        self._setting_up = asyncio.Lock()

    # --- the two verbs ---------------------------------------------------------------------

    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        """Write the row of `label.key`, or write it again; the vector is checked before."""
        row = row_of(fact, label, await self._embed(fact.text or ""))
        await self._change("put", self._sql.put, row)
        return (label.key,)

    async def put_many(self, items: Sequence[tuple[Fact, Label]]) -> Sequence[Sequence[str]]:
        """Write many rows in one pipeline and one transaction: all of them or none."""
        vectors = await self._embed.many([fact.text or "" for fact, _ in items])
        rows = [row_of(fact, label, vector) for (fact, label), vector in zip(items, vectors, strict=True)]

        async def write(cursor: AsyncCursor[Any]) -> None:
            await cursor.executemany(self._sql.put, rows)

        await self._ask("put_many", write, transaction=True)
        return [(label.key,) for _, label in items]

    async def delete(self, entry: Entry) -> None:
        """Delete the row of the entry's key."""
        self._loop.check()
        if not await self._is_dropped(entry):
            await self._change("delete", self._sql.delete, (entry.external_id,))

    # --- what it can be asked --------------------------------------------------------------

    async def find(self, fact_id: str) -> list[Entry]:
        """Return every row of the fact."""
        rows = await self._fetch("find", self._sql.find, (fact_id,))
        return [entry_of(self.name, row, text=row[6]) for row in rows]

    async def list_entries(self) -> AsyncIterator[Entry]:
        """Yield every row, without its text, page by page along the key, which nothing moves.

        One page is read ahead, and then neither a connection nor a snapshot is held, so a sweep
        may take its time.
        """
        ahead = asyncio.create_task(self._page(None))
        try:
            while rows := await ahead:
                is_last = len(rows) < self._page_size
                if not is_last:
                    ahead = asyncio.create_task(self._page(rows[-1][0]))
                for row in rows:
                    yield entry_of(self.name, row)
                if is_last:
                    return
        finally:
            ahead.cancel()
            await asyncio.gather(ahead, return_exceptions=True)

    async def verify_deleted(self, entry: Entry) -> bool:
        """Look by key, by fact id and, while the text is known, by an exact search for it.

        That search passes over every index and looks at all rows as near as an equal text, so
        neither a crowd of equal texts nor a damaged index can hide the row.
        """
        if not entry.text:
            self._loop.check()
            return await self._is_absent(entry)
        wanted = {"key": entry.external_id, "fact_id": entry.fact_id, "text": entry.text}
        wanted["vector"] = await self._embed(entry.text)

        async def look(cursor: AsyncCursor[Any]) -> bool:
            await cursor.execute(self._sql.keys, wanted)
            if any(key == entry.external_id for (key,) in await cursor.fetchall()):
                return False
            await cursor.execute(self._sql.no_index_at_all)
            return not await _yes(cursor, self._sql.is_near, wanted)

        return await self._ask("verify_deleted", look, transaction=True)

    async def search(self, query: str, k: int, spaces: Sequence[str] | None) -> list[Hit]:
        """Return the nearest rows; where the index comes back short, ask again without it."""
        if k < 1 or (spaces is not None and not spaces):
            return []
        wanted = {"vector": await self._embed(query), "k": k, "spaces": list(spaces or ())}
        nearest = self._sql.nearest if spaces is None else self._sql.nearest_in

        async def look(cursor: AsyncCursor[Any]) -> list[tuple[Any, ...]]:
            if self._index is not None:
                await cursor.execute(self._sql.scan_on)
                await cursor.execute(nearest, wanted)
                rows = await cursor.fetchall()
                if len(rows) == k:
                    return rows
            await cursor.execute(self._sql.no_index_scan)
            await cursor.execute(nearest, wanted)
            return await cursor.fetchall()

        rows = await self._ask("search", look, transaction=True)
        return [Hit(entry=entry_of(self.name, row, text=row[6]), score=score_of(row[7])) for row in rows]

    def scope_of(self, fact: Fact) -> str | None:
        """Return None: one table holds every space, and `space` is a column."""
        return None

    async def after_forget(self, entries: Sequence[Entry]) -> Sequence[str]:
        """Say what stays on disk until which VACUUM, and run it if the store was made to."""
        if not entries:
            return ()
        elsewhere = "Write-ahead log, replicas and backups of the database follow their own retention."
        if not self._vacuum:
            waits = (
                f"Postgres keeps the deleted rows of {self._table} on disk until VACUUM (INDEX_CLEANUP ON)"
            )
            return f"{waits}, and their bytes until free space is used again or VACUUM FULL.", elsewhere
        return await self._vacuumed(), elsewhere

    async def aclose(self) -> None:
        """Close the pool if this store opened it; a caller's own stays open."""
        if self._opened_here:
            await self._pool.close()

    # --- set-up ----------------------------------------------------------------------------

    async def _ready(self) -> None:
        self._loop.check()
        if self._is_set_up:
            return
        async with self._setting_up:
            if self._is_set_up:
                return
            if self._pool.closed:
                await self._pool.open()
                self._opened_here = True
            for attempt in range(1, _ATTEMPTS + 1):
                try:
                    await self._set_up()
                    break
                except Exception as error:
                    if attempt == _ATTEMPTS or getattr(error, "sqlstate", None) not in _MADE_MEANWHILE:
                        raise
            self._is_set_up = True

    async def _set_up(self) -> None:
        # What is there is left alone, so a role that may not create anything can use a finished table.
        async with (
            self._pool.connection() as connection,
            connection.transaction(),
            self._open(connection) as cursor,
        ):
            await cursor.execute(self._sql.lock)
            if not await _yes(cursor, self._sql.type_is_there):
                await cursor.execute(self._sql.create_type)
            if not await self._is_there(cursor, self._table):
                await cursor.execute(self._sql.create_table)
            await self._check_columns(cursor)
            for column in INDEXED:
                wanted = column != "embedding" or self._index is not None
                if wanted and not await self._is_there(cursor, index_name(self._table, column)):
                    await cursor.execute(getattr(self._sql, f"create_{column}_index"))

    async def _is_there(self, cursor: AsyncCursor[Any], name: str) -> bool:
        return await _yes(cursor, self._sql.relation_is_there, (quoted(name),))

    async def _check_columns(self, cursor: AsyncCursor[Any]) -> None:
        await cursor.execute(self._sql.columns, (quoted(self._table),))
        columns: dict[str, str] = dict(await cursor.fetchall())
        missing = sorted(COLUMNS - columns.keys())
        if missing:
            problem = (
                f"{self._table} is there and is not a custody-sync table: it has no {', '.join(missing)}"
            )
            raise InvalidInput(field="table", problem=problem)
        if columns["embedding"] != f"vector({self._dimensions})":
            problem = f"{self._table} holds {columns['embedding']}, the store was given {self._dimensions}"
            raise InvalidInput(field="dimensions", problem=problem)

    # --- inside ----------------------------------------------------------------------------

    async def _ask(
        self, operation: str, work: Callable[[AsyncCursor[Any]], Awaitable[T]], *, transaction: bool = False
    ) -> T:
        async def asked() -> T:
            await self._ready()
            async with (
                self._pool.connection() as connection,
                connection.transaction() if transaction else self._one_by_one(connection),
                self._open(connection) as cursor,
            ):
                return await work(cursor)

        return await translated(self.name, operation, asked())

    @asynccontextmanager
    async def _one_by_one(self, connection: AsyncConnection[Any]) -> AsyncIterator[None]:
        """Let every statement be its own transaction, without the round trips for BEGIN and COMMIT."""
        before = connection.autocommit
        if not before:
            await connection.set_autocommit(True)
        try:
            yield
        finally:
            # One that is not idle now is broken, and the pool will close it.
            if not before and connection.info.transaction_status == self._idle:
                await connection.set_autocommit(False)

    def _open(self, connection: AsyncConnection[Any]) -> AsyncCursor[Any]:
        # The pool's own row factory may make anything of a row.
        return connection.cursor(row_factory=self._rows)

    async def _change(self, operation: str, statement: Any, parameters: Any) -> None:
        async def change(cursor: AsyncCursor[Any]) -> None:
            await cursor.execute(statement, parameters)

        await self._ask(operation, change)

    async def _fetch(self, operation: str, statement: Any, parameters: Any) -> list[tuple[Any, ...]]:
        async def fetch(cursor: AsyncCursor[Any]) -> list[tuple[Any, ...]]:
            await cursor.execute(statement, parameters)
            return await cursor.fetchall()

        return await self._ask(operation, fetch)

    async def _dropped(self, entries: Sequence[Entry]) -> list[bool]:
        """Delete what nobody has locked; what is not certain after that is for each caller to do alone."""
        wanted = ([entry.external_id for entry in entries],)
        try:
            gone = {key for (key,) in await self._fetch("delete", self._sql.delete_free, wanted)}
        except StoreError:
            gone = set()
        return [entry.external_id in gone for entry in entries]

    async def _absent(self, entries: Sequence[Entry]) -> list[bool]:
        wanted = {"keys": [e.external_id for e in entries], "fact_ids": [e.fact_id for e in entries]}
        there = {key for (key,) in await self._fetch("verify_deleted", self._sql.keys_of, wanted)}
        return [entry.external_id not in there for entry in entries]

    async def _page(self, after: str | None) -> list[tuple[Any, ...]]:
        if after is None:
            return await self._fetch("list_entries", self._sql.first_page, (self._page_size,))
        return await self._fetch("list_entries", self._sql.next_page, (after, self._page_size))

    async def _vacuumed(self) -> str:
        vacuum = f"VACUUM (INDEX_CLEANUP ON) {self._table}"
        try:
            await self._ready()
            async with (
                self._pool.connection() as connection,
                self._one_by_one(connection),
                self._open(connection) as cursor,
            ):
                await cursor.execute(self._sql.vacuum)
                await cursor.execute(self._sql.dead_rows, (quoted(self._table),))
                row = await cursor.fetchone()
        except Exception as error:
            # The forget stands; what it leaves is to be said, not raised.
            return f"{vacuum} failed ({describe(error)}); deleted rows stay on disk."
        if row is not None and row[0]:
            return (
                f"{vacuum} left {row[0]} deleted rows, which an open transaction may still see; run it again."
            )
        return (
            f"{vacuum} has freed the deleted rows; bytes stay until the space is used again or VACUUM FULL."
        )


def _checked_dimensions(dimensions: object, index: str | None) -> int:
    if index not in (None, "hnsw"):
        raise InvalidInput(field="index", problem=f"{index!r} is neither None nor 'hnsw'")
    most = _MOST_DIMENSIONS if index is None else _MOST_INDEXED
    if isinstance(dimensions, bool) or not isinstance(dimensions, int) or not 1 <= dimensions <= most:
        limit = f"{most:,}" + ("" if index is None else " (the most an HNSW index takes)")
        raise InvalidInput(
            field="dimensions", problem=f"{dimensions!r} is not a whole number from 1 to {limit}"
        )
    return dimensions


async def _yes(cursor: AsyncCursor[Any], statement: Any, parameters: Any = None) -> bool:
    await cursor.execute(statement, parameters)
    row = await cursor.fetchone()
    return row is not None and row[0] is True


__all__ = ["PgVectorStore"]
