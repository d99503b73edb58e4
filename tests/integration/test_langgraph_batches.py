"""LangGraph's stores: many puts at once, a label changed in place, and places known in another process."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.langgraph_store import BentCapped, BentMemory, CappedStore, run
from fix_langgraph import CountingEmbedder
from langgraph.store.base import GetOp, IndexConfig, PutOp
from langgraph.store.memory import InMemoryStore
from langgraph.store.sqlite import SqliteStore

from custody_sync.adapters import _langgraph_direct as direct
from custody_sync.adapters._langgraph_calls import batches_of
from custody_sync.adapters._scopes import LooseNotes
from custody_sync.adapters.langgraph import LangGraphStore
from custody_sync.errors import InvalidInput, StoreRefused, StoreUnavailable
from custody_sync.model import Capability, Level
from custody_sync.testing.contract_case import Case, StoreHooks, Trouble
from custody_sync.testing.embedding import WordEmbedder

INDEX: IndexConfig = {"dims": 64, "embed": WordEmbedder(64).many, "fields": ["text"]}


def case_of(store: LangGraphStore) -> Case:
    """Return the contract's toolbox for one store."""
    return Case("integration", store, StoreHooks())


# --- many puts -------------------------------------------------------------------------------


async def test_a_large_batch_with_equal_texts_is_held_whole(graph_store: Any) -> None:
    """1,234 facts in one call, many of them with one text, are each held under their own id."""
    case = case_of(LangGraphStore(graph_store))
    facts = [case.fact(f"note {n % 400}", space=f"user:{n % 3}") for n in range(1_234)]
    pairs = [(fact, case.label(fact)) for fact in facts]
    assert await case.store.put_many(pairs) == [(label.key,) for _, label in pairs]
    assert {entry.external_id for entry in await case.listed()} == {label.key for _, label in pairs}
    put = case.confirmed(*pairs[-1], [pairs[-1][1].key])
    assert [entry.text for entry in await case.held(put)] == [facts[-1].text]
    if getattr(graph_store, "index_config", None):
        # Each has the vector of its own text, which nothing can be nearer to.
        hits = await case.search("note 7", 12, None)
        served = [hit for hit in hits if hit.entry.text == "note 7"]
        assert [hit.score for hit in served] == [pytest.approx(1.0)] * 4


async def test_equal_texts_in_one_batch_are_what_a_store_in_memory_refuses() -> None:
    """`InMemoryStore` embeds each text once and counts the items: langgraph-checkpoint 4.3.2 raises."""
    raw = InMemoryStore(index=INDEX)
    same: list[Any] = [PutOp(("a",), key, {"text": "the same"}) for key in ("one", "two")]
    with pytest.raises(ValueError, match="does not match number of indices"):
        await raw.abatch(same)
    assert [len(batch) for batch in batches_of(same, apart=True)] == [1, 1]
    assert [len(batch) for batch in batches_of(same, apart=False)] == [2]


def test_a_batch_has_an_end() -> None:
    """No statement grows with the call: what is more than a thousand is another batch."""
    ops: list[Any] = [PutOp(("a",), str(n), {"text": f"{n % 1_500}"}) for n in range(3_500)]
    for apart in (False, True):
        batches = batches_of(ops, apart=apart)
        assert max(map(len, batches)) <= 1_000
        assert sorted((op.key for batch in batches for op in batch), key=int) == [op.key for op in ops]
    assert all(len({op.value["text"] for op in batch}) == len(batch) for batch in batches)


async def test_a_later_batch_that_fails_refuses_nothing() -> None:
    """What an earlier batch stored stands, so a refusal of a later one is an unknown outcome."""

    class OneBatch(InMemoryStore):
        taken = 0

        async def abatch(self, ops: Any) -> Any:
            self.taken += 1
            if self.taken == 2:
                raise ValueError("the second one is too much")
            return await super().abatch(ops)

    case = case_of(LangGraphStore(OneBatch(index=INDEX)))
    facts = [case.fact("the same") for _ in range(3)]
    with pytest.raises(StoreUnavailable, match="ValueError"):
        await case.store.put_many([(fact, case.label(fact)) for fact in facts])
    assert [len(await case.store.find(fact.fact_id)) for fact in facts] == [1, 0, 0]


async def test_a_blank_text_is_refused_before_the_store_is_asked(graph_store: Any) -> None:
    """Neither `put` nor `put_many` stores a text that nobody could search for."""
    case = case_of(LangGraphStore(graph_store))
    good, blank = case.fact("good"), case.fact(" \n", value="x")
    with pytest.raises(InvalidInput, match="text: must not be empty or blank"):
        await case.store.put(blank, case.label(blank))
    with pytest.raises(InvalidInput, match="blank"):
        await case.store.put_many([(fact, case.label(fact)) for fact in (good, blank)])
    assert await case.listed() == []


