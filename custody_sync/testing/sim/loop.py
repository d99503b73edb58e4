"""An event loop whose time is virtual and whose order a seed decides: one run, one thread, no waiting.

Every ready callback is one that a real loop might have come to first. Which one runs is drawn
from the seed, and when none is ready the time jumps to the next timer, so a wait of an hour
costs nothing. The same seed gives the same run.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import heapq
import itertools
import random
import sys
import weakref
from collections.abc import Awaitable, Callable, Generator
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar, TypeVarTuple

from custody_sync.testing.clock import START

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

WINDOWS = (1, 2, 4, 64)
"""Among how many ready callbacks one is drawn; a run keeps one of these, and 1 is asyncio's own order."""
MOST_STEPS = 400_000


class Owner(Protocol):
    """Whose callbacks these are: something that can die, such as a simulated process."""

    dead: bool

    def stepped(self) -> None:
        """Count a callback that is about to run; it may die of it."""
        ...


OWNER: contextvars.ContextVar[Owner | None] = contextvars.ContextVar("custody_sync.sim.owner", default=None)
"""Whose work a context does. Tasks inherit it, so all work that a process starts is its own."""


class ProcessDied(BaseException):
    """The process is dead; nothing is there to catch this, and nothing of it may have an effect."""


class Stuck(Exception):
    """Nothing is ready, no timer runs, and somebody still waits: in reality it would wait for ever."""


class Endless(Exception):
    """A run took more steps than any of its size should: something goes round and round."""


