"""A pgvector table listed: each entry once, whatever comes and goes, and rows of others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from fix_listing import check_listing
from fix_pgvector import Connect, ask, case_of, fill, store_of


async def test_a_listing_shows_each_of_1234_once_while_others_come_and_go(connect: Connect) -> None:
    """Every entry that stays is listed exactly once, whatever is put and deleted meanwhile."""
    case = case_of(store_of(connect(), page_size=50))
    pairs = await fill(case, 1_234)
    passing = [case.confirmed(fact, label, [label.key]) for fact, label in pairs[::13]]
    await check_listing(case, {label.key for _, label in pairs}, passing)


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 20])
async def test_page_edges_lose_nothing(connect: Connect, count: int) -> None:
    """A full last page is no reason to list anything twice or to stop short."""
    case = case_of(store_of(connect(), page_size=10))
    pairs = await fill(case, count) if count else []
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
    assert len(await case.store.find("f")) == 4, "one that names no ledger is nobody's"


async def test_times_come_back_in_utc(connect: Connect, database_uri: str) -> None:
    """The zone of the session does not shift an instant."""
    await ask(database_uri, "set timezone = 'Asia/Kolkata'")
    case = case_of(store_of(connect(kwargs={"autocommit": True, "options": "-c timezone=Asia/Kolkata"})))
    put = await case.put()
    for entry in [*await case.listed(), *await case.held(put)]:
        assert entry.stored_at == put.label.stored_at
        assert entry.stored_at.utcoffset() == timedelta(0)
