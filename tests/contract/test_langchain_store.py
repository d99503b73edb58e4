"""LangChain's own vector store and two of third parties keep the contract behind the adapter."""

from __future__ import annotations

import math
from typing import Any

import pytest
from fakes.langchain_store import BentVectors, HostedStore, PlainStore
from langchain_core.documents import Document

from custody_sync.adapters.langchain import LangChainStore
from custody_sync.testing import NotApplicable, StoreContract, StoreHooks
from custody_sync.testing.contract_case import Trouble

ABSENT = {
    Trouble.PENDING: "LangChain has no word for a write that is carried out later",
    Trouble.REPEATS: "what a page repeats is told by its id in any case; see the tests of the adapter",
    Trouble.SKIPS: "a listing is one reading of the ids",
}


class LangChainHooks(StoreHooks):
    """Sabotage and a stranger's document, for any vector store over `BentVectors`."""

    raw: BentVectors
    many, crowd = 330, 121

    async def break_delete(self, store: LangChainStore) -> None:
        """Make deletions do nothing."""
        self.raw.make(Trouble.LYING_DELETE, math.inf)

    async def break_search(self, store: LangChainStore) -> None:
        """Make every search fail, quoting what was asked."""
        self.raw.make(Trouble.SEARCH_FAILS, math.inf)

    async def make_trouble(self, store: LangChainStore, trouble: Trouble, times: float = 1) -> None:
        """Bend what the store is asked and answers."""
        if trouble in ABSENT:
            raise NotApplicable(ABSENT[trouble])
        self.raw.make(trouble, times)

    async def put_unlabelled(self, store: LangChainStore, text: str) -> str:
        """Add a document as an application does without custody."""
        strange = Document(page_content=text, metadata={"source": "handbook.pdf"})
        return self.raw.add_documents([strange], ids=["strange"])[0]

    async def reopened(self, store: LangChainStore) -> LangChainStore:
        """Return another adapter over the same store."""
        return self.adapter(store.original)

    def adapter(self, raw: Any) -> LangChainStore:
        """Wrap a store."""
        self.raw = getattr(raw, "inner", raw)
        return LangChainStore(raw)


class TestInMemoryVectorStore(LangChainHooks, StoreContract):
    """In memory, called in worker threads."""

    @pytest.fixture
    def store(self) -> LangChainStore:
        """Return a fresh one."""
        return self.adapter(BentVectors())


class TestHostedStore(LangChainHooks, StoreContract):
    """A third party's, of which the caller says how it filters, names ids and scores."""

    @pytest.fixture
    def store(self) -> LangChainStore:
        """Return a fresh one."""
        return self.adapter(HostedStore())

    def adapter(self, raw: Any) -> LangChainStore:
        """Wrap a store and say what it can do."""
        self.raw = raw.inner
        return LangChainStore(raw, where=dict, list_ids=raw.names, scores="distance")


class TestPlainStore(LangChainHooks, StoreContract):
    """A third party's, of which nothing is known: what cannot be asked is left out and said."""

    @pytest.fixture
    def store(self) -> LangChainStore:
        """Return a fresh one."""
        return self.adapter(PlainStore())
