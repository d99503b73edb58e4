"""How a pgvector table is set up, on a real Postgres: at the first use, once, by whoever may."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import psycopg
import pytest
from fix_pgvector import Connect, Index, ask, case_of, database_of, fill, store_of
from psycopg.rows import dict_row

from custody_sync.adapters.pgvector import ExistingTable
from custody_sync.errors import InvalidInput, InvalidStore, MissingExtra, StoreUnavailable
from custody_sync.ports import Store
from custody_sync.testing.contract_case import Case
from custody_sync.testing.embedding import WordEmbedder


@pytest.mark.parametrize("index", [None, "hnsw"])
async def test_the_first_use_makes_extension_table_and_indexes(
    connect: Connect, database_uri: str, index: Index
) -> None:
    """An unopened pool and an empty database are enough, and the index is made only when asked for."""
    store = store_of(connect(), index=index)
    assert isinstance(store, Store)
    put = await case_of(store).put()
    assert [entry.fact_id for entry in await store.find(put.fact.fact_id)] == [put.fact.fact_id]
    made = {
        name
        for (name,) in await ask(database_uri, "select indexname from pg_indexes where tablename = 'facts'")
    }
    assert {"facts_fact_id_idx", "facts_space_idx"} <= made
    assert ("facts_embedding_idx" in made) is (index == "hnsw")


async def test_set_up_is_tried_again_after_a_failed_first_connection(
    connect: Connect, database_uri: str
) -> None:
    """While the database is missing every call is unavailable; once it is there the same store works."""
    late = f"late_{database_of(database_uri)}"
    pool = connect(database_uri.replace(database_of(database_uri), late), timeout=0.3)
    case = case_of(store_of(pool))
    with pytest.raises(StoreUnavailable, match="PoolTimeout"):
        await case.put()
    await ask(database_uri, f"create database {late}")
    # The pool tries to connect again in its own time, within the second.
    put = None
    for _ in range(40):
        put = put or await _put_or_none(case)
    assert [entry.external_id for entry in await case.listed()] == [put]
    await pool.close()
    await ask(database_uri, f"drop database {late}")


async def _put_or_none(case: Case) -> str | None:
    try:
        return (await case.put()).label.key
    except StoreUnavailable:
        return None


async def test_a_failed_set_up_is_made_good(connect: Connect, database_uri: str) -> None:
    """A set-up that was refused half-way leaves nothing and is tried again by the next call."""
    await ask(database_uri, "create view facts_space_idx as select 1")
    await ask(database_uri, "create table facts (key text)")
    case = case_of(store_of(connect()))
    with pytest.raises(InvalidInput, match="not a custody-sync table"):
        await case.put()
    assert await ask(database_uri, "select count(*) from pg_indexes where tablename = 'facts'") == [(0,)]
    await ask(database_uri, "drop table facts")
    await ask(database_uri, "drop view facts_space_idx")
    await case.put()
    assert len(await case.listed()) == 1


async def test_many_set_ups_at_once_are_one(connect: Connect) -> None:
    """Eight stores that meet an empty database together all work."""
    cases = [case_of(store_of(connect(), index="hnsw")) for _ in range(8)]
    puts = await asyncio.gather(*(case.put() for case in cases))
    assert {entry.external_id for entry in await cases[0].listed()} == {put.label.key for put in puts}


async def test_a_set_up_meets_one_that_does_not_take_our_lock(connect: Connect, database_uri: str) -> None:
    """Another program that makes the extension at the same moment is no failure."""
    async with await psycopg.AsyncConnection.connect(database_uri) as other:
        await other.execute("create extension vector")
        putting = asyncio.ensure_future(case_of(store_of(connect())).put())
        await asyncio.sleep(0.3)
        assert not putting.done()
        await other.commit()
        await putting


async def test_a_role_that_may_not_create_uses_a_finished_table(connect: Connect, database_uri: str) -> None:
    """A finished table needs no more than the rights on its rows."""
    await case_of(store_of(connect())).put()
    role = f"guest_{database_of(database_uri)}"
    await ask(database_uri, f"create role {role} login")
    await ask(database_uri, f"grant select, insert, update, delete on facts to {role}")
    case = case_of(store_of(connect(database_uri.replace("//postgres@", f"//{role}@"))))
    put = await case.put()
    await case.delete(put)
    assert await case.said_gone(put.entries[0]) is True
    assert len(await case.listed()) == 1
    await ask(database_uri, f"drop owned by {role}")
    await ask(database_uri, f"drop role {role}")


async def test_a_table_of_other_dimensions_is_refused(connect: Connect, database_uri: str) -> None:
    """Both lengths are in the sentence, and the table is left as it was."""
    await case_of(store_of(connect())).put()
    other = store_of(connect(), dimensions=8, embed=WordEmbedder(8))
    with pytest.raises(
        InvalidInput, match=r"dimensions: facts holds vector\(32\), the store was given vector\(8\)"
    ):
        await case_of(other).put()
    assert await ask(database_uri, "select count(*) from facts") == [(1,)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"table": "x; drop table y"}, "plain identifier"),
        ({"dimensions": 0}, "from 1 to 16,000"),
        ({"dimensions": True}, "whole number"),
        ({"dimensions": 16_001}, "from 1 to 16,000"),
        ({"dimensions": 2_001, "index": "hnsw"}, "the most an HNSW index on vector takes"),
        ({"index": "ivfflat"}, "neither None nor 'hnsw'"),
        ({"embed": "a model's name"}, "must be a function"),
        ({"page_size": 0}, "not at least 1"),
        ({"threads": 0}, "not at least 1"),
    ],
)
async def test_bad_options_are_refused_when_the_store_is_made(
    connect: Connect, options: dict[str, Any], message: str
) -> None:
    """One sentence each, before any connection is made."""
    pool = connect()
    with pytest.raises(InvalidInput, match=message):
        store_of(pool, **options)
    assert pool.closed


async def test_what_is_not_a_pool_is_refused(database_uri: str) -> None:
    """A connection string is not a pool."""
    not_a_pool: Any = database_uri
    with pytest.raises(InvalidStore, match="not a psycopg AsyncConnectionPool"):
        store_of(not_a_pool)


async def test_without_psycopg_the_extra_is_named(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing vendor is one sentence with the pip command."""
    monkeypatch.setitem(sys.modules, "psycopg.sql", None)
    with pytest.raises(MissingExtra, match=r"custody-sync\[pgvector\]"):
        store_of(connect())


