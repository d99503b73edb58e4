"""An event loop in a thread of its own, for code that has none."""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, TypeVar

from custody_sync.errors import ClosedError, InsideEventLoop

T = TypeVar("T")


class _Thread(threading.Thread):
    """Known by its class, since a callback of a caller's may run in it."""


class LoopThread:
    """One daemon thread that runs one event loop, and runs coroutines in it for other threads."""

    def __init__(self, used: str, instead: str) -> None:
        self._used, self._instead = used, instead
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._work: set[Coroutine[Any, Any, Any]] = set()
        self._ending = self._ended = False
        self._loop = asyncio.new_event_loop()
        self._thread = _Thread(target=self._serve, name="custody-sync", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        """Run the loop until it is stopped; an exit that somebody's code asked for is its caller's."""
        while not self._ended:
            # The future that is waited for has it by now, and all other work goes on.
            with suppress(SystemExit, KeyboardInterrupt):
                self._loop.run_forever()

    @staticmethod
    def is_here() -> bool:
        """Tell whether this is such a thread: whatever blocks it waits for itself."""
        return isinstance(threading.current_thread(), _Thread)

    def refuse_inside_loop(self) -> None:
        """Refuse to block a running event loop, and say what to use there."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        raise InsideEventLoop(used=self._used, instead=self._instead)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end and return its result; an interrupt cancels it first."""
        try:
            self.refuse_inside_loop()
        except BaseException:
            coroutine.close()
            raise
        future = self.submit(coroutine)
        try:
            return future.result()
        except CancelledError:
            if self._ending:
                raise ClosedError(what=f"this {self._used}") from None
            raise
        except KeyboardInterrupt:
            # `close` waits for what the cancellation has to clean up.
            future.cancel()
            raise

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine for a caller that need not block, one in a loop of its own included."""
        try:
            if self._pid != os.getpid():
                raise ClosedError(what=f"{self._used} of the parent process, after a fork,")
            with self._lock:
                if self._ending:
                    raise ClosedError(what=f"this {self._used}")
                # Not by the future: a cancelled one is done while its coroutine still cleans up.
                self._work = {w for w in self._work if inspect.getcoroutinestate(w) != inspect.CORO_CLOSED}
                self._work.add(coroutine)
                return asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except BaseException:
            coroutine.close()
            raise

    def stop(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Refuse further work, let what is under way finish, run one last coroutine, end the thread.

        An interrupt cancels what is under way; its callers are told that this is closed.
        """
        if self._pid != os.getpid():
            return
        with self._lock:
            first, self._ending = not self._ending, True
        if not first:
            # Somebody else is closing it, or has.
            self._thread.join()
            return
        ended = asyncio.run_coroutine_threadsafe(self._end(last), self._loop)
        try:
            ended.result()
        except KeyboardInterrupt:
            self._loop.call_soon_threadsafe(self._cancel)
            ended.result()
            raise
        finally:
            self._ended = True
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _end(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if tasks := self._tasks():
            await asyncio.wait(tasks)
        await last()

    def _cancel(self) -> None:
        for task in self._tasks():
            task.cancel()

    def _tasks(self) -> list[asyncio.Task[Any]]:
        return [task for task in asyncio.all_tasks(self._loop) if task.get_coro() in self._work]


__all__ = ["LoopThread"]
