"""A table that was there before us: our entries beside rows of others, which stay as they are."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from custody_sync.adapters._pgvector_catalog import Relation, check_index
from custody_sync.adapters._pgvector_distances import Measure
from custody_sync.adapters._pgvector_layout import Item
from custody_sync.adapters._pgvector_mapped_sql import compose_mapped, read_of
from custody_sync.adapters._pgvector_shape import Shape, check_others, shape_of
from custody_sync.adapters._pgvector_sql import Statements
from custody_sync.adapters._pgvector_table import LABEL_KEYS, ExistingTable
from custody_sync.adapters._pgvector_vectors import VectorType
from custody_sync.adapters._scopes import Scope
from custody_sync.adapters._shared import vendor
from custody_sync.errors import InvalidInput, StoreRefused
from custody_sync.model import SOURCE, Entry, Fact, Label, Limits

if TYPE_CHECKING:
    from psycopg import AsyncCursor

# Where the ids that we make for uuid columns come from; the same label has the same id.
_IDS = uuid.uuid5(uuid.NAMESPACE_URL, "urn:custody-sync:pgvector")
_LOCKS = b"""
    select pg_advisory_xact_lock(hashtextextended(key, 0))
    from (select unnest(%s::text[]) as key order by 1) as keys"""


class MappedTable:
    """Entries in columns that the caller named.

    Args:
        name: The store's name, for errors.
        table: The table's name.
        existing: Which column is what.
        dimensions: The length of every vector.
        kind: The type of the vectors.
        measure: How near is measured.
        index: "hnsw" searches through an index that has to be there; None searches exactly.
        limits: The largest text that is put.
    """

    width = 9
    vectors = ""
    sql: Statements

    def __init__(
        self,
        name: str,
        table: object,
        existing: ExistingTable,
        dimensions: int,
        kind: VectorType,
        measure: Measure,
        index: str | None,
        limits: Limits,
    ) -> None:
        if not isinstance(table, str) or not table or "%" in table:
            problem = f"{table!r} is no name of a table, or has a % in it"
            raise InvalidInput(field="table", problem=problem)
        self.relation = Relation(existing.schema, table)
        self._name = name
        self._existing = existing
        self._dimensions = dimensions
        self._kind: VectorType = kind
        self._measure = measure
        self._index = index
        self._limits = limits
        self._scope = Scope("scope", existing.scope) if existing.scope_column is not None else None
        self._shape: Shape
        self._puts: dict[tuple[str, ...], Any] = {}

    async def set_up(self, cursor: AsyncCursor[Any]) -> None:
        """Compare the table with its mapping; nothing is made."""
        vector = f"{self._kind}({self._dimensions})"
        self._shape = await shape_of(cursor, self.relation, self._existing, vector, self._limits)
        if self._index is not None:
            await check_index(
                cursor, self.relation, self._existing.embedding, self._kind, self._measure, must_exist=True
            )
        self.sql = compose_mapped(
            self.relation, self._existing, self._shape, self._dimensions, self._kind, self._measure
        )

    def read_id(self, external_id: str) -> str | None:
        """Return an external id as the table holds it; None if no row can have it."""
        return self._shape.read_id(external_id)

    # --- writing ---------------------------------------------------------------------------

    async def put(self, cursor: AsyncCursor[Any], item: Item) -> tuple[str, ...]:
        """Write one row and return its id."""
        return (await self.put_many(cursor, [item]))[0]

    async def put_many(self, cursor: AsyncCursor[Any], items: Sequence[Item]) -> list[tuple[str, ...]]:
        """Write many rows in one pipeline and return their ids."""
        held = await self._held(cursor, items) if self._shape.gives_ids else {}
        fresh = {item[1].key: item for item in items if item[1].key not in held}
        for columns, rows in self._grouped(list(fresh.values())).items():
            statement = self._put_of(columns)
            await cursor.executemany(statement, [values for _, values in rows], returning=True)
            for key, _ in rows:
                row = await cursor.fetchone()
                if row is None:
                    raise self._refused("its id is taken by a row of somebody else")
                entry = self.entry(self._name, row)
                if f"{entry.fact_id}.{entry.generation}" != key or entry.ledger_id != fresh[key][1].ledger_id:
                    # Nothing would find it again. The transaction takes back what was put.
                    raise self._refused("the table does not keep the label, perhaps a trigger changes it")
                held[key] = entry.external_id
                cursor.nextset()
        return [(held[label.key],) for _, label, _ in items]

    def _refused(self, cause: str) -> StoreRefused:
        return StoreRefused(store=self._name, operation="put", cause=cause)

    async def _held(self, cursor: AsyncCursor[Any], items: Sequence[Item]) -> dict[str, str]:
        """Return the ids of what a lost put of these labels has left, and keep others from putting them."""
        await cursor.execute(_LOCKS, ([label.key for _, label, _ in items],))
        held: dict[str, str] = {}
        for fact_id in {label.fact_id for _, label, _ in items}:
            await cursor.execute(self.sql.find, {"fact_ids": [fact_id]})
            for row in await cursor.fetchall():
                entry = self.entry(self._name, row)
                held[f"{entry.fact_id}.{entry.generation}"] = entry.external_id
        return held

    def _grouped(self, items: Sequence[Item]) -> dict[tuple[str, ...], list[tuple[str, dict[str, Any]]]]:
        groups: dict[tuple[str, ...], list[tuple[str, dict[str, Any]]]] = {}
        for item in items:
            values = self._values(item)
            named = {f"c{n}": value for n, value in enumerate(values.values())}
            row = (item[1].key, named | {"fact_id": item[1].fact_id})
            groups.setdefault(tuple(values), []).append(row)
        return groups

    def _values(self, item: Item) -> dict[str, Any]:
        fact, label, vector = item
        existing, values = self._existing, dict[str, Any]()
        others = dict(existing.others(fact)) if existing.others is not None else {}
        if existing.label is not None:
            ours: dict[str, Any] = dict(label.to_metadata())
            if existing.text_key is not None:
                ours[existing.text_key] = fact.text
            values[existing.label] = _merged(others.pop(existing.label, {}), ours)
        check_others(self.relation, existing, self._shape, others)
        for key, column in (existing.label_columns or {}).items():
            values[column] = self.changed(label)[key]
        if not self._shape.gives_ids:
            values[existing.id] = self._id_of(label)
        if existing.text is not None:
            values[existing.text] = fact.text
        values[existing.embedding] = vector.text
        if existing.scope_column is not None:
            values[existing.scope_column] = self.scope_of(fact)
        if existing.created_at is not None and not self._shape.columns[existing.created_at].has_default:
            values[existing.created_at] = label.stored_at
        return values | {name: self._adapted(name, value) for name, value in others.items()}

    def _id_of(self, label: Label) -> str:
        return str(uuid.uuid5(_IDS, label.key)) if self._shape.id_type == "uuid" else label.key

    def _adapted(self, column: str, value: Any) -> Any:
        if self._shape.columns[column].type in ("json", "jsonb") and value is not None:
            return _json(value)
        return value

    def _put_of(self, columns: tuple[str, ...]) -> Any:
        if columns not in self._puts:
            self._puts[columns] = self._composed(columns)
        return self._puts[columns]

    def _composed(self, columns: tuple[str, ...]) -> bytes:
        sql = vendor("psycopg.sql", feature="PgVectorStore", extra="pgvector")
        named = [sql.Identifier(column) for column in columns]
        # Uncast: an explicit cast to varchar(n) would cut a text short without a word.
        values = [sql.Placeholder(f"c{n}") for n in range(len(columns))]
        changes = [sql.SQL("{0} = excluded.{0}").format(column) for column in named]
        text = "insert into {table} as mine ({columns}) values ({values})"
        if not self._shape.gives_ids:
            text += " on conflict ({id}) do update set {changes} where {ours} = %(fact_id)s"
        existing = self._existing
        ours = sql.SQL("mine.{} ->> 'fact_id'").format(sql.Identifier(existing.label or ""))
        if existing.label_columns is not None:
            ours = sql.SQL("mine.{}").format(sql.Identifier(existing.label_columns["fact_id"]))
        composed: bytes = (
            sql.SQL(text + " returning {read}")
            .format(
                read=read_of(existing, self._shape),
                table=sql.SQL(self.relation.quoted),
                columns=sql.SQL(", ").join(named),
                values=sql.SQL(", ").join(values),
                id=sql.Identifier(existing.id),
                changes=sql.SQL(", ").join(changes),
                ours=ours,
            )
            .as_bytes(None)
        )
        return composed

    def changed(self, label: Label) -> dict[str, Any]:
        """Return the parameters of a changed label."""
        keys: dict[str, Any] = dict(label.to_metadata())
        whole = json.dumps(keys)
        columns = self._existing.label_columns or {}
        if "stored_at" in columns and not self._is_text(columns["stored_at"]):
            keys["stored_at"] = label.stored_at
        if "v" in columns and self._is_text(columns["v"]):
            keys["v"] = str(keys["v"])
        return keys | {"label": whole}

    def _is_text(self, column: str) -> bool:
        return self._shape.columns[column].type.startswith(("text", "character"))

    # --- reading ---------------------------------------------------------------------------

    def entry(self, store: str, row: tuple[Any, ...], text: str | None = None) -> Entry:
        """Read a row back; one without our label is nobody's we know."""
        external_id, fact_id, ledger_id, space, stored_at, created_at, source, custody, scope = row[:9]
        if "source" not in (self._existing.label_columns or ("source",)):
            source = SOURCE
        label = {
            "source": source,
            "fact_id": fact_id,
            "ledger_id": ledger_id,
            "space": space,
            "stored_at": stored_at,
            "custody": custody,
        }
        return Entry.from_metadata(
            label, store=store, external_id=external_id, scope=scope, text=text, created_at=created_at
        )

    def whole(self, store: str, row: tuple[Any, ...]) -> Entry:
        """Read back a row that was listed with its text."""
        return self.entry(store, row, row[9])

    def scope_of(self, fact: Fact) -> str | None:
        """Return what stands in the scope column of this fact's rows."""
        return None if self._scope is None else self._scope.of_fact(fact)

    def scopes_among(self, spaces: Sequence[str] | None) -> list[str] | None:
        """Return the scopes that a search is narrowed to; None narrows it to none."""
        return None if self._scope is None else self._scope.among(spaces)


def _merged(others: object, ours: Mapping[str, Any]) -> str:
    if not isinstance(others, Mapping):
        raise InvalidInput(field="existing", problem="others() must give a mapping for the label's column")
    taken = sorted(set(others) & {*ours, *LABEL_KEYS})
    if taken:
        raise InvalidInput(field="existing", problem=f"others() gives {taken[0]!r}, a key of the label")
    return _json({**others, **ours})


def _json(value: object) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        raise InvalidInput(field="existing", problem="others() gives a value that is no JSON") from None


__all__ = ["MappedTable"]
