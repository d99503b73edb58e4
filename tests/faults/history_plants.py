"""Bugs planted in a client's process; the checker of histories has to find each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from custody_sync.coordinator import AsyncCoordinator
from custody_sync.errors import OnHold
from custody_sync.ledger import Ledger

LATE = 0.3
"""Seconds by which an event comes later than its acknowledgement."""


def acknowledge_before_the_commit() -> None:
    """A retraction is answered at once and recorded afterwards, if nobody is killed meanwhile."""
    retract = AsyncCoordinator.retract
    late: set[asyncio.Task[Any]] = set()

    async def hasty(self: AsyncCoordinator, fact_id: str, **told: Any) -> Any:
        async def do() -> None:
            await asyncio.sleep(LATE)
            await retract(self, fact_id, **told)

        late.add(asyncio.ensure_future(do()))
        return SimpleNamespace()

    pytest.MonkeyPatch().setattr(AsyncCoordinator, "retract", hasty)


def answer_from_a_cache() -> None:
    """What a process has read once it reads again."""
    as_of, cache = Ledger.as_of, dict[str, Any]()

    async def cached(self: Ledger, *args: Any, **told: Any) -> Any:
        if "page" not in cache:
            cache["page"] = await as_of(self, *args, **told)
        return cache["page"]

    pytest.MonkeyPatch().setattr(Ledger, "as_of", cached)


def refuse_after_the_commit() -> None:
    """A hold is recorded and refused all the same."""
    hold = AsyncCoordinator.hold

    async def refused(self: AsyncCoordinator, fact_id: str, **told: Any) -> Any:
        await hold(self, fact_id, **told)
        raise OnHold(fact_id=fact_id, holds=())

    pytest.MonkeyPatch().setattr(AsyncCoordinator, "hold", refused)


PLANTS: dict[str, Callable[[], None]] = {
    "acknowledge_before_the_commit": acknowledge_before_the_commit,
    "answer_from_a_cache": answer_from_a_cache,
    "refuse_after_the_commit": refuse_after_the_commit,
}
