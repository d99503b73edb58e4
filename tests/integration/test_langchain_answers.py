"""What the LangChain face says where a plain True, an empty list or an empty error would be a lie."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from fakes.langchain_store import BentVectors, HostedStore, PlainStore, Words
from fix_langchain import HASTE, Over, rows
from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore

from custody_sync.adapters.langchain import LangChainStore
from custody_sync.errors import NotOffered, OnHold
from custody_sync.faces import _langchain_writing as writing
from custody_sync.faces.langchain import CustodyRetriever, CustodyVectorStore
from custody_sync.model import Hit
from custody_sync.sync import Coordinator
from custody_sync.testing import FOREVER, Faults, MemoryStore, testing_runtime
from custody_sync.testing.contract_case import Trouble

LEFT = "the store has 1 of these ids and the ledger does not; left as they are: run adopt"
SILENT = "the store did not say whether it has 1 of these ids: delete them again"


@pytest.fixture
def warned(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    """Return what was logged since it was asked before."""

    def said() -> list[str]:
        found = [record.getMessage() for record in caplog.records if record.name == "custody_sync.faces"]
        caplog.clear()
        return found

    with caplog.at_level(logging.WARNING, "custody_sync.faces"):
        yield said


# --- delete -----------------------------------------------------------------------------------


def test_a_delete_of_what_was_there_before_is_not_true(over: Over, warned: Any) -> None:
    """The unlabelled row is spared and said to be there; adopted it goes; an id of nobody is True."""
    raw = BentVectors()
    raw.add_documents([Document(page_content="an old secret")], ids=["raw"])
    face = over(raw)
    face.add_texts(["mine"], ids=["x"])
    assert face.delete(["nobody"]) is True
    assert warned() == []
    assert face.delete(["raw"]) is False
    assert face.delete(["x", "nobody", "raw"]) is False
    assert (warned(), rows(raw)) == ([LEFT] * 2, {"an old secret"})
    custody = face.custody
    assert isinstance(custody, Coordinator)
    custody.adopt("langchain", actor="ops", space=face.as_document, provenance="attested", dry_run=False)
    assert face.delete(["raw"]) is True
    assert (warned(), rows(raw)) == ([], set())


def test_an_id_that_is_of_both_is_not_gone(over: Over, warned: Any) -> None:
    """A document of the ledger goes; a row of the application's own under the same id stays: not True."""
    raw = BentVectors()
    face = over(raw)
    face.add_texts(["mine"], ids=["x"])
    raw.add_documents([Document(page_content="theirs")], ids=["x"])
    assert face.delete(["x"]) is False
    assert face.delete(["x"]) is False
    assert (warned(), rows(raw)) == ([LEFT] * 2, {"theirs"})


def test_what_the_ledger_has_still_to_delete_is_nobody_elses(over: Over, warned: Any) -> None:
    """An adopted row that is pending or held is not taken for one that nobody recorded."""
    raw = BentVectors()
    raw.add_documents([Document(page_content="an old note")], ids=["raw"])
    face = over(raw)
    custody = face.custody
    assert isinstance(custody, Coordinator)
    custody.adopt("langchain", actor="ops", space=face.as_document, provenance="attested", dry_run=False)
    fact = custody.recall("an old note").facts[0]
    hold = custody.hold(fact.fact_id, actor="legal", reason="a case")
    with pytest.raises(OnHold):
        face.delete(["raw"])
    custody.release(fact.fact_id, hold_id=hold.hold_id, actor="legal", reason="it is over")
    raw.make(Trouble.LYING_DELETE, FOREVER)
    assert face.delete(["raw"]) is False
    assert warned() == []


def test_a_store_that_cannot_say_leaves_it_at_what_the_ledger_knows(over: Over, warned: Any) -> None:
    """Without a lookup an unknown id is True, as with one that takes UUIDs alone; with none it is not."""
    assert over(LangChainStore(PlainStore(), "plain")).delete(["raw"]) is True
    hosted = HostedStore()
    hosted.inner.add_documents([Document(page_content="old")], ids=["raw"])
    assert over(LangChainStore(hosted, "uuids", ids="uuid"), space="b").delete(["raw"]) is True
    assert over(LangChainStore(hosted, "hosted"), space="c").delete(["raw"]) is False
    assert warned() == [LEFT]
    broken = BentVectors()
    broken.make(Trouble.RESET, FOREVER)
    assert over(broken, space="d").delete(["raw"]) is False
    assert warned() == [SILENT]


def test_a_store_that_refuses_to_say_is_no_proof(over: Over, warned: Any) -> None:
    """A lookup that is not allowed tells nothing of what is there."""

    class Forbidding(BentVectors):
        def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
            """Refuse."""
            raise PermissionError

    assert over(Forbidding()).delete(["raw"]) is False
    assert warned() == [SILENT]


def test_a_delete_is_not_true_while_the_ledgers_files_have_the_text(over: Over, tmp_path: Path) -> None:
    """A reader in the way keeps erased bytes: each delete says so, until the one that could clear them."""
    face = over(BentVectors())
    face.add_texts(["call 555-0144"], ids=["n"])
    with contextlib.closing(sqlite3.connect(tmp_path / "custody.db")) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM events").fetchone()
        assert [face.delete(["n"]), face.delete(["n"])] == [False, False]
    assert face.delete(["n"]) is True


