"""Where entries and facts lead along their chains of supersession, in SQLite."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from datetime import datetime

from custody_sync.ledger.questions import Instants, Trail
from custody_sync.ledger.sqlite_reads import head_at
from custody_sync.ledger.trails import LINK, askable, asked_of, followed_of, links_of
from custody_sync.model import Entry, format_instant
from custody_sync.recalled import Followed, Link

_OWNERS = """
SELECT json_extract(a.value, '$.place'), coalesce(p.fact_id, f.fact_id)
FROM json_each(?) a LEFT JOIN placements p ON p.id = (
    SELECT q.id FROM placements q WHERE q.store = json_extract(a.value, '$.store')
    AND q.external_id = json_extract(a.value, '$.external_id')
    AND q.scope IS json_extract(a.value, '$.scope') ORDER BY q.state = 'gone', q.id DESC LIMIT 1
) LEFT JOIN facts f ON f.seq = (
    SELECT g.seq FROM json_each(a.value, '$.adopted') d CROSS JOIN facts g ON g.fact_id = d.value
    WHERE g.identity_gone LIMIT 1
)
"""
_FOLLOW = f"""
SELECT a.key, a.value,
    CASE WHEN f.seq IS NULL THEN (SELECT c.seq FROM claims c WHERE c.fact_id = a.value) END, {LINK}
FROM json_each(?) a LEFT JOIN facts f ON f.fact_id = a.value LEFT JOIN sealed s ON s.seq = f.seq
"""
_LAST = f"""
SELECT {LINK} FROM json_each(:roots) a CROSS JOIN facts f ON f.seq = (
    SELECT d.seq FROM facts d WHERE d.root = a.value AND d.effect_seq <= :head
    AND (d.retract_seq IS NULL OR d.retract_seq > :head) AND d.valid_from <= :valid_at
    ORDER BY d.effect_seq DESC LIMIT 1
) LEFT JOIN sealed s ON s.seq = f.seq
"""
_LINKS = f"""
SELECT {LINK}
FROM (SELECT DISTINCT r.root FROM json_each(?) a CROSS JOIN facts r ON r.fact_id = a.value) r
CROSS JOIN facts f ON f.root = r.root LEFT JOIN sealed s ON s.seq = f.seq ORDER BY f.root, f.seq
"""


def follow(
    conn: sqlite3.Connection, entries: Sequence[Entry], trail: Trail, now: datetime
) -> tuple[Instants, list[Followed]]:
    """Say of every entry where it leads, in the order given."""
    at = Instants.of(trail, head_at(conn, trail.tx_at), now)
    ids, unlabelled = asked_of(entries, trail)
    if unlabelled:
        for place, owner in conn.execute(_OWNERS, (json.dumps(unlabelled),)):
            ids[place] = owner
    rows = conn.execute(_FOLLOW, (json.dumps(ids),)).fetchall()
    found, roots = followed_of(rows, (), entries, at, trail)
    if roots:
        asked = {"roots": json.dumps(roots), "head": at.head.seq, "valid_at": format_instant(at.valid_at)}
        found, _ = followed_of(rows, conn.execute(_LAST, asked).fetchall(), entries, at, trail)
    return at, found


def links(
    conn: sqlite3.Connection, fact_ids: Sequence[str], trail: Trail, now: datetime
) -> tuple[Instants, list[tuple[Link, ...]]]:
    """Return the chain of every fact, in the order given; none of an unknown one."""
    at = Instants.of(trail, head_at(conn, trail.tx_at), now)
    rows = conn.execute(_LINKS, (json.dumps([askable(fact_id) for fact_id in fact_ids]),))
    return at, links_of(rows, fact_ids, at)


__all__ = ["follow", "links"]
