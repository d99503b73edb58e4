"""`python -m custody_sync.testing.sim`: run seeds, or one again; exit with 1 if an invariant is broken."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from custody_sync.testing.sim.plan import Plan
from custody_sync.testing.sim.running import Found, run_seeds
from custody_sync.testing.sim.shrink import shrink
from custody_sync.testing.sim.world import simulate


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the arguments say, and say what came of it."""
    told = read_arguments(arguments)
    if told.seed is not None:
        return _run_one(told)
    tally = run_seeds(told.seeds, steps=told.steps, most_found=told.most)
    for found in tally.found:
        _say(f"{found}\n")
    _say(str(tally))
    return 1 if tally.found else 0


def _run_one(told: argparse.Namespace) -> int:
    plan = Plan.draw(told.seed, steps=told.steps)
    if told.keep is not None or told.calm:
        plan = plan.only(range(len(plan.steps)) if told.keep is None else told.keep, told.calm)
    outcome = simulate(plan)
    if told.trace:
        _say("\n".join(outcome.trace))
    if outcome.violation is None:
        _say(f"{plan}\nevery invariant holds: {outcome.checks} checks, {outcome.events} events")
        return 0
    _say(str(Found(outcome, shrink(outcome) if told.keep is None else outcome)))
    return 1


def read_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return what a command line says, or end with what is wrong with it."""
    parser = argparse.ArgumentParser(prog="python -m custody_sync.testing.sim", description=__doc__)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seed", type=int, help="run this seed")
    which.add_argument("--seeds", type=_range, metavar="FROM:TO", help="run these seeds")
    parser.add_argument("--steps", type=_count, help="operations in each run; drawn from the seed by default")
    parser.add_argument("--keep", type=_numbers, metavar="N,N", help="with --seed: only these steps of it")
    parser.add_argument(
        "--calm", type=_numbers, default=(), metavar="N,N", help="with --seed: without the faults of these"
    )
    parser.add_argument("--most", type=_count, default=1, help="with --seeds: stop after so many failures")
    parser.add_argument("--trace", action="store_true", help="with --seed: print all that happened")
    return parser.parse_args(arguments)


def _range(raw: str) -> range:
    first, _, last = raw.partition(":")
    return range(int(first), int(last))


def _count(raw: str) -> int:
    if (count := int(raw)) < 1:
        raise ValueError(raw)
    return count


def _numbers(raw: str) -> tuple[int, ...]:
    return () if raw == "none" else tuple(map(int, raw.split(",")))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
