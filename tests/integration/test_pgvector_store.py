"""What is special to the pgvector table, on a real Postgres: set-up, input, listing, proof, disk."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeAlias

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from custody_sync.adapters._pgvector_rows import entry_of
from custody_sync.adapters.pgvector import PgVectorStore
from custody_sync.errors import (
    InvalidInput,
    InvalidStore,
    MissingExtra,
    StoreRefused,
    StoreUnavailable,
)
from custody_sync.model import Entry, Fact, Label
from custody_sync.ports import Store
from custody_sync.testing.contract_case import Case, StoreHooks
from custody_sync.testing.embedding import WordEmbedder

DIMENSIONS = 32
EMBED = WordEmbedder(DIMENSIONS)

Connect: TypeAlias = Callable[..., AsyncConnectionPool[Any]]
Index: TypeAlias = Literal["hnsw"] | None


@pytest.fixture
async def connect(database_uri: str) -> AsyncIterator[Connect]:
    """Return a maker of pools on an empty database; all of them are closed afterwards."""
    pools: list[AsyncConnectionPool[Any]] = []

    def make(uri: str = database_uri, **options: Any) -> AsyncConnectionPool[Any]:
        settings: dict[str, Any] = {"min_size": 1, "max_size": 4, "kwargs": {"autocommit": True}} | options
        pools.append(AsyncConnectionPool(uri, open=False, **settings))
        return pools[-1]

    yield make
    for pool in pools:
        await pool.close()


def store_of(pool: AsyncConnectionPool[Any], **options: Any) -> PgVectorStore:
    """Return an adapter on the table `facts`."""
    settings: dict[str, Any] = {"table": "facts", "dimensions": DIMENSIONS, "embed": EMBED} | options
    return PgVectorStore(pool, **settings)


def database_of(uri: str) -> str:
    """Return the name of the database a connection string leads to."""
    return str(conninfo_to_dict(uri)["dbname"])


def case_of(store: PgVectorStore) -> Case:
    """Return the contract's toolbox for one store."""
    return Case("integration", store, StoreHooks())


async def ask(uri: str, statement: str, parameters: Sequence[object] | None = None) -> list[tuple[Any, ...]]:
    """Ask the database past the adapter."""
    async with await psycopg.AsyncConnection.connect(uri, autocommit=True) as connection:
        cursor = await connection.execute(statement.encode(), parameters)
        return await cursor.fetchall() if cursor.description else []


# --- set-up ----------------------------------------------------------------------------------


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
    case = case_of(store_of(connect(database_uri.replace(database_of(database_uri), late), timeout=0.3)))
    with pytest.raises(StoreUnavailable, match="PoolTimeout"):
        await case.put()
    await ask(database_uri, f"create database {late}")
    # The pool tries to connect again in its own time, within the second.
    put = None
    for _ in range(40):
        put = put or await _put_or_none(case)
    assert [entry.external_id for entry in await case.listed()] == [put]
    await case.store._pool.close()
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
    with pytest.raises(InvalidInput, match=r"dimensions: facts holds vector\(32\), the store was given 8"):
        await case_of(other).put()
    assert await ask(database_uri, "select count(*) from facts") == [(1,)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"table": "x; drop table y"}, "plain identifier"),
        ({"dimensions": 0}, "from 1 to 16,000"),
        ({"dimensions": True}, "whole number"),
        ({"dimensions": 16_001}, "from 1 to 16,000"),
        ({"dimensions": 2_001, "index": "hnsw"}, "the most an HNSW index takes"),
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


# --- embeddings ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("vector", "message"),
    [
        ([1.0, 2.0, 3.0], "embedding: has 3 numbers, the table's vectors have 32"),
        ([], "has 0 numbers, the table's vectors have 32"),
        ([0.0] * DIMENSIONS, "all zeros"),
        ([1e-60] * DIMENSIONS, "all zeros"),
        ([math.nan] * DIMENSIONS, "not finite"),
        ([math.inf] * DIMENSIONS, "not finite"),
        ([1e39] * DIMENSIONS, "not finite"),
    ],
)
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_bad_vector_is_refused_before_anything_is_written(
    connect: Connect, database_uri: str, vector: list[float], message: str, is_async: bool
) -> None:
    """One sentence, with both lengths where it is about lengths, and no row, in `put` and in `put_many`."""

    async def later(text: str) -> list[float]:
        return vector if "bad" in text else EMBED(text)

    def at_once(text: str) -> list[float]:
        return vector if "bad" in text else EMBED(text)

    case = case_of(store_of(connect(), embed=later if is_async else at_once))
    await case.put(case.fact("good"))
    with pytest.raises(InvalidInput, match=message):
        await case.put(case.fact("bad"))
    facts = [case.fact("good"), case.fact("bad")]
    with pytest.raises(InvalidInput, match=message):
        await case.store.put_many([(fact, case.label(fact)) for fact in facts])
    assert await ask(database_uri, "select text from facts") == [("good",)]


