"""What was counted in a run of kills: a line on the terminal, and the file that a variable names."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

import pytest

VARIABLE = "CUSTODY_SYNC_CRASH_REPORT"


def report(config: pytest.Config, line: str, **figures: Any) -> None:
    """Say a line on the terminal, and put figures into the report beside those of other tests."""
    if path := os.environ.get(VARIABLE):
        with Path(path).open("a+") as file:
            # Another worker of the same run may report at this moment.
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            there = json.loads(file.read() or "{}")
            file.truncate(0)
            file.write(json.dumps(there | figures, indent=2) + "\n")
    plugins = config.pluginmanager
    capture, terminal = plugins.get_plugin("capturemanager"), plugins.get_plugin("terminalreporter")
    if capture is not None and terminal is not None:
        with capture.global_and_fixture_disabled():
            terminal.write_line(f"\n{line}")


def report_kills(config: pytest.Config, storage: str, **figures: int) -> None:
    """Report what was counted of a storage."""
    said = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in figures.items())
    report(config, f"kills over {storage}: {said}", **{f"kills_{storage}": figures})
