"""Reading a SQLite ledger file: one connection that notices when the file under it changes.

A file that cannot be written is read as `immutable`, and SQLite then trusts that nobody else
changes it. Somebody who may write it can, so the file is looked at around every read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from custody_sync.errors import ClosedError, LedgerBusy, LedgerError
from custody_sync.ledger.sqlite_errors import damage, ledger_errors
from custody_sync.ledger.sqlite_files import Location, check_schema, connect, is_immutable

TRIES = 3


class Reading:
    """A reading connection to one ledger file.

    Raises:
        LedgerError: the file is no ledger, or cannot be read as it is.
    """

    def __init__(self, location: Location) -> None:
        self._location = location
        self._file = location.file()
        self._immutable = is_immutable(location)
        self._state = self._file.state()
        self._closed = False
        self._conn = connect(location, write=False)
        try:
            check_schema(self._conn, location)
        except BaseException:
            self._conn.close()
            raise

    def run(self, query: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Answer a question in one read transaction.

        Raises:
            ClosedError: it was waiting its turn when the ledger was closed.
        """
        if self._closed:
            raise ClosedError(what=self._location.name)
        self._file.check()
        if not self._immutable:
            return self._ask(query, args)
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

    def _ask(self, query: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        name = self._location.name
        with ledger_errors(name), damage(name):
            self._conn.execute("BEGIN")
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
            fresh = connect(self._location, write=False)
        self._conn.close()
        self._conn, self._state, self._immutable = fresh, state, immutable

    def close(self) -> None:
        """Close the connection."""
        self._closed = True
        self._conn.close()
