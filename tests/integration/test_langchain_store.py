"""What the LangChain adapter does where the interface leaves it to each store: ids, filters, scores."""

from __future__ import annotations

import asyncio
import sys
import uuid
from dataclasses import replace
from datetime import timedelta
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from fakes.langchain_store import BentVectors, HostedStore, PlainStore, Words
from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore

from custody_sync.adapters._langchain_calls import Calls
from custody_sync.adapters._langchain_reach import Reach, reach_of
from custody_sync.adapters._shared import WorkerThreads
from custody_sync.adapters.langchain import LangChainStore
from custody_sync.errors import InvalidInput, InvalidStore, NoProof, StoreRefused, StoreUnavailable
from custody_sync.model import Capability, Entry, Level
from custody_sync.registry import store_class
from custody_sync.testing import StoreHooks
from custody_sync.testing.contract_case import Case


def case_of(store: LangChainStore) -> Case:
    """Return facts and labels for a store."""
    return Case("langchain", store, StoreHooks())


def levels(store: LangChainStore) -> dict[str, str]:
    """Return what a store declares."""
    return {capability.value: case_of(store).supports[capability].level.value for capability in Capability}


FULL = dict.fromkeys((capability.value for capability in Capability), "full")


# --- what it says of itself -------------------------------------------------------------------


def test_capabilities_say_what_the_caller_has_said() -> None:
    """Nothing is promised of an unknown store that its caller did not say, and each gap has its reason."""
    hosted = HostedStore()
    assert levels(LangChainStore(InMemoryVectorStore(Words()))) == FULL | {"relabel": "none"}
    assert levels(LangChainStore(hosted, where=dict, list_ids=hosted.names)) == FULL | {"relabel": "none"}
    filtering = FULL | {"relabel": "none", "list_entries": "none", "find": "partial"}
    assert levels(LangChainStore(hosted, where=dict)) == filtering
    named_by_us = FULL | {"relabel": "none", "search": "partial"}
    assert levels(LangChainStore(hosted, list_ids=hosted.names)) == named_by_us
    assert levels(LangChainStore(hosted, list_ids=hosted.names, ids="uuid"))["find"] == "none"
    plain = LangChainStore(PlainStore())
    least = {"find": "none", "list_entries": "none", "search": "partial", "verify_deleted": "partial"}
    assert levels(plain) == FULL | least | {"relabel": "none"}
    assert all(one.reason and one.level is not Level.FULL for one in plain.capabilities.values())


@pytest.mark.parametrize(
    ("options", "said"),
    [({"ids": "number"}, "ids"), ({"scores": "rank"}, "scores"), ({"threads": 0}, "threads")],
)
def test_an_option_that_means_nothing_is_refused(options: Any, said: str) -> None:
    """One sentence, when it is made."""
    with pytest.raises(InvalidInput, match=said):
        LangChainStore(PlainStore(), **options)


def test_what_is_no_vector_store_is_refused() -> None:
    """Whatever else is passed is named by its type."""
    with pytest.raises(InvalidStore, match="dict is not a LangChain VectorStore"):
        LangChainStore({})  # type: ignore[arg-type]  # what it refuses
    assert store_class("langchain") is LangChainStore


def test_a_subclass_is_reached_like_its_parent() -> None:
    """An application's own Chroma is a Chroma; a class that is only called so is not."""

    class Chroma(PlainStore):
        pass

    assert reach_of(BentVectors()).scores == "similarity"
    assert reach_of(Chroma()) == Reach()


# --- ids --------------------------------------------------------------------------------------


async def test_ids_are_uuids_where_they_have_to_be() -> None:
    """The same for a retry, another for another generation, and found again by listing and label."""
    hosted = HostedStore()
    store = LangChainStore(hosted, ids="uuid", where=dict, list_ids=hosted.names)
    case = case_of(store)
    put = await case.put()
    (key,) = put.ids
    assert str(uuid.UUID(key)) == key
    assert await store.put(put.fact, put.label) == (key,)
    assert (await case.put(put.fact)).ids != put.ids
    assert len(await store.find(put.fact.fact_id)) == 2
    assert {entry.external_id for entry in await case.listed()} == set(hosted.inner.store)


async def test_a_hit_without_an_id_is_named_by_its_label() -> None:
    """Without id and label it cannot be addressed, and says so by an empty id, which recall leaves out."""
    plain = PlainStore()
    store = LangChainStore(plain)
    case = case_of(store)
    put = await case.put()
    plain.inner.add_documents([Document(page_content=put.fact.text or "")])
    hits = await case.search(put.fact.text or "")
    assert {hit.entry.external_id for hit in hits} == {put.ids[0], ""}


