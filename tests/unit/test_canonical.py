"""Canonical JSON: one byte form per value, and a clear no to what has none."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from custody_sync.canonical import (
    canonical,
    canonical_plain,
    check_instant,
    check_name,
    check_text,
    check_value,
    is_plain,
    parse,
)
from custody_sync.errors import InvalidInput
from custody_sync.model import format_instant, read_instant

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
NUMBERS = st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
PLAIN_KEYS = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1)
PLAIN = st.dictionaries(
    PLAIN_KEYS, TEXT | st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.lists(TEXT)
)


@given(VALUES)
def test_a_checked_value_has_one_form_for_ever(value: Any) -> None:
    """Checking, writing, reading and writing again never changes a byte."""
    checked = check_value(value)
    body = canonical(checked)
    assert canonical(value) == body
    assert canonical(parse(body)) == body
    assert check_value(parse(body)) == checked


@given(PLAIN)
def test_the_fast_encoder_gives_the_same_bytes(document: dict[str, Any]) -> None:
    """For documents of ours the standard encoder is RFC 8785, control characters included."""
    assert canonical_plain(document).encode() == rfc8785.dumps(document)


@given(st.dictionaries(TEXT, VALUES, max_size=4))
def test_what_is_called_plain_is_written_fast_and_right(document: dict[str, Any]) -> None:
    """Whatever is in it: either it is not plain, or the standard encoder is RFC 8785 for it."""
    if is_plain(document):
        assert canonical_plain(document).encode() == rfc8785.dumps(document)
    else:
        assert any(map(needs_care, walk(document)))


def walk(value: Any) -> Iterator[Any]:
    """Yield a value, its keys, and everything in it."""
    yield value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    yield from value if isinstance(value, dict) else ()
    for item in inner:
        yield from walk(item)


def needs_care(value: Any) -> bool:
    """Tell whether a value, or a key, is one that the two encoders may write in different ways."""
    if isinstance(value, dict):
        return not all(key.isascii() for key in value)
    return isinstance(value, float | tuple) or (isinstance(value, int) and abs(value) > 2**53 - 1)


def test_the_fast_encoder_escapes_like_rfc_8785() -> None:
    """Every control character, quote, backslash, DEL and line separator comes out the same."""
    document = {"all": "".join(map(chr, range(1, 0x100))) + "\u2028\u2029\ufeff\U0001f600"}
    assert canonical_plain(document).encode() == rfc8785.dumps(document)


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (1.0, b"1"),
        (-0.0, b"0"),
        (1e20, b"100000000000000000000"),
        (1e21, b"1e+21"),
        (1e-7, b"1e-7"),
        ({"b": 1, "a": 2}, b'{"a":2,"b":1}'),
        ({"\ue000": 1, "\U00010000": 2}, '{"\U00010000":2,"\ue000":1}'.encode()),
        ((1, [2]), b"[1,[2]]"),
        (2**53 - 1, b"9007199254740991"),
        (True, b"true"),
    ],
)
def test_numbers_and_keys_take_their_rfc_8785_form(value: Any, form: bytes) -> None:
    """Numbers are written as ECMAScript does and keys sort by UTF-16 code units."""
    assert canonical(check_value(value)) == form


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (math.nan, "NaN and infinity are not JSON"),
        (math.inf, "NaN and infinity are not JSON"),
        (2**53, "beyond 2^53-1"),
        ({"n": [-(2**53)]}, "beyond 2^53-1"),
        (b"raw", "bytes is not JSON"),
        ({1: "x"}, "an object key is not a string"),
        ({"x": {"y": {3: 1}}}, "an object key is not a string"),
        ({1, 2}, "set is not JSON"),
        (datetime(2026, 1, 1, tzinfo=UTC), "datetime is not JSON"),
        ("a\x00b", "NUL"),
        ({"a\x00": 1}, "NUL"),
        ("\ud800", "lone surrogate"),
        ({"k": ["\udfff"]}, "lone surrogate"),
    ],
)
def test_what_is_no_json_is_refused_in_one_sentence(value: Any, problem: str) -> None:
    """A value without a canonical form is refused, and the sentence names the field and the reason."""
    with pytest.raises(InvalidInput) as caught:
        check_value(value)
    assert str(caught.value).startswith("value: ")
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_nesting_has_an_end() -> None:
    """A hundred levels pass, a thousand are refused, a circle too; no recursion error reaches a caller."""
    deep: Any = "x"
    for _ in range(100):
        deep = [deep]
    assert check_value(deep) == deep
    for _ in range(1000):
        deep = [deep]
    circle: list[Any] = []
    circle.append(circle)
    for value in (deep, circle):
        with pytest.raises(InvalidInput, match="nested more than 100 levels"):
            check_value(value)


def test_a_checked_value_shares_nothing_with_the_caller() -> None:
    """Later changes to the caller's object change nothing here."""
    mine = {"tags": ["a"]}
    copy = check_value(mine)
    mine["tags"].append("b")
    assert copy == {"tags": ["a"]}


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "must not be empty or blank"),
        (" \t\n", "must not be empty or blank"),
        (None, "must be a string, not NoneType"),
        (7, "must be a string, not int"),
        ("x" * 1001, "has 1001 characters, more than 1000"),
        ("a\x00", "NUL"),
        ("\ud83d", "lone surrogate"),
    ],
)
def test_a_bad_name_is_refused(name: Any, problem: str) -> None:
    """A name is text that is not blank, not endless and storable anywhere."""
    with pytest.raises(InvalidInput, match=problem):
        check_name(name, "space")


