"""The SQL of the pgvector adapter, composed once per table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from custody_sync.adapters._pgvector_distances import Measure
from custody_sync.adapters._pgvector_vectors import VectorType
from custody_sync.adapters._shared import vendor
from custody_sync.errors import InvalidInput

# Names of indexes are the table's with a suffix, and Postgres cuts a name after 63 bytes.
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,47}\Z")
_COLUMNS = "key, fact_id, ledger_id, space, {stored_at}, {created_at}"
# psycopg cannot read a time outside Python's years, and one such row would end every listing.
READABLE = "case when {0} > '0002-01-01' and {0} < '9998-12-31' then {0} end"

# The row under an entry's label; without a fact id the one that has none, and its text.
SAME = """
    case when %(of)s::text is not null then {of_label}
    else not {has_label} and {text} = %(was)s end"""


@dataclass(frozen=True, slots=True)
class Statements:
    """Every statement on one table; the texts are templates until `compose` fills them."""

    set_up_lock: Any = "select pg_advisory_xact_lock(hashtextextended('custody-sync pgvector set-up', 0))"
    type_is_there: Any = "select to_regtype('vector') is not null"
    create_type: Any = "create extension if not exists vector"
    relation_is_there: Any = "select to_regclass(%s) is not null"
    create_table: Any = """
        create table {table} (
            key text collate "C" primary key,
            fact_id text,
            ledger_id text,
            space text,
            stored_at timestamptz,
            custody text,
            text text,
            embedding {kind}({dimensions}),
            created_at timestamptz not null default now()
        )"""
    create_fact_id_index: Any = "create index {fact_id_index} on {table} (fact_id)"
    create_space_index: Any = "create index {space_index} on {table} (space)"
    create_embedding_index: Any = "create index {embedding_index} on {table} using hnsw (embedding {ops})"
    put: Any = """
        insert into {table} (key, fact_id, ledger_id, space, stored_at, custody, text, embedding)
        values (
            %(key)s, %(fact_id)s, %(ledger_id)s, %(space)s, %(stored_at)s, %(custody)s, %(text)s, %(vector)s
        )
        on conflict (key) do update set
            fact_id = excluded.fact_id, ledger_id = excluded.ledger_id, space = excluded.space,
            stored_at = excluded.stored_at, custody = excluded.custody, text = excluded.text,
            embedding = excluded.embedding"""
    copy: Any = """
        copy {table} (key, fact_id, ledger_id, space, stored_at, custody, text, embedding)
        from stdin (format binary)"""
    relabel: Any = """
        update {table} set fact_id = %(fact_id)s, ledger_id = %(ledger_id)s, space = %(space)s,
            stored_at = %(stored_at)s, custody = %(custody)s
        where key = %(at)s and {same} returning key"""
    why: Any = """
        select case when {has_label} then 'labelled'
            when text is distinct from %(was)s then 'text_changed' end
        from {table} where key = %(at)s"""
    # An id alone names no entry of ours: the label says whose row it is.
    delete: Any = "delete from {table} where key = %(key)s and {same}"
    delete_free: Any = """
        delete from {table} where key = any(array(
            select t.key from {table} t
            join unnest(%(keys)s::text[], %(of)s::text[], %(owners)s::text[]) w (key, fact_id, owner)
                on t.key = w.key and t.fact_id = w.fact_id and t.ledger_id = coalesce(w.owner, t.ledger_id)
            for update of t skip locked
        )) returning key"""
    find: Any = "select {columns}, text from {table} where fact_id = any(%(fact_ids)s)"
    first_page: Any = "select {listed} from {table} order by key limit %(limit)s"
    next_page: Any = "select {listed} from {table} where key > %(after)s order by key limit %(limit)s"
    part_page: Any = """
        select {listed} from {table}
        where (%(after)s::text is null or key > %(after)s) and key <= %(until)s
        order by key limit %(limit)s"""
    first_texts: Any = "select {listed}, text, {custody} from {table} order by key limit %(limit)s"
    next_texts: Any = (
        "select {listed}, text, {custody} from {table} where key > %(after)s order by key limit %(limit)s"
    )
    held: Any = """
        select {owned} from {table} where key = any(%(keys)s)
        union all select {owned} from {table} where fact_id = any(%(fact_ids)s)"""
    is_near: Any = """
        select coalesce(bool_or(key = %(key)s), false) from {table}
        where embedding <=> %(vector)s::{kind} < 1e-6 or text = %(text)s"""
    scan_on: Any = "set local hnsw.iterative_scan = strict_order"
    # A session that forbids sequential scans, as people do to see an index used, would else go on using it.
    no_index_scan: Any = """
        select set_config('enable_indexscan', 'off', true), set_config('enable_seqscan', 'on', true),
            set_config('enable_sort', 'on', true)"""
    no_index_at_all: Any = """
        select set_config('enable_indexscan', 'off', true), set_config('enable_indexonlyscan', 'off', true),
            set_config('enable_bitmapscan', 'off', true), set_config('enable_seqscan', 'on', true)"""
    nearest: Any = (
        "select {columns}, text, {score} from {table}"
        " where embedding is not null order by {distance} limit %(k)s"
    )
    nearest_in: Any = (
        "select {columns}, text, {score} from {table}"
        " where embedding is not null and space = any(%(spaces)s)"
        " order by {distance} limit %(k)s"
    )
    vacuum: Any = "vacuum (index_cleanup on) {table}"


def compose(table: str, dimensions: int, kind: VectorType, measure: Measure) -> Statements:
    """Fill the templates for a checked table name."""
    sql = vendor("psycopg.sql", feature="PgVectorStore", extra="pgvector")
    readable = {column: READABLE.format(column) for column in ("stored_at", "created_at")}
    # The database's own date stands in for a label's; a listing leaves it out where it is not needed.
    fallback = f"case when ({readable['stored_at']}) is null then {readable['created_at']} end"
    distance = f"embedding {measure.operator} %(vector)s::{kind}"
    has_label = sql.SQL("(fact_id is not null and ledger_id is not null)")
    names = {
        "has_label": has_label,
        "same": sql.SQL(SAME).format(
            has_label=has_label,
            text=sql.SQL("text"),
            of_label=sql.SQL("fact_id = %(of)s and ledger_id = coalesce(%(owner)s, ledger_id)"),
        ),
        "owned": sql.SQL("key, fact_id is not null and ledger_id is not null, fact_id, ledger_id"),
        "kind": sql.SQL(kind),
        "ops": sql.SQL(measure.ops(kind)),
        "distance": sql.SQL(distance),
        "score": sql.SQL(measure.score.format(distance)),
        "table": sql.Identifier(table),
        "dimensions": sql.Literal(dimensions),
        **{f"{column}_index": sql.Identifier(index_name(table, column)) for column in INDEXED},
        "custody": sql.SQL("coalesce(custody, '')"),
        "columns": sql.SQL(_COLUMNS.format(**readable)),
        "listed": sql.SQL(_COLUMNS.format(stored_at=readable["stored_at"], created_at=fallback)),
    }
    return filled(Statements(), names)


def filled(templates: Statements, names: Mapping[str, Any]) -> Statements:
    """Fill templates, as bytes, so that psycopg need not render and parse them again at every call."""
    sql = vendor("psycopg.sql", feature="PgVectorStore", extra="pgvector")
    return Statements(
        **{
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


def checked_table(table: object) -> str:
    """Refuse a table name that is more than a plain identifier."""
    if not isinstance(table, str) or not _PLAIN.match(table):
        problem = (
            f"{table!r} is not a plain identifier (letters, digits and _, not a digit first, at most 48)"
        )
        raise InvalidInput(field="table", problem=problem)
    return table
