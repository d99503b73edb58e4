"""What the database itself says of a table: its columns, its unique keys, its vector indexes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from custody_sync.adapters._pgvector_distances import Measure
from custody_sync.adapters._pgvector_vectors import VectorType
from custody_sync.errors import InvalidInput

if TYPE_CHECKING:
    from psycopg import AsyncCursor

_KIND = b"select relkind::text from pg_class where oid = to_regclass(%s)"
_COLUMNS = b"""
    select attname, format_type(atttypid, atttypmod), attnotnull, atthasdef or attidentity <> '',
        attgenerated <> '' or attidentity = 'a'
    from pg_attribute where attrelid = to_regclass(%s) and attnum > 0 and not attisdropped"""
_UNIQUE = b"""
    select a.attname from pg_index i join pg_attribute a on a.attrelid = i.indrelid and a.attnum = i.indkey[0]
    where i.indrelid = to_regclass(%s) and i.indisunique and i.indisvalid and i.indimmediate
        and i.indnkeyatts = 1 and i.indpred is null and i.indexprs is null"""
_NEAREST = b"""
    select o.opcname from pg_index i join pg_class c on c.oid = i.indexrelid join pg_am m on m.oid = c.relam
        join pg_opclass o on o.oid = i.indclass[0]
        join pg_attribute a on a.attrelid = i.indrelid and a.attnum = i.indkey[0]
    where i.indrelid = to_regclass(%s) and m.amname = 'hnsw' and i.indpred is null and a.attname = %s"""
_DEAD_ROWS = b"select n_dead_tup from pg_stat_user_tables where relid = to_regclass(%s)"


@dataclass(frozen=True, slots=True)
class Relation:
    """A table's name, in a schema or where the search path finds it."""

    schema: str | None
    name: str

    @property
    def quoted(self) -> str:
        """The name as SQL and `to_regclass` read it, which fold an unquoted one to lower case."""
        parts = (self.schema, self.name) if self.schema is not None else (self.name,)
        return ".".join('"' + part.replace('"', '""') + '"' for part in parts)

    def __str__(self) -> str:
        return self.name if self.schema is None else f"{self.schema}.{self.name}"


@dataclass(frozen=True, slots=True)
class Column:
    """One column, as the catalog has it."""

    type: str
    is_required: bool
    """A row without a value for it is refused, since there is no default."""
    has_default: bool
    is_generated: bool
    """The database makes its value and takes none."""


async def columns_of(cursor: AsyncCursor[Any], relation: Relation) -> dict[str, Column]:
    """Return the columns of a relation by name; empty if there is no such relation."""
    await cursor.execute(_COLUMNS, (relation.quoted,))
    return {
        name: Column(kind, not_null and not default and not generated, default, generated)
        for name, kind, not_null, default, generated in await cursor.fetchall()
    }


async def is_table(cursor: AsyncCursor[Any], relation: Relation) -> bool:
    """Tell whether a name leads to a table that rows can be put into, partitioned or not."""
    await cursor.execute(_KIND, (relation.quoted,))
    row = await cursor.fetchone()
    return row is not None and row[0] in ("r", "p")


async def unique_columns(cursor: AsyncCursor[Any], relation: Relation) -> set[str]:
    """Return the columns that by themselves tell rows apart."""
    await cursor.execute(_UNIQUE, (relation.quoted,))
    return {name for (name,) in await cursor.fetchall()}


async def check_index(
    cursor: AsyncCursor[Any],
    relation: Relation,
    column: str,
    kind: VectorType,
    measure: Measure,
    *,
    must_exist: bool,
) -> None:
    """Refuse an HNSW index that this distance could never use: every search would read the whole table.

    Raises:
        InvalidInput: there is one and none fits, or there has to be one and there is not.
    """
    await cursor.execute(_NEAREST, (relation.quoted, column))
    there, wanted = {name for (name,) in await cursor.fetchall()}, measure.ops(kind)
    if wanted in there or not (there or must_exist):
        return
    has = f"an HNSW index for {', '.join(sorted(there))}" if there else "no HNSW index"
    named = Relation(None, column).quoted
    make = f"create index concurrently on {relation.quoted} using hnsw ({named} {wanted})"
    raise InvalidInput(
        field="index", problem=f"{relation} has {has}, the store needs {wanted}; make one: {make}"
    )


def check_vector(columns: Mapping[str, Column], column: str, wanted: str, where: str) -> None:
    """Refuse vectors of another type or length."""
    if columns[column].type not in (wanted, wanted.partition("(")[0]):
        problem = f"{where} holds {columns[column].type}, the store was given {wanted}"
        raise InvalidInput(field="dimensions", problem=problem)


async def dead_rows(cursor: AsyncCursor[Any], relation: Relation) -> int:
    """Return how many deleted rows the statistics still count."""
    await cursor.execute(_DEAD_ROWS, (relation.quoted,))
    row = await cursor.fetchone()
    return int(row[0]) if row is not None and row[0] else 0
