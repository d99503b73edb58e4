"""What is special to LangGraph's stores, on the real ones: namespaces, order, loops, dates, indexes."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fakes.langgraph_store import CappedStore, run
from fix_listing import check_listing
from langgraph.store.base import GetOp, IndexConfig, Op, PutOp, Result, SearchOp
from langgraph.store.memory import InMemoryStore
from langgraph.store.postgres import AsyncPostgresStore, PostgresStore
from langgraph.store.sqlite import AsyncSqliteStore, SqliteStore

from custody_sync.adapters.langgraph import LangGraphStore
from custody_sync.errors import InvalidStore, MissingExtra, NoProof, StoreError, StoreRefused
from custody_sync.model import Capability, Entry, Level
from custody_sync.testing.contract_case import Case, StoreHooks
from custody_sync.testing.embedding import WordEmbedder

DIMENSIONS = 64
INDEX: IndexConfig = {"dims": DIMENSIONS, "embed": WordEmbedder(DIMENSIONS).many, "fields": ["text"]}


@pytest.fixture
def raw(graph_store: Any) -> Any:
    """Return each of LangGraph's stores in turn."""
    return graph_store


def case_of(store: LangGraphStore) -> Case:
    """Return the contract's toolbox for one store."""
    return Case("integration", store, StoreHooks())


async def test_a_listing_shows_each_of_1234_once_while_others_come_and_go(raw: Any) -> None:
    """Entries with one equal time, in several namespaces, are listed exactly once under change."""
    store = LangGraphStore(raw)
    case = case_of(store)
    facts = [case.fact(f"note {n}", space=f"user:{n % 3}") for n in range(1_234)]
    labels = [case.label(fact) for fact in facts]
    puts: list[Op] = []
    for n, (fact, label) in enumerate(zip(facts, labels, strict=True)):
        value = {**label.to_metadata(), "text": f"{fact.text}"}
        puts.append(PutOp(("memories", f"user:{n % 3}"), label.key, value))
    await run(raw, puts)  # one statement: all updated_at are equal, so an order by it decides nothing
    passing = [
        case.confirmed(fact, label, [label.key]) for fact, label in zip(facts[:100], labels, strict=False)
    ]
    await check_listing(case, {label.key for label in labels}, passing)


SPACES = ["a.b", "a", "b", "a/b", "%", "a%2Eb", "langgraph", "größe", "🦊 fox", "*", "x' or 1=1 --"]


async def test_odd_spaces_stay_apart(raw: Any) -> None:
    """A space with any characters has its own namespace, and only its own facts are served from it."""
    case = case_of(LangGraphStore(raw))
    puts = {space: await case.put(case.fact("the same words", space=space)) for space in SPACES}
    for space, put in puts.items():
        served = await case.search("the same words", 50, [space])
        assert [hit.entry.fact_id for hit in served] == [put.fact.fact_id]
        assert [entry.space for entry in await case.held(put)] == [space]
    assert {entry.space for entry in await case.listed()} == set(SPACES)
    await case.delete(puts["a.b"])
    assert await case.proved_gone(puts["a.b"].entries[0]) is True
    assert len(await case.listed()) == len(SPACES) - 1


async def test_a_root_of_spaces_is_listed_whole(raw: Any) -> None:
    """A template without a fixed first label still lists and finds everything."""
    case = case_of(LangGraphStore(raw, namespace=("{space}", "notes")))
    puts = [await case.put(case.fact(space=space)) for space in ("langgraph", "a.b", "c")]
    assert {entry.external_id for entry in await case.listed()} == {put.label.key for put in puts}
    assert [len(await case.held(put)) for put in puts] == [1, 1, 1]


