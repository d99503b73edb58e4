"""A URL with a password, typed in a wrong place of any command, comes back nowhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
from fix_cli import Cli

from custody_sync.cli.main import COMMANDS, GROUPS, application, run_command
from custody_sync.cli.sentences import discreet
from custody_sync.errors import MissingExtra
from custody_sync.testing.postgres import EmbeddedPostgres

SECRET = "S3CR'ET-é"
URL = f"postgresql://u:{SECRET}@127.0.0.1:1/d//b"


def _commands() -> Iterator[tuple[list[str], Any]]:
    group: Any = typer.main.get_command(application())
    yield [], group
    for name in COMMANDS:
        yield [name], group.commands[name]
    for noun, verbs in GROUPS.items():
        yield [noun], group.commands[noun]
        for verb in verbs:
            yield [noun, verb], group.commands[noun].commands[verb]


COMMAND_LINES = list(_commands())


def _misuses(command: Any) -> Iterator[list[str]]:
    """Yield what may be typed behind a command so that the URL is where it does not belong."""
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    yield [URL] * (len(arguments) + 2)
    yield [f"--ledgr={URL}"]
    yield ["--ledgr", URL]
    yield [f"--{URL}"]
    yield [f"-{URL}"]
    for option in command.params:
        if option.param_type_name == "option":
            yield [*["x"] * len(arguments), f"{option.opts[0]}={URL}"]


NOT_FOUND = 1


@pytest.fixture(autouse=True)
def _no_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a demo end before its server starts: a URL may be the name of the folder that it is to keep."""

    def start(self: EmbeddedPostgres) -> str:
        raise MissingExtra(feature="EmbeddedPostgres", extra="demo")

    monkeypatch.setattr(EmbeddedPostgres, "start", start)


@pytest.mark.parametrize(
    ("words", "command"), COMMAND_LINES, ids=[" ".join(words) or "root" for words, _ in COMMAND_LINES]
)
def test_no_command_repeats_the_password_of_a_url(cli: Cli, words: list[str], command: Any) -> None:
    """As an argument too many, in an unknown option or as a value that no option takes."""
    refused = 0
    for number, more in enumerate(_misuses(command)):
        args = [*words, *more, *(["--json"] if number % 2 else [])]
        cli.capsys.readouterr()
        status = run_command(args)
        shown = cli.capsys.readouterr()
        if status:
            refused += 1
            assert "S3CR" not in shown.err + shown.out, args
            # Where nothing was found there is a document, and a status that says so.
            assert number % 2 == 0 or status == NOT_FOUND or "error" in json.loads(shown.out)
    assert refused >= 5


def test_what_was_cut_still_says_what_kind_of_argument_it_was(cli: Cli) -> None:
    """The scheme stays, and so does the whole URL of a file, which has room for no password."""
    cli("ledger", "verify", URL, status=2)
    assert "(postgresql://...)" in cli.stderr
    cli("ledger", "verify", "--ledger", "sqlite:///no/x.db", status=5)
    assert "no/x.db" in cli.stderr
    assert "://..." not in cli.stderr


def test_every_form_of_a_url_is_cut() -> None:
    """Quoted, escaped, as a path, inside a document and beside a URL of a file."""
    args = ["verify", "--x=a://b\\c//d/../SECRET", "sqlite:///f b://SECRET"]
    said = {
        "quoted": repr("a://b\\c//d/../SECRET"),
        "path": ["/cwd/a:/b\\c/d/../SECRET", "a:/b\\c/SECRET"],
        "both": "sqlite:///f b://SECRET",
        "folder": "/cwd/a:/b\\c/custody.db",
        "count": 3,
    }
    assert discreet(said, args) == {
        "quoted": "'a://...'",
        "path": ["/cwd/a://...", "a://..."],
        "both": "sqlite://...",
        "folder": "/cwd/a://.../custody.db",
        "count": 3,
    }


def test_a_result_repeats_no_password_and_keeps_every_other_url(cli: Cli) -> None:
    """In the table and the document of what was not confirmed; what is no secret is asked for by name."""
    plain = "https://example.org:80/ada"
    shown = cli("confirm", URL, plain, status=3)
    assert "S3CR" not in shown + cli.stderr
    assert "postgresql://..." in shown
    assert plain in shown
    said = cli.json("confirm", f"p://h/d?password={SECRET}", plain, status=3)
    assert [one["fact_id"] for one in said["refusals"]] == ["p://...", plain]