async def test_a_table_name_keeps_its_case(connect: Connect, database_uri: str) -> None:
    """A name is quoted, so one in capitals, or a word of SQL, is the table of just that name."""
    for table in ("Facts", "select"):
        case = case_of(store_of(connect(), table=table))
        await case.put()
        assert len(await case.listed()) == 1
        assert await ask(database_uri, f'select count(*) from "{table}"') == [(1,)]


@pytest.mark.parametrize("autocommit", [True, False])
async def test_any_pool_of_the_callers_will_do(connect: Connect, database_uri: str, autocommit: bool) -> None:
    """A foreign row factory or a pool without autocommit changes nothing; a put returns committed."""
    pool = connect(kwargs={"autocommit": autocommit, "row_factory": dict_row})
    case = case_of(store_of(pool, index="hnsw", vacuum=True))
    put, other = await case.put(), await case.put()
    assert await ask(database_uri, "select count(*) from facts") == [(2,)]
    assert len(await case.search(f"{put.fact.text}", 2)) == 2
    await case.delete(put)
    assert await case.said_gone(put.entries[0]) is True
    assert "VACUUM" in (await case.store.after_forget(put.entries))[0]
    assert [entry.external_id for entry in await case.listed()] == [other.label.key]


async def test_a_pool_stays_in_its_loop(connect: Connect) -> None:
    """A second event loop is refused by name."""
    store = store_of(connect())
    await case_of(store).put()
    with pytest.raises(InvalidStore, match="another event loop"):
        await asyncio.to_thread(asyncio.run, store.find("any"))


@pytest.mark.parametrize("existing", [False, True])
async def test_a_listing_is_taken_up_behind_a_cursor(
    connect: Connect, database_uri: str, existing: bool
) -> None:
    """From where a page ended another listing goes on, even if that row is gone, or ends there itself."""
    more: dict[str, Any] = {}
    if existing:
        statement = "create table facts (id uuid primary key, body text, meta jsonb, vec vector(32))"
        await ask(database_uri, "create extension if not exists vector")
        await ask(database_uri, statement)
        columns = {"id": "id", "text": "body", "label": "meta", "embedding": "vec"}
        more["existing"] = ExistingTable(**columns)
    store = store_of(connect(), page_size=3, **more)
    case = case_of(store)
    await fill(case, 10)
    pages = [page async for page in store.list_pages()]
    ids = [entry.external_id for page in pages for entry in page.entries]
    assert [len(page.entries) for page in pages] == [3, 3, 3, 1]
    assert [page.cursor for page in pages] == [ids[2], ids[5], ids[8], ids[9]]
    await store.delete(pages[1].entries[-1])
    rest = [e.external_id async for page in store.list_pages(pages[1].cursor) for e in page.entries]
    assert rest == ids[6:]
    part = [e.external_id async for page in store.list_pages(ids[2], ids[8]) for e in page.entries]
    assert part == [*ids[3:5], *ids[6:9]]
    first = [e.external_id async for page in store.list_pages(None, ids[2]) for e in page.entries]
    assert first == ids[:3]
