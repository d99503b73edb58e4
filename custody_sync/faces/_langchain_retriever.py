"""LangChain's `BaseRetriever` over recall: any store a coordinator searches, and facts of every kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from custody_sync.adapters._shared import vendor
from custody_sync.coordinator import AsyncCoordinator
from custody_sync.faces._blocking import blocking
from custody_sync.faces._bridge import Bridge, Work
from custody_sync.faces._langchain_documents import Document, document_of
from custody_sync.faces._langchain_filters import read_filter
from custody_sync.faces._partial import tell_partial
from custody_sync.model import Fact, Json, format_instant
from custody_sync.recalled import Recalled

if TYPE_CHECKING:
    from langchain_core.callbacks import (
        AsyncCallbackManagerForRetrieverRun,
        CallbackManagerForRetrieverRun,
    )
    from langchain_core.retrievers import BaseRetriever
else:
    BaseRetriever = vendor(
        "langchain_core.retrievers", feature="CustodyRetriever", extra="langchain"
    ).BaseRetriever
    CallbackManagerForRetrieverRun = AsyncCallbackManagerForRetrieverRun = Any


class CustodyRetriever(BaseRetriever):
    """Retrieve what a store finds and the ledger believes, each document with where it comes from.

    It serves facts of every kind: documents that were added through `CustodyVectorStore` with their own
    metadata, and what anybody wrote through the coordinator. Only the query is an agent's to choose: dates
    and spaces are fixed here.
    """

    custody: Any
    """A `Coordinator`, or an `AsyncCoordinator` where only `ainvoke` is called."""
    k: int = 4
    """At most so many documents; `invoke(query, k=2)` asks for another number."""
    spaces: Sequence[str] | None = None
    """Only facts of these spaces; None is all."""
    store: str | None = None
    """Which store is searched; the first that can be by default."""
    filter: Any = None
    """A function of the document, or a dict that its metadata are compared with."""
    valid_at: datetime | None = None
    """What was true then; now by default."""
    tx_at: datetime | None = None
    """What the ledger knew then."""
    include_claimed: bool = False
    """Also adopted facts that nobody has confirmed."""
    with_history: bool = False
    """Each with what it corrected."""
    custody_key: str | None = "custody"
    """Where in the metadata stands who stated it and since when; None leaves it out, a caller's own stays."""

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, k: int | None = None
    ) -> list[Document]:
        bridge, work = Bridge(self.custody, "CustodyRetriever"), self._work(query, k)
        return blocking(lambda: bridge.run(work, instead="ainvoke"))

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, k: int | None = None
    ) -> list[Document]:
        return await Bridge(self.custody, "CustodyRetriever").arun(self._work(query, k))

    def _work(self, query: str, k: int | None) -> Work[list[Document]]:
        test = read_filter(self.filter)

        async def retrieve(custody: AsyncCoordinator) -> list[Document]:
            found = await custody.recall(
                query,
                k=self.k if k is None else k,
                spaces=self.spaces,
                store=self.store,
                valid_at=self.valid_at,
                tx_at=self.tx_at,
                include_claimed=self.include_claimed,
                with_history=self.with_history,
                keep=_keeps(test),
            )
            tell_partial(found)
            return [self._document(hit) for hit in found.hits]

        return retrieve

    def _document(self, hit: Recalled) -> Document:
        document = document_of(hit.fact, hit.text)
        if self.custody_key is not None:
            # Whoever supplies a document must not be able to say where it is from.
            document.metadata[self.custody_key] = told(hit)
        return document


def told(hit: Recalled) -> dict[str, Json]:
    """Return where a fact comes from, as JSON, so that an answer can cite it."""
    fact = hit.fact
    card: dict[str, Json] = {
        "fact_id": fact.fact_id,
        "space": fact.space,
        "subject": fact.subject,
        "predicate": fact.predicate,
        "actor": fact.actor,
        "provenance": fact.provenance.value,
        "valid_from": format_instant(fact.valid_from),
        "valid_to": None if fact.valid_to is None else format_instant(fact.valid_to),
        "receipt_id": fact.receipt_id,
        "store": hit.store,
        "score": hit.score,
    }
    if hit.history:
        card["history"] = [
            {
                "fact_id": link.fact.fact_id,
                "text": link.fact.text,
                "belief": link.belief.value,
                "valid_from": format_instant(link.fact.valid_from),
            }
            for link in hit.history
        ]
    return card


def _keeps(test: Callable[[Document], bool] | None) -> Callable[[Fact], bool] | None:
    return None if test is None else lambda fact: test(document_of(fact))


__all__ = ["CustodyRetriever"]
