"""What a run takes place in: a loop, a disk, a network, stores, processes, and what goes wrong with them."""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Literal

from custody_sync.faultpoints import FaultPoint
from custody_sync.model import Capability, Label, Provenance
from custody_sync.testing.misbehaviour import FOREVER, Faults
from custody_sync.testing.sim.disk import Disk, DiskFault
from custody_sync.testing.sim.judge import Judge
from custody_sync.testing.sim.loop import VirtualClock, VirtualLoop
from custody_sync.testing.sim.network import LATEST, NetFault, Network, SimStore
from custody_sync.testing.sim.plan import Fault, Plan, Step
from custody_sync.testing.sim.process import Process

COMMITS = (FaultPoint.BEFORE_COMMIT, FaultPoint.AFTER_COMMIT)
"""Reached so often that a trace is easier to read without them."""
STRANGER = "01990000-0000-7000-8000-0000000000ff"


class Surroundings:
    """Everything of one run but what happens in it.

    Args:
        plan: says what there is.
        loop: whose order of callbacks is another than the one drawn from the plan's seed.
    """

    def __init__(self, plan: Plan, loop: VirtualLoop | None = None) -> None:
        self.plan = plan
        self.chance = random.Random(f"run {plan.seed}")  # noqa: S311  # a seeded generator is the point
        self.loop = VirtualLoop(self.chance) if loop is None else loop
        self.judge = Judge()
        self.trace: list[str] = []
        self.clock = VirtualClock(self.loop)
        self.network = Network(self.loop, self.chance, plan.slow, self.judge)
        self.disk = Disk(self._later, self._committed)
        self.disk.took_over = self.judge.took_over
        self.stores = [_store(name, self.network, self.clock) for name in plan.stores]
        for store in self.stores:
            # Not drawn: other worlds stay as they are.
            store.blends_spaces = plan.seed % 3 == 0
        self.judge.stores = {store.name: store for store in self.stores}
        keeps = dict(zip(plan.stores, plan.keeps, strict=True))
        self._superseded: dict[str, Literal["remove", "keep"]] = {
            name: "keep" if keeps[name] else "remove" for name in plan.stores
        }
        self._numbers = 0
        self.processes = [self._start(skew) for skew in plan.skews]
        self.observer = self._start(0.0)
        """Dies never; it sweeps when all is healed."""
        self.buried: list[Process] = []
        self._settle_strangers()

    def _start(self, skew: float) -> Process:
        self._numbers += 1
        return Process(
            loop=self.loop,
            disk=self.disk,
            stores=self.stores,
            number=self._numbers,
            skew=skew,
            superseded=self._superseded,
            seen=self._reached,
        )

    def _reached(self, process: Process, point: str) -> None:
        if point not in COMMITS:
            self.say(f"process {process.number} reaches {point}")

    def _later(self, work: Callable[[], None]) -> None:
        self.network.later(self.chance.random() * LATEST, work)

    def _committed(self, disk: Disk, now: datetime) -> None:
        before = len(self.judge.log.events)
        self.judge.committed(disk, self.clock.now())
        for event in self.judge.log.events[before:]:
            outcome = event["data"].get("outcome", "")
            self.say(f"event {event['seq']} {event['kind']} {event['fact_id'][-6:]} {outcome}".rstrip())
        self.say(f"head {self.judge.log.prev}")

    def say(self, line: str) -> None:
        """Add a line to the trace."""
        self.trace.append(f"{self.loop.time():.6f} {line}")

    def _settle_strangers(self) -> None:
        """Put entries of somebody else into every store: one without a label, one of another ledger."""
        for store in self.stores:
            ids = [store.put_raw(f"acct:1 plan: somebody's own in {store.name}")]
            label = Label(
                ledger_id=STRANGER,
                fact_id=STRANGER,
                space="org",
                stored_at=self.clock.now() - timedelta(days=1),
                generation="0" * 12,
                actor="somebody",
                provenance=Provenance.ATTESTED,
                valid_from=self.clock.now(),
            )
            ids.append(store.put_raw("acct:1 plan: another ledger's", label.to_metadata()))
            self.judge.strangers += [(store.name, external_id) for external_id in ids]

    def restart(self, index: int) -> Process:
        """Begin another process in the place of a dead one."""
        dead = self.processes[index]
        self.buried.append(dead)
        self.processes[index] = self._start(dead.clock.skew)
        self.say(f"process {dead.number} is dead, process {self._numbers} begins")
        return self.processes[index]

    @property
    def kills(self) -> int:
        """How many processes have died."""
        return len(self.buried) + sum(process.dead for process in self.processes)

    def bury(self) -> None:
        """End all that is left, without any effect."""
        for process in (self.observer, *self.processes, *self.buried):
            process.dead = True
        self.loop.bury()
        self.loop.close()
        self.disk.close()

    # --- what goes wrong --------------------------------------------------------------------

    def arm(self, step: Step, process: Process) -> int | None:
        """Make a step's faults ready; return after how many steps its caller gives up, if it does."""
        gives_up = None
        for fault in step.faults:
            if fault.what == "cancel":
                gives_up = int(fault.number)
            elif fault.what == "step":
                process.die_after(int(fault.number))
            elif fault.what == "point":
                process.die_at(FaultPoint(fault.kind))
            elif fault.what == "clock":
                process.clock.skew = fault.number
            else:
                self._break(fault)
        return gives_up

    def _break(self, fault: Fault) -> None:
        store = self.stores[fault.store % len(self.stores)]
        if fault.what == "net":
            armed = store.armed.setdefault(fault.operation, [])
            armed += [NetFault(fault.kind)] * int(fault.number)
        elif fault.what == "disk":
            self.disk.faults[DiskFault(fault.kind)] += int(fault.number)
        elif fault.what == "away":
            store.away = True
            self.network.later(fault.number, lambda: setattr(store, "away", False))
        elif fault.what == "gone":
            self.disk.away = True
            self.network.later(fault.number, lambda: setattr(self.disk, "away", False))
        else:
            self._lie(store, fault)

    def _lie(self, store: SimStore, fault: Fault) -> None:
        if fault.kind != "lost_entries":
            _lie(store, fault)
            return
        for external_id in store.lose(int(fault.number)):
            self.judge.lost.add((store.name, external_id))
            self.say(f"{store.name} loses {external_id}")

    def edit(self, step: Step) -> None:
        """Let somebody edit an entry in its store, in every fifth world, where nobody tells the ledger."""
        if self.plan.seed % 5 or step.number % 3 != 2:
            return
        store = self.stores[step.pick % len(self.stores)]
        external_id = store.reword(f"acct plan canary: somebody's words at step {step.number}")
        if external_id is not None:
            self.judge.edited.add((store.name, external_id))
            self.say(f"somebody edits {external_id} in {store.name}")

    def cancel_after(self, task: asyncio.Task[None], steps: int) -> None:
        """Let a caller give up after so many steps of the run."""

        def count(left: int) -> None:
            if left <= 0:
                task.cancel()
            elif not task.done():
                self.loop.call_soon(count, left - 1, context=contextvars.Context())

        self.loop.call_soon(count, steps, context=contextvars.Context())

    def heal(self) -> None:
        """End all that goes wrong, but for what is on its way."""
        for store in self.stores:
            store.heal()
            store.faults = Faults()
        self.disk.heal()
        for process in self.processes:
            process.spare()
        self.say("healed")


def _store(name: str, network: Network, clock: VirtualClock) -> SimStore:
    return SimStore(
        name,
        network,
        own_ids=name in ("own", "mute"),
        without=[Capability.FIND] if name == "mute" else [],
        parts=2 if name == "parts" else 1,
        page_size=4,
        clock=clock,
    )


def _lie(store: SimStore, fault: Fault) -> None:
    """Let a store be wrong until it is healed."""
    faults = store.faults
    if fault.kind == "index_lag":
        faults.index_lag = fault.number
    elif fault.kind == "broken_index":
        faults.index_lag = FOREVER
    elif fault.kind == "put_lag":
        faults.put_lag = fault.number
    elif fault.kind == "silent_delete":
        faults.silent_delete = True
    elif fault.kind == "short_listing":
        faults.short_listings = fault.number
    elif fault.kind == "breaking_listing":
        faults.list_breaks_after = int(fault.number)
    elif fault.kind == "pending":
        faults.pending = True


__all__ = ["Surroundings"]
