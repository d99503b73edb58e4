"""What LangGraph's own verbs cannot do, as statements on the tables of its SQLite and Postgres stores.

A label is changed in one statement, because an item that is read and put again would come back to
life where it was deleted in between. Tables and columns as langgraph-checkpoint-sqlite 3.1 and
langgraph-checkpoint-postgres 3.2 make them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

# The item, its vectors and its dates of making and expiry stay; only keys of the value are replaced.
_PATCH_SQLITE = """
    update store set value = cast(json_patch(cast(value as text), ?) as blob), updated_at = CURRENT_TIMESTAMP
    where prefix = ? and key = ?
"""
_PATCH_POSTGRES = """
    update store set value = value || %s::jsonb, updated_at = CURRENT_TIMESTAMP
    where prefix = %s and key = %s returning key
"""
# For a role that a policy does not bind (a superuser, BYPASSRLS, an owner without FORCE) this is false.
_IS_FILTERED = """
    select coalesce(bool_or(row_security_active(t)), false) as filtered
    from unnest(array[to_regclass('store')::oid, to_regclass('store_vectors')::oid]) t where t is not null
"""
_ORPHANED_VECTOR = """
    delete from store_vectors where prefix = ? and key = ?
    and not exists (select 1 from store s where s.prefix = store_vectors.prefix and s.key = store_vectors.key)
"""


def drop_vectors(store: Any, namespace: Sequence[str], key: str) -> None:
    """Delete the vectors that `SqliteStore` leaves behind a deleted item (langgraph#8757)."""
    with store.lock:
        store.conn.execute(_ORPHANED_VECTOR, (_prefix(namespace), key))
        store.conn.commit()


async def adrop_vectors(store: Any, namespace: Sequence[str], key: str) -> None:
    """Delete the vectors that `AsyncSqliteStore` leaves behind a deleted item."""
    async with store.lock:
        await store.conn.execute(_ORPHANED_VECTOR, (_prefix(namespace), key))
        await store.conn.commit()


def patch_sqlite(store: Any, namespace: Sequence[str], key: str, keys: Mapping[str, Any]) -> bool:
    """Replace keys of an item of `SqliteStore`; False if it is not there."""
    with store.lock:
        cursor = store.conn.execute(_PATCH_SQLITE, (json.dumps(keys), _prefix(namespace), key))
        store.conn.commit()
        return bool(cursor.rowcount)


async def apatch_sqlite(store: Any, namespace: Sequence[str], key: str, keys: Mapping[str, Any]) -> bool:
    """Replace keys of an item of `AsyncSqliteStore`; False if it is not there."""
    async with store.lock:
        cursor = await store.conn.execute(_PATCH_SQLITE, (json.dumps(keys), _prefix(namespace), key))
        await store.conn.commit()
        return bool(cursor.rowcount)


def patch_postgres(store: Any, namespace: Sequence[str], key: str, keys: Mapping[str, Any]) -> bool:
    """Replace keys of an item of `PostgresStore`; False if it is not there."""
    # The store's own cursor, since it alone knows whether it has a pool, a pipeline or a lock.
    with store._cursor(pipeline=True) as cursor:
        cursor.execute(_PATCH_POSTGRES, (json.dumps(keys), _prefix(namespace), key))
        return cursor.fetchone() is not None


async def apatch_postgres(store: Any, namespace: Sequence[str], key: str, keys: Mapping[str, Any]) -> bool:
    """Replace keys of an item of `AsyncPostgresStore`; False if it is not there."""
    async with store._cursor(pipeline=True) as cursor:
        await cursor.execute(_PATCH_POSTGRES, (json.dumps(keys), _prefix(namespace), key))
        return await cursor.fetchone() is not None


def is_filtered(store: Any) -> bool:
    """Tell whether row-level security may hide items from the session of `PostgresStore`."""
    # Only so does the store's cursor take the lock of a single connection that other threads use as well.
    with store._cursor(pipeline=True) as cursor:
        cursor.execute(_IS_FILTERED)
        return bool(cursor.fetchone()["filtered"])


async def ais_filtered(store: Any) -> bool:
    """Tell whether row-level security may hide items from the session of `AsyncPostgresStore`."""
    async with store._cursor(pipeline=True) as cursor:
        await cursor.execute(_IS_FILTERED)
        return bool((await cursor.fetchone())["filtered"])


async def apatch_memory(store: Any, namespace: Sequence[str], key: str, keys: Mapping[str, Any]) -> bool:
    """Replace keys of an item of `InMemoryStore`; False if it is not there.

    Nothing is awaited between reading and putting, so nothing of this loop comes between; without
    `index` the vector stays (langgraph-checkpoint 4.3: vectors are only written for indexed puts).
    """
    item = store.get(tuple(namespace), key)
    if item is None:
        return False
    store.put(tuple(namespace), key, {**item.value, **keys}, index=False)
    return True


def _prefix(namespace: Sequence[str]) -> str:
    return ".".join(namespace)
