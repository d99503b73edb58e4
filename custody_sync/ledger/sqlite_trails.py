"""Where entries and facts lead along their chains of supersession, in SQLite."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from datetime import datetime

from custody_sync.ledger.answers import ANSWERED
from custody_sync.ledger.questions import Instants, Trail
from custody_sync.ledger.sqlite_asof import BELIEVED, CLAIMED
from custody_sync.ledger.sqlite_reads import head_at
from custody_sync.ledger.trails import MARKS, asked_of, followed_of, links_of
from custody_sync.model import Entry, format_instant
from custody_sync.recalled import Followed, Link

# At most one link of a chain is believed; a claim that is asked for leads to itself as well.
_FOLLOW = f"""
SELECT e.place, e.fact_id, c.standing, c.seq, {MARKS.format(f="h")}, {ANSWERED} FROM (
    SELECT a.key AS place, coalesce(json_extract(a.value, '$.fact_id'), (
        SELECT p.fact_id FROM placements p
        WHERE p.store = json_extract(a.value, '$.store')
        AND p.external_id = json_extract(a.value, '$.external_id')
        AND p.scope IS json_extract(a.value, '$.scope') AND p.state <> 'gone' ORDER BY p.id DESC LIMIT 1
    )) AS fact_id FROM json_each(:asked) a
) e
LEFT JOIN claims c ON c.fact_id = e.fact_id
LEFT JOIN facts h ON h.fact_id = e.fact_id
LEFT JOIN facts f ON f.root = h.root AND (({BELIEVED}) OR (:claimed AND f.seq = h.seq AND {CLAIMED}))
LEFT JOIN sealed s ON s.seq = f.seq ORDER BY e.place
"""
_LINKS = f"""
SELECT a.key, {MARKS.format(f="f")}, {ANSWERED} FROM json_each(:asked) a
JOIN facts r ON r.fact_id = a.value JOIN facts f ON f.root = r.root AND f.seq <= :head
LEFT JOIN sealed s ON s.seq = f.seq ORDER BY a.key, f.seq
"""


def follow(
    conn: sqlite3.Connection, entries: Sequence[Entry], trail: Trail, now: datetime
) -> tuple[Instants, list[Followed]]:
    """Say of every entry where it leads, in the order given."""
    at = Instants.of(trail, head_at(conn, trail.tx_at), now)
    asked = {
        "asked": json.dumps(asked_of(entries)),
        "head": at.head.seq,
        "valid_at": format_instant(at.valid_at),
        "claimed": trail.include_claimed,
    }
    return at, followed_of(conn.execute(_FOLLOW, asked), len(entries), at)


def links(
    conn: sqlite3.Connection, fact_ids: Sequence[str], trail: Trail, now: datetime
) -> tuple[Instants, list[tuple[Link, ...]]]:
    """Return the chain of every fact, in the order given; none of an unknown one."""
    at = Instants.of(trail, head_at(conn, trail.tx_at), now)
    asked = {"asked": json.dumps(list(fact_ids)), "head": at.head.seq}
    return at, links_of(conn.execute(_LINKS, asked), len(fact_ids), at)


__all__ = ["follow", "links"]
