"""A file of facts is read line by line, checked as a whole, and each line has one identity."""

from __future__ import annotations

import json
from typing import Any

import pytest

from custody_sync.cli.lines import Line, read_lines
from custody_sync.errors import InvalidInput
from custody_sync.model import Provenance

FACT = {"space": "org", "subject": "plan:x", "predicate": "price", "value": "1 EUR"}


def _read(*lines: Any, level: Provenance = Provenance.ATTESTED, actor: str | None = "importer") -> list[Line]:
    raw = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    return read_lines(raw.encode(), actor=actor, provenance=level)


def _keys(*lines: Any) -> list[str]:
    return [line.arguments["idempotency_key"] for line in _read(*lines)]


def test_only_a_line_feed_ends_a_line() -> None:
    """U+2028 and its like are text, so one physical line is one fact."""
    text = "one\u2028two\u0085three\u2029four"
    lines = _read(json.dumps({"space": "user:1", "value": text}, ensure_ascii=False))
    assert [line.arguments["value"] for line in lines] == [text]


def test_byte_order_mark_crlf_and_blank_lines_are_tolerated() -> None:
    """Files from other systems read the same, and lines keep their numbers."""
    raw = b"\xef\xbb\xbf" + json.dumps(FACT).encode() + b"\r\n\r\n  \n" + json.dumps(FACT).encode() + b"\r\n"
    lines = read_lines(raw, actor="importer", provenance=Provenance.CLAIMED)
    assert [line.number for line in lines] == [1, 4]


def test_a_ref_is_the_identity_of_a_line() -> None:
    """A line with a ref keeps its key when other lines come before it or its content is corrected."""
    with_ref = {**FACT, "ref": "a"}
    assert _keys(with_ref) == _keys(FACT, {**with_ref, "value": "2 EUR"})[1:]


def test_equal_lines_without_ref_are_told_apart_by_their_count() -> None:
    """Two equal lines are two facts, and the same two when the file is read again or reordered."""
    other = {**FACT, "value": "2 EUR"}
    first, second = _keys(FACT, FACT)
    assert first != second
    assert _keys(other, FACT, FACT)[1:] == [first, second]
    assert _keys({**FACT, "text": None}) == [first]


def test_key_order_and_spacing_do_not_matter() -> None:
    """Identity is of the content, not of its spelling."""
    reordered = json.dumps(dict(reversed(FACT.items())), indent=None, separators=(" , ", " : "))
    assert _keys(reordered) == _keys(FACT)


def test_a_correction_points_at_its_earlier_line() -> None:
    """supersedes_ref becomes the number of the line that has the ref."""
    lines = _read({**FACT, "ref": "a"}, {**FACT, "value": "2 EUR", "supersedes_ref": "a"})
    assert [line.corrects for line in lines] == [None, 1]


def test_the_lines_own_key_and_actor_win() -> None:
    """A line may name its key and its actor itself."""
    (line,) = _read({**FACT, "idempotency_key": "mine", "actor": "agent:x"})
    assert (line.arguments["idempotency_key"], line.arguments["actor"]) == ("mine", "agent:x")


def test_a_line_may_lower_its_provenance_and_never_raise_it() -> None:
    """The command decides how far a file is trusted."""
    (line,) = _read({**FACT, "provenance": "claimed"})
    assert line.arguments["provenance"] is Provenance.CLAIMED
    with pytest.raises(InvalidInput, match="more than --provenance claimed grants"):
        _read({**FACT, "provenance": "attested"}, level=Provenance.CLAIMED)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "not a JSON value"),
        ("[1]", "not a JSON object"),
        ('{"space": "org", "subject": "s", "predicate": "p", "value": NaN}', "not a JSON value"),
        ({**FACT, "value": 2**53}, "2\\^53-1"),
        ({**FACT, "value": "a\x00b"}, "NUL"),
        ('{"space": "org", "subject": "s", "predicate": "p", "value": "\\ud800"}', "lone surrogate"),
        ({**FACT, "space": " "}, "space: must not be empty"),
        ({**FACT, "spaces": "org"}, "spaces: is no field"),
        ({"space": "org"}, "value: is missing"),
        ({"value": "text"}, "space: is missing"),
        ({"space": "org", "value": 7}, "of free text is a sentence"),
        ({"space": "org", "value": " "}, "of free text is a sentence"),
        ({"space": "org", "subject": "s", "value": "v"}, "go together"),
        ({**FACT, "valid_from": "2026-01-01T00:00:00"}, "valid_from: is not an instant"),
        ({**FACT, "valid_to": "soon"}, "valid_to: is not an instant"),
        (
            {**FACT, "valid_from": "2026-01-02T00:00:00Z", "valid_to": "2026-01-01T00:00:00Z"},
            "valid_to: is not after",
        ),
        ({**FACT, "provenance": "sworn"}, "provenance: is none of"),
        ({**FACT, "supersedes_ref": "b"}, "no good earlier line has the ref 'b'"),
        ({**FACT, "supersedes_ref": "a", "supersedes": "x"}, "stands beside"),
        ({**FACT, "subject": "other", "supersedes_ref": "a"}, "subject: differs from line 1"),
        ({**FACT, "valid_from": "2019-01-01T00:00:00Z", "supersedes_ref": "a"}, "before that of line 1"),
        ({**FACT, "ref": "a"}, "also the ref of line 1"),
    ],
)
def test_a_wrong_line_is_named_and_stops_the_whole_file(line: object, said: str) -> None:
    """One bad line refuses the file, saying its number and what is wrong with it."""
    good = {**FACT, "ref": "a", "valid_from": "2020-01-01T00:00:00Z"}
    with pytest.raises(InvalidInput, match=f"nothing was written: line 2: .*{said}") as caught:
        _read(good, line)
    assert [problem["line"] for problem in caught.value.lines] == [2]


def test_a_line_that_is_not_utf8_is_named() -> None:
    """Bytes that are no text are refused with their line."""
    with pytest.raises(InvalidInput, match="line 1: line: is not UTF-8"):
        read_lines(b'{"value": "\xff"}', actor="a", provenance=Provenance.CLAIMED)


def test_every_wrong_line_is_listed() -> None:
    """Whoever has to mend a file sees all of it at once."""
    with pytest.raises(InvalidInput, match="2 wrong lines") as caught:
        _read("{", FACT, {"value": 1})
    assert [problem["line"] for problem in caught.value.lines] == [1, 3]


def test_two_corrections_of_one_line_are_refused() -> None:
    """Only one can win, so the file is refused before either is written."""
    correction = {**FACT, "supersedes_ref": "a"}
    with pytest.raises(InvalidInput, match="line 2 supersedes 'a' already"):
        _read({**FACT, "ref": "a"}, {**correction, "value": "2 EUR"}, {**correction, "value": "3 EUR"})


def test_a_claimed_line_cannot_be_corrected_in_the_same_file() -> None:
    """Only what is believed can be superseded, and a claimed line is not until it is confirmed."""
    with pytest.raises(InvalidInput, match=r"line 2: .*only be claimed"):
        _read({**FACT, "ref": "a"}, {**FACT, "supersedes_ref": "a"}, level=Provenance.CLAIMED)


def test_a_line_without_an_actor_needs_one_from_the_command() -> None:
    """Custody is about who; nobody is not an actor."""
    with pytest.raises(InvalidInput, match="actor: is missing"):
        _read(FACT, actor=None)
