"""A run of two operations on one fact, which take turns by a schedule."""

from __future__ import annotations

import asyncio

from custody_sync.errors import CustodyError
from custody_sync.faultpoints import FaultPoint
from custody_sync.model import format_instant
from custody_sync.testing.sim.judge import Call, Judge
from custody_sync.testing.sim.network import CALL, NetFault
from custody_sync.testing.sim.operations import Operations, actor_of
from custody_sync.testing.sim.pairs import Came, Pair, Run, Setting
from custody_sync.testing.sim.plan import Plan, Step
from custody_sync.testing.sim.process import Process
from custody_sync.testing.sim.scheduling import Schedule, ScheduledLoop
from custody_sync.testing.sim.world import LOOK, World

AGE = 661.0
"""Seconds between what was before and the two."""
SKEW = 7.0
"""Seconds that the second process's clock is ahead of the first one's."""
STORES = ("own", "keys")
FIRST, CURRENT, CLAIM, KEYED, HELD, A, B = range(7)
"""The steps: of what was before, and of the two."""
PICKS = {"recall": 3}
"""For `Step.pick`: in all spaces, for four. All others take what 0 says."""


class Aimed(Operations):
    """Operations on facts that are chosen, whose ends are kept.

    Args:
        judge: as for `Operations`.
        seed: likewise.
    """

    def __init__(self, judge: Judge, seed: int) -> None:
        super().__init__(judge, seed)
        self.targets: dict[int, str] = {}
        """By step: the fact that it is about."""
        self.ends: dict[int, str] = {}
        """By step: how it ended."""

    async def perform(self, step: Step, process: Process, call: Call) -> object:
        """Do what a step says, and keep how it ends."""
        try:
            result = await super().perform(step, process, call)
        except CustodyError as error:
            self.ends[step.number] = error.code
            raise
        self.ends[step.number] = "done"
        return result

    def _pick(self, step: Step) -> str:
        return self.targets.get(step.number) or super()._pick(step)

    def _claimed(self, step: Step) -> str:
        return self._pick(step)


class PairWorld(World):
    """Two operations, what was before them, and the end of it all.

    Args:
        pair: the two.
        setting: what they find.
        schedule: whose turn is when.
    """

    def __init__(self, pair: Pair, setting: Setting, schedule: Schedule) -> None:
        self._turns = ScheduledLoop(schedule, shared=setting.processes == 1)
        names = STORES[: setting.stores]
        clocks = (0.0, SKEW)[: setting.processes]
        plan = Plan(
            seed=1, stores=names, keeps=(False,) * len(names), skews=(*clocks, 0.0), slow=0.0, steps=()
        )
        super().__init__(plan, self._turns)
        self._pair, self._setting, self._schedule = pair, setting, schedule
        self._aimed = Aimed(self.judge, plan.seed)
        self._operations = self._aimed
        self.around.network.touched = self._turns.moved
        self.around.disk.touched = lambda changes: self._turns.moved(CALL.get(), "ledger", changes)

    def carry_out(self) -> Run:
        """Carry the schedule out, heal everything, and judge."""
        outcome = self.run()
        return Run(
            pair=self._pair,
            setting=self._setting,
            schedule=self._schedule,
            outcome=outcome,
            came=self._came(),
            violation=outcome.violation,
            points=tuple(self._turns.points),
            state=self._turns.order.state,
        )

    async def _whole(self) -> None:
        target = await self._before()
        if self.judge.violations:
            return
        await self._both(target)
        await self._end()

    # --- before -----------------------------------------------------------------------------

    async def _before(self) -> str:
        """Do what was done before, and return the fact that the two are about."""
        around, both = self.around, self._pair.both
        first = await self._tell(FIRST, "write")
        if self._setting.owing:
            around.stores[0].armed["delete"] = [NetFault.REFUSED] * 2
        target = fact = await self._tell(CURRENT, "supersede", first)
        around.heal()
        if "confirm" in both:
            claim = await self._tell(CLAIM, "supersede_claimed", fact)
            confirms = [number for number, name in zip((A, B), both, strict=True) if name == "confirm"]
            self._aimed.targets |= dict.fromkeys(confirms, claim)
            target = claim if self._setting.claim else fact
        if "release" in both:
            await self._tell(HELD, "hold", target)
        if self._setting.owing:
            around.processes[-1].die_at(FaultPoint.STORED)
            await self._tell(KEYED, "write_keyed")
        await asyncio.sleep(AGE)
        return target

    async def _tell(self, number: int, operation: str, target: str | None = None) -> str:
        """Carry one operation out until it has ended or its process died; return the newest fact."""
        process = self.around.processes[-1]
        _, task = self._begin(number, operation, process, target)
        await asyncio.wait([task], timeout=LOOK)
        return next(reversed(self.judge.log.asserted))

    def _begin(
        self, number: int, operation: str, process: Process, target: str | None
    ) -> tuple[Call, asyncio.Task[None]]:
        step = Step(number=number, process=0, operation=operation, pick=PICKS.get(operation, 0))
        if target is not None:
            self._aimed.targets.setdefault(number, target)
        self.around.say(f"step {step}")
        call = self.judge.begin(operation, process, actor_of(step))
        return call, process.start(self._perform(step, process, call), call.number)

    # --- the two ----------------------------------------------------------------------------

    async def _both(self, target: str) -> None:
        first, second = self.around.processes[0], self.around.processes[self._setting.processes - 1]
        self._under_way = [
            self._begin(A, self._pair.first, first, target),
            self._begin(B, self._pair.second, second, target),
        ]
        self._turns.take_turns(*(call.number for call, _ in self._under_way))
        await self._all_ended()
        self._turns.end_turns()

    def _came(self) -> Came:
        """Return what it came to, as soon as the two have ended and the sweep is over."""
        log, words = self.judge.log, self.judge.words
        at = format_instant(self.around.clock.now())
        believed, covered = log.believed(at), log.covered(at)
        facts = []
        for fact_id in log.asserted:
            states = {
                "believed": fact_id in believed,
                "covered": fact_id in covered,
                "claimed": fact_id not in log.effective,
                "retracted": fact_id in log.retracted,
                "forgotten": fact_id in log.forgotten,
                "held": log.holds.get(fact_id),
            }
            is_now = " ".join(name for name, is_so in states.items() if is_so)
            facts.append((words.get(fact_id, "?"), is_now))
        ended = self._aimed.ends
        return Came((ended.get(A, "nothing"), ended.get(B, "nothing")), tuple(sorted(facts)))


def carry_out(pair: Pair, setting: Setting, schedule: Schedule) -> Run:
    """Carry one schedule out in a new world."""
    return PairWorld(pair, setting, schedule).carry_out()


__all__ = ["PairWorld", "carry_out"]
