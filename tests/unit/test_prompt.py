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


UNSEEN = (
    "\ufe00\ufe0f\u034f\u115f\u1160\u17b4\u180b\u2065\u2800\u3164\uffa0\ufff0"
    "\U000e0000\U000e0080\U000e0100\U000e01f0"
)


@given(st.text(alphabet=st.characters(categories=["L", "N", "P"], exclude_characters=UNSEEN)))
def test_what_can_be_seen_is_all_there(text: str) -> None:
    """Letters, numbers and punctuation come back as they were."""
    assert json.loads(line({"text": text}))["text"] == text


def test_symbols_and_accents_are_seen() -> None:
    """What a word or an emoji is made of stays: combining accents, joiners, currency, skin tones."""
    text = "cafe\u0301 \u00a35 \U0001f469\U0001f3fd\u200d\U0001f4bb \u2192 \u0928\u093f"
    assert json.loads(line({"text": text}))["text"] == text


def test_a_sentence_in_marks_that_nobody_sees_is_left_out() -> None:
    """Selectors, fillers and what Unicode keeps for later can carry text past whoever reads the prompt."""
    assert json.loads(line({"text": f"a{UNSEEN}b"}))["text"] == "ab"


def test_names_and_nothing_else_are_taken_over() -> None:
    """Numbers, booleans and None stay what they are."""
    assert json.loads(line({"a": 1, "b": True, "c": None})) == {"a": 1, "b": True, "c": None}
