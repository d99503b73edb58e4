"""One run for all who ask meanwhile: a listing, or an indexing, that begins after each of them asked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeAlias, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

_Loop: TypeAlias = asyncio.AbstractEventLoop


class NextRun(Generic[K, T]):
    """Run a piece of work once at a time for a key; whoever comes meanwhile shares the next run.

    What is answered was therefore asked after the question, never before. A run is not broken off
    when those who wait for it stop waiting.

    Args:
        work: What to run for a key.
    """

    def __init__(self, work: Callable[[K], Awaitable[T]]) -> None:
        self._work = work
        self._running: dict[tuple[_Loop, K], asyncio.Task[T]] = {}
        self._waiting: dict[tuple[_Loop, K], asyncio.Task[T]] = {}

    async def __call__(self, key: K) -> T:
        """Return what a run that begins from now on returns."""
        place = (asyncio.get_running_loop(), key)
        task = self._waiting.get(place)
        if task is None:
            task = asyncio.ensure_future(self._after_the_other(place))
            task.add_done_callback(_seen)
            self._waiting[place] = task
        return await asyncio.shield(task)

    async def _after_the_other(self, place: tuple[_Loop, K]) -> T:
        other = self._running.get(place)
        if other is not None:
            await asyncio.wait([other])
        mine = self._waiting.pop(place)
        self._running[place] = mine
        try:
            return await self._work(place[1])
        finally:
            if self._running.get(place) is mine:
                del self._running[place]


def _seen(task: asyncio.Task[T]) -> None:
    """Look at a failure, since all who waited for it may have gone."""
    if not task.cancelled():
        task.exception()


__all__ = ["NextRun"]
