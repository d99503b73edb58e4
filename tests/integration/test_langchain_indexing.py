"""LangChain's indexing API over the face: what is in its source is served, what left it is forgotten."""

from __future__ import annotations

import math
from typing import Any

import pytest
from fakes.langchain_store import BentVectors
from fix_langchain import Over, kinds, rows
from langchain_core.documents import Document
from langchain_core.indexing import InMemoryRecordManager, aindex, index
from langchain_core.indexing.api import IndexingException

from custody_sync.testing.contract_case import Trouble

OPTIONS: dict[str, Any] = {"source_id_key": "source", "cleanup": "incremental", "key_encoder": "sha256"}


def page(text: str, source: str = "hr.pdf") -> Document:
    """Return a page of a document."""
    return Document(page_content=text, metadata={"source": source})


@pytest.fixture
def records() -> InMemoryRecordManager:
    """Return where the indexing API remembers what it wrote."""
    manager = InMemoryRecordManager(namespace="handbook")
    manager.create_schema()
    return manager


def test_a_changed_source_is_forgotten_and_replaced(over: Over, records: InMemoryRecordManager) -> None:
    """What did not change is not written again; what left the source is in neither store nor ledger."""
    raw = BentVectors()
    face = over(raw)
    first = index([page("twelve weeks"), page("dogs", "office.pdf")], records, face, **OPTIONS)
    assert first == {"num_added": 2, "num_updated": 0, "num_skipped": 0, "num_deleted": 0}
    again = index([page("sixteen weeks"), page("dogs", "office.pdf")], records, face, **OPTIONS)
    assert again == {"num_added": 1, "num_updated": 0, "num_skipped": 1, "num_deleted": 1}
    assert rows(raw) == {"sixteen weeks", "dogs"}
    assert kinds(face).count("forget") == 1
    (found,) = face.similarity_search("weeks", k=1)
    assert (found.page_content, found.metadata) == ("sixteen weeks", {"source": "hr.pdf"})


def test_a_removal_that_is_not_verified_is_gone_on_with(over: Over, records: InMemoryRecordManager) -> None:
    """False is an exception there, so its record stays, and the next run ends what is left."""
    raw = BentVectors()
    face = over(raw)
    index([page("twelve weeks")], records, face, **OPTIONS)
    raw.make(Trouble.LYING_DELETE, math.inf)
    with pytest.raises(IndexingException):
        index([page("sixteen weeks")], records, face, **OPTIONS)
    assert [one.page_content for one in face.similarity_search("weeks")] == ["sixteen weeks"]
    raw.make(Trouble.LYING_DELETE, 0)
    index([page("sixteen weeks")], records, face, **(OPTIONS | {"cleanup": "full"}))
    assert rows(raw) == {"sixteen weeks"}


async def test_it_is_awaited(over: Over, records: InMemoryRecordManager) -> None:
    """`aindex` does the same."""
    raw = BentVectors()
    face = over(raw)
    await aindex([page("twelve weeks")], records, face, **OPTIONS)
    done = await aindex([], records, face, **(OPTIONS | {"cleanup": "full"}))
    assert done["num_deleted"] == 1
    assert not rows(raw)
