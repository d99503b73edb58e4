"""The command line in a folder of its own, as tests run it in their process."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from custody_sync.cli.main import run_command
from custody_sync.removal import Patience
from custody_sync.testing import MemoryStore

Json = dict[str, Any]


@dataclass
class Cli:
    """One folder with a ledger, a custody.toml and two stores that live as long as the test."""

    folder: Path
    capsys: pytest.CaptureFixture[str]
    stores: list[MemoryStore] = field(default_factory=lambda: [MemoryStore("alpha"), MemoryStore("beta")])

    def __call__(self, *args: str, status: int = 0) -> str:
        """Run a command, hold it to its exit status and return what it printed on stdout."""
        self.capsys.readouterr()
        found = run_command(args)
        shown = self.capsys.readouterr()
        self.stderr = shown.err
        assert found == status, f"{args} ended with {found}: {shown.err}{shown.out}"
        return shown.out

    def json(self, *args: str, status: int = 0) -> Json:
        """Run a command with --json and return the document."""
        document: Json = json.loads(self(*args, "--json", status=status))
        return document

    def write(self, value: str = "pro", *more: str, status: int = 0) -> Json:
        """Write one fact about acct:42."""
        statement = ("--subject", "acct:42", "--predicate", "plan", "--space", "org")
        return self.json("write", "--value", value, *statement, *more, status=status)


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    """A folder after `init`, with two memory stores from a factory."""
    monkeypatch.chdir(tmp_path)
    for name in ("CUSTODY_SYNC_CONFIG", "CUSTODY_SYNC_LEDGER", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    run = Cli(tmp_path, capsys)
    module = ModuleType("stores_of_this_test")
    module.__dict__["stores"] = lambda: run.stores
    monkeypatch.setitem(sys.modules, "stores_of_this_test", module)
    monkeypatch.setattr(sys, "path", list(sys.path))
    # As many questions as ever, without the seconds between them that a store of this process does not need.
    monkeypatch.setattr("custody_sync.coordinator.Patience", lambda: Patience(first_wait=0.001))
    (tmp_path / "custody.toml").write_text(
        'ledger = "sqlite:///custody.db"\nfactory = "stores_of_this_test:stores"\nactor = "operator:test"\n'
    )
    run("init")
    return run