async def test_an_embedder_may_return_any_sequence_of_numbers(connect: Connect) -> None:
    """Tuples, ranges of numbers and arrays are read alike; a failing embedder is named without its text."""
    case = case_of(store_of(connect(), embed=lambda text: tuple(EMBED(text))))
    put = await case.put()
    assert len(await case.served(put)) == 1

    def broken(text: str) -> list[float]:
        raise RuntimeError(f"the model choked on {text}")

    failing = case_of(store_of(connect(), embed=broken))
    with pytest.raises(StoreUnavailable, match=r"embed failed for now \(RuntimeError\)") as caught:
        await failing.put(failing.fact("Mallory's secret"))
    assert "Mallory" not in repr(caught.value.to_dict())


async def test_put_many_is_all_or_nothing(connect: Connect, database_uri: str) -> None:
    """A row the database refuses takes the whole call with it."""
    case = case_of(store_of(connect()))
    await case.put()
    await ask(database_uri, "alter table facts add check (text <> 'refused')")
    facts = [case.fact("one"), case.fact("refused"), case.fact("two")]
    with pytest.raises(StoreRefused, match="CheckViolation 23514"):
        await case.store.put_many([(fact, case.label(fact)) for fact in facts])
    assert len(await case.listed()) == 1


# --- listing ---------------------------------------------------------------------------------


async def _fill(case: Case, count: int) -> list[tuple[Fact, Label]]:
    facts = [case.fact(f"note {n}", space=f"user:{n % 5}") for n in range(count)]
    pairs = [(fact, case.label(fact)) for fact in facts]
    await case.store.put_many(pairs)
    return pairs


async def test_a_listing_shows_each_of_1234_once_while_others_come_and_go(connect: Connect) -> None:
    """Every entry that stays is listed exactly once, whatever is put and deleted meanwhile."""
    case = case_of(store_of(connect(), page_size=50))
    pairs = await _fill(case, 1_234)
    passing = [case.confirmed(fact, label, [label.key]) for fact, label in pairs[::13]]
    stayed = {label.key for _, label in pairs} - {put.label.key for put in passing}

    async def change() -> None:
        for put in passing:
            await case.put()
            await case.delete(put)

    changing = asyncio.ensure_future(change())
    listed = [entry.external_id for entry in await case.listed()]
    await changing
    assert len(listed) == len(set(listed))
    assert stayed <= set(listed)
    after = [entry.external_id for entry in await case.listed()]
    assert len(after) == len(set(after)) == 1_234


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 20])
async def test_page_edges_lose_nothing(connect: Connect, count: int) -> None:
    """A full last page is no reason to list anything twice or to stop short."""
    case = case_of(store_of(connect(), page_size=10))
    pairs = await _fill(case, count) if count else []
    assert sorted(entry.external_id for entry in await case.listed()) == sorted(
        label.key for _, label in pairs
    )


async def test_rows_of_others_are_listed_without_a_label(connect: Connect, database_uri: str) -> None:
    """A row without fact or ledger id is unlabelled; an empty key and unreadable times end no listing."""
    case = case_of(store_of(connect(), page_size=2))
    ours = await case.put()
    for n, stored_at in enumerate(["infinity", "-infinity", "20000-01-01", "0044-03-15 BC"]):
        statement = "insert into facts (key, fact_id, ledger_id, stored_at) values (%s, 'f', 'l', %s)"
        await ask(database_uri, statement, [f"odd {n}", stored_at])
    await ask(
        database_uri, "insert into facts (key, fact_id, text, stored_at) values ('', 'f', 'theirs', now())"
    )
    await ask(database_uri, "insert into facts (key, created_at) values ('later', 'infinity')")
    listed = {entry.external_id: entry for entry in await case.listed()}
    assert len(listed) == 7
    assert {listed[""].fact_id, listed[""].ledger_id, listed[""].space, listed[""].stored_at} == {None}
    odd = [listed[f"odd {n}"] for n in range(4)]
    assert {entry.stored_at for entry in odd} == {None}
    assert all(
        entry.created_at and abs(entry.created_at - datetime.now(UTC)) < timedelta(hours=1) for entry in odd
    )
    assert listed["later"].created_at is None
    assert listed[ours.label.key].fact_id == ours.fact.fact_id
    assert listed[ours.label.key].generation == ours.label.generation
    assert len(await case.store.find("f")) == 5


