"""The soak's rounds: what they print is read, and they can be stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fix_planted import hash_without_the_actor
from fix_report import report, report_kills
from mutants.__main__ import Counts, tell
from mutants.making import Change
from soak.processes import Process, hear_interrupts
from soak.reading import (
    STILL_OPEN,
    read_executions,
    read_kills,
    read_matrix,
    read_mutants,
    read_simulator,
    read_tests,
)
from soak.records import Failure, Round

from custody_sync.testing.sim.__main__ import main as simulate

# --- reading ----------------------------------------------------------------------------------


def test_what_the_simulator_prints_is_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seeds are counted, and each that fails has its invariant and its command."""
    ran = Round(arguments=())
    assert simulate(["--seeds", "0:1"]) == 0
    seen = read_simulator(capsys.readouterr().out, ran)
    assert seen.counts["seeds"] == 1
    assert seen.counts["checks"] > 0
    assert "failed" not in seen.counts
    assert seen.failures == ()
    hash_without_the_actor(monkeypatch)
    monkeypatch.setattr("custody_sync.testing.sim.running.shrink", lambda outcome: outcome)
    assert simulate(["--seeds", "0:2", "--most", "5"]) == 1
    seen = read_simulator(capsys.readouterr().out, ran)
    assert seen.counts["seeds"] == 2
    assert [failure.what.split()[0].strip(":") for failure in seen.failures] == ["I7", "I7"]
    assert seen.failures[1].command.startswith("python -m custody_sync.testing.sim --seed 1")


def test_what_pytest_prints_is_read(tmp_path: Path) -> None:
    """Tests are counted by outcome, and each that fails has a command that runs it alone in that order."""
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "@pytest.fixture\ndef lost(): raise OSError\n"
        "def test_error(lost): pass\n"
        "@pytest.mark.parametrize('n', ['a b'])\ndef test_fails(n): assert not n, 'so - so'\n"
        "def test_passes(): pass\n"
    )
    arguments = ("-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider", "-W", "error", "test_it.py")
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    ran = Round(arguments=(*arguments, "--randomly-seed=5"), environment={"PYTHONASYNCIODEBUG": "1"})
    seen = read_tests(done.stdout, ran)
    assert seen.counts == {"tests failed": 1, "tests error": 1, "tests passed": 1}
    (fails, error) = sorted(seen.failures, key=lambda failure: failure.what, reverse=True)
    assert error.what == "test_it.py::test_error"
    assert fails.command == (
        "PYTHONASYNCIODEBUG=1 python -m pytest 'test_it.py::test_fails[a b]' -W error --randomly-seed=5"
    )


class Terminal:
    """What pytest shows lines on."""

    def __init__(self) -> None:
        self.said = ""

    def get_plugin(self, name: str) -> Any:
        """Return this, as whichever plugin."""
        return self

    def global_and_fixture_disabled(self) -> AbstractContextManager[None]:
        """Capture nothing."""
        return nullcontext()

    def write_line(self, line: str) -> None:
        """Remember it."""
        self.said += f"{line}\n"


