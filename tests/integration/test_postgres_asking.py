"""Statements prepared on a connection when it is first asked one, and what may become of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
from fix_cut import AtPoint, Somebody
from fix_ledger import Book

from custody_sync.ledger.postgres_wire import Asking, Statement

pytestmark = pytest.mark.storages("postgres")

TWO = Statement.read("two", "SELECT %(text)s::text, %(number)s::bigint UNION ALL SELECT NULL, 2")
SLOW = Statement.read("slow", "SELECT pg_sleep(%(seconds)s::float), 1")
NOWHERE = Statement.read("nowhere", "SELECT 1 FROM custody_sync_no_such_table")
ANSWERED = [("é\\'", 1), (None, 2)]


@pytest.fixture
async def conn(schema_url: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """A connection as the pool of a ledger has them."""
    uri = schema_url.partition("&schema=")[0]
    async with await psycopg.AsyncConnection.connect(uri, autocommit=True) as conn:
        yield conn


async def ask(asking: Asking, conn: psycopg.AsyncConnection[Any]) -> list[tuple[Any, ...]]:
    """Ask for two rows."""
    return await asking.rows(conn, TWO, {"text": "é\\'", "number": 1})


async def prepared(conn: psycopg.AsyncConnection[Any]) -> list[str]:
    """Return what the server knows by a name of ours."""
    rows = await conn.execute(
        "SELECT name FROM pg_prepared_statements WHERE name LIKE 'custody_%' ORDER BY name"
    )
    return [name for (name,) in await rows.fetchall()]


async def test_it_answers_as_a_cursor_and_prepares_once(conn: psycopg.AsyncConnection[Any]) -> None:
    """Each value is of its column's type, nothing is NULL that is not, and no text is read as SQL."""
    asking = Asking()
    for _ in range(3):
        assert await ask(asking, conn) == ANSWERED
    cursor = await conn.execute(TWO.given.encode(), {"text": "é\\'", "number": 1})
    assert await cursor.fetchall() == ANSWERED
    assert await prepared(conn) == ["custody_two"]
    assert await asking.rows(conn, TWO, {"text": None, "number": None}) == [(None, None), (None, 2)]


async def test_what_the_server_forgot_is_prepared_anew(conn: psycopg.AsyncConnection[Any]) -> None:
    """A ROLLBACK through psycopg takes all prepared statements with it, ours among them."""
    asking = Asking()
    await ask(asking, conn)
    await conn.execute("DEALLOCATE ALL")
    assert await ask(asking, conn) == ANSWERED
    assert await prepared(conn) == ["custody_two"]


async def test_it_may_be_forgotten_any_number_of_times(conn: psycopg.AsyncConnection[Any]) -> None:
    """Psycopg prepares by itself what it has sent five times, and what prepares ours must not be among it."""
    asking = Asking()
    for _ in range(12):
        assert await ask(asking, conn) == ANSWERED
        conn.pgconn.exec_(b"DEALLOCATE ALL")


@pytest.mark.parametrize("known", [True, False])
async def test_a_cancellation_is_heeded_whatever_stands_in_for_it(
    conn: psycopg.AsyncConnection[Any], known: bool
) -> None:
    """What the server says of a query that is cancelled just then is no reason to ask once more."""
    asking = Asking()
    await ask(asking, conn)
    if known:
        conn.pgconn.exec_(b"DEALLOCATE ALL")
    else:
        asking = Asking()
    asked = asyncio.create_task(ask(asking, conn))
    for _ in range(2):
        await asyncio.sleep(0)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked


async def test_what_was_prepared_unnoticed_is_used(conn: psycopg.AsyncConnection[Any]) -> None:
    """Whoever was cancelled while it was prepared does not know that it is."""
    await ask(Asking(), conn)
    assert await ask(Asking(), conn) == ANSWERED


async def test_a_question_that_fails_leaves_the_connection_usable(conn: psycopg.AsyncConnection[Any]) -> None:
    """What the server says of it is raised each time, and others are answered after it."""
    asking = Asking()
    for _ in range(2):
        with pytest.raises(psycopg.errors.UndefinedTable):
            await asking.rows(conn, NOWHERE, {})
        with pytest.raises(psycopg.errors.InvalidTextRepresentation):
            await asking.rows(conn, TWO, {"text": "", "number": "one"})
        assert await ask(asking, conn) == ANSWERED


async def test_a_question_that_is_cancelled_leaves_the_connection_usable(
    conn: psycopg.AsyncConnection[Any],
) -> None:
    """The server is told to stop, and the next question gets its own answer."""
    asking = Asking()
    await asking.rows(conn, SLOW, {"seconds": 0})
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await asking.rows(conn, SLOW, {"seconds": 60})
    assert await ask(asking, conn) == ANSWERED


async def test_a_connection_that_is_cut_is_asked_no_more(cut: tuple[Book, AtPoint, Somebody]) -> None:
    """After a server's restart the next recall's question goes over a connection that knows nothing yet."""
    book, _, somebody = cut
    fact = await book.add()
    _, before = await book.ledger.links([fact])
    somebody.end_others()
    for _ in range(2):
        _, after = await book.ledger.links([fact])
        assert after == before
        assert [link.fact.fact_id for link in after[0]] == [fact]
