"""What went wrong for others with vectors in Postgres: shown on plain SQL, and then not happening."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import psycopg
import pytest
from fakes.pgvector_tables import APP, MEM0
from fix_pgvector import DIMENSIONS, EMBED, Connect, ask, case_of, store_of

from custody_sync.adapters.pgvector import PgVectorStore
from custody_sync.errors import StoreRefused
from custody_sync.model import Entry
from custody_sync.testing.embedding import WordEmbedder

# In a small table the planner would pass over the index, and with it over what the index does.
BY_INDEX = {"autocommit": True, "options": "-c enable_seqscan=off -c enable_sort=off -c hnsw.ef_search=10"}
NEAREST = "select text from facts order by embedding <=> %s::vector limit 10"
NEAREST_IN = "select text from facts where space = %s order by embedding <=> %s::vector limit 10"


def vector_of(text: str) -> str:
    """Return a text's vector as SQL reads it."""
    return str(EMBED(text))


async def plainly(uri: str, statement: str, parameters: list[object]) -> int:
    """Return how many rows a question by the index brings with pgvector's defaults."""
    async with await psycopg.AsyncConnection.connect(uri, **BY_INDEX) as connection:
        cursor = await connection.execute(statement.encode(), parameters)
        return len(await cursor.fetchall())


async def test_dead_rows_leave_the_search_empty(connect: Connect, database_uri: str) -> None:
    """After many deletes an HNSW search finds nothing until a VACUUM; ours serves what is there.

    https://github.com/pgvector/pgvector/issues/244
    """
    case = case_of(store_of(connect(kwargs=BY_INDEX), index="hnsw"))
    # Equal vectors would be one candidate, so each text has words of its own.
    facts = [case.fact(f"coffee {n} at {n * 7} or {n * 13}") for n in range(600)]
    await case.store.put_many([(fact, case.label(fact)) for fact in facts])
    await ask(database_uri, "alter table facts set (autovacuum_enabled = off)")
    for hit in await case.search("coffee 3 at 21 or 39", 200):
        await case.store.delete(hit.entry)
    assert await plainly(database_uri, NEAREST, [vector_of("coffee 3 at 21 or 39")]) < 10
    assert len(await case.search("coffee 3 at 21 or 39", 10)) == 10


@pytest.mark.parametrize("vector_type", ["vector", "halfvec"])
async def test_a_filter_after_the_index_finds_none(
    connect: Connect, database_uri: str, vector_type: Any
) -> None:
    """A filter is applied to forty candidates, so a small space comes back empty; ours is whole.

    https://github.com/pgvector/pgvector/issues/751
    """
    case = case_of(store_of(connect(kwargs=BY_INDEX), index="hnsw", vector_type=vector_type))
    crowd = [case.fact(f"black coffee {n} {n * 7}", space="crowd") for n in range(600)]
    rare = [case.fact(f"tea with milk {n}", space="rare") for n in range(5)]
    await case.store.put_many([(fact, case.label(fact)) for fact in (*crowd, *rare)])
    await ask(database_uri, "drop index facts_space_idx")
    asked = NEAREST_IN.replace("::vector", f"::{vector_type}")
    assert await plainly(database_uri, asked, ["rare", vector_of("black coffee 1")]) < 5
    hits = await case.search("black coffee 1", 10, ["rare"])
    assert {hit.entry.fact_id for hit in hits} == {fact.fact_id for fact in rare}


async def test_iterative_scans_end_too_early(connect: Connect, database_uri: str) -> None:
    """Even an iterative scan stops at `max_scan_tuples`; where it comes back short ours asks without it.

    https://github.com/plastic-labs/honcho/issues/1048
    """
    options = BY_INDEX["options"] + " -c hnsw.max_scan_tuples=50"
    case = case_of(store_of(connect(kwargs={"autocommit": True, "options": options}), index="hnsw"))
    crowd = [case.fact(f"black coffee {n} {n * 7}", space="crowd") for n in range(600)]
    rare = [case.fact(f"tea with milk {n}", space="rare") for n in range(5)]
    await case.store.put_many([(fact, case.label(fact)) for fact in (*crowd, *rare)])
    await ask(database_uri, "drop index facts_space_idx")
    iterative = "set_config('hnsw.iterative_scan', 'strict_order', false)"
    async with await psycopg.AsyncConnection.connect(database_uri, options=options) as connection:
        await connection.execute(f"select {iterative}".encode())
        cursor = await connection.execute(NEAREST_IN.encode(), ["rare", vector_of("black coffee 1")])
        assert len(await cursor.fetchall()) < 5
    hits = await case.search("black coffee 1", 10, ["rare"])
    assert {hit.entry.fact_id for hit in hits} == {fact.fact_id for fact in rare}


