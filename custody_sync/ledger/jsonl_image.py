"""What a JSONL ledger answers from: the tables that follow from its lines, in memory.

Before each question and each commit the file is looked at: lines that others appended are taken
in, and a file that others rewrote (an erasure) is read anew. Nothing that a line says is believed
before it was found to be what its hash and the line before it say.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

from custody_sync.errors import LedgerBroken, LedgerError, OutcomeUnknown
from custody_sync.errors.base import throw
from custody_sync.ledger.jsonl_files import MOVED, Files, Log, State
from custody_sync.ledger.jsonl_lines import END, read_line
from custody_sync.ledger.jsonl_lock import Lock
from custody_sync.ledger.jsonl_notes import attach, tables
from custody_sync.ledger.sqlite_connection import Connection
from custody_sync.ledger.sqlite_files import BUSY_TIMEOUT_MS, SCHEMA_VERSION
from custody_sync.ledger.sqlite_rows import position, restore
from custody_sync.ledger.state import Position
from custody_sync.ledger.stored import Stored, problem_of
from custody_sync.runtime import Runtime

_ERASED = """
CREATE TABLE erased (seq INTEGER PRIMARY KEY);
CREATE TRIGGER erasing AFTER UPDATE ON sealed
WHEN (OLD.content, OLD.identity, OLD.refs) IS NOT (NEW.content, NEW.identity, NEW.refs)
BEGIN INSERT OR IGNORE INTO erased VALUES (OLD.seq); END;
"""
"""Which lines hold more than they should."""


class Image:
    """The rows of one log, kept up with it.

    Args:
        files: where the log and the notes are.
        lock: says how far the log is committed.
        runtime: the clock.
        secret: the ledger's secret where there are no notes.
        write: whether the notes are written and the log can be mended.
    """

    def __init__(
        self, files: Files, lock: Lock, runtime: Runtime, secret: Callable[[], bytes], *, write: bool
    ) -> None:
        self._files, self._lock, self._runtime = files, lock, runtime
        self._secret, self._write = secret, write
        self.notices: dict[str, None] = {}
        """What was mended or left out, each said once, in order."""
        self.log = Log.open(files, write=write)
        self._seen: State | None = None
        self._noted = False
        try:
            self.conn = self._database()
        except BaseException:
            self.log.close()
            raise

    def _database(self) -> Connection:
        conn = sqlite3.connect(
            ":memory:",
            factory=Connection,
            uri=True,
            isolation_level=None,
            check_same_thread=False,
            timeout=BUSY_TIMEOUT_MS / 1000,
        )
        try:
            for pragma in ("temp_store = MEMORY", "trusted_schema = OFF", "secure_delete = ON"):
                conn.execute(f"PRAGMA {pragma}")
            for statement in tables(beside=False):
                conn.execute(statement)
            conn.executescript(f"{_ERASED} PRAGMA user_version = {SCHEMA_VERSION};")
        except BaseException:
            conn.close()
            raise
        return conn

    def attach_notes(self) -> None:
        """Attach the notes, once the log was found to be whole."""
        attach(self.conn, self._files, self.log.ledger_id, self._secret, write=self._write)
        self._noted = True

    def close(self) -> None:
        """Let go of the file and the memory."""
        self.log.close()
        self.conn.close()

    # --- keeping up -------------------------------------------------------------------------

    def keep_up(self, *, alone: bool = False) -> None:
        """Take in what others did to the log.

        Args:
            alone: whether the caller holds the lock: then everything there is final and made durable,
                and what a dead writer left unfinished is mended.

        Raises:
            LedgerBroken: names the event that is not what was written.
            LedgerError: the file was moved away, or another one stands in its place.
        """
        self._look(alone)
        if alone:
            self.log.secure(self._lock.marked(self.log.file))

    def _look(self, alone: bool) -> None:
        if not self.log.is_in_place():
            self._begin_anew(alone)
        elif (state := self.log.state()) != self._seen:
            changed = self._seen is not None and state[0] == self.log.read
            if changed or not self.log.is_as_known():
                # Nothing was added to what is known, so something of it was altered.
                self._begin_anew(alone)
                return
            begun = position(self.conn).seq > 0
            try:
                self._take_in(alone)
            except LedgerBroken:
                if not begun:
                    raise
                # What was changed may stand before what is new.
                self._begin_anew(alone)

    def is_current(self) -> bool:
        """Tell whether there is nothing to take in."""
        return self.log.is_in_place() and self.log.state() == self._seen

    def _begin_anew(self, alone: bool) -> None:
        """Read the log from its start; what was known stays until all of it was read."""
        fresh = Image(self._files, self._lock, self._runtime, self._secret, write=self._write)
        fresh.notices = self.notices
        try:
            fresh._take_in(alone)
            if fresh.log.ledger_id != self.log.ledger_id or not fresh._holds(position(self.conn)):
                throw(LedgerError(name=self._files.name, problem=MOVED))
            if self._noted:
                fresh.attach_notes()
        except BaseException:
            fresh.close()
            raise
        self.close()
        self.log, self.conn, self._seen = fresh.log, fresh.conn, fresh._seen

    def _holds(self, known: Position) -> bool:
        row = self.conn.execute("SELECT hash FROM events WHERE seq = ?", (known.seq,)).fetchone()
        return known.seq == 0 or row == (known.hash,)

    def _take_in(self, alone: bool) -> None:
        state = self.log.state()
        upto, final = (state[0], True) if alone else self._lock.settled(self.log.file, state[0])
        while data := self.log.lines(max(upto, self.log.read)):
            self._restore(data[:-1].split(END))
            self.log.took(data)
        rest = self.log.rest(upto) if final else b""
        if rest and alone:
            self._mend(rest)
        elif rest and not self._write:
            self._read_rest(rest)
        # A writer leaves an unfinished line alone until it holds the lock.
        known = final and (alone or not self._write or not rest)
        self._seen = self.log.state() if alone else state if known else None

    def _restore(self, lines: list[bytes]) -> None:
        first = position(self.conn).seq + 1
        events: list[Stored] = []
        for seq, line in enumerate(lines, first):
            try:
                events.append(read_line(line))
            except ValueError as error:
                # Those before it are looked at first: the first bad event is to be named.
                self._replay(events)
                throw(self._broken(seq, str(error)))
        self._replay(events)

    def _replay(self, events: list[Stored]) -> None:
        self.conn.execute("BEGIN")
        try:
            restore(self.conn, events, self._files.name, self._runtime.clock.now())
            self.conn.execute("COMMIT")
        except LedgerBroken as error:
            self.conn.leave()
            throw(self._broken(error.seq, error.problem))
        except BaseException:
            self.conn.leave()
            raise

    def _broken(self, seq: int, problem: str) -> LedgerBroken:
        # The header is line 1.
        return LedgerBroken(name=self._files.name, seq=seq, problem=f"{problem} (line {seq + 1})")

    # --- a last line without its end --------------------------------------------------------

    # A commit ends with the end of its last line, so nobody was told that such an event is recorded;
    # but where a copy was cut there, or that one byte was damaged, somebody was.

    def _mend(self, rest: bytes) -> None:
        seq, line = self._event_in(rest)
        if line is None:
            self.log.cut(self.log.read)
            self._notice(f"an unfinished line of {len(rest)} bytes after event {seq - 1} was cut off")
        else:
            self.log.finish(line)
            self._restore([line])
            self.log.took(line + END)
            self._notice(f"event {seq} lacked the end of its line, which was added")

    def _read_rest(self, rest: bytes) -> None:
        seq, line = self._event_in(rest)
        if line is None:
            self._notice(f"an unfinished line of {len(rest)} bytes after event {seq - 1} is left out")
        else:
            self._restore([line])
            self._notice(f"event {seq} lacks the end of its line")

    def _notice(self, said: str) -> None:
        self.notices[said] = None

    def _event_in(self, rest: bytes) -> tuple[int, bytes | None]:
        """Return which event should come and its line, where all of it is there."""
        found = next((line for line in (rest, rest[:-1]) if self._is_next(line)), None)
        return position(self.conn).seq + 1, found

    def _is_next(self, line: bytes) -> bool:
        try:
            return problem_of(read_line(line), position(self.conn)) is None
        except ValueError:
            return False

    @property
    def files(self) -> tuple[Path, ...]:
        """The log and what is kept beside it."""
        files = self._files
        return files.log, files.lock, files.notes, files.fresh

    # --- what we write ourselves, under the lock --------------------------------------------

    def settle_erasures(self, upto: int) -> bool:
        """Tell, inside a transaction, whether lines up to one have to be written anew, and count on it."""
        found = holds_erased(self.conn, upto)
        self.conn.execute("DELETE FROM erased")
        return found

    def append(self, data: bytes) -> None:
        """Append lines; see `Log.append`."""
        try:
            self.log.append(data)
        except OutcomeUnknown:
            raise
        except LedgerError:
            self._seen = self.log.state()
            raise

    def wrote(self, data: bytes = b"") -> None:
        """Count what was written as committed and the log as known to its end."""
        self.log.took(data)
        self._lock.mark(self.log.file, self.log.read)
        self._seen = self.log.state()

    def moved_to(self, log: Log) -> None:
        """Go on with the log that was put into the old one's place."""
        self.log.close()
        self.log = log
        self.log.took_all()
        self.wrote()


def holds_erased(conn: sqlite3.Connection, upto: int) -> bool:
    """Tell whether a line up to one holds what was erased since it was written."""
    return conn.execute("SELECT 1 FROM erased WHERE seq <= ? LIMIT 1", (upto,)).fetchone() is not None
