"""LangChain vector stores that misbehave on request, and third parties' with less of the interface."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore

from custody_sync.testing.contract_case import Trouble
from custody_sync.testing.embedding import WordEmbedder


class Words(Embeddings):
    """An embedder in LangChain's shape that knows words and no meaning."""

    def __init__(self, dimensions: int = 64) -> None:
        self.embed = WordEmbedder(dimensions)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return the vectors of several texts."""
        return self.embed.many(texts)

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of one text."""
        return self.embed(text)


class TooManyRequestsError(Exception):
    """What a client of a service says to 429."""

    status_code = 429
    headers: ClassVar = {"Retry-After": "0"}


class ServerError(Exception):
    """What a client of a service says to 500."""

    status_code = 500


class BentVectors(InMemoryVectorStore):
    """An `InMemoryVectorStore` that can be sabotaged.

    A lagging search goes on serving what was deleted; a lookup by id does not.
    """

    def __init__(self, embedding: Embeddings | None = None) -> None:
        super().__init__(embedding or Words())
        self.left: dict[Trouble, float] = {}
        self.still_served: list[tuple[Document, float]] = []

    def make(self, trouble: Trouble, times: float) -> None:
        """Let something go wrong from now on."""
        self.left[trouble] = times

    def add_documents(
        self, documents: list[Document], ids: list[str] | None = None, **options: Any
    ) -> list[str]:
        """Add documents, and maybe say something else."""
        self._admit(documents)
        return self._answer(super().add_documents(documents, ids=ids, **options)) or []

    def delete(self, ids: Sequence[str] | None = None, **options: Any) -> None:
        """Delete documents, or only say so."""
        self._admit(ids)
        if self.left.get(Trouble.LAG, 0) > 0:
            gone = super().get_by_ids(list(ids or ()))
            self.still_served += [(document, self.left[Trouble.LAG]) for document in gone]
        if not self.left.get(Trouble.LYING_DELETE, 0) > 0:
            super().delete(ids, **options)
        self._answer([])

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Look documents up."""
        self._admit(ids)
        return super().get_by_ids(ids)

    def similarity_search_with_score(
        self, query: str, k: int = 4, **options: Any
    ) -> list[tuple[Document, float]]:
        """Search, with what is no more where the index lags."""
        self._admit(query)
        if self._take(Trouble.SEARCH_FAILS):
            raise ConnectionError(f"no answer to {query}")
        found = super().similarity_search_with_score(query, k=k, **options)
        fits = options.get("filter") or (lambda document: True)
        for n, (document, left) in enumerate(self.still_served):
            if left > 0 and fits(document):
                self.still_served[n] = (document, left - 1)
                found.insert(0, (document, 1.0))
        return found[:k]

    def _take(self, trouble: Trouble) -> bool:
        left = self.left.get(trouble, 0)
        self.left[trouble] = left - 1
        return left > 0

    def _admit(self, asked: object) -> None:
        if self._take(Trouble.THROTTLED):
            raise TooManyRequestsError(f"slow down: {asked}")
        if self._take(Trouble.RESET):
            raise ConnectionResetError(f"reset before {asked}")

    def _answer(self, ids: list[str]) -> list[str]:
        if self._take(Trouble.FAILS_AFTER):
            raise ServerError(f"done all the same: {ids}")
        if self._take(Trouble.LOST_REPLY):
            raise ConnectionError(f"done all the same: {ids}")
        return [] if self._take(Trouble.EMPTY_BODY) else ids


class PlainStore(VectorStore):
    """A third party's store with the least that LangChain asks for, and its own ids where it likes.

    No scores, no filters, no lookup by id, no listing. Asked for an id that it does not have, its delete
    raises, as some do.
    """

    def __init__(self) -> None:
        self.inner = BentVectors()

    @classmethod
    def from_texts(
        cls, texts: list[str], embedding: Any, metadatas: Any = None, **options: Any
    ) -> PlainStore:
        """Make one that holds them."""
        made = cls()
        made.add_texts(texts, metadatas, **options)
        return made

    def add_texts(self, texts: Any, metadatas: Any = None, **options: Any) -> list[str]:
        """Add texts."""
        documents = [
            Document(page_content=text, metadata=meta) for text, meta in zip(texts, metadatas, strict=True)
        ]
        return self.inner.add_documents(documents, ids=options["ids"])

    def delete(self, ids: list[str] | None = None, **options: Any) -> bool | None:
        """Delete by id; an unknown one is an error."""
        if any(key not in self.inner.store for key in ids or ()):
            raise ValueError("some of the ids do not exist")
        self.inner.delete(ids)
        return True

    def similarity_search(self, query: str, k: int = 4, **options: Any) -> list[Document]:
        """Search; the documents it serves do not say their ids."""
        if options:
            raise TypeError(f"no such arguments: {options}")
        found = self.inner.similarity_search_with_score(query, k=k)
        return [Document(page_content=hit.page_content, metadata=hit.metadata) for hit, _ in found]


class HostedStore(PlainStore):
    """A third party's hosted index: ids by prefix, filters as mappings, distances, a lookup by id."""

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Look documents up, in no order."""
        return self.inner.get_by_ids(list(reversed(ids)))

    def similarity_search_with_score(self, *args: Any, **options: Any) -> list[tuple[Document, float]]:
        """Return the nearest and how far they are."""
        only = options.pop("filter", {})
        if options.keys() - {"k"}:
            raise TypeError(f"no such arguments: {options}")
        found = self.inner.similarity_search_with_score(
            *args, **options, filter=lambda document: only.items() <= document.metadata.items()
        )
        return [(document, 1.0 - score) for document, score in found]

    def names(self, prefix: str) -> Iterator[str]:
        """Yield the ids that begin with a prefix, in overlapping pages."""
        names = [key for key in list(self.inner.store) if key.startswith(prefix)]
        for start in range(0, len(names), 50):
            yield from names[max(start - 1, 0) : start + 50]


__all__ = ["BentVectors", "HostedStore", "PlainStore", "Words"]
