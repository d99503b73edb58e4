"""What differs between LangGraph's stores: threads or a loop, index, dates, what a deletion leaves."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from custody_sync.adapters import _langgraph_direct as direct
from custody_sync.errors import InvalidStore
from custody_sync.model import Capability, Level, Support

_BATCHED = "langgraph.store.base.batch"
_MEMORY = "langgraph.store.memory"
_POSTGRES = "langgraph.store.postgres"
_SQLITE = "langgraph.store.sqlite"

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
    drop_vectors: Callable[[Sequence[str], str], Any] | None
    """Deletes the vectors of a deleted item where the store leaves them (langgraph#8757)."""
    patch: Callable[[Sequence[str], str, Mapping[str, Any], direct.Bare | None], Any] | None
    """Replaces keys of an item and leaves its vector alone, where that can be done in one step."""
    is_filtered: Callable[[], Any] | None
    """Tells whether the store's session may be shown only some of the items, where that can be."""
    refuses_equal_texts: bool
    """True where a batch with one text twice fails, as `InMemoryStore`'s does with an index."""


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
    drop = direct.adrop_vectors if is_batched else direct.drop_vectors
    filtered = direct.ais_filtered if is_batched else direct.is_filtered
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
        patch=_patch(store, is_batched, is_memory, is_sqlite, is_postgres),
        is_filtered=partial(filtered, store) if is_postgres else None,
        refuses_equal_texts=is_memory and bool(index),
    )


def _patch(
    store: object, is_batched: bool, is_memory: bool, is_sqlite: bool, is_postgres: bool
) -> Callable[[Sequence[str], str, Mapping[str, Any], direct.Bare | None], Any] | None:
    if is_memory:
        return partial(direct.apatch_memory, store)
    if is_sqlite:
        return partial(direct.apatch_sqlite if is_batched else direct.patch_sqlite, store)
    if is_postgres:
        return partial(direct.apatch_postgres if is_batched else direct.patch_postgres, store)
    return None


def capabilities_of(backend: Backend) -> Mapping[Capability, Support]:
    """Return what this kind of store cannot do, or not fully, each with its reason."""
    found: dict[Capability, Support] = {}
    if not backend.may_index:
        reason = "the store has no index, so its search returns entries in its own order, not the nearest"
        found[Capability.SEARCH] = Support(Level.PARTIAL, reason)
    if backend.approximate:
        crowded = "nearer entries, deleted or of other spaces, can crowd one out of its approximate index"
        found[Capability.SEARCH] = Support(Level.PARTIAL, crowded)
        reason = "where equal texts crowd its approximate index, only the questions by key and fact id decide"
        found[Capability.VERIFY_DELETED] = Support(Level.PARTIAL, reason)
    if backend.patch is None:
        reason = "it can only put an item again, which would revive one that was deleted meanwhile"
        found[Capability.RELABEL] = Support(Level.NONE, reason)
    return found


def _kind_of_index(index: Mapping[str, Any]) -> str:
    return str((index.get("ann_index_config") or {}).get("kind", "hnsw"))
