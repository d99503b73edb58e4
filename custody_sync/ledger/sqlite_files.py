"""Opening SQLite ledger files: what is there, may it be written, and is it one of ours.

Nothing is created unless asked for, and a file that is not a ledger, is damaged or is from a
newer version is left exactly as it is.
"""

from __future__ import annotations

import os
import re
import sqlite3
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from importlib import resources
from pathlib import Path

from custody_sync import errors, rawfiles
from custody_sync.errors.base import throw
from custody_sync.ledger.sqlite_connection import Connection
from custody_sync.ledger.sqlite_errors import ledger_errors
from custody_sync.ledger.sqlite_notes import mark_new
from custody_sync.ledger.storage import Identity
from custody_sync.runtime import Runtime

APPLICATION_ID = 0x43535931
SCHEMA_VERSION = 4
BUSY_TIMEOUT_MS = 30_000
CACHE_KB = 8_000
"""Enough for the inner pages of every index of a million events."""
LOOKS = 20
"""How often a file is looked at that somebody changes at the same time."""
_MAGIC = b"SQLite format 3\x00"
_HEADER = 100
_WAL = b"\x02\x02"
FORKED = (
    "it was open when this process was forked, which leaves SQLite's locks behind; "
    "open it after the fork only, or start this process anew (spawn)"
)
TWO_NAMES = "SQLite would keep a log for each, so that facts get lost"
_OPTION = re.compile(r"\?synchronous=(full|normal|off)\Z")


@dataclass(frozen=True, slots=True)
class Location:
    """A ledger file as named in its URL: the path is taken literally, `%` and `#` included."""

    path: Path
    synchronous: str

    @classmethod
    def parse(cls, rest: str) -> Location:
        """Split the one option, `?synchronous=full|normal|off`, from the path."""
        option = _OPTION.search(rest)
        path = rest[: option.start()] if option else rest
        if "\x00" in path or not path:
            raise errors.InvalidInput(field="ledger", problem="the path has a NUL character or is empty")
        try:
            os.fsencode(path)
        except UnicodeEncodeError:
            throw(errors.InvalidInput(field="ledger", problem="no file can have that name"))
        try:
            absolute = Path(path).absolute()
        except OSError:
            throw(errors.LedgerError(name=path, problem="the folder that it is relative to is gone"))
        return cls(absolute, option.group(1) if option else "full")

    @property
    def name(self) -> str:
        """What errors call it: its path, on one line whatever it is called."""
        path = str(self.path)
        return path if path.isprintable() else ascii(path)

    def uri(self, mode: str) -> str:
        """Return the SQLite URI of the file; percent-encoding keeps odd names what they are."""
        return f"{self.path.as_uri()}?{mode}"

    def file(self) -> LedgerFile:
        """Return the file that is there now."""
        found = self.path.stat()
        return LedgerFile(self, (found.st_dev, found.st_ino))

    def wal(self) -> Path:
        """Return where SQLite keeps the write-ahead log: beside the file itself, not beside a link to it."""
        return Path(f"{itself(self.path)}-wal")

    def waits(self) -> bool:
        """Tell whether a write-ahead log waits beside the file."""
        try:
            return self.wal().stat().st_size > 0
        except FileNotFoundError:
            return False


@dataclass(frozen=True, slots=True)
class LedgerFile:
    """One file as it was when it was opened."""

    location: Location
    identity: tuple[int, int]

    def check(self) -> None:
        """Refuse to go on with a file that was moved or replaced: events would go into the void."""
        try:
            found = os.stat(self.location.path)
            same = (found.st_dev, found.st_ino) == self.identity
        except OSError:
            same = False
        if not same:
            raise errors.LedgerError(
                name=self.location.name, problem="its file was moved or replaced; open it again"
            )

    def state(self) -> tuple[int, ...]:
        """Return what changes whenever somebody writes the ledger."""
        found: list[int] = []
        for path in (self.location.path, self.location.wal()):
            try:
                status = os.stat(path)
            except OSError:
                found += (0, 0)
            else:
                found += (status.st_size, status.st_mtime_ns)
        return tuple(found)


