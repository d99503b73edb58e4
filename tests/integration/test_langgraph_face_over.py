"""The one line that changes: a face over a store and a ledger's URL, blocking and awaited, and its end."""

from __future__ import annotations

import asyncio
import importlib
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from langgraph.store.base import BaseStore, GetOp
from langgraph.store.memory import InMemoryStore
from langgraph.store.sqlite import AsyncSqliteStore, SqliteStore
from psycopg_pool import AsyncConnectionPool

from custody_sync.adapters.pgvector import PgVectorStore
from custody_sync.errors import ClosedError, InsideEventLoop, InvalidInput, LedgerNotFound, MissingExtra
from custody_sync.faces.langgraph import CustodyStore
from custody_sync.sync import Coordinator
from custody_sync.testing import MemoryStore
from custody_sync.testing.embedding import WordEmbedder


def url(folder: Path) -> str:
    """Return the URL of a ledger in a folder."""
    return f"sqlite:///{folder / 'custody.db'}"


def test_the_line_that_changes(tmp_path: Path) -> None:
    """Over a store in memory everything works as before, and another process finds it all in the ledger."""
    raw = InMemoryStore(index={"dims": 64, "embed": WordEmbedder(64).many, "fields": ["text"]})
    with CustodyStore.over(raw, url(tmp_path), actor="agent:support") as store:
        assert isinstance(store, BaseStore)
        store.put(("memories", "42"), "tea", {"text": "likes green tea", "n": 1})
        store.put(("memories", "42"), "car", {"text": "drives an old car", "n": 2})
        (first, _) = store.search(("memories", "42"), query="which tea?")
        assert (first.key, first.value["n"]) == ("tea", 1)
        assert first.score is not None
        store.put(("memories", "42"), "none", {"n": 3})
        assert len(store.search(("memories",), query="which tea?")) == 2
        assert store.batch([GetOp(("memories", "42"), "tea")])[0] == store.get(("memories", "42"), "tea")
        (card,) = store.custody.card("memories/42/tea", "item")  # type: ignore[misc]  # it is a Coordinator
        assert [fact.actor for fact in card.current] == ["agent:support"]
        assert raw.search(("memories",)) == []
        kept = store.search(())
    with CustodyStore.over(InMemoryStore(), url(tmp_path), create=False) as again:
        assert [(i.key, i.value, i.created_at) for i in again.search(())] == [
            (i.key, i.value, i.created_at) for i in kept
        ]
        again.delete(("memories", "42"), "tea")
    with pytest.raises(ClosedError):
        store.get(("memories", "42"), "tea")
    with pytest.raises(LedgerNotFound):
        CustodyStore.over(InMemoryStore(), url(tmp_path / "elsewhere"), create=False)


async def test_inside_a_loop_it_blocks_as_the_original_does(tmp_path: Path) -> None:
    """In a notebook, or in an asynchronous node that calls `get`, the same lines work."""
    store = CustodyStore.over(InMemoryStore(), url(tmp_path))
    store.put(("n",), "k", {"v": 1})
    assert await store.aget(("n",), "k") == store.get(("n",), "k")
    await asyncio.gather(*(store.aput(("n",), f"k{n}", {"v": n}) for n in range(5)))
    assert len(await store.asearch(("n",))) == 6
    store.close()
    store.close()


async def test_a_store_that_lives_in_a_loop_is_taken_by_aover(tmp_path: Path) -> None:
    """An asynchronous store is refused by `over` and awaited under `aover`; calls that block are refused."""
    async with AsyncSqliteStore.from_conn_string(str(tmp_path / "store.db")) as raw:
        await raw.setup()
        with pytest.raises(InvalidInput, match="aover"):
            CustodyStore.over(raw, url(tmp_path))
        assert not (tmp_path / "custody.db").exists()
        async with await CustodyStore.aover(raw, url(tmp_path)) as store:
            await store.aput(("n",), "k", {"v": 1})
            assert [item.value for item in await store.asearch(("n",))] == [{"v": 1}]
            with pytest.raises(InsideEventLoop, match="aget"):
                store.get(("n",), "k")
            # A synchronous node of an asynchronous graph runs in a thread.
            await asyncio.to_thread(store.put, ("n",), "k", {"v": 2})
            assert (await asyncio.to_thread(store.acting_as("b").search, ("n",)))[0].value == {"v": 2}
            with pytest.raises(InsideEventLoop, match="aclose"):
                store.close()
        with pytest.raises(ClosedError):
            await store.aget(("n",), "k")


async def test_aclose_ends_what_over_opened(tmp_path: Path) -> None:
    """A face of `over` may be closed from a loop, and closing a view of it closes nothing."""
    async with CustodyStore.over(InMemoryStore(), url(tmp_path)) as store:
        view = store.acting_as("user:42", "ticket-7")
        async with view:
            await view.aput(("n",), "k", {"v": 1})
        await store.aput(("n",), "k", {"v": 2})
        with ThreadPoolExecutor(1) as pool:
            history = pool.submit(store.custody.card, "n/k", "item").result()
        assert [(link.fact.actor, link.fact.receipt_id) for link in history[0].chain] == [
            ("user:42", "ticket-7"),
            ("app", None),
        ]
    with pytest.raises(ClosedError):
        await store.aget(("n",), "k")


