"""What had to go and what is still to do, in SQLite."""

from __future__ import annotations

import sqlite3
from datetime import datetime
from typing import Any

from custody_sync.ledger.outstanding import UNTRIED, About, Backlog, Removed, RemovedCount
from custody_sync.ledger.outstanding_rows import beginning, gather, group, is_pattern
from custody_sync.ledger.rows import MAX_PLACEMENTS
from custody_sync.ledger.sqlite_reads import OWED_NOW, WAITING, has_later, head
from custody_sync.model import Page, format_instant

_PLACEMENT = "r.store, r.external_id, r.fact_id, r.scope, r.stored_at, r.state, r.outcome"
_FIRST = (
    "NOT EXISTS (SELECT 1 FROM placements q WHERE q.fact_id = p.fact_id AND q.id < p.id "
    "AND q.state IN ('due', 'gone'))"
)
_IN_SPACE = (
    "AND EXISTS (SELECT 1 FROM facts f WHERE f.fact_id = p.fact_id AND NOT f.identity_gone AND {space})"
)
# A removal is on record as an event of the fact, or as that of the link that covers it.
_SINCE = """
AND (EXISTS (
    SELECT 1 FROM events e WHERE e.fact_id = p.fact_id AND e.seq >= :since
    AND json_extract(e.body, '$.kind') IN ('retract', 'forget', 'repair', 'remove')
) OR EXISTS (
    SELECT 1 FROM facts f JOIN facts d ON d.root = f.root AND d.effect_seq > f.effect_seq
    WHERE f.fact_id = p.fact_id AND d.effect_seq >= :since AND d.retract_seq IS NULL
))
"""
# Each state has an index of its own; one ordered walk over both would sort all that is left for each page.
_PAGE = """
WITH due AS (
    SELECT p.id, p.fact_id FROM placements p
    WHERE p.state = 'due' AND p.id > :after AND {first} {about} ORDER BY p.id LIMIT :limit
), gone AS (
    SELECT p.id, p.fact_id FROM placements p
    WHERE p.state = 'gone' AND p.id > :after AND {first} {about} ORDER BY p.id LIMIT :limit
), page AS MATERIALIZED (
    SELECT id, fact_id FROM (SELECT * FROM due UNION ALL SELECT * FROM gone) ORDER BY id LIMIT :limit
)
SELECT page.id, {placement} FROM page CROSS JOIN placements r ON r.fact_id = page.fact_id
ORDER BY page.id, r.id
"""
_COUNT = """
SELECT p.store, sum({first}) FROM (
    SELECT id, store, fact_id FROM placements WHERE state = 'due'
    UNION ALL SELECT id, store, fact_id FROM placements WHERE state = 'gone'
) p WHERE true {about} GROUP BY p.store ORDER BY p.store
"""
# When an entry became due: with the event that took its fact out of the stores, else with the first that
# names the entry's fact after it was placed, else when it was put on record.
_PENDING = f"""
SELECT store, outcome, count(*), min((SELECT e.tx_time FROM events e WHERE e.seq = since)) FROM (
    SELECT p.store, coalesce(p.outcome, '{UNTRIED}') AS outcome, max(p.id / {MAX_PLACEMENTS}, coalesce(
        (SELECT nullif(min(
            coalesce(f.retract_seq, 1 << 60), coalesce(f.forget_seq, 1 << 60),
            coalesce((SELECT min(d.effect_seq) FROM facts d WHERE d.root = f.root
                AND d.effect_seq > f.effect_seq AND d.retract_seq IS NULL), 1 << 60)
        ), 1 << 60) FROM facts f WHERE f.fact_id = p.fact_id),
        (SELECT min(e.seq) FROM events e WHERE e.fact_id = p.fact_id AND e.seq > p.id / {MAX_PLACEMENTS}
            AND json_extract(e.body, '$.kind') IN ('remove', 'place')), 0
    )) AS since FROM placements p WHERE p.state = 'due'
) GROUP BY store, outcome
"""
# The ends are few beside all that is held: only these are in the index.
_ENDED = f"""
SELECT store, '{UNTRIED}', count(*), min(until) FROM placements
WHERE until IS NOT NULL AND until <= :now AND state IN ('held', 'kept') GROUP BY store
"""
_OWED = f"""
SELECT o.store, sum({OWED_NOW}), sum({WAITING}), min(CASE WHEN {WAITING} THEN o.due_at END)
FROM owed o JOIN facts f ON f.fact_id = o.fact_id GROUP BY o.store
"""
_OWED_BEFORE = """
SELECT o.store, count(*), 0, NULL FROM owed o JOIN facts f ON f.fact_id = o.fact_id
WHERE f.valid_to IS NULL OR f.valid_to > :now GROUP BY o.store
"""


def removed_facts(conn: sqlite3.Connection, about: About, limit: int, after: int) -> Page[Removed]:
    """Return a page of facts of which something had to go."""
    asked = {**_asked(conn, about), "after": after, "limit": limit + 1}
    found = group(conn.execute(_filled(_PAGE, about), asked).fetchall())
    more = found[limit - 1].place if len(found) > limit else None
    return Page(found[:limit], head=head(conn), next=more)


def count_removed(conn: sqlite3.Connection, about: About) -> RemovedCount:
    """Count the facts of which something had to go."""
    rows = conn.execute(_filled(_COUNT, about), _asked(conn, about)).fetchall()
    return RemovedCount(sum(count for _, count in rows), tuple(store for store, _ in rows))


def backlog(conn: sqlite3.Connection, now: datetime) -> list[Backlog]:
    """Return what is still to do by store."""
    (tx_time,) = conn.execute("SELECT tx_time FROM head").fetchone()
    present = max(format_instant(now), tx_time or "")
    owed = _OWED if has_later(conn) else _OWED_BEFORE
    asked = {"now": present}
    pending = conn.execute(_PENDING).fetchall() + conn.execute(_ENDED, asked).fetchall()
    return gather(pending, conn.execute(owed, asked).fetchall())


def _filled(query: str, about: About) -> str:
    where = ""
    if about.space is not None:
        space = "substr(f.space, 1, length(:space)) = :space" if is_pattern(about) else "f.space = :space"
        where += _IN_SPACE.format(space=space)
    if about.since is not None:
        where += _SINCE
    return query.format(first=_FIRST, about=where, placement=_PLACEMENT)


def _asked(conn: sqlite3.Connection, about: About) -> dict[str, Any]:
    since: int | None = None
    if about.since is not None:
        row = conn.execute(
            "SELECT seq FROM events WHERE tx_time >= ? ORDER BY tx_time LIMIT 1",
            (format_instant(about.since),),
        ).fetchone()
        # A place that no event has yet, where nothing was recorded since.
        since = row[0] if row is not None else 1 << 60
    return {"space": beginning(about), "since": since}


__all__ = ["backlog", "count_removed", "removed_facts"]
