"""What was found before a round was cut is not lost: the simulator says it at once, and it is read."""

from __future__ import annotations

import io
import sys
from dataclasses import replace
from typing import Any

import pytest
from fix_planted import hash_without_the_actor
from soak.reading import read_simulator, read_tests
from soak.records import Round

from custody_sync.testing.sim import running, schedules
from custody_sync.testing.sim.__main__ import main as simulate
from custody_sync.testing.sim.judge import Violation


class Watched(io.StringIO):
    """Output that knows what of it has left the process."""

    def __init__(self) -> None:
        super().__init__()
        self.flushed = ""

    def flush(self) -> None:
        """Remember what there is."""
        self.flushed = self.getvalue()


def interrupted_after(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, times: int) -> Watched:
    """Have a function interrupted after so many calls; return what the process prints."""
    real, calls, output = getattr(module, name), iter(range(times)), Watched()

    def once_more(*given: Any, **named: Any) -> Any:
        if next(calls, None) is None:
            assert "again: python -m custody_sync.testing.sim" in output.flushed
            raise KeyboardInterrupt
        return real(*given, **named)

    monkeypatch.setattr(module, name, once_more)
    monkeypatch.setattr(sys, "stdout", output)
    return output


def test_a_seed_that_fails_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt during the second seed loses nothing of the first, and is no success."""
    hash_without_the_actor(monkeypatch)
    monkeypatch.setattr(running, "shrink", lambda outcome: outcome)
    output = interrupted_after(monkeypatch, running, "simulate", 1)
    assert simulate(["--seeds", "0:3", "--most", "5"]) == 1
    seen = read_simulator(output.getvalue(), Round(arguments=()))
    assert seen.counts["seeds"] == 1
    assert len(seen.failures) == 1


def test_a_failure_is_said_though_it_could_not_be_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Making it small takes a while; who interrupts that has the failure as it was found."""
    hash_without_the_actor(monkeypatch)
    output = Watched()

    def shrink(outcome: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "shrink", shrink)
    monkeypatch.setattr(sys, "stdout", output)
    assert simulate(["--seeds", "0:2"]) == 1
    seen = read_simulator(output.flushed, Round(arguments=()))
    assert [failure.command.split(" --")[1] for failure in seen.failures] == ["seed 0"]


def test_a_schedule_that_fails_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt during a later schedule loses nothing of one before."""
    monkeypatch.setattr(
        schedules, "judged", lambda run, serial: replace(run, violation=Violation("I4", "planted"))
    )
    output = interrupted_after(monkeypatch, schedules, "carry_out", 2)
    assert simulate(["--interleave", "supersede:forget", "--most", "50"]) == 1
    seen = read_simulator(output.getvalue(), Round(arguments=()))
    assert seen.counts["schedules"] == 2
    assert [failure.what for failure in seen.failures] == ["I4: planted"] * 2


@pytest.mark.parametrize(
    ("printed", "failed"),
    [
        ("..F.\n", 1),
        ("..F..E.. [ 50%]\n.F", 3),
        ('.F{"test": "t::1", "executions": 3}\n.', 1),
        ("....\nE\n", 1),
        ("..s.\nFrom seed 3\nEnd\n", 0),
    ],
)
def test_letters_of_a_run_that_was_killed_are_failures(printed: str, failed: int) -> None:
    """Pytest names failures at its end; killed before, it has shown how many there are."""
    seen = read_tests(printed, Round(arguments=("-m", "pytest", "x")))
    assert [failure.what.split()[0] for failure in seen.failures] == [str(failed)] * bool(failed)
    assert all(failure.command == "python -m pytest x" for failure in seen.failures)


def test_a_run_that_could_name_its_failures_counts_each_once() -> None:
    """An interrupted run that came to its summary names what failed, and letters add nothing."""
    printed = (
        "..F\n=== FAILURES ===\nE\n=== short test summary info ===\nFAILED a.py::b - no\n"
        "1 failed, 2 passed in 3.1s\n"
    )
    seen = read_tests(printed, Round(arguments=()))
    assert [failure.what for failure in seen.failures] == ["a.py::b"]
