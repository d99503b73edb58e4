"""The notes beside a JSONL ledger: a small SQLite file of its secret, leases, reservations and spools.

It carries no facts. A log that was copied without it is a whole ledger with a new secret.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from datetime import datetime

from custody_sync.errors import LedgerError
from custody_sync.ledger.jsonl_files import Files
from custody_sync.ledger.jsonl_lock import give
from custody_sync.ledger.sqlite_errors import ledger_errors
from custody_sync.ledger.sqlite_files import BUSY_TIMEOUT_MS, schema_statements
from custody_sync.ledger.sqlite_notes import mark_new
from custody_sync.ledger.storage import Identity

_BESIDE = re.compile("CREATE TABLE (settings|notes) ")


def tables(*, beside: bool) -> Iterator[str]:
    """Yield the statements that make the tables of the notes, or all the others."""
    for statement in schema_statements():
        if bool(_BESIDE.search(statement)) == beside:
            yield _BESIDE.sub(r"CREATE TABLE beside.\1 ", statement)


def provide(
    files: Files, ledger_id: str, made: Callable[[], Identity], like: os.stat_result | None, now: datetime
) -> None:
    """Make the notes of a ledger that has none; done under its lock."""
    if are_there(files):
        return
    handle = os.open(files.notes, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    give(handle, like)
    os.close(handle)
    with ledger_errors(f"{files.name}-notes"), contextlib.closing(_connect()) as conn:
        _attach(conn, f"{files.notes.as_uri()}?mode=rw")
        conn.execute("BEGIN")
        _fill(conn, ledger_id, made().secret)
        mark_new(conn, made(), now)
        conn.execute("COMMIT")


def are_there(files: Files) -> bool:
    """Tell whether notes lie beside the log."""
    return files.notes.exists() and files.notes.stat().st_size > 0


def attach(
    conn: sqlite3.Connection, files: Files, ledger_id: str, secret: Callable[[], bytes], *, write: bool
) -> None:
    """Attach the notes to a connection as `beside`.

    A reader that finds none, or may not read them, gets some of its own, with the given secret.

    Raises:
        LedgerError: those that lie there are of another ledger.
    """
    with ledger_errors(f"{files.name}-notes"):
        if not write and not (are_there(files) and os.access(files.notes, os.R_OK)):
            conn.execute("ATTACH ':memory:' AS beside")
            _fill(conn, ledger_id, secret())
            return
        _attach(conn, f"{files.notes.as_uri()}?mode={'rw' if write else 'ro'}")
        conn.execute(f"PRAGMA beside.synchronous = {'FULL' if files.durable else 'OFF'}")
        # On macOS alone an fsync does not reach the disk without it.
        conn.execute("PRAGMA fullfsync = ON")
        (owner,) = conn.execute("SELECT value FROM beside.settings WHERE name = 'ledger_id'").fetchone()
    if bytes(owner).decode() != ledger_id:
        raise strangers(files)


def strangers(files: Files) -> LedgerError:
    """Return what to say of notes that belong to another ledger."""
    problem = f"the notes beside it ({files.notes.name}) are of another ledger; move them away"
    return LedgerError(name=files.name, problem=problem)


def _connect() -> sqlite3.Connection:
    return sqlite3.connect(":memory:", uri=True, isolation_level=None, timeout=BUSY_TIMEOUT_MS / 1000)


def _attach(conn: sqlite3.Connection, uri: str) -> None:
    conn.execute("ATTACH ? AS beside", (uri,))
    conn.execute("PRAGMA secure_delete = ON")


def _fill(conn: sqlite3.Connection, ledger_id: str, secret: bytes) -> None:
    for statement in tables(beside=True):
        conn.execute(statement)
    settings = [("ledger_id", ledger_id.encode()), ("secret", secret)]
    conn.executemany("INSERT INTO beside.settings (name, value) VALUES (?, ?)", settings)
