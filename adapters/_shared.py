"""What adapters have in common: worker threads, error mapping, scope templates, missing extras."""

from __future__ import annotations

import asyncio
import contextvars
import importlib
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, TypeVar

from custody_sync.errors import (
    CustodyError,
    InvalidInput,
    InvalidStore,
    MissingExtra,
    StoreError,
    StoreRefused,
    StoreUnavailable,
)

T = TypeVar("T")

_SPACE = "{space}"
# SQLSTATE classes in which the same statement may succeed later: connection, transaction
# rollback, resources, object state, operator intervention, system error.
_PASSING = frozenset({"08", "40", "53", "55", "57", "58"})
_REFUSING = (AttributeError, LookupError, NotImplementedError, TypeError, ValueError)
_REFUSING_NAMES = frozenset({"DataError", "IntegrityError", "NotSupportedError", "ProgrammingError"})


class WorkerThreads:
    """Run blocking calls in threads, so many at once and no more.

    A slot is a thread: it is free again when the call has ended, not when somebody stopped
    waiting for it, so a store that hangs cannot be sent ever more calls. A call that has not
    begun is dropped when its caller is cancelled.

    Args:
        name: Names the threads.
        limit: How many calls may run at once.
        executor: Runs the calls instead of own threads, with a limit of its own.
    """

    def __init__(self, name: str, *, limit: int = 16, executor: Executor | None = None) -> None:
        if limit < 1:
            raise InvalidInput(field="threads", problem=f"{limit} is not at least 1")
        self._executor = executor or ThreadPoolExecutor(limit, thread_name_prefix=f"custody-{name}")

    async def run(self, call: Callable[[], T]) -> T:
        """Run a call in a thread and return what it returned."""
        context = contextvars.copy_context()
        return await asyncio.wrap_future(self._executor.submit(context.run, call))


async def translated(store: str, operation: str, work: Awaitable[T]) -> T:
    """Await a vendor's call and turn its errors into ours, without its text.

    The text may quote the memory it failed on, so not even the exception's context keeps it:
    ours is raised after the vendor's was let go of.
    """
    try:
        return await work
    except CustodyError:
        raise
    except Exception as error:
        failure = _failure(store, operation, error)
    raise failure from None


def _failure(store: str, operation: str, error: Exception) -> StoreError:
    # Some vendors wrap a driver's error in a ValueError, which says less than its cause.
    root = error.__cause__ if isinstance(error.__cause__, Exception) else error
    kind = StoreRefused if _is_refusal(root) else StoreUnavailable
    return kind(store=store, operation=operation, cause=describe(root))


def describe(error: BaseException) -> str:
    """Name an error by type and status, the only parts of it that are safe to keep."""
    for attribute in ("sqlstate", "sqlite_errorname", "status_code"):
        status = getattr(error, attribute, None)
        if isinstance(status, str | int):
            return f"{type(error).__name__} {status}"
    return type(error).__name__


def _is_refusal(error: Exception) -> bool:
    sqlstate = getattr(error, "sqlstate", None)
    if isinstance(sqlstate, str):
        return sqlstate[:2] not in _PASSING
    names = {kind.__name__ for kind in type(error).__mro__}
    return isinstance(error, _REFUSING) or not _REFUSING_NAMES.isdisjoint(names)


def vendor(module: str, *, feature: str, extra: str) -> Any:
    """Import a vendor's module, or say which extra brings it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingExtra(feature=feature, extra=extra) from None


def check_template(field: str, template: object) -> str:
    """Refuse a scope that is not a text or has a placeholder other than `{space}`."""
    if not isinstance(template, str) or not template:
        raise InvalidInput(field=field, problem="each part must be a text that is not empty")
    if "{" in template.replace(_SPACE, "") or "}" in template.replace(_SPACE, ""):
        raise InvalidInput(field=field, problem=f"{template!r} has a placeholder other than {_SPACE}")
    return template


def is_fixed(template: str) -> bool:
    """Tell whether a scope is the same for every space."""
    return _SPACE not in template


def fill(template: str, space: str) -> str:
    """Put a space into a scope template."""
    return template.replace(_SPACE, space)


class OneLoop:
    """Refuse a second event loop for a client that lives in one.

    Such a client waits for ever, or fails far from the cause, when another loop uses it.
    """

    def __init__(self, store: str, home: asyncio.AbstractEventLoop | None = None) -> None:
        self._store = store
        self._home = home

    def check(self) -> None:
        """Remember the first loop and raise `InvalidStore` in any other."""
        running = asyncio.get_running_loop()
        if self._home is None:
            self._home = running
        if self._home is not running:
            problem = "its client belongs to another event loop; make it in the loop that uses it"
            raise InvalidStore(store=self._store, problem=problem)


__all__ = ["OneLoop", "WorkerThreads", "check_template", "fill", "is_fixed", "translated", "vendor"]
