"""The SQL on a table that was there before us, composed from its mapping and its shape."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from custody_sync.adapters._pgvector_catalog import Relation
from custody_sync.adapters._pgvector_distances import Measure
from custody_sync.adapters._pgvector_shape import Shape
from custody_sync.adapters._pgvector_sql import READABLE, SAME, Statements, filled
from custody_sync.adapters._pgvector_table import ExistingTable
from custody_sync.adapters._pgvector_vectors import VectorType
from custody_sync.adapters._shared import vendor
from custody_sync.model import SOURCE

# What an entry is read from, in the order in which `MappedTable.entry` takes it.
_READ = (
    "{id}::text, {fact_id}, {ledger_id}, {space}, {stored_at}, {created_at}, "
    "{source}, {custody}, {scope}::text"
)
_TEMPLATES = replace(
    Statements(),
    **dict.fromkeys(
        ("create_table", "create_fact_id_index", "create_space_index", "create_embedding_index"), ""
    ),
    # Each put is composed for the columns that it fills.
    put="",
    copy="",
    # An id alone names no entry of ours: the database may give one again, to a row of somebody else.
    relabel="update {table} set {relabelled} where {here} and {same} and {free} returning {id}",
    why="""
        select case when {has_label} then 'labelled' when {text} is distinct from %(was)s then 'text_changed'
        else 'keys_of_the_label_are_taken' end from {table} where {here}""",
    delete="delete from {table} where {here} and {same}",
    # What somebody has locked is left for each caller to delete alone.
    delete_free="""
        delete from {table} where {id} = any(array(
            select t.{id} from {table} t
            join unnest(
                %(keys)s::{id_type}[], %(scopes)s::{scope_type}[], %(of)s::text[], %(owners)s::text[]
            ) w ("w.id", "w.scope", "w.of", "w.owner") on t.{id} = w."w.id"
            where {there} and {same_there} for update of t skip locked
        )) returning {id}::text""",
    find="select {read}, {text} from {table} where {of_facts}",
    # Qualified, since a bare name in ORDER BY means the column of the answer, which is text.
    first_page="select {read} from {table} as mine order by mine.{id} limit %(limit)s",
    next_page="""
        select {read} from {table} as mine
        where mine.{id} > %(after)s::{id_type} order by mine.{id} limit %(limit)s""",
    part_page="""
        select {read} from {table} as mine
        where (%(after)s::text is null or mine.{id} > %(after)s::{id_type})
        and mine.{id} <= %(until)s::{id_type} order by mine.{id} limit %(limit)s""",
    first_texts="select {read}, {text} from {table} as mine order by mine.{id} limit %(limit)s",
    next_texts="""
        select {read}, {text} from {table} as mine
        where mine.{id} > %(after)s::{id_type} order by mine.{id} limit %(limit)s""",
    held="""
        select {owned} from {table} where {id} = any(%(keys)s::{id_type}[])
        union all select {owned} from {table} where {of_facts}""",
    is_near="""
        select coalesce(bool_or({id} = %(key)s::{id_type}), false) from {table}
        where {near} or {text} = %(text)s""",
    nearest="""
        select {read}, {text}, {score} from {table}
        where {fits} and {in_scopes} order by {distance} limit %(k)s""",
    nearest_in="""
        select {read}, {text}, {score} from {table}
        where {fits} and {in_scopes} and {is_ours} and {space} = any(%(spaces)s)
        order by {distance} limit %(k)s""",
)


def compose_mapped(
    relation: Relation,
    existing: ExistingTable,
    shape: Shape,
    dimensions: int,
    kind: VectorType,
    measure: Measure,
) -> Statements:
    """Return every statement on such a table, but for the puts."""
    sql = vendor("psycopg.sql", feature="PgVectorStore", extra="pgvector")
    parts = _expressions(sql, existing, shape)
    embedding, vector = sql.Identifier(existing.embedding), sql.SQL(f"%(vector)s::{kind}")
    distance = sql.SQL(f"{{}} {measure.operator} {{}}").format(embedding, vector)
    cosine = sql.SQL("{} <=> {} < 1e-6").format(embedding, vector)
    is_sized = sql.SQL("{} is not null").format(embedding)
    if not shape.is_sized:
        # Vectors of another length may lie beside ours, and to compare with one is an error.
        is_sized = sql.SQL("vector_dims({}) = {}").format(embedding, sql.Literal(dimensions))
        cosine = sql.SQL("(case when {} then {} else false end)").format(is_sized, cosine)
    names = parts | {
        "table": sql.SQL(relation.quoted),
        "kind": sql.SQL(kind),
        "ops": sql.SQL(measure.ops(kind)),
        "dimensions": sql.Literal(dimensions),
        "read": sql.SQL(_READ).format(**parts),
        "distance": distance,
        "score": sql.SQL(measure.score).format(distance),
        "near": cosine,
        "fits": is_sized,
        "columns": sql.SQL(""),
        "listed": sql.SQL(""),
        "fact_id_index": sql.SQL(""),
        "space_index": sql.SQL(""),
        "embedding_index": sql.SQL(""),
    }
    return filled(_TEMPLATES, names)


def read_of(existing: ExistingTable, shape: Shape) -> Any:
    """Return the columns that an entry is read from."""
    sql = vendor("psycopg.sql", feature="PgVectorStore", extra="pgvector")
    return sql.SQL(_READ).format(**_expressions(sql, existing, shape))


def _expressions(sql: Any, existing: ExistingTable, shape: Shape) -> dict[str, Any]:
    """Return what each part of an entry is in SQL."""
    id_type, scope_type = sql.SQL(shape.id_type), sql.SQL(shape.scope_type)
    parts: dict[str, Any] = _in_json(sql, existing) if existing.label else _in_columns(sql, existing, shape)
    parts |= {"id": sql.Identifier(existing.id), "id_type": id_type, "scope_type": scope_type}
    parts["created_at"] = sql.SQL("null::timestamptz")
    if existing.created_at is not None:
        parts["created_at"] = _readable(sql, existing.created_at)
    if existing.text is not None:
        parts["text"] = sql.Identifier(existing.text)
    parts |= {"scope": sql.SQL("null"), "in_scopes": sql.SQL("true"), "there": sql.SQL("true")}
    here = "{id} = %(key)s::{id_type}"
    if existing.scope_column is not None:
        parts["scope"] = sql.Identifier(existing.scope_column)
        parts["there"] = sql.SQL('(w."w.scope" is null or t.{scope} = w."w.scope")').format(**parts)
        among = "(%(scopes)s::{scope_type}[] is null or {scope} = any(%(scopes)s::{scope_type}[]))"
        parts["in_scopes"] = sql.SQL(among).format(**parts)
        here += " and (%(scope)s::{scope_type} is null or {scope} = %(scope)s::{scope_type})"
    parts["has_label"] = sql.SQL("coalesce({is_ours}, false)").format(**parts)
    of_label = "{is_ours} and {fact_id} = %(of)s and {ledger_id} = coalesce(%(owner)s, {ledger_id})"
    parts["of_label"] = sql.SQL(of_label).format(**parts)
    owned = "{id}::text, {has_label}, {fact_id}, {ledger_id}"
    same_there = '{is_ours} and {fact_id} = w."w.of" and {ledger_id} = coalesce(w."w.owner", {ledger_id})'
    composed = {"here": here, "owned": owned, "same": SAME, "same_there": same_there}
    return parts | {name: sql.SQL(text).format(**parts) for name, text in composed.items()}


def _in_json(sql: Any, existing: ExistingTable) -> dict[str, Any]:
    label = sql.Identifier(existing.label)

    def key(name: str) -> Any:
        return sql.SQL("({} ->> {})").format(label, sql.Literal(name))

    # By containment, which a GIN index of either class answers; LangChain's table has one.
    many = "{} @> any(array(select jsonb_build_object('fact_id', f) from unnest(%(fact_ids)s::text[]) f))"
    return {
        **{name: key(name) for name in ("fact_id", "ledger_id", "space", "stored_at", "source", "custody")},
        "text": key(existing.text_key) if existing.text_key is not None else None,
        "of_facts": sql.SQL(many).format(label),
        "is_ours": sql.SQL("{} = {}").format(key("source"), sql.Literal(SOURCE)),
        # Beside no other label what it would overwrite is somebody else's.
        "free": sql.SQL(
            "(%(of)s::text is not null or {0} is null or (jsonb_typeof({0}) = 'object'"
            " and not jsonb_exists_any({0}, array(select jsonb_object_keys(%(label)s::jsonb)))))"
        ).format(label),
        "relabelled": sql.SQL("{0} = coalesce({0}, '{{}}') || %(label)s::jsonb").format(label),
    }


def _in_columns(sql: Any, existing: ExistingTable, shape: Shape) -> dict[str, Any]:
    columns = dict(existing.label_columns or {})
    parts = {name: sql.Identifier(column) for name, column in columns.items()}
    if shape.columns[columns["stored_at"]].type.startswith("timestamp"):
        parts["stored_at"] = _readable(sql, columns["stored_at"])
    changes = [sql.SQL("{} = {}").format(sql.Identifier(c), sql.Placeholder(k)) for k, c in columns.items()]
    free = [
        sql.SQL("({0} is null or {0}::text = {1}::text)").format(sql.Identifier(c), sql.Placeholder(k))
        for k, c in columns.items()
    ]
    fact_id = parts["fact_id"]
    ours = sql.SQL("{} is not null and {} is not null").format(fact_id, parts["ledger_id"])
    if "source" in parts:
        ours += sql.SQL(" and {} = {}").format(parts["source"], sql.Literal(SOURCE))
    return {"source": sql.SQL("null")} | {
        **parts,
        "of_facts": sql.SQL("{} = any(%(fact_ids)s)").format(fact_id),
        "is_ours": sql.SQL("({})").format(ours),
        "free": sql.SQL("(%(of)s::text is not null or ({}))").format(sql.SQL(" and ").join(free)),
        "relabelled": sql.SQL(", ").join(changes),
    }


def _readable(sql: Any, column: str) -> Any:
    return sql.SQL(READABLE).format(sql.Identifier(column))
