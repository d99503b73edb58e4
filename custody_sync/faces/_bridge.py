"""One coordinator behind a face that is called with and without `await`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias, TypeVar

from custody_sync.coordinator import AsyncCoordinator
from custody_sync.errors import InsideEventLoop, InvalidInput
from custody_sync.sync import Coordinator

T = TypeVar("T")
Work: TypeAlias = Callable[[AsyncCoordinator], Coroutine[Any, Any, T]]


class Bridge:
    """Runs a face's work where its coordinator lives.

    With a `Coordinator` both kinds of call work: its loop thread does everything, so the stores' clients
    must belong to no other loop. With an `AsyncCoordinator` only `await` works, in the caller's own loop.

    Args:
        custody: the coordinator; it stays open when the face is closed.
        face: what errors call the face.
    """

    def __init__(self, custody: Coordinator | AsyncCoordinator, face: str) -> None:
        if not isinstance(custody, Coordinator | AsyncCoordinator):
            problem = f"must be a Coordinator or an AsyncCoordinator, not {type(custody).__name__}"
            raise InvalidInput(field="custody", problem=problem)
        self.custody = custody
        self._face = face

    def run(self, work: Work[T], *, instead: str) -> T:
        """Do work for a caller that blocks.

        Raises:
            InsideEventLoop: the coordinator is asynchronous, or the caller is inside a loop; names the
                call to await `instead`.
        """
        if isinstance(self.custody, AsyncCoordinator):
            raise InsideEventLoop(used=self._face, instead=instead)
        refuse_inside_loop(self._face, instead)
        return self.custody.do(work)

    async def arun(self, work: Work[T]) -> T:
        """Do work for a caller that awaits it."""
        if isinstance(self.custody, AsyncCoordinator):
            return await work(self.custody)
        return await asyncio.wrap_future(self.custody.start(work))


def refuse_inside_loop(used: str, instead: str) -> None:
    """Refuse to block a running event loop, and say what to await there."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise InsideEventLoop(used=used, instead=instead)


__all__ = ["Bridge", "Work", "refuse_inside_loop"]
