"""A ledger storage in memory: the real rules and the real tables, on a disk that fails when it is told to.

One `Disk` is what survives; every simulated process opens a `SimStorage` of its own on it. A
commit is one step of the simulation, before and after which a process may die.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from custody_sync import errors
from custody_sync.errors.base import throw
from custody_sync.faultpoints import FaultPoint
from custody_sync.ledger import sqlite_notes as beside
from custody_sync.ledger import sqlite_reads as reads
from custody_sync.ledger.answering import NoteWork
from custody_sync.ledger.chain import Prepared
from custody_sync.ledger.embedded import Embedded, Work
from custody_sync.ledger.sqlite_connection import Connection
from custody_sync.ledger.sqlite_erasure import drop_named, due, forget_due
from custody_sync.ledger.sqlite_errors import ledger_errors
from custody_sync.ledger.sqlite_files import APPLICATION_ID, SCHEMA_VERSION, schema_statements
from custody_sync.ledger.storage import Note, Way
from custody_sync.ledger.whereabouts import Whereabouts
from custody_sync.model import Erasure
from custody_sync.ports import FaultHook
from custody_sync.runtime import Runtime, no_faults
from custody_sync.testing.sim.loop import Owner, ProcessDied

NAME = "simulated ledger"
LEDGER_ID = "01990000-0000-7000-8000-00000000c0de"
SECRET = bytes(range(32))
_TABLE = re.compile(r"^CREATE TABLE (\w+)", re.MULTILINE)

Watcher = Callable[["Disk", datetime], None]


class DiskFault(StrEnum):
    """How a commit fails."""

    FULL = "full"
    """Before: the disk is full, and nothing was written."""
    BUSY = "busy"
    """Before: somebody else holds the lock for too long."""
    BROKEN = "broken"
    """During: the connection breaks, and nothing was written; whoever asked cannot know."""
    LOST = "lost"
    """After: it is written, and the answer is lost."""
    LATE = "late"
    """During: the connection breaks, and the server writes it later, if the rules still let it."""


class Disk:
    """The bytes of one ledger, and what goes wrong with them.

    Args:
        later: runs work after a while, for commits that land late; it belongs to no process.
        watch: called after every commit that added events, with the clock of whoever committed.
    """

    def __init__(
        self, later: Callable[[Callable[[], None]], None], watch: Watcher = lambda disk, now: None
    ) -> None:
        self.conn = _SPARE.pop() if _SPARE else _blank()
        self.later, self.watch = later, watch
        self.took_over: Callable[[str, str | None, datetime], None] = lambda topic, until, now: None
        """Told when somebody is given a lease that was another one's: which, until when, and the time now."""
        self.touched: Callable[[bool], None] = lambda changes: None
        """Told of every commit and every question at the instant it is made."""
        self.faults: Counter[DiskFault] = Counter()
        """How many of the next commits fail in which way."""
        self.away = False
        """Whether it answers nothing at all."""
        self.keeps_erased = False
        """Whether erased values cannot be driven out just now, as where a reader stands in the way."""
        self.salts: list[bytes] = []
        """Of what was erased, until it was driven out."""

    def take_fault(self) -> DiskFault | None:
        """Return how this commit fails, if it does, and count it."""
        for fault in DiskFault if self.faults else ():
            if self.faults[fault] > 0:
                self.faults[fault] -= 1
                return fault
        return None

    def heal(self) -> None:
        """End everything that goes wrong."""
        self.faults.clear()
        self.away = self.keeps_erased = False

    def image(self) -> bytes:
        """Return every byte it holds."""
        return self.conn.serialize()

    def drive_out(self) -> None:
        """Write the pages anew if any copy of an erased salt is left in a gap between rows."""
        image = self.image()
        if any(salt in image for salt in self.salts):
            self.conn.let_go()
            self.conn.execute("VACUUM")
        self.salts.clear()

    def close(self) -> None:
        """Leave the memory to the next run: what is prepared for its tables takes long to make."""
        self.conn.leave()
        tables, rows = _contents()
        for table in tables:
            self.conn.execute(f"DELETE FROM {table}")  # noqa: S608  # the schema's own names
        _fill(self.conn, rows)
        self.conn.let_go()
        _SPARE.append(self.conn)


_SPARE: list[Connection] = []


def _blank() -> Connection:
    """Return a new empty ledger in memory."""
    conn = sqlite3.connect(
        ":memory:", factory=Connection, isolation_level=None, check_same_thread=False, cached_statements=512
    )
    for pragma in ("temp_store = MEMORY", "secure_delete = ON", "journal_mode = MEMORY"):
        conn.execute(f"PRAGMA {pragma}").fetchall()
    for statement in schema_statements():
        conn.execute(statement)
    conn.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    conn.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    _fill(conn, ())
    return conn


def _fill(conn: Connection, rows: Sequence[str]) -> None:
    for statement in rows:
        conn.execute(statement)
    settings = [("ledger_id", LEDGER_ID.encode()), ("secret", SECRET)]
    conn.executemany("INSERT INTO settings (name, value) VALUES (?, ?)", settings)


@cache
def _contents() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the schema's tables, and the statements that fill those that are not empty at first."""
    statements = tuple(schema_statements())
    tables = [found.group(1) for one in statements if (found := _TABLE.search(one))]
    return tuple(tables), tuple(one for one in statements if "INSERT INTO" in one)


