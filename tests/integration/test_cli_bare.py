"""Command lines that say next to nothing, and exceptions that nobody expects: a status each, no traceback."""

from __future__ import annotations

import asyncio
import json

import pytest

from custody_sync.cli import main
from custody_sync.cli.main import run_command


@pytest.fixture(autouse=True)
def _no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUSTODY_SYNC_LOG", "CUSTODY_SYNC_DEBUG"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("args", "shown"), [((), "Commands:\n  init "), (("ledger",), "Commands:\n  verify ")]
)
def test_where_a_command_is_missing_the_help_is_shown(
    args: tuple[str, ...], shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a command, and with a group's name alone, the help is the result, on lines of its own."""
    assert run_command(args) == 0
    said = capsys.readouterr()
    assert shown in said.out
    assert "\\n" not in said.out
    assert said.err == ""


@pytest.mark.parametrize(
    "args",
    [("--json",), ("",), ("", ""), ("--log", "json"), ("--log=json",), ("ledger", ""), ("ledger", "--json")],
)
def test_a_line_that_names_no_command_is_one_usage_error(
    args: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Options alone and an empty argument are told apart from a command, in one sentence or one document."""
    assert run_command(args) == 2
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    if "--json" in args:
        assert json.loads(said.out)["error"]["code"] == "usage"
    else:
        assert said.out == ""


@pytest.mark.parametrize(
    ("raised", "status"),
    [
        (RecursionError("deep"), 2),
        (SystemExit("a factory wants to end the process"), 2),
        (asyncio.CancelledError(), 2),
        (BaseExceptionGroup("several", [GeneratorExit()]), 2),
        (KeyboardInterrupt(), 130),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("place", ["application", "is_wanted", "_named", "prepare_streams"])
def test_no_exception_gets_out_wherever_it_comes_from(
    place: str,
    raised: BaseException,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Whatever is raised, also before a command begins, is one sentence that quotes nothing, and a status."""

    def fail(*args: object) -> None:
        raise raised

    monkeypatch.setattr(main, place, fail)
    assert run_command(["status"]) == status
    said = capsys.readouterr()
    assert len(said.err.splitlines()) == 1
    assert "factory" not in said.err


def test_what_nobody_expected_is_shown_to_who_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """`CUSTODY_SYNC_DEBUG` lets the exception itself out."""
    monkeypatch.setenv("CUSTODY_SYNC_DEBUG", "1")
    monkeypatch.setattr(main, "application", lambda named: int("nothing"))
    with pytest.raises(ValueError, match="nothing"):
        run_command(["status"])
