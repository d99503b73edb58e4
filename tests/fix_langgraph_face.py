"""A LangGraph face over any store, in the test's own loop and on a clock by hand, or blocking."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from custody_sync.adapters.langgraph import LangGraphStore
from custody_sync.coordinator import AsyncCoordinator
from custody_sync.faces.langgraph import CustodyStore
from custody_sync.ledger import Ledger
from custody_sync.testing import FaultPlan, ManualClock, testing_runtime


@dataclass
class Counter:
    """A face, and what a test looks behind it with."""

    store: CustodyStore
    custody: AsyncCoordinator
    clock: ManualClock
    plan: FaultPlan
    url: str

    @property
    def ledger(self) -> Ledger:
        """The ledger underneath."""
        return self.custody.ledger

    async def kinds(self) -> list[str]:
        """Return the kinds of all events."""
        return [row["event"]["kind"] async for row in self.ledger.export()]

    async def values(self, *namespace: str, **more: Any) -> list[Any]:
        """Return what is served below a namespace, the newest last."""
        return [item.value for item in await self.store.asearch(namespace, limit=1000, **more)]


Opens: TypeAlias = Callable[..., AbstractAsyncContextManager[Counter]]


@asynccontextmanager
async def open_counter(
    folder: Path, store: Any, *, patience: Any = None, **more: Any
) -> AsyncIterator[Counter]:
    """Open a face over a LangGraph store, or over a store of ours."""
    clock, plan = ManualClock(), FaultPlan()
    runtime = testing_runtime(clock=clock, reach=plan)
    adapter = store if hasattr(store, "capabilities") else LangGraphStore(store, ("custody", "{space}"))
    url = f"sqlite:///{folder / 'custody.db'}"
    async with AsyncExitStack() as stack:
        ledger = await stack.enter_async_context(await Ledger.open(url, create=True, runtime=runtime))
        custody = await stack.enter_async_context(
            AsyncCoordinator(ledger, stores=[adapter], runtime=runtime, patience=patience)
        )
        yield Counter(CustodyStore(custody, **more), custody, clock, plan, url)
