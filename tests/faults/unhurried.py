"""What a child runs in whose every word on stderr counts as trouble."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run work to its end; that a machine is slow is nothing that asyncio's debug mode has to say here."""
    with asyncio.Runner() as runner:
        runner.get_loop().slow_callback_duration = math.inf
        return runner.run(work)
