"""The pool of a ledger's connections, which keeps to itself what it would tell a log.

psycopg_pool logs the server's own words and its connections, which name the user and more, and it
does so on stderr where nobody set up logging. What fails is told by our errors, host and database only.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection
from psycopg.pq import TransactionStatus
from psycopg_pool import AsyncConnectionPool, PoolClosed

T = TypeVar("T")

_LOGGERS = ("psycopg.pool", "psycopg_pool.sched_async")
_ours: ContextVar[bool] = ContextVar("custody_sync_pool", default=False)


def _is_of_others(record: logging.LogRecord) -> bool:
    return not _ours.get()


@contextmanager
def _unlogged() -> Iterator[None]:
    """Work for a pool of ours; tasks that are begun meanwhile do so for good."""
    token = _ours.set(True)
    try:
        yield
    finally:
        _ours.reset(token)


class Pool(AsyncConnectionPool[AsyncConnection[Any]]):
    """A pool that logs nothing; pools of the application go on as they are.

    It begins to connect when one connection is not enough: many who open a ledger ask one thing.

    Args:
        first: the connection that the ledger was found by, to be used and closed like its own.
        options: the pool's.
    """

    def __init__(self, first: AsyncConnection[Any] | None, **options: Any) -> None:
        super().__init__(open=False, **options)
        self._first = self._idle = first
        self._ends = False

    async def open(self, wait: bool = False, timeout: float = 30.0) -> None:
        """Begin to connect; once it was closed, whether or not it had begun, it does not any more."""
        if self._ends:
            raise PoolClosed("the pool is closed")
        for name in _LOGGERS:
            # One and the same function is added once.
            logging.getLogger(name).addFilter(_is_of_others)
        with _unlogged():
            await super().open(wait, timeout)

    async def getconn(self, timeout: float | None = None) -> AsyncConnection[Any]:
        """Take a connection."""
        idle, self._idle = self._idle, None
        if idle is not None and not idle.closed:
            return idle
        if self.closed:
            await self.open()
        with _unlogged():
            return await super().getconn(timeout)

    async def putconn(self, conn: AsyncConnection[Any]) -> None:
        """Give a connection back."""
        if conn is not self._first:
            with _unlogged():
                await super().putconn(conn)
        elif conn.info.transaction_status is TransactionStatus.IDLE and not self._ends:
            self._idle = conn
        else:
            await conn.close()

    async def lend(self, query: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Ask something over a connection; each of its statements is a transaction of its own.

        What `connection()` adds, a commit of nothing, would close the first one, which is not the pool's.
        """
        conn = await self.getconn()
        try:
            return await query(conn, *args)
        finally:
            await self.putconn(conn)

    async def check(self) -> None:
        """Replace the connections that are gone."""
        if self._idle is not None and not await _answers(self._idle):
            self._idle = None
        await self.open()
        with _unlogged():
            await super().check()

    async def close(self, timeout: float = 5.0) -> None:
        """Close the connections; one that is in use is closed when it is given back."""
        self._ends = True
        idle, self._idle = self._idle, None
        if idle is not None:
            await idle.close()
        with _unlogged():
            await super().close(timeout)


async def _answers(conn: AsyncConnection[Any]) -> bool:
    try:
        await conn.execute(b"SELECT 1")
    except psycopg.Error:
        await conn.close()
        return False
    return True
