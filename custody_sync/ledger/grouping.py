"""Group commit: whatever waits is committed as one transaction by one worker.

The first caller starts the worker, once its event loop has run whatever else was ready; callers
that arrive while it commits wait for the next group. A fsync is thus shared by all who need one,
and order is total. Callers may live in any event loop; the worker may be a thread or, in a
simulation, run in place.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from typing import Any, Generic, TypeVar

from custody_sync.errors import ClosedError
from custody_sync.errors.base import again

W = TypeVar("W")

Waiting = list[tuple[W, asyncio.AbstractEventLoop, asyncio.Future[Any]]]
Commit = Callable[[Sequence[W], Callable[[], None]], Sequence[Any]]

MAX_GROUP = 256
FEW = 32
"""So many are not worth a second transaction."""


class GroupWriter(Generic[W]):
    """Hand work to `commit` in groups and every caller its own result.

    Args:
        executor: where `commit` runs; one group at a time.
        commit: takes a group and returns one result or exception per item, in order. It is also given
            `tell`, to call before it waits for a lock or a disk: the group before then hears of its
            results, and its callers make their next work while this one waits.
        name: what an error calls it once it is closed.
    """

    def __init__(self, executor: Executor, commit: Commit[W], name: str) -> None:
        self._executor = executor
        self._commit = commit
        self._name = name
        self._lock = threading.Lock()
        self._waiting: Waiting[W] = []
        self._running = False
        self._starting: asyncio.AbstractEventLoop | None = None
        self._closed = False

    async def do(self, work: W) -> Any:
        """Wait until the work's group is committed and return its result, or raise its exception."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        with self._lock:
            if self._closed:
                raise ClosedError(what=self._name)
            self._waiting.append((work, loop, future))
            # A loop that was closed before it came to start the worker never will.
            start = not self._running or (self._starting is not None and self._starting.is_closed())
            if start:
                self._running, self._starting = True, loop
        if start:
            # Not at once: callers who are ready in the same turn of the loop belong to the group.
            loop.call_soon(self._start)
        try:
            return await future
        except asyncio.CancelledError:
            # What has not been taken up yet never will be; the rest nobody can call back.
            with self._lock:
                self._waiting = [item for item in self._waiting if item[2] is not future]
            raise

    def close(self) -> None:
        """Refuse further work; what waits is still committed."""
        with self._lock:
            self._closed = True
        self._start()

    def _start(self) -> None:
        with self._lock:
            if self._starting is None:
                return
            self._starting = None
        try:
            self._executor.submit(self._drain)
        except RuntimeError:
            with self._lock:
                group, self._waiting, self._running = self._waiting, [], False
            self._deliver(group, [ClosedError(what=self._name) for _ in group])

    def _drain(self) -> None:
        done: tuple[Waiting[W], Sequence[Any]] = [], ()
        while True:
            with self._lock:
                size = _size(len(self._waiting), len(done[0]))
                group, self._waiting = self._waiting[:size], self._waiting[size:]
                if not group:
                    self._running = False
            tell = self._once(*done)
            if not group:
                tell()
                return
            try:
                results = self._commit([work for work, _, _ in group], tell)
            except BaseException as error:  # every waiting caller must hear of it
                results = _to_each(error, len(group))
            tell()
            done = group, results

    def _once(self, group: Waiting[W], results: Sequence[Any]) -> Callable[[], None]:
        """Return what tells a group its results, however often it is called."""
        untold = [(group, results)]

        def tell() -> None:
            while untold:
                self._deliver(*untold.pop())

        return tell

    def _deliver(self, group: Waiting[W], results: Sequence[Any]) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]] = {}
        for (_, loop, future), result in zip(group, results, strict=True):
            by_loop.setdefault(loop, []).append((future, result))
        for loop, answers in by_loop.items():
            try:
                loop.call_soon_threadsafe(_resolve, answers)
            except RuntimeError:
                # The loop was closed while its callers waited: nobody is left to be told.
                continue


def _size(waiting: int, served: int) -> int:
    """Take half of all who are at it, so that while one half commits the other makes its next work."""
    return min(max(FEW, (waiting + served + 1) // 2), MAX_GROUP)


def _to_each(error: BaseException, callers: int) -> list[BaseException]:
    return [error if i == 0 else again(error) for i in range(callers)]


def _resolve(answers: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, result in answers:
        if future.done():
            continue
        if isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)


class LoopGroupWriter(Generic[W]):
    """`GroupWriter` for a commit that is awaited: everything happens in one event loop, without locks.

    Args:
        commit: takes a group and returns one result or exception per item, in order.
        name: what an error calls it once it is closed.
    """

    def __init__(self, commit: Callable[[Sequence[W]], Awaitable[Sequence[Any]]], name: str) -> None:
        self._commit = commit
        self._name = name
        self._waiting: list[tuple[W, asyncio.Future[Any]]] = []
        self._worker: asyncio.Task[None] | None = None
        self._closed = False

    async def do(self, work: W) -> Any:
        """Wait until the work's group is committed and return its result, or raise its exception."""
        if self._closed:
            raise ClosedError(what=self._name)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._waiting.append((work, future))
        if self._worker is None:
            # It begins after whatever is ready in this turn of the loop, which belongs to the group.
            self._worker = loop.create_task(self._drain())
        try:
            return await future
        except asyncio.CancelledError:
            self._waiting = [item for item in self._waiting if item[1] is not future]
            raise

    async def close(self) -> None:
        """Refuse further work; what waits is still committed."""
        self._closed = True
        if self._worker is not None:
            await asyncio.wait([self._worker])

    async def _drain(self) -> None:
        served = 0
        try:
            while self._waiting:
                size = _size(len(self._waiting), served)
                group, self._waiting = self._waiting[:size], self._waiting[size:]
                served = size
                await self._serve(group)
        finally:
            self._worker = None
            # Something is left only where the loop is being torn down.
            for _, future in self._waiting:
                future.cancel()

    async def _serve(self, group: list[tuple[W, asyncio.Future[Any]]]) -> None:
        try:
            results = await self._commit([work for work, _ in group])
        except BaseException as error:  # every waiting caller must hear of it
            results = _to_each(error, len(group))
        # Told now, they make their next work while the next group is on its way.
        _resolve([(future, result) for (_, future), result in zip(group, results, strict=True)])
        for result in results:
            if isinstance(result, asyncio.CancelledError):
                raise result
