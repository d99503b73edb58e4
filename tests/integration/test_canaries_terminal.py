"""Hostile memories on a terminal and in a log: shown as escapes wherever a command repeats them."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator

import pytest
from fix_cli import Cli

from custody_sync.cli import output
from custody_sync.cli.main import run_command

HOSTILE = (
    "\x1b[2J\x1b]0;owned\x07\x1b]52;c;Zm9v\x07 \u202eevil\u2066 a\u2028b\u2029c\x85d\x9b31m\r\n"
    "forged line\u200b\ufeff\U000e0041"
)
"""Clears a screen, names a window, fills a clipboard, turns text around, breaks lines, hides letters."""
STEERING = {char for char in HOSTILE if unicodedata.category(char) in {"Cc", "Cf", "Zl", "Zp"}} - {"\n"}


def harmless(shown: str) -> bool:
    """Tell whether nothing in it steers a terminal; lines are ours to end."""
    return not STEERING & set(shown) and "\nforged" not in shown


def commands(fact_id: str, claimed: str) -> Iterator[tuple[tuple[str, ...], int | None]]:
    """Yield what shows facts, names, reasons and ids; a status is None where it does not matter here."""
    yield ("read",), 0
    yield ("recall", HOSTILE, "--space", HOSTILE), 0
    yield ("card", HOSTILE), None
    yield ("history", fact_id, "--verbose"), 0
    yield ("where", fact_id), None
    yield ("confirm", claimed, HOSTILE), None
    yield ("retract", HOSTILE, "--reason", HOSTILE), 4
    yield ("hold", fact_id, "--hold-id", HOSTILE, "--reason", HOSTILE), 0
    yield ("forget", fact_id, "--reason", HOSTILE, "--yes"), 4
    yield ("expire", "--window", f"{HOSTILE}=P1D"), None
    yield ("repair", "--dry-run"), None
    yield ("reconcile",), None
    yield ("verify",), None
    yield ("status",), None
    yield ("repair", "--apply", HOSTILE), 2
    yield ("ledger", "verify", "--head", HOSTILE), 2
    yield ("read", "--config", HOSTILE), 2
    yield (HOSTILE,), 2
    yield ("read", f"--{HOSTILE}"), 2


@pytest.fixture
def told(cli: Cli) -> tuple[str, str]:
    """Hostile facts, one of them claimed; one entry is a stray, so that a repair names it."""
    names = ("--subject", HOSTILE, "--predicate", HOSTILE, "--space", HOSTILE, "--actor", HOSTILE)
    kinds = ((), ("--provenance", "claimed"), ("--text", HOSTILE))
    said = ("--value", HOSTILE, *names, "--receipt-id", HOSTILE)
    kept, claimed, gone = (
        str(json.loads(cli("write", *said, *more, "--json"))["fact"]["fact_id"]) for more in kinds
    )
    cli("retract", gone, "--reason", HOSTILE)
    return kept, claimed


def test_no_command_lets_a_memory_steer_a_terminal(cli: Cli, told: tuple[str, str]) -> None:
    """Table, history, recall, card, verification and every refusal show it, and none obeys it."""
    seen = 0
    for args, status in commands(*told):
        cli.capsys.readouterr()
        found = output_of(cli, args, status)
        seen += "\\x1b[2J" in found
        assert harmless(found), (args[0], ascii(found))
    assert seen >= 8, "what is never shown proves nothing"


def output_of(cli: Cli, args: tuple[str, ...], status: int | None) -> str:
    """Return all that a command shows."""
    found = run_command(args)
    shown = cli.capsys.readouterr()
    assert status in (None, found), (args, shown)
    return f"{shown.out}{shown.err}"


def test_a_log_and_a_document_are_lines_of_ascii(cli: Cli, told: tuple[str, str]) -> None:
    """Neither `--json` nor `--log json` has a byte that a terminal obeys; every log line is one object."""
    for args, _ in commands(*told):
        document = output_of(cli, (*args, "--json"), None)
        assert document.isascii()
        assert harmless(document)
        for line in output_of(cli, (*args, "--log", "json"), None).splitlines():
            assert "\x1b" not in line
            if line.startswith('{"time"'):
                json.loads(line)


def test_the_check_sees_a_command_that_obeys(
    cli: Cli, told: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the escaping taken out, the check above finds it."""
    monkeypatch.setattr(output, "visible", str)
    assert not harmless(output_of(cli, ("read",), 0))
    assert told
