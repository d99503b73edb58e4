"""A Postgres ledger whose connections can be ended or cut at a point of its commits."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from fix_ledger import START, Book, open_book

from custody_sync.faultpoints import FaultPoint
from custody_sync.testing import FaultPlan, ManualClock, testing_runtime


class AtPoint(FaultPlan):
    """A plan that can also do something at a point, which then goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.does: dict[FaultPoint, Any] = {}

    def __call__(self, point: str) -> None:
        """Reach a point."""
        action = self.does.pop(FaultPoint(point), None)
        if action is not None:
            action()
        super().__call__(point)


@dataclass
class Somebody:
    """An operator of the server, with a connection of their own."""

    url: str

    def run(self, statement: str) -> list[Any]:
        """Execute a statement and return its rows."""
        with psycopg.connect(self.url.partition("&schema=")[0], autocommit=True) as conn:
            cursor = conn.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def end_others(self) -> None:
        """End every other connection, as a restart does."""
        self.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )


@pytest.fixture
async def cut(schema_url: str) -> AsyncIterator[tuple[Book, AtPoint, Somebody]]:
    """A book, what happens in the middle of its commits, and somebody who interferes."""
    plan = AtPoint()
    runtime = testing_runtime(clock=ManualClock(START), reach=plan)
    book = await open_book(Path("none"), url=schema_url, runtime=runtime, clock=runtime.clock, witness=False)
    yield book, plan, Somebody(schema_url)
    await book.ledger.close()


class Proxy:
    """Passes messages between a ledger and its server, and cuts both off around a COMMIT.

    While it refuses, no connection is made, and that cut is one of all that there are.

    In threads of its own: it has to go on whatever the event loop under test does.
    """

    def __init__(self, server: str, front: str) -> None:
        self.cut_before = self.cut_after = self.refuses = False
        self._server = server
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(front)
        self._listening.listen()
        self._ends: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                if self.refuses:
                    client.close()
                    continue
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._server)
                self._ends += [client, server]
                for source, target, forth in ((client, server, True), (server, client, False)):
                    passing = threading.Thread(target=self._pass, args=(source, target, forth))
                    passing.start()
                    self._threads.append(passing)

    def _pass(self, source: socket.socket, target: socket.socket, forth: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 20):
                if b"COMMIT" in data and (self.cut_before if forth else self.cut_after):
                    self.cut_before = self.cut_after = False
                    if self.refuses:
                        self.cut()
                    break
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        """Cut whatever is connected."""
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End everything."""
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self.cut()
        for thread in self._threads:
            thread.join()
        for end in (self._listening, *self._ends):
            end.close()


@pytest.fixture
async def proxied(
    schema_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Book, Proxy]]:
    """A book whose connections go through a proxy."""
    uri, _, rest = schema_url.partition("?host=")
    folder, _, schema = rest.partition("&")
    front = tmp_path_factory.mktemp("p")
    proxy = Proxy(f"{folder}/.s.PGSQL.5432", str(front / ".s.PGSQL.5432"))
    try:
        book = await open_book(front, url=f"{uri}?host={front}&{schema}", witness=False)
        yield book, proxy
        await book.ledger.close()
    finally:
        proxy.close()