def test_a_lifetime_that_the_store_gives_by_default_stays_in_force(tmp_path: Path) -> None:
    """A store's `default_ttl` becomes the face's, and `ttl=None` is for good as it was."""
    ttl: Any = {"default_ttl": 7, "refresh_on_read": True}
    with (
        SqliteStore.from_conn_string(str(tmp_path / "store.db"), ttl=ttl) as raw,
        CustodyStore.over(raw, url(tmp_path)) as store,
    ):
        store.put(("n",), "ends", {"v": 1})
        store.put(("n",), "stays", {"v": 2}, ttl=None)
        ends, stays = store.custody.as_of(space="n")  # type: ignore[misc]  # it is a Coordinator
        assert ends.valid_to is not None
        assert 6.9 * 60 < (ends.valid_to - ends.valid_from).total_seconds() < 7.1 * 60
        assert stays.valid_to is None


def test_over_a_store_of_ours(tmp_path: Path) -> None:
    """Any store of custody-sync serves under it: searching is recall."""
    with CustodyStore.over(MemoryStore("vectors"), url(tmp_path)) as store:
        store.put(("n",), "k", {"text": "green tea"})
        assert [item.key for item in store.search((), query="tea")] == ["k"]
        with pytest.raises(InvalidInput, match="already"):
            CustodyStore.over(store, url(tmp_path))
    for wrong in ({}, None, "store"):
        with pytest.raises(InvalidInput, match="original"):
            CustodyStore.over(wrong, url(tmp_path))  # type: ignore[arg-type]


def test_the_space_may_be_chosen(tmp_path: Path) -> None:
    """With `space` several namespaces share one, `below` says where to look, and nothing else changes."""
    asked: list[tuple[str, ...]] = []

    def below(prefix: tuple[str, ...]) -> list[str] | None:
        asked.append(prefix)
        return [f"user:{prefix[0]}"] if prefix else None

    with Coordinator(url(tmp_path), create=True, stores=[MemoryStore("vectors")]) as custody:
        for more in ({"below": below}, {}):
            store = CustodyStore(custody, space=lambda namespace: f"user:{namespace[0]}", **more)  # type: ignore[arg-type]
            store.put(("42", "notes"), "tea", {"text": "likes green tea"})
            store.put(("42", "plans"), "tea", {"text": "will buy green tea"})
            store.put(("7", "notes"), "tea", {"text": "hates green tea"})
            assert [item.namespace for item in store.search(("42",))] == [("42", "notes"), ("42", "plans")]
            assert len(store.search(("42", "plans"), query="tea")) == 1
            assert len(store.search((), query="tea")) == 3
            assert store.list_namespaces() == [("42", "notes"), ("42", "plans"), ("7", "notes")]
            assert custody.spaces() == ["user:42", "user:7"]
        assert asked.count(("42",)) == 1
        assert CustodyStore(custody).search(()) == []
        store.close()
        assert custody.spaces()


@pytest.mark.parametrize(
    "wrong",
    [
        {"actor": " "},
        {"fields": "text"},
        {"default_ttl": 0},
        {"space": "org"},
        {"below": lambda prefix: None},
        {"store": ""},
    ],
)
def test_a_wrong_argument_is_refused_and_leaves_nothing_open(tmp_path: Path, wrong: Any) -> None:
    """Each is one sentence; `over` closes what it had opened."""
    with (
        Coordinator(url(tmp_path), create=True, stores=[MemoryStore("vectors")]) as custody,
        pytest.raises(InvalidInput),
    ):
        CustodyStore(custody, **wrong)
    with pytest.raises(InvalidInput):
        CustodyStore("sqlite:///custody.db")  # type: ignore[arg-type]


def test_without_langgraph_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing the face without LangGraph is one sentence that says what to install."""
    monkeypatch.setitem(sys.modules, "langgraph.store.base", None)
    monkeypatch.delitem(sys.modules, "custody_sync.faces.langgraph")
    with pytest.raises(MissingExtra, match=r"custody-sync\[langgraph\]"):
        importlib.import_module("custody_sync.faces.langgraph")


def test_over_a_table_of_vectors(tmp_path: Path, database_uri: str) -> None:
    """Over pgvector the same calls work, and what was replaced or deleted leaves its table."""
    pool: AsyncConnectionPool[Any] = AsyncConnectionPool(database_uri, open=False, min_size=1, max_size=4)
    table = PgVectorStore(pool, table="memories", dimensions=64, embed=WordEmbedder(64))
    with CustodyStore.over(table, url(tmp_path)) as store:
        store.put(("m", "1"), "tea", {"text": "likes green tea", "n": 9}, index=["text"])
        store.put(("m", "1"), "tea", {"text": "likes black tea", "n": 10}, index=["text"])
        store.put(("m", "2"), "car", {"text": "drives a car", "n": 100}, index=["text"])
        assert [i.value["n"] for i in store.search(("m", "1"), query="green tea")] == [10]
        assert [i.key for i in store.search((), query="tea", filter={"n": {"$gte": 9.5}})] == ["tea", "car"]
        store.delete(("m", "1"), "tea")
        assert [i.key for i in store.search((), query="green tea")] == ["car"]
        with psycopg.connect(database_uri) as connection:
            assert connection.execute("select text from memories").fetchall() == [("drives a car",)]
