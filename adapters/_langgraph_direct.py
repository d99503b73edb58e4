"""What LangGraph's own verbs cannot do, as statements on the tables of its SQLite and Postgres stores.

A label is changed in one statement, because an item that is read and put again would come back to
life where it was deleted in between. Tables and columns as langgraph-checkpoint-sqlite 3.1 and
langgraph-checkpoint-postgres 3.2 make them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# The item, its vectors and its dates of making and expiry stay; only keys of the value are replaced.
_PATCH_SQLITE = """
    update store set value = cast(json_patch(cast(value as text), ?) as blob), updated_at = CURRENT_TIMESTAMP
    where prefix = ? and key = ?
"""
# What has no label yet, and still its text; a key of the label that somebody else uses is left alone.
_BARE_SQLITE = """
    and json_extract(cast(value as text), '$.text')
        is coalesce(?, json_extract(cast(value as text), '$.text'))
    and not exists (select 1 from json_each(?) k join json_each(cast(store.value as text)) h on h.key = k.key)
"""
_PATCH_POSTGRES = """
    update store set value = value || %s::jsonb, updated_at = CURRENT_TIMESTAMP
    where prefix = %s and key = %s {bare} returning key
"""
_BARE_POSTGRES = """
    and value ->> 'text' is not distinct from coalesce(%s::text, value ->> 'text')
    and not jsonb_exists_any(value, array(select jsonb_object_keys(%s::jsonb)))
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


@dataclass(frozen=True, slots=True)
class Bare:
    """Says of an item that it must have no label yet and, if `text` is given, still that text."""

    text: str | None


def patch_sqlite(
    store: Any, namespace: Sequence[str], key: str, keys: Mapping[str, Any], bare: Bare | None
) -> bool:
    """Replace keys of an item of `SqliteStore`; False if it is not there, or not as it has to be."""
    with store.lock:
        cursor = store.conn.execute(*_sqlite(namespace, key, keys, bare))
        store.conn.commit()
        return bool(cursor.rowcount)


async def apatch_sqlite(
    store: Any, namespace: Sequence[str], key: str, keys: Mapping[str, Any], bare: Bare | None
) -> bool:
    """Replace keys of an item of `AsyncSqliteStore`; False if it is not there, or not as it has to be."""
    async with store.lock:
        cursor = await store.conn.execute(*_sqlite(namespace, key, keys, bare))
        await store.conn.commit()
        return bool(cursor.rowcount)


def _sqlite(
    namespace: Sequence[str], key: str, keys: Mapping[str, Any], bare: Bare | None
) -> tuple[str, tuple[Any, ...]]:
    patch = json.dumps(keys)
    if bare is None:
        return _PATCH_SQLITE, (patch, _prefix(namespace), key)
    return _PATCH_SQLITE + _BARE_SQLITE, (patch, _prefix(namespace), key, bare.text, patch)


def patch_postgres(
    store: Any, namespace: Sequence[str], key: str, keys: Mapping[str, Any], bare: Bare | None
) -> bool:
    """Replace keys of an item of `PostgresStore`; False if it is not there, or not as it has to be."""
    # The store's own cursor, since it alone knows whether it has a pool, a pipeline or a lock.
    with store._cursor(pipeline=True) as cursor:
        cursor.execute(*_postgres(namespace, key, keys, bare))
        return cursor.fetchone() is not None


async def apatch_postgres(
    store: Any, namespace: Sequence[str], key: str, keys: Mapping[str, Any], bare: Bare | None
) -> bool:
    """Replace keys of an item of `AsyncPostgresStore`; False if it is not there, or not as it has to be."""
    async with store._cursor(pipeline=True) as cursor:
        await cursor.execute(*_postgres(namespace, key, keys, bare))
        return await cursor.fetchone() is not None


def _postgres(
    namespace: Sequence[str], key: str, keys: Mapping[str, Any], bare: Bare | None
) -> tuple[str, tuple[Any, ...]]:
    patch = json.dumps(keys)
    if bare is None:
        return _PATCH_POSTGRES.format(bare=""), (patch, _prefix(namespace), key)
    return _PATCH_POSTGRES.format(bare=_BARE_POSTGRES), (patch, _prefix(namespace), key, bare.text, patch)


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


async def apatch_memory(
    store: Any, namespace: Sequence[str], key: str, keys: Mapping[str, Any], bare: Bare | None
) -> bool:
    """Replace keys of an item of `InMemoryStore`; False if it is not there, or not as it has to be.

    Nothing is awaited between reading and putting, so nothing of this loop comes between; without
    `index` the vector stays (langgraph-checkpoint 4.3: vectors are only written for indexed puts).
    """
    item = store.get(tuple(namespace), key)
    if item is None:
        return False
    if bare is not None and (bare.text not in (None, item.value.get("text")) or keys.keys() & item.value):
        return False
    store.put(tuple(namespace), key, {**item.value, **keys}, index=False)
    return True


def _prefix(namespace: Sequence[str]) -> str:
    return ".".join(namespace)
