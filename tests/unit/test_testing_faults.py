"""A planned fault happens exactly where and when it was planned."""

from __future__ import annotations

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from custody_sync.errors import InvalidInput, StoreUnavailable
from custody_sync.faultpoints import FaultPoint
from custody_sync.testing import Crash, FaultPlan, RecordingHook


def test_an_error_is_raised_at_the_nth_time_only() -> None:
    """The times before and after pass in silence, and other points are untouched."""
    plan = FaultPlan().fail(FaultPoint.AFTER_PUT, StoreUnavailable(store="s"), at=2)
    plan(FaultPoint.AFTER_PUT)
    plan(FaultPoint.BEFORE_PUT)
    with pytest.raises(StoreUnavailable):
        plan(FaultPoint.AFTER_PUT)
    plan(FaultPoint.AFTER_PUT)
    assert plan.reached == {FaultPoint.AFTER_PUT: 3, FaultPoint.BEFORE_PUT: 1}
    assert plan.fired == (Crash(FaultPoint.AFTER_PUT, 2),)
    assert plan.unfired == ()


def test_an_error_can_last_several_times() -> None:
    """`times` counts from `at`."""
    plan = FaultPlan().fail(FaultPoint.STORED, ValueError("now"), at=2, times=2)
    failed = []
    for n in range(1, 6):
        try:
            plan(FaultPoint.STORED)
        except ValueError:
            failed.append(n)
    assert failed == [2, 3]


def test_a_callback_runs_at_the_point() -> None:
    """The point can be used to change the world in the middle of an operation."""
    seen: list[str] = []
    plan = FaultPlan().call(FaultPoint.STORED, lambda: seen.append("called"))
    plan(FaultPoint.VALIDATED)
    assert seen == []
    plan(FaultPoint.STORED)
    plan(FaultPoint.STORED)
    assert seen == ["called"]


def test_a_fault_that_never_came_is_told() -> None:
    """A plan that did not fire has tested nothing, and says so."""
    plan = FaultPlan().fail(FaultPoint.SWEEP_DONE, ValueError(), at=3)
    plan(FaultPoint.SWEEP_DONE)
    assert [str(crash) for crash in plan.unfired] == ["sweep.done#3"]


def test_a_point_outside_the_registry_is_refused() -> None:
    """Neither planning nor reaching an unlisted point passes: nothing would ever test it."""
    with pytest.raises(InvalidInput, match=r"no\.such"):
        FaultPlan().fail("no.such", ValueError())
    with pytest.raises(InvalidInput):
        FaultPlan()("no.such")
    with pytest.raises(InvalidInput):
        RecordingHook()("no.such")


@pytest.mark.parametrize(("at", "times"), [(0, 1), (1, 0), (-1, 1)])
def test_times_count_from_one(at: int, times: int) -> None:
    """A fault at time zero would never happen, so it is refused."""
    with pytest.raises(InvalidInput):
        FaultPlan().call(FaultPoint.STORED, lambda: None, at=at, times=times)


def test_a_kill_ends_the_process_without_goodbye() -> None:
    """The process dies of SIGKILL at the point: no cleanup of its own runs."""
    program = (
        "import atexit\n"
        "from custody_sync.testing import Crash, FaultPlan\n"
        "atexit.register(print, 'goodbye', flush=True)\n"
        "crash = Crash.parse('store.after_put#2')\n"
        "plan = FaultPlan().kill(crash.point, at=crash.at)\n"
        "plan('store.after_put'); print('one', flush=True)\n"
        "plan('store.after_put'); print('two', flush=True)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert ended.stdout == "one\n"


def test_points_reached_on_many_threads_are_all_counted() -> None:
    """A plan fires once even when threads race to the point."""
    seen: list[int] = []
    plan = FaultPlan().call(FaultPoint.STORED, lambda: seen.append(1), at=200)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: plan(FaultPoint.STORED), range(400)))
    assert plan.reached[FaultPoint.STORED] == 400
    assert seen == [1]


def test_a_recording_gives_one_crash_for_each_time() -> None:
    """The matrix of crashes is generated from what was reached, in that order."""
    hook = RecordingHook()
    for point in (FaultPoint.BEFORE_PUT, FaultPoint.AFTER_PUT, FaultPoint.BEFORE_PUT):
        hook(point)
    assert hook.sequence == (FaultPoint.BEFORE_PUT, FaultPoint.AFTER_PUT, FaultPoint.BEFORE_PUT)
    assert [str(c) for c in hook.crashes()] == [
        "store.before_put#1",
        "store.after_put#1",
        "store.before_put#2",
    ]
    assert FaultPoint.SWEEP_DONE in hook.unreached()
    assert FaultPoint.AFTER_PUT not in hook.unreached()


def test_a_crash_survives_a_command_line() -> None:
    """Written and read again it is the same; what is not one is refused."""
    crash = Crash(FaultPoint.BEFORE_COMMIT, 12)
    assert Crash.parse(str(crash)) == crash
    assert Crash.parse("ledger.before_commit") == Crash(FaultPoint.BEFORE_COMMIT, 1)
    for raw in ("ledger.before_commit#0", "ledger.before_commit#x", "nowhere#1"):
        with pytest.raises(InvalidInput):
            Crash.parse(raw)
