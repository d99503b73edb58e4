"""The parts of a soak: what each runs, for which share of the time, and how it is counted."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

from soak.reading import read_simulator, read_tests
from soak.records import Part, Round

SEEDS_A_ROUND = 500
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


def _tests(start: int, *more: str, **environment: str) -> Round:
    # Half of a test's time is waiting, so there is one worker more than there are processors.
    workers = ("-n", str(cores() + 1), "--dist", "worksteal")
    options = ("-q", "-rfE", "-p", "no:cacheprovider", f"--randomly-seed={start}", *workers, *more)
    return Round(
        arguments=("-m", "pytest", *options, "tests"), environment=environment, about=f"order {start}"
    )


def tests_rounds(start: int) -> Iterator[Round]:
    """Yield the whole of the tests, in an order of its own."""
    yield _tests(start)


def watched_tests_rounds(start: int) -> Iterator[Round]:
    """Yield the whole of the tests in another order, with asyncio watching and every warning an error."""
    # Watching makes loops slow; a test that hangs is found all the same.
    yield _tests(start + 1, "-W", "error", "--timeout=600", PYTHONASYNCIODEBUG="1")


PARTS = (
    Part(
        name="simulator",
        title="the simulator, on seeds that are new",
        share=0.4,
        rounds=simulator_rounds,
        read=read_simulator,
        side_by_side=True,
    ),
    Part(
        name="tests",
        title="every test, in random order",
        share=0.3,
        rounds=tests_rounds,
        read=read_tests,
        is_whole=True,
    ),
    Part(
        name="tests-watched",
        title="every test, in another order, under asyncio's debug mode and with every warning an error",
        share=0.3,
        rounds=watched_tests_rounds,
        read=read_tests,
        is_whole=True,
    ),
)
"""In the order they run: what goes on for ever has its share; what has an end may use all that is left."""
