"""A round as a process of its own, in a group of its own, which Ctrl-C reaches through the soak alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from soak.records import Round

GRACE = 30.0
"""Seconds that an interrupted process has to end by itself: tests stop their servers meanwhile."""


class Child(Protocol):
    """A round that runs."""

    code: int | None
    """Its exit code when it has ended."""

    def ended(self) -> bool:
        """Tell whether it has ended."""

    def output(self) -> str:
        """Return all that it printed."""

    def interrupt(self) -> None:
        """Ask it to end, as Ctrl-C would."""

    def stop(self) -> None:
        """Wait until it has ended after an interrupt, and see that it does."""

    def discard(self) -> None:
        """Throw away what it printed: nothing in it is worth a look."""


class Process:
    """A round that runs as a process.

    Args:
        ran: the round.
        root: the folder it runs in.
        log: the file that all it prints goes to.
        grace: how long it may take to end after it was interrupted.
    """

    def __init__(self, ran: Round, *, root: Path, log: Path, grace: float = GRACE) -> None:
        self._log = log
        self._grace = grace
        # Appended to, since a process may open what it prints into once more.
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                [sys.executable, *ran.arguments],
                cwd=root,
                env=environment(ran.environment),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.code: int | None = None

    def ended(self) -> bool:
        """Tell whether it has ended."""
        self.code = self._process.poll()
        return self.code is not None

    def output(self) -> str:
        """Return all that it printed; what is no text is shown as such."""
        return self._log.read_text(errors="replace")

    def interrupt(self) -> None:
        """Interrupt it and what it has started."""
        self._signal(signal.SIGINT)

    def stop(self) -> None:
        """Wait for its end, and kill it and what it has started when that takes too long."""
        # Who presses Ctrl-C once more does not want to wait.
        with suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            self.code = self._process.wait(self._grace)
            return
        self._signal(signal.SIGKILL)
        self.code = self._process.wait()

    def discard(self) -> None:
        """Remove the file that all it printed went to."""
        self._log.unlink()

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """Return what a round is started with: plain output, and no byte code written beside the sources."""
    return {**os.environ, "NO_COLOR": "1", "PYTHONDONTWRITEBYTECODE": "1", **more}


def hear_interrupts() -> None:
    """Be interrupted by Ctrl-C also where the soak was started in the background, and by SIGTERM.

    A shell has what it starts with `&` ignore Ctrl-C, and so would every process of every round.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def cpu_of_children() -> float:
    """Return the CPU seconds of all children that have ended, and of theirs that they waited for."""
    times = os.times()
    return times.children_user + times.children_system
