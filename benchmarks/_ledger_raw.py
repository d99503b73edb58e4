"""The floor of every question: the very statements a ledger issues, through the driver alone."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from custody_sync.ledger.sqlite_connection import Connection

PRAGMAS = ("secure_delete = ON", "journal_mode = WAL", "synchronous = FULL", "temp_store = MEMORY")


class Statement(NamedTuple):
    """One statement as it was issued."""

    sql: Any
    parameters: Any = ()
    how: str = ""
    """`many` times, or as one `message` of several statements with its parameters written into it."""


class Floor(Protocol):
    """A database reached through its driver alone."""

    def open_and_run(self, statements: Sequence[Statement]) -> float:
        """Connect, ask, and return the seconds it took."""
        ...

    def run(self, statements: Sequence[Statement]) -> float:
        """Issue statements, fetch and decode all their rows, and return the seconds it took."""
        ...

    def close(self) -> None:
        """Let go of the connection."""
        ...


def decoded(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Read the JSON that rows hold, as whoever issues the statements by hand has to."""
    return [
        [json.loads(value) if type(value) is str and value[:1] == "{" else value for value in row]
        for row in rows
    ]


class SqliteFloor:
    """A ledger's file and `sqlite3`.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._conn = self._connect()

    def _connect(self) -> sqlite3.Connection:
        conn = sqlite3.connect(self._path, isolation_level=None)
        for pragma in PRAGMAS:
            conn.execute(f"PRAGMA {pragma}")
        return conn

    def open_and_run(self, statements: Sequence[Statement]) -> float:
        """Connect as a program does that will write as well."""
        start = time.perf_counter()
        conn = self._connect()
        for statement in statements:
            decoded(conn.execute(*statement[:2]).fetchall())
        taken = time.perf_counter() - start
        conn.close()
        return taken

    def run(self, statements: Sequence[Statement]) -> float:
        """Issue statements on the connection that is open."""
        conn = self._conn
        start = time.perf_counter()
        for sql, parameters, how in statements:
            if how == "many":
                conn.executemany(sql, parameters)
            else:
                decoded(conn.execute(sql, parameters).fetchall())
        return time.perf_counter() - start

    def close(self) -> None:
        """Let go of the file."""
        self._conn.close()


@dataclass(slots=True)
class Recorder:
    """Notes what a storage issues while a block runs, by connection."""

    noted: list[tuple[object, Any, Any, str]] = field(default_factory=list)
    """Connection, SQL, parameters and how: plain pairs of what is at hand, since noting is timed as well."""

    def note(self, connection: object, sql: Any, parameters: Any = (), how: str = "") -> None:
        """Note one statement."""
        self.noted.append((connection, sql, parameters, how))

    @property
    def statements(self) -> list[Statement]:
        """What the busiest connection issued: another one may read for the witness meanwhile."""
        issued: dict[int, list[Statement]] = {}
        for connection, *said in self.noted:
            statement = Statement(*said)
            # A lock that was not had is asked for again, and begins nothing.
            if not str(statement.sql).startswith("PRAGMA busy_timeout"):
                issued.setdefault(id(connection), []).append(statement)
        return max(issued.values(), key=len, default=[])

    def taken(self) -> list[Statement]:
        """Return the statements, and begin anew."""
        statements = self.statements
        self.noted.clear()
        return statements

    def last_transaction(self) -> list[Statement]:
        """Return the last read: one that was interrupted and asked again is counted once."""
        statements = self.statements
        begins = [i for i, statement in enumerate(statements) if statement.sql == "BEGIN"]
        return statements[begins[-1] :] if begins else statements


@contextmanager
def recording_sqlite() -> Iterator[Recorder]:
    """Note the statements of every SQLite connection of ours; waiting for a lock costs a floor nothing."""
    recorder = Recorder()
    note = recorder.note

    def execute(self: Connection, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        made: sqlite3.Cursor = plain["execute"](self, sql, parameters)
        note(self, sql, parameters)
        return made

    def executemany(self: Connection, sql: str, parameters: Any, /) -> sqlite3.Cursor:
        note(self, sql, list(parameters), "many")
        return sqlite3.Connection.executemany(self, sql, parameters)

    def begin(self: Connection) -> None:
        note(self, "BEGIN")
        plain["begin"](self)

    def leave(self: Connection) -> None:
        if self.in_transaction:
            note(self, "ROLLBACK")
        plain["leave"](self)

    patches: dict[str, Any] = {"execute": execute, "begin": begin, "leave": leave}
    plain = {name: getattr(Connection, name) for name in patches}
    for name, patch in (patches | {"executemany": executemany}).items():
        setattr(Connection, name, patch)
    try:
        yield recorder
    finally:
        for name, original in plain.items():
            setattr(Connection, name, original)
        del Connection.executemany


Recording = Callable[[], Any]
"""Makes a context manager that gives a recorder."""


async def record(recording: Recording, ask: Callable[[], Awaitable[Any]]) -> list[Statement]:
    """Return what one question issues."""
    with recording() as recorder:
        await ask()
    statements: list[Statement] = recorder.last_transaction()
    return statements