class SimStorage(Embedded):
    """One process's handle on a `Disk`; see `Storage` for what each method promises.

    Args:
        disk: what it keeps its events on.
        runtime: the process's.
        owner: the process; once it is dead nothing of it gets here any more.
    """

    def __init__(self, disk: Disk, runtime: Runtime, owner: Owner) -> None:
        super().__init__(NAME, True, runtime.executor("custody-reader"), runtime)
        self._disk, self._owner = disk, owner
        self.ledger_id, self.secret = reads.settings(disk.conn)

    @property
    def files(self) -> tuple[Path, ...]:
        """None: it is in memory."""
        return ()

    async def whereabouts(self) -> Whereabouts:
        """Return the one place there is."""
        return Whereabouts(NAME)

    # --- writing ----------------------------------------------------------------------------

    def _commit(self, works: Sequence[Work], tell: Callable[[], None]) -> list[Any]:
        tell()
        self._check_there()
        self._disk.touched(True)
        fault = self._disk.take_fault()
        if fault is DiskFault.FULL:
            raise errors.LedgerFull(name=self.name)
        if fault is DiskFault.BUSY:
            raise errors.LedgerBusy(name=self.name)
        if fault in (DiskFault.LATE, DiskFault.BROKEN):
            drafts = [work for work in works if isinstance(work, Prepared)]
            if fault is DiskFault.LATE and drafts:
                self._disk.later(lambda: self._land(drafts))
            throw(errors.OutcomeUnknown(name=self.name))
        results = self._transact(works, self._runtime.reach)
        self._runtime.reach(FaultPoint.AFTER_COMMIT)
        if fault is DiskFault.LOST:
            throw(errors.OutcomeUnknown(name=self.name))
        return results

    def _transact(self, works: Sequence[Work], reach: FaultHook = no_faults) -> list[Any]:
        conn = self._disk.conn
        with ledger_errors(self.name):
            conn.execute("BEGIN IMMEDIATE")
            try:
                applied = self._apply(conn, works)
                reach(FaultPoint.BEFORE_COMMIT)
                conn.let_go()
                conn.execute("COMMIT")
            except BaseException:
                conn.leave()
                raise
        for salts in applied.salts.values():
            self._disk.salts += salts
        if applied.group is not None and applied.group.appended:
            self._disk.watch(self._disk, applied.group.now)
        return applied.results

    def _land(self, drafts: Sequence[Prepared]) -> None:
        """Write what broke off before; nobody hears of it, whatever comes of it."""
        with contextlib.suppress(errors.LedgerError):
            self._transact(drafts)

    async def acquire(self, topic: str, key: str, value: str, holder: str, ttl: timedelta | None) -> Note:
        """Take a lease, under the eyes of whoever watches the disk."""
        query = "SELECT holder, expires_at FROM notes WHERE topic = ? AND key = ?"

        def work(conn: sqlite3.Connection) -> Note:
            now, before = self._now(), conn.execute(query, (topic, key)).fetchone()
            note = beside.acquire(conn, topic, key, value, holder, ttl, now)
            if before is not None and note.holder == holder != before[0]:
                self._disk.took_over(topic, before[1], now)
            return note

        note: Note = await self._write(NoteWork(work, tuple(Way)))
        return note

    # --- erasure ----------------------------------------------------------------------------

    async def erase(self) -> Erasure:
        """Drive erased values out of the pages, as a storage in a file does."""
        self._check_usable()
        await asyncio.sleep(0)
        return self._erase()

    def _erase(self) -> Erasure:
        self._check_there()
        self._disk.touched(True)
        conn = self._disk.conn
        with ledger_errors(self.name):
            owing = due(conn)
            named, _ = drop_named(conn, owing, self._now())
            rows = [row for row in owing if row[0] not in named]
            if rows:
                self._runtime.reach(FaultPoint.BEFORE_ERASURE)
                if self._disk.keeps_erased:
                    return Erasure.PENDING
                self._disk.drive_out()
                forget_due(conn, rows)
                self._runtime.reach(FaultPoint.AFTER_ERASURE)
        return Erasure.PENDING if named else Erasure.DONE

    # --- reading and closing ----------------------------------------------------------------

    def _check_there(self) -> None:
        if self._owner.dead:
            raise ProcessDied
        if self._disk.away:
            throw(errors.LedgerError(name=self.name, problem="it does not answer"))

    async def _read_briefly(self, query: Callable[..., Any], *args: Any) -> Any:
        return await self._read(query, *args)

    async def _read(self, query: Callable[..., Any], *args: Any) -> Any:
        """Ask a question; whatever else is ready may run before it is answered."""
        self._check_usable()
        await asyncio.sleep(0)
        return self._ask(query, args)

    def _ask(self, query: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        self._check_there()
        self._disk.touched(False)
        conn = self._disk.conn
        # No transaction: a question is answered at one instant, and nobody else is on the connection.
        try:
            return query(conn, *args)
        except (sqlite3.Error, OSError):
            with ledger_errors(self.name):
                raise
        finally:
            conn.let_go()

    def _close_reading(self) -> None:
        """There is nothing to let go of: the disk outlives its handles."""

    def _close_writing(self) -> None:
        """As above."""


__all__ = ["Disk", "DiskFault", "SimStorage"]
