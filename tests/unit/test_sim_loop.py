"""The simulator's event loop: virtual time, an order drawn from the seed, processes that end at any await."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import subprocess
import sys
from collections.abc import Coroutine
from typing import Any

import pytest

from custody_sync.testing.clock import START
from custody_sync.testing.sim import Endless, Plan, Stuck, VirtualClock, VirtualLoop, simulate
from custody_sync.testing.sim.loop import OWNER, ProcessDied

HASH = (
    "import hashlib; from custody_sync.testing.sim import Plan, simulate;"
    "print(hashlib.sha256('\\n'.join(simulate(Plan.draw(12)).trace).encode()).hexdigest())"
)


class Mortal:
    """Somebody whose work ends after so many steps."""

    def __init__(self, steps: int = 10**9) -> None:
        self.dead = False
        self._left = steps

    def stepped(self) -> None:
        """Count a step."""
        self._left -= 1
        self.dead = self._left < 0


def make(seed: int = 1, **options: Any) -> VirtualLoop:
    """Return a loop of a seed."""
    return VirtualLoop(random.Random(seed), **options)


def run(work: Coroutine[Any, Any, Any], loop: VirtualLoop) -> Any:
    """Run work to its end on a loop of its own."""
    try:
        return loop.run_until_complete(work)
    finally:
        loop.bury()
        loop.close()


async def order_of(tasks: int, waits: int = 3) -> list[int]:
    """Return in which order tasks got their turns."""
    turns: list[int] = []

    async def one(number: int) -> None:
        for _ in range(waits):
            turns.append(number)
            await asyncio.sleep(0)

    await asyncio.gather(*(one(number) for number in range(tasks)))
    return turns


def test_an_hour_costs_nothing() -> None:
    """Time jumps to the next timer when nothing is ready, and clocks follow it, each by its own skew."""
    loop = make()
    clock, fast = VirtualClock(loop), VirtualClock(loop, 30)

    async def work() -> tuple[float, float, float]:
        await asyncio.sleep(3600)
        now = (clock.now() - START).total_seconds()
        return loop.time(), now, (fast.now() - clock.now()).total_seconds()

    assert run(work(), loop) == (3600.0, 3600.0, 30.0)


def test_timers_end_in_order_and_deadlines_hold() -> None:
    """What is due first happens first, a cancelled timer never, and a deadline is one of virtual seconds."""

    async def work() -> list[str]:
        said: list[str] = []
        loop = asyncio.get_running_loop()
        loop.call_later(2, said.append, "late")
        loop.call_later(1, said.append, "soon")
        loop.call_later(1.5, said.append, "never").cancel()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.sleep(100)
        return [*said, f"{loop.time():g}"]

    assert run(work(), make()) == ["soon", "late", "5"]


def test_the_seed_decides_the_order() -> None:
    """The same seed gives the same order, another one another; a window of one is asyncio's own."""
    first, again, other = (run(order_of(5), make(seed, window=64)) for seed in (1, 1, 2))
    assert first == again != other
    assert sorted(first) == sorted(other)
    assert run(order_of(3), make(window=1)) == [0, 1, 2] * 3


def test_what_never_comes_is_no_hang() -> None:
    """Waiting for what nobody will ever do raises, and so does going round for ever."""

    async def wait() -> None:
        await asyncio.get_running_loop().create_future()

    async def spin() -> None:
        for _ in itertools.count():
            await asyncio.sleep(0)

    with pytest.raises(Stuck):
        run(wait(), make())
    with pytest.raises(Endless):
        run(spin(), make(most_steps=500))


@pytest.mark.parametrize("steps", range(1, 6))
def test_a_process_ends_at_any_await(steps: int) -> None:
    """From the step at which it dies on, nothing of a process runs, not even what was to tidy up."""
    loop, owner, done = make(), Mortal(steps), list[str]()

    async def work() -> None:
        try:
            for turn in range(10):
                done.append(f"turn {turn}")
                await asyncio.sleep(1)
        finally:
            if not owner.dead:
                done.append("tidied up")

    async def watch() -> None:
        token = OWNER.set(owner)
        task = asyncio.create_task(work())
        OWNER.reset(token)
        await asyncio.wait([task], timeout=100)
        assert not task.done()

    run(watch(), loop)
    assert "tidied up" not in done
    # Every turn but the first takes the step of the timer and the one of the task.
    assert len(done) == (steps + 1) // 2


def test_the_dead_are_buried_without_effect() -> None:
    """What a dead process left is ended at once and quietly; an effect that it tries then is refused."""
    loop, owner, tried = make(), Mortal(2), list[str]()

    async def work() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            tried.append("burying")
            await asyncio.sleep(0)
            raise ProcessDied

    async def watch() -> None:
        token = OWNER.set(owner)
        asyncio.create_task(work())  # noqa: RUF006  # nobody waits for it
        OWNER.reset(token)
        await asyncio.sleep(5)
        owner.dead = True
        await asyncio.sleep(50)
        assert tried == []

    run(watch(), loop)
    assert tried == ["burying"]
    assert loop.problems == []


def test_what_nobody_heard_of_is_noted() -> None:
    """An exception in a callback does not end the run, and is not lost."""

    def fail() -> None:
        raise ValueError("it may quote something")

    async def work() -> None:
        asyncio.get_running_loop().call_soon(fail)
        await asyncio.sleep(1)

    loop = make()
    run(work(), loop)
    assert loop.problems == ["ValueError in a callback"]


def test_a_generator_that_is_left_stays_where_it_is() -> None:
    """An asynchronous generator that nobody reads on is closed by whoever asks for that alone."""
    closed: list[str] = []

    async def count() -> Any:
        try:
            yield 1
            yield 2
        finally:
            closed.append("closed")

    async def work() -> list[str]:
        numbers = count()
        assert await anext(numbers) == 1
        await asyncio.get_running_loop().shutdown_asyncgens()
        return closed

    assert run(work(), make()) == ["closed"]


def test_the_same_seed_gives_the_same_bytes() -> None:
    """A run is the same to the byte whenever and wherever it is repeated, whatever hashes strings have."""
    first, again, other = (simulate(Plan.draw(seed)) for seed in (12, 12, 13))
    assert first == again
    assert len(first.trace) > 20
    assert first.trace != other.trace
    told = [
        subprocess.run(
            [sys.executable, "-c", HASH],
            env=os.environ | {"PYTHONHASHSEED": hashes},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hashes in ("1", "2")
    ]
    assert told[0] == told[1]
    assert len(told[0].strip()) == 64


def test_a_plan_is_drawn_once_and_can_be_cut() -> None:
    """A plan follows from its seed; leaving out steps or faults changes nothing else, and is said."""
    plan = Plan.draw(7, steps=6)
    assert plan == Plan.draw(7, steps=6)
    cut = plan.only([1, 4], [4])
    assert [step.number for step in cut.steps] == [1, 4]
    assert cut.steps[0] == plan.steps[1]
    assert not cut.steps[1].faults
    assert cut.command.endswith("--seed 7 --steps 6 --keep 1,4 --calm 4")
    assert plan.only([]).command.endswith("--keep none")
    assert str(plan).count("\n") == 6
