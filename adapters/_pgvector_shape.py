"""Whether a table is what its mapping says, each difference in a sentence that names the column."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from custody_sync.adapters._pgvector_catalog import (
    Column,
    Relation,
    check_vector,
    columns_of,
    is_table,
    unique_columns,
)
from custody_sync.adapters._pgvector_table import ExistingTable
from custody_sync.errors import InvalidInput
from custody_sync.model import Limits

if TYPE_CHECKING:
    from psycopg import AsyncCursor

_TEXTS = ("text", "character varying")
_NUMBERS = {"smallint": 2, "integer": 4, "bigint": 8}
_SCOPES = (*_TEXTS, "uuid", *_NUMBERS)
_TYPES: Mapping[str, tuple[str, ...]] = {
    "id": (*_TEXTS, "uuid", *_NUMBERS),
    "text": _TEXTS,
    "label": ("jsonb",),
    "scope_column": _SCOPES,
    "created_at": ("timestamp with time zone",),
    "label_columns[stored_at]": (*_TEXTS, "timestamp with time zone"),
    "label_columns[v]": (*_TEXTS, *_NUMBERS),
}
_LENGTH = re.compile(r"character varying\((\d+)\)\Z")
# A fact id is a UUID or 64 digits, and a generation follows it.
_LONGEST_KEY = 128


@dataclass(frozen=True, slots=True)
class Shape:
    """A table that was compared with its mapping."""

    columns: Mapping[str, Column]
    id_type: str
    """text, uuid, smallint, integer or bigint."""
    scope_type: str
    is_sized: bool
    """Every vector of the column has the same length, because its type says so."""

    @property
    def gives_ids(self) -> bool:
        """Whether the database makes the ids."""
        return self.id_type in _NUMBERS

    def read_id(self, external_id: str) -> str | None:
        """Return an external id as the column's type writes it; None if no row can have it."""
        if self.id_type == "uuid":
            return (
                external_id
                if re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", external_id)
                else None
            )
        if not self.gives_ids:
            return external_id
        is_number = re.fullmatch(r"0|-?[1-9][0-9]{0,18}", external_id, re.ASCII)
        most = 2 ** (8 * _NUMBERS[self.id_type] - 1)
        return external_id if is_number and -most <= int(external_id) < most else None


async def shape_of(
    cursor: AsyncCursor[Any], relation: Relation, existing: ExistingTable, vector: str, limits: Limits
) -> Shape:
    """Compare a table with its mapping.

    Raises:
        InvalidInput: it is not there, or a column is missing, of the wrong type or not unique.
    """
    if not await is_table(cursor, relation):
        raise InvalidInput(field="table", problem=f"there is no table {relation}")
    columns = await columns_of(cursor, relation)
    _check_named(relation, existing, columns)
    check_vector(columns, existing.embedding, vector, f"{relation}.{existing.embedding}")
    if existing.id not in await unique_columns(cursor, relation):
        raise _invalid(f"{relation}.{existing.id} (id) has no unique index of its own, so it names no row")
    shape = Shape(
        columns,
        _plain(columns[existing.id].type),
        _plain(columns[existing.scope_column].type) if existing.scope_column else "text",
        columns[existing.embedding].type == vector,
    )
    _check_id(relation, existing, shape)
    _check_length(relation, existing, shape, limits)
    named = set(existing.columns.values())
    missing = sorted(name for name, column in columns.items() if column.is_required and name not in named)
    if missing and existing.others is None:
        says = f"{relation}.{missing[0]} is NOT NULL and has no default"
        raise _invalid(f"{says}; give its value by others=")
    return shape


def check_others(
    relation: Relation, existing: ExistingTable, shape: Shape, values: Mapping[str, Any]
) -> None:
    """Refuse values for columns that are not there, that are ours, or that the database makes itself."""
    taken = set(existing.columns.values()) - {existing.label}
    for name in values:
        column = shape.columns.get(name)
        if column is None or "%" in name:
            raise _invalid(f"others() names {name!r}, which is no column of {relation}")
        if name in taken or column.is_generated:
            raise _invalid(f"others() names {name!r}, which is not its to fill")
    given = set(values) | set(existing.columns.values())
    for name, column in shape.columns.items():
        if column.is_required and name not in given:
            raise _invalid(f"others() gives no {name!r}, and {relation}.{name} is NOT NULL without a default")


def _check_named(relation: Relation, existing: ExistingTable, columns: Mapping[str, Column]) -> None:
    for purpose, name in existing.columns.items():
        if name not in columns:
            raise _invalid(f"{relation} has no column {name!r} ({purpose})")
        if purpose == "embedding":
            continue
        allowed = _TYPES.get(purpose, _TEXTS)
        if _base(columns[name].type) not in allowed:
            problem = f"{relation}.{name} ({purpose}) is {columns[name].type}, and has to be"
            raise _invalid(f"{problem} {' or '.join(allowed)}")


def _check_id(relation: Relation, existing: ExistingTable, shape: Shape) -> None:
    column = shape.columns[existing.id]
    if shape.gives_ids and not column.has_default:
        raise _invalid(f"{relation}.{existing.id} (id) is {column.type} and the database gives it no value")
    if not shape.gives_ids and column.is_generated:
        raise _invalid(f"{relation}.{existing.id} (id) is generated, and takes no value of ours")


def _check_length(relation: Relation, existing: ExistingTable, shape: Shape, limits: Limits) -> None:
    for name in existing.columns.values():
        length = _LENGTH.match(shape.columns[name].type)
        if length is None:
            continue
        most = int(length[1])
        if name == existing.text:
            if limits.text_chars is None or limits.text_chars > most:
                problem = f"{relation}.{name} takes {most:,} characters; say limits=Limits(text_chars={most})"
                raise InvalidInput(field="limits", problem=problem)
        elif name != existing.scope_column and most < _LONGEST_KEY:
            raise _invalid(f"{relation}.{name} takes {most:,} characters, and has to take {_LONGEST_KEY}")


def _base(kind: str) -> str:
    return "character varying" if kind.startswith("character varying") else kind


def _plain(kind: str) -> str:
    return "text" if kind.startswith("character varying") else kind


def _invalid(problem: str) -> InvalidInput:
    return InvalidInput(field="existing", problem=problem)
