"""LangChain's `VectorStore` and `BaseRetriever` with custody: the line that makes the store changes.

Every document is a fact. What was deleted, replaced or retracted is not served, even while the vector
store underneath still has it; docs/faces/langchain.md has the differences.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from custody_sync.adapters._shared import vendor
from custody_sync.adapters.langchain import LangChainStore
from custody_sync.errors import InvalidInput, NotOffered
from custody_sync.faces import _langchain_reading as reading
from custody_sync.faces import _langchain_writing as writing
from custody_sync.faces._langchain_documents import Document, Said, read_documents, read_ids, read_texts
from custody_sync.faces._langchain_face import Face
from custody_sync.faces._langchain_retriever import CustodyRetriever
from custody_sync.faces._langchain_writing import AT_ONCE

if TYPE_CHECKING:
    from langchain_core.embeddings import Embeddings
    from langchain_core.vectorstores import VectorStore
else:
    VectorStore = vendor(
        "langchain_core.vectorstores", feature="CustodyVectorStore", extra="langchain"
    ).VectorStore


class CustodyVectorStore(Face, VectorStore):
    """A LangChain vector store whose every document is a fact of a ledger.

    `over` makes one of a vector store and a ledger's URL; the constructor takes a coordinator that is there.
    With a `Coordinator` both `add_texts` and `aadd_texts` work, also inside a running event loop, as in a
    notebook; with an `AsyncCoordinator` only the methods that are awaited.

    Args:
        custody: the coordinator; it stays open when this is closed.
        actor: who adds and deletes.
        space: to whom or what the documents belong; nothing of another space is served or deleted.
        store: which of the coordinator's stores is searched; the first that can be by default.
        wrapped: the adapter over the original, for its embeddings and its kind of score.
        receipt_id: the caller's reference, recorded with everything.
        on_pending: is given every result with a removal that is not verified yet.

    Raises:
        InvalidInput: an argument.
    """

    # --- made of texts --------------------------------------------------------------------------

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings,
        metadatas: list[dict[Any, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        original: VectorStore | LangChainStore | None = None,
        **options: Any,
    ) -> Self:
        """Put a ledger under `original` as `over` does, and add texts.

        Raises:
            InvalidInput: no `original`: there is none that could be made for you and kept.
        """
        said = read_texts(texts, metadatas, ids)
        face = cls.over(_given(original), **options)
        try:
            face._add(said, AT_ONCE)
        except BaseException:
            face.close()
            raise
        return face

    @classmethod
    async def afrom_texts(
        cls,
        texts: list[str],
        embedding: Embeddings,
        metadatas: list[dict[Any, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        original: VectorStore | LangChainStore | None = None,
        **options: Any,
    ) -> Self:
        """Do what `from_texts` does, for code with a running loop."""
        said = read_texts(texts, metadatas, ids)
        face = await cls.aover(_given(original), **options)
        try:
            await face._aadd(said, AT_ONCE)
        except BaseException:
            await face.aclose()
            raise
        return face

    # --- add ------------------------------------------------------------------------------------

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[Any, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        batch_size: int = AT_ONCE,
        **kwargs: Any,
    ) -> list[str]:
        """Write texts, to the store first and then to the ledger; an id that is there is superseded.

        Args:
            texts: what is indexed; none may be blank.
            metadatas: one for each text.
            ids: one for each text; None makes one.
            batch_size: at most so many are written at once, and never more than 16.
            kwargs: nothing else is understood.

        Raises:
            InvalidInput: an argument; nothing was written.
            CustodyError: a document was not written; those of the others that were stay.
        """
        _refuse(kwargs)
        return self._add(read_texts(texts, metadatas, ids), batch_size)

    async def aadd_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[Any, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        batch_size: int = AT_ONCE,
        **kwargs: Any,
    ) -> list[str]:
        """Do what `add_texts` does."""
        _refuse(kwargs)
        return await self._aadd(read_texts(texts, metadatas, ids), batch_size)

    def add_documents(
        self,
        documents: list[Document],
        *,
        ids: Sequence[str | None] | None = None,
        batch_size: int = AT_ONCE,
        **kwargs: Any,
    ) -> list[str]:
        """Write documents as `add_texts` does; `ids` come before the documents' own."""
        _refuse(kwargs)
        return self._add(read_documents(documents, ids), batch_size)

    async def aadd_documents(
        self,
        documents: list[Document],
        *,
        ids: Sequence[str | None] | None = None,
        batch_size: int = AT_ONCE,
        **kwargs: Any,
    ) -> list[str]:
        """Do what `add_documents` does."""
        _refuse(kwargs)
        return await self._aadd(read_documents(documents, ids), batch_size)

    def _add(self, said: list[Said], at_once: int) -> list[str]:
        return self._run(lambda custody: writing.add(custody, self._view, said, at_once), "aadd_texts")

    async def _aadd(self, said: list[Said], at_once: int) -> list[str]:
        return await self._bridge.arun(lambda custody: writing.add(custody, self._view, said, at_once))

    # --- delete and look up ---------------------------------------------------------------------

    def delete(self, ids: Sequence[str] | None = None, **kwargs: Any) -> bool:
        """Erase documents with every earlier version, from the ledger and then from every store.

        Returns:
            True when every removal is verified; else call it again, or run `repair`. Nobody is served it.
            False too where the original has a document of that id that is not the ledger's: it is left
            there, a warning says so, and `adopt` makes it one that can be deleted.

        Raises:
            InvalidInput: no ids: everything is deleted with `custody.forget_where(space=...)`.
            OnHold: a hold keeps one of them; all others are erased.
        """
        _refuse(kwargs)
        asked = self._read_ids(ids)
        return self._run(lambda custody: writing.delete(custody, self._view, asked, self._wrapped), "adelete")

    async def adelete(self, ids: Sequence[str] | None = None, **kwargs: Any) -> bool:
        """Do what `delete` does."""
        _refuse(kwargs)
        asked = self._read_ids(ids)
        return await self._bridge.arun(
            lambda custody: writing.delete(custody, self._view, asked, self._wrapped)
        )

    def _read_ids(self, ids: Sequence[str] | None) -> list[str]:
        if ids is None:
            way = f"custody.forget_where(space={self._view.space!r}, actor=...)"
            raise InvalidInput(field="ids", problem=f"must be named; to delete everything call {way}")
        return read_ids(ids)

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Return documents from the ledger; unknown and deleted ones are left out."""
        asked = read_ids(ids)
        return self._run(lambda custody: reading.get(custody, self._view, asked), "aget_by_ids")

    async def aget_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Do what `get_by_ids` does."""
        asked = read_ids(ids)
        return await self._bridge.arun(lambda custody: reading.get(custody, self._view, asked))

    # --- search ---------------------------------------------------------------------------------

    def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """Return documents that the store finds and the ledger believes, with the ledger's texts.

        Args:
            query: what the store searches for.
            k: at most so many, up to 1,000.
            kwargs: `filter`, a function of the document or a dict, applied to the ledger's documents;
                `valid_at` and `tx_at`, what was true and what was known then. Nothing else is understood.

        Raises:
            InvalidInput: an argument.
            StoreError: the store did not answer.
        """
        asked = reading.read_search(query, k, kwargs)
        return [document for document, _ in self._search(asked, "asimilarity_search")]

    async def asimilarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """Do what `similarity_search` does."""
        return [document for document, _ in await self._asearch(reading.read_search(query, k, kwargs))]

    def similarity_search_with_score(
        self, query: str, k: int = 4, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """Search as `similarity_search` does, with the original's scores as the original has them.

        Raises:
            InvalidInput: the store has no scores, or nobody said what they mean.
        """
        asked = reading.read_search(query, k, kwargs)
        return self._scored(self._search(asked, "asimilarity_search_with_score"))

    async def asimilarity_search_with_score(
        self, query: str, k: int = 4, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """Do what `similarity_search_with_score` does."""
        return self._scored(await self._asearch(reading.read_search(query, k, kwargs)))

    def max_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """Return documents that are near and unlike each other; the ledger's texts are embedded for it.

        Raises:
            NotOffered: the original's embeddings are not known.
        """
        asked = reading.read_search(query, max(k, fetch_k), kwargs, enough=k)
        embeddings = self._embeddings()
        found = [document for document, _ in self._search(asked, "amax_marginal_relevance_search")]
        vectors = embeddings.embed_documents([document.page_content for document in found])
        return _unlike(embeddings.embed_query(query), vectors, found, k, lambda_mult)

    async def amax_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """Do what `max_marginal_relevance_search` does."""
        asked = reading.read_search(query, max(k, fetch_k), kwargs, enough=k)
        embeddings = self._embeddings()
        found = [document for document, _ in await self._asearch(asked)]
        vectors = await embeddings.aembed_documents([document.page_content for document in found])
        return _unlike(await embeddings.aembed_query(query), vectors, found, k, lambda_mult)

    def similarity_search_by_vector(
        self, embedding: list[float], k: int = 4, **kwargs: Any
    ) -> list[Document]:
        """Refuse: the ledger's recall asks a store in words, and there are none.

        Raises:
            NotOffered: always.
        """
        raise NotOffered(what="CustodyVectorStore", problem="searches by text; call similarity_search")

    async def asimilarity_search_by_vector(
        self, embedding: list[float], k: int = 4, **kwargs: Any
    ) -> list[Document]:
        """Refuse, as `similarity_search_by_vector` does."""
        return self.similarity_search_by_vector(embedding, k)

    def _search(self, asked: reading.Search, instead: str) -> list[tuple[Document, float | None]]:
        return self._run(lambda custody: reading.search(custody, self._view, asked), instead)

    async def _asearch(self, asked: reading.Search) -> list[tuple[Document, float | None]]:
        return await self._bridge.arun(lambda custody: reading.search(custody, self._view, asked))

    def _scored(self, found: list[tuple[Document, float | None]]) -> list[tuple[Document, float]]:
        """Turn scores back into the original's: hits have them higher when nearer."""
        sign = -1.0 if self._wrapped is not None and self._wrapped.scores == "distance" else 1.0
        scored: list[tuple[Document, float]] = []
        for document, score in found:
            if score is None:
                problem = "has no scores that are understood; make it LangChainStore(..., scores=...)"
                raise InvalidInput(field="store", problem=problem)
            scored.append((document, sign * score))
        return scored

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        """Return the original's own way from a score to a relevance."""
        if self._wrapped is None:
            raise NotOffered(what="the original", problem="is not known; give wrapped= its LangChainStore")
        original: Any = self._wrapped.original
        chosen: Callable[[float], float] | None = None
        # LangChain's own says nothing when it raises.
        with suppress(AttributeError, NotImplementedError):
            chosen = original._select_relevance_score_fn()
        if chosen is None:
            problem = (
                "has no relevance scores; call similarity_search_with_score, or use no threshold of them"
            )
            raise NotOffered(what=type(original).__name__, problem=problem)
        return chosen

    def _embeddings(self) -> Embeddings:
        embeddings = self.embeddings
        if embeddings is None:
            problem = "needs embeddings; give wrapped= the original's adapter"
            raise NotOffered(what="max_marginal_relevance_search", problem=problem)
        return embeddings


def _given(original: VectorStore | LangChainStore | None) -> VectorStore | LangChainStore:
    if original is None:
        problem = "is missing: give the vector store that is to hold the texts"
        raise InvalidInput(field="original", problem=problem)
    return original


def _refuse(kwargs: dict[str, Any]) -> None:
    """Refuse what is not understood: a namespace that is accepted and ignored would be a wrong scope."""
    for name in kwargs:
        raise InvalidInput(field=name, problem="is not understood by CustodyVectorStore")


def _unlike(
    query: list[float], vectors: list[list[float]], found: list[Document], k: int, lambda_mult: float
) -> list[Document]:
    numpy = importlib.import_module("numpy")
    pick = importlib.import_module("langchain_core.vectorstores.utils").maximal_marginal_relevance
    picked = pick(numpy.array(query, dtype=numpy.float32), vectors, k=k, lambda_mult=lambda_mult)
    return [found[at] for at in picked]


__all__ = ["CustodyRetriever", "CustodyVectorStore"]
