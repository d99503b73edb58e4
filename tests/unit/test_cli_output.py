"""What people and programs see: verbatim or escaped, never obeyed."""

from __future__ import annotations

import io
import json
import sys
from datetime import UTC, datetime

import pytest

from custody_sync.cli.output import Output, plain, visible
from custody_sync.errors import MissingExtra
from custody_sync.model import (
    Outcome,
)
from custody_sync.results import (
    Removal,
)


@pytest.mark.parametrize(
    "text",
    [
        "[/items] closes",
        "list[str] and [red]x",
        "[link=https://x.invalid]y",
        ":smile: stays",
        "back\\slash",
        "\U0001f469\u200d\U0001f680 and naïve",
        "custody-sync[mem0]",
    ],
)
def test_text_is_shown_verbatim(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Markup, emoji codes and backslashes mean themselves, in lines and in tables."""
    output = Output()
    output.line(text)
    output.table("t", ("column",), [(text,)])
    output.note(text)
    shown = capsys.readouterr()
    assert shown.out.count(text) == 2
    assert text in shown.err


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\nb\tc\rd", "a\\nb\\tc\\rd"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\x9b2J", "\\x9b2J"),
        ("hidden\U000e0041", "hidden\\U000e0041"),
        ("\ud800", "\\ud800"),
        ("one\u2028two", "one\\u2028two"),
    ],
)
def test_what_a_terminal_would_obey_is_shown_as_an_escape(text: str, shown: str) -> None:
    """Control characters, direction marks and tag characters cannot act or hide."""
    assert visible(text) == shown


def test_long_text_is_not_wrapped_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    """Where no terminal ends the line, a text stays in one piece."""
    text = "word " * 400 + "end"
    Output().table("t", ("a", "b"), [(text, text)])
    assert text in capsys.readouterr().out


def test_a_long_word_is_not_broken_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path longer than the line is left to the terminal; a text without one is wrapped between words."""
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    path = "/a/very/long/path" * 5
    Output().line(f"Made the ledger of this installation {path} now.")
    assert path in capsys.readouterr().out
    Output().line("Made the ledger of this installation and wrote its settings.")
    shown = capsys.readouterr().out.splitlines()
    assert [line.strip() for line in shown] == [
        "Made the ledger of this installation and",
        "wrote its settings.",
    ]


def test_json_is_one_document_and_nothing_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    """With --json, tables and lines are silent and stdout parses."""
    output = Output(json=True)
    output.line("hello")
    output.table("t", ("a",), [("b",)])
    output.pairs([("a", "b")])
    output.document({"value": "\x1b\U0001f319", "when": datetime(2026, 1, 1, tzinfo=UTC)})
    shown = capsys.readouterr()
    assert json.loads(shown.out) == {"value": "\x1b\U0001f319", "when": "2026-01-01T00:00:00.000000Z"}
    assert shown.out.isascii()
    assert shown.err == ""


def test_records_become_objects() -> None:
    """Frozen records, enums and nested mappings become plain JSON."""
    removal = Removal(store="s", external_id="e", outcome=Outcome.STILL_INDEXED)
    assert plain({"r": (removal,)})["r"] == [
        {"store": "s", "external_id": "e", "outcome": "still_indexed", "detail": "", "fact_id": ""}
    ]


def test_an_error_is_a_sentence_and_a_document(capsys: pytest.CaptureFixture[str]) -> None:
    """People read the sentence on stderr; programs get code, message, fields and exit status."""
    Output(json=True).error(MissingExtra(feature="store 'mem0'", extra="mem0"))
    shown = capsys.readouterr()
    assert "custody-sync[mem0]" in shown.err
    document = json.loads(shown.out)["error"]
    assert (document["code"], document["exit_code"], document["extra"]) == ("missing_extra", 2, "mem0")


def test_nobody_is_asked_where_nobody_can_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe on stdin, or --json, means that there is no one to ask."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert not Output().interactive
    assert not Output(json=True).interactive
