"""LangChain's indexing, run as its users run it: one command a line in, one answer a line out.

Runs in a virtual environment of its own and knows nothing of custody-sync.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
import warnings
from importlib.metadata import version
from typing import Any

warnings.filterwarnings("ignore")

import psycopg  # noqa: E402
from langchain_classic.indexes import SQLRecordManager, index  # noqa: E402 (it warns on import)
from langchain_core.documents import Document  # noqa: E402
from langchain_core.embeddings import Embeddings  # noqa: E402
from langchain_postgres import PGVector  # noqa: E402
from sqlalchemy import create_engine  # noqa: E402

PACKAGES = ("langchain-core", "langchain-classic", "langchain-postgres", "pgvector")


class CountingEmbeddings(Embeddings):
    """Vectors that follow from the text, after as long as a model would take; counts the texts."""

    def __init__(self, seconds: float) -> None:
        self.texts = 0
        self._seconds = seconds

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return one vector a text."""
        self.texts += len(texts)
        time.sleep(self._seconds)
        return [self.vector(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a query."""
        return self.embed_documents([text])[0]

    @staticmethod
    def vector(text: str) -> list[float]:
        """Return numbers from a hash, none of them zero."""
        return [1.0 + byte for byte in hashlib.sha256(text.encode()).digest()]


class Side:
    """One process that indexes.

    Args:
        uri: the database that holds both the vectors and the records.
        name: what the server shows this process as.
        seconds: how long one call of the embedding takes.
    """

    def __init__(self, uri: str, name: str, seconds: float) -> None:
        self._engine = create_engine(
            "postgresql+psycopg://",
            creator=lambda: psycopg.connect(uri, application_name=name),
            pool_pre_ping=True,
        )
        self._embeddings = CountingEmbeddings(seconds)

    def answer(self, command: dict[str, Any]) -> dict[str, Any]:
        """Do what was asked, and say what LangChain said."""
        before = self._embeddings.texts
        said: dict[str, Any] = {}
        try:
            said = dict(self._index(**command))
        except Exception as error:  # what the user would see
            said = {"error": type(error).__name__}
        return {"said": said, "embedded": self._embeddings.texts - before}

    def _index(
        self, *, place: str, source: str, texts: list[str], cleanup: str | None, batch: int = 100
    ) -> dict[str, int]:
        records = SQLRecordManager(place, engine=self._engine)
        records.create_schema()
        store = PGVector(self._embeddings, connection=self._engine, collection_name=place)
        documents = [Document(page_content=text, metadata={"source": source}) for text in texts]
        found: dict[str, int] = index(
            documents,
            records,
            store,
            cleanup=cleanup,
            source_id_key="source",
            batch_size=batch,
            key_encoder="sha256",
        )
        return found


def main(uri: str, name: str, seconds: str) -> None:
    """Say which versions these are, then answer until the input ends."""
    side = Side(uri, name, float(seconds))
    print(json.dumps({"versions": {package: version(package) for package in PACKAGES}}), flush=True)
    for line in sys.stdin:
        print(json.dumps(side.answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
