"""The Postgres ledger by itself: its URL, who finds, makes, upgrades and may read it, and its event loop."""

from __future__ import annotations

import asyncio
import importlib
import logging
import sys
import traceback
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from fix_ledger import Book, open_book

from custody_sync import Coordinator
from custody_sync.errors import (
    ClosedError,
    CustodyError,
    InvalidInput,
    LedgerDamaged,
    LedgerError,
    LedgerNotFound,
    LedgerReadOnly,
    LedgerTooNew,
    LedgerUnreachable,
    MissingExtra,
)
from custody_sync.ledger import Ledger, postgres_schema
from custody_sync.ledger.postgres_errors import translate
from custody_sync.ledger.postgres_url import Location
from custody_sync.testing import MemoryStore

pytestmark = pytest.mark.storages("postgres")
SECRET = "pw-7Q"


@pytest.fixture
def server(schema_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection of somebody else to the database of the ledger."""
    with psycopg.connect(schema_url.partition("&schema=")[0], autocommit=True) as conn:
        yield conn


def schema_of(url: str) -> str:
    """Return the schema that a URL names."""
    return url.partition("&schema=")[2]


async def refused(url: str, kind: type[CustodyError], **options: Any) -> str:
    """Open what cannot be opened, and return all that is said about it."""
    with pytest.raises(kind) as caught:
        await Ledger.open(url, witness=False, **options)
    error = caught.value
    assert error.__cause__ is None
    assert error.__context__ is None
    shown = "".join(traceback.format_exception(error))
    return f"{error} {error!r} {error.to_dict()} {shown.split('Error', 1)[-1]}"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:/svc:pw-7Q@db.invalid/led",
        "postgress://svc:pw-7Q@db.invalid/led",
        "postgresql://svc:pw-7Q%@127.0.0.1/led",
        "sqlite://svc:pw-7Q@x/led",
        "postgresql://svc:pw-7Q@b@127.0.0.1/led",
        "postgresql://svc:x/pw-7Q@127.0.0.1/led",
        "postgresql://svc@127.0.0.1/led@pw-7Q",
        "postgresql://host=127.0.0.1 password=pw-7Q",
        "postgresql://127.0.0.1:pw-7Q/led",
        "postgresql://svc:x@127.0.0.1/led?pasword=pw-7Q",
        "postgresql://svc:pw-7Q@127.0.0.1/led?schema=a-b",
        "postgresql://svc:pw-7Q@127.0.0.1/led?schema=pg_temp",
        "postgresql://svc:pw-7Q@127.0.0.1/led?schema=",
        "postgresql://svc:pw-7Q@127.0.0.1/led?vacuum=pw-7Q",
    ],
)
async def test_p12_what_cannot_be_parsed_is_invalid_and_not_repeated(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No part of a mistyped URL that may be its password is in the error or a log."""
    caplog.set_level(logging.DEBUG)
    for create in (False, True):
        said = await refused(url, InvalidInput, create=create)
        assert SECRET not in said + caplog.text


@pytest.mark.parametrize(
    "url",
    ["postgresql://svc:pw-7Q@127.0.0.1:1/led", "postgres://svc:pw-7Q@127.0.0.1:1,127.0.0.1:2/led?schema=a"],
)
async def test_p12_what_cannot_be_reached_names_host_and_database_at_most(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is no usage error, and neither user nor password is in error or log."""
    caplog.set_level(logging.DEBUG)
    said = await refused(url, LedgerUnreachable)
    assert LedgerUnreachable.exit_code == 5
    assert "127.0.0.1" in said
    assert "led" in said
    assert SECRET not in said + caplog.text
    assert "svc" not in said


@pytest.mark.parametrize("option", ["connect_timeout=abc", "keepalives_idle=1.5"])
async def test_what_libpq_reads_as_a_number_has_to_be_one(option: str) -> None:
    """A mistyped option is a usage error that names it, not a server that cannot be reached."""
    said = await refused(f"postgresql://svc:pw-7Q@127.0.0.1:1/led?{option}", InvalidInput)
    assert said.startswith(f"ledger: {option.partition('=')[0]} must be a whole number.")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("failed to resolve host 'svc': [Errno -2] Name or service not known", ": unknown host"),
        ('connection to server at "h", port 1 failed: Connection refused', ": connection refused"),
        ('connection failed: FATAL:  role "svc" does not exist', ": no such role"),
        ('FATAL:  password authentication failed for user "svc"', ": the password was refused"),
        ("server does not support SSL, but SSL was required", ": sslmode"),
        ("something svc", ""),
    ],
)
def test_why_a_server_cannot_be_reached_is_told_by_kind(said: str, reason: str) -> None:
    """The driver's sentence has the user's name in it; only what sort of reason it gives is told."""
    error = translate(psycopg.OperationalError(said), "postgresql://h/led")
    assert isinstance(error, LedgerUnreachable)
    assert str(error) == f"The ledger postgresql://h/led cannot be reached (OperationalError{reason})."


async def test_a_name_says_scheme_host_and_database(book: Book) -> None:
    """The schema as well, where it is not the usual one; the connection's parameters show nowhere."""
    assert book.ledger.name.startswith("postgresql:///")
    assert book.ledger.name.endswith(f"/postgres?schema={schema_of(book.ledger.name.replace('?', '&'))}")
    assert "postgres@" not in book.ledger.name


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("postgresql://svc:pw-7Q@db/led", "postgresql://db/led"),
        ("postgresql://svc:pw-7Q@db:5432/led", "postgresql://db/led"),
        ("postgresql://svc:pw-7Q@db:5433/led?schema=a", "postgresql://db:5433/led?schema=a"),
        ("postgresql://db:5433,db:5434/led", "postgresql://db,db:5433,5434/led"),
        ("postgresql://db,db/led", "postgresql://db,db/led"),
        ("postgresql://[::1]:5433/led", "postgresql://[::1]:5433/led"),
    ],
)
def test_a_name_says_an_unusual_port(url: str, name: str) -> None:
    """Two servers of one host are two places, also in the mark of a ledger that was moved."""
    assert Location.parse(url).name == name


