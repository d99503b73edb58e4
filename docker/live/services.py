"""Programs that run while something is tried on them, and end with it, by their own process ids only."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import places

PATIENCE = 600.0
"""Seconds until a server has to answer; the imports of one take minutes on a busy machine."""


class NotStarted(Exception):
    """An engine did not come up; the message says why, for the report."""


def installed(name: str) -> Path:
    """Return the Python of an engine's own environment.

    Raises:
        NotStarted: it could not be installed.
    """
    try:
        return places.engine(name)
    except (RuntimeError, subprocess.CalledProcessError) as problem:
        raise NotStarted(f"{name} could not be installed: {problem}") from None


@contextlib.contextmanager
def running(
    name: str, command: Sequence[object], *, health: str, environment: Mapping[str, str], log: Path, cwd: Path
) -> Iterator[int]:
    """Run a server until the block ends, and enter the block once it answers.

    Raises:
        NotStarted: it ended, or did not answer in time.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(part) for part in command],
            env=dict(environment),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait(name, process, health, log)
        yield process.pid
    finally:
        _end(process)


def answers(url: str) -> bool:
    """Return True once a server answers its health question with 200."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def until_told() -> None:
    """Return when the terminal or a process manager says so."""
    told: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda given, _: told.append(given))
    while not told:
        time.sleep(0.2)
    print("stopping", file=sys.stderr)


def _wait(name: str, process: subprocess.Popen[bytes], health: str, log: Path) -> None:
    end = time.monotonic() + PATIENCE
    while not answers(health):
        if process.poll() is not None:
            raise NotStarted(f"{name} ended with {process.returncode}: {_last_line(log)}")
        if time.monotonic() > end:
            raise NotStarted(f"{name} did not answer within {PATIENCE:.0f} s")
        time.sleep(0.5)


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a server and the workers it started, which are in its own session."""
    for number, patience in ((signal.SIGTERM, 20), (signal.SIGKILL, 10)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)
            break
    # The leader may be gone before its workers.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
