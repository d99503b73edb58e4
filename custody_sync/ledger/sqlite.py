"""The SQLite storage: one writer thread that commits groups, one reader thread, one file.

WAL with `synchronous=FULL`, so that an acknowledged event survives a power cut;
`secure_delete`, so that an erased value does not stay in free pages. A second process may
write the same file: every group takes the write lock first and reads its head inside.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from custody_sync import errors
from custody_sync.errors.base import throw
from custody_sync.faultpoints import FaultPoint
from custody_sync.ledger import sqlite_files
from custody_sync.ledger import sqlite_reads as reads
from custody_sync.ledger.embedded import Embedded, Work, open_embedded
from custody_sync.ledger.sqlite_connection import Connection
from custody_sync.ledger.sqlite_erasure import Eraser, due
from custody_sync.ledger.sqlite_errors import damage, ledger_errors, translate
from custody_sync.ledger.sqlite_files import (
    TWO_NAMES,
    Location,
    check_header,
    check_schema,
    connect,
    exists,
    initialise,
    is_writable,
    locate,
)
from custody_sync.ledger.sqlite_reading import Reading
from custody_sync.ledger.sqlite_upgrade import upgrade
from custody_sync.ledger.storage import Identity
from custody_sync.ledger.whereabouts import Whereabouts, of_file
from custody_sync.model import Erasure
from custody_sync.runtime import Runtime


async def open_sqlite(
    rest: str, *, create: bool, read_only: bool, runtime: Runtime, identity: Identity | None = None
) -> SqliteStorage:
    """Open a ledger file; `rest` is what stands behind `sqlite:///` in its URL.

    One that is ready is opened at once: nothing of it has to be made, mended or waited for, and a
    thread would take longer to begin.
    """
    location = Location.parse(rest)
    if not create:
        ready = _open_if_ready(location, read_only, runtime)
        if ready is not None:
            return ready
    return await open_embedded(
        runtime, lambda readers: _open(location, create, read_only, runtime, readers, identity)
    )


def _open_if_ready(location: Location, read_only: bool, runtime: Runtime) -> SqliteStorage | None:
    try:
        if not exists(location, TWO_NAMES) or not check_header(location, create=False):
            return None
        writable = is_writable(location)
        reader = Reading(location, tidy=writable and not read_only, immutable=not writable, patience=0)
    except Exception:
        # Whatever it is, the thread that may wait says it properly.
        return None
    readers = runtime.executor("custody-reader")
    try:
        return SqliteStorage(location, None, reader, readers, runtime, writable=writable and not read_only)
    except BaseException:
        reader.close()
        readers.shutdown(wait=False)
        raise


def _open(
    location: Location,
    create: bool,
    read_only: bool,
    runtime: Runtime,
    readers: Executor,
    identity: Identity | None,
) -> SqliteStorage:
    locate(location, create=create)
    with ledger_errors(location.name), contextlib.ExitStack() as opened:
        is_ready = check_header(location, create=create)
        writable = not read_only and is_writable(location)
        writer: Connection | None = None
        if writable and not is_ready:
            if location.path.stat().st_size:
                # Looked at through a reading connection first, so that a foreign file stays untouched.
                with contextlib.closing(connect(location, write=False)) as probe:
                    _check_or_empty(probe, location, create)
            writer = opened.enter_context(contextlib.closing(connect(location, write=True)))
            if create:
                initialise(writer, location, runtime, identity)
            upgrade(writer, location, runtime.clock.now())
        reader = opened.enter_context(contextlib.closing(Reading(location, tidy=writable)))
        storage = SqliteStorage(location, writer, reader, readers, runtime, writable=writable)
        opened.pop_all()
        return storage


def _check_or_empty(probe: Connection, location: Location, create: bool) -> None:
    (tables,) = probe.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if tables or not create:
        check_schema(probe, location)


class SqliteStorage(Embedded):
    """One open ledger file; see `Storage` for what each method promises."""

    _forked = sqlite_files.FORKED

    def __init__(
        self,
        location: Location,
        writer: Connection | None,
        reader: Reading,
        readers: Executor,
        runtime: Runtime,
        *,
        writable: bool,
    ) -> None:
        super().__init__(location.name, writable, readers, runtime)
        self._location, self._file = location, location.file()
        self._connected, self._reader = writer, reader
        self._erases: Eraser | None = None
        self.ledger_id, self.secret = reader.run(reads.settings, ())

    @property
    def files(self) -> tuple[Path, ...]:
        """The file, and those that SQLite keeps beside it."""
        path = os.path.realpath(self._location.path)
        return tuple(Path(f"{path}{end}") for end in ("", "-wal", "-shm", "-journal"))

    async def whereabouts(self) -> Whereabouts:
        """Return the file's path and number; nothing writes it anew under another one."""
        return of_file(self.files[0], numbered=True)

    # --- writing ----------------------------------------------------------------------------

    @property
    def _writer(self) -> Connection:
        """The connection that writes, made when that is first needed: many who open a ledger only ask."""
        if self._connected is None:
            conn = connect(self._location, write=True)
            try:
                self._file.check()
            except BaseException:
                conn.close()
                raise
            self._connected = conn
        return self._connected

    @property
    def _eraser(self) -> Eraser:
        if self._erases is None:
            self._erases = Eraser(self._writer, self._location, self._runtime)
        return self._erases

    def _commit(self, works: Sequence[Work], tell: Callable[[], None]) -> list[Any]:
        self._file.check()
        conn = self._writer
        with ledger_errors(self.name):
            if not conn.begin_at_once():
                tell()
                conn.wait(sqlite_files.BUSY_TIMEOUT_MS)
                conn.execute("BEGIN IMMEDIATE")
        try:
            with ledger_errors(self.name), damage(self.name):
                applied = self._apply(conn, works)
            tell()
            self._runtime.reach(FaultPoint.BEFORE_COMMIT)
        except BaseException:
            self._leave(conn)
            raise
        self._send_commit(conn)
        self._eraser.remember(applied.salts)
        self._runtime.reach(FaultPoint.AFTER_COMMIT)
        return applied.results

    def _send_commit(self, conn: Connection) -> None:
        try:
            conn.let_go()
            conn.execute("COMMIT")
        except sqlite3.Error as error:
            self._leave(conn)
            known = translate(error, self.name)
            if isinstance(known, errors.LedgerFull | errors.LedgerBusy | errors.LedgerReadOnly):
                throw(known)
            throw(errors.OutcomeUnknown(name=self.name))

    def _leave(self, conn: Connection) -> None:
        with contextlib.suppress(sqlite3.Error):
            conn.leave()

    # --- erasure ----------------------------------------------------------------------------

    async def erase(self) -> Erasure:
        """Drive erased values out of WAL and free pages; pending where another reader is in the way."""
        if not self.writable:
            return Erasure.PENDING if await self._read(due) else Erasure.DONE
        erasure: Erasure = await self._do(self._writers, self._erase)
        return erasure

    def _erase(self) -> Erasure:
        self._file.check()
        try:
            return self._eraser.run()
        finally:
            self._writer.let_go()

    # --- reading and closing ----------------------------------------------------------------

    def _ask(self, query: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        return self._reader.run(query, args)

    def _ask_at_once(self, query: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        return self._reader.at_once(query, args)

    def _close_reading(self) -> None:
        self._reader.close()

    def _close_writing(self) -> None:
        # Closing the last connection folds the write-ahead log into the main file.
        if self._connected is not None:
            self._connected.close()
