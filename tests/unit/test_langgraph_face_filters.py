"""Filters of the LangGraph face: numbers as numbers, missing as null, and unknown operators refused (P1)."""

from __future__ import annotations

from typing import Any

import pytest

from custody_sync.errors import InvalidInput
from custody_sync.faces._langgraph_filters import check_filter, matches

VALUES: tuple[Any, ...] = (9, 10, 100, -5, 10.5, "n/a", None, True, "10")


def found(condition: Any) -> list[Any]:
    """Return which of the values a condition on `score` lets through."""
    checked = check_filter({"score": condition})
    return [value for value in VALUES if matches({"score": value}, checked)]


@pytest.mark.parametrize(
    ("condition", "right"),
    [
        ({"$gte": 10}, [10, 100, 10.5]),
        ({"$lt": 0}, [-5]),
        ({"$gt": 9, "$lte": 10}, [10]),
        ({"$lt": float("inf")}, [9, 10, 100, -5, 10.5]),
        ({"$gt": "a"}, ["n/a"]),
        ({"$eq": 10.0}, [10]),
        ({"$ne": 9}, [10, 100, -5, 10.5, "n/a", None, True, "10"]),
        (10, [10]),
        (True, [True]),
        (None, [None]),
        ({"$eq": float("nan")}, []),
        ({"$lt": 10**100}, [9, 10, 100, -5, 10.5]),
    ],
)
def test_a_condition_compares_numbers_as_numbers_and_texts_as_texts(condition: Any, right: list[Any]) -> None:
    """A number is never compared as text, a truth value is no number, and what differs in kind never fits."""
    assert [repr(value) for value in found(condition)] == [repr(value) for value in right]


def test_a_missing_field_counts_as_null() -> None:
    """Whether a field is null or not there makes no difference to a filter."""
    for value in ({}, {"tag": None}):
        assert matches(value, check_filter({"tag": None}))
        assert matches(value, check_filter({"tag": {"$ne": "a"}}))
        assert not matches(value, check_filter({"tag": {"$gte": 0}}))


def test_a_filter_reaches_into_objects_and_lists() -> None:
    """An object has to have what is asked for, a list is compared item by item, a dotted key is a path."""
    value: dict[str, Any] = {"user": {"name": "Ann", "age": 40}, "tags": ["a", {"n": 1}], "a.b": 1}
    for condition in (
        {"user": {"name": "Ann"}},
        {"user": {"age": {"$gt": 39}}},
        {"user.name": "Ann"},
        {"user.age": {"$lte": 40}},
        {"tags": ["a", {"n": 1.0}]},
        {"tags": {"$eq": ["a", {"n": 1}]}},
        {"a.b": 1},
        {},
        None,
    ):
        assert matches(value, check_filter(condition)), condition
    for condition in (
        {"user": {"name": "Bob"}},
        {"user": "Ann"},
        {"user.name.first": "Ann"},
        {"tags": ["a"]},
        {"tags": ["a", {"n": True}]},
        {"tags": {"$eq": ["a", {"n": 1, "m": 2}]}},
        {"a.c": 1},
    ):
        assert not matches(value, check_filter(condition)), condition


@pytest.mark.parametrize(
    "condition",
    [
        "score",
        {1: 2},
        {"score": {"$in": [1]}},
        {"score": {"$gt": 1, "lt": 2}},
        {"score": {"$gt": None}},
        {"score": {"$lt": [1]}},
        {"score": {"$gte": True}},
        {"score": object()},
        {"user": {"age": {"$exists": True}}},
    ],
)
def test_a_filter_that_means_nothing_is_refused(condition: Any) -> None:
    """An operator that there is not, or one that compares with no size, is one clear sentence."""
    with pytest.raises(InvalidInput, match=r"^filter: "):
        check_filter(condition)


def test_a_filter_is_copied() -> None:
    """What the caller does to a filter afterwards changes no search; one without an end is refused."""
    mine: dict[str, Any] = {"tags": ["a"]}
    checked = check_filter(mine)
    mine["tags"].append("b")
    assert matches({"tags": ["a"]}, checked)
    mine["tags"] = mine
    with pytest.raises(InvalidInput, match="nested"):
        check_filter(mine)
