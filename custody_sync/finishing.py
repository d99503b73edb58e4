"""Work that ends as a whole: what a caller who gives up must not stop, and what must not outlast it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


class Finishing:
    """Holds on to work that a cancellation must not stop half-way."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    async def see_through(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for work that ends even if the waiting is cancelled."""
        task = asyncio.ensure_future(work)
        # The loop itself holds tasks only weakly.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def wait(self) -> None:
        """Wait until nothing of this event loop is left to finish; another loop's work ends there."""
        here = asyncio.get_running_loop()
        while tasks := [task for task in self._tasks if task.get_loop() is here]:
            await asyncio.gather(*tasks, return_exceptions=True)


async def together(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines at once and return their results in order; however it ends, none of them runs on.

    The first error is raised as it is, and cancels the others.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in work]
    except BaseExceptionGroup as errors:
        first = errors.exceptions[0]
    else:
        return [task.result() for task in tasks]
    raise first
