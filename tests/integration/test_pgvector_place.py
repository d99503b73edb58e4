"""A store's name stands for one database: what another one does not hold is not gone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fix_custody import open_desk
from fix_pgvector import Connect, ask, case_of, database_of, store_of
from psycopg.conninfo import make_conninfo

from custody_sync.adapters._scopes import LooseNotes
from custody_sync.errors import NoProof, StoreRefused

TABLES = "select count(*) from pg_class where relname = 'facts'"


@pytest.fixture
async def elsewhere(database_uri: str) -> AsyncIterator[str]:
    """Return the connection string of a second, empty database of the same server."""
    name = f"{database_of(database_uri)}_b"
    await ask(database_uri, f"create database {name}")
    yield make_conninfo(database_uri, dbname=name)
    await ask(database_uri, f"drop database {name} with (force)")


async def test_another_database_proves_nothing(
    connect: Connect, database_uri: str, elsewhere: str, tmp_path: Path
) -> None:
    """A pool that leads elsewhere makes no table there, and neither forget nor verify takes its word."""
    stores: list[Any] = [store_of(connect(), name="pg")]
    async with open_desk(tmp_path, stores=stores) as desk:
        fact_id = await desk.written()
        lost = desk.coordinator(stores=[store_of(connect(elsewhere), name="pg")])
        told = await lost.forget(fact_id, actor="dpo", reason="asked")
        assert not told.complete
        assert "another_database" in told.removals[0].detail
        assert not (await lost.verify(actor="ops")).complete
        assert await ask(elsewhere, TABLES) == [(0,)]
        back = desk.coordinator(stores=[store_of(connect(), name="pg")])
        assert (await back.forget(fact_id, actor="dpo", reason="asked")).complete
        assert await ask(database_uri, "select 1 from facts") == []


async def test_another_table_of_that_name_is_another_place(
    connect: Connect, database_uri: str, elsewhere: str
) -> None:
    """Where a table is there already, puts are refused, listings too, and an absence is unproved."""
    await case_of(store_of(connect(elsewhere))).put()
    notes = LooseNotes()
    first, second = store_of(connect()), store_of(connect(elsewhere))
    for store in (first, second):
        store.remember_in(notes)
    put = await case_of(first).put()
    for entry in (*put.entries, *put.blind):
        with pytest.raises(NoProof, match=r"\(another_database\)"):
            await second.verify_deleted(entry)
    for work in (case_of(second).put(), case_of(second).listed(), second.find("any")):
        with pytest.raises(StoreRefused, match=r"\(another_database\)"):
            await work
    assert await ask(elsewhere, "select count(*) from facts") == [(1,)]


async def test_a_move_is_told_with_a_new_word(connect: Connect, elsewhere: str) -> None:
    """After a dump and restore the store is made with another `place`, and goes on there."""
    notes = LooseNotes()
    before, after = store_of(connect()), store_of(connect(elsewhere), place="new server")
    for store in (before, after):
        store.remember_in(notes)
    await case_of(before).put()
    case = case_of(after)
    put = await case.put()
    await case.delete(put)
    assert [await case.said_gone(entry) for entry in (*put.entries, *put.blind)] == [True, True]
    assert sorted(await notes.read()) == ["place", "place new server"]


async def test_a_role_that_may_not_ask_for_the_cluster_compares_the_rest(
    connect: Connect, database_uri: str
) -> None:
    """Two roles of one database agree though only one of them is told which cluster it is."""
    notes, role = LooseNotes(), f"app_{database_of(database_uri)}"
    owner = store_of(connect())
    owner.remember_in(notes)
    case = case_of(owner)
    put, other = await case.put(), await case.put()
    await ask(database_uri, f"create role {role} login")
    await ask(database_uri, f"grant select, insert, update, delete on facts to {role}")
    await ask(database_uri, "revoke execute on function pg_control_system() from public")
    store = store_of(connect(database_uri.replace("//postgres@", f"//{role}@")))
    store.remember_in(notes)
    await store.delete(put.entries[0])
    assert [await store.verify_deleted(one.blind[0]) for one in (put, other)] == [True, False]
    assert len(await case.listed()) == 1
    await ask(database_uri, f"drop owned by {role}")
    await ask(database_uri, f"drop role {role}")
