"""Many runs: one seed after another, what they came to in all, and the first that fails made small."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from custody_sync.testing.sim.plan import Plan
from custody_sync.testing.sim.shrink import shrink
from custody_sync.testing.sim.world import Outcome, simulate

COLLECT = 20
"""Runs after which what they left in circles is collected."""


@dataclass(frozen=True, slots=True)
class Found:
    """A run that broke an invariant, and the smallest one that still does."""

    outcome: Outcome
    small: Outcome

    def __str__(self) -> str:
        said = [f"{self.small.violation}", str(self.small.plan), f"again: {self.small.plan.command}"]
        return "\n".join(said)


@dataclass(slots=True)
class Tally:
    """What runs came to in all."""

    seeds: int = 0
    steps: int = 0
    """Callbacks that ran, each in a place of the order that the seed drew."""
    checks: int = 0
    events: int = 0
    kills: int = 0
    found: list[Found] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.seeds:,} seeds, {self.events:,} events, {self.kills:,} processes killed, "
            f"{self.steps:,} steps, {self.checks:,} checks, {len(self.found)} failed"
        )


def run_seeds(
    seeds: Iterable[int],
    *,
    steps: int | None = None,
    most_found: int = 1,
    watch: Callable[[Tally], None] = lambda tally: None,
    show: Callable[[Found], None] = lambda found: None,
    into: Tally | None = None,
) -> Tally:
    """Run each seed once, stop when enough were found to fail, and make those small.

    An interrupt goes through, and loses nothing that was found.

    Args:
        seeds: the seeds.
        steps: how many operations each run has; a few, drawn from the seed, if not given.
        most_found: after so many failures the rest is left.
        watch: told after every run.
        show: shown each failure as soon as it is small.
        into: what the runs are added to; where it is given, an interrupt leaves in it what there was.
    """
    tally = Tally() if into is None else into
    with without_collecting():
        for seed in seeds:
            outcome = simulate(Plan.draw(seed, steps=steps))
            tally.seeds += 1
            tally.steps += outcome.steps
            tally.checks += outcome.checks
            tally.events += outcome.events
            tally.kills += outcome.kills
            if outcome.violation is not None:
                _keep(tally, outcome, show)
            watch(tally)
            if len(tally.found) >= most_found:
                break
            if tally.seeds % COLLECT == 0:
                gc.collect()
    return tally


def _keep(tally: Tally, outcome: Outcome, show: Callable[[Found], None]) -> None:
    """Keep and show a failure made small, or as large as it is when making it small is interrupted."""
    small = outcome
    try:
        small = shrink(outcome)
    finally:
        tally.found.append(Found(outcome, small))
        show(tally.found[-1])


@contextmanager
def without_collecting() -> Iterator[None]:
    """Collect between runs alone: a run ends what it began, and leaves little."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.collect()
        if was:
            gc.enable()


__all__ = ["Found", "Tally", "run_seeds"]
