"""LangChain's vector store over a ledger: everything as before, and nothing served that is gone."""

from __future__ import annotations

import asyncio
import logging
import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from fakes.langchain_store import BentVectors, HostedStore, PlainStore, Words
from fix_langchain import HASTE, Over, kinds, open_face, rows
from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore

from custody_sync.adapters.langchain import LangChainStore
from custody_sync.errors import (
    InsideEventLoop,
    InvalidInput,
    NotOffered,
    OnHold,
    StoreUnavailable,
    StoreWriteFailed,
)
from custody_sync.faces.langchain import CustodyVectorStore
from custody_sync.recalled import Dropped
from custody_sync.sync import Coordinator
from custody_sync.testing import MemoryStore, testing_runtime
from custody_sync.testing.contract_case import Trouble

MINE = {
    "modified": datetime(2026, 1, 12, 9, tzinfo=UTC),
    "tags": ["x", "y"],
    "n": None,
    "size": Decimal("1.50"),
    "fact_id": "mine",
    "source": "hr.pdf",
}


def texts(documents: list[Document]) -> list[str]:
    """Return what documents say."""
    return [document.page_content for document in documents]


# --- as before --------------------------------------------------------------------------------


def test_ids_and_metadata_survive_a_round_trip(over: Over) -> None:
    """P6: what was written is read back to the type, own keys of the label's names included."""
    raw = BentVectors()
    face = over(raw)
    given = dict(MINE)
    assert face.add_documents(
        [Document(page_content="plain", id="p"), Document(page_content="b notes", metadata=given, id="b")]
    ) == ["p", "b"]
    given["tags"] = "changed by the caller"
    (plain,), (found,) = face.similarity_search("plain", k=1), face.similarity_search("b notes", k=1)
    assert (plain.id, plain.metadata) == ("p", {})
    assert (found.id, found.metadata) == ("b", MINE)
    assert type(found.metadata["size"]) is Decimal
    assert [document.metadata for document in face.get_by_ids(["b", "nope", "p"])] == [MINE, {}]


def test_another_process_reads_the_same(over: Over) -> None:
    """P6: ids and metadata are in the ledger and the store, not in this process."""
    raw = BentVectors()
    over(raw).add_texts(["b notes"], [dict(MINE)], ids=["b"])
    (found,) = over(raw).similarity_search("notes")
    assert (found.id, found.metadata) == ("b", MINE)


def test_a_row_of_the_store_carries_the_label_alone(over: Over) -> None:
    """P6: the caller's `fact_id` and `source` make no sweep take or spare a row."""
    raw = BentVectors()
    face = over(raw)
    face.add_texts(["b notes"], [dict(MINE)], ids=["b"])
    (held,) = raw.store.values()
    assert held["metadata"]["source"] == "custody-sync"
    assert "hr.pdf" not in str(held["metadata"])
    raw.add_documents([Document(page_content="theirs", metadata={"source": "custody-sync", "fact_id": "x"})])
    swept = face.custody.repair(actor="ops", reason="test")  # type: ignore[union-attr]  # a Coordinator's
    assert not swept.repaired
    assert rows(raw) == {"b notes", "theirs"}


def test_neither_document_is_written_if_one_cannot_be_kept(over: Over) -> None:
    """P6: one sentence names the key, and nothing happened."""
    raw = BentVectors()
    face = over(raw)
    with pytest.raises(InvalidInput, match=r"metadata\['page'\]"):
        face.add_documents(
            [Document(page_content="plain"), Document(page_content="b", metadata={"page": object()})]
        )
    assert not raw.store
    assert not kinds(face)


def test_nothing_of_the_answers_is_shared(over: Over) -> None:
    """P8: changing an answer changes no later one."""
    face = over(BentVectors())
    face.add_texts(["a note"], [{"tags": ["a"]}], ids=["a"])
    for read in (lambda: face.similarity_search("note"), lambda: face.get_by_ids(["a"])):
        read()[0].metadata["tags"].append("b")
        assert read()[0].metadata == {"tags": ["a"]}


async def test_a_slow_store_sees_what_was_said_at_first(face_url: str) -> None:
    """P8: what the caller changes while a write is under way reaches neither store nor ledger."""
    raw = BentVectors()
    async with open_face(face_url, raw) as face:
        mine: dict[str, Any] = {"tags": ["a"]}
        adding = asyncio.ensure_future(face.aadd_texts(["a note"], [mine], ids=["a"]))
        await asyncio.sleep(0)
        mine["tags"].append("b")
        await adding
        assert (await face.aget_by_ids(["a"]))[0].metadata == {"tags": ["a"]}