async def test_a_mistyped_schema_or_database_is_not_found(schema_url: str, postgres_uri: str) -> None:
    """Nothing is made unless asked for, and a database never."""
    assert "create one with" in await refused(schema_url, LedgerNotFound)
    elsewhere = postgres_uri.replace("/postgres?", "/nowhere?")
    await refused(elsewhere, LedgerNotFound)
    assert "does not exist; create it first" in await refused(elsewhere, LedgerError, create=True)
    async with await Ledger.open(schema_url, create=True, witness=False):
        pass
    await refused(f"{schema_url}x", LedgerNotFound)


async def test_opening_works_once_the_server_can_be_reached(schema_url: str) -> None:
    """A failed first connection breaks nothing for ever."""
    await refused("postgresql://127.0.0.1:1/led", LedgerUnreachable, create=True)
    async with await Ledger.open(schema_url, create=True, witness=False) as ledger:
        assert (await ledger.head()).seq == 0


async def test_many_that_create_one_ledger_make_one(schema_url: str) -> None:
    """Of several that set up at once one does it, and all have the same ledger."""
    opened = await asyncio.gather(*(Ledger.open(schema_url, create=True, witness=False) for _ in range(8)))
    assert len({ledger.ledger_id for ledger in opened}) == 1
    for ledger in opened:
        await ledger.close()


async def test_a_foreign_schema_is_left_alone(schema_url: str, server: psycopg.Connection[Any]) -> None:
    """A schema with tables of the same names is no ledger, and is not touched."""
    schema = schema_of(schema_url)
    server.execute(f"CREATE SCHEMA {schema}")
    server.execute(f"CREATE TABLE {schema}.events (mine text)")
    for create in (False, True):
        kind = LedgerDamaged if create else LedgerNotFound
        await refused(schema_url, kind, create=create)
    server.execute(f"CREATE TABLE {schema}.settings (name text, value bytea)")
    await refused(schema_url, LedgerDamaged, create=True)
    count = "SELECT count(*) FROM pg_tables WHERE schemaname = %s"
    assert server.execute(count, [schema]).fetchall() == [(2,)]


async def test_other_tables_may_stand_in_the_schema(schema_url: str, server: psycopg.Connection[Any]) -> None:
    """A schema that exists is used as it is, so that a role needs no right to make one."""
    schema = schema_of(schema_url)
    server.execute(f"CREATE SCHEMA {schema}")
    server.execute(f"CREATE TABLE {schema}.orders (mine text)")
    book = await open_book(None, url=schema_url, witness=False)  # type: ignore[arg-type]  # it has no file
    await book.add()
    await book.ledger.close()


async def test_a_newer_schema_is_refused(
    book: Book, server: psycopg.Connection[Any], ledger_url: str
) -> None:
    """By the number that it has, and left as it is."""
    server.execute(f"UPDATE {schema_of(ledger_url)}.settings SET value = '99' WHERE name = 'version'")
    assert "99" in await refused(ledger_url, LedgerTooNew)
    server.execute(f"UPDATE {schema_of(ledger_url)}.settings SET value = 'x' WHERE name = 'version'")
    await refused(ledger_url, LedgerDamaged)


