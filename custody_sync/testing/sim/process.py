"""A simulated process: a coordinator and a ledger handle of its own, a clock, and an end at any await."""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import Any, Literal, ParamSpec, TypeVar

from custody_sync.coordinator import AsyncCoordinator
from custody_sync.faultpoints import FaultPoint
from custody_sync.ledger import Ledger
from custody_sync.removal import Patience
from custody_sync.runtime import Runtime
from custody_sync.testing.clock import SteppingIds
from custody_sync.testing.sim.disk import Disk, SimStorage
from custody_sync.testing.sim.loop import OWNER, ProcessDied, VirtualClock, VirtualLoop
from custody_sync.testing.sim.network import CALL, SimStore

P = ParamSpec("P")
R = TypeVar("R")


class InPlace(Executor):
    """Runs work at once, and keeps nothing of it: whoever asks hears of it in another way.

    Args:
        name: what the runtime calls it.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Run the work."""
        fn(*args, **kwargs)
        return _DONE


_DONE: Future[Any] = Future()
_DONE.set_result(None)
PATIENCE = Patience(questions=3, deletes=2)
NEVER = -1


class Process:
    """One process of a run.

    Args:
        loop: the run's.
        disk: where the ledger is.
        stores: what its coordinator is given.
        number: which process of the run it is, counting those that died; decides its ids.
        skew: seconds its clock is ahead.
        superseded: its policy by store.
        seen: told of every fault point it reaches.
    """

    def __init__(
        self,
        *,
        loop: VirtualLoop,
        disk: Disk,
        stores: Sequence[SimStore],
        number: int,
        skew: float,
        superseded: Mapping[str, Literal["remove", "keep"]],
        seen: Callable[[Process, str], None],
    ) -> None:
        self.number, self.dead = number, False
        self.clock = VirtualClock(loop, skew)
        self._steps_left = NEVER
        self._dies_at: FaultPoint | None = None
        self._seen = seen
        self._loop = loop
        self._context = contextvars.copy_context()
        self._context.run(OWNER.set, self)
        runtime = Runtime(
            clock=self.clock,
            ids=SteppingIds(number),
            sleep=asyncio.sleep,
            random=random.Random(number),  # noqa: S311  # a seeded generator is the point
            reach=self._reach,
            executor=InPlace,
        )
        self.ledger = Ledger(SimStorage(disk, runtime, self), runtime, None, None)
        self.custody = AsyncCoordinator(
            self.ledger,
            stores=stores,
            runtime=runtime,
            patience=PATIENCE,
            settle_tries=2,
            superseded=superseded,
        )

    # --- its end ----------------------------------------------------------------------------

    def die_after(self, steps: int) -> None:
        """Die when so many more of its callbacks have begun."""
        self._steps_left = steps

    def die_at(self, point: FaultPoint) -> None:
        """Die when a fault point is reached."""
        self._dies_at = point

    def stepped(self) -> None:
        """Count a callback of its own."""
        if self._steps_left > 0:
            self._steps_left -= 1
            if not self._steps_left:
                self.dead = True

    def spare(self) -> None:
        """Forget how it was to die."""
        self._steps_left, self._dies_at = NEVER, None

    def _reach(self, point: str) -> None:
        if self.dead:
            raise ProcessDied
        self._seen(self, point)
        if point == self._dies_at:
            self.dead = True
            raise ProcessDied

    # --- its work ---------------------------------------------------------------------------

    def start(self, work: Coroutine[Any, Any, Any], call: int) -> asyncio.Task[Any]:
        """Begin work that is this process's own, for an operation of the run."""
        context = self._context.copy()
        context.run(CALL.set, call)
        return self._loop.create_task(work, context=context)


__all__ = ["PATIENCE", "Process"]
