"""Metadata of documents come back as they were written, to the type, or are refused by their key (P6)."""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import StrEnum
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody_sync.canonical import check_value
from custody_sync.errors import InvalidInput
from custody_sync.faces._langchain_metadata import given_back, kept

VIENNA = ZoneInfo("Europe/Vienna")
VALUES: tuple[Any, ...] = (
    None, True, 0, -7, 2**53 - 1, 2**53, -(2**90), 0.5, 1.0, -0.0, 1e20, math.inf, "", "text\u2028",
    [], [1, [2.0]], {}, {"a": {"b": 1.0}}, (1, "a"), ((),), {"x"}, {2, 7}, frozenset({1, 2}),
    {1: "a", (2, 3): None}, {"~datetime": "mine"}, {"~dict": [["a", 1]]}, {"~": 1}, {"~a": 1, "b": 2},
    datetime(2026, 1, 12, 9, tzinfo=UTC), datetime(2026, 1, 12, 9, 0, 0, 1), datetime(2026, 1, 1, fold=1),
    datetime(2026, 10, 25, 2, 30, tzinfo=VIENNA, fold=1),
    datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=2))),
    date(2026, 1, 12), time(9, 30), time(9, 30, tzinfo=VIENNA), timedelta(days=-1, microseconds=3),
    Decimal("1.50"), Decimal("NaN"), UUID(int=7), b"\x00\xff", b"",
)  # fmt: skip


def read_again(value: Any) -> Any:
    """Return a value as it comes back through the ledger's own form and through a file."""
    return given_back(json.loads(json.dumps(check_value(kept({"k": value})))))["k"]


def shown(value: Any) -> str:
    """Return what a value is, to the type; objects and sets have no order."""
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}{[shown(one) for one in value]}"
    if isinstance(value, dict):
        return f"dict{sorted((shown(key), shown(one)) for key, one in value.items())}"
    if isinstance(value, set | frozenset):
        return f"{type(value).__name__}{sorted(map(shown, value))}"
    return repr(value)


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    """Equal, of the same type, and in new objects: RFC 8785 alone would make 1.0 an integer."""
    assert shown(read_again(value)) == shown(value)


def test_a_zone_keeps_its_name_and_fold() -> None:
    """An hour that there is twice stays the hour it was, in a zone that still knows its summer time."""
    again = read_again(datetime(2026, 10, 25, 2, 30, tzinfo=VIENNA, fold=1))
    assert (again.tzinfo.key, again.fold, again.utcoffset()) == ("Europe/Vienna", 1, timedelta(hours=1))


class Colour(StrEnum):
    """A string that is more than a string."""

    RED = "red"


class Odd(tzinfo):
    """A zone that nothing but its class knows."""

    def utcoffset(self, when: datetime | None) -> timedelta:
        """Return an offset."""
        return timedelta(minutes=5)


@pytest.mark.parametrize(
    "value",
    [
        Colour.RED,
        OrderedDict(a=1),
        object(),
        1j,
        datetime(2026, 1, 1, tzinfo=Odd()),
        "a\x00b",
        "\ud800",
        True.__class__,
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_would_lose_something_is_refused_by_its_key(value: Any) -> None:
    """One sentence names the key, wherever inside it stands."""
    with pytest.raises(InvalidInput, match="size"):
        kept({"size": [1, {"deep": value}]})


def test_what_is_no_metadata_is_refused() -> None:
    """A key that is no string, a list, and a structure in itself have no place in metadata."""
    ring: dict[str, Any] = {}
    ring["ring"] = ring
    for odd in ({1: "a"}, [], ring, {"a\x00": 1}):
        with pytest.raises(InvalidInput):
            kept(odd)


def test_the_callers_objects_are_copied() -> None:
    """Changing what was given, or what is given back, changes nothing that is kept (P8)."""
    mine = {"tags": ["a"]}
    held = kept(mine)
    mine["tags"].append("b")
    given_back(held)["tags"].append("c")
    assert given_back(held) == {"tags": ["a"]}


_PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text("ab~$é", max_size=5)
_TREES = st.recursive(
    _PLAIN | st.decimals(allow_nan=False) | st.datetimes() | st.binary(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("~ab", max_size=9), inner, max_size=3)
        | st.tuples(inner, inner)
    ),
    max_leaves=8,
)


@given(_TREES)
def test_any_tree_comes_back(tree: Any) -> None:
    """Whatever is built of these types, no two trees are kept alike."""
    assert shown(read_again(tree)) == shown(tree)
