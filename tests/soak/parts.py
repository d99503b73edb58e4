"""The parts of a soak: what each runs, for which share of the time, and how it is counted."""

from __future__ import annotations

import itertools
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path

from custody_sync.testing.sim.pairs import PAIRS
from custody_sync.testing.sim.schedules import BOUND
from soak.reading import (
    STILL_OPEN,
    read_executions,
    read_kills,
    read_matrix,
    read_mutants,
    read_simulator,
    read_tests,
)
from soak.records import Part, Round

ROOT = Path(__file__).parents[2]
SEEDS_A_ROUND = 500
FUZZ_TIMES = "2"
STORAGES = ("sqlite", "jsonl", "postgres")
DOUBLE_FAULTS = "100"
KILLS, HISTORIES = "52", "1"
SEEDS_APART = 1000
"""Between the first seeds of two rounds: each round takes a few from there on."""
RINGS = ("unit", "contract", "faults", "integration", "acceptance")
OF_OTHER_PARTS = ("test_crash_matrix", "test_kills", "test_matrix", "test_schedules", "test_sim")
MOST_FAILURES = 20
"""Failing seeds of a round after which the rest of it is left: each is made small, which takes a while."""


def cores() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def simulator_rounds(start: int) -> Iterator[Round]:
    """Yield seeds that no run before has tried, without an end."""
    for first in itertools.count(start, SEEDS_A_ROUND):
        seeds = f"{first}:{first + SEEDS_A_ROUND}"
        arguments = ("-m", "custody_sync.testing.sim", "--seeds", seeds, "--most", str(MOST_FAILURES))
        yield Round(arguments=arguments, about=f"seeds {seeds}")


def schedules_rounds(start: int) -> Iterator[Round]:
    """Yield every pair of operations, in every order within the bound."""
    for pair in PAIRS:
        yield _schedules(str(pair))


def deeper_schedules_rounds(start: int) -> Iterator[Round]:
    """Yield every pair once more in each setting, with one switch more than the bound has."""
    for pair in PAIRS:
        for setting in pair.settings:
            switches = str(BOUND[setting.processes] + 1)
            yield _schedules(str(pair), "--setting", str(setting), "--switches", switches)


def _schedules(pair: str, *more: str) -> Round:
    options = ("--interleave", pair, *more, "--most", str(MOST_FAILURES))
    return Round(arguments=("-m", "custody_sync.testing.sim", *options), about=" ".join((pair, *more)))


def _tests(start: int, *more: str, **environment: str) -> Round:
    options = ("-q", "-rfE", "-p", "no:cacheprovider", f"--randomly-seed={start % 2**32}")
    return Round(
        arguments=("-m", "pytest", *options, *more), environment=environment, about=f"from seed {start}"
    )


def _on_all_cores() -> tuple[str, ...]:
    # Half of a test's time is waiting, so there is one worker more than there are processors.
    return "-n", str(cores() + 1), "--dist", "worksteal"


def fuzz_rounds(start: int) -> Iterator[Round]:
    """Yield all fuzzed tests, several times as long as in CI and from a seed of its own each time."""
    files = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("tests/unit/test_fuzz_*.py"))
    for n in itertools.count():
        yield _tests(
            start + n,
            "--timeout=0",
            "-s",
            *files,
            CUSTODY_SYNC_FUZZ=FUZZ_TIMES,
            CUSTODY_SYNC_FUZZ_SEED=str(start + n),
            CUSTODY_SYNC_FUZZ_REPORT="/dev/stdout",
        )


def kills_rounds(start: int) -> Iterator[Round]:
    """Yield processes killed at random moments, and the histories of clients, from seeds of its own."""
    files = ("tests/faults/test_kills.py", "tests/faults/test_kills_histories.py")
    for first in itertools.count(start, SEEDS_APART):
        yield _tests(
            first,
            *files,
            "-k",
            "mends or fits",
            CUSTODY_SYNC_KILLS=KILLS,
            CUSTODY_SYNC_HISTORIES=HISTORIES,
            CUSTODY_SYNC_KILL_SEED=str(first),
        )


def crash_matrix_rounds(start: int) -> Iterator[Round]:
    """Yield the crash matrix in its full size; it runs several processes at once by itself."""
    yield _tests(start, "tests/faults/test_crash_matrix.py", CUSTODY_SYNC_FULL="1")


def matrix_rounds(start: int) -> Iterator[Round]:
    """Yield the matrix of faults in its full size, a storage at a time."""
    for storage in STORAGES:
        yield _tests(
            start,
            "-s",
            "tests/faults/test_matrix.py",
            "-k",
            f"mends and {storage}",
            CUSTODY_SYNC_FULL="1",
            CUSTODY_SYNC_MATRIX_REPORT="/dev/stdout",
        )


