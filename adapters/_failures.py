"""What a vendor's error means to custody: refused for good, turned away for now, or unknown.

A vendor's text may quote the memory it failed on, so only type and status leave this module.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

from custody_sync.errors import CustodyError, StoreError, StoreRefused, StoreThrottled, StoreUnavailable

T = TypeVar("T")

# SQLSTATE classes in which the same statement may succeed later: connection, transaction
# rollback, resources, object state, operator intervention, system error.
_PASSING = frozenset({"08", "40", "53", "55", "57", "58"})
_REFUSING = (AttributeError, LookupError, NotImplementedError, TypeError, ValueError)
_REFUSING_NAMES = frozenset({"DataError", "IntegrityError", "NotSupportedError", "ProgrammingError"})
# Of the statuses that blame the caller: time ran out, somebody else is at it, too early.
_PASSING_STATUS = frozenset({408, 409, 423, 425})
_TOO_MANY = 429


_TRIES = 5
_FIRST_WAIT = 1.0
_LEAST_WAIT = 0.05


async def paged(
    operation: str,
    read: Callable[[], Awaitable[T]],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> T:
    """Read one page; turned away in a listing, wait as the store says and ask again, five times in all.

    Every other call that is throttled the core makes again by itself. A listing it cannot: a generator
    that raised is over, and the entries after that page would be missed.

    Args:
        operation: what the page is for; only `list_entries` waits here.
        read: asks for the page, through `translated`.
        sleep: waits; the page as a whole has the core's deadline.

    Raises:
        StoreThrottled: it was turned away each time.
    """
    for refusals in range(_TRIES - 1 if operation == "list_entries" else 0):
        try:
            return await read()
        except StoreThrottled as throttled:
            stated: float | None = throttled.retry_after
        await sleep(max(stated or 0.0, (_FIRST_WAIT if stated is None else _LEAST_WAIT) * 2**refusals))
    return await read()


async def translated(store: str, operation: str, work: Awaitable[T]) -> T:
    """Await a vendor's call and turn its errors into ours, without its text.

    Not even the exception's context keeps it: ours is raised after the vendor's was let go of.

    Raises:
        StoreThrottled: HTTP 429, with the seconds that `Retry-After` names; nothing was done.
        StoreRefused: the request is wrong, whoever sends it and whenever.
        StoreUnavailable: anything else; it may have taken effect.
    """
    try:
        return await work
    except CustodyError:
        raise
    except Exception as error:
        failure = failure_of(store, operation, error)
    raise failure from None


def failure_of(store: str, operation: str, error: Exception) -> StoreError:
    """Return our error for a vendor's."""
    # Some vendors wrap a driver's error in a ValueError, which says less than its cause.
    root = error.__cause__ if isinstance(error.__cause__, Exception) else error
    status = status_of(error)
    if status == _TOO_MANY:
        cause, wait = describe(error), retry_after(error)
        return StoreThrottled(store=store, operation=operation, cause=cause, retry_after=wait)
    if status is not None:
        refused = 400 <= status < 500 and status not in _PASSING_STATUS
        kind: type[StoreError] = StoreRefused if refused else StoreUnavailable
        return kind(store=store, operation=operation, cause=describe(error))
    kind = StoreRefused if _is_refusal(root) else StoreUnavailable
    return kind(store=store, operation=operation, cause=describe(root))


def describe(error: BaseException) -> str:
    """Name an error by type and status, the only parts of it that are safe to keep."""
    for attribute in ("sqlstate", "sqlite_errorname"):
        code = getattr(error, attribute, None)
        if isinstance(code, str):
            return f"{type(error).__name__} {code}"
    status = status_of(error)
    return type(error).__name__ if status is None else f"{type(error).__name__} {status}"


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status an error carries: itself, on its response, or where mem0 puts it."""
    debug = getattr(error, "debug_info", None)
    found = (
        getattr(error, "status_code", None),
        getattr(getattr(error, "response", None), "status_code", None),
        debug.get("status_code") if isinstance(debug, Mapping) else None,
    )
    return next((status for status in found if isinstance(status, int)), None)


def retry_after(error: BaseException, now: datetime | None = None) -> float | None:
    """Return the seconds that a server asks to wait, from a number or a date; None if it names none."""
    debug = getattr(error, "debug_info", None)
    raw = debug.get("retry_after") if isinstance(debug, Mapping) else None
    raw = raw if raw is not None else _header(error, "retry-after")
    if raw is None:
        return None
    try:
        seconds = float(raw)
    except (TypeError, ValueError):
        return _until(raw, now or datetime.now(UTC))
    return max(seconds, 0.0) if math.isfinite(seconds) else None


def _until(raw: object, now: datetime) -> float | None:
    try:
        when = parsedate_to_datetime(str(raw))
    except (OverflowError, ValueError):
        return None
    aware = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    return max((aware - now).total_seconds(), 0.0)


def _header(error: BaseException, name: str) -> str | None:
    for holder in (error, getattr(error, "response", None)):
        headers: Any = getattr(holder, "headers", None)
        if isinstance(headers, Mapping):
            for key, value in headers.items():
                if str(key).lower() == name:
                    return str(value)
    return None


def _is_refusal(error: Exception) -> bool:
    sqlstate = getattr(error, "sqlstate", None)
    if isinstance(sqlstate, str):
        return sqlstate[:2] not in _PASSING
    names = {kind.__name__ for kind in type(error).__mro__}
    return isinstance(error, _REFUSING) or not _REFUSING_NAMES.isdisjoint(names)


__all__ = ["describe", "failure_of", "paged", "retry_after", "status_of", "translated"]
