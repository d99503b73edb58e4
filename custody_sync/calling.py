"""A call to a store: behind a limiter, a pace and a deadline, and its errors stripped of text.

What a vendor's exception says may quote the memory it failed on, so only type and status leave
this module.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar
from weakref import WeakKeyDictionary

from custody_sync.errors import (
    CustodyError,
    InvalidInput,
    InvalidStore,
    LedgerError,
    NoProof,
    StoreError,
    StoreRefused,
    StoreThrottled,
    StoreUnavailable,
    Terminal,
    Transient,
)
from custody_sync.runtime import Runtime
from custody_sync.signals.operations import store_call
from custody_sync.throttling import Bucket, Budget, Pace, seconds_of

T = TypeVar("T")

_CODE = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,79}( [A-Z0-9_]{1,24})?", re.ASCII)
"""All that an adapter may say of a failure: a type or a code, and a status; a sentence may quote."""
NOT_A_STORES = (KeyboardInterrupt, SystemExit, GeneratorExit)
"""Raised by the interpreter, through a store's code, and never an answer of the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """Seconds that one call to a store may take, and how many run at once.

    A call that is throttled spends them waiting as well.
    """

    put: float = 30.0
    delete: float = 30.0
    question: float = 10.0
    listing: float = 40.0
    """For one page of a listing; a sweep's lease has to outlast it."""
    concurrency: int = 16
    lease: float = 60.0
    """How long a sweep that was killed keeps others from sweeping."""


class Caller:
    """Calls one store.

    Args:
        name: the store's.
        runtime: clock and sleep.
        deadlines: per call.
        pace: how many calls at once and in a second.
    """

    def __init__(self, name: str, runtime: Runtime, deadlines: Deadlines, pace: Pace | None) -> None:
        self.name = name
        self._runtime = runtime
        self._deadlines = deadlines
        pace = pace or Pace()
        self._concurrency = pace.concurrency or deadlines.concurrency
        self._bucket = None if pace.per_second is None else Bucket(pace.per_second, runtime)
        self.unanswered = 0
        """How many calls in a row ended without an answer, not even a refusal."""
        self.answers = 0
        """How many calls brought one, if only a refusal."""
        self._limiters: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    @property
    def _limiter(self) -> asyncio.Semaphore:
        """The limiter of the running loop; one of another loop would raise as soon as somebody waits."""
        limiter = self._limiters.get(loop := asyncio.get_running_loop())
        if limiter is None:
            limiter = self._limiters[loop] = asyncio.Semaphore(self._concurrency)
        return limiter

    async def _turn(self) -> None:
        """Wait until the store may be called again."""
        if self._bucket is not None:
            await self._bucket.turn()

    async def _ask(
        self,
        operation: str,
        seconds: float,
        call: Callable[[], Awaitable[T]],
        *,
        before: Callable[[], None] = lambda: None,
        fact_id: str | None = None,
        count: int | None = None,
    ) -> T:
        """Call the store through the limiter; turned away, wait as it says while the deadline lasts.

        The slot is given back for the wait. Whoever takes it meanwhile may ask what a vendor counts
        separately, a delete or a lookup, and is told by the store itself where not; with the slot
        kept, sixteen waiting puts would hold up every question to it for half a minute.
        """
        budget = Budget(seconds)
        with store_call(self._runtime.tracer, operation, store=self.name, fact_id=fact_id, count=count):
            while True:
                await self._turn()
                try:
                    async with self._limiter:
                        before()
                        began = asyncio.get_running_loop().time()
                        try:
                            return await self._call(operation, budget.left, call)
                        finally:
                            budget.spend(asyncio.get_running_loop().time() - began)
                except StoreThrottled as throttled:
                    wait = budget.wait_after(throttled)
                    if wait is None:
                        raise
                await self._runtime.sleep(wait)

    async def _call(self, operation: str, seconds: float, call: Callable[[], Awaitable[T]]) -> T:
        """Call the store; whatever it raises becomes one of our errors, without its text.

        That includes what is no `Exception`: a panic in a vendor's Rust code, or a cancellation that
        nobody asked for.
        """
        try:
            async with asyncio.timeout(seconds):
                answer = await call()
            self._answered()
            return answer
        except NOT_A_STORES:
            raise
        except asyncio.CancelledError as error:
            if (task := asyncio.current_task()) is None or task.cancelling():
                raise
            problem = self._ours(operation, error)
        except BaseException as error:
            problem = self._ours(operation, error)
        if isinstance(problem, StoreUnavailable) and not isinstance(problem, StoreThrottled):
            self.unanswered += 1
        else:
            self._answered()
        # Outside the handler, so that the vendor's exception does not travel along as the context.
        raise problem

    def _answered(self) -> None:
        self.unanswered = 0
        self.answers += 1

    def _ours(self, operation: str, error: BaseException) -> CustodyError:
        # What an adapter notes, it notes in the ledger, and that the ledger is away is no fault of the store.
        if operation in ("put", "put_many") and isinstance(error, InvalidInput | InvalidStore | LedgerError):
            error.__cause__ = error.__context__ = None
            return error.with_traceback(None)
        if operation == "search" and isinstance(error, InvalidStore):
            error.__cause__ = error.__context__ = None
            return error.with_traceback(None)
        if operation == "list" and isinstance(error, InvalidStore):
            # Nothing was sent, and only the adapter's own words say what to do.
            return StoreRefused(store=self.name, operation=operation, cause=str(error.fields["problem"]))
        if isinstance(error, StoreThrottled):
            wait = seconds_of(error)
            return StoreThrottled(
                store=self.name, operation=operation, cause=code_of(error), retry_after=wait
            )
        kind: type[StoreError] = StoreUnavailable
        if isinstance(error, NoProof):
            kind = NoProof
        elif isinstance(error, Terminal):
            kind = StoreRefused
        elif isinstance(error, StoreError) and not isinstance(error, Transient):
            kind = StoreError
        return kind(store=self.name, operation=operation, cause=code_of(error))


def code_of(error: BaseException) -> str:
    """Return what may be kept of an error that was raised in a store's code."""
    said = describe(error)
    return said if _CODE.fullmatch(said) else type(error).__name__


def describe(error: BaseException) -> str:
    """Return an error's type and, where it has one, its numeric status; never its text."""
    if isinstance(error, StoreError):
        return str(error.fields.get("cause", type(error).__name__))
    if isinstance(error, CustodyError):
        return error.code
    for name in ("status_code", "status", "code"):
        status = None
        with contextlib.suppress(Exception):  # a vendor's property may compute it, and fail
            status = getattr(error, name, None)
        if isinstance(status, int) and not isinstance(status, bool):
            return f"{type(error).__name__} {status}"
    return type(error).__name__


__all__ = ["NOT_A_STORES", "Caller", "Deadlines", "code_of", "describe"]