async def test_an_older_schema_is_upgraded_when_it_is_opened_for_writing(
    book: Book, ledger_url: str, server: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, whoever comes first, and never by a handle that only reads."""
    await book.add()
    # The newest step is run again as the next one, on a schema without its tables.
    schema, newest = schema_of(ledger_url), postgres_schema.steps()
    monkeypatch.setattr(postgres_schema, "steps", lambda: (*newest, "setup_of_tests.sql"))
    monkeypatch.setattr(
        postgres_schema, "read_script", lambda file, schema: f"CREATE TABLE {schema}.later ()"
    )
    assert "open it once for writing" in await refused(ledger_url, LedgerError, read_only=True)
    opened = await asyncio.gather(*(Ledger.open(ledger_url, witness=False) for _ in range(4)))
    for ledger in opened:
        assert (await ledger.head()).seq == 1
        await ledger.close()
    found = server.execute(f"SELECT value FROM {schema}.settings WHERE name = 'version'").fetchall()
    assert found == [(str(len(newest) + 1).encode(),)]


async def test_a_role_that_may_only_select_reads(
    book: Book, ledger_url: str, server: psycopg.Connection[Any]
) -> None:
    """Everything is answered, and an append is refused as on a read-only file."""
    fact_id, schema = await book.add(), schema_of(ledger_url)
    role = f"reader_{schema[-12:]}"
    server.execute(f"CREATE ROLE {role} LOGIN")
    try:
        with_role = ledger_url.replace("postgres@", f"{role}@")
        assert "42501" in await refused(with_role, LedgerReadOnly)
        server.execute(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
        server.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}")
        async with await Ledger.open(with_role, witness=False) as ledger:
            assert not ledger.writable
            assert [fact.fact_id for fact in await ledger.as_of()] == [fact_id]
            with pytest.raises(LedgerReadOnly):
                await ledger.append(book.state())
            with pytest.raises(LedgerReadOnly):
                await ledger.put_notes([])
    finally:
        server.execute(f"DROP OWNED BY {role}")
        server.execute(f"DROP ROLE {role}")


async def test_a_database_that_is_not_utf8_is_refused(postgres_uri: str) -> None:
    """It could not hold every text."""
    with psycopg.connect(postgres_uri, autocommit=True) as conn:
        conn.execute("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
        try:
            said = await refused(postgres_uri.replace("/postgres?", "/latin?"), LedgerError, create=True)
        finally:
            conn.execute("DROP DATABASE latin WITH (FORCE)")
    assert "LATIN1" in said


async def test_another_event_loop_is_told_so(book: Book) -> None:
    """In one sentence, for reading, writing and closing; the ledger stays usable where it belongs."""
    draft = book.state()

    async def misuse() -> None:
        for call in (book.ledger.head, lambda: book.ledger.append(draft), book.ledger.close):
            with pytest.raises(LedgerError, match="belongs to the event loop that it was opened in"):
                await call()

    await asyncio.to_thread(asyncio.run, misuse())
    await book.append(draft)


async def test_a_closed_ledger_says_so(book: Book) -> None:
    """What waited is committed; closing twice is closing once."""
    waiting = [asyncio.ensure_future(book.append(book.state())) for _ in range(3)]
    await asyncio.sleep(0)
    await asyncio.gather(book.ledger.close(), book.ledger.close())
    assert [event.seq for event in await asyncio.gather(*waiting)] == [1, 2, 3]
    with pytest.raises(ClosedError):
        await book.ledger.head()
    with pytest.raises(ClosedError):
        await book.append(book.state())


async def test_one_connection_does_until_more_is_asked_at_once_and_five_are_the_most(
    book: Book, schema_url: str
) -> None:
    """One question after the other keeps to that which found the ledger; of many at once some wait."""

    async def ask(conn: psycopg.AsyncConnection[Any]) -> int:
        await conn.execute("SELECT pg_sleep(0.05)")
        return conn.info.backend_pid

    async with await Ledger.open(schema_url, witness=False) as found:
        reads: list[Any] = [found._storage, book.ledger._storage]
        assert len({await reads[0]._read(ask) for _ in range(3)}) == 1
        for storage in reads:
            at_once = await asyncio.gather(*[storage._read(ask) for _ in range(20)])
            assert 1 < len(set(at_once)) <= 5


async def test_a_question_that_is_cut_while_the_ledger_closes_opens_nothing(
    book: Book, server: psycopg.Connection[Any]
) -> None:
    """It fails, though one that is cut is asked again as a rule: a closed ledger connects to nothing."""
    storage: Any = book.ledger._storage
    await book.ledger.head()
    theirs = "FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(60)'"

    async def sleep(conn: psycopg.AsyncConnection[Any]) -> None:
        await conn.execute("SELECT pg_sleep(60)")

    asked = asyncio.ensure_future(storage._read(sleep))
    while not server.execute(f"SELECT 1 {theirs}").fetchall():  # noqa: ASYNC110  # a server tells nobody
        await asyncio.sleep(0.01)
    await book.ledger.close()
    server.execute(f"SELECT pg_terminate_backend(pid) {theirs}")
    with pytest.raises(LedgerError):
        await asked
    assert storage._pool.closed


def test_the_synchronous_coordinator_works_on_it(schema_url: str) -> None:
    """It opens the ledger in its own loop, and closes it there."""
    store = MemoryStore("memories")
    with Coordinator(ledger=schema_url, create=True, stores=[store]) as custody:
        written = custody.write(subject="acct:42", predicate="plan", value="pro", space="org", actor="a")
        assert [fact.value for fact in custody.as_of(space="org")] == ["pro"]
        forgotten = custody.forget(written.fact.fact_id, actor="a", reason="asked")
        assert forgotten.complete
        assert any("write-ahead log" in note for note in forgotten.notes)


async def test_a_cancelled_caller_stops_no_group(book: Book) -> None:
    """What is on its way goes on; the others of its group hear of theirs."""
    drafts = [book.state() for _ in range(4)]
    calls = [asyncio.ensure_future(book.append(draft)) for draft in drafts]
    for _ in range(3):
        await asyncio.sleep(0)
    calls[0].cancel()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert sorted(event.fact_id for event in results[1:]) == sorted(draft.fact_id for draft in drafts[1:])
    assert [event.seq for event in results[1:]] == [2, 3, 4]
    assert (await book.append(drafts[0])).seq == 1


async def test_a_name_that_no_index_takes_is_refused_by_itself(book: Book) -> None:
    """An append of the same group is not touched by it."""
    long = "\U0001f600" * 900
    bad = [book.state(long), book.state(space=long), book.state(fact_id=long), book.hold("f", long)]
    results = await asyncio.gather(*map(book.append, [*bad, book.state()]), return_exceptions=True)
    assert [type(result).__name__ for result in results] == ["InvalidInput"] * 4 + ["Event"]
    taken = await book.add(held=[("memories", long * 20), ("memories", "m-1")])
    assert [p.external_id for p in await book.ledger.placements(taken)] == [long * 20, "m-1"]
    with pytest.raises(InvalidInput):
        await book.ledger.check(book.state(long))


def test_a_missing_driver_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the command that installs it; nothing is loaded before a Postgres ledger is opened."""
    loaded = [name for name in sys.modules if name.startswith("custody_sync.ledger.postgres")]
    for name in loaded:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    importlib.import_module("custody_sync.ledger")
    with pytest.raises(MissingExtra, match=r"pip install 'custody-sync\[postgres\]'"):
        asyncio.run(Ledger.open("postgresql://127.0.0.1/led"))


BUILT = {
    "CREATE TRIGGER keep BEFORE UPDATE ON {0}.sealed FOR EACH ROW EXECUTE FUNCTION "
    "suppress_redundant_updates_trigger()": "trigger keep: this version makes none",
    "CREATE RULE keep AS ON DELETE TO {0}.holds DO INSTEAD NOTHING": "rule keep: this version makes none",
    "DROP INDEX {0}.facts_live": "index facts_live: missing",
    "ALTER TABLE {0}.facts ENABLE ROW LEVEL SECURITY": "table facts: some rows are shown to some only",
    "ALTER TABLE {0}.owed RENAME TO aside; CREATE VIEW {0}.owed AS SELECT * FROM {0}.aside": (
        "table owed: missing"
    ),
}


@pytest.mark.damages
@pytest.mark.parametrize("statement", list(BUILT))
async def test_l7_a_schema_that_is_built_otherwise(
    book: Book, server: psycopg.Connection[Any], ledger_url: str, statement: str
) -> None:
    """Triggers, rules and views change what a statement does, and answers come through indexes."""
    await book.add()
    assert (await book.ledger.verify(witness=False)).consistent is True
    server.execute(statement.format(schema_of(ledger_url)).encode())
    result = await book.ledger.verify(witness=False)
    assert (result.intact, result.consistent) == (True, False)
    assert BUILT[statement] in result.inconsistent
