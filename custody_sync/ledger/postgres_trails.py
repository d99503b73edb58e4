"""Where entries and facts lead along their chains of supersession, in Postgres; one statement each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from psycopg import AsyncConnection

from custody_sync.ledger.answers import NO_EVENT, Row, head_of
from custody_sync.ledger.postgres_rows import as_json
from custody_sync.ledger.postgres_sql import fill, statements
from custody_sync.ledger.postgres_wire import Asking, Statement
from custody_sync.ledger.questions import Instants, Trail
from custody_sync.ledger.trails import LINK, OWN, askable, asked_of, followed_of, links_of
from custody_sync.model import Entry, format_instant, read_instant
from custody_sync.recalled import Followed, Link

_AT = 4
"""The head and the valid time stand behind every row, and the first may hold nothing else."""


class Trails:
    """The questions about chains, to one schema."""

    def __init__(self, schema: str) -> None:
        sql = statements("reads.sql", schema)
        self._asking = Asking()
        self._sql = {
            (name, asked, past): Statement.read(
                "_".join(filter(None, (name, asked, "past" if past else ""))),
                fill(
                    sql[name].replace("{asked}", sql.get(asked, "")),
                    at=sql["at_instant" if past else "head"],
                    live=str(not past).lower(),
                    link=LINK,
                ).decode(),
            )
            for name, asked in (("follow", "labelled"), ("follow", "unlabelled"), ("links", ""))
            for past in (False, True)
        }

    async def follow(
        self, conn: AsyncConnection[Any], entries: Sequence[Entry], trail: Trail, now: datetime
    ) -> tuple[Instants, list[Followed]]:
        """Say of every entry where it leads, in the order given."""
        asked: list[Any]
        asked, unlabelled = asked_of(entries, trail)
        if unlabelled:
            asked = [{"place": place, "fact_id": fact_id} for place, fact_id in enumerate(asked)]
            for entry in unlabelled:
                asked[entry["place"]] = entry
        name = ("follow", "unlabelled" if unlabelled else "labelled")
        at, rows = await self._rows(conn, name, {"entries": as_json(asked)}, trail, now)
        own = [row for row in rows if row[0] is not None]
        last = [row[OWN:] for row in rows if row[0] is None and row[OWN] is not None]
        return at, followed_of(own, last, entries, at, trail)[0]

    async def links(
        self, conn: AsyncConnection[Any], fact_ids: Sequence[str], trail: Trail, now: datetime
    ) -> tuple[Instants, list[tuple[Link, ...]]]:
        """Return the chain of every fact, in the order given; none of an unknown one."""
        asked = {"ids": as_json(map(askable, fact_ids))}
        at, rows = await self._rows(conn, ("links", ""), asked, trail, now)
        return at, links_of([row for row in rows if row[0] is not None], fact_ids, at)

    async def _rows(
        self,
        conn: AsyncConnection[Any],
        name: tuple[str, str],
        asked: Mapping[str, str],
        trail: Trail,
        now: datetime,
    ) -> tuple[Instants, Sequence[Row]]:
        instants = {
            "now": format_instant(now),
            "valid_at": None if trail.valid_at is None else format_instant(trail.valid_at),
            "tx_at": None if trail.tx_at is None else format_instant(trail.tx_at),
        }
        statement = self._sql[(*name, trail.tx_at is not None)]
        rows = await self._asking.rows(conn, statement, {**asked, **instants})
        *head, valid_at = rows[0][-_AT:]
        return Instants(head_of(head) if head[0] else NO_EVENT, read_instant(valid_at) or now), rows


__all__ = ["Trails"]
