"""Rows that a store shows: the quick look passes only what the careful one would leave as it is."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from custody_sync.model import Entry
from custody_sync.shown import REPEATS, Circle, Spoiled, read_entry, read_page

PLAIN = Entry(
    store="s",
    external_id="f.1",
    fact_id="f",
    ledger_id="l",
    space="org",
    stored_at=datetime(2026, 9, 1, tzinfo=UTC),
    generation="1",
)


class Whatever(str):
    """A name that says it is every other one."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return True


def test_a_plain_row_is_passed_on_as_it_is() -> None:
    """Nothing is copied for what nearly every row looks like."""
    assert read_entry(PLAIN, "s") is PLAIN


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"fact_id": ""}, "fact_id"),
        ({"fact_id": "x" * 1001}, "fact_id"),
        ({"fact_id": "f\x00"}, "fact_id"),
        ({"external_id": ""}, "external_id"),
        ({"external_id": "\ud800"}, "external_id"),
        ({"external_id": 7}, "external_id"),
        ({"space": 7}, "space"),
        ({"scope": ["a"]}, "scope"),
        ({"generation": "\x00"}, "generation"),
        ({"ledger_id": "\ud800"}, "ledger_id"),
        ({"text": b"x"}, "text"),
    ],
)
def test_a_spoiled_row_is_named_whatever_else_is_plain(change: dict[str, Any], problem: str) -> None:
    """One odd field is enough, and the sentence says which."""
    shown = read_entry(replace(PLAIN, **change), "s")
    assert isinstance(shown, Spoiled)
    assert problem in shown.problem


def test_dates_and_stores_are_put_right() -> None:
    """Another zone becomes UTC, a naive date dates nothing, and a row belongs to the store that showed it."""
    zoned = PLAIN.stored_at and PLAIN.stored_at.astimezone(timezone(timedelta(hours=2)))
    for row in (replace(PLAIN, stored_at=zoned), replace(PLAIN, store="other")):
        assert read_entry(row, "s") == PLAIN
    for external_id in ("f.1", "größe"):
        claimed = replace(PLAIN, external_id=external_id, store=Whatever("theirs"))
        shown = read_entry(claimed, "s")
        assert isinstance(shown, Entry)
        assert type(shown.store) is str
    naive = read_entry(replace(PLAIN, stored_at=datetime(2026, 9, 1)), "s")
    assert isinstance(naive, Entry)
    assert naive.stored_at is None


def test_one_odd_row_of_a_page_is_put_right_and_the_others_stay() -> None:
    """A page reads as its rows do one by one."""
    rows: list[object] = [PLAIN, replace(PLAIN, external_id="f.2")]
    assert read_page(rows, "s") == rows
    assert read_page([], "s") == []
    odd = replace(PLAIN, external_id="\ud800")
    assert read_page([*rows, odd, 7], "s") == [*rows, read_entry(odd, "s"), read_entry(7, "s")]


@pytest.mark.parametrize("length", [1, 2, 7, 50])
@pytest.mark.parametrize("page", [1, 3, 20])
def test_a_listing_in_a_circle_is_noticed_and_measured(length: int, page: int) -> None:
    """Whatever its length and that of a page, after a few rounds; an honest listing never is."""
    circle, rows = Circle(), [replace(PLAIN, external_id=f"f.{i}") for i in range(length)]
    shown = (rows * 500)[: 100 * length]
    pages = [shown[at : at + page] for at in range(0, len(shown), page)]
    lengths = [found for each in pages if (found := circle.length_in(each)) is not None]
    assert lengths[0] == length
    honest = Circle()
    once = [replace(PLAIN, external_id=f"f.{i}") for i in range(1000)]
    assert all(honest.length_in(once[at : at + page]) is None for at in range(0, 1000, page))
    assert REPEATS > 1
