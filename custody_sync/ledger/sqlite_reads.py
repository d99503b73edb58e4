"""The questions a ledger answers, in SQLite; each runs inside one read transaction."""

from __future__ import annotations

import json
import sqlite3
from datetime import datetime
from typing import Any

from custody_sync.canonical import is_text
from custody_sync.ledger.answers import (
    ANSWERED,
    STANDINGS,
    account_of,
    event_at,
    exported,
    fact_of,
    head_of,
    placement_of,
    unaccounted_of,
    waiting_of,
)
from custody_sync.ledger.chain import SECTIONS
from custody_sync.ledger.storage import Account, Unaccounted, Waiting
from custody_sync.model import (
    Event,
    Fact,
    Head,
    Page,
    Placement,
    PlacementState,
    Standing,
    format_instant,
)

PLACEMENT = "store, external_id, fact_id, scope, stored_at, state, outcome"

OWED_NOW = (
    "o.due_at <= :now AND (f.valid_to IS NULL OR f.valid_to > :now) "
    "AND (f.covered_from IS NULL OR f.covered_from > :now)"
)
# What takes its place when it begins leaves it nothing to be placed for.
WAITING = "o.due_at > :now AND (f.covered_from IS NULL OR f.covered_from > o.due_at)"
_OWED_BEFORE = "(f.valid_to IS NULL OR f.valid_to > :now)"
"""In ledgers of a version in which everything began when it was written."""
_WAITING = f"""
WITH page AS MATERIALIZED (
    SELECT DISTINCT f.seq FROM owed o JOIN facts f ON f.fact_id = o.fact_id
    WHERE f.seq > :after AND {WAITING} ORDER BY f.seq LIMIT :limit
)
SELECT f.seq, o.fact_id, o.store, o.due_at FROM page CROSS JOIN facts f ON f.seq = page.seq
JOIN owed o ON o.fact_id = f.fact_id ORDER BY f.seq, o.store
"""
_SUPERSEDED = """
SELECT e.tx_time FROM facts d JOIN events e ON e.seq = d.effect_seq
WHERE d.root = f.root AND d.effect_seq > f.effect_seq AND d.retract_seq IS NULL ORDER BY d.effect_seq LIMIT 1
"""


def settings(conn: sqlite3.Connection) -> tuple[str, bytes]:
    """Return what the ledger was given when it was made: its id and its secret."""
    found = dict(conn.execute("SELECT name, value FROM settings").fetchall())
    return bytes(found["ledger_id"]).decode(), bytes(found["secret"])


def head(conn: sqlite3.Connection) -> Head:
    """Return the committed head."""
    (at,) = conn.execute("SELECT seq, tx_time, hash FROM head").fetchall()
    return head_of(at)


def present(conn: sqlite3.Connection, now: datetime) -> str:
    """Return the later of the clock and the head: what has ended does not go on when a clock goes back."""
    (tx_time,) = conn.execute("SELECT tx_time FROM head").fetchone()
    return max(format_instant(now), tx_time or "")


def has_later(conn: sqlite3.Connection) -> bool:
    """Tell whether a database says when what is owed is due; an older one is read as it is."""
    (version,) = conn.execute("PRAGMA user_version").fetchone()
    return not 0 < version < 4


def head_at(conn: sqlite3.Connection, tx_at: datetime | None) -> Head:
    """Return the last event at or before an instant; the committed head where none is given."""
    if tx_at is None:
        return head(conn)
    row = conn.execute(
        "SELECT seq, tx_time, hash FROM events WHERE tx_time <= ? ORDER BY tx_time DESC LIMIT 1",
        (format_instant(tx_at),),
    ).fetchone()
    return head_of(row)


def get(conn: sqlite3.Connection, fact_id: str) -> Fact | None:
    """Return one fact whatever its state."""
    row = conn.execute(
        f"SELECT {ANSWERED} FROM facts f LEFT JOIN sealed s ON s.seq = f.seq WHERE f.fact_id = ?",
        (fact_id,),
    ).fetchone()
    return None if row is None else fact_of(row, row[12] or 0)


def facts(conn: sqlite3.Connection, ids: list[str]) -> dict[str, Fact | None]:
    """Return what there is of each id asked for."""
    query = (
        f"SELECT {ANSWERED} FROM facts f LEFT JOIN sealed s ON s.seq = f.seq "
        "WHERE f.fact_id IN (SELECT value FROM json_each(?))"
    )
    found: dict[str, Fact | None] = dict.fromkeys(ids)
    for row in conn.execute(query, (listing(ids),)):
        found[row[1]] = fact_of(row, row[12] or 0)
    return found


