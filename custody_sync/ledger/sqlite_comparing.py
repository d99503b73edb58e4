"""What a store holds, or lacks, beside what the ledger has on record of it, in SQLite."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from datetime import datetime

from custody_sync.canonical import is_text
from custody_sync.ledger.answers import ANSWERED, NOTHING, Row, compared_of, held_of
from custody_sync.ledger.sqlite_asof import unchanged
from custody_sync.ledger.sqlite_reads import PLACEMENT, head, known, present
from custody_sync.ledger.storage import Compared, Held
from custody_sync.model import Page

_CURRENT = "(p.state = 'held' OR (p.state = 'kept' AND :keep)) AND (p.until IS NULL OR p.until > :now)"
# An entry may be on record for several facts; which of them counts is told when all were read.
_COMPARE = f"""
SELECT e.key, CASE WHEN f.seq IS NULL OR e.value = ''
    THEN (SELECT c.standing FROM claims c WHERE c.fact_id = e.value) ELSE 'asserted' END,
    p.id, p.fact_id, p.state, p.stored_at, f.seq IS NOT NULL, {ANSWERED}
FROM json_each(:listed) e
LEFT JOIN placements p ON p.store = :store AND p.external_id = e.key
LEFT JOIN facts f ON f.fact_id = p.fact_id AND e.value IN (p.fact_id, '') AND {_CURRENT}
LEFT JOIN sealed s ON s.seq = f.seq
"""
_HELD = f"""
SELECT id, {PLACEMENT} FROM placements
WHERE +store = :store AND state IN ('held', 'kept') AND (until IS NULL OR until > :now) AND id > :after
ORDER BY id LIMIT :limit
"""
# The unary plus keeps SQLite on the order of the log, so that all pages together read the table once.
_LACKING = """
SELECT f.seq, f.fact_id FROM facts f WHERE {kind} AND f.seq > :after AND NOT EXISTS (
    SELECT 1 FROM placements p
    WHERE p.fact_id = f.fact_id AND +p.store = :store AND p.state IN ('held', 'kept')
) ORDER BY f.seq LIMIT :limit
"""


def compare(
    conn: sqlite3.Connection, store: str, listed: dict[str, str], keep: bool, now: datetime
) -> list[Compared]:
    """Say of every listed entry what there is on it, in the order given."""
    asked, text = listed, json.dumps(listed)
    if "\\u" in text:
        # SQLite's JSON functions could not give back what no ledger can hold.
        asked = {key: fact_id for key, fact_id in listed.items() if is_text(key)}
        text = json.dumps({key: fact_id if is_text(fact_id) else None for key, fact_id in asked.items()})
    parameters = {"listed": text, "store": store, "keep": keep, "now": present(conn, now)}
    found = conn.execute(_COMPARE, parameters).fetchall()
    rows: dict[str, Row] = {row[0]: row for row in found}
    # Every entry has a row at least; only where one has several is it asked which of them counts.
    for row in found if len(found) > len(rows) else ():
        if _weight(row, asked) > _weight(rows[row[0]], asked):
            rows[row[0]] = row
    if len(asked) < len(listed):
        odd = [external_id for external_id in listed if external_id not in asked]
        standings = known(conn, [listed[external_id] for external_id in odd])
        for external_id in odd:
            standing = standings[listed[external_id]]
            rows[external_id] = (external_id, standing.value, *NOTHING[2:])
    return [compared_of(external_id, rows[external_id]) for external_id in listed]


def _weight(row: Row, listed: Mapping[str, str]) -> tuple[bool, bool, int]:
    """Order what is on record for one entry: what is not gone, then the fact's own, then the latest."""
    return row[4] != "gone", row[3] == listed[row[0]], row[2]


def held(conn: sqlite3.Connection, store: str, limit: int, after: int, now: datetime) -> Page[Held]:
    """Return a page of a store's current placements in order of place."""
    asked = {"store": store, "now": present(conn, now), "after": after, "limit": limit + 1}
    rows = conn.execute(_HELD, asked).fetchall()
    found = [held_of(row) for row in rows[:limit]]
    return Page(found, head=head(conn), next=found[-1].place if len(rows) > limit else None)


def lacking(conn: sqlite3.Connection, store: str, limit: int, after: int, now: datetime) -> Page[str]:
    """Return a page of the facts believed now that a store has no current placement of."""
    asked = {
        "store": store,
        "valid_at": present(conn, now),
        "head": head(conn).seq,
        "after": after,
        "limit": limit + 1,
    }
    rows: list[tuple[int, str]] = []
    for kind in unchanged(conn, asked):
        rows += conn.execute(_LACKING.format(kind=kind), asked).fetchall()
    rows.sort()
    found = rows[:limit]
    return Page(
        [fact_id for _, fact_id in found],
        head=head(conn),
        next=found[-1][0] if len(rows) > limit else None,
    )


__all__ = ["compare", "held", "lacking"]
