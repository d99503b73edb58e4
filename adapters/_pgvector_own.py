"""The table that the adapter makes itself: set up at the first use, filled by COPY."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from custody_sync.adapters._pgvector_catalog import Relation, check_index, check_vector, columns_of
from custody_sync.adapters._pgvector_distances import Measure
from custody_sync.adapters._pgvector_layout import Item, yes
from custody_sync.adapters._pgvector_rows import columns_of_label, entry_of, row_of
from custody_sync.adapters._pgvector_sql import COLUMNS, INDEXED, checked_table, compose, index_name
from custody_sync.adapters._pgvector_vectors import VectorType
from custody_sync.errors import InvalidInput
from custody_sync.model import Entry, Fact, Label

if TYPE_CHECKING:
    from psycopg import AsyncCursor

# COPY writes what it is given as the column reads it, so a packed vector goes as mere bytes.
_COPIED = ("text", "text", "text", "text", "timestamptz", "text", "text", "bytea")
# A row is there already, as a retry's are; COPY is not for a table with row-level security.
_NOT_BY_COPY = frozenset({"23505", "0A000"})


class OwnTable:
    """One row per entry, its label in columns of their own.

    Args:
        table: A plain identifier.
        dimensions: The length of every vector.
        kind: The type of the vectors.
        measure: How near is measured.
        index: "hnsw" or None.
    """

    width = 6
    """How many columns an entry is read from, before its text and its score."""

    def __init__(
        self, table: object, dimensions: int, kind: VectorType, measure: Measure, index: str | None
    ) -> None:
        self.relation = Relation(None, checked_table(table))
        self.sql = compose(self.relation.name, dimensions, kind, measure)
        self.vectors = "embedding_idx" if index is not None else ""
        self._wanted = f"{kind}({dimensions})"
        self._kind: VectorType = kind
        self._measure = measure
        self._index = index

    async def set_up(self, cursor: AsyncCursor[Any]) -> None:
        """Make what is not there; a finished table needs no right to create anything."""
        await cursor.execute(self.sql.set_up_lock)
        if not await yes(cursor, self.sql.type_is_there):
            await cursor.execute(self.sql.create_type)
        if not await self._is_there(cursor, self.relation.name):
            await cursor.execute(self.sql.create_table)
        await self._check(cursor)
        for column in INDEXED:
            wanted = column != "embedding" or self._index is not None
            if wanted and not await self._is_there(cursor, index_name(self.relation.name, column)):
                await cursor.execute(getattr(self.sql, f"create_{column}_index"))

    async def _is_there(self, cursor: AsyncCursor[Any], name: str) -> bool:
        return await yes(cursor, self.sql.relation_is_there, (Relation(None, name).quoted,))

    async def _check(self, cursor: AsyncCursor[Any]) -> None:
        columns = await columns_of(cursor, self.relation)
        missing = sorted(COLUMNS - columns.keys())
        if missing:
            says = f"{self.relation} is there and is not a custody-sync table: it has no {', '.join(missing)}"
            raise InvalidInput(field="table", problem=f"{says}; existing= says how to use a table of yours")
        check_vector(columns, "embedding", self._wanted, str(self.relation))
        if self._index is not None:
            await check_index(cursor, self.relation, "embedding", self._kind, self._measure, must_exist=False)

    def read_id(self, external_id: str) -> str | None:
        """Return an external id as the key column holds it."""
        return external_id

    async def put(self, cursor: AsyncCursor[Any], item: Item) -> tuple[str, ...]:
        """Write one row, or write it again."""
        fact, label, vector = item
        await cursor.execute(self.sql.put, row_of(fact, label, vector.text))
        return (label.key,)

    async def put_many(self, cursor: AsyncCursor[Any], items: Sequence[Item]) -> list[tuple[str, ...]]:
        """Write many rows by COPY; where that cannot be, in one pipeline."""
        try:
            # Within the caller's transaction, so that a COPY that is refused leaves that one whole.
            async with cursor.connection.transaction():
                await self._copy(cursor, items)
        except Exception as error:
            if getattr(error, "sqlstate", None) not in _NOT_BY_COPY:
                raise
            rows = [row_of(fact, label, vector.text) for fact, label, vector in items]
            await cursor.executemany(self.sql.put, rows)
        return [(label.key,) for _, label, _ in items]

    async def _copy(self, cursor: AsyncCursor[Any], items: Sequence[Item]) -> None:
        async with cursor.copy(self.sql.copy) as copy:
            copy.set_types(_COPIED)
            for fact, label, vector in items:
                await copy.write_row((*columns_of_label(label), fact.text, vector.packed))

    def changed(self, label: Label) -> dict[str, Any]:
        """Return the parameters of a changed label."""
        return row_of(None, label, "")

    def entry(self, store: str, row: tuple[Any, ...], text: str | None = None) -> Entry:
        """Read a row back."""
        return entry_of(store, row, text)

    def whole(self, store: str, row: tuple[Any, ...]) -> Entry:
        """Read back a row that was listed with its text."""
        return entry_of(store, row, row[6], row[7])

    def scope_of(self, fact: Fact) -> str | None:
        """Return None: one table holds every space, and `space` is a column."""
        return None

    def scopes_among(self, spaces: Sequence[str] | None) -> list[str] | None:
        """Return None: no search is narrowed by a scope."""
        return None
