"""`python -m custody_sync.testing.sim`: run seeds or schedules; exit with 1 if an invariant is broken."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from custody_sync.testing.sim.pairs import OPERATIONS, SETTINGS, Pair, Run, Setting
from custody_sync.testing.sim.plan import Plan
from custody_sync.testing.sim.running import Found, Tally, run_seeds
from custody_sync.testing.sim.schedules import Case, Explored, everything, repeat, run_schedules, share
from custody_sync.testing.sim.scheduling import Schedule
from custody_sync.testing.sim.shrink import shrink
from custody_sync.testing.sim.world import simulate

T = TypeVar("T")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the arguments say, and say what came of it."""
    told = read_arguments(arguments)
    if told.interleave is not None:
        return _interleave(told)
    if told.seed is not None:
        return _run_one(told)
    tally = Tally()
    return _to_the_end(
        tally,
        lambda: run_seeds(told.seeds, steps=told.steps, most_found=told.most, show=_show, into=tally),
    )


def _to_the_end(tally: Tally | Explored, run: Callable[[], object]) -> int:
    """Say what runs came to, also when they are interrupted: what was not run is no success."""
    was_cut = False
    try:
        run()
    except KeyboardInterrupt:
        was_cut = True
    _say(str(tally))
    return 1 if tally.found or was_cut else 0


def _show(found: Found | Run) -> None:
    _say(f"{found}\n")


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


def _interleave(told: argparse.Namespace) -> int:
    if told.order is not None:
        return _repeat(told)
    if isinstance(told.interleave, Pair):
        cases: Iterable[Case] = everything([told.interleave])
    else:
        cases = share() if told.interleave == "share" else everything()
    if told.setting is not None:
        cases = [case for case in cases if case[1] == told.setting]
    if told.switches is not None:
        cases = [(pair, setting, told.switches) for pair, setting, _ in cases]
    explored = Explored()
    return _to_the_end(
        explored, lambda: run_schedules(cases, most_found=told.most, show=_show, into=explored)
    )


def _repeat(told: argparse.Namespace) -> int:
    run = repeat(told.interleave, told.setting or Setting(), told.order)
    if told.trace:
        _say("\n".join(run.outcome.trace))
    _say(str(run))
    return 0 if run.violation is None else 1


def read_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return what a command line says, or end with what is wrong with it."""
    parser = argparse.ArgumentParser(prog="python -m custody_sync.testing.sim", description=__doc__)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seed", type=int, help="run this seed")
    which.add_argument("--seeds", type=_range, metavar="FROM:TO", help="run these seeds")
    which.add_argument(
        "--interleave",
        type=_pair,
        metavar="A:B",
        help="run every schedule of two operations within the bound; "
        "`share`: the fixed share of the tests; `all`: those of every pair",
    )
    parser.add_argument(
        "--setting", type=_setting, help="with --interleave: only in this one, such as 2p1s-owing"
    )
    parser.add_argument(
        "--switches", type=_count, help="with --interleave: the most switches; the bound by default"
    )
    parser.add_argument(
        "--order", type=_order, metavar="a,N,N", help="with --interleave A:B: only this schedule"
    )
    parser.add_argument("--steps", type=_count, help="operations in each run; drawn from the seed by default")
    parser.add_argument("--keep", type=_numbers, metavar="N,N", help="with --seed: only these steps of it")
    parser.add_argument(
        "--calm", type=_numbers, default=(), metavar="N,N", help="with --seed: without the faults of these"
    )
    parser.add_argument("--most", type=_count, default=1, help="stop after so many failures")
    parser.add_argument("--trace", action="store_true", help="print all that happened in one run")
    told = parser.parse_args(arguments)
    if told.order is not None and not isinstance(told.interleave, Pair):
        parser.error("--order goes with --interleave A:B")
    if told.seed is not None:
        # A step that the seed does not have would leave nothing to fail, and look like a run that holds.
        most = len(Plan.draw(told.seed, steps=told.steps).steps)
        for name, numbers in (("--keep", told.keep or ()), ("--calm", told.calm)):
            if not set(numbers) <= set(range(most)):
                parser.error(f"{name}: the steps of seed {told.seed} are 0 to {most - 1}")
    return told


def _pair(raw: str) -> Pair | str:
    if raw in ("share", "all"):
        return raw
    return _read(Pair.read, raw, f"A:B of {', '.join(OPERATIONS)}; or share, or all")


def _setting(raw: str) -> Setting:
    return _read(Setting.read, raw, f"one of {', '.join(map(str, SETTINGS))}")


def _order(raw: str) -> Schedule:
    return _read(Schedule.read, raw, "who begins, a or b, and after how many moves the turn changes, as a,3")


def _range(raw: str) -> range:
    first, _, last = raw.partition(":")
    seeds = _read(lambda _: range(int(first), int(last)), raw, "the first seed and the one after the last")
    if not seeds:
        raise argparse.ArgumentTypeError(f"{raw!r} has no seed in it")
    return seeds


def _read(read: Callable[[str], T], raw: str, wanted: str) -> T:
    try:
        return read(raw)
    except (KeyError, ValueError):
        raise argparse.ArgumentTypeError(f"{raw!r} is not understood; it takes {wanted}") from None


def _count(raw: str) -> int:
    if (count := int(raw)) < 1:
        raise ValueError(raw)
    return count


def _numbers(raw: str) -> tuple[int, ...]:
    return () if raw == "none" else tuple(map(int, raw.split(",")))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    # Who ends this process, or it itself by hanging, must not take along what was found before.
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
