"""One run: a plan carried out in a world of its own, watched by a judge, healed and judged at its end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from custody_sync.errors import CustodyError
from custody_sync.testing.sim.claims import check_claim
from custody_sync.testing.sim.ending import PATIENCE, Ending
from custody_sync.testing.sim.judge import Call, Violation
from custody_sync.testing.sim.loop import Endless, Stuck, VirtualLoop
from custody_sync.testing.sim.operations import Operations, actor_of
from custody_sync.testing.sim.plan import Plan, Step
from custody_sync.testing.sim.process import Process
from custody_sync.testing.sim.surroundings import Surroundings

NEXT = (0.0, 0.0, 0.05, 1.0)
"""Seconds until the operation after one that runs beside others."""
LOOK = 2.0
"""Seconds between two looks whether a process has died."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run."""

    plan: Plan
    violation: Violation | None
    trace: tuple[str, ...]
    """What happened, a line each; the same plan gives the same lines."""
    steps: int
    """How many callbacks ran."""
    checks: int
    events: int
    kills: int


class World:
    """A run.

    Args:
        plan: what is to happen.
        loop: as for `Surroundings`.
    """

    def __init__(self, plan: Plan, loop: VirtualLoop | None = None) -> None:
        self.plan = plan
        self.around = Surroundings(plan, loop)
        self.judge = self.around.judge
        self._ending = Ending(self.around)
        self._operations = Operations(self.judge, plan.seed)
        self._under_way: list[tuple[Call, asyncio.Task[None]]] = []

    def run(self) -> Outcome:
        """Carry the plan out, heal everything, and judge."""
        loop = self.around.loop
        try:
            loop.run_until_complete(self._whole())
        except Stuck:
            self.judge.fail("liveness", "somebody waits for what will never come")
        except Endless:
            self.judge.fail("liveness", "it goes round and round")
        finally:
            kills = self.around.kills
            self.around.bury()
        return Outcome(
            plan=self.plan,
            violation=self.judge.violations[0] if self.judge.violations else None,
            trace=tuple(self.around.trace),
            steps=loop.steps,
            checks=self.judge.checks,
            events=len(self.judge.log.events),
            kills=kills,
        )

    async def _whole(self) -> None:
        for step in self.plan.steps:
            await self._step(step)
            if self.judge.violations:
                return
            if step.number % 3 == 2 and not self.around.disk.away:
                await self._ending.look()
        await self._all_ended()
        await self._end()

    async def _end(self) -> None:
        """Heal everything, let one repair do, and ask about the past again."""
        await self._ending.converge()
        if not self.judge.violations:
            await self._ending.look()
            await self._ending.look_back()
        for problem in self.around.loop.problems:
            self.judge.fail("liveness", problem)

    async def _step(self, step: Step) -> None:
        around = self.around
        if step.gap:
            await asyncio.sleep(step.gap)
        if step.heals:
            around.heal()
        if step.alone:
            await self._all_ended()
        around.say(f"step {step}")
        process = around.processes[step.process % len(around.processes)]
        if process.dead:
            process = around.restart(step.process % len(around.processes))
        steps = around.arm(step, process)
        around.edit(step)
        call = self.judge.begin(step.operation, process, actor_of(step))
        task = process.start(self._perform(step, process, call), call.number)
        self._under_way.append((call, task))
        if steps is not None:
            around.cancel_after(task, steps)
        await asyncio.sleep(around.chance.choice(NEXT))

    async def _perform(self, step: Step, process: Process, call: Call) -> None:
        say = self.around.say
        try:
            result = await self._operations.perform(step, process, call)
        except CustodyError as error:
            say(f"step {step.number} fails: {error.code}")
            self.judge.failed(call, error)
        except asyncio.CancelledError:
            say(f"step {step.number} is given up")
            self.judge.cut(call)
        except Exception as error:
            self.judge.fail("liveness", f"{step.operation} raised {type(error).__name__}: {error}")
        else:
            say(f"step {step.number} ends: {type(result).__name__} {getattr(result, 'complete', '')}")
            self.judge.succeeded(call, result, self.around.disk)
            check_claim(self.judge, call, result)

    async def _all_ended(self) -> None:
        """Wait until whatever is under way has ended, or its process has died."""
        loop = self.around.loop
        until = loop.time() + PATIENCE
        while tasks := self._living():
            if loop.time() > until:
                self.judge.fail("liveness", f"{self._under_way[0][0].operation} does not end")
                return
            # A process that dies tells nobody, so it has to be looked for.
            await asyncio.wait(tasks, timeout=LOOK, return_when=asyncio.FIRST_COMPLETED)

    def _living(self) -> list[asyncio.Task[None]]:
        self._under_way = [
            (call, task) for call, task in self._under_way if not task.done() and not call.process.dead
        ]
        return [task for _, task in self._under_way]


def simulate(plan: Plan) -> Outcome:
    """Carry out a plan in a new world, and say what came of it."""
    return World(plan).run()


__all__ = ["Outcome", "World", "simulate"]