def itself(path: Path) -> str:
    """Return the path of a file, or of the one it is a link to; links among its folders do not matter."""
    return os.path.realpath(path) if path.is_symlink() else str(path)


def locate(location: Location, *, create: bool) -> None:
    """Make sure that a file is there to be opened; a new one is readable by its owner only."""
    name = location.name
    try:
        if exists(location, TWO_NAMES):
            return
        if not create:
            raise errors.LedgerNotFound(name=name)
        if not location.path.parent.is_dir():
            raise errors.LedgerError(name=name, problem="its folder does not exist")
    except OSError as error:
        throw(errors.LedgerError(name=name, problem=f"it cannot be looked at ({type(error).__name__})"))
    try:
        rawfiles.create(location.path)
        sync_folder(location.path.parent)
    except FileExistsError:
        return
    except OSError as error:
        throw(errors.LedgerError(name=name, problem=f"it cannot be created ({type(error).__name__})"))


def exists(location: Location, two_names: str) -> bool:
    """Tell whether a file is there; refuse what is no file, or one file under several names."""
    try:
        found = location.path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    if stat.S_ISDIR(found.st_mode):
        raise errors.LedgerDamaged(name=location.name, cause="it is a folder")
    if not stat.S_ISREG(found.st_mode):
        raise errors.LedgerDamaged(name=location.name, cause="it is no regular file")
    if found.st_nlink > 1:
        problem = (
            f"it is one file under {found.st_nlink} names, and {two_names}; "
            "remove the other hard links or replace them by copies"
        )
        raise errors.LedgerError(name=location.name, problem=problem)
    return True


def sync_folder(folder: Path) -> None:
    """Make a new file's name as durable as what will be in it."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check_header(location: Location, *, create: bool) -> bool:
    """Refuse a file that is no ledger before SQLite comes near it, since SQLite leaves files beside it.

    Returns:
        whether the header says that it is one, of this version; else SQLite has to be asked.
    """
    seen = _look(location, create)
    file = location.file()
    looks = 1
    while not isinstance(seen, bool):
        before = file.state()
        seen = _look(location, create)
        looks += 1
        # Header, size and log are of different moments if somebody writes, erases or creates meanwhile.
        if isinstance(seen, errors.LedgerError) and (looks >= LOOKS or file.state() == before):
            raise seen
    return seen


def _look(location: Location, create: bool) -> errors.LedgerError | bool:
    name = location.name
    try:
        with rawfiles.opened(location.path) as file:
            head = file.read(_HEADER)
            size = file.seek(0, os.SEEK_END)
    except OSError as error:
        return errors.LedgerError(name=name, problem=f"it cannot be read ({type(error).__name__})")
    if not head and create:
        return False
    if not head.startswith(_MAGIC) or len(head) < _HEADER:
        return errors.LedgerDamaged(name=name, cause="not a SQLite file")
    if location.waits():
        # What the log holds may be newer than this header; SQLite will tell.
        return False
    pages = int.from_bytes(head[28:32], "big")
    if size < pages * (int.from_bytes(head[16:18], "big") & 0xFFFE or 0x10000):
        return errors.LedgerDamaged(name=name, cause="it is cut short")
    application = int.from_bytes(head[68:72], "big")
    if create and application == 0 and pages <= 1:
        return False
    version = int.from_bytes(head[60:64], "big")
    return _not_ours(name, application, version) or (version == SCHEMA_VERSION and head[18:20] == _WAL)


def _not_ours(name: str, application: int, version: int) -> errors.LedgerError | None:
    if application != APPLICATION_ID or version < 1:
        return errors.LedgerDamaged(name=name, cause="a SQLite file of another application")
    if version > SCHEMA_VERSION:
        return errors.LedgerTooNew(name=name, found=version, known=SCHEMA_VERSION)
    return None


def is_writable(location: Location) -> bool:
    """Tell whether this process may write the file and beside it; root keeps to a file's mode too."""
    marked = location.path.stat().st_mode & 0o222
    folder = os.path.dirname(itself(location.path))
    return bool(marked) and os.access(location.path, os.W_OK) and os.access(folder, os.W_OK)


