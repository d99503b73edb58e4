"""What adapters have in common: worker threads, one event loop, missing extras."""

from __future__ import annotations

import asyncio
import contextvars
import importlib
import math
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, TypeVar

from custody_sync.errors import InvalidInput, InvalidStore, MissingExtra
from custody_sync.model import Entry

T = TypeVar("T")


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


def finite(number: Any) -> float | None:
    """Return a number as a float; None where it is beyond every float, or infinite, or none at all.

    Raises:
        TypeError, ValueError: it is no number.
    """
    try:
        read = float(number)
    except OverflowError:
        return None
    return read if math.isfinite(read) else None


def has_same_label(entry: Entry, shown: Entry) -> bool:
    """Tell whether what a store shows has the very label of an entry that is asked about.

    Then it is that entry, or what is left of the same put, whatever id the store shows it under. Another
    put of the same fact has another generation, and another date.
    """
    if entry.fact_id is None or shown.fact_id != entry.fact_id:
        return False
    if entry.ledger_id not in (None, shown.ledger_id):
        return False
    pairs = (entry.generation, shown.generation), (entry.stored_at, shown.stored_at)
    return all(one is None or other is None or one == other for one, other in pairs)


def vendor(module: str, *, feature: str, extra: str) -> Any:
    """Import a vendor's module, or say which extra brings it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingExtra(feature=feature, extra=extra) from None


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


__all__ = ["OneLoop", "WorkerThreads", "finite", "has_same_label", "vendor"]