async def test_a_deleted_vector_stays_in_the_files(connect: Connect) -> None:
    """Deleted is not erased from disk: both are said apart, and until when.

    https://github.com/chroma-core/chroma/issues/7662, https://github.com/pgvector/pgvector/issues/450
    """
    case = case_of(store_of(connect(), index="hnsw"))
    put = await case.put()
    await case.delete(put)
    here, elsewhere = await case.store.after_forget(put.entries)
    assert "deleted rows of facts and their vectors in facts_embedding_idx" in here
    assert "until VACUUM (INDEX_CLEANUP ON)" in here
    assert "automatic or plain VACUUM may pass over indexes" in here
    assert "log, replicas and backups" in elsewhere


async def test_a_batch_with_a_refused_row_is_not_recorded_as_done(
    connect: Connect, database_uri: str
) -> None:
    """A failed upsert is never taken for done: a batch is whole or not there, and says so.

    https://github.com/langchain-ai/langchain/issues/40226
    """
    case = case_of(store_of(connect()))
    await case.store.find("nothing")
    await ask(database_uri, "alter table facts add check (text <> 'refused')")
    facts = [case.fact("one"), case.fact("refused"), case.fact("two")]
    with pytest.raises(StoreRefused):
        await case.store.put_many([(fact, case.label(fact)) for fact in facts])
    assert [await case.store.find(fact.fact_id) for fact in facts] == [[], [], []]


async def test_a_delete_by_the_wrong_kind_of_id_proves_nothing(connect: Connect, database_uri: str) -> None:
    """A delete of what is not there succeeds; that the fact is still held is found by its fact id.

    https://github.com/langgenius/dify/issues/40457
    """
    for statement in MEM0.ddl:
        await ask(database_uri, statement)
    options: dict[str, Any] = {"existing": MEM0.existing, "dimensions": 64, "embed": WordEmbedder(64)}
    case = case_of(PgVectorStore(connect(), table=MEM0.table, **options))
    put = await case.put()
    for wrong in (put.label.key, put.fact.fact_id):
        await case.store.delete(Entry(store="pgvector", external_id=wrong, fact_id=put.fact.fact_id))
    assert [await case.said_gone(entry) for entry in (*put.entries, *put.blind)] == [False, False]
    assert [entry.external_id for entry in await case.store.find(put.fact.fact_id)] == list(put.ids)


async def test_a_delete_without_the_owners_scope_is_not_success(connect: Connect, database_uri: str) -> None:
    """A row lies in the scope it was written to; a delete in another one does nothing, and is found out.

    https://github.com/danny-avila/LibreChat/issues/14988
    """
    for statement in APP.ddl:
        await ask(database_uri, statement)
    options: dict[str, Any] = {"existing": APP.existing, "dimensions": 64, "embed": WordEmbedder(64)}
    case = case_of(PgVectorStore(connect(), table=APP.table, **options))
    put = await case.put(case.fact(space="user:1"))
    elsewhere = replace(put.entries[0], scope="user:2")
    await case.store.delete(elsewhere)
    assert [await case.said_gone(entry) for entry in (elsewhere, put.entries[0])] == [False, False]
    await case.delete(put)
    assert await case.said_gone(put.entries[0]) is True


async def test_a_zero_vector_is_no_answer_and_no_row(connect: Connect, database_uri: str) -> None:
    """A vector of zeros is accepted by Postgres and left out by its index: two plans, two counts.

    https://github.com/pgvector/pgvector#why-are-there-less-results-for-a-query-after-adding-an-hnsw-index
    """
    case = case_of(store_of(connect(kwargs=BY_INDEX), index="hnsw"))
    await case.put()
    zeros = f"[{','.join('0' * DIMENSIONS)}]"
    await ask(database_uri, "insert into facts (key, text, embedding) values ('zero', 'x', %s)", [zeros])
    assert await plainly(database_uri, NEAREST, [vector_of("x")]) == 1
    assert len(await ask(database_uri, "select 1 from facts where embedding is not null")) == 2
    assert len(await case.search("x", 10)) == 2
