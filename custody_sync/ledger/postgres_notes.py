"""Notes beside the log in Postgres: leases, reservations and spools; each change is one statement."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from psycopg import AsyncConnection

from custody_sync.canonical import is_text
from custody_sync.ledger.answers import mark_of, note_of
from custody_sync.ledger.postgres_rows import as_json, check_key
from custody_sync.ledger.postgres_sql import statements
from custody_sync.ledger.storage import BEYOND, LEASED, MOVED, Mark, Note
from custody_sync.model import format_instant

Due = tuple[str, str, str, str]
"""A fact id, what of it goes, the event that erased it, and the transaction that did."""


class Notes:
    """The notes of one schema."""

    def __init__(self, schema: str) -> None:
        self._sql = {name: text.encode() for name, text in statements("notes.sql", schema).items()}

    async def page(self, conn: AsyncConnection[Any], topic: str, limit: int, after: str) -> list[Note]:
        """Return a topic's notes in order of key."""
        asked = {"topic": topic, "limit": limit, "after": after}
        return [note_of(row) for row in await (await conn.execute(self._sql["page"], asked)).fetchall()]

    async def at(self, conn: AsyncConnection[Any], topic: str, keys: Sequence[str]) -> dict[str, Note]:
        """Return a topic's notes by key, of these keys."""
        asked = {"topic": topic, "keys": as_json(filter(is_text, keys))}
        rows = await (await conn.execute(self._sql["at"], asked)).fetchall()
        return {note.key: note for note in map(note_of, rows)}

    async def acquire(
        self,
        conn: AsyncConnection[Any],
        topic: str,
        key: str,
        value: str,
        holder: str,
        ttl: timedelta | None,
        now: datetime,
        name: str,
    ) -> Note:
        """Set a note unless another holder's has not lapsed and is not void; return the one that stands."""
        check_key("key", key, topic)
        wanted = {
            "topic": topic,
            "key": key,
            "value": value,
            "holder": holder,
            "now": format_instant(now),
            "expires_at": None if ttl is None else format_instant(now + ttl),
            "void": None if ttl is None else format_instant(now + ttl + BEYOND),
        }
        while True:
            for statement in ("acquire", "standing"):
                row = await (await conn.execute(self._sql[statement], wanted)).fetchone()
                if row is not None:
                    return note_of(row)
                await self._check_mark(conn, name)
            # It was dropped between the two statements, and may be had now.

    async def put(
        self, conn: AsyncConnection[Any], notes: Sequence[Note], name: str, arriving: bool = False
    ) -> None:
        """Set notes, new or over old ones; of several with one key the last."""
        rows = {
            (note.topic, check_key("key", note.key, note.topic)): {
                "topic": note.topic,
                "key": note.key,
                "value": note.value,
                "holder": note.holder,
                "since": format_instant(note.since),
                "expires_at": None if note.expires_at is None else format_instant(note.expires_at),
            }
            for note in notes
        }
        # In one order, so that two processes that note the same rows do not wait for each other.
        wanted = {"notes": as_json(rows[key] for key in sorted(rows)), "arriving": arriving}
        done = await conn.execute(self._sql["put"], wanted)
        if done.rowcount < len(rows):
            await self._check_mark(conn, name)

    async def mark(self, conn: AsyncConnection[Any]) -> Mark | None:
        """Return what stops the ledger."""
        row = await (await conn.execute(self._sql["mark"])).fetchone()
        return None if row is None else mark_of(row)

    async def _check_mark(self, conn: AsyncConnection[Any], name: str) -> None:
        mark = await self.mark(conn)
        if mark is not None:
            raise mark.refusal(name)

    async def set_mark(
        self, conn: AsyncConnection[Any], was: Mark | None, mark: Mark | None, now: datetime
    ) -> bool:
        """Put a mark in another one's place, if that is what stands."""
        async with conn.transaction():
            # In a statement of its own, so that what is read next is what the lock's last holder left.
            await conn.execute(self._sql["lock"])
            if await self.mark(conn) != was:
                return False
            await self.drop(conn, MOVED, None, None)
            if mark is not None:
                note = {
                    "key": mark.way,
                    "value": mark.place,
                    "holder": mark.run,
                    "since": format_instant(now),
                }
                await conn.execute(self._sql["set_mark"], note)
            return True

    async def drop(
        self, conn: AsyncConnection[Any], topic: str, keys: Sequence[str] | None, holder: str | None
    ) -> None:
        """Remove notes of a topic, by key or holder where given."""
        wanted = None if keys is None else as_json(filter(is_text, keys))
        await conn.execute(self._sql["drop"], {"topic": topic, "keys": wanted, "holder": holder})

    async def due(self, conn: AsyncConnection[Any]) -> list[Due]:
        """Return the erasures that are not completed."""
        rows = await (await conn.execute(self._sql["due"])).fetchall()
        return [(key, value, holder, xid) for key, value, holder, xid in rows]

    async def settle(self, conn: AsyncConnection[Any], rows: Sequence[Due]) -> None:
        """Drop erasures that are completed; by event as well, since another may have come meanwhile."""
        done = as_json({"key": key, "value": value, "holder": holder} for key, value, holder, _ in rows)
        await conn.execute(self._sql["settle"], {"rows": done})

    async def naming(self, conn: AsyncConnection[Any], fact_ids: Sequence[str]) -> list[tuple[str, str, str]]:
        """Return (topic, key, fact id) of notes whose value is about one of these facts, as a spool's is."""
        if not fact_ids:
            return []
        wanted, found = set(fact_ids), []
        for topic, key, value in await (await conn.execute(self._sql["naming"])).fetchall():
            try:
                document = json.loads(value)
            except ValueError:
                continue
            fact_id = document.get("fact_id") if isinstance(document, dict) else None
            if isinstance(fact_id, str) and fact_id in wanted:
                found.append((topic, key, fact_id))
        return found

    async def runs_naming(self, conn: AsyncConnection[Any]) -> bool:
        """Tell whether a sweep noted cursors or ids of a store, of which nobody knows whose they are."""
        return await (await conn.execute(self._sql["runs_naming"])).fetchone() is not None

    async def is_leased(self, conn: AsyncConnection[Any], now: datetime) -> bool:
        """Tell whether somebody holds a lease, and may thus be at work on notes."""
        asked = {"now": format_instant(now), "void": format_instant(now + LEASED)}
        row = await (await conn.execute(self._sql["leased"], asked)).fetchone()
        return bool(row is not None and row[0])

    async def files(self, conn: AsyncConnection[Any], tables: Sequence[str]) -> list[int]:
        """Return the numbers of the files that tables are in."""
        cursor = await conn.execute(self._sql["files"], {"tables": as_json(tables)})
        return [number for (number,) in await cursor.fetchall()]

    async def is_rewritten(self, conn: AsyncConnection[Any], xid: str, tables: Sequence[str]) -> bool:
        """Tell whether tables just rewritten hold nothing that only a state before a transaction needs."""
        asked = {"xid": xid, "tables": as_json(tables)}
        row = await (await conn.execute(self._sql["rewritten"], asked)).fetchone()
        return bool(row is not None and row[0])
