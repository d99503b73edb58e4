"""What had to go and what is still to do, in Postgres."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from psycopg import AsyncConnection

from custody_sync.ledger.answers import Row, head_of
from custody_sync.ledger.outstanding import About, Backlog, Removed, RemovedCount
from custody_sync.ledger.outstanding_rows import beginning, gather, group, is_pattern
from custody_sync.ledger.postgres_sql import fill, statements
from custody_sync.ledger.rows import MAX_PLACEMENTS
from custody_sync.model import Page, format_instant

_PLACEMENT = "p.store, p.external_id, p.fact_id, p.scope, p.stored_at, p.state, p.outcome"
_HEAD = 3


class OutstandingReads:
    """These questions to one schema."""

    def __init__(self, schema: str) -> None:
        self._sql = statements("outstanding.sql", schema)

    async def _rows(
        self, conn: AsyncConnection[Any], name: str, parameters: Mapping[str, Any], **parts: str
    ) -> list[Row]:
        cursor = await conn.execute(fill(self._sql[name], **parts), parameters)
        return await cursor.fetchall()

    def _about(self, about: About) -> str:
        where = ""
        if about.space is not None:
            space = "starts_with(f.space, %(space)s)" if is_pattern(about) else "f.space = %(space)s"
            where += f" {fill(self._sql['in_space'], space=space).decode()}"
        return where if about.since is None else f"{where} {self._sql['recorded']}"

    async def removed_facts(
        self, conn: AsyncConnection[Any], about: About, limit: int, after: int
    ) -> Page[Removed]:
        """Return a page of facts of which something had to go."""
        asked = {**_asked(about), "after": after, "limit": limit + 1}
        parts = {"first": self._sql["first"], "about": self._about(about), "placement": _PLACEMENT}
        rows = await self._rows(conn, "removed_facts", asked, **parts)
        found = group([row[_HEAD:] for row in rows if row[_HEAD] is not None])
        more = found[limit - 1].place if len(found) > limit else None
        return Page(found[:limit], head=head_of(rows[0][:_HEAD]), next=more)

    async def count_removed(self, conn: AsyncConnection[Any], about: About) -> RemovedCount:
        """Count the facts of which something had to go."""
        parts = {"first": self._sql["first"], "about": self._about(about)}
        rows = await self._rows(conn, "count_removed", _asked(about), **parts)
        return RemovedCount(sum(count for _, count in rows), tuple(store for store, _ in rows))

    async def backlog(self, conn: AsyncConnection[Any], now: datetime) -> list[Backlog]:
        """Return what is still to do by store."""
        async with conn.transaction():
            await conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            pending = await self._rows(conn, "pending", {}, width=str(MAX_PLACEMENTS))
            asked = {"now": format_instant(now)}
            pending += await self._rows(conn, "ended", asked)
            owed = await self._rows(conn, "owed", asked)
        return gather(pending, owed)


def _asked(about: About) -> dict[str, Any]:
    return {
        "space": beginning(about),
        "since": None if about.since is None else format_instant(about.since),
    }


__all__ = ["OutstandingReads"]
