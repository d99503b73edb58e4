"""Opening SQLite ledger files: what is there, may it be written, and is it one of ours.

Nothing is created unless asked for, and a file that is not a ledger, is damaged or is from a
newer version is left exactly as it is.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from custody_sync import errors
from custody_sync.runtime import Runtime

APPLICATION_ID = 0x43535931
SCHEMA_VERSION = 1
BUSY_TIMEOUT_MS = 30_000
_MAGIC = b"SQLite format 3\x00"
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
        return cls(Path(path).absolute(), option.group(1) if option else "full")

    def uri(self, mode: str) -> str:
        """Return the SQLite URI of the file; percent-encoding keeps odd names what they are."""
        return f"{self.path.as_uri()}?{mode}"


def locate(location: Location, *, create: bool) -> None:
    """Make sure that a file is there to be opened; a new one is readable by its owner only."""
    path = location.path
    if path.is_dir():
        raise errors.LedgerDamaged(name=str(path), cause="it is a folder")
    if path.exists():
        return
    if not create or not path.parent.is_dir():
        if create:
            raise errors.LedgerError(name=str(path), problem="its folder does not exist")
        raise errors.LedgerNotFound(name=str(path))
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        return
    except OSError as error:
        raise errors.LedgerError(
            name=str(path), problem=f"it cannot be created ({type(error).__name__})"
        ) from None


def check_header(location: Location, *, create: bool) -> None:
    """Refuse a file that is no SQLite database, before SQLite gets to write near it."""
    try:
        with location.path.open("rb") as file:
            head = file.read(len(_MAGIC))
    except OSError as error:
        name = str(location.path)
        raise errors.LedgerError(name=name, problem=f"it cannot be read ({type(error).__name__})") from None
    if head != _MAGIC and not (create and not head):
        raise errors.LedgerDamaged(name=str(location.path), cause="not a SQLite file")


def is_writable(location: Location) -> bool:
    """Tell whether this process may write the file and the files beside it; root keeps to a file's mode too."""
    marked = location.path.stat().st_mode & 0o222
    return bool(marked) and os.access(location.path, os.W_OK) and os.access(location.path.parent, os.W_OK)


def connect(location: Location, *, write: bool, runtime: Runtime) -> sqlite3.Connection:
    """Open a connection with the pragmas that durability and erasure rest on."""
    name = str(location.path)
    with ledger_errors(name):
        if write:
            conn = _open(location.uri("mode=rw"))
            conn.execute("PRAGMA secure_delete = ON")
            conn.execute("PRAGMA journal_mode = WAL")
            conn.execute(f"PRAGMA synchronous = {location.synchronous}")
            return conn
        conn = _open(_read_uri(location))
        conn.execute("PRAGMA query_only = ON")
        return conn


def _open(uri: str) -> sqlite3.Connection:
    conn = sqlite3.connect(
        uri, uri=True, isolation_level=None, check_same_thread=False, timeout=BUSY_TIMEOUT_MS / 1000
    )
    conn.execute("PRAGMA temp_store = MEMORY")
    conn.execute("PRAGMA trusted_schema = OFF")
    return conn


def _read_uri(location: Location) -> str:
    if is_writable(location):
        return location.uri("mode=ro")
    wal = location.path.with_name(location.path.name + "-wal")
    if wal.exists() and wal.stat().st_size > 0:
        raise errors.LedgerReadOnly(
            name=str(location.path),
            cause="a write-ahead log waits beside it; open it once where it can be written, then copy it again",
        )
    # Without a log nothing can be missed, and immutable lets SQLite do without its own side files.
    return location.uri("mode=ro&immutable=1")


def check_schema(conn: sqlite3.Connection, location: Location) -> None:
    """Refuse a database that is not a ledger of a version this library reads."""
    name = str(location.path)
    with ledger_errors(name):
        (application,) = conn.execute("PRAGMA application_id").fetchone()
        (version,) = conn.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise errors.LedgerDamaged(name=name, cause="a SQLite file of another application")
    if version > SCHEMA_VERSION:
        raise errors.LedgerTooNew(name=name, found=version, known=SCHEMA_VERSION)


def initialise(conn: sqlite3.Connection, location: Location, runtime: Runtime) -> None:
    """Create the schema in an empty file; of two processes that try at once, one does it."""
    with ledger_errors(str(location.path)):
        conn.execute("BEGIN IMMEDIATE")
        try:
            (tables,) = conn.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if not tables:
                schema = resources.files("custody_sync.ledger").joinpath("sql/schema.sql").read_text("utf-8")
                for statement in _statements(schema):
                    conn.execute(statement)
                conn.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                conn.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
                settings = [
                    ("ledger_id", runtime.ids.fact_id(runtime.clock.now()).encode()),
                    ("secret", runtime.ids.secret(32)),
                ]
                conn.executemany("INSERT INTO settings (name, value) VALUES (?, ?)", settings)
            conn.execute("COMMIT")
        except BaseException:
            conn.execute("ROLLBACK")
            raise


def _statements(script: str) -> Iterator[str]:
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


@contextmanager
def ledger_errors(name: str) -> Iterator[None]:
    """Turn SQLite's errors into ours; its messages are dropped, since they may quote values."""
    try:
        yield
    except sqlite3.Error as error:
        raise translate(error, name) from None


def translate(error: sqlite3.Error, name: str) -> errors.LedgerError:
    """Return our error for one of SQLite's, by its code."""
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    kind = getattr(error, "sqlite_errorname", None) or type(error).__name__
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return errors.LedgerDamaged(name=name, cause=kind)
    if code == sqlite3.SQLITE_FULL:
        return errors.LedgerFull(name=name)
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return errors.LedgerReadOnly(name=name, cause=kind)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return errors.LedgerBusy(name=name)
    return errors.LedgerError(name=name, problem=f"SQLite says {kind}")
