"""Waiting where a store asks for it: how long, and for how much of one call's deadline."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime

from custody_sync.errors import InvalidInput, StoreThrottled
from custody_sync.runtime import Runtime

FIRST_WAIT = 1.0
"""Where a store names no time. It doubles with each refusal, since one that says nothing may mean minutes."""
LEAST_WAIT = 0.1
"""Where it names one; doubled as well, so that a store which always says 0 is not asked in a tight loop."""

LEAST_PACE = 0.05
"""Calls a second; with fewer a sweep's lease would lapse between two of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How a store may be called: how many calls at once, and how many begun in a second.

    None is the deadlines' concurrency, and any number a second.
    """

    concurrency: int | None = None
    per_second: float | None = None

    def __post_init__(self) -> None:
        at_once, rate = self.concurrency, self.per_second
        if at_once is not None and (type(at_once) is not int or at_once < 1):
            raise InvalidInput(field="concurrency", problem="must be a whole number, 1 or more")
        is_number = isinstance(rate, int | float) and not isinstance(rate, bool)
        if rate is not None and not (is_number and LEAST_PACE <= rate < math.inf):
            raise InvalidInput(field="per_second", problem=f"must be a number, {LEAST_PACE} or more")


class Bucket:
    """Turns at a steady rate; what was not used for a second may be used at once.

    Args:
        per_second: the rate.
        runtime: clock and sleep.
    """

    def __init__(self, per_second: float, runtime: Runtime) -> None:
        self._rate = per_second
        self._runtime = runtime
        self._turns = self._most = max(per_second, 1.0)
        self._at: datetime | None = None

    async def turn(self) -> None:
        """Wait for the next turn; whoever came first has it first."""
        now = self._runtime.clock.now()
        # A clock that was set back gives no turns, and takes none.
        passed = 0.0 if self._at is None else max((now - self._at).total_seconds(), 0.0)
        self._at = now
        self._turns = min(self._turns + passed * self._rate, self._most) - 1.0
        if self._turns < 0:
            await self._runtime.sleep(-self._turns / self._rate)


class Budget:
    """The seconds of one call: what the store's answers and the waits between them may take together.

    Waiting for a free slot does not count, and a wait counts as long as it was meant to be, so that a
    simulated sleep takes simulated time.

    Args:
        seconds: the call's deadline.
    """

    def __init__(self, seconds: float) -> None:
        self.left = seconds
        self._refusals = 0

    def spend(self, seconds: float) -> None:
        """Take off what a question took."""
        self.left -= seconds

    def wait_after(self, throttled: StoreThrottled) -> float | None:
        """Return how long to wait before asking again, or None where that does not fit any more."""
        stated = seconds_of(throttled)
        least = FIRST_WAIT if stated is None else LEAST_WAIT
        wait: float = max(stated or 0.0, least * 2.0**self._refusals)
        self._refusals += 1
        if wait >= self.left:
            return None
        self.left -= wait
        return wait


def seconds_of(throttled: StoreThrottled) -> float | None:
    """Return the time that a store named; an adapter may have put anything there."""
    stated: object = throttled.fields.get("retry_after")
    if not isinstance(stated, int | float) or isinstance(stated, bool):
        return None
    try:
        seconds = float(stated)
    except OverflowError:
        return None
    return max(seconds, 0.0) if math.isfinite(seconds) else None


__all__ = ["Bucket", "Budget", "Pace", "seconds_of"]
