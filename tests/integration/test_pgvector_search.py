"""A pgvector table searched: never short, nearest first."""

from __future__ import annotations

import pytest
from fix_pgvector import DIMENSIONS, Connect, Index, ask, case_of, store_of


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
