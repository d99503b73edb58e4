"""Time, ids and executors for tests do what they are told and nothing else."""

from __future__ import annotations

import asyncio
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone

import pytest

from custody_sync.errors import ClosedError, InvalidInput
from custody_sync.testing import (
    FaultPlan,
    InlineExecutor,
    ManualClock,
    SteppingIds,
    manual_sleep,
    testing_runtime,
)


def test_a_manual_clock_stands_still_until_it_is_moved() -> None:
    """Only advance and set move it."""
    clock = ManualClock(datetime(2026, 5, 1, tzinfo=UTC))
    assert clock.now() == clock.now() == datetime(2026, 5, 1, tzinfo=UTC)
    assert clock.advance(1.5) == datetime(2026, 5, 1, 0, 0, 1, 500_000, tzinfo=UTC)
    assert clock.advance(timedelta(minutes=11)) == clock.now()
    clock.set(datetime(2020, 1, 1, tzinfo=UTC))
    assert clock.now() == datetime(2020, 1, 1, tzinfo=UTC)


def test_a_manual_clock_speaks_utc_only() -> None:
    """A naive instant is refused and another zone is converted."""
    with pytest.raises(InvalidInput):
        ManualClock(datetime(2026, 5, 1))
    with pytest.raises(InvalidInput):
        ManualClock().set(datetime(2026, 5, 1))
    clock = ManualClock(datetime(2026, 5, 1, 2, tzinfo=timezone(timedelta(hours=2))))
    assert clock.now().tzinfo is UTC
    assert clock.now() == datetime(2026, 5, 1, tzinfo=UTC)


def test_a_manual_clock_is_not_turned_back_by_accident() -> None:
    """Advancing by a negative step is refused and leaves the clock as it was."""
    clock = ManualClock()
    before = clock.now()
    with pytest.raises(InvalidInput):
        clock.advance(-1)
    assert clock.now() == before


async def test_a_manual_sleep_advances_and_lets_others_run() -> None:
    """Sleeping an hour takes an hour of the clock, none of ours, and gives way once."""
    clock = ManualClock()
    before = clock.now()
    other = asyncio.ensure_future(asyncio.sleep(0, "ran"))
    await manual_sleep(clock)(3600)
    await asyncio.sleep(0)
    assert other.done()
    assert clock.now() - before == timedelta(hours=1)
    await manual_sleep(clock)(-5)
    assert clock.now() - before == timedelta(hours=1)


def test_ids_repeat_with_their_seed_and_never_within_it() -> None:
    """One seed gives one sequence; no id comes twice; two seeds share none."""
    now = datetime(2026, 5, 1, tzinfo=UTC)

    def draw(seed: int) -> list[str]:
        ids = SteppingIds(seed)
        return [i for _ in range(50) for i in (ids.fact_id(now), ids.event_id(), ids.generation())]

    assert draw(1) == draw(1)
    assert len(set(draw(1)) | set(draw(2))) == 300


def test_fact_ids_are_uuid7_of_their_instant() -> None:
    """A made-up fact id has the form and the time of a real one."""
    now = datetime(2026, 5, 1, 12, 0, 0, 123_000, tzinfo=UTC)
    made = uuid.UUID(SteppingIds(0xFFFF).fact_id(now))
    assert made.version == 7
    assert made.variant == uuid.RFC_4122
    assert made.int >> 80 == int(now.timestamp() * 1000)


def test_secrets_have_their_size_and_differ() -> None:
    """Each salt is new, and the same in the next run."""
    ids, again = SteppingIds(3), SteppingIds(3)
    first, second = ids.secret(16), ids.secret(16)
    assert len(first) == len(second) == 16
    assert first != second
    assert [again.secret(16), again.secret(16)] == [first, second]


def test_inline_work_runs_at_once_on_the_callers_thread() -> None:
    """The future is done when submit returns."""
    done = InlineExecutor().submit(threading.get_ident)
    assert done.done()
    assert done.result() == threading.get_ident()


def test_inline_work_that_raises_raises_from_the_future() -> None:
    """Submit itself does not raise, as in a thread pool."""
    future = InlineExecutor().submit(int, "x")
    with pytest.raises(ValueError, match="invalid literal"):
        future.result()


async def test_an_inline_executor_serves_a_loop() -> None:
    """`run_in_executor` gets its answer and its error."""
    loop = asyncio.get_running_loop()
    assert await loop.run_in_executor(InlineExecutor(), abs, -3) == 3
    with pytest.raises(ZeroDivisionError):
        await loop.run_in_executor(InlineExecutor(), divmod, 1, 0)


def test_a_closed_inline_executor_takes_no_work() -> None:
    """After shutdown a submit is an error, as in a thread pool."""
    with InlineExecutor("writer") as executor:
        assert executor.submit(abs, -1).result() == 1
    with pytest.raises(ClosedError, match="writer"):
        executor.submit(abs, -1)


async def test_a_testing_runtime_is_repeatable() -> None:
    """Two runtimes of one seed draw the same ids and chances, and sleep on the clock given."""
    clock = ManualClock()
    one, two = testing_runtime(clock=clock, seed=7), testing_runtime(seed=7)
    assert one.ids.event_id() == two.ids.event_id()
    assert [one.random.random() for _ in range(3)] == [two.random.random() for _ in range(3)]
    before = clock.now()
    await one.sleep(60)
    assert one.clock.now() - before == timedelta(seconds=60)
    assert isinstance(one.executor("writer"), InlineExecutor)


def test_a_testing_runtime_takes_a_hook_and_real_threads() -> None:
    """The fault hook and the executors are the caller's."""
    plan = FaultPlan()

    def threads(name: str) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, thread_name_prefix=name)

    runtime = testing_runtime(reach=plan, executor=threads)
    runtime.reach("store.after_put")
    assert sum(plan.reached.values()) == 1
    with runtime.executor("readers") as executor:
        assert executor.submit(threading.get_ident).result() != threading.get_ident()
