"""Wrapped indexes in a folder of their own, with a runtime in which nothing is left to chance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.plain_index import PlainIndex

from custody_sync.faces.wrap import AsyncWrapped, Wrapped, awrap, wrap
from custody_sync.removal import Patience
from custody_sync.testing import ManualClock, testing_runtime

HASTE = Patience(questions=3, first_wait=0.01, total=5.0)
Wrap = Callable[..., Wrapped[Any]]


def told(folder: Path, index: PlainIndex, **more: Any) -> dict[str, Any]:
    """Return the arguments that wrap an index."""
    return {
        "search": index.search,
        "add": index.add,
        "delete": index.delete,
        "ledger": f"sqlite:///{folder}/custody.db",
        "runtime": testing_runtime(clock=ManualClock()),
        "patience": HASTE,
    } | more


@pytest.fixture
def wrapped(tmp_path: Path) -> Iterator[Wrap]:
    """Wrap indexes over one ledger, each as a process of its own would; all are closed afterwards."""
    made: list[Wrapped[Any]] = []
    runtime = testing_runtime(clock=ManualClock())

    def make(index: PlainIndex, **more: Any) -> Wrapped[Any]:
        made.append(wrap(**told(tmp_path, index, **({"runtime": runtime} | more))))
        return made[-1]

    yield make
    for memory in made:
        memory.close()


async def awrapped(folder: Path, index: PlainIndex, **more: Any) -> AsyncWrapped[Any]:
    """Wrap an index for code that awaits."""
    memory: AsyncWrapped[Any] = await awrap(**told(folder, index, **more))
    return memory
