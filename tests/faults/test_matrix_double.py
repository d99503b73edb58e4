"""A second fault while the first one is repaired: drawn from a seed, or all of them; the soak's, not CI's."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from fix_matrix import Fault, faults_of
from fix_matrix_operations import OPERATIONS
from fix_matrix_run import Bench, open_bench

SEED, COUNT = "CUSTODY_SYNC_SEED", "CUSTODY_SYNC_COUNT"
FULL = bool(os.environ.get("CUSTODY_SYNC_FULL"))
ENGINES = ("sqlite", "jsonl", "postgres")
A_BENCH = 20
"""So many are drawn of one operation before another one is prepared."""


async def double(bench: Bench, firsts: list[Fault], rnd: random.Random | None) -> list[str]:
    """Run second faults behind some first ones, one drawn for each or all, and return what failed."""
    problems: list[str] = []
    for first in firsts:
        reached = faults_of(await bench.run((first,), second=()))
        for second in reached if rnd is None else rnd.sample(reached, 1):
            try:
                await bench.run((first,), second=(second,))
            except Exception as problem:
                problems.append(f"{first} then {second}: {type(problem).__name__}: {problem}")
            bench.counted["double"] += 1
    return problems


@pytest.mark.timeout(0)
@pytest.mark.skipif(not (FULL or os.environ.get(COUNT)), reason=f"for the soak: set {SEED} and {COUNT}")
def test_a_repair_that_fails_is_mended_by_the_next(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """I1 to I8 hold after a fault, a fault of the repair, and another repair."""
    seed, count = os.environ.get(SEED, "0"), int(os.environ.get(COUNT, "0"))
    rnd, problems, done = random.Random(int(seed)), list[str](), 0

    def uri() -> str:
        return str(request.getfixturevalue("postgres_uri"))

    every = [(e, operation, n) for e in ENGINES for operation in OPERATIONS for n in (1, 2, 3)]
    while done < count or (not count and every):
        engine, operation, number = rnd.choice(every) if count else every.pop()
        with open_bench(engine, operation, number, tmp_path, uri) as (bench, runner):
            firsts = bench.faults()
            if count:
                firsts = rnd.sample(firsts, min(A_BENCH, len(firsts), count - done))
            for problem in runner.run(double(bench, firsts, rnd if count else None)):
                problems.append(f"{engine}/{operation}/{number}: {problem}")
        done += bench.counted["double"]
    print(f"double faults: {done} from seed {seed}, {len(problems)} failed")
    assert not problems, f"{SEED}={seed} {COUNT}={count}\n" + "\n".join(problems)
