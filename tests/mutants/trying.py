"""A plugin for pytest: instead of running the tests once, run them against one mutant after another.

Each is tried in a child that is forked from the process that has collected the tests: beginning pytest anew
takes longer than most mutants live. Of the tests only those are asked that come through the function that was
changed, the cheapest first, until one fails.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from mutmut.mutation import trampoline

WORK = "CUSTODY_SYNC_MUTANTS_WORK"
ALIVE, KILLED, ENDLESS, UNTESTED = "alive", "killed", "endless", "untested"
WATCHED = "stats"
"""What mutmut's wrappers take as the order to say which functions are called."""
PATIENCE = 900.0
"""Seconds of a clock after which a child is given up that does not even use its processor."""


@dataclass
class Running:
    """One mutant being tried."""

    key: str
    ear: int
    """Where the child says which test failed."""
    began: float = field(default_factory=time.monotonic)


class Trying:
    """The tests of a session, and the mutants that they are run against."""

    def __init__(self, session: pytest.Session, work: dict[str, Any]) -> None:
        self.session = session
        self.children: int = work["children"]
        self.mutants: dict[str, str] = work["mutants"]
        self.tree: str = work["tree"]
        self.ends = Path(work["ends"])
        self.came_through: dict[str, set[str]] = {}
        self.took: dict[str, float] = {}
        self.failed: list[str] = []
        self.running: dict[int, Running] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test that failed, in whatever phase."""
        if report.failed:
            self.failed.append(report.nodeid)

    def measure(self) -> None:
        """Run every test as the code is, to see what it comes through and what it costs.

        Raises:
            pytest.UsageError: one fails without any mutant.
        """
        ear, mouth = os.pipe()
        if (pid := os.fork()) == 0:
            with self._as_child(mouth) as say:
                trampoline.set_mutant_under_test(WATCHED)
                for item in self.session.items:
                    say(json.dumps(self._watch(item)) + "\n")
        os.close(mouth)
        with open(ear) as lines:
            seen = [json.loads(line) for line in lines if line.startswith("{")]
        os.waitpid(pid, 0)
        shutil.rmtree(self._room(pid), ignore_errors=True)
        if failed := [one["test"] for one in seen if one["failed"]]:
            raise pytest.UsageError(f"these fail without a mutant: {', '.join(failed)}")
        if len(seen) < len(self.session.items):
            raise pytest.UsageError("the tests ended early without a mutant")
        for one in seen:
            self.took[one["test"]] = one["seconds"]
            for function in one["functions"]:
                self.came_through.setdefault(function, set()).add(one["test"])

    def _watch(self, item: pytest.Item) -> dict[str, Any]:
        hits: set[str] = set()
        trampoline.record_trampoline_hit = lambda name, caller=None: hits.add(name)
        began = time.process_time()
        self._run(item)
        seconds = time.process_time() - began
        return {"test": item.nodeid, "failed": self.failed[:], "seconds": seconds, "functions": sorted(hits)}

    def _run(self, item: pytest.Item) -> None:
        self.failed.clear()
        # With no next test all that a test needed is torn down, as after the last one.
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)

    @contextlib.contextmanager
    def _as_child(self, mouth: int) -> Iterator[Any]:
        """Be a child that says something and ends, whatever happens: a mutant may break pytest as well."""
        code = 1
        # Each has a folder for its files that no other child clears away.
        os.environ["PYTEST_DEBUG_TEMPROOT"] = str(self._room(os.getpid()))
        try:
            yield lambda text: os.write(mouth, text.encode())
            code = 0
        finally:
            os._exit(code)

    # --- the mutants ------------------------------------------------------------------------

    def all(self) -> None:
        """Try every mutant, the cheapest first."""
        work = sorted(self.mutants, key=lambda key: sum(self.took[test] for test in self._tests(key)))
        gc.freeze()
        try:
            for key in work:
                if not self._tests(key):
                    self._note(key, UNTESTED)
                    continue
                while len(self.running) >= self.children:
                    self._wait()
                self._begin(key)
            while self.running:
                self._wait()
        finally:
            for pid in self.running:
                os.kill(pid, signal.SIGKILL)

    def _tests(self, key: str) -> set[str]:
        return self.came_through.get(key.rpartition("__mutmut_")[0], set())

    def _room(self, pid: int) -> Path:
        room = self.ends.with_name("tmp") / str(pid)
        room.mkdir(parents=True, exist_ok=True)
        return room

    def _begin(self, key: str) -> None:
        tests = self._tests(key)
        items = [item for item in self.session.items if item.nodeid in tests]
        items.sort(key=lambda item: self.took[item.nodeid])
        ear, mouth = os.pipe()
        if (pid := os.fork()) == 0:
            with self._as_child(mouth) as say:
                seconds = 20 + int(8 * sum(self.took[test] for test in tests))
                resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
                trampoline.set_mutant_under_test(key)
                for item in items:
                    self._run(item)
                    if self.failed:
                        say(item.nodeid)
                        os._exit(1)
        os.close(mouth)
        self.running[pid] = Running(key, ear)

    def _wait(self) -> None:
        """Wait until at least one child has ended."""
        while True:
            for pid, running in list(self.running.items()):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    self._end(pid, status)
                    return
                if time.monotonic() - running.began > PATIENCE:
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)

    def _end(self, pid: int, status: int) -> None:
        running = self.running.pop(pid)
        shutil.rmtree(self._room(pid), ignore_errors=True)
        with open(running.ear) as said:
            by = said.read()
        end = ENDLESS if os.WIFSIGNALED(status) else KILLED if status else ALIVE
        self._note(running.key, end, by=by, seconds=round(time.monotonic() - running.began, 2))

    def _note(self, key: str, end: str, **more: Any) -> None:
        said = {"key": key, "function": self.mutants[key], "tree": self.tree, "end": end, **more}
        with self.ends.open("a") as file:
            file.write(json.dumps(said) + "\n")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    """Try the mutants that the environment names; the tests were collected as ever."""
    if session.testsfailed:
        raise session.Interrupted("not every test could be collected")
    trying = Trying(session, json.loads(Path(os.environ[WORK]).read_text()))
    session.config.pluginmanager.register(trying)
    trying.measure()
    trying.all()
    return True
