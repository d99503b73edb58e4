"""A blocking call where an event loop may be running."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def blocking(call: Callable[[], T]) -> T:
    """Make a blocking call, in a thread where this one runs an event loop, which then waits.

    So a notebook, whose cells run inside a loop, can call what it always called.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return call()
    with ThreadPoolExecutor(1, thread_name_prefix="custody-face") as pool:
        return pool.submit(call).result()


__all__ = ["blocking"]
