"""What goes wrong in SQLite, in the file system or in a mangled record, as errors of ours.

Nothing hangs on them: a JSON error carries the whole text that it could not read, and a traceback
keeps cursors, and with them a read transaction, for as long as anybody keeps the error.
"""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from custody_sync import errors
from custody_sync.errors.base import throw


@contextmanager
def ledger_errors(name: str) -> Iterator[None]:
    """Turn SQLite's and the file system's errors into ours; their messages may quote values and paths."""
    try:
        yield
    except sqlite3.Error as error:
        throw(translate(error, name))
    except OSError as error:
        said = errno.errorcode.get(error.errno or 0, type(error).__name__)
        throw(errors.LedgerError(name=name, problem=f"the system says {said}"))


@contextmanager
def damage(name: str) -> Iterator[None]:
    """Turn whatever a mangled record does to our own code into one error; it quotes nothing of the record."""
    try:
        yield
    except (errors.CustodyError, sqlite3.Error, OSError, MemoryError):
        raise
    except Exception as error:
        cause = f"a record cannot be read, {type(error).__name__}"
        throw(errors.LedgerDamaged(name=name, cause=cause))


def translate(error: sqlite3.Error, name: str) -> errors.LedgerError:
    """Return our error for one of SQLite's, by its code."""
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    kind = getattr(error, "sqlite_errorname", None) or type(error).__name__
    # Our statements never change: one that SQLite cannot make sense of lacks its table.
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR):
        return errors.LedgerDamaged(name=name, cause=kind)
    if code == 0 and isinstance(error, sqlite3.OperationalError):
        return errors.LedgerDamaged(name=name, cause="a text is not UTF-8")
    if code == sqlite3.SQLITE_FULL or kind == "SQLITE_IOERR_SHMSIZE":
        return errors.LedgerFull(name=name)
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return errors.LedgerReadOnly(name=name, cause=kind)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return errors.LedgerBusy(name=name)
    return errors.LedgerError(name=name, problem=f"SQLite says {kind}")
