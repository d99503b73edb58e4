"""Memories as text for a prompt: a line each, whatever they say, and nothing that ends a line or a frame."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from custody_sync.faces._prompt import line

TEXTS = st.text() | st.text(
    alphabet="</memories>&`\n\t\r\x85\u2028\u2029\u202e\u200b\ufeff\x00\x1b\U000e0041a"
)


@given(TEXTS)
def test_a_line_is_one_line_of_json_without_marks(text: str) -> None:
    """Any text gives one line that parses and has no mark that could end a frame; nothing is added."""
    said = line({"text": text})
    assert said.splitlines() == [said]
    assert not set("<>&`") & set(said)
    seen = json.loads(said)["text"]
    rest = iter(text)
    assert all(mark in rest for mark in seen), "marks were added or moved"
    assert all(mark in "\n\t\u200c\u200d" or mark.isprintable() or ord(mark) > 127 for mark in seen)


@given(st.text(alphabet=st.characters(categories=["L", "M", "N", "P", "S"], exclude_characters="\U000e0100")))
def test_what_can_be_seen_is_all_there(text: str) -> None:
    """Letters, marks, numbers, punctuation and symbols come back as they were."""
    kept = "".join(mark for mark in text if not 0xE0100 <= ord(mark) < 0xE01F0)
    assert json.loads(line({"text": text}))["text"] == kept


def test_names_and_nothing_else_are_taken_over() -> None:
    """Numbers, booleans and None stay what they are."""
    assert json.loads(line({"a": 1, "b": True, "c": None})) == {"a": 1, "b": True, "c": None}