async def test_a_function_may_choose_the_namespace(raw: Any) -> None:
    """Whatever namespace a function of the fact returns, the entry is found, listed and removed there."""
    case = case_of(LangGraphStore(raw, namespace=lambda fact: ("by-subject", fact.subject, fact.space)))
    put = await case.put(case.fact(space="user.1"))
    assert [entry.scope for entry in await case.listed()] == ['["by-subject","user%2E1","user%2E1"]']
    assert [hit.entry.fact_id for hit in await case.search(f"{put.fact.text}", 5, ["user.1"])] == [
        put.fact.fact_id
    ]
    await case.delete(put)
    assert await case.proved_gone(put.entries[0]) is True


async def test_an_entry_without_scope_is_reached_by_its_fact_id(raw: Any) -> None:
    """After an erasure took the scope from the ledger, the entry can still be removed and verified."""
    case = case_of(LangGraphStore(raw))
    put, neighbour = await case.put(), await case.put()
    bare = replace(put.entries[0], scope=None, text=None)
    assert await case.said_gone(bare) is False
    await case.store.delete(bare)
    assert await case.said_gone(bare) is True
    assert len(await case.held(neighbour)) == 1
    with pytest.raises(NoProof):
        await case.store.verify_deleted(Entry(store="langgraph", external_id="x"))
    with pytest.raises(StoreRefused):
        await case.store.delete(Entry(store="langgraph", external_id="x"))


async def test_dates_are_aware_and_true(raw: Any) -> None:
    """`created_at` is UTC whatever the store returns, SQLite's naive times included."""
    case = case_of(LangGraphStore(raw))
    put = await case.put()
    created_at = (await case.held(put))[0].created_at
    assert created_at is not None
    assert created_at.utcoffset() == timedelta(0)
    assert abs(created_at - datetime.now(UTC)) < timedelta(minutes=5)


async def test_what_is_held_is_one_flat_dictionary(raw: Any) -> None:
    """The item is the text beside the label's scalars, which every backend can filter by equality."""
    case = case_of(LangGraphStore(raw))
    put = await case.put()
    item: Any = (await run(raw, [GetOp(("memories", case.space), put.label.key)]))[0]
    assert item.value == {**put.label.to_metadata(), "text": put.fact.text}
    assert all(isinstance(part, str | int) for part in item.value.values())


async def test_a_crowd_of_equal_texts_gives_no_false_proof(raw: Any) -> None:
    """Among 301 equal texts a held entry is never gone; a removed one is, at the latest without its text."""
    case = case_of(LangGraphStore(raw))
    same = "what everyone says"
    puts = await case.put_all([case.fact(same, space="crowd") for _ in range(302)])
    target = puts[150]
    assert await case.said_gone(target.entries[0]) is False
    await case.delete(target)
    assert await case.said_gone(target.entries[0]) in (True, "NoProof")
    assert await case.said_gone(target.blind[0]) is True


class _LaggingIndex(InMemoryStore):
    """A store whose lookups no longer have an item that its search still serves."""

    lost: str = ""

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        answers = await super().abatch(list(ops))
        for n, op in enumerate(ops):
            if isinstance(op, GetOp) and op.key == self.lost:
                answers[n] = None
            found: Any = answers[n]
            if isinstance(op, SearchOp) and (op.query is None or op.filter):
                answers[n] = [item for item in found if item.key != self.lost]
        return answers


async def test_what_the_search_still_serves_is_not_gone() -> None:
    """Neither a missing key nor a missing fact id outweighs the search that shows the text, however deep."""
    raw = _LaggingIndex(index=INDEX)
    case = case_of(LangGraphStore(raw))
    puts = await case.put_all([case.fact("one and the same", space="crowd") for _ in range(301)])
    last = puts[-1]
    raw.lost = last.label.key
    assert await case.said_gone(last.entries[0]) is False


async def test_a_store_that_caps_its_answers_is_read_to_the_end() -> None:
    """A short answer of a store we do not know ends no listing, and only all its pages are a proof."""
    case = case_of(LangGraphStore(CappedStore(index=INDEX)))
    puts = await case.put_all([case.fact("said by all", space="crowd") for _ in range(130)])
    assert len(await case.listed()) == 130
    await case.delete(puts[-1])
    assert [await case.said_gone(entry) for entry in (*puts[-1].entries, *puts[-1].blind)] == [True, True]
    assert [await case.said_gone(entry) for entry in (*puts[-2].entries, *puts[-2].blind)] == [False, False]