async def test_a_store_that_makes_up_ids_is_believed() -> None:
    """What it answers is what is recorded; no answer, or one that is too short, is no success."""

    class OwnIds(PlainStore):
        answer: Any = ("7",)

        def add_texts(self, texts: Any, metadatas: Any = None, **options: Any) -> Any:
            """Answer something else."""
            return list(self.answer) if self.answer is not None else None

    raw = OwnIds()
    store = LangChainStore(raw)
    assert (await case_of(store).put()).ids == ("7",)
    for raw.answer in ((), None, ("",)):
        with pytest.raises(StoreUnavailable):
            await case_of(store).put()
    with pytest.raises(StoreUnavailable):
        await store.put_many([(fact := case_of(store).fact(), case_of(store).label(fact))])
    assert await store.put_many([]) == []


# --- asking -----------------------------------------------------------------------------------


async def test_spaces_are_told_apart_where_nothing_filters() -> None:
    """A small space behind a nearer crowd is served, by asking for more."""
    store = LangChainStore(PlainStore())
    case = case_of(store)
    wanted = await case.put(case.fact("a note about boats", space="user:1"))
    await case.put_all([case.fact("a note", space="user:2") for _ in range(60)])
    (hit,) = await case.search("a note", 2, ["user:1"])
    assert (hit.entry.fact_id, hit.score) == (wanted.fact.fact_id, None)
    assert await case.search("a note", 2, ["user:3"]) == []
    assert await case.search("a note", 2, []) == await case.search("a note", 0, None) == []


async def test_scores_are_higher_when_nearer() -> None:
    """A distance is turned round; of a store that nobody described there is none."""
    hosted = HostedStore()
    far = LangChainStore(hosted, where=dict, scores="distance")
    case = case_of(far)
    await case.put_all([case.fact("alpha beta", space="a"), case.fact("alpha", space="b")])
    scores = [hit.score for hit in await case.search("alpha", 5, ["a", "b"])]
    assert scores == sorted(scores, key=lambda score: -(score or 0))
    assert scores[0] == pytest.approx(0.0)
    assert far.scores == "distance"
    unsaid = LangChainStore(hosted, where=dict)
    assert [hit.score for hit in await unsaid.search("alpha", 5, ["a", "b"])] == [None, None]
    assert LangChainStore(PlainStore(), scores="distance").scores is None


async def test_documents_without_a_label_are_served_unless_there_are_none() -> None:
    """Adopted ones have none, so a search in a space looks for them too; `mixed=False` saves the question."""
    for raw, options in ((BentVectors(), {}), (PlainStore(), {})):
        getattr(raw, "inner", raw).add_documents([Document(page_content="a note", id="old")])
        assert len(await LangChainStore(raw, **options).search("a note", 5, ["user:1"])) == 1  # type: ignore[arg-type]
        assert await LangChainStore(raw, mixed=False).search("a note", 5, ["user:1"]) == []  # type: ignore[arg-type]


async def test_what_is_not_there_is_refused_by_name() -> None:
    """A listing or a find that nobody described is no empty answer."""
    store = LangChainStore(PlainStore())
    for ask in (store.find("x"), anext(store.list_entries())):
        with pytest.raises(StoreRefused):
            await ask


async def test_overlapping_pages_of_ids_name_each_once() -> None:
    """What the caller's listing repeats from page to page is listed once."""
    names = [str(n) for n in range(700)]
    calls = Calls("x", PlainStore(), Reach(), WorkerThreads("x"), blocking=True)
    pages = [page async for page in calls.pages("list_entries", lambda: [*names[:500], *names[499:]])]
    assert [name for page in pages for name in page] == names


# --- deleting and proving ---------------------------------------------------------------------


async def test_a_delete_that_answers_false_is_looked_into() -> None:
    """False is success only where a lookup shows that the id is gone."""

    class SaysNo(HostedStore):
        def delete(self, ids: list[str] | None = None, **options: Any) -> bool:
            """Say no, whatever there is."""
            return False

    raw = SaysNo()
    store = LangChainStore(raw)
    put = await case_of(store).put()
    with pytest.raises(StoreUnavailable):
        await store.delete(put.entries[0])
    raw.inner.store.clear()
    await store.delete(put.entries[0])


async def test_a_label_that_is_shown_under_another_id_is_not_gone() -> None:
    """A store that numbers what it serves shows by the label that it has it; another put's label does not."""

    class Numbered(PlainStore):
        def similarity_search(self, query: str, k: int = 4, **options: Any) -> list[Document]:
            """Number what is served."""
            found = super().similarity_search(query, k, **options)
            return [document.model_copy(update={"id": str(n)}) for n, document in enumerate(found)]

    store = LangChainStore(Numbered())
    put = await case_of(store).put()
    entry = replace(put.entries[0], ledger_id=put.label.ledger_id)
    assert await store.verify_deleted(entry) is False
    another = replace(entry, stored_at=put.label.stored_at + timedelta(seconds=1))
    assert await store.verify_deleted(replace(another, external_id="another")) is True