Entry = tuple[asyncio.Handle, Callable[..., object], tuple[Any, ...], contextvars.Context]
"""A callback that is ready: its handle, what it calls with what, and the context it runs in."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs callbacks in an order drawn from a seed, and lets no time pass but its own.

    Args:
        chance: draws the order.
        window: from how many of the ready callbacks one is drawn; drawn from `chance` if not given.
        most_steps: after so many callbacks the run counts as endless.
    """

    def __init__(
        self, chance: random.Random, *, window: int | None = None, most_steps: int = MOST_STEPS
    ) -> None:
        super().__init__()
        self._chance = chance
        self._window = chance.choice(WINDOWS) if window is None else window
        self._most_steps = most_steps
        self._runnable: list[Entry] = []
        self._timers: list[tuple[float, int, Entry]] = []
        self._order = itertools.count()
        self._now = 0.0
        self._halting = False
        self._ended = False
        self._running = False
        self._generators: weakref.WeakSet[Any] = weakref.WeakSet()
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._left: list[Entry] = []
        self.steps = 0
        """How many callbacks have run."""
        self.problems: list[str] = []
        """What nobody was there to hear of, such as an exception in a callback; types only."""

    # --- time and order ---------------------------------------------------------------------

    def time(self) -> float:
        """Return the virtual seconds since the run began."""
        return self._now

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Make a callback ready."""
        context = contextvars.copy_context() if context is None else context
        handle = asyncio.Handle(callback, args, self, context)
        self._runnable.append((handle, callback, args, context))
        return handle

    def call_soon_threadsafe(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Make a callback ready; there is only one thread."""
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Make a callback ready after so many virtual seconds."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Make a callback ready at a virtual instant."""
        context = contextvars.copy_context() if context is None else context
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._order), (handle, callback, args, context)))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Leave a cancelled timer where it is; its turn comes and nothing happens."""

    def _take_due(self) -> None:
        """Make ready what is due, and let time pass only where nothing else is left to do."""
        timers = self._timers
        while timers and timers[0][2][0].cancelled():
            heapq.heappop(timers)
        if not timers:
            return
        if not self._runnable and timers[0][0] > self._now:
            self._now = timers[0][0]
        while timers and timers[0][0] <= self._now:
            self._runnable.append(heapq.heappop(timers)[2])

    def _step(self) -> None:
        """Run one of the callbacks that are ready."""
        ready = self._runnable
        if self._timers and (not ready or self._timers[0][0] <= self._now):
            self._take_due()
        if not ready:
            raise Stuck
        entry = self._draw(ready)
        handle, callback, args, context = entry
        if handle.cancelled():
            return
        owner = context.get(OWNER)
        if owner is not None:
            owner.stepped()
            if owner.dead:
                # As after kill -9: nothing of it runs any more, not even what was to tidy up.
                self._left.append(entry)
                return
        self.steps += 1
        if self.steps > self._most_steps:
            raise Endless
        try:
            context.run(callback, *args)
        except Exception as error:
            self.problems.append(f"{type(error).__name__} in a callback")

    def _draw(self, ready: list[Entry]) -> Entry:
        """Take what runs next from what is ready, which is something."""
        reach = min(len(ready), self._window)
        return ready.pop(0 if reach == 1 else int(self._chance.random() * reach))

    # --- running ----------------------------------------------------------------------------

    def run_forever(self) -> None:
        """Run until `stop`.

        Raises:
            Stuck: there is nothing left that could ever happen.
            Endless: there is no end of it.
        """
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=self._generators.add, finalizer=self._finalize)
        asyncio._set_running_loop(self)
        self._running = True
        try:
            while not self._halting:
                self._step()
        finally:
            self._halting = False
            self._running = False
            asyncio._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)

    def run_until_complete(self, future: Generator[Any, None, T] | Awaitable[T]) -> T:
        """Run until a future is done, and return what became of it."""
        awaited: Any = future
        task: asyncio.Future[T] = asyncio.ensure_future(awaited, loop=self)
        task.add_done_callback(lambda _: self.stop())
        self.run_forever()
        return task.result()

    def stop(self) -> None:
        """End `run_forever` after this callback."""
        self._halting = True

    def is_running(self) -> bool:
        """Tell whether it runs."""
        return self._running

    def is_closed(self) -> bool:
        """Tell whether it was closed."""
        return self._ended

    def close(self) -> None:
        """Drop whatever is left; nothing of it will ever run."""
        self._ended = True
        self._runnable.clear()
        self._timers.clear()
        self._left.clear()
        self._tasks.clear()

    def bury(self, rounds: int = 50) -> None:
        """Bring to an end, at once, the tasks that are left, which must have no effect any more.

        Python would end them whenever it comes to collect them, in the midst of another run.
        """
        noted = len(self.problems)
        asyncio._set_running_loop(self)
        try:
            for _ in range(rounds):
                for task in [task for task in self._tasks if not task.done()]:
                    task.cancel()
                ready, self._runnable, self._left = [*self._left, *self._runnable], [], []
                if not ready:
                    break
                for handle, callback, args, context in ready:
                    if not handle.cancelled():
                        with contextlib.suppress(Exception):
                            context.run(callback, *args)
        finally:
            asyncio._set_running_loop(None)
            del self.problems[noted:]

    async def shutdown_asyncgens(self) -> None:
        """Close the asynchronous generators that nobody read to their end."""
        for generator in list(self._generators):
            await generator.aclose()

    def _finalize(self, generator: Any) -> None:
        # Of a process that died nobody is there to close it, and closing would be work of the living.
        self._generators.discard(generator)

    # --- what tasks ask of a loop ------------------------------------------------------------

    def create_future(self) -> asyncio.Future[Any]:
        """Return a future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        """Return a task of this loop."""
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, **options)
        self._tasks[task] = None
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)

    def get_debug(self) -> bool:
        """Say no: asyncio's debugging measures real time."""
        return False

    def set_debug(self, enabled: bool) -> None:
        """Ignore it; see `get_debug`."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Note what nobody heard of; a task that a dead process left behind is as it should be."""
        error = context.get("exception")
        if isinstance(error, Exception):
            self.problems.append(f"{type(error).__name__} that nobody heard of")


class VirtualClock:
    """A wall clock on virtual time, as far from true as one process's clock may be.

    Args:
        loop: whose time it follows.
        skew: seconds it is ahead; it may be changed, as clocks are set.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, skew: float = 0.0) -> None:
        self._loop = loop
        self.skew = skew
        self._seconds, self._shown = 0.0, START

    def now(self) -> datetime:
        """Return the instant that this clock shows."""
        seconds = self._loop.time() + self.skew
        if seconds != self._seconds:
            self._seconds, self._shown = seconds, START + timedelta(seconds=seconds)
        return self._shown
