"""Waiting where a store asks for it: how long, and for how much of one call's deadline."""

from __future__ import annotations

import math

from custody_sync.errors import StoreThrottled

FIRST_WAIT = 1.0
"""Where a store names no time. It doubles with each refusal, since one that says nothing may mean minutes."""
LEAST_WAIT = 0.1
"""Where it names one; doubled as well, so that a store which always says 0 is not asked in a tight loop."""


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
    if not isinstance(stated, int | float) or isinstance(stated, bool) or not math.isfinite(stated):
        return None
    return max(float(stated), 0.0)


__all__ = ["Budget", "seconds_of"]