def history(conn: sqlite3.Connection, fact_id: str, limit: int, after: int) -> Page[Event]:
    """Return a page of one fact's events."""
    rows = conn.execute(
        "SELECT e.body, e.hash, s.content, s.identity, s.refs FROM events e "
        "LEFT JOIN sealed s ON s.seq = e.seq WHERE e.fact_id = ? AND e.seq > ? ORDER BY e.seq LIMIT ?",
        (fact_id, after, limit + 1),
    ).fetchall()
    found = [event_at(row) for row in rows[:limit]]
    return Page(found, head=head(conn), next=found[-1].seq if len(rows) > limit else None)


def events(conn: sqlite3.Connection, limit: int, after: int) -> list[dict[str, Any]]:
    """Return stored events with what is left of their sections, ready to be written as JSON lines."""
    columns = ", ".join(f"s.{name}, s.{name}_salt" for name in SECTIONS)
    rows = conn.execute(
        f"SELECT e.body, e.hash, {columns} FROM events e LEFT JOIN sealed s ON s.seq = e.seq "
        "WHERE e.seq > ? ORDER BY e.seq LIMIT ?",
        (after, limit),
    )
    return [exported(row) for row in rows]


def spaces(conn: sqlite3.Connection, limit: int, after: str) -> list[str]:
    """Return each space once, jumping from one to the next along the index."""
    query = """
    WITH RECURSIVE step(space) AS (
        SELECT min(space) FROM facts WHERE space > :after
        UNION ALL
        SELECT (SELECT min(f.space) FROM facts f WHERE f.space > step.space)
        FROM step WHERE step.space IS NOT NULL
    )
    SELECT space FROM step WHERE space IS NOT NULL LIMIT :limit
    """
    return [space for (space,) in conn.execute(query, {"limit": limit, "after": after})]


def accounts(
    conn: sqlite3.Connection, space: str | None, subject: str | None, limit: int, after: int
) -> Page[Account]:
    """Return a page of what there is on facts, without their values, in the order they were learned."""
    where = ["f.seq > :after"]
    if space is not None:
        where.append("+f.space = :space" if subject is not None else "f.space = :space")
    if subject is not None:
        where.append("f.subject = :subject")
    rows = conn.execute(
        f"SELECT f.seq, f.fact_id, f.space, f.subject, f.predicate, f.tx_time, f.retract_seq IS NOT NULL, "
        f"f.forget_seq IS NOT NULL, f.identity_gone, ({_SUPERSEDED}), "
        "(SELECT json_group_array(h.hold_id) FROM holds h WHERE h.fact_id = f.fact_id) "
        f"FROM facts f WHERE {' AND '.join(where)} ORDER BY f.seq LIMIT :limit",
        {"after": after, "space": space, "subject": subject, "limit": limit + 1},
    ).fetchall()
    found = [account_of(row[:-1], json.loads(row[-1])) for row in rows[:limit]]
    return Page(found, head=head(conn), next=found[-1].seq if len(rows) > limit else None)


def known(conn: sqlite3.Connection, ids: list[str]) -> dict[str, Standing]:
    """Return the standing of every id asked for."""
    query = "SELECT fact_id, standing FROM claims WHERE fact_id IN (SELECT value FROM json_each(?))"
    found = dict.fromkeys(ids, Standing.UNKNOWN)
    for fact_id, standing in conn.execute(query, (listing(ids),)):
        found[fact_id] = STANDINGS[standing]
    return found


def listing(ids: list[str]) -> str:
    """Return ids as the JSON list that a question takes, but for those that no ledger can hold.

    SQLite's JSON functions could not give these back.
    """
    text = json.dumps(ids)
    return json.dumps([one for one in ids if is_text(one)]) if "\\u" in text else text


def placements(conn: sqlite3.Connection, fact_id: str) -> list[Placement]:
    """Return a fact's placements in the order they were made."""
    query = f"SELECT {PLACEMENT} FROM placements WHERE fact_id = ? ORDER BY id"
    return [placement_of(row) for row in conn.execute(query, (fact_id,))]


def placements_of(conn: sqlite3.Connection, ids: list[str]) -> dict[str, list[Placement]]:
    """Return the placements of each id asked for, in the order they were made."""
    query = (
        f"SELECT {PLACEMENT} FROM placements WHERE fact_id IN (SELECT value FROM json_each(?)) ORDER BY id"
    )
    found: dict[str, list[Placement]] = {fact_id: [] for fact_id in ids}
    for row in conn.execute(query, (listing(ids),)):
        found[row[2]].append(placement_of(row))
    return found


