"""A LangChain retriever over a handbook that changes: corrected, dated, deleted, and never stale.

Runs offline: LangChain's own in-memory vector store, with word counts in place of an embedding model. The
code of the chain calls what it called before; the line that makes the vector store is another.
"""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime
from pathlib import Path

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore

from custody_sync.faces.langchain import CustodyRetriever, CustodyVectorStore
from custody_sync.testing.embedding import WordEmbedder


class Words(Embeddings):
    """An embedding model that counts words."""

    def __init__(self) -> None:
        self._embed = WordEmbedder(64)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return the vectors of several texts."""
        return self._embed.many(texts)

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of one text."""
        return self._embed(text)


def chain(store: VectorStore) -> None:
    """Do what an application does with a vector store; nothing in here knows of a ledger."""
    store.add_documents(
        [
            Document(
                id="leave",
                page_content="Parental leave is twelve weeks",
                metadata={"source": "hr.pdf", "page": 4, "checked": datetime(2026, 1, 12, tzinfo=UTC)},
            ),
            Document(
                id="pets", page_content="Dogs are welcome on Fridays", metadata={"source": "office.pdf"}
            ),
        ]
    )
    retriever = store.as_retriever(search_kwargs={"k": 1, "filter": {"source": "hr.pdf"}})
    (found,) = retriever.invoke("how long is parental leave")
    print("found:    ", found.page_content, found.metadata)
    assert found.metadata["checked"] == datetime(2026, 1, 12, tzinfo=UTC)


def main() -> None:
    """Run the chain, correct a page, ask for both dates, cite, delete, and look what is left."""
    with tempfile.TemporaryDirectory() as folder:
        vectors = InMemoryVectorStore(Words())

        # The line that changes; before it was `store = vectors`.
        store = CustodyVectorStore.over(vectors, f"sqlite:///{Path(folder)}/custody.db", actor="import:hr")

        chain(store)

        before = datetime.now(UTC)
        store.add_texts(["Parental leave is sixteen weeks"], [{"source": "hr.pdf", "page": 4}], ids=["leave"])
        (now,) = store.similarity_search("parental leave", k=1)
        (then,) = store.similarity_search("parental leave", k=1, valid_at=before)
        print("corrected:", now.page_content, "- before:", then.page_content)
        assert (now.page_content, then.page_content) == (
            "Parental leave is sixteen weeks",
            "Parental leave is twelve weeks",
        )
        assert "twelve" not in str(vectors.store)

        # An agent chooses the query; dates and spaces are fixed where the retriever is made.
        retriever = CustodyRetriever(custody=store.custody, spaces=["documents"], k=1, with_history=True)
        (cited,) = retriever.invoke("parental leave")
        told = cited.metadata["custody"]
        print("cited:    ", told["actor"], told["valid_from"], [link["text"] for link in told["history"]])

        assert store.delete(["leave"]) is True
        assert store.get_by_ids(["leave"]) == []
        assert "leave" not in str(vectors.store) + str(store.similarity_search("parental leave"))
        print(
            "deleted:  ", "verified;", [one.id for one in store.similarity_search("parental leave")], "left"
        )
        store.close()


if __name__ == "__main__":
    main()
