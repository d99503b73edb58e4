"""Making a failing run small: fewer steps, fewer faults, the same invariant broken."""

from __future__ import annotations

from collections.abc import Iterator

from custody_sync.testing.sim.plan import Plan
from custody_sync.testing.sim.world import Outcome, simulate

MOST_RUNS = 200


def shrink(failed: Outcome, *, most: int = MOST_RUNS) -> Outcome:
    """Return the smallest run found that breaks the same invariant; the given one if there is none smaller.

    Steps are left out in halves, then one by one, then faults are; whatever still fails is gone on with.

    Args:
        failed: a run with a violation.
        most: after so many runs the smallest so far is the answer.
    """
    if failed.violation is None:
        return failed
    best, runs = failed, 0
    again = True
    while again:
        again = False
        for smaller in _smaller(best.plan):
            if (runs := runs + 1) > most:
                return best
            outcome = simulate(smaller)
            if outcome.violation is not None and outcome.violation.invariant == failed.violation.invariant:
                best, again = outcome, True
                break
    return best


def _smaller(plan: Plan) -> Iterator[Plan]:
    """Yield plans with less in them, the boldest first."""
    numbers = [step.number for step in plan.steps]
    size = len(numbers) // 2
    while size:
        for start in range(0, len(numbers), size):
            yield plan.only(numbers[:start] + numbers[start + size :], plan.calmed)
        size //= 2
    for step in plan.steps:
        if step.faults or step.heals:
            yield plan.only(numbers, (*plan.calmed, step.number))


__all__ = ["MOST_RUNS", "shrink"]
