"""What a SQLite database of a ledger holds beside the log, by fact id: to be held against a replay."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from typing import Any, NamedTuple

from custody_sync.errors import LedgerTooOld
from custody_sync.ledger.rows import FACT, PLACEMENT, Derived, FactRow, PlacementRow, fact_row, placement_row
from custody_sync.ledger.sqlite_files import SCHEMA_VERSION
from custody_sync.ledger.sqlite_reads import head
from custody_sync.model import Head

_TABLES = ("events", "claims", "facts", "placements", "owed", "holds")
_STRAY_SECTION = "SELECT 1 FROM sealed WHERE seq NOT IN (SELECT seq FROM events) LIMIT 1"
_GIVEN = "fact_id IN (SELECT value FROM json_each(?))"


class _Rows(NamedTuple):
    events: list[tuple[int, str, str]]
    claims: list[tuple[str, int]]
    facts: list[tuple[FactRow, str]]
    placements: list[PlacementRow]
    owed: list[tuple[str, str]]
    holds: list[tuple[str, int]]


def derived(conn: sqlite3.Connection, limit: int, after: str) -> tuple[Head, list[Derived]]:
    """Return what is kept on the fact ids after a given one, and the head of the same moment.

    Raises:
        LedgerTooOld: the tables are those of an earlier version.
        ValueError: the head counts other events than it has, or there are sections of no event.
    """
    (version,) = conn.execute("PRAGMA user_version").fetchone()
    if 0 < version < SCHEMA_VERSION:
        raise LedgerTooOld(found=version, known=SCHEMA_VERSION)
    at = head(conn)
    (count,) = conn.execute("SELECT count FROM head").fetchone()
    if count != at.seq:
        raise ValueError("count")
    if not after and conn.execute(_STRAY_SECTION).fetchone() is not None:
        raise ValueError("sealed")
    rows = {fact_id: _Rows([], [], [], [], [], []) for fact_id in _ids(conn, limit, after)}
    asked = json.dumps(list(rows))
    for fact_id, *event in _of(conn, "SELECT fact_id, seq, event_id, tx_time FROM events", asked, "seq"):
        rows[fact_id].events.append((event[0], event[1], event[2]))
    for fact_id, standing, seq in _of(conn, "SELECT fact_id, standing, seq FROM claims", asked, "fact_id"):
        rows[fact_id].claims.append((standing, seq))
    for row in _of(conn, f"SELECT {FACT}, tx_time FROM facts", asked, "seq"):
        fact = fact_row(row[:-1])
        rows[fact.fact_id].facts.append((fact, row[-1]))
    for row in _of(conn, f"SELECT {PLACEMENT} FROM placements", asked, "id"):
        placement = placement_row(row)
        rows[placement.fact_id].placements.append(placement)
    for fact_id, store, due_at in _of(conn, "SELECT fact_id, store, due_at FROM owed", asked, "store"):
        rows[fact_id].owed.append((store, due_at))
    for fact_id, hold_id, seq in _of(conn, "SELECT fact_id, hold_id, seq FROM holds", asked, "hold_id"):
        rows[fact_id].holds.append((hold_id, seq))
    return at, [_derived(fact_id, found) for fact_id, found in rows.items()]


def blocks(conn: sqlite3.Connection) -> tuple[Head, dict[int, int]]:
    """Return by block of the log the last event that changed one of its facts, and the head then."""
    rows = conn.execute("SELECT block, changed FROM blocks").fetchall()
    # A torn page may have taken a number, whatever the schema says.
    return head(conn), {int(block): int(changed) for block, changed in rows}


def _ids(conn: sqlite3.Connection, limit: int, after: str) -> list[str]:
    # Each table gives its next ids along its index, so that a page costs a page.
    beyond = ">" if after else ">="
    parts = [
        f"SELECT * FROM (SELECT DISTINCT fact_id FROM {table} WHERE fact_id {beyond} :after "
        "ORDER BY fact_id LIMIT :limit)"
        for table in _TABLES
    ]
    query = f"SELECT fact_id FROM ({' UNION '.join(parts)}) ORDER BY fact_id LIMIT :limit"
    return [fact_id for (fact_id,) in conn.execute(query, {"after": after, "limit": limit})]


def _of(conn: sqlite3.Connection, select: str, asked: str, order: str) -> Iterable[tuple[Any, ...]]:
    return conn.execute(f"{select} WHERE {_GIVEN} ORDER BY {order}", (asked,))


def _derived(fact_id: str, rows: _Rows) -> Derived:
    fact, learned = rows.facts[0] if rows.facts else (None, None)
    return Derived(
        fact_id=fact_id,
        events=tuple(rows.events),
        claim=rows.claims[0] if rows.claims else None,
        fact=fact,
        learned=learned,
        placements=tuple(rows.placements),
        owed=tuple(rows.owed),
        holds=tuple(rows.holds),
    )


__all__ = ["blocks", "derived"]
