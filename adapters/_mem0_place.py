"""Which project or collection a client reaches, and whether it is the one that holds the ledger's entries.

To the key of another project, and in another folder under the same store name, everything looks gone.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from custody_sync.adapters._scopes import LooseNotes
from custody_sync.errors import InvalidStore, NoProof, StoreRefused
from custody_sync.ports import Notebook

_KEY = "place"
_CAUSE = "AnotherPlace"
_UNNAMED = "its client names no project; pass place='…', any name that says which one it is"
_ELSEWHERE = (
    "it is {here}, and the ledger's entries are in {noted}; use a client of that one, or pass "
    "place={noted!r} if they were moved here"
)
# What mem0ai 2.2.1 calls an address in the settings of its vector stores.
_ADDRESSES = (
    *("connection_string", "cluster_url", "endpoint", "mongo_uri", "redis_url", "uri", "url", "valkey_url"),
    *("vector_search_api_endpoint", "workspace_url"),
)
_NAMES = (
    *("host", "port", "service_name", "tenant", "project_id", "region", "catalog", "schema", "keyspace"),
    *("database", "database_name", "db_name", "dbname", "namespace", "vector_bucket_name", "index_id"),
)
_DSN = re.compile(r"\b(host|port|dbname)\s*=\s*('[^']*'|\S+)")


class Place:
    """What the ledger noted of where this store's entries are, against what the client reaches.

    Args:
        store: The store's name, for errors.
        here: What the client reaches; None if it does not say.
    """

    def __init__(self, store: str, here: str | None) -> None:
        self._store = store
        self._here = here
        self._notes: Notebook = LooseNotes()

    def remember_in(self, notebook: Notebook) -> None:
        """Note and look up in this notebook from now on."""
        self._notes = notebook

    async def enter(self) -> None:
        """Note the place before a put; the first one noted is the one.

        Raises:
            InvalidStore: the ledger's entries are elsewhere, or the client does not say where it is.
        """
        if self._here is None:
            raise InvalidStore(store=self._store, problem=_UNNAMED)
        self._compare(await self._notes.claim(_KEY, self._here))

    async def check_listing(self) -> None:
        """Raise `InvalidStore` if the ledger's entries are elsewhere."""
        self._compare(await self._notes.get(_KEY))

    async def check(self, operation: str) -> None:
        """Raise `StoreRefused` if the ledger's entries are elsewhere."""
        if await self._notes.get(_KEY) not in (None, self._here):
            raise StoreRefused(store=self._store, operation=operation, cause=_CAUSE)

    async def saw_ours(self) -> None:
        """Note the place, since an entry of the ledger was just seen in it."""
        if self._here is not None:
            await self._notes.claim(_KEY, self._here)

    async def prove(self, *, seen: bool = False) -> None:
        """Raise `NoProof` unless this is known to be the place: elsewhere everything looks gone.

        Where no place is noted, what is seen is there all the same.
        """
        noted = await self._notes.get(_KEY)
        if noted is None and seen:
            return
        if noted is None or noted != self._here:
            cause = _CAUSE if noted is not None and self._here is not None else "PlaceUnknown"
            raise NoProof(store=self._store, operation="verify_deleted", cause=cause)

    def _compare(self, noted: str | None) -> None:
        if noted not in (None, self._here):
            problem = _ELSEWHERE.format(here=self._here or "a project without a name", noted=noted)
            raise InvalidStore(store=self._store, problem=problem)


def project_of(client: Any) -> str | None:
    """Return the organisation and project of a client's key, as the service told its constructor.

    `MemoryClient` and `AsyncMemoryClient` keep what `GET /v1/ping/` answered (mem0ai 2.2.1).
    """
    org, project = getattr(client, "org_id", None), getattr(client, "project_id", None)
    return f"{org}/{project}" if isinstance(org, str) and isinstance(project, str) else None


def collection_of(memory: Any) -> str:
    """Return the vector store's kind, address and collection, without what it logs in with.

    The embedding model is no part of it: another one finds worse, in the same rows.
    """
    store = memory.vector_store
    kind = type(store).__module__.rpartition(".")[2]
    settings = getattr(getattr(getattr(memory, "config", None), "vector_store", None), "config", None)
    parts = _qdrant(store) if kind == "qdrant" else _parts(store, settings)
    collection = getattr(store, "collection_name", None) or getattr(settings, "collection_name", None)
    return " ".join(dict.fromkeys([kind, *parts, str(collection or "")])).strip()


def _qdrant(store: Any) -> list[str]:
    client = getattr(getattr(store, "client", None), "_client", None)
    location = getattr(client, "location", None)
    if location is not None:
        return [str(location) if location == ":memory:" else str(Path(location).resolve())]
    return [_bare(str(getattr(client, "rest_uri", "")))]


def _parts(store: Any, settings: Any) -> list[str]:
    pool = getattr(getattr(store, "connection_pool", None), "conninfo", None)
    addresses = [pool] if pool else [getattr(settings, name, None) for name in _ADDRESSES]
    names = [] if pool else [getattr(settings, name, None) for name in _NAMES]
    path = getattr(store, "path", None) or getattr(settings, "path", None)
    found = [_bare(each) for each in addresses if isinstance(each, str) and each]
    found += [str(each) for each in names if isinstance(each, str | int) and each]
    return [*found, str(Path(path).resolve())] if isinstance(path, str) and path else found


def _bare(address: str) -> str:
    """Return an address without user, password and options."""
    if "://" not in address:
        return " ".join(value for _, value in _DSN.findall(address)) if "=" in address else address
    parts = urlsplit(address)
    return f"{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/")


__all__ = ["Place", "collection_of", "project_of"]
