"""The pool of a ledger's connections, which keeps to itself what it would tell a log.

psycopg_pool logs the server's own words and its connections, which name the user and more, and it
does so on stderr where nobody set up logging. What fails is told by our errors, host and database only.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

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
    """A pool that logs nothing; pools of the application go on as they are."""

    async def open(self, wait: bool = False, timeout: float = 30.0) -> None:
        """Begin to connect."""
        for name in _LOGGERS:
            # One and the same function is added once.
            logging.getLogger(name).addFilter(_is_of_others)
        with _unlogged():
            await super().open(wait, timeout)

    async def getconn(self, timeout: float | None = None) -> AsyncConnection[Any]:
        """Take a connection."""
        with _unlogged():
            return await super().getconn(timeout)

    async def putconn(self, conn: AsyncConnection[Any]) -> None:
        """Give a connection back."""
        with _unlogged():
            await super().putconn(conn)

    async def check(self) -> None:
        """Replace the connections that are gone."""
        with _unlogged():
            await super().check()

    async def close(self, timeout: float = 5.0) -> None:
        """Close the connections."""
        with _unlogged():
            await super().close(timeout)
