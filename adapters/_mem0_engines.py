"""What differs between the vector stores under open source Mem0, and the lock that a local Qdrant needs."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

_POSTGRES_LEAVES = (
    "Postgres keeps the deleted rows of Mem0's collection on disk until VACUUM, and their bytes until free "
    "space is used again or VACUUM FULL; write-ahead log, replicas and backups follow their own retention."
)
_LEAVES = {
    "chroma": "Chroma's own file keeps the deleted text in its journal and full-text pages until the file is "
    "rewritten.",
    "faiss": "",
    "pgvector": _POSTGRES_LEAVES,
    "supabase": _POSTGRES_LEAVES,
}
_UNKNOWN_LEAVES = "What the vector store {kind} leaves on disk after a deletion is not known here."
_SERVER_LEAVES = (
    "A Qdrant server keeps deleted points in its segments until its optimizer rewrites them, and in its "
    "snapshots."
)
_HISTORY_LEAVES = (
    "Mem0's history database keeps the text of what was added and deleted; give Mem0 "
    "history_db_path=':memory:', or delete its rows and run VACUUM on it."
)
_ENTITY_LEAVES = (
    "Names that inference drew from the same words, in calls other than custody's, stay in Mem0's "
    "collection of entities."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """How one vector store has to be treated."""

    kind: str
    """The module of its adapter in mem0: qdrant, chroma, faiss, pgvector, …"""
    pages: bool
    """Whether it can be read page by page along a key."""
    enumerates: bool
    """Whether a wildcard in a filter lists what others wrote too."""
    filters_first: bool
    """Whether a filter comes before the cut of a search, so that a short answer is a whole one."""
    looks_at_all: bool
    """Whether a search that asks for as many rows as there are looks at every one of them."""
    makes_its_table: bool
    """Whether its table is made by the first call, which fails for all but one of several at once."""
    leaves: tuple[str, ...]
    lock: threading.Lock | None
    """Held by whoever calls a Qdrant that runs inside this process."""


_LOCKS: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()
_LOCKS_LOCK = threading.Lock()


def engine_of(memory: Any) -> Engine:
    """Recognise the vector store by the module of its class, so that nothing has to be imported for it."""
    store = memory.vector_store
    kind = type(store).__module__.rpartition(".")[2]
    home = _home_in_this_process(store, kind)
    # With an index pgvector picks its candidates first and filters them afterwards.
    indexed = bool(getattr(store, "use_hnsw", False) or getattr(store, "use_diskann", False))
    return Engine(
        kind=kind,
        pages=kind == "qdrant",
        enumerates=kind in ("qdrant", "chroma", "pgvector"),
        filters_first=kind in ("qdrant", "chroma") or (kind == "pgvector" and not indexed),
        looks_at_all=kind == "faiss",
        makes_its_table=kind == "pgvector",
        leaves=_leaves(memory, kind, is_local=home is not None),
        lock=_lock_of(home) if home is not None else None,
    )


def _home_in_this_process(store: Any, kind: str) -> str | None:
    """Return where a vector store lives that runs inside this process; None for a server.

    Qdrant's local mode loses acknowledged writes when two threads write at once
    (https://github.com/qdrant/qdrant-client/issues/1193), and FAISS rewrites its whole file each time.
    """
    if kind == "faiss":
        return f"faiss:{getattr(store, 'path', None) or id(store)}"
    client = getattr(getattr(store, "client", None), "_client", None)
    if kind != "qdrant" or not type(client).__module__.startswith("qdrant_client.local"):
        return None
    location = str(getattr(client, "location", ":memory:"))
    return f"qdrant:{id(client) if location == ':memory:' else Path(location).resolve()}"


def _lock_of(home: str) -> threading.Lock:
    """Return the one lock of a place, which lasts as long as somebody holds on to it."""
    with _LOCKS_LOCK:
        lock = _LOCKS.get(home)
        if lock is None:
            lock = _LOCKS[home] = threading.Lock()
        return lock


def _leaves(memory: Any, kind: str, *, is_local: bool) -> tuple[str, ...]:
    config = getattr(memory, "config", None)
    in_memory = getattr(config, "history_db_path", None) == ":memory:"
    if kind == "qdrant":
        found = "" if is_local else _SERVER_LEAVES
    else:
        found = _LEAVES.get(kind, _UNKNOWN_LEAVES.format(kind=kind))
    return tuple(filter(None, (found, "" if in_memory else _HISTORY_LEAVES, _ENTITY_LEAVES)))


__all__ = ["Engine", "engine_of"]
