"""Every schedule of two operations on one fact within a bound, and whether what comes of it is right.

The bound is a number of switches: how often the turn goes to the other operation although the one
whose turn it is could go on. What can go wrong goes wrong with few of them, and within a bound all
schedules can be tried. Where two come to the same order of moves, with as many switches left, one of
them is gone on with.

    python -m custody_sync.testing.sim --interleave supersede:forget
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from custody_sync.testing.sim.agreeing import judged
from custody_sync.testing.sim.pair_world import carry_out
from custody_sync.testing.sim.pairs import PAIRS, Came, Pair, Run, Setting
from custody_sync.testing.sim.running import COLLECT, without_collecting
from custody_sync.testing.sim.scheduling import Schedule, Turn, other

BOUND = {1: 1, 2: 2}
"""By number of processes: how many switches there are at most in all schedules.

Within one process every callback is a place to switch at, between two only what they can notice.
"""
APART = (Setting(owing=True), Setting(owing=True, claim=True))
TOGETHER = frozenset({"write_keyed", "supersede", "forget", "hold"})
"""What the share tries within one process as well."""

Case = tuple[Pair, Setting, int]
"""Two operations, what they find, and the most switches."""


def explore(pair: Pair, setting: Setting, switches: int) -> Iterator[Run]:
    """Yield every schedule of two operations with at most so many switches, those with the fewest first."""
    waiting = deque([Schedule(0), Schedule(1)])
    serial: list[Came] = []
    left_at: dict[tuple[int, Turn], int] = {}
    while waiting:
        schedule = waiting.popleft()
        run = carry_out(pair, setting, schedule)
        if not schedule.switches:
            serial.append(run.came)
        yield judged(run, serial)
        left = switches - len(schedule.switches)
        points = [point for point in run.points if point.moves > max(schedule.switches, default=-1)]
        for point in points:
            here = point.state, point.turn
            left_at[here] = max(left, left_at.get(here, 0))
        for point in points if left else ():
            then = point.state, other(point.turn)
            if left_at.get(then, -1) < left - 1:
                left_at[then] = left - 1
                waiting.append(Schedule(schedule.first, (*schedule.switches, point.moves)))


def repeat(pair: Pair, setting: Setting, schedule: Schedule) -> Run:
    """Carry one schedule out again, and hold it against the two operations one after the other."""
    serial = [carry_out(pair, setting, Schedule(first)).came for first in (0, 1)]
    return judged(carry_out(pair, setting, schedule), serial)


def share() -> Iterator[Case]:
    """Yield the fixed share that every run of the tests takes: one store, and one switch at most.

    Every pair by two processes with something owed, and those that change a fact within one process as well.
    """
    for pair in PAIRS:
        yield from ((pair, setting, 1) for setting in APART if setting in pair.settings)
        if TOGETHER.issuperset(pair.both):
            yield pair, Setting(processes=1), 1


def everything(pairs: Iterable[Pair] = PAIRS) -> Iterator[Case]:
    """Yield all there is within the bound."""
    for pair in pairs:
        yield from ((pair, setting, BOUND[setting.processes]) for setting in pair.settings)


@dataclass(slots=True)
class Explored:
    """What schedules came to in all."""

    cases: int = 0
    schedules: int = 0
    orders: int = 0
    """Of the schedules those that came to an order of moves that no other one of their case came to."""
    steps: int = 0
    checks: int = 0
    found: list[Run] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.cases:,} cases, {self.schedules:,} schedules, {self.orders:,} orders, "
            f"{self.steps:,} steps, {self.checks:,} checks, {len(self.found)} failed"
        )


def run_schedules(
    cases: Iterable[Case],
    *,
    most_found: int = 1,
    watch: Callable[[Explored], None] = lambda explored: None,
    show: Callable[[Run], None] = lambda run: None,
    into: Explored | None = None,
) -> Explored:
    """Carry out every schedule of each case, and stop when enough were found to fail.

    Args:
        cases: such as `share()` or `everything()`.
        most_found: after so many failures the rest is left.
        watch: told after every case.
        show: shown each failure as soon as it is found.
        into: what the schedules are added to; where it is given, an interrupt leaves in it what there was.
    """
    explored = Explored() if into is None else into
    with without_collecting():
        for case in cases:
            _explore_into(explored, case, most_found, show)
            watch(explored)
            if len(explored.found) >= most_found:
                break
    return explored


def _explore_into(explored: Explored, case: Case, most_found: int, show: Callable[[Run], None]) -> None:
    explored.cases += 1
    states: set[int] = set()
    for run in explore(*case):
        explored.schedules += 1
        explored.steps += run.outcome.steps
        explored.checks += run.outcome.checks
        states.add(run.state)
        if explored.schedules % COLLECT == 0:
            gc.collect()
        if run.violation is not None:
            explored.found.append(run)
            show(run)
            if len(explored.found) >= most_found:
                break
    explored.orders += len(states)


__all__ = ["BOUND", "Case", "Explored", "everything", "explore", "repeat", "run_schedules", "share"]
