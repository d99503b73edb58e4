"""A Mem0 face over a desk: memory stores, a clock by hand, a ledger that the test can look into."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from fix_custody import Desk

from custody_sync.faces.mem0 import AsyncMemory


@dataclass
class FaceDesk:
    """A desk, the face over it, and shorter words for what tests do most."""

    desk: Desk
    memory: AsyncMemory

    async def add(self, text: str, user_id: str | None = "ada", **more: Any) -> str:
        """Add one memory verbatim and return its id."""
        answer = await self.memory.add(text, user_id=user_id, infer=False, **more)
        (one,) = answer["results"]
        return str(one["id"])

    async def found(self, query: str, user_id: str = "ada", **more: Any) -> list[str]:
        """Return the words of what a search finds."""
        filters = {"user_id": user_id, **more.pop("filters", {})}
        answer = await self.memory.search(query, filters=filters, threshold=0.0, **more)
        return [one["memory"] for one in answer["results"]]

    async def listed(self, user_id: str = "ada", **more: Any) -> list[str]:
        """Return the words of what a listing has."""
        filters = {"user_id": user_id, **more.pop("filters", {})}
        answer = await self.memory.get_all(filters=filters, **more)
        return [one["memory"] for one in answer["results"]]

    async def events(self) -> int:
        """Return how many events the ledger has."""
        return (await self.desk.ledger.head()).seq


@pytest.fixture
def faced(desk: Desk) -> FaceDesk:
    """A face over a desk with two memory stores."""
    return FaceDesk(desk, AsyncMemory(desk.custody, actor="agent:7"))
