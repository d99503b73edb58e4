"""The SQL of the pgvector adapter, composed once per table."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any

from custody_sync.adapters._shared import vendor
from custody_sync.errors import InvalidInput

# Names of indexes are the table's with a suffix, and Postgres cuts a name after 63 bytes.
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,47}\Z")
_COLUMNS = "key, fact_id, ledger_id, space, {stored_at}, {created_at}"
# psycopg cannot read a time outside Python's years, and one such row would end every listing.
_READABLE = "case when {0} > '0002-01-01' and {0} < '9998-12-31' then {0} end"


@dataclass(frozen=True, slots=True)
class Statements:
    """Every statement on one table; the texts are templates until `compose` fills them."""

    lock: Any = "select pg_advisory_xact_lock(hashtextextended('custody-sync pgvector set-up', 0))"
    type_is_there: Any = "select to_regtype('vector') is not null"
    create_type: Any = "create extension if not exists vector"
    relation_is_there: Any = "select to_regclass(%s) is not null"
    columns: Any = """
        select attname, format_type(atttypid, atttypmod) from pg_attribute
        where attrelid = to_regclass(%s) and attnum > 0 and not attisdropped"""
    create_table: Any = """
        create table {table} (
            key text collate "C" primary key,
            fact_id text,
            ledger_id text,
            space text,
            stored_at timestamptz,
            custody text,
            text text,
            embedding vector({dimensions}),
            created_at timestamptz not null default now()
        )"""
    create_fact_id_index: Any = "create index {fact_id_index} on {table} (fact_id)"
    create_space_index: Any = "create index {space_index} on {table} (space)"
    create_embedding_index: Any = (
        "create index {embedding_index} on {table} using hnsw (embedding vector_cosine_ops)"
    )
    put: Any = """
        insert into {table} (key, fact_id, ledger_id, space, stored_at, custody, text, embedding)
        values (
            %(key)s, %(fact_id)s, %(ledger_id)s, %(space)s, %(stored_at)s, %(custody)s, %(text)s, %(vector)s
        )
        on conflict (key) do update set
            fact_id = excluded.fact_id, ledger_id = excluded.ledger_id, space = excluded.space,
            stored_at = excluded.stored_at, custody = excluded.custody, text = excluded.text,
            embedding = excluded.embedding"""
    delete: Any = "delete from {table} where key = %s"
    delete_free: Any = """
        delete from {table} where key = any(
            array(select key from {table} where key = any(%s) for update skip locked)
        ) returning key"""
    find: Any = "select {columns}, text from {table} where fact_id = %s"
    first_page: Any = "select {listed} from {table} order by key limit %s"
    next_page: Any = "select {listed} from {table} where key > %s order by key limit %s"
    keys: Any = """
        select key from {table} where key = %(key)s
        union all select key from {table} where fact_id = %(fact_id)s"""
    keys_of: Any = """
        select key from {table} where key = any(%(keys)s)
        union all select key from {table} where fact_id = any(%(fact_ids)s)"""
    is_near: Any = """
        select coalesce(bool_or(key = %(key)s), false) from {table}
        where embedding <=> %(vector)s::vector < 1e-6 or text = %(text)s"""
    scan_on: Any = "set local hnsw.iterative_scan = strict_order"
    no_index_scan: Any = "set local enable_indexscan = off"
    no_index_at_all: Any = """
        select set_config('enable_indexscan', 'off', true), set_config('enable_indexonlyscan', 'off', true),
            set_config('enable_bitmapscan', 'off', true)"""
    nearest: Any = (
        "select {columns}, text, 1 - (embedding <=> %(vector)s::vector) from {table}"
        " where embedding is not null order by embedding <=> %(vector)s::vector limit %(k)s"
    )
    nearest_in: Any = (
        "select {columns}, text, 1 - (embedding <=> %(vector)s::vector) from {table}"
        " where embedding is not null and space = any(%(spaces)s)"
        " order by embedding <=> %(vector)s::vector limit %(k)s"
    )
    vacuum: Any = "vacuum (index_cleanup on) {table}"
    dead_rows: Any = "select n_dead_tup from pg_stat_user_tables where relid = to_regclass(%s)"


def compose(table: str, dimensions: int) -> Statements:
    """Fill the templates for a checked table name."""
    sql = vendor("psycopg.sql", feature="PgVectorStore", extra="pgvector")
    readable = {column: _READABLE.format(column) for column in ("stored_at", "created_at")}
    # The database's own date stands in for a label's; a listing leaves it out where it is not needed.
    fallback = f"case when ({readable['stored_at']}) is null then {readable['created_at']} end"
    names = {
        "table": sql.Identifier(table),
        "dimensions": sql.Literal(dimensions),
        **{f"{column}_index": sql.Identifier(index_name(table, column)) for column in INDEXED},
        "columns": sql.SQL(_COLUMNS.format(**readable)),
        "listed": sql.SQL(_COLUMNS.format(stored_at=readable["stored_at"], created_at=fallback)),
    }
    templates = Statements()
    return Statements(
        **{
            # As bytes, so that psycopg need not render and parse it again at every call.
            field.name: sql.SQL(getattr(templates, field.name)).format(**names).as_bytes(None)
            for field in fields(Statements)
        }
    )


INDEXED = ("fact_id", "space", "embedding")
COLUMNS = frozenset(
    {"key", "fact_id", "ledger_id", "space", "stored_at", "custody", "text", "embedding", "created_at"}
)


def index_name(table: str, column: str) -> str:
    """Return the name of our index on a column."""
    return f"{table}_{column}_idx"


def quoted(name: str) -> str:
    """Return a checked name as `to_regclass` reads it, which folds an unquoted one to lower case."""
    return f'"{name}"'


def checked_table(table: object) -> str:
    """Refuse a table name that is more than a plain identifier."""
    if not isinstance(table, str) or not _PLAIN.match(table):
        problem = (
            f"{table!r} is not a plain identifier (letters, digits and _, not a digit first, at most 48)"
        )
        raise InvalidInput(field="table", problem=problem)
    return table
