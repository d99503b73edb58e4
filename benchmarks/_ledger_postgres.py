"""A ledger in Postgres, and psycopg alone on the same rows or on a copy of its database."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psycopg
from _ledger_appends import Replay
from _ledger_log import Log
from _ledger_raw import Floor, Recorder, Recording, Statement, decoded
from _ledger_stores import Store
from psycopg import AsyncConnection
from psycopg.abc import PQGen
from psycopg.conninfo import make_conninfo
from psycopg.pq.abc import PGconn, PGresult

from custody_sync.ledger import postgres_wire
from custody_sync.ledger.postgres_schema import SESSION
from custody_sync.ledger.postgres_wire import Asking, Call, exchange, last
from custody_sync.ledger.postgres_wire import Statement as Prepared
from custody_sync.testing.postgres import EmbeddedPostgres

CONNECTIONS = 200
"""Each of many writers that only claim has one of its own."""


class PsycopgFloor:
    """A database and a synchronous psycopg connection, the fastest there is.

    Args:
        url: the database.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._conn = psycopg.connect(url, autocommit=True)
        self._conn.execute(SESSION)

    def open_and_run(self, statements: Sequence[Statement]) -> float:
        """Connect, as a program does once, and ask."""
        start = time.perf_counter()
        with psycopg.connect(self._url, autocommit=True) as conn:
            conn.execute(SESSION)
            _issue(conn, statements)
        return time.perf_counter() - start

    def run(self, statements: Sequence[Statement]) -> float:
        """Issue statements on the connection that is open."""
        start = time.perf_counter()
        _issue(self._conn, statements)
        return time.perf_counter() - start

    def close(self) -> None:
        """Let go of the connection."""
        self._conn.close()


def _issue(conn: psycopg.Connection[Any], statements: Sequence[Statement]) -> None:
    for sql, parameters, how in statements:
        if how == "message":
            last(conn.wait(exchange(conn.pgconn, sql)))
            continue
        cursor = conn.cursor()
        cursor.execute(sql, parameters)
        while True:
            if cursor.description is not None:
                decoded(cursor.fetchall())
            if not cursor.nextset():
                break


@contextmanager
def recording_postgres() -> Iterator[Recorder]:
    """Note the statements of every asynchronous connection; one that is prepared is told by its text."""
    recorder, plain, rows = Recorder(), AsyncConnection.execute, Asking.rows
    asking: set[PGconn] = set()

    async def execute(self: Any, query: Any, params: Any = None, **more: Any) -> Any:
        if self.pgconn not in asking:
            recorder.note(self.pgconn, query, params)
        return await plain(self, query, params, **more)

    async def asked(self: Asking, conn: AsyncConnection[Any], statement: Prepared, values: Any) -> Any:
        recorder.note(conn.pgconn, statement.given.encode(), values)
        asking.add(conn.pgconn)
        try:
            return await rows(self, conn, statement, values)
        finally:
            asking.discard(conn.pgconn)

    def noted(pgconn: PGconn, calls: Sequence[Call]) -> PQGen[list[PGresult]]:
        recorder.note(pgconn, list(calls), None, "message")
        return exchange(pgconn, calls)

    with (
        patch.object(AsyncConnection, "execute", execute),
        patch.object(postgres_wire, "exchange", noted),
        patch.object(Asking, "rows", asked),
    ):
        yield recorder


class PostgresStore(Store):
    """A ledger in a database of its own, and copies of the database for the floor."""

    recording: Recording = staticmethod(recording_postgres)
    _numbers = itertools.count(1)

    def __init__(self, folder: Path, server: str) -> None:
        super().__init__(folder, server)
        self._name = f"ledger{next(self._numbers)}"

    @classmethod
    def server(cls) -> AbstractContextManager[str]:
        """Run a server whose commits are durable."""
        return EmbeddedPostgres(durable=True, max_connections=CONNECTIONS)

    @property
    def url(self) -> str:
        """The database."""
        return self._url(self._name)

    def _url(self, database: str) -> str:
        host = psycopg.conninfo.conninfo_to_dict(self._server)["host"]
        return f"postgresql://postgres@/{database}?host={host}"

    def _do(self, *statements: str, database: str = "postgres") -> None:
        with psycopg.connect(make_conninfo(self._server, dbname=database), autocommit=True) as conn:
            for statement in statements:
                conn.execute(statement.encode())

    async def build(self, log: Log) -> None:
        """Fill it, and let Postgres count what is there."""
        self._do(f"CREATE DATABASE {self._name}")
        await super().build(log)
        self._do("VACUUM ANALYZE", database=self._name)

    def floor(self) -> Floor:
        """Return psycopg on the same database."""
        return PsycopgFloor(self.url)

    def _copied(self) -> str:
        copy = f"{self._name}_copy"
        self._do(f"DROP DATABASE IF EXISTS {copy}", f"CREATE DATABASE {copy} TEMPLATE {self._name}")
        return self._url(copy)

    @contextmanager
    def append_floor(self, events: int) -> Iterator[Replay]:
        """Issue the statements of the commits since the last time on a copy."""
        with closing(PsycopgFloor(self._copied())) as floor, recording_postgres() as recorder:

            async def replay() -> float:
                statements = recorder.taken()
                return floor.run(statements)

            yield replay

    @contextmanager
    def forget_floor(self) -> Iterator[Callable[[list[Statement]], float]]:
        """Issue the same statements on a copy."""
        with closing(PsycopgFloor(self._copied())) as floor:
            yield floor.run

    def drop(self) -> None:
        """Let go of both databases."""
        self._do(f"DROP DATABASE IF EXISTS {self._name}_copy", f"DROP DATABASE {self._name}")
        super().drop()
