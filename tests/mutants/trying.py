"""A plugin for pytest: instead of running the tests once, run them against one mutant after another.

Each is tried in a child that is forked from the process that has collected the tests: beginning pytest anew
takes longer than most mutants live. Of the tests only those are asked that come through the function that was
changed, the cheapest first, until one fails. Only a test that failed, and is named, has killed a mutant: one
whose child ended in any other way has not been tried.
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

from mutants.making import digest_of_test

WORK = "CUSTODY_SYNC_MUTANTS_WORK"
ALIVE, KILLED, ENDLESS, UNTESTED = "alive", "killed", "endless", "untested"
NOT_TRIED = "not tried"
PASSED, FAILED, BROKEN = 0, 1, 2
"""What a child ends with: every test passed, one failed, or the trying itself went wrong."""
WATCHED = "stats"
"""What mutmut's wrappers take as the order to say which functions are called."""
PATIENCE = 900.0
"""Seconds of a clock after which a child is given up that does not use its processor: it is not tried."""


def end_of(status: int, said: str, *, used: float, limit: int) -> str:
    """Name the end of a mutant from that of its child; what proves nothing about the mutant is `not tried`.

    Args:
        status: what waiting for the child returned.
        said: the test that failed, if one did.
        used: the seconds of a processor that it took.
        limit: how many it was allowed.
    """
    if os.WIFSIGNALED(status):
        # Anybody can send this signal; the system does so by itself when the time is used up.
        is_ours = os.WTERMSIG(status) == signal.SIGXCPU and used > limit - 1
        return ENDLESS if is_ours else NOT_TRIED
    ends = {PASSED: ALIVE, FAILED: KILLED if said else NOT_TRIED}
    return ends.get(os.waitstatus_to_exitcode(status), NOT_TRIED)


@dataclass
class Running:
    """One mutant being tried."""

    key: str
    ear: int
    """Where the child says which test failed."""
    limit: int
    """Seconds of a processor that it may use."""
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
        code = BROKEN
        try:
            # Whoever is interrupted has not seen a test fail, and does not go on with the parent's work.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            # Each has a folder for its files that no other child clears away.
            os.environ["PYTEST_DEBUG_TEMPROOT"] = str(self._room(os.getpid()))
            yield lambda text: os.write(mouth, text.encode())
            code = PASSED
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
        limit = self._limit(tests)
        ear, mouth = os.pipe()
        if (pid := os.fork()) == 0:
            with self._as_child(mouth) as say:
                resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
                trampoline.set_mutant_under_test(key)
                for item in items:
                    self._run(item)
                    if self.failed:
                        say(item.nodeid)
                        os._exit(FAILED)
        os.close(mouth)
        self.running[pid] = Running(key, ear, limit)

    def _limit(self, tests: set[str]) -> int:
        return 20 + int(8 * sum(self.took[test] for test in tests))

    def _wait(self) -> None:
        """Wait until at least one child has ended."""
        while True:
            for pid, running in list(self.running.items()):
                ended, status, usage = os.wait4(pid, os.WNOHANG)
                if ended:
                    self._end(pid, status, usage.ru_utime + usage.ru_stime)
                    return
                if time.monotonic() - running.began > PATIENCE:
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)

    def _end(self, pid: int, status: int, used: float) -> None:
        running = self.running.pop(pid)
        shutil.rmtree(self._room(pid), ignore_errors=True)
        with open(running.ear) as said:
            by = said.read()
        end = end_of(status, by, used=used, limit=running.limit)
        more: dict[str, Any] = {"by": by, "seconds": round(time.monotonic() - running.began, 2)}
        if end == KILLED:
            more["test"] = digest_of_test(self.ends.parent, by)
        if end == NOT_TRIED:
            more["why"] = f"ended with {os.waitstatus_to_exitcode(status)}"
        self._note(running.key, end, **more)

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