def test_odd_but_good_text_passes_unchanged() -> None:
    """Line separators, a byte order mark and emoji are text like any other."""
    text = "one\u2028two\u0085three\u2029four\u000bfive\rsix \ufeff\U0001f600"
    assert check_text(text, "text") == text
    assert json.loads(canonical(text)) == text


@pytest.mark.parametrize("instant", [datetime(2026, 1, 1), "2026-01-01T00:00:00Z", 0, None])
def test_an_instant_is_an_aware_datetime(instant: Any) -> None:
    """A naive time, a string and a number are refused: nobody can know what they mean."""
    with pytest.raises(InvalidInput, match="valid_at"):
        check_instant(instant, "valid_at")


@given(
    st.datetimes(timezones=st.just(UTC)),
    st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes))),
)
def test_stored_time_is_fixed_width_utc_in_order(instant: datetime, zone: timezone) -> None:
    """Every instant is written with 27 characters, reads back equal, and text order is time order."""
    try:
        elsewhere = instant.astimezone(zone)
    except OverflowError:
        elsewhere = instant
    text = format_instant(elsewhere)
    assert (len(text), read_instant(text), text) == (27, instant, format_instant(instant))
    other = datetime(2026, 9, 1, tzinfo=UTC)
    assert (text < format_instant(other)) == (instant < other)


def test_an_instant_beyond_the_years_is_refused() -> None:
    """An offset that leads out of the years 1 to 9999 is one sentence, not an overflow."""
    with pytest.raises(InvalidInput, match="outside the years"):
        check_instant(datetime.max.replace(tzinfo=timezone(-timedelta(hours=2))), "valid_to")


@pytest.mark.parametrize("value", ["tuna \ud800", {"k": float("nan")}, [2**53], {1: "x"}, b"x"])
def test_nothing_of_a_value_hangs_on_its_refusal(value: Any) -> None:
    """An encoder's error carries the whole value; the refusal stands alone, without cause or context."""
    for check in (check_value, canonical):
        with pytest.raises(InvalidInput) as caught:
            check(value)
        assert (caught.value.__context__, caught.value.__cause__) == (None, None)
        assert "tuna" not in str(caught.value)