async def test_times_come_back_in_utc(connect: Connect, database_uri: str) -> None:
    """The zone of the session does not shift an instant."""
    await ask(database_uri, "set timezone = 'Asia/Kolkata'")
    case = case_of(store_of(connect(kwargs={"autocommit": True, "options": "-c timezone=Asia/Kolkata"})))
    put = await case.put()
    for entry in [*await case.listed(), *await case.held(put)]:
        assert entry.stored_at == put.label.stored_at
        assert entry.stored_at.utcoffset() == timedelta(0)


# --- proof -----------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [None, "hnsw"])
async def test_a_silent_delete_in_a_crowd_is_never_gone(
    connect: Connect, database_uri: str, index: Index
) -> None:
    """Among 301 equal texts a row that was not really deleted is found, and a deleted one is proved gone."""
    case = case_of(store_of(connect(), index=index))
    facts = [case.fact("what everyone says", space="crowd") for _ in range(302)]
    pairs = [(fact, case.label(fact)) for fact in facts]
    await case.store.put_many(pairs)
    target = case.confirmed(*pairs[150], [pairs[150][1].key])
    await ask(
        database_uri,
        "create function keep() returns trigger language plpgsql as 'begin return null; end'",
    )
    await ask(database_uri, "create trigger keep before delete on facts for each row execute function keep()")
    await case.delete(target)
    assert [await case.said_gone(entry) for entry in (*target.entries, *target.blind)] == [False, False]
    await ask(database_uri, "drop trigger keep on facts")
    await case.delete(target)
    assert [await case.said_gone(entry) for entry in (*target.entries, *target.blind)] == [True, True]


async def test_indexes_that_lost_a_row_do_not_hide_it_from_a_forget(
    connect: Connect, database_uri: str
) -> None:
    """While the text is known the table itself is read, so a row that no index shows is still found."""
    case = case_of(store_of(connect()))
    await _fill(case, 2_000)
    put = await case.put()
    await ask(database_uri, "alter table facts drop constraint facts_pkey")
    await ask(database_uri, "drop index facts_fact_id_idx")
    # Two empty partial indexes that are then said to be whole: what damage looks like to the planner.
    for column in ("key", "fact_id"):
        await ask(database_uri, f"create index damaged_{column} on facts ({column}) where false")
    await ask(
        database_uri, "update pg_index set indpred = null where indexrelid::regclass::text like 'damaged%'"
    )
    await ask(database_uri, "analyze facts")
    assert await case.said_gone(put.blind[0]) is True, "the indexes are not damaged enough to show anything"
    assert await case.said_gone(put.entries[0]) is False


async def test_a_failing_question_is_never_gone(connect: Connect, database_uri: str) -> None:
    """A missing table, a failing embedder and a lost server each raise; none of them says gone."""
    failing = False

    def embed(text: str) -> list[float]:
        if failing:
            raise ConnectionError(text)
        return EMBED(text)

    case = case_of(store_of(connect(timeout=0.5), embed=embed))
    put = await case.put()
    await case.delete(put)
    failing = True
    assert await case.said_gone(put.entries[0]) == "StoreUnavailable"
    failing = False
    await ask(database_uri, "alter table facts rename to elsewhere")
    assert {await case.said_gone(entry) for entry in (*put.entries, *put.blind)} == {"StoreRefused"}
    await ask(database_uri, "alter table elsewhere rename to facts")
    assert await case.said_gone(put.entries[0]) is True