async def test_what_another_wrote_under_an_id_stays() -> None:
    """With the ledger named, somebody else's document under the id is neither deleted nor taken for ours."""
    raw = BentVectors()
    store = LangChainStore(raw)
    put = await case_of(store).put()
    entry = replace(put.entries[0], ledger_id=put.label.ledger_id)
    raw.add_documents([Document(page_content="theirs", id=entry.external_id)])
    await store.delete(entry)
    assert len(raw.store) == 1
    assert await store.verify_deleted(entry) is True
    with pytest.raises(NoProof):
        await store.verify_deleted(replace(entry, text=None))


async def test_a_crowd_without_scores_proves_nothing_at_its_edge(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that can neither look up nor score is asked for everything, and beyond that it is no proof."""
    from custody_sync.adapters import langchain as adapter

    monkeypatch.setattr(adapter, "MOST", 100)
    store = LangChainStore(PlainStore())
    case = case_of(store)
    put = await case.put()
    assert await store.verify_deleted(put.entries[0]) is False
    await store.delete(put.entries[0])
    assert await store.verify_deleted(put.entries[0]) is True
    await case.put_all([case.fact("the same") for _ in range(100)])
    with pytest.raises(NoProof, match="too many"):
        await store.verify_deleted(put.entries[0])
    with pytest.raises(NoProof, match="look up"):
        await store.verify_deleted(Entry(store="langchain", external_id="x"))


async def test_a_search_that_leaves_out_what_is_held_proves_nothing() -> None:
    """Where ids are listed, a search that seems to show all is compared with them."""

    class Blind(HostedStore):
        def similarity_search_with_score(self, *args: Any, **options: Any) -> list[tuple[Document, float]]:
            """Show one at most."""
            return super().similarity_search_with_score(*args, **options)[:1]

    raw = Blind()
    store = LangChainStore(raw, list_ids=raw.names)
    case = case_of(store)
    gone, *_ = await case.put_all([case.fact("a note") for _ in range(3)])
    await store.delete(gone.entries[0])
    with pytest.raises(NoProof, match="left out"):
        await store.verify_deleted(gone.entries[0])


async def test_what_a_deletion_leaves_is_said() -> None:
    """Nothing in memory, and of a store that nobody knows that it is not known."""
    entry = Entry(store="langchain", external_id="x")
    assert await LangChainStore(BentVectors()).after_forget([entry]) == ()
    assert len(await LangChainStore(PlainStore()).after_forget([entry])) == 1
    assert await LangChainStore(PlainStore()).after_forget([]) == ()


# --- how it is called -------------------------------------------------------------------------


class Awaited:
    """A client that lives in one event loop and has no blocking verbs that work."""

    def __init__(self) -> None:
        self.inner = BentVectors()

    def __getattr__(self, name: str) -> Any:
        if name in ("add_documents", "delete", "similarity_search"):
            return self._blocks
        if name.startswith("a"):
            return getattr(self.inner, name)
        raise AttributeError(name)

    def _blocks(self, *args: Any, **options: Any) -> Any:
        raise AssertionError("called through its blocking verbs")


def test_an_awaited_store_stays_in_its_loop() -> None:
    """With `blocking=False` the `a` methods are awaited, and a second loop is refused by name."""
    store = LangChainStore(Awaited(), blocking=False)  # type: ignore[arg-type]  # it has the interface
    case = case_of(store)

    async def use() -> list[Any]:
        put = await case.put()
        hits = await case.search(put.fact.text or "")
        await store.delete(put.entries[0])
        return hits

    assert len(asyncio.run(use())) == 1
    with pytest.raises(InvalidStore, match="another event loop"):
        asyncio.run(use())


def test_a_qdrant_in_this_process_is_called_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """It loses one of two writes made at once; a server does not, and its distances say what scores mean."""
    models = ModuleType("qdrant_client.models")
    for name in ("Filter", "FieldCondition", "MatchValue"):
        setattr(models, name, SimpleNamespace)
    monkeypatch.setitem(sys.modules, "qdrant_client.models", models)
    client = type("QdrantLocal", (), {})()
    pages = [([SimpleNamespace(id="a1"), SimpleNamespace(id="b")], "b"), ([SimpleNamespace(id="a2")], None)]
    kind = type("QdrantVectorStore", (), {"__module__": "langchain_qdrant.qdrant"})
    raw = kind()
    raw.distance, raw.metadata_payload_key, raw.collection_name = "Cosine", "metadata", "facts"
    raw.client = SimpleNamespace(_client=client, scroll=lambda *args, **options: pages.pop(0))
    reach = reach_of(raw)
    assert (reach.alone, reach.uuids, reach.scores, reach.approximate) == (True, True, "similarity", False)
    assert reach.list_ids is not None
    assert list(reach.list_ids("a")) == ["a1", "a2"]
    assert reach.where is not None
    (condition,) = reach.where({"space": "org"}).must
    assert (condition.key, condition.match.value) == ("metadata.space", "org")
    raw.client._client, raw.distance = object(), "Euclid"
    assert (reach_of(raw).alone, reach_of(raw).scores, reach_of(raw).approximate) == (False, "distance", True)
