"""What a shell is told of a ledger that was moved."""

from __future__ import annotations

import pytest
from fix_cli import Cli

NEW = "sqlite:///new.db"


def moved(cli: Cli) -> str:
    """Write a fact, move the ledger and return the fact's id."""
    fact_id: str = cli.write()["fact"]["fact_id"]
    cli("ledger", "copy", "--move", "sqlite:///custody.db", NEW)
    return fact_id


def test_commands_that_change_are_refused(cli: Cli) -> None:
    """Each says where the ledger went; none advises to run it again."""
    fact_id = moved(cli)
    for command in (
        ("hold", fact_id),
        ("retract", fact_id, "--reason", "r"),
        ("forget", fact_id, "--reason", "r", "--yes"),
        ("forget", fact_id, "--reason", "r", "--dry-run"),
        ("forget", "--space", "org", "--reason", "r", "--yes"),
        ("expire", "--before", "2026-01-01", "--all-spaces", "--yes"),
        ("repair",),
        ("repair", "--dry-run"),
    ):
        error = cli.json(*command, status=5)["error"]
        assert error["code"] == "ledger_moved", command
        assert "new.db" in cli.stderr
        assert "again" not in cli.stderr


@pytest.mark.parametrize("command", ["read", "where --space org", "history", "ledger verify"])
def test_commands_that_ask_say_that_it_was_moved(cli: Cli, command: str) -> None:
    """The answer comes, and a remark on stderr says where the ledger goes on."""
    fact_id = moved(cli)
    cli(*command.split(), *([fact_id] if command == "history" else []))
    assert "it was moved to" in cli.stderr
    assert "new.db" in cli.stderr
