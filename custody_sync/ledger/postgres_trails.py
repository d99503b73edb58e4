"""Where entries and facts lead along their chains of supersession, in Postgres; one statement each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from psycopg import AsyncConnection

from custody_sync.canonical import is_text
from custody_sync.ledger.answers import ANSWERED, NO_EVENT, Row, head_of
from custody_sync.ledger.postgres_rows import as_json
from custody_sync.ledger.postgres_sql import fill, statements
from custody_sync.ledger.questions import Instants, Trail
from custody_sync.ledger.trails import MARKS, asked_of, followed_of, links_of
from custody_sync.model import Entry, format_instant, read_instant
from custody_sync.recalled import Followed, Link

_AT = 4
"""The head and the valid time stand in every row, and the first may hold nothing else."""


class Trails:
    """The questions about chains, to one schema."""

    def __init__(self, schema: str) -> None:
        sql = statements("reads.sql", schema)
        parts = {name: fill(sql[name], schema=schema).decode() for name in ("believed", "claimed")}
        follow = fill(sql["follow"], marks=MARKS.format(f="h"), fact=ANSWERED, **parts).decode()
        links = fill(sql["links"], marks=MARKS.format(f="f"), fact=ANSWERED).decode()
        heads = {name: fill(sql[name], schema=schema).decode() for name in ("head", "at_instant")}
        self._sql = {
            (name, past): fill(statement, schema=schema, at=heads["at_instant" if past else "head"])
            for name, statement in (("follow", follow), ("links", links))
            for past in (False, True)
        }

    async def follow(
        self, conn: AsyncConnection[Any], entries: Sequence[Entry], trail: Trail, now: datetime
    ) -> tuple[Instants, list[Followed]]:
        """Say of every entry where it leads, in the order given."""
        asked = {"entries": as_json(asked_of(entries)), "claimed": trail.include_claimed}
        at, rows = await self._rows(conn, "follow", asked, trail, now)
        return at, followed_of(rows, len(entries), at)

    async def links(
        self, conn: AsyncConnection[Any], fact_ids: Sequence[str], trail: Trail, now: datetime
    ) -> tuple[Instants, list[tuple[Link, ...]]]:
        """Return the chain of every fact, in the order given; none of an unknown one."""
        asked = {"ids": as_json(fact_id if is_text(fact_id) else "" for fact_id in fact_ids)}
        at, rows = await self._rows(conn, "links", asked, trail, now)
        return at, links_of(rows, len(fact_ids), at)

    async def _rows(
        self,
        conn: AsyncConnection[Any],
        name: str,
        asked: Mapping[str, Any],
        trail: Trail,
        now: datetime,
    ) -> tuple[Instants, list[Row]]:
        instants = {
            "now": format_instant(now),
            "valid_at": None if trail.valid_at is None else format_instant(trail.valid_at),
            "tx_at": None if trail.tx_at is None else format_instant(trail.tx_at),
        }
        cursor = await conn.execute(self._sql[name, trail.tx_at is not None], {**asked, **instants})
        rows = await cursor.fetchall()
        head = head_of(rows[0][:3])
        valid_at = read_instant(rows[0][3]) or now
        at = Instants(head if head.seq else NO_EVENT, valid_at)
        return at, [row[_AT:] for row in rows if row[_AT] is not None]


__all__ = ["Trails"]
