"""A blocking call where an event loop may be running."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from custody_sync.errors import InsideEventLoop
from custody_sync.loop_thread import LoopThread

T = TypeVar("T")


def blocking(call: Callable[[], T]) -> T:
    """Make a blocking call, in a thread where this one runs an event loop, which then waits.

    So a notebook, whose cells run inside a loop, can call what it always called.

    Raises:
        InsideEventLoop: the loop is a coordinator's own, which would wait for itself: a filter or a callback
            calls the face that calls it.
    """
    if LoopThread.is_here():
        used = "a call of a face, in a filter or a callback of its own,"
        raise InsideEventLoop(used=used, instead="what the callback was given")
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return call()
    with ThreadPoolExecutor(1, thread_name_prefix="custody-face") as pool:
        return pool.submit(call).result()


__all__ = ["blocking"]
