"""What a deletion leaves in Postgres, said and cleaned up; an outage and its end."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import psycopg
import pytest
from fix_pgvector import Connect, ask, case_of, database_of, store_of

from custody_sync.adapters._pgvector_rows import entry_of
from custody_sync.errors import StoreUnavailable
from custody_sync.model import Entry


async def test_without_a_vacuum_it_says_until_when(connect: Connect) -> None:
    """By default nothing is vacuumed and the sentences say what waits for what."""
    case = case_of(store_of(connect()))
    put = await case.put()
    said = await case.store.after_forget(put.entries)
    assert "until VACUUM (INDEX_CLEANUP ON)" in said[0]
    assert "backups" in said[1]
    assert await case.store.after_forget([]) == ()


async def test_a_vacuum_is_run_and_says_when_it_could_not_free_the_rows(
    connect: Connect, database_uri: str
) -> None:
    """An open transaction keeps deleted rows; that is said, and a later vacuum frees them."""
    case = case_of(store_of(connect(), index="hnsw", vacuum=True))
    first, second = await case.put(), await case.put()
    async with await psycopg.AsyncConnection.connect(database_uri) as reader:
        await reader.execute("set transaction isolation level repeatable read")
        await reader.execute("select 1")
        await case.delete(first)
        said = (await case.store.after_forget(first.entries))[0]
        assert "left 1 deleted rows" in said
    await case.delete(second)
    assert "has freed" in (await case.store.after_forget(second.entries))[0]
    assert await ask(database_uri, "select n_dead_tup from pg_stat_user_tables where relname = 'facts'") == [
        (0,)
    ]


async def test_a_vacuum_that_fails_is_said_and_not_raised(connect: Connect, database_uri: str) -> None:
    """The forget stands; what could not be cleaned up is named by its status."""
    case = case_of(store_of(connect(), vacuum=True))
    put = await case.put()
    await ask(database_uri, "drop table facts")
    said = await case.store.after_forget(put.entries)
    assert "failed (UndefinedTable 42P01)" in said[0]


async def test_an_entry_of_nowhere_is_gone_and_deleting_it_is_success(connect: Connect) -> None:
    """An external id that was never there is absent, and its delete succeeds."""
    store = store_of(connect())
    nowhere = Entry(store="pgvector", external_id="x'; drop table facts; --", fact_id="y")
    await store.delete(nowhere)
    assert await store.verify_deleted(nowhere) is True
    assert await store.verify_deleted(replace(nowhere, fact_id=None)) is True


async def test_a_lost_server_is_unavailable(connect: Connect, database_uri: str) -> None:
    """A connection cut by the server is an outage, and the next call works again."""
    case = case_of(store_of(connect(max_size=1)))
    await case.put()
    others = "from pg_stat_activity where pid <> pg_backend_pid() and datname = current_database()"
    await ask(database_uri, f"select pg_terminate_backend(pid) {others}")
    with pytest.raises(StoreUnavailable):
        await case.put()
    await case.put()
    assert len(await case.listed()) == 2


def test_a_row_becomes_the_entry_that_its_fields_name() -> None:
    """Entries are made by position for speed, and are what naming every field would have made."""
    when = datetime(2026, 9, 1, tzinfo=UTC)
    row = ("fact.gen", "fact", "ledger", "org", when, when)
    assert entry_of("store", row, "text") == Entry(
        store="store",
        external_id="fact.gen",
        fact_id="fact",
        stored_at=when,
        text="text",
        ledger_id="ledger",
        space="org",
        created_at=when,
        generation="gen",
    )


async def test_a_role_that_may_not_vacuum_says_so(connect: Connect, database_uri: str) -> None:
    """Postgres only warns who is not the owner; that nothing was freed is said all the same."""
    case = case_of(store_of(connect()))
    put = await case.put()
    await case.delete(put)
    role = f"guest_{database_of(database_uri)}"
    await ask(database_uri, f"create role {role} login")
    await ask(database_uri, f"grant select, insert, update, delete on facts to {role}")
    guest = store_of(connect(database_uri.replace("//postgres@", f"//{role}@")), vacuum=True)
    said = (await guest.after_forget(put.entries))[0]
    assert "passed over: this role may not" in said
    await ask(database_uri, f"drop owned by {role}")
    await ask(database_uri, f"drop role {role}")
