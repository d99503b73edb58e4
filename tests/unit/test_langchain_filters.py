"""Filters of the LangChain face: functions and mappings, the same over every store, the rest refused."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.documents import Document

from custody_sync.errors import InvalidInput
from custody_sync.faces._langchain_filters import read_filter

SCORES: tuple[Any, ...] = (9, 10, 100, -5, 10.5, "n/a", None)


def passed(given: Any) -> list[Any]:
    """Return which scores a filter lets through, and "absent" for a document without one."""
    test = read_filter(given)
    assert test is not None
    documents = [Document(page_content="x", metadata={"score": score, "kind": "a"}) for score in SCORES]
    shown = [document.metadata["score"] for document in documents if test(document)]
    return shown + (["absent"] if test(Document(page_content="x")) else [])


def is_nine(document: Document) -> bool:
    """A filter that is a function."""
    return bool(document.metadata.get("score") == 9)


def named(given: object) -> str:
    """Name a case alike in every process."""
    return is_nine.__name__ if given is is_nine else repr(given)


@pytest.mark.parametrize(
    ("given", "right"),
    [
        ({"score": {"$gte": 10}}, [10, 100, 10.5]),
        ({"score": {"$lt": 0}}, [-5]),
        ({"score": {"$gt": 9, "$lte": 10}}, [10]),
        ({"score": 10}, [10]),
        ({"score": None}, [None]),
        ({"score": {"$ne": 10}}, [9, 100, -5, 10.5, "n/a", None, "absent"]),
        ({"score": {"$in": [9, "n/a"]}}, [9, "n/a"]),
        ({"score": {"$nin": [9, 10, 100]}}, [-5, 10.5, "n/a", None, "absent"]),
        ({"$or": [{"score": 9}, {"score": {"$gt": 50}}]}, [9, 100]),
        ({"$and": [{"kind": "a"}, {"score": {"$lt": 10}}]}, [9, -5]),
        ({"$not": {"score": {"$gte": 10}}}, [9, -5, "n/a", None, "absent"]),
        ({"score": {"nested": 1}}, []),
        ({}, [*SCORES, "absent"]),
        (is_nine, [9]),
    ],
    ids=named,
)
def test_a_filter_lets_through_what_it_says(given: Any, right: list[Any]) -> None:
    """Numbers are compared as numbers, and what cannot be compared or is absent is in no range."""
    assert passed(given) == right


@pytest.mark.parametrize(
    "given",
    [
        "score", 7, [], {"$near": 1}, {"score": {"$regex": "x"}}, {"$or": {"score": 1}}, {"$and": [1]},
        {"$not": 1}, {"score": {"$in": "abc"}}, {"score": {"$in": b"abc"}},
    ],
    ids=repr,
)  # fmt: skip
def test_what_is_not_understood_is_refused(given: Any) -> None:
    """A filter that is taken and not applied would show what it was to keep out."""
    with pytest.raises(InvalidInput, match="filter"):
        read_filter(given)


def test_no_filter_is_none() -> None:
    """Without a filter nothing is tested."""
    assert read_filter(None) is None


def flags(given: Any) -> list[Any]:
    """Return which values of a flag a filter lets through."""
    test = read_filter(given)
    assert test is not None
    held = [True, False, 1, 0, 1.0, [1], "1"]
    return [flag for flag in held if test(Document(page_content="x", metadata={"flag": flag}))]


def test_true_is_no_number() -> None:
    """As in JSON: 1 is 1.0 and neither is true, alone, in a list of values, and by size."""
    assert flags({"flag": 1}) == [1, 1.0]
    assert str(flags({"flag": True})) == "[True]"
    assert str(flags({"flag": {"$in": frozenset({1, "1"})}})) == "[1, 1.0, '1']"
    assert str(flags({"flag": {"$nin": [0, 1]}})) == "[True, False, [1], '1']"
    assert flags({"flag": {"$gt": 0}}) == [1, 1.0]
    assert flags({"flag": {"$gt": False}}) == []
    assert flags({"flag": [True]}) == []
    assert flags({"flag": [1]}) == [[1]]


def test_what_is_nested_without_end_is_refused() -> None:
    """In one sentence, and not by running out of the stack; nor is a key that is no text looked at."""
    endless: dict[str, Any] = {"a": 1}
    for _ in range(5000):
        endless = {"$not": endless}
    with pytest.raises(InvalidInput, match="levels deep"):
        read_filter(endless)
    with pytest.raises(InvalidInput, match="no text"):
        read_filter({1: 2})
