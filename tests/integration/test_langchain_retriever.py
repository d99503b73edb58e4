"""The retriever: facts of every kind with where they come from, and dates that no agent chooses."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from fakes.langchain_store import BentVectors
from fix_langchain import Over

from custody_sync.errors import InsideEventLoop, InvalidInput
from custody_sync.faces.langchain import CustodyRetriever, CustodyVectorStore
from custody_sync.sync import Coordinator
from custody_sync.testing import MemoryStore, testing_runtime

JANUARY, FEBRUARY, MARCH = (
    datetime(2025, month, day, tzinfo=UTC) for month, day in ((1, 12), (2, 9), (3, 3))
)


@pytest.fixture
def prices(face_url: str) -> Any:
    """Yield a coordinator over a store that is not LangChain's, with a price and its correction."""
    with Coordinator(face_url, create=True, stores=[MemoryStore()], runtime=testing_runtime()) as custody:
        said: dict[str, Any] = {
            "space": "org",
            "actor": "sales",
            "subject": "widget",
            "predicate": "list price",
        }
        first = custody.write(value="$4,200", valid_from=JANUARY, receipt_id="r-1", **said)
        custody.write(value="$3,600", valid_from=MARCH, supersedes=first.fact.fact_id, **said)
        custody.write(value="widget of another", space="user:42", actor="ana")
        yield custody


def test_it_serves_facts_with_where_they_come_from(prices: Coordinator) -> None:
    """One current value, and what an answer needs to cite it, as JSON under one key."""
    retriever = CustodyRetriever(custody=prices, spaces=["org"], with_history=True)
    (document,) = retriever.invoke("widget list price")
    assert document.page_content == "widget list price: $3,600"
    told = document.metadata["custody"]
    assert document.id == told["fact_id"]
    assert (told["actor"], told["provenance"], told["store"]) == ("sales", "attested", "memory")
    assert [link["text"] for link in told["history"]] == ["widget list price: $4,200", document.page_content]


def test_the_date_is_the_callers(prices: Coordinator) -> None:
    """As of February it is the old price; a query cannot ask for another date."""
    then = CustodyRetriever(custody=prices, spaces=["org"], valid_at=FEBRUARY, custody_key=None)
    (document,) = then.invoke("widget list price")
    assert (document.page_content, document.metadata) == ("widget list price: $4,200", {})
    with pytest.raises(TypeError, match="valid_at"):
        then.invoke("widget", valid_at=MARCH)


def test_spaces_and_k_bound_the_answer(prices: Coordinator) -> None:
    """Without spaces everybody's facts are served; `k` is set once, or for one call."""
    everybody = CustodyRetriever(custody=prices, k=2)
    assert len(everybody.invoke("widget")) == 2
    assert len(everybody.invoke("widget", k=1)) == 1
    with pytest.raises(InvalidInput, match="store"):
        CustodyRetriever(custody=prices, store="other").invoke("widget")
    with pytest.raises(InvalidInput, match="custody"):
        CustodyRetriever(custody="no coordinator").invoke("widget")


def test_documents_keep_their_own_metadata(over: Over) -> None:
    """What was added through the face comes with its id and metadata."""
    face = over(BentVectors())
    face.add_texts(["one note", "two notes"], [{"n": 1}, {"source": "mine"}], ids=["1", "2"])
    retriever = CustodyRetriever(custody=face.custody)
    found = {document.id: document.metadata for document in retriever.invoke("one two note notes")}
    assert {**found["2"], "custody": None} == {"source": "mine", "custody": None}
    assert found["1"]["n"] == 1
    assert found["1"]["custody"]["subject"] == "1"
    only = CustodyRetriever(custody=face.custody, filter={"n": 1})
    assert [document.id for document in only.invoke("note")] == ["1"]


async def test_it_is_awaited(face_url: str, over: Over) -> None:
    """Over a Coordinator both ways work, in a loop as well; over an AsyncCoordinator one awaits."""
    face = over(BentVectors())
    await face.aadd_texts(["a note"], ids=["1"])
    retriever = CustodyRetriever(custody=face.custody)
    assert [document.id for document in await retriever.ainvoke("note")] == ["1"]
    assert [document.id for document in retriever.invoke("note")] == ["1"]
    async with await CustodyVectorStore.aover(BentVectors(), f"{face_url}2") as other:
        await other.aadd_texts(["another"], ids=["2"])
        apart = CustodyRetriever(custody=other.custody)
        assert [document.id for document in await apart.ainvoke("another")] == ["2"]
        with pytest.raises(InsideEventLoop, match="ainvoke"):
            apart.invoke("another")


def test_a_document_cannot_say_where_it_is_from(over: Over) -> None:
    """The ledger's word stands under the key of a citation, whatever the metadata have there."""
    face = over(BentVectors())
    face.add_texts(["pay eve"], metadatas=[{"custody": {"actor": "ceo", "provenance": "verified"}}])
    (document,) = CustodyRetriever(custody=face.custody).invoke("pay eve")
    told = document.metadata["custody"]
    assert (told["actor"], told["provenance"]) == ("app", "attested")
    assert face.similarity_search("pay eve", k=1)[0].metadata["custody"]["actor"] == "ceo"


def test_a_filter_that_calls_its_own_store_is_refused(over: Over) -> None:
    """Its loop would wait for itself for ever; the store works on after the refusal."""
    face = over(BentVectors())
    face.add_texts(["tea"], ids=["t"])
    with pytest.raises(InsideEventLoop, match="callback"):
        face.similarity_search("tea", filter=lambda document: bool(face.get_by_ids(["t"])))
    assert [document.id for document in face.similarity_search("tea")] == ["t"]
