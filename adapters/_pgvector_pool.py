"""The caller's pool: opened and set up at the first use, asked in one statement or in a transaction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from custody_sync.adapters._failures import translated
from custody_sync.adapters._shared import OneLoop, vendor
from custody_sync.errors import InvalidStore

if TYPE_CHECKING:
    from psycopg import AsyncConnection, AsyncCursor
    from psycopg_pool import AsyncConnectionPool

T = TypeVar("T")

# Another session that makes the same thing without our lock; seen again, it is there.
_MADE_MEANWHILE = frozenset({"23505", "42710", "42P07"})
_ATTEMPTS = 3


class Pool:
    """Ask a database through a pool with any row factory, with or without autocommit.

    Args:
        name: The store's name, for errors.
        pool: A psycopg `AsyncConnectionPool`; an unopened one is opened at the first use.
        set_up: What has to be done once before anything is asked; tried again after a failure.
    """

    def __init__(
        self,
        name: str,
        pool: AsyncConnectionPool[Any],
        set_up: Callable[[AsyncCursor[Any]], Awaitable[None]],
    ) -> None:
        self._rows = vendor("psycopg.rows", feature="PgVectorStore", extra="pgvector").tuple_row
        self._idle = vendor("psycopg.pq", feature="PgVectorStore", extra="pgvector").TransactionStatus.IDLE
        if not callable(getattr(pool, "connection", None)) or not callable(getattr(pool, "open", None)):
            raise InvalidStore(
                store=name, problem=f"{type(pool).__name__} is not a psycopg AsyncConnectionPool"
            )
        self._name = name
        self._pool = pool
        self._set_up = set_up
        self._loop = OneLoop(name)
        self._is_set_up = False
        self._opened_here = False
        self._setting_up = asyncio.Lock()

    def check(self) -> None:
        """Refuse another event loop than the one the pool lives in."""
        self._loop.check()

    async def ask(
        self, operation: str, work: Callable[[AsyncCursor[Any]], Awaitable[T]], *, transaction: bool = False
    ) -> T:
        """Let something be asked over one cursor, and turn its errors into ours."""

        async def asked() -> T:
            async with self.cursor(transaction=transaction) as cursor:
                return await work(cursor)

        return await translated(self._name, operation, asked())

    @asynccontextmanager
    async def cursor(self, *, transaction: bool = False) -> AsyncIterator[AsyncCursor[Any]]:
        """Lend a cursor that makes tuples, once everything is set up."""
        await self.ready()
        async with (
            self._pool.connection() as connection,
            connection.transaction() if transaction else self._one_by_one(connection),
            self._open(connection) as cursor,
        ):
            yield cursor

    async def ready(self) -> None:
        """Open the pool and set up what is asked, once."""
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
                    await self._set_up_now()
                    break
                except Exception as error:
                    if attempt == _ATTEMPTS or getattr(error, "sqlstate", None) not in _MADE_MEANWHILE:
                        raise
            self._is_set_up = True

    async def aclose(self) -> None:
        """Close the pool if it was opened here; a caller's own stays open."""
        if self._opened_here:
            await self._pool.close()

    async def _set_up_now(self) -> None:
        async with (
            self._pool.connection() as connection,
            connection.transaction(),
            self._open(connection) as cursor,
        ):
            await self._set_up(cursor)

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
