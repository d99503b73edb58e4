"""Reading a SQLite ledger file: one connection that notices when the file under it changes.

A file that cannot be written is read as `immutable`, and SQLite then trusts that nobody else
changes it. Somebody who may write it can, so the file is looked at around every read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

from custody_sync.errors import ClosedError, LedgerBusy, LedgerError
from custody_sync.ledger.sqlite_connection import Connection
from custody_sync.ledger.sqlite_errors import damage, ledger_errors
from custody_sync.ledger.sqlite_files import (
    BUSY_TIMEOUT_MS,
    Location,
    check_schema,
    connect,
    is_immutable,
)

TRIES = 3
PIECE = 1_000
"""Instructions of SQLite's between two looks at how long a brief question takes."""
BRIEF = 20
"""Pieces that a brief question may take: about half a millisecond."""


class Later:
    """No answer yet: the question has to be asked where waiting disturbs nobody."""


LATER: Final = Later()


class Reading:
    """A reading connection to one ledger file.

    Args:
        location: the file.
        tidy: whether it takes SQLite's own files away when it is closed last.
        immutable: what `is_immutable` just said, if it was asked.
        patience: how long to wait for others, in milliseconds, until it is open.

    Raises:
        LedgerError: the file is no ledger, or cannot be read as it is.
    """

    def __init__(
        self,
        location: Location,
        *,
        tidy: bool = False,
        immutable: bool | None = None,
        patience: int = BUSY_TIMEOUT_MS,
    ) -> None:
        self._location = location
        self._file = location.file()
        self._immutable = is_immutable(location) if immutable is None else immutable
        # Only of a file that is read without locks has anybody to see by itself that it was changed.
        self._state = self._file.state() if self._immutable else ()
        self._closed = False
        self._one_at_a_time = threading.Lock()
        self._conn = connect(location, write=False, immutable=self._immutable, tidy=tidy)
        try:
            self._conn.wait(patience)
            check_schema(self._conn, location)
            self._conn.wait(0)
        except BaseException:
            self._conn.close()
            raise

    def run(self, query: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Answer a question in one read transaction, and wait for whatever it takes.

        Raises:
            ClosedError: it was waiting its turn when the ledger was closed.
        """
        with self._one_at_a_time:
            if self._closed:
                raise ClosedError(what=self._location.name)
            self._file.check()
            if self._immutable:
                return self._ask_of_one_state(query, args)
            try:
                return self._ask(query, args)
            except LedgerBusy:
                return self._ask_patiently(query, args)

    def at_once(self, query: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Answer a question in no more than a moment and without waiting for anybody, or say `LATER`."""
        if self._immutable or not self._one_at_a_time.acquire(blocking=False):
            return LATER
        try:
            if self._closed:
                return LATER
            self._file.check()
            return self._transact(within_bounds, (query, args))
        except Exception:
            # Whatever it is, asking once more says it properly.
            return LATER
        finally:
            self._one_at_a_time.release()

    def _ask_of_one_state(self, query: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        for _ in range(TRIES):
            self._keep_up()
            try:
                answer = self._ask(query, args)
            except LedgerError:
                # Neither an answer nor an error can be trusted if the file changed meanwhile.
                if self._file.state() == self._state:
                    raise
                continue
            if self._file.state() == self._state:
                return answer
        raise LedgerBusy(name=self._location.name)

    def _ask_patiently(self, query: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        self._conn.wait(BUSY_TIMEOUT_MS)
        try:
            return self._ask(query, args)
        finally:
            self._conn.wait(0)

    def _ask(self, query: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        name = self._location.name
        with ledger_errors(name), damage(name):
            return self._transact(query, args)

    def _transact(self, query: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        self._conn.begin()
        try:
            return query(self._conn, *args)
        finally:
            self._conn.leave()

    def _keep_up(self) -> None:
        state = self._file.state()
        if state == self._state:
            return
        with ledger_errors(self._location.name):
            immutable = is_immutable(self._location)
            fresh = connect(self._location, write=False, immutable=immutable)
        self._conn.close()
        self._conn, self._state, self._immutable = fresh, state, immutable

    def close(self) -> None:
        """Close the connection."""
        with self._one_at_a_time:
            self._closed = True
            self._conn.close()


def within_bounds(conn: Connection, query: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Answer a question if that takes no more than a moment.

    Raises:
        sqlite3.OperationalError: it takes longer.
    """
    pieces = 0

    def stop() -> bool:
        nonlocal pieces
        pieces += 1
        return pieces > BRIEF

    # SQLite counts on from one use of a statement to the next, so the first look may come at once.
    conn.set_progress_handler(stop, PIECE)
    try:
        return query(conn, *args)
    finally:
        conn.set_progress_handler(None, 0)