async def test_items_share_nothing_with_each_other_nor_with_what_was_read(graph_store: Any) -> None:
    """`InMemoryStore` hands out what it holds; changing one item reaches no other, and no entry."""
    case = case_of(LangGraphStore(graph_store))
    fact = case.fact("what was said")
    first, second = case.label(fact), case.label(fact)
    await case.store.put_many([(fact, first), (fact, second)])
    before = {entry.external_id: entry.text for entry in await case.store.find(fact.fact_id)}
    item: Any = (await run(graph_store, [GetOp(("memories", case.space), first.key)]))[0]
    item.value["text"] = "changed behind the store's back"
    assert before == {first.key: "what was said", second.key: "what was said"}
    other: Any = (await run(graph_store, [GetOp(("memories", case.space), second.key)]))[0]
    assert other.value["text"] == "what was said"


# --- a label in place --------------------------------------------------------------------------


async def test_a_new_label_leaves_text_and_vector_alone(
    graph_store: Any, graph_embedder: CountingEmbedder
) -> None:
    """Nothing is embedded for a new label, and the search goes on serving the text with the same score."""
    case = case_of(LangGraphStore(graph_store))
    put, neighbour = await case.put(case.fact("black coffee 😀 é")), await case.put()
    before = await case.search("black coffee 😀 é", 1, None)
    asked = len(graph_embedder.asked)
    label = replace(put.label, ledger_id="moved", actor="agent:Ünïcøde \"x\" 'y'")
    await case.store.relabel(put.entries[0], label)
    assert len(graph_embedder.asked) == asked
    (entry,) = await case.store.find(put.fact.fact_id)
    assert (entry.ledger_id, entry.text, entry.generation) == ("moved", put.fact.text, label.generation)
    item: Any = (await run(graph_store, [GetOp(("memories", case.space), put.label.key)]))[0]
    assert item.value == {**label.to_metadata(), "text": put.fact.text}
    if before[0].score is not None:
        after = await case.search("black coffee 😀 é", 1, None)
        assert (after[0].entry.external_id, after[0].score) == (put.label.key, before[0].score)
    assert [entry.ledger_id for entry in await case.held(neighbour)] == [case.ledger_id]


async def test_a_new_label_revives_nothing(graph_store: Any) -> None:
    """An item that was deleted meanwhile stays deleted, and the new label is refused."""
    case = case_of(LangGraphStore(graph_store))
    put = await case.put()
    await case.delete(put)
    for entry in (*put.entries, replace(put.blind[0], scope=None)):
        with pytest.raises(StoreRefused, match="no such entry"):
            await case.store.relabel(entry, put.label)
    assert await case.listed() == []


async def test_a_third_partys_store_keeps_its_labels() -> None:
    """Where an item can only be read and put again, relabelling is not offered, and the reason says why."""
    case = case_of(LangGraphStore(CappedStore(index=INDEX)))
    support = case.store.capabilities[Capability.RELABEL]
    assert (support.level, "revive" in support.reason) == (Level.NONE, True)
    put = await case.put()
    with pytest.raises(StoreRefused, match="not supported"):
        await case.store.relabel(put.entries[0], put.label)


def test_sqlite_drops_only_the_vectors_of_a_deleted_item(tmp_path: Path) -> None:
    """The statement that makes up for langgraph#8757 leaves the vectors of what is still there."""
    with SqliteStore.from_conn_string(str(tmp_path / "store.db")) as raw:
        raw.setup()
        raw.conn.execute(
            "create table store_vectors (prefix text, key text, field_name text, embedding blob)"
        )
        raw.put(("a",), "stays", {"text": "x"})
        rows = [("a", "stays"), ("a", "gone"), ("b", "gone")]
        raw.conn.executemany("insert into store_vectors values (?, ?, 'text', x'00')", rows)
        for namespace, key in [("a", "stays"), ("a", "gone")]:
            direct.drop_vectors(raw, (namespace,), key)
        left = raw.conn.execute("select prefix, key from store_vectors order by key desc").fetchall()
    assert left == [("a", "stays"), ("b", "gone")]


# --- places ------------------------------------------------------------------------------------


