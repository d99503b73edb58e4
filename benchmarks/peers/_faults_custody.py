"""The same stores under custody-sync: one coordinator, one ledger in a file, a clock by hand."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from _faults_stores import GraphStores, Mem0Memory, VectorStore
from _faults_story import Step, again
from _faults_wire import Wire

from custody_sync import AsyncCoordinator, Ledger
from custody_sync.adapters.langchain import LangChainStore
from custody_sync.adapters.langgraph import LangGraphStore
from custody_sync.adapters.mem0 import Mem0Store
from custody_sync.errors import BreakerOpen
from custody_sync.removal import Patience
from custody_sync.testing import InlineExecutor, ManualClock, testing_runtime

ACTOR = "agent:story"
LATER = timedelta(minutes=11)
"""The sweep takes nothing that is younger than ten minutes."""
# One attempt for each deletion, as everybody else has.
PATIENCE = Patience(deletes=1)


class Stores(Protocol):
    """Stores that a peer is tried on too."""

    def held(self) -> dict[str, list[str]]:
        """Return the texts of each."""

    def close(self) -> None:
        """Let go of them."""


class Custody:
    """custody-sync over some stores.

    Args:
        wire: what calls of the stores and commits of the ledger go over.
        stores: the stores.
        adapters: makes the adapters, anew for each process.
    """

    def __init__(self, wire: Wire, stores: Stores, adapters: Callable[[], list[Any]]) -> None:
        self._wire, self._stores, self._adapters = wire, stores, adapters
        self._folder = Path(tempfile.mkdtemp())
        self._clock = ManualClock()
        self._runtime = testing_runtime(clock=self._clock, reach=wire.reach)
        self._ledger: Ledger | None = None
        self._opened: AsyncCoordinator | None = None

    async def _custody(self) -> AsyncCoordinator:
        if self._opened is None:
            url = f"sqlite:///{self._folder}/custody.db"
            # Nothing strikes while it is opened: the story has begun long ago.
            number, self._wire.operation = self._wire.operation, 0
            self._ledger = await Ledger.open(url, create=True, runtime=self._runtime, witness=False)
            self._opened = AsyncCoordinator(
                self._ledger, stores=self._adapters(), runtime=self._runtime, patience=PATIENCE
            )
            self._wire.operation = number
        return self._opened

    async def put(self, step: Step) -> bool:
        """Write a fact about the key."""
        return await self.correct(step)

    async def correct(self, step: Step) -> bool:
        """Supersede what the ledger believes of the key; where that is nothing, write it."""
        custody = await self._custody()
        believed = await custody.ledger.as_of(space=step.person, subject=step.key)
        if any(fact.value == step.text for fact in believed):
            return True
        result = await custody.write(
            value=step.text,
            text=step.text,
            space=step.person,
            subject=step.key,
            predicate="memory",
            supersedes=believed[0].fact_id if believed else None,
            actor=ACTOR,
        )
        return result.complete

    async def delete(self, step: Step) -> bool:
        """Forget what is about the key."""
        custody = await self._custody()
        told = {"actor": ACTOR, "reason": "asked to"}
        return (await custody.forget_where(space=step.person, subject=step.key, **told)).complete

    async def delete_person(self, step: Step) -> bool:
        """Forget a space."""
        custody = await self._custody()
        return (await custody.forget_where(space=step.person, actor=ACTOR, reason="asked to")).complete

    async def search(self, person: str, text: str) -> list[str]:
        """Recall from every store."""
        custody = await self._custody()
        found = []
        for name in self._stores.held():
            found += (await custody.recall(text, spaces=[person], store=name)).facts
        return [str(fact.text) for fact in found]

    async def restart(self) -> None:
        """Leave everything of the process as it is, and open the ledger's file anew."""
        await self._shut()

    async def recover(self, failed: Sequence[Step]) -> list[Step]:
        """Do again what failed; then, when what is left is old enough, sweep once."""
        done = await again(self, failed)
        self._clock.advance(LATER)
        custody = await self._custody()
        try:
            await custody.repair(actor="ops", reason="after the fault")
        except BreakerOpen as stopped:
            # The guide says: look at what it would do, and allow as many.
            await custody.repair(
                actor="ops", reason="after the fault", max_removals=int(str(stopped.fields["planned"]))
            )
        return done

    def held(self) -> Mapping[str, list[str]]:
        """Return what lies in the stores."""
        return self._stores.held()

    async def close(self) -> None:
        """Close everything."""
        await self._shut()
        self._stores.close()
        shutil.rmtree(self._folder)

    async def _shut(self) -> None:
        for opened in (self._opened, self._ledger):
            # One that died in the middle of something may not want to.
            with suppress(Exception):
                if opened is not None:
                    await opened.close()
        self._opened = self._ledger = None


def over_vectors(wire: Wire) -> Custody:
    """Return custody-sync over LangChain's vector store in memory."""
    stores = VectorStore(wire)
    return Custody(wire, stores, lambda: [LangChainStore(stores.store, "vectors", executor=InlineExecutor())])


def over_mem0(wire: Wire) -> Custody:
    """Return custody-sync over Mem0's library."""
    stores = Mem0Memory(wire)
    return Custody(wire, stores, lambda: [Mem0Store(stores.memory, name="mem0", executor=InlineExecutor())])


def over_graphs(wire: Wire, names: Sequence[str]) -> Custody:
    """Return custody-sync over LangGraph stores."""
    stores = GraphStores(wire, names)

    def adapters() -> list[Any]:
        return [
            LangGraphStore(store, name=name, executor=InlineExecutor())
            for name, store in stores.stores.items()
        ]

    return Custody(wire, stores, adapters)