def is_immutable(location: Location) -> bool:
    """Tell whether the file is read as one that nobody changes: without locks and files beside it."""
    return not is_writable(location)


def connect(
    location: Location, *, write: bool, immutable: bool | None = None, tidy: bool = False
) -> Connection:
    """Open a connection with the pragmas that durability and erasure rest on.

    Args:
        location: the file.
        write: whether it is to be written.
        immutable: what `is_immutable` just said, if it was asked.
        tidy: whether, as the last one to let go, it takes away SQLite's own files; for that it has to be
            able to write, though it is kept from doing so.
    """
    if immutable is None:
        immutable = not write and is_immutable(location)
    if not immutable and rawfiles.is_inherited(location.path):
        raise errors.LedgerError(name=location.name, problem=FORKED)
    if immutable and location.waits():
        raise errors.LedgerReadOnly(
            name=location.name,
            cause="a write-ahead log waits beside it; open it once where it can be written",
        )
    with ledger_errors(location.name):
        # What is read as immutable is read without locks, so there are none to spare.
        hold = None if immutable else rawfiles.hold(location.path)
        try:
            conn = sqlite3.connect(
                location.uri(_mode(write or tidy, immutable)),
                factory=Connection,
                uri=True,
                isolation_level=None,
                check_same_thread=False,
                timeout=BUSY_TIMEOUT_MS / 1000,
            )
        except BaseException:
            if hold is not None:
                hold.release()
            raise
        conn.keep(hold)
        try:
            conn.execute("PRAGMA temp_store = MEMORY")
            conn.execute(f"PRAGMA cache_size = -{CACHE_KB}")
            conn.execute("PRAGMA trusted_schema = OFF")
            if write:
                conn.execute("PRAGMA secure_delete = ON")
                conn.log_ahead(BUSY_TIMEOUT_MS)
                conn.execute(f"PRAGMA synchronous = {location.synchronous}")
                # On macOS alone an fsync does not reach the disk without these.
                conn.execute("PRAGMA fullfsync = ON")
                conn.execute("PRAGMA checkpoint_fullfsync = ON")
            else:
                conn.execute("PRAGMA query_only = ON")
        except BaseException:
            conn.close()
            raise
        return conn


def _mode(write: bool, immutable: bool) -> str:
    if write:
        return "mode=rw"
    # Without a log nothing can be missed, and immutable lets SQLite do without its own side files.
    return "mode=ro&immutable=1" if immutable else "mode=ro"


def check_schema(conn: sqlite3.Connection, location: Location) -> None:
    """Refuse a database that is not a ledger of a version this library reads."""
    with ledger_errors(location.name):
        (application,) = conn.execute("PRAGMA application_id").fetchone()
        (version,) = conn.execute("PRAGMA user_version").fetchone()
    problem = _not_ours(location.name, application, version)
    if problem is not None:
        raise problem


def initialise(
    conn: Connection, location: Location, runtime: Runtime, identity: Identity | None = None
) -> None:
    """Create the schema in an empty file; of two processes that try at once, one does it."""
    with ledger_errors(location.name):
        conn.execute("BEGIN IMMEDIATE")
        try:
            (tables,) = conn.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if not tables:
                _create_tables(conn, identity or Identity.new(runtime), runtime.clock.now())
            conn.execute("COMMIT")
        except BaseException:
            conn.leave()
            raise
        if not tables:
            # From now on the file itself says what it is.
            conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()


def _create_tables(conn: sqlite3.Connection, identity: Identity, now: datetime) -> None:
    for statement in schema_statements():
        conn.execute(statement)
    conn.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    conn.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    settings = [
        ("ledger_id", identity.ledger_id.encode()),
        ("secret", identity.secret),
    ]
    conn.executemany("INSERT INTO settings (name, value) VALUES (?, ?)", settings)
    mark_new(conn, identity, now)


def schema_statements() -> Iterator[str]:
    """Yield the statements that make the tables of a ledger."""
    script = resources.files("custody_sync.ledger").joinpath("sql/sqlite/schema.sql").read_text("utf-8")
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