def placements_in(
    conn: sqlite3.Connection, states: list[PlacementState], limit: int, after: int
) -> Page[Placement]:
    """Return a page of placements by state."""
    # Literal states let SQLite use the partial indexes; they come from the enum.
    wanted = ", ".join(f"'{PlacementState(state).value}'" for state in states)
    rows = conn.execute(
        f"SELECT {PLACEMENT}, id FROM placements WHERE state IN ({wanted}) AND id > ? ORDER BY id LIMIT ?",
        (after, limit + 1),
    ).fetchall()
    more = len(rows) > limit
    rows = rows[:limit]
    return Page(
        [placement_of(row[:-1]) for row in rows], head=head(conn), next=rows[-1][-1] if more else None
    )


def ended(conn: sqlite3.Connection, store: str, limit: int, after: int, now: datetime) -> Page[Placement]:
    """Return a page of a store's current placements of facts whose validity is over."""
    rows = conn.execute(
        f"SELECT {PLACEMENT}, id FROM placements WHERE store = ? AND state IN ('held', 'kept') "
        "AND until <= ? AND id > ? ORDER BY id LIMIT ?",
        (store, present(conn, now), after, limit + 1),
    ).fetchall()
    more = len(rows) > limit
    rows = rows[:limit]
    return Page(
        [placement_of(row[:-1]) for row in rows], head=head(conn), next=rows[-1][-1] if more else None
    )


def owed(
    conn: sqlite3.Connection, fact_id: str | None, limit: int, after: tuple[str, str], now: datetime
) -> list[tuple[str, str]]:
    """Return (fact id, store) pairs where a believed fact is missing, in order."""
    query = f"""
    SELECT o.fact_id, o.store FROM owed o JOIN facts f ON f.fact_id = o.fact_id
    WHERE (:fact IS NULL OR o.fact_id = :fact) AND (o.fact_id, o.store) > (:after_fact, :after_store)
    AND {OWED_NOW if has_later(conn) else _OWED_BEFORE} ORDER BY o.fact_id, o.store LIMIT :n
    """
    parameters = {
        "fact": fact_id,
        "after_fact": after[0],
        "after_store": after[1],
        "now": present(conn, now),
        "n": limit,
    }
    return list(conn.execute(query, parameters))


def waiting(conn: sqlite3.Connection, limit: int, after: int, now: datetime) -> Page[Waiting]:
    """Return a page of what is owed once it begins: so many facts, with all stores of each."""
    if not has_later(conn):
        return Page([], head=head(conn), next=None)
    asked = {"now": present(conn, now), "after": after, "limit": limit + 1}
    return waiting_of(conn.execute(_WAITING, asked).fetchall(), limit, head(conn))


def unaccounted(
    conn: sqlite3.Connection, store: str, pairs: dict[str, str], keep: bool, now: datetime
) -> list[Unaccounted]:
    """Return listed entries that are no current placements.

    A store may list ids that no ledger can hold, such as one with a NUL character. They are not
    asked for: SQLite's JSON functions could not give them back.
    """
    query = """
    SELECT e.key, c.standing, p.state, p.fact_id
    FROM json_each(:pairs) e
    LEFT JOIN placements p ON p.store = :store AND p.external_id = e.key
    LEFT JOIN claims c ON c.fact_id = e.value
    WHERE p.id IS NULL OR NOT (
        p.fact_id = e.value AND (p.state = 'held' OR (p.state = 'kept' AND :keep))
        AND (p.until IS NULL OR p.until > :now)
    ) AND NOT EXISTS (
        SELECT 1 FROM placements o WHERE o.store = :store AND o.external_id = e.key
        AND (o.state <> 'gone', o.fact_id = e.value, o.id) > (p.state <> 'gone', p.fact_id = e.value, p.id)
    )
    """
    asked, text = pairs, json.dumps(pairs)
    if "\\u" in text:
        # No fact has an empty id, so it stands for one that cannot be.
        asked = {key: fact_id if is_text(fact_id) else "" for key, fact_id in pairs.items() if is_text(key)}
        text = json.dumps(asked)
    parameters = {"pairs": text, "store": store, "keep": keep, "now": present(conn, now)}
    found = [
        unaccounted_of(external_id, pairs[external_id], standing, state, owner)
        for external_id, standing, state, owner in conn.execute(query, parameters)
    ]
    if asked is pairs:
        return found
    odd = [external_id for external_id in pairs if external_id not in asked]
    standings = known(conn, [pairs[external_id] for external_id in odd])
    return found + [Unaccounted(key, pairs[key], standings[pairs[key]], None, None) for key in odd]
