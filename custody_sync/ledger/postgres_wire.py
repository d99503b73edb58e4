"""Prepared statements of ours, many to a message, with their values beside them and not in their text.

A group's rows are some ten thousand characters. Written into the text of a statement they would be
escaped here and read again there, both while everybody else waits for the lock; so they travel as
parameters, a column of rows as one array. psycopg's cursors cannot execute by name what was
prepared once, which is why this speaks to libpq through it. What every recall asks goes the same way.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import psycopg
from psycopg import AsyncConnection, generators
from psycopg.abc import PQGen
from psycopg.adapt import Transformer
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn, PGresult

_PARAMETER = re.compile(r"%\((\w+)\)s")
_DONE = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK)


class Call(NamedTuple):
    """A statement, by its text or by the name it is prepared under, and the values of its places."""

    text: bytes
    name: bytes = b""
    values: tuple[bytes | None, ...] = ()


BEGIN, COMMIT = Call(b"BEGIN"), Call(b"COMMIT")


@dataclass(frozen=True, slots=True)
class Statement:
    """One prepared statement, and the names of its parameters in their order."""

    name: str
    given: str
    """As it stands in its file."""
    numbered: str
    parameters: tuple[str, ...]

    @classmethod
    def read(cls, name: str, text: str) -> Statement:
        """Number the parameters of a statement."""
        names = tuple(dict.fromkeys(_PARAMETER.findall(text)))
        numbered = _PARAMETER.sub(lambda match: f"${names.index(match[1]) + 1}", text)
        return cls(f"custody_{name}", text, numbered, names)

    def prepare(self) -> str:
        """Return what makes it known to a connection."""
        return f"PREPARE {self.name} AS {self.numbered}"

    def call(self, values: Mapping[str, str | int | None]) -> Call:
        """Return what executes it with values."""
        given = [values[name] for name in self.parameters]
        places = tuple([None if value is None else str(value).encode() for value in given])
        return Call(b"", self.name.encode(), places)


class Asking:
    """Asks statements that are prepared on a connection when it is first asked one.

    What a cursor does about a statement before it sends it takes a sixth of a short question.
    """

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[AsyncConnection[Any], set[str]] = WeakKeyDictionary()

    async def rows(
        self, conn: AsyncConnection[Any], statement: Statement, values: Mapping[str, str | int | None]
    ) -> list[tuple[Any, ...]]:
        """Return the rows of a question, as a cursor would.

        Raises:
            psycopg.Error: the connection was lost, or what the server says.
        """
        known = self._known.setdefault(conn, set())
        call = statement.call(values)
        if statement.name in known:
            # After a ROLLBACK psycopg gives up whatever is prepared, and not only by itself.
            with _unless_cancelled(psycopg.errors.InvalidSqlStatementName):
                return _loaded(conn, await conn.wait(_answer(conn.pgconn, call)))
        # Whoever prepared it may have been cancelled before it was told so.
        with _unless_cancelled(psycopg.errors.DuplicatePreparedStatement):
            await conn.execute(statement.prepare().encode(), prepare=False)
        known.add(statement.name)
        return _loaded(conn, await conn.wait(_answer(conn.pgconn, call)))


@contextlib.contextmanager
def _unless_cancelled(kind: type[psycopg.Error]) -> Iterator[None]:
    """Go on after an error; one that came while a query was cancelled stands in for the cancellation.

    psycopg 3.2 to 3.3.7 raise it instead (seen; 3.3.9 does not).
    """
    try:
        yield
    except kind:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError from None


def _loaded(conn: AsyncConnection[Any], result: PGresult) -> list[tuple[Any, ...]]:
    reader = Transformer(conn)
    reader.set_pgresult(result)
    return reader.load_rows(0, result.ntuples, tuple)


def _answer(pgconn: PGconn, call: Call) -> PQGen[PGresult]:
    """Send one prepared statement and take its result; psycopg waits for whatever it yields."""
    pgconn.send_query_prepared(call.name, list(call.values))
    return last((yield from generators.execute(pgconn)))


def array(values: Iterable[str]) -> str:
    """Return an array of elements that are written already."""
    return f"{{{','.join(values)}}}"


def quoted(text: str | None) -> str:
    """Write a text as an element of an array."""
    if text is None:
        return "NULL"
    if "\\" in text:
        text = text.replace("\\", "\\\\")
    if '"' in text:
        text = text.replace('"', '\\"')
    return f'"{text}"'


def numbered(number: int | None) -> str:
    """Write a number as an element of an array."""
    return "NULL" if number is None else str(number)


def hexed(raw: bytes | None) -> str:
    """Write bytes as an element of an array."""
    return "NULL" if raw is None else f'"\\\\x{raw.hex()}"'


async def execute(conn: AsyncConnection[Any], calls: Sequence[Call]) -> PGresult:
    """Send statements as one message, and return the result of the last one.

    Raises:
        psycopg.Error: the connection was lost, or what the server says of the first that failed; those
            behind it were not executed.
    """
    return last(await results(conn, calls))


async def results(conn: AsyncConnection[Any], calls: Sequence[Call]) -> list[PGresult]:
    """Send statements as one message, and return what came of each.

    Raises:
        psycopg.Error: the connection was lost.
    """
    return await conn.wait(exchange(conn.pgconn, calls))


def exchange(pgconn: PGconn, calls: Sequence[Call]) -> PQGen[list[PGresult]]:
    """Send statements and take their results; psycopg waits for whatever it yields."""
    pgconn.enter_pipeline_mode()
    for text, name, values in calls:
        if name:
            # A tuple is not enough for psycopg 3.2.
            pgconn.send_query_prepared(name, list(values))
        else:
            pgconn.send_query_params(text, None)
    pgconn.pipeline_sync()
    yield from generators.send(pgconn)
    found: list[PGresult] = []
    for _ in calls:
        found += yield from generators.fetch_many(pgconn)
    # What ends the message is a result as well.
    yield from generators.fetch_many(pgconn)
    pgconn.exit_pipeline_mode()
    return found


def last(found: Sequence[PGresult]) -> PGresult:
    """Return the last result, unless one before says what went wrong."""
    for result in found:
        if result.status not in _DONE:
            raise psycopg.errors.error_from_result(result)
    return found[-1]


__all__ = [
    "BEGIN",
    "COMMIT",
    "Asking",
    "Call",
    "Statement",
    "array",
    "exchange",
    "execute",
    "hexed",
    "last",
    "numbered",
    "quoted",
    "results",
]