def test_a_store_that_hangs_holds_up_no_delete(
    over: Over, warned: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question has a deadline, and who does not answer once is asked for no more of a call's ids."""
    asked: list[str] = []

    async def hang(self: LangChainStore, external_id: str) -> bool:
        asked.append(external_id)
        await asyncio.Event().wait()
        return False

    monkeypatch.setattr(LangChainStore, "has", hang)
    monkeypatch.setattr(writing, "AT_ONCE", 1)
    monkeypatch.setattr(writing, "_QUESTION", 0.01)
    assert over(BentVectors()).delete(["1", "2", "3"]) is False
    assert asked == ["1"]
    assert warned() == [SILENT.replace(" 1 ", " 3 ")]


async def test_an_id_is_looked_for_in_the_listing_where_there_is_no_lookup() -> None:
    """A store that only lists by prefix answers for the very id."""
    plain = PlainStore()
    plain.inner.add_documents([Document(page_content="old")], ids=["raw-1"])
    listed = LangChainStore(
        plain, list_ids=lambda prefix: [key for key in plain.inner.store if key.startswith(prefix)]
    )
    assert [await listed.has(key) for key in ("raw-1", "raw")] == [True, False]
    assert await LangChainStore(plain).has("raw-1") is None


# --- search -----------------------------------------------------------------------------------


class Capped(MemoryStore):
    """Serves three entries, whatever it is asked for."""

    async def search(self, query: str, k: int, spaces: Any) -> list[Hit]:
        """Search, and cut."""
        return (await super().search(query, k, spaces))[:3]


@pytest.fixture
def capped(face_url: str) -> Iterator[tuple[Coordinator, CustodyVectorStore]]:
    """Yield eight documents in a store that serves three and goes on serving what was deleted."""
    store = Capped("m", faults=Faults(index_lag=FOREVER))
    options: dict[str, Any] = {"runtime": testing_runtime(), "patience": HASTE}
    with Coordinator(face_url, create=True, stores=[store], **options) as custody:
        face = CustodyVectorStore(custody)
        face.add_texts([f"invoice {n}" for n in range(8)], ids=[str(n) for n in range(8)])
        yield custody, face


def test_a_search_that_was_cut_short_says_so(
    capped: tuple[Coordinator, CustodyVectorStore], warned: Any
) -> None:
    """Three of eight, or none behind forgotten ones, come with one warning without content."""
    custody, face = capped
    retriever = CustodyRetriever(custody=custody, k=8)
    partly = ["a search was answered in part: short"]
    assert (len(face.similarity_search("invoice", k=8)), warned()) == (3, partly)
    assert (len(retriever.invoke("invoice")), warned()) == (3, partly)
    assert (len(face.similarity_search("invoice", k=3)), warned()) == (3, [])
    face.delete(["0", "1", "2"])
    warned()
    assert (face.similarity_search("invoice 0 1 2", k=3), warned()) == ([], partly)
    assert (retriever.invoke("invoice 0 1 2"), warned()) == ([], partly)


def test_what_is_asked_for_to_pick_from_need_not_be_all(over: Over, warned: Any, face_url: str) -> None:
    """All there is, or enough to show `k` unlike ones, is no part of an answer."""
    face = over(BentVectors())
    face.add_texts(["alpha beta", "gamma delta"])
    assert len(face.similarity_search("alpha", k=8)) == 2
    assert len(face.max_marginal_relevance_search("alpha", k=2, fetch_k=20)) == 2
    wrapped = LangChainStore(InMemoryVectorStore(Words()), "original")
    options: dict[str, Any] = {"runtime": testing_runtime(), "patience": HASTE}
    with Coordinator(f"{face_url}2", create=True, stores=[Capped("m")], **options) as custody:
        other = CustodyVectorStore(custody, wrapped=wrapped)
        other.add_texts([f"invoice {n}" for n in range(8)])
        assert len(other.max_marginal_relevance_search("invoice", k=2)) == 2
        assert warned() == []
        assert len(other.max_marginal_relevance_search("invoice", k=4)) == 3
        assert warned() == ["a search was answered in part: short"]


# --- relevance --------------------------------------------------------------------------------


class Relevant(BentVectors):
    """A store that says what its scores mean."""

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        return lambda score: (score + 1) / 2


def test_a_threshold_of_relevance_is_the_originals_or_is_refused(over: Over) -> None:
    """The original's own function decides; where it has none, one sentence says so."""
    face = over(Relevant())
    face.add_texts(["alpha beta", "gamma delta"])
    options: dict[str, Any] = {
        "search_type": "similarity_score_threshold",
        "search_kwargs": {"score_threshold": 0.9},
    }
    (found,) = face.as_retriever(**options).invoke("alpha beta")
    assert found.page_content == "alpha beta"
    ((_, best),) = face.similarity_search_with_relevance_scores("alpha beta", k=1)
    assert best == pytest.approx(1.0)
    bare = over(InMemoryVectorStore(Words()), space="b")
    for search in (
        lambda: bare.as_retriever(**options).invoke("alpha"),
        lambda: bare.similarity_search_with_relevance_scores("alpha"),
    ):
        with pytest.raises(NotOffered, match="InMemoryVectorStore has no relevance scores; call"):
            search()