# --- adding -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "options", "said"),
    [
        ((["t1", "t2", "t3"],), {"ids": ["a"]}, "ids: there are 1, but 3 texts"),
        ((["t1"],), {"ids": ["a", "b"]}, "ids: there are 2, but 1 texts"),
        ((["t1", "t2"], [{}]), {}, "metadatas: there are 1, but 2 texts"),
        ((["t1", "t2"],), {"ids": []}, "ids: there are 0, but 2 texts"),
        ((["t1", ""],), {}, "page_content"),
        ((["t1", "t2"],), {"ids": ["a", "  "]}, "id: must not be empty"),
        (("t1",), {}, "texts"),
        ((["t1"],), {"namespace": "x"}, "namespace"),
        ((["t1", 7],), {}, "page_content"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_does_not_fit_is_refused_whole(over: Over, args: Any, options: Any, said: str) -> None:
    """P5: a ValueError names both lengths, and not even the first text is written."""
    raw = BentVectors()
    face = over(raw)
    with pytest.raises(ValueError, match=said):
        face.add_texts(*args, **options)
    assert not raw.store
    assert not kinds(face)


def test_a_generator_and_a_missing_id_are_taken(over: Over) -> None:
    """P5: texts may come one by one, and None asks for a new id."""
    face = over(BentVectors())
    first, second = face.add_texts(iter(["t1", "t2"]), ids=["a", None])
    assert first == "a"
    assert texts(face.get_by_ids([first, second])) == ["t1", "t2"]
    assert face.add_texts([]) == []


def test_of_one_id_twice_the_last_counts(over: Over) -> None:
    """P5: one believed document, and no version that never was."""
    raw = BentVectors()
    face = over(raw)
    assert face.add_texts(["t1", "t2"], ids=["d", "d"]) == ["d", "d"]
    assert texts(face.get_by_ids(["d"])) == ["t2"]
    assert kinds(face) == ["assert"]


def test_adding_an_id_again_supersedes(over: Over) -> None:
    """The old text goes from the store and stays in history; on its date it is still the answer."""
    raw = BentVectors()
    face = over(raw)
    face.add_texts(["price is 4200"], [{"v": 1}], ids=["price"])
    then = _now(face)
    _later(face, days=50)
    face.add_texts(["price is 3600"], [{"v": 2}], ids=["price"])
    assert rows(raw) == {"price is 3600"}
    (now,) = face.similarity_search("price")
    assert (now.page_content, now.metadata, now.id) == ("price is 3600", {"v": 2}, "price")
    assert texts(face.similarity_search("price", valid_at=then)) == ["price is 4200"]


def test_a_store_that_fails_has_written_nothing(over: Over) -> None:
    """A write that no store took is raised, quotes nothing, and can be made again."""
    raw = BentVectors()
    face = over(raw)
    raw.make(Trouble.RESET, math.inf)
    with pytest.raises(StoreWriteFailed) as failed:
        face.add_texts(["a secret"], ids=["a"])
    assert (
        "secret"
        not in f"{failed.value!r} {failed.value.__notes__ if hasattr(failed.value, '__notes__') else ''}"
    )
    raw.make(Trouble.RESET, 0)
    assert face.add_texts(["a secret"], ids=["a"]) == ["a"]


def test_what_failed_beside_others_says_how_many_were_written(over: Over) -> None:
    """One document's failure leaves the others' facts, and a note says so."""
    raw = BentVectors()
    face = over(raw)
    raw.make(Trouble.RESET, 1)
    with pytest.raises(StoreWriteFailed) as failed:
        face.add_texts(["one", "two", "three"], ids=["1", "2", "3"])
    assert failed.value.__notes__ == ["2 of 3 documents were written; add them again"]
    face.add_texts(["one", "two", "three"], ids=["1", "2", "3"])
    assert rows(raw) == {"one", "two", "three"}


async def test_two_who_add_one_id_at_once_make_one_document(face_url: str) -> None:
    """Across processes the ledger keeps them apart: one chain, one believed, one row."""
    raw = BentVectors()
    runtime = testing_runtime()
    async with (
        open_face(face_url, raw, runtime=runtime) as one,
        open_face(face_url, raw, runtime=runtime) as two,
    ):
        await asyncio.gather(
            *(face.aadd_texts([f"text {n}"], ids=["d"]) for n, face in enumerate([one, two] * 3))
        )
        (document,) = await one.aget_by_ids(["d"])
        assert rows(raw) == {document.page_content}
        assert texts(await two.asimilarity_search("text", k=10)) == [document.page_content]


# --- deleting ---------------------------------------------------------------------------------


def test_deleting_nothing_does_nothing(over: Over) -> None:
    """P4: an empty list and an unknown id remove nothing and append nothing."""
    raw = BentVectors()
    raw.add_documents([Document(page_content="a stranger's")], ids=["s"])
    face = over(raw)
    face.add_texts(["one", "two"], ids=["1", "2"])
    before = kinds(face)
    assert face.delete([]) is True
    assert face.delete(["nope"]) is True
    assert kinds(face) == before
    assert rows(raw) == {"one", "two", "a stranger's"}


async def test_deleting_everything_has_to_be_said(face_url: str) -> None:
    """P4: None is refused with the way to do it, which leaves the unlabelled row."""
    raw = BentVectors()
    raw.add_documents([Document(page_content="a stranger's")], ids=["s"])
    async with open_face(face_url, raw) as face:
        await face.aadd_texts(["one", "two"], ids=["1", "2"])
        for delete in (lambda: face.adelete(None), lambda: face.adelete(ids=None)):
            with pytest.raises(InvalidInput, match="forget_where"):
                await delete()
        with pytest.raises(InvalidInput, match="ids"):
            await face.adelete("1")
        with pytest.raises(InvalidInput, match="id"):
            await face.adelete(["1", " "])
        assert len(rows(raw)) == 3
        forgotten = await face.custody.forget_where(space="documents", actor="app")  # type: ignore[misc]  # awaited
        assert forgotten.complete
        assert rows(raw) == {"a stranger's"}
        assert await face.asimilarity_search("one", k=10) == []


def test_a_delete_takes_every_version_and_says_when_it_is_verified(over: Over) -> None:
    """Neither store nor ledger has any text of it, and the id can be used again."""
    raw = BentVectors()
    face = over(raw)
    face.add_texts(["first wording"], ids=["d"])
    face.add_texts(["second wording"], ids=["d"])
    assert face.delete(["d"]) is True
    assert not rows(raw)
    assert face.get_by_ids(["d"]) == []
    assert face.similarity_search("wording", valid_at=_now(face)) == []
    assert kinds(face).count("forget") == 2
    assert face.delete(["d"]) is True
    assert face.add_texts(["third wording"], ids=["d"]) == ["d"]
    assert texts(face.similarity_search("wording")) == ["third wording"]


def test_a_delete_that_is_not_verified_is_not_true(over: Over) -> None:
    """False until every removal is verified; meanwhile nobody is served it, and asking again ends it."""
    raw, told = BentVectors(), []
    face = over(raw, on_pending=told.append)
    face.add_texts(["one", "two"], ids=["1", "2"])
    raw.make(Trouble.LYING_DELETE, math.inf)
    assert face.delete(["1"]) is False
    assert [result.complete for result in told] == [False]
    assert rows(raw) == {"one", "two"}
    assert texts(face.similarity_search("one", k=10)) == ["two"]
    assert face.delete(["1"]) is False
    raw.make(Trouble.LYING_DELETE, 0)
    assert face.delete(["1"]) is True
    assert rows(raw) == {"two"}


def test_what_a_hold_keeps_is_named_and_the_rest_goes(over: Over) -> None:
    """A held document stays and is served; the others of the call are erased."""
    raw = BentVectors()
    face = over(raw)
    face.add_texts(["one", "two"], ids=["1", "2"])
    custody = face.custody
    assert isinstance(custody, Coordinator)
    fact = custody.recall("one", k=1).facts[0]
    custody.hold(fact.fact_id, actor="legal", reason="a case")
    with pytest.raises(OnHold):
        face.delete(["1", "2"])
    assert texts(face.similarity_search("one", k=10)) == ["one"]


def test_a_replacement_that_is_not_verified_is_told_once(
    over: Over, caplog: pytest.LogCaptureFixture
) -> None:
    """A list of ids has no room for it: one warning without content, and the result for who asks."""
    raw = BentVectors()

    def tell(result: Any) -> None:
        raise RuntimeError("first wording")

    face = over(raw, on_pending=tell)
    face.add_texts(["first wording"], ids=["d"])
    raw.make(Trouble.LYING_DELETE, math.inf)
    with caplog.at_level(logging.WARNING, "custody_sync.faces"):
        face.add_texts(["second wording"], ids=["d"])
    assert [record.name for record in caplog.records] == ["custody_sync.faces"] * 2
    assert "wording" not in caplog.text
    assert texts(face.similarity_search("wording", k=10)) == ["second wording"]


# --- searching --------------------------------------------------------------------------------


def test_what_the_index_still_has_is_not_served(over: Over) -> None:
    """Forgotten and strange rows lie in the store, and the answer has k live ones all the same."""
    raw = BentVectors()
    face = over(raw)
    face.add_texts([f"a note, number {n}" for n in range(30)], ids=[str(n) for n in range(30)])
    raw.make(Trouble.LYING_DELETE, math.inf)
    face.delete([str(n) for n in range(25)])
    raw.add_documents([Document(page_content="a note, number 31")])
    assert sorted(texts(face.similarity_search("a note, number", k=5))) == [
        f"a note, number {n}" for n in range(25, 30)
    ]
    custody = face.custody
    assert isinstance(custody, Coordinator)
    dropped = custody.recall("a note, number", k=5).dropped
    assert dropped[Dropped.FORGOTTEN] > 0
    assert dropped[Dropped.UNLABELLED] == 1


def test_filters_are_applied_to_the_ledger(over: Over) -> None:
    """A function and a dict mean the same over a store that knows neither."""
    for raw in (BentVectors(), PlainStore()):
        face = over(raw, space=f"team:{type(raw).__name__}")
        face.add_texts([f"note {n}" for n in range(8)], [{"n": n} for n in range(8)])
        for given in ({"n": {"$gte": 6}}, lambda document: document.metadata["n"] >= 6):
            found = face.similarity_search("note", k=4, filter=given)
            assert sorted(document.metadata["n"] for document in found) == [6, 7]


def test_spaces_are_apart(over: Over) -> None:
    """A view of another space serves, finds and deletes nothing of this one, over one store."""
    face = over(BentVectors())
    other = face.in_space("user:42")
    face.add_texts(["ours"], ids=["x"])
    other.add_texts(["theirs"], ids=["x"])
    assert texts(face.similarity_search("ours theirs", k=10)) == ["ours"]
    assert texts(other.get_by_ids(["x"])) == ["theirs"]
    other.delete(["x"])
    assert texts(face.get_by_ids(["x"])) == ["ours"]
    with pytest.raises(InvalidInput, match="space"):
        face.in_space(" ")


def test_scores_are_the_originals(over: Over) -> None:
    """Similarities stay what they are, and distances; of a store that nobody described none is made up."""
    raw = InMemoryVectorStore(Words())
    face = over(raw)
    face.add_texts(["alpha beta", "gamma delta"])
    right = [
        (document.page_content, score) for document, score in raw.similarity_search_with_score("alpha", k=2)
    ]
    assert [(d.page_content, s) for d, s in face.similarity_search_with_score("alpha", k=2)] == right
    hosted = HostedStore()
    far = over(
        LangChainStore(hosted, "hosted", where=dict, scores="distance", list_ids=hosted.names), space="b"
    )
    far.add_texts(["alpha beta", "gamma delta"])
    scores = [score for _, score in far.similarity_search_with_score("alpha", k=2)]
    assert scores == sorted(scores)
    plain = over(LangChainStore(PlainStore(), "plain"), space="c")
    plain.add_texts(["alpha"])
    assert texts(plain.similarity_search("alpha")) == ["alpha"]
    with pytest.raises(InvalidInput, match="scores"):
        plain.similarity_search_with_score("alpha")


def test_unlike_documents_are_picked_from_the_ledgers_texts(over: Over) -> None:
    """The same picks as the original's own; where embeddings are not known it says so."""
    said = ["alpha beta", "alpha beta gamma", "alpha delta epsilon", "zeta"]
    raw = InMemoryVectorStore(Words())
    raw.add_texts(said)
    face = over(InMemoryVectorStore(Words()))
    face.add_texts(said)
    asked: dict[str, Any] = {"k": 2, "fetch_k": 4, "lambda_mult": 0.1}
    right = texts(raw.max_marginal_relevance_search("alpha beta", **asked))
    assert texts(face.max_marginal_relevance_search("alpha beta", **asked)) == right
    bare = CustodyVectorStore(face.custody)
    with pytest.raises(NotOffered, match="embeddings"):
        bare.max_marginal_relevance_search("alpha")
    with pytest.raises(NotOffered, match="by text"):
        face.similarity_search_by_vector([0.0] * 64)
    with pytest.raises(NotOffered, match="wrapped"):
        bare.similarity_search_with_relevance_scores("alpha")


@pytest.mark.parametrize(
    ("query", "options", "said"),
    [
        ("", {}, "query"), ("x", {"k": -1}, "k"), ("x", {"k": True}, "k"), ("x", {"k": 5000}, "k"),
        ("x", {"namespace": "a"}, "namespace"), ("x", {"filter": 7}, "filter"),
        ("x", {"valid_at": datetime(2026, 1, 1)}, "valid_at"),
    ],
)  # fmt: skip
def test_a_search_that_is_not_understood_is_refused(over: Over, query: str, options: Any, said: str) -> None:
    """Ignoring an argument would widen the answer."""
    with pytest.raises(InvalidInput, match=said):
        over(BentVectors()).similarity_search(query, **options)
    assert over(BentVectors()).similarity_search("x", k=0) == []


def test_a_search_that_fails_is_no_empty_answer(over: Over) -> None:
    """The store's error is raised, without its text."""
    raw = BentVectors()
    face = over(raw)
    raw.make(Trouble.SEARCH_FAILS, math.inf)
    with pytest.raises(StoreUnavailable):
        face.similarity_search("a note")


def test_the_retriever_of_the_face_works(over: Over) -> None:
    """`as_retriever` in its three kinds, unchanged."""
    face = over(BentVectors())
    face.add_texts(["alpha beta", "gamma delta"], [{"n": 1}, {"n": 2}])
    assert texts(face.as_retriever(search_kwargs={"k": 1}).invoke("gamma")) == ["gamma delta"]
    only = face.as_retriever(search_kwargs={"filter": {"n": 1}})
    assert texts(only.invoke("gamma")) == ["alpha beta"]
    assert len(face.as_retriever(search_type="mmr", search_kwargs={"k": 2}).invoke("gamma")) == 2


# --- how it is made ---------------------------------------------------------------------------


def test_it_is_made_of_texts(face_url: str) -> None:
    """`from_texts` and `from_documents` need the store that is to hold them, and close what failed."""
    raw = BentVectors()
    options: dict[str, Any] = {"original": raw, "ledger": face_url, "patience": HASTE}
    with CustodyVectorStore.from_texts(["one"], Words(), [{"n": 1}], ids=["1"], **options) as face:
        assert texts(face.get_by_ids(["1"])) == ["one"]
    with CustodyVectorStore.from_documents(
        [Document(page_content="two", id="2")], Words(), **options
    ) as face:
        assert isinstance(face, VectorStore)
        assert texts(face.get_by_ids(["1", "2"])) == ["one", "two"]
    with pytest.raises(InvalidInput, match="original"):
        CustodyVectorStore.from_texts(["one"], Words(), ledger=face_url)
    with pytest.raises(InvalidInput, match="page_content"):
        CustodyVectorStore.from_texts([""], Words(), **options)


async def test_everything_is_awaited_over_an_asynchronous_coordinator(face_url: str) -> None:
    """Each method has its twin; a blocking one says which."""
    options: dict[str, Any] = {"original": BentVectors(), "ledger": face_url, "patience": HASTE}
    async with await CustodyVectorStore.afrom_texts(["alpha beta"], Words(), ids=["1"], **options) as face:
        await face.aadd_documents([Document(page_content="gamma", id="2")])
        assert texts(await face.aget_by_ids(["2"])) == ["gamma"]
        assert texts(await face.asimilarity_search("alpha", k=1)) == ["alpha beta"]
        assert (await face.asimilarity_search_with_score("alpha beta", k=1))[0][1] == pytest.approx(1.0)
        assert len(await face.amax_marginal_relevance_search("alpha", k=2)) == 2
        assert texts(await face.as_retriever(search_kwargs={"k": 1}).ainvoke("gamma")) == ["gamma"]
        assert await face.adelete(["2"])
        with pytest.raises(InsideEventLoop, match="aadd_texts"):
            face.add_texts(["x"])
        with pytest.raises(InsideEventLoop, match="aclose"):
            face.close()
        with pytest.raises(NotImplementedError):  # what LangChain itself looks for
            await face.asimilarity_search_by_vector([0.0])


async def test_a_notebook_calls_what_it_always_called(over: Over) -> None:
    """Inside a running loop the blocking methods of a face over a Coordinator work."""
    face = over(BentVectors())
    assert face.add_texts(["a note"], ids=["1"]) == ["1"]
    assert texts(face.similarity_search("note")) == ["a note"]
    assert texts(await face.asimilarity_search("note")) == ["a note"]
    assert await face.adelete(["1"]) is True


def test_who_speaks_is_recorded(over: Over) -> None:
    """A view speaks for somebody else and shares nothing but the store; closing it closes nothing."""
    face = over(BentVectors(), actor="app")
    agent = face.acting_as("agent:7", receipt_id="r-1")
    agent.add_texts(["a note"], ids=["1"])
    agent.close()
    face.add_texts(["another"], ids=["2"])
    custody = face.custody
    assert isinstance(custody, Coordinator)
    said = {fact.subject: (fact.actor, fact.receipt_id) for fact in custody.recall("note another", k=5).facts}
    assert said == {"1": ("agent:7", "r-1"), "2": ("app", None)}
    with pytest.raises(InvalidInput, match="actor"):
        face.acting_as(" ")


def test_what_was_there_before_is_served_once_it_is_adopted(over: Over) -> None:
    """Documents of the original go by their own row until somebody adopts them; then they can be deleted."""
    raw = BentVectors()
    raw.add_documents([Document(page_content="an old note")], ids=["old"])
    face = over(raw)
    custody = face.custody
    assert isinstance(custody, Coordinator)
    assert face.similarity_search("old note") == []
    custody.adopt("langchain", actor="ops", space="documents", provenance="attested", dry_run=False)
    (found,) = face.similarity_search("old note")
    assert found.page_content == "an old note"
    assert found.id is not None
    assert texts(face.get_by_ids([found.id])) == ["an old note"]
    assert face.delete([found.id]) is True
    assert not rows(raw)


def test_what_was_there_before_keeps_its_id_and_metadata(over: Over) -> None:
    """Adopted as documents, old ones are read, superseded and deleted like those that were added here."""
    raw = BentVectors()
    raw.add_documents([Document(page_content="an old note", metadata={"page": 1.0})], ids=["old"])
    face = over(raw)
    custody = face.custody
    assert isinstance(custody, Coordinator)
    custody.adopt("langchain", actor="ops", space=face.as_document, provenance="attested", dry_run=False)
    (found,) = face.similarity_search("old note")
    assert (found.id, found.metadata) == ("old", {"page": 1.0})
    assert face.add_texts(["a new note"], ids=["old"]) == ["old"]
    assert rows(raw) == {"a new note"}
    assert face.delete(["old"]) is True
    assert not rows(raw)


def test_it_serves_over_any_store_of_custody(face_url: str) -> None:
    """The constructor takes a coordinator with whatever store; what others wrote there is served too."""
    with Coordinator(face_url, create=True, stores=[MemoryStore()], runtime=testing_runtime()) as custody:
        face = CustodyVectorStore(custody, space="org")
        custody.write(value="a plain memory", space="org", actor="dana")
        face.add_texts(["a document"], [{"n": 1}])
        assert sorted(texts(face.similarity_search("a memory document", k=5))) == [
            "a document",
            "a plain memory",
        ]
        assert face.embeddings is None
        with pytest.raises(InvalidInput, match="wrapped"):
            CustodyVectorStore(custody, wrapped=MemoryStore())  # type: ignore[arg-type]  # what it refuses


def _clock(face: CustodyVectorStore) -> Any:
    custody: Any = face.custody
    return custody._custody.runtime.clock


def _now(face: CustodyVectorStore) -> datetime:
    now: datetime = _clock(face).now()
    return now


def _later(face: CustodyVectorStore, **by: int) -> None:
    _clock(face).advance(timedelta(**by))
