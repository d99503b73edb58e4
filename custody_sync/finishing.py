"""Clean-up that goes on when the caller who waits for it gives up."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
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
        """Wait until nothing is left to finish."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
