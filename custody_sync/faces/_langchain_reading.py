"""Searching and looking up documents: the store is asked where to look, the ledger what is there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from custody_sync.coordinator import AsyncCoordinator
from custody_sync.errors import InvalidInput
from custody_sync.faces._langchain_documents import Document, document_of, is_document
from custody_sync.faces._langchain_filters import read_filter
from custody_sync.faces._langchain_writing import View, current
from custody_sync.faces._partial import tell_partial
from custody_sync.model import Fact
from custody_sync.recalled import Belief


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """A checked search."""

    query: str
    k: int
    enough: int
    """How many are shown of them."""
    test: Callable[[Document], bool] | None = None
    valid_at: datetime | None = None
    tx_at: datetime | None = None


def read_search(query: str, k: Any, given: dict[str, Any], enough: int | None = None) -> Search:
    """Check a search; what is not understood is refused, since ignoring it would widen the answer.

    Args:
        query: what the store searches for.
        k: at most so many.
        given: the options.
        enough: how many of them are shown; all by default.

    Raises:
        InvalidInput: an argument.
    """
    if type(k) is not int or k < 0:
        raise InvalidInput(field="k", problem="must be a whole number, zero or more")
    options = dict(given)
    test = read_filter(options.pop("filter", None))
    valid_at, tx_at = options.pop("valid_at", None), options.pop("tx_at", None)
    if options:
        problem = "is not understood here; a search takes filter, valid_at and tx_at"
        raise InvalidInput(field=sorted(options)[0], problem=problem)
    shown = k if enough is None else enough
    return Search(query=query, k=k, enough=shown, test=test, valid_at=valid_at, tx_at=tx_at)


async def search(custody: AsyncCoordinator, view: View, asked: Search) -> list[tuple[Document, float | None]]:
    """Return documents that the store finds and the ledger believes, with the store's scores."""
    if asked.k == 0:
        return []
    test = asked.test

    def keep(fact: Fact) -> bool:
        return test is None or test(document_of(fact))

    found = await custody.recall(
        asked.query,
        k=asked.k,
        spaces=[view.space],
        valid_at=asked.valid_at,
        tx_at=asked.tx_at,
        store=view.store,
        keep=None if test is None else keep,
    )
    tell_partial(found, asked.enough)
    return [(document_of(hit.fact, hit.text), hit.score) for hit in found.hits]


async def get(custody: AsyncCoordinator, view: View, ids: Sequence[str]) -> list[Document]:
    """Return the documents of some ids from the ledger, in that order; unknown ids are left out."""
    found: list[Document] = []
    for document_id in ids:
        fact = await current(custody, view.space, document_id)
        if fact is None:
            fact = await _other(custody, view.space, document_id)
        if fact is not None:
            found.append(document_of(fact))
    return found


async def _other(custody: AsyncCoordinator, space: str, fact_id: str) -> Fact | None:
    """Return a believed fact that was not added as a document, such as an adopted one."""
    _, chains = await custody.ledger.links([fact_id])
    for link in chains[0]:
        fact = link.fact
        is_it = fact.fact_id == fact_id and fact.space == space and link.belief is Belief.BELIEVED
        if is_it and not is_document(fact):
            return fact
    return None


__all__ = ["Search", "get", "read_search", "search"]