async def test_an_index_that_serves_nothing_proves_nothing() -> None:
    """Where the search does not even show what is there, its silence is not counted as an answer."""
    case = case_of(LangGraphStore(CappedStore(index=INDEX, is_blind=True)))
    gone, _stays = await case.put(case.fact(space="a")), await case.put(case.fact(space="a"))
    await case.delete(gone)
    assert await case.said_gone(gone.entries[0]) == "NoProof"


async def test_an_async_store_of_another_loop_is_refused(tmp_path: Path) -> None:
    """A store that lives in another event loop is one clear error, not a call that never ends."""

    async def elsewhere() -> LangGraphStore:
        async with AsyncSqliteStore.from_conn_string(str(tmp_path / "store.db")) as raw:
            return LangGraphStore(raw)

    store = await asyncio.to_thread(asyncio.run, elsewhere())
    with pytest.raises(InvalidStore, match="another event loop"):
        await store.find("any")


async def test_a_connection_bound_to_its_thread_is_refused_by_name(tmp_path: Path) -> None:
    """A SQLite connection that may not leave its thread gives a refusal, and nothing is written."""
    connection = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    raw = SqliteStore(connection)
    raw.setup()
    case = case_of(LangGraphStore(raw))
    with pytest.raises(StoreRefused, match="ProgrammingError"):
        await case.put()
    assert connection.execute("select count(*) from store").fetchone() == (0,)
    connection.close()


@pytest.mark.skipif(
    hasattr(sqlite3.Connection, "enable_load_extension"), reason="here SqliteStore's index can be loaded"
)
def test_a_sqlite_index_that_cannot_load_is_said_at_once() -> None:
    """Without loadable extensions the adapter says so when it is made, not at the first put."""
    raw = SqliteStore(sqlite3.connect(":memory:", check_same_thread=False), index=INDEX)
    with pytest.raises(InvalidStore, match="load extensions"):
        LangGraphStore(raw)
    raw.conn.close()


@pytest.mark.skipif(
    not hasattr(sqlite3.Connection, "enable_load_extension"),
    reason="this Python's sqlite3 cannot load extensions, and SqliteStore's index is one",
)
@pytest.mark.parametrize("is_async", [False, True])
async def test_sqlite_keeps_no_vector_of_a_deleted_entry(tmp_path: Path, is_async: bool) -> None:
    """A deletion takes the vector with it, which the store by itself leaves behind (langgraph#8757)."""
    file = tmp_path / "store.db"
    async with AsyncExitStack() as stack:
        if is_async:
            raw: Any = await stack.enter_async_context(
                AsyncSqliteStore.from_conn_string(str(file), index=dict(INDEX))
            )  # type: ignore[arg-type]
        else:
            raw = stack.enter_context(SqliteStore.from_conn_string(str(file), index=dict(INDEX)))  # type: ignore[arg-type]
        case = case_of(LangGraphStore(raw))
        gone, stays = await case.put(), await case.put()
        await case.delete(gone)
        with sqlite3.connect(file) as connection:
            keys = connection.execute("select key from store_vectors").fetchall()
        connection.close()
        assert keys == [(stays.label.key,)]
        assert await case.said_gone(gone.entries[0]) is True


