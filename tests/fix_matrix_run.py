"""Running the crash matrix: record an operation, derive its cases, carry each out, count."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from fix_custody import Crash
from fix_matrix import Fault, OurBug, faults_of
from fix_matrix_disks import open_disk
from fix_matrix_judge import Judge, believed_at, read_log
from fix_matrix_operations import OPERATIONS, Operation
from fix_matrix_world import ABOUT_AN_HOUR, MENDS, World

from custody_sync.errors import CustodyError
from custody_sync.model import REPAIR_MIN_AGE

EXPECTED = (CustodyError, asyncio.CancelledError, OurBug)


@dataclass
class Bench:
    """Runs the cases of one operation in one world."""

    world: World
    operation: Operation
    counted: Counter[str] = field(default_factory=Counter)
    """Cases by kind of fault."""
    missed: list[str] = field(default_factory=list)
    """Cases whose place was not reached again."""
    places: list[str] = field(default_factory=list)
    """Every place that the operation reaches when all goes well, in its order."""
    mended: set[Any] = field(default_factory=set)
    """What cases left behind and was mended: what equals it to the byte needs no second repair."""

    left: Any = None
    """What the last case left behind."""

    async def prepare(self) -> None:
        """Bring about what the operation finds, note what must not change, and record its places."""
        world = self.world
        await world.prepare(self.operation.prepare)
        await world.restore()
        head = await world.ledger.head()
        assert head.tx_time is not None
        self._judge = Judge(
            world,
            self.operation,
            first=await read_log(world.ledger),
            before={"at": head.tx_time, "facts": await believed_at(world.ledger, head.tx_time)},
            held=world.held(),
            strangers=world.strangers(),
        )
        first = self._judge.first
        world.trap.loose = frozenset(world.held().keys() - first.placed.keys() - first.removed.keys())
        # What a sweep has to erase was forgotten before, and closing has cleaned most of it up.
        for secret in () if self.operation.sweeps else self.operation.erases:
            assert world.disk.says(secret.encode()), f"{secret} is nowhere, so its absence proves nothing"
        await self.world.release()
        await self.run(())
        self.places = world.trap.recorded

    async def run_all(self, faults: Sequence[Fault]) -> list[str]:
        """Run each of some cases and return what failed, by name."""
        problems: list[str] = []
        for fault in faults:
            try:
                await self.run((fault,))
            except Exception as problem:
                problems.append(f"{fault}: {type(problem).__name__}: {problem}")
            self.counted[fault.kind.value] += 1
        return problems

    def faults(self) -> list[Fault]:
        """Return every case of one fault."""
        return faults_of(self.places)

    async def run(self, faults: Sequence[Fault], second: Sequence[Fault] | None = None) -> list[str]:
        """Run one case: do it, let it go wrong, restart, wait, repair once, judge.

        Args:
            faults: what goes wrong, and where.
            second: what goes wrong while that is repaired; then it is repaired once more.

        Returns:
            The places that a repair with a `second` reached.
        """
        await self.world.restore()
        try:
            return await self._run(faults, second)
        finally:
            await self.world.release()

    async def _run(self, faults: Sequence[Fault], second: Sequence[Fault] | None) -> list[str]:
        world = self.world
        answer, died = await self._do(self.operation.act, faults)
        if len(world.trap.fired) < len(faults):
            self.missed.append(" ".join(map(str, faults)))
        world.heal()
        if not died and not isinstance(answer, asyncio.CancelledError | OurBug):
            await self._judge.claim(answer)
        await self._end()
        self.left, reached = world.state(), list[str]()
        if second is None and self.left in self.mended:
            return reached
        await self._begin(MENDS)
        if second is not None:
            await self._do(self._mend, second)
            reached = list(world.trap.recorded)
            world.heal()
            await self._end()
            await self._begin(MENDS + ABOUT_AN_HOUR)
        await self._mend(world)
        await self._judge.end()
        self.mended.add(self.left)
        return reached

    async def _do(self, act: Callable[[World], Awaitable[Any]], faults: Sequence[Fault]) -> tuple[Any, bool]:
        """Let a process do something; return what it answered or raised, and whether it died of it."""
        world, before = self.world, asyncio.all_tasks()
        task = asyncio.ensure_future(act(world))
        world.trap.arm(faults, task)
        await asyncio.wait([task])
        died = world.trap.is_dead
        await world.end(before)
        found: Any = asyncio.CancelledError() if task.cancelled() else task.exception()
        if died:
            return None, True
        assert not isinstance(found, Crash)
        if found is not None and not isinstance(found, EXPECTED):
            raise found
        return found if found is not None else task.result(), False

    async def _end(self) -> None:
        """End the process, if it has not ended, and let what is on its way to the stores arrive."""
        await self.world.release()
        for store in self.world.stores:
            store.land()

    async def _begin(self, at: datetime) -> None:
        """Start another process when what was left is old enough to be repaired."""
        assert self.world.clock.now() < at - REPAIR_MIN_AGE
        await self.world.start()
        self.world.trap.fired = []
        self.world.clock.set(at)

    async def _mend(self, world: World) -> None:
        """Repair once, which has to be complete, and do again what only doing it again completes."""
        result = await world.custody.repair(actor="ops", reason="after an outage", max_removals=1000)
        assert result.complete or world.trap.fired, f"I2: one repair is not complete: {result}"
        if self.operation.again is not None:
            again = await self.operation.again(world)
            complete = getattr(again, "complete", True)
            assert complete or world.trap.fired, f"I2: doing it again is not complete: {again}"


def _say(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Say what no task was asked for, but for what is left of a process that is dead."""
    if not isinstance(context.get("exception"), Crash):
        loop.default_exception_handler(context)


@contextmanager
def open_bench(
    storage: str, operation: str, number: int, folder: Path, server: Callable[[], str]
) -> Iterator[tuple[Bench, asyncio.Runner]]:
    """Prepare one operation over so many stores, and the event loop that its cases are run in."""
    with open_disk(storage, folder, server) as disk, asyncio.Runner() as runner:
        runner.get_loop().set_exception_handler(_say)
        bench = Bench(World(disk, number), OPERATIONS[operation])
        try:
            runner.run(bench.prepare())
            yield bench, runner
        finally:
            runner.run(disk.close())


__all__ = ["Bench", "open_bench"]