def test_what_kills_report_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kills are told by storage; a world that failed has its own command, and another failure is not lost."""
    monkeypatch.delenv("CUSTODY_SYNC_CRASH_REPORT", raising=False)
    terminal = Terminal()
    config: Any = SimpleNamespace(pluginmanager=terminal)
    for engine in ("sqlite", "jsonl"):
        report_kills(config, engine, random_kills=104, seeds=4)
    report(config, "histories over sqlite: calls 120, kills 3")
    report(config, "crash matrix: 215 kills in 60 s (sqlite 100, jsonl 115)")
    rerun = "CUSTODY_SYNC_KILL_SEED=7 python -m pytest tests/faults/test_kills.py -k 'mends and sqlite'"
    terminal.said += "________ test_it[sqlite] ________\nE       AssertionError: held\n"
    terminal.said += f"E       seed 7, life 2, sqlite; run it again: {rerun}\n"
    terminal.said += "________ test_other ________\nE       assert 1\n"
    terminal.said += "FAILED tests/faults/test_kills.py::test_it[sqlite] - held\n"
    terminal.said += "FAILED tests/faults/test_kills.py::test_other - 1\n2 failed, 3 skipped in 5.0s\n"
    seen = read_kills(terminal.said, Round(arguments=()))
    assert seen.counts == {
        "random kills over sqlite": 104,
        "worlds over sqlite": 4,
        "random kills over jsonl": 104,
        "worlds over jsonl": 4,
        "calls in histories over sqlite": 120,
        "kills in histories over sqlite": 3,
        "kills at fault points over sqlite": 100,
        "kills at fault points over jsonl": 115,
        "tests skipped": 3,
    }
    assert seen.failures[0] == Failure(what="seed 7, life 2, sqlite", command=rerun)
    assert [failure.what for failure in seen.failures[1:]] == ["tests/faults/test_kills.py::test_other"]


def test_what_fuzzed_tests_report_is_read() -> None:
    """Executions are added up, wherever pytest printed beside them, and a failure is repeated by its seed."""
    lines = [f'{{"test": "t::{n}", "executions": {n}, "seed": 9, "passed": true}}' for n in (150, 250)]
    output = f"{lines[0]}\n.{lines[1]}\nFAILED tests/unit/test_fuzz_it.py::test_it - boom\n"
    told = {"CUSTODY_SYNC_FUZZ_SEED": "9", "CUSTODY_SYNC_FUZZ_REPORT": "/dev/stdout"}
    seen = read_executions(output, Round(arguments=(), environment=told))
    assert seen.counts == {"executions": 400, "fuzzed tests": 2}
    assert seen.failures[0].command == (
        "CUSTODY_SYNC_FUZZ_SEED=9 python -m pytest tests/unit/test_fuzz_it.py::test_it"
    )


def test_what_the_matrix_reports_is_read() -> None:
    """Cases are added up over operations and kinds, and double faults by their own line."""
    lines = [
        '.{"storage": "sqlite", "operation": "write", "stores": 1, "cases": {"dies": 9, "away": 3}}',
        '{"storage": "sqlite", "operation": "hold", "stores": 1, "cases": {"dies": 4}}',
        "double faults: 200 from seed 7, 0 failed",
        "2 passed, 1 skipped in 5.01s",
    ]
    seen = read_matrix("\n".join(lines), Round(arguments=()))
    assert seen.counts == {"single faults over sqlite": 16, "double faults": 200, "tests skipped": 1}
    assert seen.failures == ()


def test_what_became_of_mutants_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    """Mutants are added up over targets, and one that nobody noticed has the command that tries it again."""
    change = Change("rules.hold", "return held", "return not held")
    tell("rules", Counts(mutants=50, killed=47, explained=2, unexplained=[change], seconds=3.5))
    tell("sweep", Counts(mutants=30, killed=30))
    ran = Round(arguments=("-m", "mutants", "rules"), environment={"PYTHONPATH": "tests"})
    output = capsys.readouterr().out
    seen = read_mutants(output, ran)
    assert seen.counts == {"mutants": 80, "mutants killed": 77, "explained": 2, "not explained": 1}
    said = "in rules.hold nobody notices 'return not held' for 'return held'"
    assert seen.failures == (Failure(what=said, command="PYTHONPATH=tests python -m mutants rules"),)
    assert read_mutants(output, replace(ran, about=f"rules, {STILL_OPEN}")).failures == ()


# --- processes --------------------------------------------------------------------------------


def process(tmp_path: Path, code: str, **more: Any) -> Process:
    """Start Python on some lines and wait until they have begun."""
    ran = Round(arguments=("-I", "-S", "-c", code))
    made = Process(ran, root=tmp_path, log=tmp_path / "log", **more)
    while "begun" not in made.output():
        assert not made.ended(), made.output()
    return made


def test_a_round_can_be_interrupted(tmp_path: Path) -> None:
    """It hears Ctrl-C although it has a group of its own, and what it says then is read."""
    code = (
        "import time\ntry:\n print('begun', flush=True); time.sleep(60)\n"
        "except KeyboardInterrupt: print('heard')"
    )
    running = process(tmp_path, code)
    running.interrupt()
    running.stop()
    assert (running.code, running.output().split()) == (0, ["begun", "heard"])
    running.discard()
    assert list(tmp_path.iterdir()) == []


def test_a_round_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    """What goes on after an interrupt is ended, so that the report can be written."""
    code = (
        "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('begun', flush=True)\n"
        "time.sleep(60)"
    )
    running = process(tmp_path, code, grace=0.05)
    running.interrupt()
    running.stop()
    assert running.code == -signal.SIGKILL


def test_a_soak_in_the_background_hears_interrupts() -> None:
    """A shell has what it starts with & ignore Ctrl-C; the soak does not, nor do its processes."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        hear_interrupts()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