async def test_custody_and_not_a_default_ttl_decides_how_long(database_uri: str) -> None:
    """Our items never expire by the store's default, and reading prolongs nobody else's."""
    ttl: Any = {"default_ttl": 60, "refresh_on_read": True}
    async with AsyncPostgresStore.from_conn_string(database_uri, ttl=ttl) as raw:
        await raw.setup()
        await raw.aput(("memories", "others"), "theirs", {"text": "passing"})

        async def expiries() -> dict[str, Any]:
            conn: Any = raw.conn
            rows = await (await conn.execute("select key, expires_at from store")).fetchall()
            return {row["key"]: row["expires_at"] for row in rows}

        case = case_of(LangGraphStore(raw))
        put = await case.put()
        before = await expiries()
        assert before[put.label.key] is None
        await case.listed()
        await case.search("passing", 5)
        await case.held(put)
        assert await case.said_gone(put.entries[0]) is False
        assert await expiries() == before


async def test_a_store_that_was_never_set_up_is_refused(database_uri: str) -> None:
    """A missing table is named by its status; neither key nor text is quoted."""
    async with AsyncPostgresStore.from_conn_string(database_uri) as raw:
        case = case_of(LangGraphStore(raw))
        fact = case.fact("the customer is called Mallory")
        with pytest.raises(StoreRefused, match="UndefinedTable 42P01") as caught:
            await case.put(fact)
        assert "Mallory" not in repr(caught.value.to_dict())
        for ask in (case.store.find("x"), case.listed(), case.store.search("x", 3, None)):
            with pytest.raises(StoreError):
                await ask


async def test_one_store_serves_many_callers_in_threads(database_uri: str) -> None:
    """A blocking store on a single connection takes concurrent puts, finds and deletes."""
    with PostgresStore.from_conn_string(database_uri) as raw:
        raw.setup()
        case = case_of(LangGraphStore(raw, threads=8))
        puts = await case.put_all([case.fact() for _ in range(60)])
        await case.delete(*puts[:30])
        assert {e.external_id for e in await case.listed()} == {put.label.key for put in puts[30:]}


def test_capabilities_say_what_a_kind_of_store_cannot_do() -> None:
    """A store without an index, and one with an approximate one, say so with a reason."""
    plain = LangGraphStore(InMemoryStore()).capabilities
    assert plain[Capability.SEARCH].level is Level.PARTIAL
    assert "no index" in plain[Capability.SEARCH].reason
    assert Capability.SEARCH not in LangGraphStore(InMemoryStore(index=INDEX)).capabilities


async def test_after_a_forget_each_kind_says_what_it_leaves(raw: Any) -> None:
    """Disk stores name their VACUUM; a store in memory leaves nothing; nothing forgotten says nothing."""
    case = case_of(LangGraphStore(raw))
    put = await case.put()
    said = " ".join(await case.store.after_forget(put.entries))
    assert ("VACUUM" in said) is not isinstance(raw, InMemoryStore)
    assert tuple(await case.store.after_forget([])) == ()


def test_what_is_not_a_langgraph_store_is_refused() -> None:
    """A wrong object and a contradicting `blocking` are refused when the adapter is made."""
    not_a_store: Any = object()
    with pytest.raises(InvalidStore, match="not a LangGraph BaseStore"):
        LangGraphStore(not_a_store)
    with pytest.raises(InvalidStore, match="blocking"):
        LangGraphStore(InMemoryStore(), blocking=True)


def test_without_langgraph_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing vendor is one sentence with the pip command."""
    monkeypatch.setitem(sys.modules, "langgraph.store.base", None)
    with pytest.raises(MissingExtra, match=r"custody-sync\[langgraph\]"):
        LangGraphStore(InMemoryStore())


async def test_a_search_hit_has_the_stores_own_score(raw: Any) -> None:
    """Hits come best first with the score the store gave, which is none without an index."""
    case = case_of(LangGraphStore(raw))
    await case.put(case.fact("the invoice is paid", space="a"))
    best = await case.put(case.fact("black coffee please", space="b"))
    hits = await case.search("black coffee", 2, ["a", "b"])
    if getattr(raw, "index_config", None):
        assert hits[0].entry.fact_id == best.fact.fact_id
        assert (hits[0].score or 0) > (hits[1].score or 0)
    else:
        assert {hit.score for hit in hits} == {None}
    assert await case.search("black coffee", 0) == []
