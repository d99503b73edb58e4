"""What went wrong for others with stores like LangGraph's: shown on the bare store, then not happening."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from fakes.langgraph_store import BentMemory, run
from langgraph.store.base import IndexConfig, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore
from langgraph.store.sqlite import SqliteStore

from custody_sync.adapters import _langgraph_direct as direct
from custody_sync.adapters.langgraph import LangGraphStore
from custody_sync.errors import StoreUnavailable
from custody_sync.testing.contract_case import Case, StoreHooks, Trouble
from custody_sync.testing.embedding import WordEmbedder

INDEX: IndexConfig = {"dims": 64, "embed": WordEmbedder(64).many, "fields": ["text"]}


def case_of(store: LangGraphStore) -> Case:
    """Return the contract's toolbox for one store."""
    return Case("integration", store, StoreHooks())


def test_a_deleted_item_leaves_its_vector(tmp_path: Path) -> None:
    """`SqliteStore` keeps the embedding of what it deletes, and a reused key inherits it; ours goes.

    https://github.com/langchain-ai/langgraph/issues/8757
    """
    with SqliteStore.from_conn_string(str(tmp_path / "store.db")) as raw:
        raw.setup()
        # The table of its index, which itself needs an extension that many Pythons cannot load.
        raw.conn.execute(
            "create table store_vectors (prefix text, key text, field_name text, embedding blob, "
            "foreign key (prefix, key) references store (prefix, key) on delete cascade)"
        )
        raw.put(("a",), "k", {"text": "x"})
        raw.conn.execute("insert into store_vectors values ('a', 'k', 'text', x'00')")
        raw.delete(("a",), "k")
        count = "select count(*) from store_vectors"
        assert raw.conn.execute(count).fetchone() == (1,)
        direct.drop_vectors(raw, ("a",), "k")
        assert raw.conn.execute(count).fetchone() == (0,)


async def test_a_key_is_never_used_again(graph_store: Any) -> None:
    """Each placement of a fact has a key of its own, so that nothing is inherited from an earlier one.

    https://github.com/langchain-ai/langgraph/issues/8757
    """
    case = case_of(LangGraphStore(graph_store))
    fact = case.fact()
    keys = set()
    for _ in range(5):
        put = await case.put(fact)
        await case.delete(put)
        keys.add(put.label.key)
    assert len(keys) == 5


async def test_an_index_crawled_while_it_is_cleaned_keeps_a_part(graph_store: Any) -> None:
    """Offset pages lose rows when what was read is deleted; a sweep by the listing takes all of them.

    https://github.com/langchain-ai/langchain/issues/39937
    """
    where = ("naive",)
    await run(graph_store, [PutOp(where, str(n), {"text": f"note {n}"}, False, None) for n in range(301)])
    offset = 0
    while page := (await run(graph_store, [SearchOp(where, limit=100, offset=offset)]))[0]:
        found: Any = page
        await run(graph_store, [PutOp(where, item.key, None) for item in found])
        offset += 100
    left: Any = (await run(graph_store, [SearchOp(where, limit=500)]))[0]
    assert len(left) == 101

    case = case_of(LangGraphStore(graph_store))
    facts = [case.fact(f"note {n}") for n in range(301)]
    await case.store.put_many([(fact, case.label(fact)) for fact in facts])
    async for entry in case.store.list_entries():
        await case.store.delete(entry)
    assert await case.listed() == []


async def test_a_write_whose_answer_fails_is_not_taken_for_none() -> None:
    """A put that failed in its answer only is unknown, and is found; the record is not marked either way.

    https://github.com/langchain-ai/langchain/issues/40226
    """
    raw = BentMemory(index=INDEX)
    case = case_of(LangGraphStore(raw))
    raw.make(Trouble.LOST_REPLY, 1)
    fact = case.fact()
    with pytest.raises(StoreUnavailable):
        await case.store.put(fact, case.label(fact))
    assert len(await case.store.find(fact.fact_id)) == 1


async def test_a_delete_that_says_yes_is_read_back() -> None:
    """A delete always answers nothing; only what is asked afterwards tells whether it did anything.

    https://github.com/langchain-ai/langchainjs/issues/7924
    """
    raw = BentMemory(index=INDEX)
    case = case_of(LangGraphStore(raw))
    put = await case.put()
    raw.make(Trouble.LYING_DELETE, 1)
    await case.delete(put)
    assert [await case.said_gone(entry) for entry in (*put.entries, *put.blind)] == [False, False]


async def test_the_same_text_in_two_spaces_is_two_entries(graph_store: Any) -> None:
    """Forgetting a memory in one place leaves the same words in another.

    https://github.com/topoteretes/cognee/issues/2732
    """
    case = case_of(LangGraphStore(graph_store))
    here, there = [await case.put(case.fact("likes tea", space=space)) for space in ("user:1", "user:2")]
    await case.delete(here)
    assert await case.proved_gone(here.entries[0]) is True
    assert [entry.space for entry in await case.held(there)] == ["user:2"]


async def test_what_the_caller_changes_later_changes_nothing() -> None:
    """`InMemoryStore` keeps the dictionary it is given, so a caller who goes on using it rewrites the store.

    langgraph-checkpoint 4.3.2, https://github.com/langchain-ai/langgraph/tree/main/libs/checkpoint
    """
    raw, naive = InMemoryStore(index=INDEX), {"said": {"drink": "tea"}}
    await raw.aput(("naive",), "k", naive)
    naive["said"]["drink"] = "poison"
    item = await raw.aget(("naive",), "k")
    assert item is not None
    assert item.value == {"said": {"drink": "poison"}}

    case = case_of(LangGraphStore(raw))
    value: Any = {"drink": "tea"}
    put = await case.put(case.fact("drinks tea", value=value))
    value["drink"] = "poison"
    held = await raw.aget(("memories", case.space), put.label.key)
    assert held is not None
    assert "poison" not in str(held.value)
    assert held.value["text"] == "drinks tea"


@pytest.mark.skipif(
    not hasattr(sqlite3.Connection, "enable_load_extension"),
    reason="this Python's sqlite3 cannot load extensions, and SqliteStore's index is one",
)
async def test_no_vector_is_left_for_others_to_inherit(tmp_path: Path) -> None:
    """With the real index, too, a deletion leaves no row behind.

    https://github.com/langchain-ai/langgraph/issues/8757
    """
    with SqliteStore.from_conn_string(str(tmp_path / "store.db"), index=dict(INDEX)) as raw:  # type: ignore[arg-type]
        case = case_of(LangGraphStore(raw))
        puts = [await case.put() for _ in range(3)]
        await case.delete(*puts)
        assert raw.conn.execute("select count(*) from store_vectors").fetchone() == (0,)
