"""A process of one side of a comparison: it is told one command a line and answers each with one."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from typing import Any


class Worker:
    """A process of one side.

    Args:
        command: its interpreter and script.
        uri: the database.
        name: what the server shows it as.
        seconds: how long one call of its embedding takes.
    """

    def __init__(self, command: Sequence[str], uri: str, name: str, seconds: float) -> None:
        self._process = subprocess.Popen(
            [*command, uri, name, str(seconds)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.versions: dict[str, str] = self.hear()["versions"]

    def tell(self, **command: Any) -> None:
        """Give it something to do and do not wait."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        """Wait for its answer."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("a process of the benchmark ended; its traceback is above")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """Let it end."""
        try:
            self._process.communicate(timeout=30)
        finally:
            self._process.kill()
