"""A removal from a pgvector table proved: in a crowd, behind damaged indexes, against locks."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
from fix_pgvector import EMBED, Connect, Index, ask, case_of, database_of, fill, store_of


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
    await fill(case, 2_000)
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
