"""The SQLite storage: one writer thread that commits groups, one reader thread, one file.

WAL with `synchronous=FULL`, so that an acknowledged event survives a power cut;
`secure_delete`, so that an erased value does not stay in free pages. A second process may
write the same file: every group takes the write lock first and reads its head inside.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, wait
from datetime import datetime, timedelta
from typing import Any

from custody_sync import errors
from custody_sync.faultpoints import FaultPoint
from custody_sync.ledger import sqlite_notes as beside
from custody_sync.ledger import sqlite_reads as reads
from custody_sync.ledger.chain import Prepared
from custody_sync.ledger.checks import check_calendar
from custody_sync.ledger.grouping import GroupWriter
from custody_sync.ledger.replaying import Stored
from custody_sync.ledger.rules import Group, event_of
from custody_sync.ledger.sqlite_connection import Connection
from custody_sync.ledger.sqlite_erasure import Eraser, due
from custody_sync.ledger.sqlite_errors import damage, ledger_errors, throw, translate
from custody_sync.ledger.sqlite_files import (
    Location,
    check_header,
    check_schema,
    connect,
    initialise,
    is_writable,
    locate,
)
from custody_sync.ledger.sqlite_reading import Reading
from custody_sync.ledger.sqlite_rows import load, position, restore, write
from custody_sync.ledger.state import Needs
from custody_sync.ledger.storage import Account, AsOf, Identity, Note, Unaccounted
from custody_sync.model import (
    Erasure,
    Event,
    Fact,
    Head,
    Page,
    Placement,
    PlacementState,
    Standing,
)
from custody_sync.runtime import Runtime

NoteWork = Callable[[sqlite3.Connection], Any]


async def open_sqlite(
    rest: str, *, create: bool, read_only: bool, runtime: Runtime, identity: Identity | None = None
) -> SqliteStorage:
    """Open a ledger file; `rest` is what stands behind `sqlite:///` in its URL."""
    location = Location.parse(rest)
    readers = runtime.executor("custody-reader")
    opening = readers.submit(_open, location, create, read_only, runtime, readers, identity)
    try:
        return await asyncio.wrap_future(opening)
    except BaseException:
        # A thread cannot be stopped: what it opens after nobody waits for it is closed by itself.
        opening.add_done_callback(lambda done: _abandon(done, readers))
        raise


def _abandon(opening: Future[SqliteStorage], readers: Executor) -> None:
    if opening.cancelled() or opening.exception() is not None:
        readers.shutdown(wait=False)
    else:
        opening.result().end()


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
        check_header(location, create=create)
        writer: Connection | None = None
        if not read_only and is_writable(location):
            if location.path.stat().st_size:
                # Looked at through a reading connection first, so that a foreign file stays untouched.
                with contextlib.closing(connect(location, write=False)) as probe:
                    _check_or_empty(probe, location, create)
            writer = opened.enter_context(contextlib.closing(connect(location, write=True)))
            if create:
                initialise(writer, location, runtime, identity)
        reader = opened.enter_context(contextlib.closing(Reading(location)))
        storage = SqliteStorage(location, writer, reader, readers, runtime)
        opened.pop_all()
        return storage


def _check_or_empty(probe: Connection, location: Location, create: bool) -> None:
    (tables,) = probe.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if tables or not create:
        check_schema(probe, location)


class SqliteStorage:
    """One open ledger file; see `Storage` for what each method promises."""

    def __init__(
        self,
        location: Location,
        writer: Connection | None,
        reader: Reading,
        readers: Executor,
        runtime: Runtime,
    ) -> None:
        self.name = location.name
        self.writable = writer is not None
        self._file = location.file()
        self._runtime = runtime
        self._writer, self._reader, self._readers = writer, reader, readers
        self._writers = runtime.executor("custody-writer")
        self._group: GroupWriter[Prepared | NoteWork] = GroupWriter(self._writers, self._commit, self.name)
        self._eraser = None if writer is None else Eraser(writer, location, runtime)
        self._process = os.getpid()
        self._ending: Future[None] | None = None
        self._ending_once = threading.Lock()
        self.ledger_id, self.secret = reader.run(reads.settings, ())

    # --- writing ----------------------------------------------------------------------------

    async def commit(self, prepared: Prepared) -> Event:
        """Append one prepared draft with the next group."""
        return event_of(await self._write(prepared))

    async def restore(self, events: Sequence[Stored]) -> None:
        """Append events of another ledger as they are."""
        await self._write(lambda conn: restore(conn, events, self.name, self._now()))

    async def _write(self, work: Prepared | NoteWork) -> Any:
        self._check_usable()
        if self._writer is None:
            raise errors.LedgerReadOnly(name=self.name, cause="opened for reading")
        return await self._group.do(work)

    def _check_usable(self) -> None:
        """Refuse to work in a forked child, whose threads are gone and SQLite's locks with them."""
        if os.getpid() != self._process:
            raise errors.LedgerError(
                name=self.name, problem="it was opened before this process was forked; open it again here"
            )
        if self._ending is not None:
            raise errors.ClosedError(what=self.name)

    def _commit(self, works: Sequence[Prepared | NoteWork], tell: Callable[[], None]) -> list[Any]:
        conn = self._writer
        assert conn is not None  # noqa: S101  # _write lets nothing through without a writer
        self._file.check()
        with ledger_errors(self.name):
            if not conn.begin_at_once():
                tell()
                conn.execute("BEGIN IMMEDIATE")
        try:
            with ledger_errors(self.name), damage(self.name):
                results, salts = self._apply(conn, works)
            tell()
            self._runtime.reach(FaultPoint.BEFORE_COMMIT)
        except BaseException:
            self._leave(conn)
            raise
        self._send_commit(conn)
        if self._eraser is not None:
            self._eraser.remember(salts)
        self._runtime.reach(FaultPoint.AFTER_COMMIT)
        return results

    def _apply(
        self, conn: Connection, works: Sequence[Prepared | NoteWork]
    ) -> tuple[list[Any], dict[str, list[bytes]]]:
        drafts = [work for work in works if isinstance(work, Prepared)]
        results: dict[int, Any] = {}
        salts: dict[str, list[bytes]] = {}
        if drafts:
            group = self._group_at_head(conn, drafts)
            for draft in drafts:
                try:
                    results[id(draft)] = group.admit(draft)
                except errors.Refused as refusal:
                    results[id(draft)] = refusal
            if group.appended:
                salts = write(conn, group)
        return [results[id(w)] if isinstance(w, Prepared) else w(conn) for w in works], salts

    def _group_at_head(self, conn: sqlite3.Connection, drafts: Sequence[Prepared]) -> Group:
        at, now = position(conn), self._now()
        if at.tx_time is not None:
            check_calendar(at.tx_time, self.name, "its last event is of")
        return Group(load(conn, Needs.of(drafts)), at, now)

    def _now(self) -> datetime:
        return check_calendar(self._runtime.clock.now(), self.name, "its clock says")

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
        if self._writer is None:
            return Erasure.PENDING if await self._read(due) else Erasure.DONE
        erasure: Erasure = await self._do(self._writers, self._erase)
        return erasure

    def _erase(self) -> Erasure:
        self._file.check()
        assert self._eraser is not None  # noqa: S101  # erase() lets nothing through without a writer
        assert self._writer is not None  # noqa: S101  # as above
        try:
            return self._eraser.run()
        finally:
            self._writer.let_go()

    # --- reading ----------------------------------------------------------------------------

    async def _read(self, query: Callable[..., Any], *args: Any) -> Any:
        return await self._do(self._readers, self._run_read, query, args)

    async def _do(self, executor: Executor, work: Callable[..., Any], *args: Any) -> Any:
        self._check_usable()
        try:
            answer = executor.submit(work, *args)
        except RuntimeError:
            throw(errors.ClosedError(what=self.name))
        return await asyncio.wrap_future(answer)

    def _run_read(self, query: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        return self._reader.run(query, args)

    async def check(self, prepared: Prepared) -> None:
        """Decide on a draft against the committed state, without writing."""
        await self._read(self._check, prepared)

    def _check(self, conn: sqlite3.Connection, prepared: Prepared) -> None:
        self._group_at_head(conn, [prepared]).admit(prepared)

    async def as_of(self, question: AsOf) -> Page[Fact]:
        """Answer an as-of question in one read transaction."""
        page: Page[Fact] = await self._read(reads.as_of, question, self._runtime.clock.now())
        return page

    async def get(self, fact_id: str) -> Fact | None:
        """Return a fact whatever its state."""
        fact: Fact | None = await self._read(reads.get, fact_id)
        return fact

    async def history(self, fact_id: str, limit: int, after: int) -> Page[Event]:
        """Return one fact's events in order."""
        page: Page[Event] = await self._read(reads.history, fact_id, limit, after)
        return page

    async def events(self, limit: int, after: int) -> list[dict[str, Any]]:
        """Return stored events, sections and salts included, in order."""
        rows: list[dict[str, Any]] = await self._read(reads.events, limit, after)
        return rows

    async def spaces(self, limit: int, after: str) -> list[str]:
        """Return the spaces that have facts."""
        found: list[str] = await self._read(reads.spaces, limit, after)
        return found

    async def accounts(self, space: str | None, subject: str | None, limit: int, after: int) -> Page[Account]:
        """Return what there is on facts, a page at a time."""
        page: Page[Account] = await self._read(reads.accounts, space, subject, limit, after)
        return page

    async def known(self, ids: Sequence[str]) -> dict[str, Standing]:
        """Return the standing of every id."""
        found: dict[str, Standing] = await self._read(reads.known, list(ids))
        return found

    async def placements(self, fact_id: str) -> list[Placement]:
        """Return a fact's placements."""
        found: list[Placement] = await self._read(reads.placements, fact_id)
        return found

    async def placements_in(
        self, states: Sequence[PlacementState], limit: int, after: int
    ) -> Page[Placement]:
        """Return placements by state, a page at a time."""
        page: Page[Placement] = await self._read(reads.placements_in, list(states), limit, after)
        return page

    async def ended(self, store: str, limit: int, after: int) -> Page[Placement]:
        """Return a store's placements whose facts have ended, a page at a time."""
        now = self._runtime.clock.now()
        page: Page[Placement] = await self._read(reads.ended, store, limit, after, now)
        return page

    async def owed(self, fact_id: str | None, limit: int, after: tuple[str, str]) -> list[tuple[str, str]]:
        """Return what is owed, of one fact or of all."""
        now = self._runtime.clock.now()
        found: list[tuple[str, str]] = await self._read(reads.owed, fact_id, limit, after, now)
        return found

    async def unaccounted(self, store: str, pairs: Mapping[str, str], keep: bool) -> list[Unaccounted]:
        """Return the listed entries that are not current placements."""
        now = self._runtime.clock.now()
        found: list[Unaccounted] = await self._read(reads.unaccounted, store, dict(pairs), keep, now)
        return found

    async def head(self) -> Head:
        """Return the committed head."""
        head: Head = await self._read(reads.head)
        return head

    async def notes(self, topic: str, limit: int, after: str = "") -> list[Note]:
        """Return a topic's notes in order of key."""
        found: list[Note] = await self._read(beside.page, topic, limit, after)
        return found

    # --- notes ------------------------------------------------------------------------------

    async def acquire(self, topic: str, key: str, value: str, holder: str, ttl: timedelta) -> Note:
        """Set a note unless another holder's stands; return the one that stands now."""
        note: Note = await self._write(
            lambda conn: beside.acquire(conn, topic, key, value, holder, ttl, self._now())
        )
        return note

    async def put_notes(self, notes: Sequence[Note]) -> None:
        """Set notes in one transaction."""
        await self._write(lambda conn: beside.put(conn, notes))

    async def drop_notes(
        self, topic: str, keys: Sequence[str] | None = None, holder: str | None = None
    ) -> None:
        """Remove notes of a topic, by key or holder where given."""
        await self._write(lambda conn: beside.drop(conn, topic, keys, holder))

    async def close(self) -> None:
        """Finish what waits, then close file and threads; closing again waits for the same end."""
        if self._process == os.getpid():
            # Shielded: a close that nobody waits for any more goes on all the same.
            await asyncio.shield(asyncio.wrap_future(self.end()))

    def end(self) -> Future[None]:
        """Begin to close, once, and return when it will be done."""
        with self._ending_once:
            if self._ending is None:
                self._group.close()
                reader = self._readers.submit(self._reader.close)
                self._ending = self._writers.submit(self._close_writer, reader)
                self._writers.shutdown(wait=False)
                self._readers.shutdown(wait=False)
            return self._ending

    def _close_writer(self, reader: Future[None]) -> None:
        # The writer goes last: closing it folds the write-ahead log into the main file.
        wait([reader])
        if self._writer is not None:
            self._writer.close()
