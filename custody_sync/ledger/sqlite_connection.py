"""A SQLite connection whose transactions end when they are told to."""

from __future__ import annotations

import sqlite3
import time
import weakref
from typing import Any

from custody_sync.rawfiles import Hold

MOMENT = 0.01
"""Seconds between two tries."""


def is_busy(error: sqlite3.OperationalError) -> bool:
    """Tell whether somebody else has what a statement needs."""
    return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class Connection(sqlite3.Connection):
    """A connection that remembers the cursors of its statements and can close them.

    One half-read cursor keeps a read transaction open whatever COMMIT or ROLLBACK says: later
    reads would answer from its old snapshot. Such a cursor lives on in the traceback of the
    exception that interrupted it, and closing the connection alone would not end it either.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._cursors: list[weakref.ref[sqlite3.Cursor]] = []
        self._patience: int | None = None
        self._hold: Hold | None = None

    def keep(self, hold: Hold | None) -> None:
        """Have what spares the file's locks until the connection is closed."""
        self._hold = hold

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """Execute a statement; its cursor ends with the transaction, whoever still holds it."""
        made = super().execute(sql, parameters)
        self._cursors.append(weakref.ref(made))
        return made

    def begin(self) -> None:
        """Begin a transaction that takes the state it reads when it first reads."""
        super().execute("BEGIN")

    def wait(self, milliseconds: int) -> None:
        """Wait so long for other connections from now on."""
        if milliseconds != self._patience:
            super().execute(f"PRAGMA busy_timeout = {milliseconds}")
            self._patience = milliseconds

    def log_ahead(self, milliseconds: int) -> None:
        """Have the file keep a write-ahead log, within so long.

        Of several who make a ledger's file at once SQLite refuses all but one here, without a wait: each
        has read the file, and none may write it while another has. After it the first has done it for all.

        Raises:
            sqlite3.OperationalError: others have kept the file locked all the time.
        """
        until = time.monotonic() + milliseconds / 1000
        while True:
            try:
                self.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() >= until:
                    raise
            time.sleep(MOMENT)

    def begin_at_once(self) -> bool:
        """Take the write lock if nobody else has it, without waiting now or later in the transaction."""
        self.wait(0)
        try:
            self.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
            return False
        return True

    def let_go(self) -> None:
        """Close every cursor, read to its end or not."""
        for held in self._cursors:
            cursor = held()
            if cursor is not None:
                cursor.close()
        self._cursors.clear()

    def leave(self) -> None:
        """End a transaction that changes nothing, or whose changes are not wanted."""
        self.let_go()
        # Some errors (a full disk) have ended it already.
        if self.in_transaction:
            super().execute("ROLLBACK")

    def close(self) -> None:
        """Close the connection and with it every cursor."""
        self.let_go()
        super().close()
        if self._hold is not None:
            self._hold.release()
            self._hold = None
