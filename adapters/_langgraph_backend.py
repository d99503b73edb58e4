"""What differs between LangGraph's stores: threads or a loop, index, dates, what a deletion leaves."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from custody_sync.errors import InvalidStore

_BATCHED = "langgraph.store.base.batch"
_MEMORY = "langgraph.store.memory"
_POSTGRES = "langgraph.store.postgres"
_SQLITE = "langgraph.store.sqlite"

_ORPHANED_VECTOR = """
    delete from store_vectors where prefix = ? and key = ?
    and not exists (select 1 from store s where s.prefix = store_vectors.prefix and s.key = store_vectors.key)
"""
_POSTGRES_LEAVES = (
    "Postgres keeps deleted rows of store and store_vectors on disk until VACUUM (INDEX_CLEANUP ON) on both, "
    "and their bytes until free space is used again or VACUUM FULL.",
    "Write-ahead log, replicas and backups of the database follow their own retention.",
)
_SQLITE_LEAVES = (
    "SQLite keeps deleted rows in free pages and in its write-ahead log until VACUUM and a checkpoint, "
    "unless secure_delete was on; copies of the file follow their own retention.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """How one kind of LangGraph store has to be treated."""

    is_known: bool
    """One of LangGraph's own: it answers with as many items as it was asked for."""
    blocking: bool
    home: asyncio.AbstractEventLoop | None
    """The event loop an asynchronous store lives in."""
    may_index: bool
    """False only where the store is known to have no index."""
    nearest_first: bool
    """True where its search is known to show an equal text before any other."""
    approximate: bool
    naive_is_utc: bool
    leaves: tuple[str, ...]
    drop_vectors: Callable[[tuple[str, ...], str], Any] | None
    """Deletes the vectors of a deleted item where the store leaves them (langgraph#8757)."""


def backend_of(store: object, name: str) -> Backend:
    """Recognise a store by the modules of its classes, so that no vendor has to be imported for it."""
    modules = [kind.__module__ for kind in type(store).__mro__]
    is_batched, is_memory = _BATCHED in modules, any(m.startswith(_MEMORY) for m in modules)
    is_sqlite = any(module.startswith(_SQLITE) for module in modules)
    is_postgres = any(module.startswith(_POSTGRES) for module in modules)
    is_known = is_sqlite or is_postgres or is_memory
    config = getattr(store, "index_config", None)
    index: Mapping[str, Any] = config if isinstance(config, Mapping) else {}
    if is_sqlite and index and not hasattr(sqlite3.Connection, "enable_load_extension"):
        problem = "its index needs an sqlite3 module that can load extensions, and this Python's cannot"
        raise InvalidStore(store=name, problem=problem)
    leaves: tuple[str, ...] = (
        f"What {type(store).__name__} leaves on disk after a deletion is not known here.",
    )
    if is_known:
        leaves = _SQLITE_LEAVES if is_sqlite else _POSTGRES_LEAVES if is_postgres else ()
    drop = _drop_async if is_batched else _drop_blocking
    return Backend(
        is_known=is_known,
        blocking=not (is_batched or is_memory),
        home=getattr(store, "_loop", None) if is_batched else None,
        may_index=bool(index) or not is_known,
        nearest_first=is_known and index.get("distance_type", "cosine") == "cosine",
        approximate=is_postgres and bool(index) and _kind_of_index(index) != "flat",
        naive_is_utc=is_sqlite,
        leaves=leaves,
        drop_vectors=partial(drop, store) if is_sqlite and index else None,
    )


def _kind_of_index(index: Mapping[str, Any]) -> str:
    return str((index.get("ann_index_config") or {}).get("kind", "hnsw"))


def _drop_blocking(store: Any, namespace: tuple[str, ...], key: str) -> None:
    with store.lock:
        store.conn.execute(_ORPHANED_VECTOR, (".".join(namespace), key))
        store.conn.commit()


async def _drop_async(store: Any, namespace: tuple[str, ...], key: str) -> None:
    async with store.lock:
        await store.conn.execute(_ORPHANED_VECTOR, (".".join(namespace), key))
        await store.conn.commit()