async def test_a_changed_template_still_finds_what_the_old_one_stored(graph_store: Any) -> None:
    """The ledger's notebook knows every root that was used, so a new root hides nothing from a sweep."""
    notes = LooseNotes()
    before = LangGraphStore(graph_store, namespace=("memories", "{space}"))
    before.remember_in(notes)
    old = await case_of(before).put()
    after = LangGraphStore(graph_store, namespace=("facts", "by space", "{space}"))
    after.remember_in(notes)
    case = case_of(after)
    new = await case.put()
    assert {entry.external_id for entry in await case.listed()} == {old.label.key, new.label.key}
    assert [entry.scope for entry in await case.held(old)] == [old.entries[0].scope]
    erased = replace(old.blind[0], scope=None)
    assert await case.said_gone(erased) is False
    await case.store.delete(erased)
    assert await case.said_gone(erased) is True


@pytest.mark.parametrize("namespace", [("memories", "{space}"), lambda fact: (fact.subject, "notes")])
async def test_a_store_that_enumerates_nothing_is_listed_by_the_notebook(namespace: Any) -> None:
    """Where namespaces cannot be listed, those that were noted are read, in another process too."""
    raw, notes = CappedStore(index=INDEX, enumerates=False), LooseNotes()
    first = LangGraphStore(raw, namespace=namespace)
    first.remember_in(notes)
    case = case_of(first)
    puts = await case.put_all([case.fact(space=f"user:{n % 3}") for n in range(9)])
    again = LangGraphStore(raw, namespace=namespace)
    again.remember_in(notes)
    case = case_of(again)
    assert {entry.external_id for entry in await case.listed()} == {put.label.key for put in puts}
    assert [len(await case.held(put)) for put in puts] == [1] * 9
    await case.delete(puts[0])
    assert [await case.said_gone(entry) for entry in (*puts[0].entries, *puts[0].blind)] == [True, True]
    unknown = LangGraphStore(raw, namespace=namespace)
    with pytest.raises(StoreRefused, match="NoNamespaces"):
        await case_of(unknown).listed()


async def test_a_place_is_noted_before_the_first_put_into_it() -> None:
    """A put whose reply is lost has left its place in the notebook already."""
    notes, raw = LooseNotes(), BentCapped(index=INDEX)
    store = LangGraphStore(raw, namespace=("memories", "{space}"))
    store.remember_in(notes)
    raw.make(Trouble.RESET, 1)
    with pytest.raises(StoreUnavailable):
        await case_of(store).put(case_of(store).fact(space="user:9"))
    assert list(await notes.read()) == ['["memories","user:9"]']


async def test_a_lagging_search_is_noticed_without_the_text_too() -> None:
    """Once the text is erased, a store that is not LangGraph's own is asked for the fact id by its search."""

    class Lagging(CappedStore):
        lost = ""

        def batch(self, ops: Any) -> Any:
            asked = list(ops)
            answers = super().batch(asked)
            for n, op in enumerate(asked):
                if isinstance(op, GetOp) and op.key == self.lost:
                    answers[n] = None
                elif self.lost and getattr(op, "filter", None) and not op.query:
                    answers[n] = []
            return answers

    raw = Lagging(index=INDEX)
    case = case_of(LangGraphStore(raw))
    put = await case.put()
    raw.lost = put.label.key
    assert [await case.said_gone(entry) for entry in (*put.entries, *put.blind)] == [False, False]


async def test_a_throttled_batch_names_the_wait() -> None:
    """429 from a store behind a service passes on what it asks to wait."""
    raw = BentMemory(index=INDEX)
    case = case_of(LangGraphStore(raw))
    raw.make(Trouble.THROTTLED, 1)
    with pytest.raises(StoreUnavailable) as caught:
        await case.put()
    assert caught.value.fields["retry_after"] == 0.0
    assert "note" not in str(caught.value)


@pytest.mark.skipif(
    not hasattr(sqlite3.Connection, "enable_load_extension"),
    reason="this Python's sqlite3 cannot load extensions, and SqliteStore's index is one",
)
async def test_sqlite_keeps_the_vector_of_a_relabelled_entry(tmp_path: Path) -> None:
    """A label is changed without a REPLACE, which would take the vector along where keys are enforced."""
    with SqliteStore.from_conn_string(str(tmp_path / "store.db"), index=dict(INDEX)) as raw:  # type: ignore[arg-type]
        raw.setup()
        raw.conn.execute("pragma foreign_keys = on")
        case = case_of(LangGraphStore(raw))
        put = await case.put()
        await case.store.relabel(put.entries[0], replace(put.label, ledger_id="moved"))
        assert [hit.entry.ledger_id for hit in await case.search(put.fact.text or "", 1, None)] == ["moved"]
