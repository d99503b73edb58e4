"""Streams that are closed, and Ctrl-C at its worst: one sentence and a status, through the real command."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from custody_sync.cli.main import run_command

COMMAND = [sys.executable, "-m", "custody_sync.cli.main"]
WRITE = ("write", "--value", "kept", "--space", "org", "--actor", "a", "--json")
LATE = """
import concurrent.futures.thread as threads, os, signal, sys, time
from custody_sync.cli.main import run_command
from custody_sync.ledger import sqlite
from custody_sync.ledger.embedded import Embedded

signal.signal(signal.SIGINT, signal.default_int_handler)
make = Embedded.__init__
# A file that is ready is opened without a thread, where no interpreter can end meanwhile.
sqlite._open_if_ready = lambda *args: None

def late(*args):
    os.kill(os.getpid(), signal.SIGINT)
    while not threads._shutdown:
        time.sleep(0.01)
    make(*args)

Embedded.__init__ = late
sys.exit(run_command(sys.argv[1:]))
"""


def _run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("CUSTODY_SYNC_")}
    return subprocess.run(
        command, cwd=cwd, env=environ, capture_output=True, text=True, check=False, timeout=60
    )


def _with(closed: str, *args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command of ours in a shell that closes some of its streams."""
    return _run("sh", "-c", f'exec "$@" {closed}', "sh", *COMMAND, *args, cwd=cwd)


def _here(*args: str, cwd: Path) -> str:
    """Run a command in this process, whose streams are open, and return what it printed."""
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out):
        patch.chdir(cwd)
        # Where a process of its own keeps the witness, since none of these variables is passed on.
        patch.delenv("CUSTODY_SYNC_WITNESS")
        assert run_command(args) == 0
    return out.getvalue()


def _values(folder: Path) -> list[Any]:
    return [fact["value"] for fact in json.loads(_here("read", "--json", cwd=folder))["facts"]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with an empty ledger."""
    (tmp_path / "custody.toml").write_text('ledger = "jsonl:///custody.jsonl"\n')
    _here("init", cwd=tmp_path)
    return tmp_path


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_a_closed_standard_output_is_one_sentence_and_nothing_is_done(folder: Path, closed: str) -> None:
    """What would be printed has nowhere to go, and its number would be given to the ledger's file."""
    done = _with(closed, *WRITE, cwd=folder)
    assert done.returncode == 2
    assert done.stderr == ("" if "2>&-" in closed else "standard output is closed; nothing was done.\n")
    assert _values(folder) == []


@pytest.mark.parametrize("closed", ["<&-", "2>&-"])
def test_a_command_needs_neither_input_nor_a_place_for_remarks(folder: Path, closed: str) -> None:
    """Without them it does the same, and writes into no file what was meant for them."""
    done = _with(closed, *WRITE, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["fact"]["value"] == "kept"
    assert _values(folder) == ["kept"]


@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
def test_interrupting_while_a_ledger_is_opened_is_no_traceback(tmp_path: Path, kind: str) -> None:
    """Its thread ends after everything else, and closes by itself what it has opened."""
    ledger = f"{kind}:///custody.{kind}"
    _here("init", "--ledger", ledger, cwd=tmp_path)
    done = _run(sys.executable, "-c", LATE, "read", "--ledger", ledger, "--json", cwd=tmp_path)
    assert done.returncode == 130, done.stderr
    assert done.stderr.count("\n") == 1
    assert "Interrupted" in done.stderr
    assert json.loads(done.stdout)["error"]["code"] == "interrupted"
