"""The synchronous coordinator over a pool that the store opened in the coordinator's own loop."""

from __future__ import annotations

from pathlib import Path

from psycopg_pool import AsyncConnectionPool

from custody_sync import Coordinator
from custody_sync.adapters.pgvector import PgVectorStore
from custody_sync.testing.embedding import WordEmbedder


def test_closing_lets_go_of_a_pool_that_the_store_opened(tmp_path: Path, database_uri: str) -> None:
    """A plain script needs no loop of its own to end cleanly: warnings here would be errors."""
    embedder = WordEmbedder(8)
    pool: AsyncConnectionPool = AsyncConnectionPool(database_uri, open=False, min_size=1)
    store = PgVectorStore(pool, table="memories", dimensions=8, embed=embedder)
    with Coordinator(f"sqlite:///{tmp_path / 'custody.db'}", create=True, stores=[store]) as custody:
        written = custody.write(value="black coffee", space="user:42", actor="agent")
        assert custody.spaces() == ["user:42"]
        assert [p.store for p in custody.placements(written.fact.fact_id)] == ["pgvector"]
        assert custody.forget(written.fact.fact_id, actor="dpo", reason="asked").complete
        assert list(custody.pending()) == []
    assert pool.closed
