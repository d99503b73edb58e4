"""What the adapter asks of a table, whether it made the table or was told how one lies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from custody_sync.adapters._pgvector_catalog import Relation
from custody_sync.adapters._pgvector_sql import Statements
from custody_sync.adapters._pgvector_vectors import Embedding
from custody_sync.model import Entry, Fact, Label

if TYPE_CHECKING:
    from psycopg import AsyncCursor

Item: TypeAlias = tuple[Fact, Label, Embedding]


class Layout(Protocol):
    """How entries lie in one table."""

    relation: Relation
    sql: Statements
    """Every statement on the table; complete once it was set up."""
    vectors: str
    """What holds the vectors beside the table: the ending of an index's name, or nothing."""
    width: int
    """How many columns an entry is read from, before its text and its score."""

    async def set_up(self, cursor: AsyncCursor[Any]) -> None:
        """Make or check the table, in a transaction."""
        ...

    def read_id(self, external_id: str) -> str | None:
        """Return an external id as the table holds it; None if no row can have it."""
        ...

    async def put(self, cursor: AsyncCursor[Any], item: Item) -> tuple[str, ...]:
        """Write one row and return its id."""
        ...

    async def put_many(self, cursor: AsyncCursor[Any], items: Sequence[Item]) -> list[tuple[str, ...]]:
        """Write many rows and return their ids, in a transaction."""
        ...

    def changed(self, label: Label) -> dict[str, Any]:
        """Return the parameters of a changed label."""
        ...

    def entry(self, store: str, row: tuple[Any, ...], text: str | None = None) -> Entry:
        """Read a row back."""
        ...

    def whole(self, store: str, row: tuple[Any, ...]) -> Entry:
        """Read back a row that was listed with its text, with all that its label says."""
        ...

    def scope_of(self, fact: Fact) -> str | None:
        """Return the scope that a put of this fact has."""
        ...

    def scopes_among(self, spaces: Sequence[str] | None) -> list[str] | None:
        """Return the scopes that a search is narrowed to; None narrows it to none."""
        ...


async def yes(cursor: AsyncCursor[Any], statement: Any, parameters: Any = None) -> bool:
    """Tell whether a statement answers with true."""
    await cursor.execute(statement, parameters)
    row = await cursor.fetchone()
    return row is not None and row[0] is True
