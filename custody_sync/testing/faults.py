"""Fault points made to happen: raise, call back, or end the process at the n-th time one is reached."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from custody_sync.errors import InvalidInput
from custody_sync.faultpoints import FaultPoint


@dataclass(frozen=True, slots=True)
class Crash:
    """One place to fail: the n-th time (from 1) that a point is reached. Written `point#n`."""

    point: FaultPoint
    at: int = 1

    def __str__(self) -> str:
        return f"{self.point.value}#{self.at}"

    @classmethod
    def parse(cls, raw: str) -> Crash:
        """Read `point#n`, as a child process gets it on its command line."""
        name, _, at = raw.partition("#")
        if not (at or "1").isdecimal() or int(at or "1") < 1:
            raise InvalidInput(field="at", problem=f"{at!r} is not a whole number from 1")
        return cls(registered(name), int(at or "1"))


def registered(point: str) -> FaultPoint:
    """Return the registered point of that name; a point outside the registry would never be tested."""
    try:
        return FaultPoint(point)
    except ValueError:
        raise InvalidInput(field="point", problem=f"{point!r} is not in custody_sync.faultpoints") from None


def kill_self() -> NoReturn:
    """End this process as `kill -9` does: no handler, no flush, no goodbye."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise SystemExit(137)  # pragma: no cover  (SIGKILL is not returned from)


class FaultPlan:
    """A fault hook that fails where it was told to and is silent everywhere else.

    Safe to reach from several threads. Ask `unfired` at the end of a test: a fault that never
    happened has tested nothing.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._actions: dict[Crash, Callable[[], object]] = {}
        self._fired: list[Crash] = []
        self.reached: Counter[FaultPoint] = Counter()
        """How often each point was reached so far."""

    def call(self, point: str, action: Callable[[], object], *, at: int = 1, times: int = 1) -> FaultPlan:
        """Call back at the n-th time, and at the `times - 1` times after it; what it raises goes on."""
        if at < 1 or times < 1:
            raise InvalidInput(field="at", problem="at and times count from 1")
        known = registered(point)
        for n in range(at, at + times):
            self._actions[Crash(known, n)] = action
        return self

    def fail(self, point: str, error: BaseException, *, at: int = 1, times: int = 1) -> FaultPlan:
        """Raise the error at the n-th time, and at the `times - 1` times after it."""

        def raise_it() -> NoReturn:
            raise error

        return self.call(point, raise_it, at=at, times=times)

    def kill(self, point: str, *, at: int = 1) -> FaultPlan:
        """Kill this process with SIGKILL at the n-th time."""
        return self.call(point, kill_self, at=at)

    @property
    def fired(self) -> tuple[Crash, ...]:
        """The faults that happened, in the order they did."""
        return tuple(self._fired)

    @property
    def unfired(self) -> tuple[Crash, ...]:
        """The planned faults whose time never came."""
        return tuple(crash for crash in self._actions if crash not in self._fired)

    def __call__(self, point: str) -> None:
        """Count the point and do what is planned for this time."""
        known = registered(point)
        with self._lock:
            self.reached[known] += 1
            crash = Crash(known, self.reached[known])
            action = self._actions.get(crash)
            if action is not None:
                self._fired.append(crash)
        # Outside the lock: an action may block, or reach another point.
        if action is not None:
            action()


class RecordingHook:
    """A fault hook that only remembers what was reached, so that a crash matrix can be generated."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sequence: list[FaultPoint] = []

    def __call__(self, point: str) -> None:
        """Remember the point."""
        known = registered(point)
        with self._lock:
            self._sequence.append(known)

    @property
    def sequence(self) -> tuple[FaultPoint, ...]:
        """Every point in the order it was reached."""
        return tuple(self._sequence)

    def crashes(self) -> tuple[Crash, ...]:
        """Return one place to fail for every time a point was reached, in that order."""
        seen: Counter[FaultPoint] = Counter()
        places: list[Crash] = []
        for point in self.sequence:
            seen[point] += 1
            places.append(Crash(point, seen[point]))
        return tuple(places)

    def unreached(self) -> frozenset[FaultPoint]:
        """Return the registered points that the recorded work never came to."""
        return frozenset(FaultPoint) - frozenset(self._sequence)
