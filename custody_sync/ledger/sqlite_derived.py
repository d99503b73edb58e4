"""What a SQLite database of a ledger holds beside the log, by fact id: to be held against a replay."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from typing import Any, NamedTuple

from custody_sync.ledger.rows import Derived, FactRow, PlacementRow
from custody_sync.ledger.sqlite_reads import head
from custody_sync.ledger.sqlite_rows import FACT, PLACEMENT, fact_row, placement_row
from custody_sync.model import ERASED_ID, Head, PlacementState

_TABLES = ("events", "claims", "facts", "placements", "owed", "holds")
_GIVEN = "fact_id IN (SELECT value FROM json_each(?))"


class _Rows(NamedTuple):
    events: list[tuple[int, str, str]]
    claims: list[tuple[str, int]]
    facts: list[tuple[FactRow, str]]
    placements: list[PlacementRow]
    owed: list[str]
    holds: list[tuple[str, int]]


def derived(conn: sqlite3.Connection, limit: int, after: str) -> tuple[Head, list[Derived]]:
    """Return what is kept on the fact ids after a given one, and the head of the same moment.

    Raises:
        ValueError: the head counts other events than it has.
    """
    at = head(conn)
    (count,) = conn.execute("SELECT count FROM head").fetchone()
    if count != at.seq:
        raise ValueError("count")
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
    for fact_id, store in _of(conn, "SELECT fact_id, store FROM owed", asked, "store"):
        rows[fact_id].owed.append(store)
    for fact_id, hold_id, seq in _of(conn, "SELECT fact_id, hold_id, seq FROM holds", asked, "hold_id"):
        rows[fact_id].holds.append((hold_id, seq))
    (version,) = conn.execute("PRAGMA user_version").fetchone()
    return at, [_derived(fact_id, found, version) for fact_id, found in rows.items()]


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


def _derived(fact_id: str, rows: _Rows, version: int) -> Derived:
    fact, learned = rows.facts[0] if rows.facts else (None, None)
    placements = rows.placements
    if version == 1 and fact is not None and fact.identity_gone:
        placements = _merged(placements, fact)
    return Derived(
        fact_id=fact_id,
        events=tuple(rows.events),
        claim=rows.claims[0] if rows.claims else None,
        fact=fact,
        learned=learned,
        placements=tuple(placements),
        owed=tuple(rows.owed),
        holds=tuple(rows.holds),
    )


def _merged(placements: list[PlacementRow], fact: FactRow) -> list[PlacementRow]:
    """Return placements as schema version 2 has them: version 1 kept a row for every erased entry."""
    merged: dict[tuple[str, str], PlacementRow] = {}
    for row in placements:
        if row.external_id.startswith(ERASED_ID) and row.state is PlacementState.GONE:
            row.external_id = f"{ERASED_ID}{fact.seq}"
            row.scope, row.stored_at, row.until = None, None, fact.valid_to
        merged.setdefault(row.key, row)
    return list(merged.values())


__all__ = ["derived"]
