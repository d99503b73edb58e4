"""What goes wrong in Postgres or on the way to it, as errors of ours.

Only kind and SQLSTATE are kept: a message of the driver may hold a whole connection string,
password included, and one of the server the value that it failed on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import psycopg_pool

from custody_sync import errors
from custody_sync.errors.base import throw

_LOST = ("08", "57P0", "25P03", "57P05", "53300")
"""SQLSTATEs of a connection that is gone or was not to be had."""
_REASONS = (
    ("resolve host", "unknown host"),
    ("translate host", "unknown host"),
    ("Name or service not known", "unknown host"),
    ("No such file or directory", "no server at this socket"),
    ("Connection refused", "connection refused"),
    ("password authentication failed", "the password was refused"),
    ("no password supplied", "it wants a password"),
    ("pg_hba.conf", "its pg_hba.conf has no entry for this"),
    ("FATAL:  role", "no such role"),
    ("FATAL:  database", "no such database"),
    ("sslmode", "sslmode"),
    ("SSL", "sslmode"),
    ("timeout", "no answer in time"),
)
_DAMAGED = ("XX001", "XX002", "42P01", "42703", "3F000")
_READ_ONLY = ("25006", "42501")


def is_lost(error: BaseException) -> bool:
    """Tell whether the connection is what failed, and not the statement."""
    if isinstance(error, psycopg_pool.PoolTimeout | psycopg_pool.PoolClosed | TimeoutError | OSError):
        return True
    if not isinstance(error, psycopg.Error):
        return False
    if error.sqlstate is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return error.sqlstate.startswith(_LOST)


def is_cut(error: BaseException) -> bool:
    """Tell whether a connection broke in use; where none was to be had, asking again only takes longer."""
    return is_lost(error) and not isinstance(error, psycopg_pool.PoolTimeout)


def translate(error: BaseException, name: str) -> errors.LedgerError:
    """Return our error for one of the driver's, by its SQLSTATE; nothing of its text is kept."""
    kind = describe(error)
    state = getattr(error, "sqlstate", None) or ""
    if is_lost(error):
        return errors.LedgerUnreachable(name=name, cause=kind)
    if state.startswith(_DAMAGED):
        return errors.LedgerDamaged(name=name, cause=kind)
    if state.startswith(_READ_ONLY):
        return errors.LedgerReadOnly(name=name, cause=kind)
    if state == "53100":
        return errors.LedgerFull(name=name)
    if state == "55P03":
        return errors.LedgerBusy(name=name)
    return errors.LedgerError(name=name, problem=f"Postgres says {kind}")


def describe(error: BaseException) -> str:
    """Name an error by type and SQLSTATE, or by the kind of reason why nothing was connected."""
    state = getattr(error, "sqlstate", None)
    kind = f"{type(error).__name__} {state}" if state else type(error).__name__
    if state or not isinstance(error, psycopg.OperationalError):
        return kind
    # The text has the user's name in it, so of what it says only the sort is told.
    said = str(error)
    return next((f"{kind}: {reason}" for part, reason in _REASONS if part in said), kind)


@contextmanager
def ledger_errors(name: str) -> Iterator[None]:
    """Turn the driver's errors, and what a mangled record does to our own code, into ours."""
    try:
        yield
    except (errors.CustodyError, MemoryError):
        raise
    except (psycopg.Error, psycopg_pool.PoolTimeout, psycopg_pool.PoolClosed, OSError) as error:
        throw(translate(error, name))
    except Exception as error:
        throw(errors.LedgerDamaged(name=name, cause=f"a record cannot be read, {type(error).__name__}"))