async def test_a_locked_row_holds_up_no_other_delete(connect: Connect, database_uri: str) -> None:
    """Deletes of one turn share a statement, which passes over a row that somebody has locked."""
    store = store_of(connect())
    case = case_of(store)
    entries = [(await case.put()).blind[0] for _ in range(3)]
    async with await psycopg.AsyncConnection.connect(database_uri) as other:
        await other.execute("select from facts where key = %s for update", (entries[0].external_id,))
        locked, *free = [asyncio.ensure_future(store.delete(entry)) for entry in entries]
        await asyncio.gather(*free)
        assert [await store.verify_deleted(entry) for entry in entries] == [False, True, True]
        assert not locked.done()
        await other.rollback()
        await locked
    assert await store.verify_deleted(entries[0])


async def test_a_role_that_may_delete_and_not_update_deletes(connect: Connect, database_uri: str) -> None:
    """Passing over locked rows needs the right to update; without it a delete is a plain one."""
    case = case_of(store_of(connect()))
    entries = [(await case.put()).blind[0] for _ in range(2)]
    role = f"eraser_{database_of(database_uri)}"
    await ask(database_uri, f"create role {role} login")
    await ask(database_uri, f"grant select, delete on facts to {role}")
    store = store_of(connect(database_uri.replace("//postgres@", f"//{role}@")))
    await asyncio.gather(*(store.delete(entry) for entry in entries))
    assert [await store.verify_deleted(entry) for entry in entries] == [True, True]
    await ask(database_uri, f"drop owned by {role}")
    await ask(database_uri, f"drop role {role}")


async def test_another_generation_of_the_fact_is_another_entry(connect: Connect) -> None:
    """A removed stray is gone although the fact's current placement stands, with the same text."""
    case = case_of(store_of(connect()))
    fact = case.fact()
    stray, current = await case.put(fact), await case.put(fact)
    await case.delete(stray)
    assert [await case.said_gone(entry) for entry in (*stray.entries, *stray.blind)] == [True, True]
    assert await case.said_gone(current.entries[0]) is False


# --- search ----------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [None, "hnsw"])
async def test_a_filter_never_leaves_a_search_short(
    connect: Connect, database_uri: str, index: Index
) -> None:
    """Five facts of one space are all served though two thousand nearer ones are in another."""
    case = case_of(store_of(connect(), index=index))
    near = [case.fact(f"black coffee {n % 40}", space="crowd") for n in range(2_000)]
    far = [case.fact(f"tea with milk and biscuits {n}", space="rare") for n in range(5)]
    await case.store.put_many([(fact, case.label(fact)) for fact in (*near, *far)])
    await ask(database_uri, "analyze facts")
    hits = await case.search("black coffee 1", 10, ["rare"])
    assert {hit.entry.fact_id for hit in hits} == {fact.fact_id for fact in far}
    assert len(await case.search("black coffee 1", 100)) == 100
    assert await case.search("black coffee", 10, []) == []
    assert await case.search("black coffee", 0) == []


async def test_deleted_rows_do_not_crowd_out_live_ones(connect: Connect, database_uri: str) -> None:
    """After the nearest two hundred rows went, unvacuumed, the next ones are served."""
    case = case_of(store_of(connect(), index="hnsw"))
    facts = [case.fact(f"coffee {n}") for n in range(600)]
    await case.store.put_many([(fact, case.label(fact)) for fact in facts])
    await ask(database_uri, "alter table facts set (autovacuum_enabled = off)")
    for hit in await case.search("coffee 3", 200):
        await case.store.delete(hit.entry)
    assert len(await case.search("coffee 3", 10)) == 10


async def test_hits_come_nearest_first_and_rows_without_direction_not_at_all(
    connect: Connect, database_uri: str
) -> None:
    """An equal text scores 1; a row without a vector is no hit, and a zero vector has no score."""
    case = case_of(store_of(connect()))
    await case.put(case.fact("the invoice is paid"))
    best = await case.put(case.fact("black coffee please"))
    await ask(database_uri, "insert into facts (key, text) values ('no vector', 'black coffee please')")
    zeros = f"[{','.join('0' * DIMENSIONS)}]"
    await ask(database_uri, "insert into facts (key, text, embedding) values ('zero', 'x', %s)", [zeros])
    hits = await case.search("black coffee please", 10)
    assert hits[0].entry.external_id == best.label.key
    assert hits[-1].entry.external_id == "zero"
    assert len(hits) == 3
    assert hits[0].score == pytest.approx(1.0)
    assert hits[-1].score is None


# --- what stays on disk ------------------------------------------------------------------------


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
