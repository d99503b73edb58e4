"""One world of the crash matrix: a ledger on a disk, stores that outlive processes, a clock, a trap."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any

from fix_custody import ACTOR, Crash, Key
from fix_matrix import Trap, TrappedStore, held_by, make_stores
from fix_matrix_disks import Disk
from fix_orphan import lost_fact

from custody_sync.coordinator import AsyncCoordinator
from custody_sync.ledger import Ledger
from custody_sync.model import Label, Provenance
from custody_sync.removal import Patience
from custody_sync.runtime import Runtime
from custody_sync.testing import InlineExecutor, ManualClock, SteppingIds, manual_sleep
from custody_sync.testing.clock import START

BEGINS = START + timedelta(minutes=30)
"""When the operation under test begins; what it finds is as old as that."""
ABOUT_AN_HOUR = timedelta(hours=1)
MENDS = BEGINS + ABOUT_AN_HOUR
"""When it is repaired, however long its retries took: what is left is old enough then."""
PATIENCE = Patience(questions=3, deletes=2)
ANOTHER = "another-ledger"


class Ids(SteppingIds):
    """Ids that begin anew with each process, in a runtime that outlives it."""

    def restart(self, seed: int) -> None:
        """Begin anew."""
        super().__init__(seed)


@dataclass
class World:
    """What an operation works with, whichever process carries it out."""

    disk: Disk
    number: int
    """How many stores there are."""
    clock: ManualClock = field(default_factory=ManualClock)
    trap: Trap = field(default_factory=Trap)
    ids: dict[str, str] = field(default_factory=dict)
    """Facts by the name that the operation gives them."""
    acknowledged: set[str] = field(default_factory=set)
    """Facts of which somebody was told that they are believed."""
    images: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.stores: list[TrappedStore] = make_stores(self.number, self.trap, self.clock)
        self._made = Ids()
        self.runtime = Runtime(
            clock=self.clock,
            ids=self._made,
            sleep=manual_sleep(self.clock),
            random=random.Random(0),
            reach=self.trap,
            executor=InlineExecutor,
        )
        self.ledger: Ledger
        self.custody: AsyncCoordinator
        self.ledger_id = ""
        self._processes = 0
        self._is_open = False

    # --- processes --------------------------------------------------------------------------

    async def prepare(self, work: Callable[[World], Awaitable[dict[str, str]]]) -> None:
        """Bring about what an operation finds, and keep it."""
        self.clock.set(START)
        self._processes = 0
        self._begin(await self.disk.make(self.runtime))
        self.ledger_id = self.ledger.ledger_id
        for store in self.stores:
            store.put_back({})
            self._add_strangers(store)
        self.ids = {"neighbour": await self.write("neighbour", "silver")}
        self.ids |= await work(self)
        await self.custody.close()
        self._is_open = False
        await self.disk.keep(self.ledger)
        self.images = [store.image() for store in self.stores]
        self.kept = frozenset(self.acknowledged)

    async def restore(self) -> None:
        """Put everything back to where the operation begins, and start a process."""
        self.disk.put_back()
        self.trap.forget()
        for store, image in zip(self.stores, self.images, strict=True):
            store.put_back(image)
        self.clock.set(BEGINS)
        self.acknowledged, self._processes = set(self.kept), 1
        await self.start()

    async def start(self) -> None:
        """Start a process: it knows nothing, and makes ids that nobody had before."""
        self.trap.disarm()
        self._begin(await self.disk.open(self.runtime))

    def _begin(self, ledger: Ledger) -> None:
        self._processes += 1
        self._made.restart(self._processes)
        self.ledger, self._is_open = ledger, True
        self.custody = self.coordinator()
        storage: Any = ledger._storage
        storage.commit = self.trap.appending(partial(type(storage).commit, storage))
        self.trap.on_death = lambda: self.disk.stop(ledger)

    def coordinator(self, stores: int | None = None) -> AsyncCoordinator:
        """Return a coordinator over the first of the stores; over all of them unless told otherwise."""
        return AsyncCoordinator(
            self.ledger,
            stores=self.stores[: self.number if stores is None else stores],
            runtime=self.runtime,
            patience=PATIENCE,
            settle_tries=2,
        )

    async def end(self, before: set[asyncio.Task[Any]]) -> None:
        """Let a process end: well, with its work seen through, or as one that was killed."""
        if not self.trap.is_dead:
            await self.custody.close()
            await self.trap.land()
            return
        # More than once: `wait_for` swallows a cancellation that comes together with what it waits for.
        while tasks := asyncio.all_tasks() - before:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=1)
        self._is_open = False
        await self.disk.bury(self.ledger)

    async def release(self) -> None:
        """Let a process end well, if it has not ended."""
        if self._is_open:
            self._is_open = False
            await self.custody.close()
            await self.disk.release(self.ledger)

    def heal(self) -> None:
        """Let nothing go wrong any more."""
        self.trap.disarm()
        for store in self.stores:
            store.is_picky = False

    # --- acting -----------------------------------------------------------------------------

    async def write(self, name: str, value: str, **more: Any) -> str:
        """Write a fact on one subject per name and return its id."""
        told = {"subject": f"acct:{name}", "predicate": "plan", "space": "org", "actor": ACTOR} | more
        result = await self.custody.write(value=value, **told)
        if result.fact.provenance != Provenance.CLAIMED:
            self.acknowledged.add(result.fact.fact_id)
        return result.fact.fact_id

    def leave(self, fact_id: str, value: str) -> None:
        """Leave an entry in every store that no event stands behind, as a crash does."""
        now = self.clock.now()
        fact = lost_fact(fact_id, value, ACTOR, now)
        for store in self.stores:
            store._take(fact, self.label(fact_id, self.ledger_id))

    def label(self, fact_id: str, ledger_id: str) -> Label:
        """Return a label of now."""
        now = self.clock.now()
        return Label(
            ledger_id=ledger_id,
            fact_id=fact_id,
            space="org",
            stored_at=now,
            generation=self._made.generation(),
            actor=ACTOR,
            provenance=Provenance.ATTESTED,
            valid_from=now,
        )

    def new_id(self) -> str:
        """Return a fact id that no event has."""
        return self._made.fact_id(self.clock.now())

    def _add_strangers(self, store: TrappedStore) -> None:
        """Add what somebody else wrote, and what another ledger did."""
        store.put_raw("acct:4 plan: bronze")
        store.put_raw("acct:5 plan: bronze", self.label(self.new_id(), ANOTHER).to_metadata())

    # --- looking ----------------------------------------------------------------------------

    def held(self) -> dict[Key, str]:
        """Return every entry of ours that a store really holds."""
        return held_by(self.stores, self.ledger_id)

    def strangers(self) -> dict[Key, Any]:
        """Return every entry that is not ours, to the last field, but for what was there to be adopted."""
        return {
            (store.name, key): replace(entry)
            for store in self.stores
            for key, entry in store.snapshot().items()
            if entry.ledger_id != self.ledger_id and "to be adopted" not in (entry.text or "")
        }

    def state(self) -> tuple[Any, ...]:
        """Return all that the next process, and the judge, can know of what happened so far."""
        stores = [(tuple(sorted(s.snapshot().items())), tuple(sorted(s.gone))) for s in self.stores]
        return self.disk.state(), repr(stores), frozenset(self.acknowledged), tuple(self.trap.hasty)

    async def call_error(self, call: Awaitable[Any]) -> BaseException | None:
        """Return what a call raises; a death goes on."""
        try:
            await call
        except Crash:
            raise
        except Exception as error:
            return error
        return None


__all__ = ["ABOUT_AN_HOUR", "ACTOR", "BEGINS", "MENDS", "World"]
