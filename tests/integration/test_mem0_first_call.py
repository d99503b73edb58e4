"""Mem0's library makes its table in Postgres at the first call, and the first calls come together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fix_mem0 import DIMENSIONS, close_memory, open_memory

from custody_sync.adapters.mem0 import Mem0Store
from custody_sync.testing import StoreHooks
from custody_sync.testing.contract import Case


@pytest.fixture
def memory(mem0: Any, tmp_path: Path, database_uri: str) -> Iterator[Any]:
    """Yield a `Memory` on an empty database."""
    table = {"collection_name": "custody", "embedding_model_dims": DIMENSIONS, "hnsw": False}
    settings = {"provider": "pgvector", "config": table | {"connection_string": database_uri}}
    memory = open_memory(mem0.Memory, tmp_path, vector_store=settings)
    yield memory
    memory.vector_store.connection_pool.close()
    close_memory(memory)


async def test_first_puts_come_together(memory: Any) -> None:
    """Several first puts into an empty Postgres are all held, though mem0 makes its table without a lock."""
    store = Mem0Store(memory)
    case = Case("first", store, StoreHooks())
    puts = await asyncio.gather(*(case.put() for _ in range(8)))
    listed = {entry.external_id async for entry in store.list_entries()}
    assert listed == {external_id for put in puts for external_id in put.ids}
