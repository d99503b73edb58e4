"""Files that are made: for their owner alone whatever the umask, and never in the place of a device."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from fix_cli import Cli

METRICS = "metrics.prom"
"""Whoever collects it is somebody else; it has no content."""


@pytest.fixture
def open_to_all() -> Iterator[None]:
    """Let the umask keep nothing from anybody."""
    old = os.umask(0)
    yield
    os.umask(old)


@pytest.mark.usefixtures("open_to_all")
@pytest.mark.parametrize("scheme", ["sqlite", "jsonl"])
def test_what_a_command_makes_is_its_owners(cli: Cli, scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ledger, log, notes, witness, settings, plan and export are 0600; the folder of witnesses is 0700."""
    here = cli.folder / "here"
    here.mkdir()
    witnesses = cli.folder / "kept" / "witness"
    monkeypatch.chdir(here)
    monkeypatch.setenv("CUSTODY_SYNC_WITNESS", str(witnesses))
    cli("init", "--ledger", f"{scheme}:///custody.db")
    with open("custody.toml", "a", encoding="utf-8") as file:
        file.write('factory = "stores_of_this_test:stores"\n')
    gone, left = (cli.write(value)["fact"]["fact_id"] for value in ("pro", "free"))
    cli("retract", left, "--reason", "wrong")
    cli("forget", gone, "--reason", "asked", "--yes")
    Path("plan.jsonl").touch()  # One that is there already has the mode of whoever made it.
    cli("repair", "--plan", "plan.jsonl")
    cli("ledger", "export", "--to", "export.jsonl")
    cli("repair", "--metrics-file", METRICS)
    made = {path.name: path for path in (*here.iterdir(), *witnesses.iterdir()) if path.name != "__pycache__"}
    assert {"custody.toml", "custody.db", "plan.jsonl", "export.jsonl", METRICS} < set(made)
    assert any(path.parent == witnesses for path in made.values())
    modes = {name: stat.S_IMODE(path.stat().st_mode) for name, path in made.items()}
    assert modes.pop(METRICS) == 0o644
    assert set(modes.values()) == {0o600}, {name: oct(mode) for name, mode in modes.items()}
    assert stat.S_IMODE(witnesses.stat().st_mode) == 0o700


def test_an_export_replaces_no_device(cli: Cli) -> None:
    """Not even with --force: root would take /dev/null from everybody else."""
    os.mkfifo("pipe")
    Path("link").symlink_to("pipe")
    for name in ("pipe", "link"):
        cli("ledger", "export", "--to", name, "--force", status=2)
        assert "no regular file" in cli.stderr
        assert stat.S_ISFIFO(os.stat(name).st_mode)