def double_faults_rounds(start: int) -> Iterator[Round]:
    """Yield a fault and another one while the first is repaired, drawn from a seed of its own each time."""
    for seed in itertools.count(start):
        told = {"CUSTODY_SYNC_SEED": str(seed), "CUSTODY_SYNC_COUNT": DOUBLE_FAULTS}
        yield _tests(seed, "-s", "tests/faults/test_matrix_double.py", **told)


def full_size_rounds(start: int) -> Iterator[Round]:
    """Yield, in full size, every test that CI runs in a smaller one, but for those that have a part here."""
    asks = [path for path in ROOT.glob("tests/*/*.py") if "CUSTODY_SYNC_FULL" in path.read_text()]
    kinds = {
        path.parent if path.name == "conftest.py" else path for path in asks if path.parent.name in RINGS
    }
    files = sorted(str(path.relative_to(ROOT)) for path in kinds if not path.name.startswith(OF_OTHER_PARTS))
    yield _tests(start, *_on_all_cores(), "--timeout=0", *files, CUSTODY_SYNC_FULL="1")


def mutants_rounds(start: int) -> Iterator[Round]:
    """Yield the mutants of each target; those whose end is known from an earlier run are not tried again."""
    targets = tomllib.loads((ROOT / "tests" / "mutants" / "targets.toml").read_text())
    for name, target in targets.items():
        about = f"{name}, {STILL_OPEN}" if target.get("is_open") else name
        arguments = ("-m", "mutants", f"--children={cores()}", name)
        yield Round(arguments=arguments, environment={"PYTHONPATH": "tests"}, about=about)


def tests_rounds(start: int) -> Iterator[Round]:
    """Yield the whole of the tests, in an order of its own."""
    yield _tests(start, *_on_all_cores(), "tests")


def watched_tests_rounds(start: int) -> Iterator[Round]:
    """Yield the whole of the tests in another order, with asyncio watching and every warning an error."""
    # Watching makes loops slow; a test that hangs is found all the same.
    watched = ("-W", "error", "--timeout=600")
    yield _tests(start + 1, *_on_all_cores(), *watched, "tests", PYTHONASYNCIODEBUG="1")


PARTS = (
    Part(
        name="simulator",
        title="the simulator, on seeds that are new",
        share=0.22,
        rounds=simulator_rounds,
        read=read_simulator,
        side_by_side=True,
    ),
    Part(
        name="schedules",
        title="two operations on one fact, in every order within the bound",
        share=0.1,
        rounds=schedules_rounds,
        read=read_simulator,
        side_by_side=True,
    ),
    Part(
        name="fuzz",
        title="every reader, with what a new seed breaks",
        share=0.05,
        rounds=fuzz_rounds,
        read=read_executions,
        side_by_side=True,
    ),
    Part(
        name="kills",
        title="processes killed at moments that a new seed draws, and what their clients were told",
        share=0.07,
        rounds=kills_rounds,
        read=read_kills,
    ),
    Part(
        name="double-faults",
        title="a fault at any passage of any place, and another one while the first is repaired",
        share=0.07,
        rounds=double_faults_rounds,
        read=read_matrix,
        side_by_side=True,
    ),
    Part(
        name="matrix",
        title="every fault at every passage of every place, over three storages and one to three stores",
        share=0.08,
        rounds=matrix_rounds,
        read=read_matrix,
        side_by_side=True,
        is_whole=True,
    ),
    Part(
        name="crash-matrix",
        title="processes killed at every passage of every fault point",
        share=0.05,
        rounds=crash_matrix_rounds,
        read=read_kills,
        is_whole=True,
    ),
    Part(
        name="full-size",
        title="tests that CI runs in a smaller size, in their full one",
        share=0.05,
        rounds=full_size_rounds,
        read=read_tests,
        is_whole=True,
    ),
    Part(
        name="mutants",
        title="the rules, the coordinator, removal and the sweep, changed in one place each",
        share=0.06,
        rounds=mutants_rounds,
        read=read_mutants,
        is_whole=True,
    ),
    Part(
        name="tests",
        title="every test, in random order",
        share=0.07,
        rounds=tests_rounds,
        read=read_tests,
        is_whole=True,
    ),
    Part(
        name="tests-watched",
        title="every test, in another order, under asyncio's debug mode and with every warning an error",
        share=0.07,
        rounds=watched_tests_rounds,
        read=read_tests,
        is_whole=True,
    ),
    Part(
        name="schedules-deeper",
        title="the same pairs with one switch more than the bound has, those with fewer among them",
        share=0.11,
        rounds=deeper_schedules_rounds,
        read=read_simulator,
        side_by_side=True,
    ),
)
"""In the order they run: what goes on for ever has its share; what has an end may use all that is left.

The shares are such that an hour on two cores is enough for a hundred thousand seeds and schedules."""
