"""Notes beside the log in SQLite: leases, reservations and spools, which carry no facts."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from datetime import datetime, timedelta

from custody_sync.ledger.answers import mark_of, note_of
from custody_sync.ledger.sqlite_reads import listing
from custody_sync.ledger.storage import BEYOND, LEASED, MOVED, Identity, Mark, Note, Way
from custody_sync.model import format_instant

_NOTE = "topic, key, value, holder, since, expires_at"


def page(conn: sqlite3.Connection, topic: str, limit: int, after: str) -> list[Note]:
    """Return a topic's notes in order of key."""
    query = f"SELECT {_NOTE} FROM notes WHERE topic = ? AND key > ? ORDER BY key LIMIT ?"
    return [note_of(row) for row in conn.execute(query, (topic, after, limit))]


def at(conn: sqlite3.Connection, topic: str, keys: list[str]) -> dict[str, Note]:
    """Return a topic's notes by key, of these keys."""
    query = f"SELECT {_NOTE} FROM notes WHERE topic = ? AND key IN (SELECT value FROM json_each(?))"
    notes = (note_of(row) for row in conn.execute(query, (topic, listing(keys))))
    return {note.key: note for note in notes}


def acquire(
    conn: sqlite3.Connection,
    topic: str,
    key: str,
    value: str,
    holder: str,
    ttl: timedelta | None,
    now: datetime,
) -> Note:
    """Set a note unless another holder's has not lapsed and is not void; return the one that stands."""
    row = conn.execute(f"SELECT {_NOTE} FROM notes WHERE topic = ? AND key = ?", (topic, key)).fetchone()
    standing = None if row is None else note_of(row)
    mine = standing is not None and standing.holder == holder
    if standing is not None and not mine:
        ends = standing.expires_at
        if ends is None or (now < ends and (ttl is None or ends <= now + ttl + BEYOND)):
            return standing
    since = standing.since if standing is not None and mine else now
    expires_at = None if ttl is None else now + ttl
    note = Note(topic=topic, key=key, value=value, holder=holder, since=since, expires_at=expires_at)
    put(conn, [note])
    return note


def put(conn: sqlite3.Connection, notes: Sequence[Note]) -> None:
    """Set notes, new or over old ones."""
    conn.executemany(
        f"INSERT INTO notes ({_NOTE}) VALUES (?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (topic, key) DO UPDATE SET value = excluded.value, holder = excluded.holder, "
        "since = excluded.since, expires_at = excluded.expires_at",
        [
            (
                note.topic,
                note.key,
                note.value,
                note.holder,
                format_instant(note.since),
                None if note.expires_at is None else format_instant(note.expires_at),
            )
            for note in notes
        ],
    )


def drop(conn: sqlite3.Connection, topic: str, keys: Sequence[str] | None, holder: str | None) -> None:
    """Remove notes of a topic, by key or holder where given."""
    conn.execute(
        "DELETE FROM notes WHERE topic = :topic AND (:holder IS NULL OR holder = :holder) "
        "AND (:keys IS NULL OR key IN (SELECT value FROM json_each(:keys)))",
        {"topic": topic, "holder": holder, "keys": None if keys is None else json.dumps(list(keys))},
    )


def mark(conn: sqlite3.Connection) -> Mark | None:
    """Return what stops the ledger; whoever writes looks at it in the same transaction."""
    row = conn.execute("SELECT key, value, holder FROM notes WHERE topic = ? LIMIT 1", (MOVED,)).fetchone()
    return None if row is None else mark_of(row)


def set_mark(conn: sqlite3.Connection, was: Mark | None, wanted: Mark | None, now: datetime) -> bool:
    """Put a mark in another one's place, if that is what stands."""
    if mark(conn) != was:
        return False
    drop(conn, MOVED, None, None)
    if wanted is not None:
        put(conn, [note_of_mark(wanted, now)])
    return True


def mark_new(conn: sqlite3.Connection, identity: Identity, now: datetime) -> None:
    """Mark a ledger that is just being made for a move, so that at no moment it takes anything else."""
    if identity.arrives_from is not None:
        set_mark(conn, None, Mark(Way.FROM, identity.arrives_from), now)


def note_of_mark(mark: Mark, now: datetime) -> Note:
    """Return the note that a mark is kept as."""
    return Note(topic=MOVED, key=mark.way, value=mark.place, holder=mark.run, since=now)


def naming(conn: sqlite3.Connection, fact_ids: Sequence[str]) -> list[tuple[str, str, str]]:
    """Return (topic, key, fact id) of notes whose value is about one of these facts, as a spool's is."""
    return conn.execute(
        "SELECT topic, key, CASE WHEN json_valid(value) THEN json_extract(value, '$.fact_id') END AS fact_id "
        "FROM notes WHERE topic <> 'erasure' AND fact_id IN (SELECT value FROM json_each(?))",
        (json.dumps(list(fact_ids)),),
    ).fetchall()


def runs_naming(conn: sqlite3.Connection) -> bool:
    """Tell whether a sweep noted cursors or ids of a store, of which nobody knows whose they are."""
    # A version that does not say so may have.
    query = "SELECT 1 FROM notes WHERE topic = 'sweep-run' AND instr(value, '\"names\": false') = 0 LIMIT 1"
    return conn.execute(query).fetchone() is not None


def leased(conn: sqlite3.Connection, now: datetime) -> bool:
    """Tell whether somebody holds a lease, and may thus be at work on notes."""
    query = "SELECT 1 FROM notes WHERE topic = 'lease' AND expires_at > ? AND expires_at <= ? LIMIT 1"
    between = (format_instant(now), format_instant(now + LEASED))
    return conn.execute(query, between).fetchone() is not None
