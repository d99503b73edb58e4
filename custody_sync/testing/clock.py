"""Time, ids and threads that a test steers: nothing waits, nothing is left to chance."""

# ruff: noqa: PT028 - `testing_runtime` is no test, whatever its name begins with

from __future__ import annotations

import asyncio
import hashlib
import itertools
import random
import uuid
from collections.abc import Callable
from concurrent.futures import Executor, Future
from datetime import UTC, datetime, timedelta
from typing import ParamSpec, TypeVar

from custody_sync.errors import ClosedError, InvalidInput
from custody_sync.ports import Clock, FaultHook, Sleep
from custody_sync.runtime import Runtime, no_faults

P = ParamSpec("P")
R = TypeVar("R")

START = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
"""Where a `ManualClock` starts unless told otherwise."""


class ManualClock:
    """A clock that stands still until the test moves it."""

    def __init__(self, start: datetime = START) -> None:
        self._now = _aware(start)

    def now(self) -> datetime:
        """Return the instant the test chose, in UTC."""
        return self._now

    def advance(self, by: timedelta | float) -> datetime:
        """Move forward by a duration or a number of seconds, and return the new instant."""
        step = by if isinstance(by, timedelta) else timedelta(seconds=by)
        if step < timedelta(0):
            raise InvalidInput(field="by", problem="a clock advances forward; use set() to turn it back")
        self._now += step
        return self._now

    def set(self, instant: datetime) -> None:
        """Jump to an instant, also an earlier one: a wall clock can be turned back."""
        self._now = _aware(instant)


def _aware(instant: datetime) -> datetime:
    if instant.tzinfo is None:
        raise InvalidInput(field="instant", problem="a naive time; give it a time zone")
    return instant.astimezone(UTC)


def manual_sleep(clock: ManualClock) -> Sleep:
    """Return a sleep that advances the clock instead of waiting, and lets other tasks run once."""

    async def sleep(seconds: float) -> None:
        clock.advance(max(seconds, 0.0))
        await asyncio.sleep(0)

    return sleep


class SteppingIds:
    """Ids that count upwards, so that two runs with one seed are equal to the byte.

    Two seeds never give the same id. Not a secret in any sense: for tests only.
    """

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed & 0xFFFF
        self._steps = itertools.count(1)

    def fact_id(self, now: datetime) -> str:
        """Return a well-formed UUIDv7 of the given instant whose random part is seed and step."""
        millis = int(now.timestamp() * 1000) & ((1 << 48) - 1)
        tail = (self._seed << 46) | (next(self._steps) & ((1 << 46) - 1))
        return str(uuid.UUID(int=(millis << 80) | (0x7 << 76) | (0b10 << 62) | tail))

    def event_id(self) -> str:
        """Return 32 hex digits."""
        return f"{self._seed:08x}{next(self._steps):024x}"

    def generation(self) -> str:
        """Return 12 hex digits."""
        return f"{self._seed:04x}{next(self._steps):08x}"

    def secret(self, size: int) -> bytes:
        """Return bytes that differ on every call and are the same in every run."""
        return hashlib.shake_256(f"{self._seed}:{next(self._steps)}".encode()).digest(size)


class InlineExecutor(Executor):
    """Run submitted work at once, on the caller's thread: no second thread, no interleaving."""

    def __init__(self, name: str = "inline") -> None:
        self.name = name
        self._closed = False

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Run the work and return a future that is already done."""
        if self._closed:
            raise ClosedError(what=f"executor {self.name}")
        future: Future[R] = Future()
        future.set_running_or_notify_cancel()
        try:
            result = fn(*args, **kwargs)
        # As a thread pool does: whatever the work raises belongs to whoever awaits the future.
        except BaseException as problem:
            future.set_exception(problem)
        else:
            future.set_result(result)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Refuse further work; there is never any waiting."""
        self._closed = True


def testing_runtime(
    *,
    clock: Clock | None = None,
    sleep: Sleep | None = None,
    seed: int = 0,
    reach: FaultHook = no_faults,
    executor: Callable[[str], Executor] = InlineExecutor,
) -> Runtime:
    """Return a runtime in which nothing is left to chance.

    Args:
        clock: A `ManualClock` of the test's own if it wants to move time; a fresh one otherwise.
        sleep: Advances a `ManualClock` unless given; any other clock needs its own.
        seed: Decides ids, salts and every random choice.
        reach: The fault hook, such as a `FaultPlan` or a `RecordingHook`.
        executor: Makes executors; inline ones unless the test wants real threads.
    """
    chosen = clock if clock is not None else ManualClock()
    if sleep is None:
        sleep = manual_sleep(chosen) if isinstance(chosen, ManualClock) else asyncio.sleep
    return Runtime(
        clock=chosen,
        ids=SteppingIds(seed),
        sleep=sleep,
        random=random.Random(seed),  # noqa: S311  # a seeded generator is the point
        reach=reach,
        executor=executor,
    )


# pytest takes whatever a test module imports under a name that begins with "test" for a test.
testing_runtime.__dict__["__test__"] = False
