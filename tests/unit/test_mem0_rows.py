"""Mem0's answers in one shape, user ids that it takes, and pages that shift while they are read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody_sync.adapters._mem0_pages import Page, each_once, page_of
from custody_sync.adapters._mem0_rows import Row, encoded, read_row, read_time, rows_of

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)


@given(st.text(min_size=1))
def test_a_user_id_is_escaped_reversibly(user_id: str) -> None:
    """What Mem0 refuses, trims or reads as a wildcard is not in it, and it can be read back."""
    found = encoded(user_id)
    assert unquote(found, errors="surrogatepass") == user_id
    assert found.strip() == found
    assert not any(letter.isspace() or letter == "*" for letter in found)


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        ("2026-11-29T12:00:00Z", NOON),
        ("2026-11-29T05:00:00-07:00", NOON),
        ("2026-11-29T12:00:00", NOON),
        ("2026-11-29T17:30:00.000000+05:30", NOON),
        ("0001-01-01T00:00:00+12:00", None),
        ("yesterday", None),
        (1764417600, None),
        (None, None),
    ],
)
def test_a_time_is_read_with_any_offset(raw: object, wanted: datetime | None) -> None:
    """Every offset gives the UTC instant, none means UTC, and what is no time is None."""
    assert read_time(raw) == wanted


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ({"id": "a", "memory": "tea"}, "tea"),
        ({"id": "a", "text": "tea"}, "tea"),
        ({"id": "a", "data": {"memory": "tea"}, "event": "ADD"}, "tea"),
        ({"id": "a", "data": "tea"}, "tea"),
        ({"id": "a", "memory": None, "metadata": None}, None),
    ],
)
def test_a_text_is_read_wherever_an_answer_keeps_it(raw: dict[str, Any], text: str | None) -> None:
    """A reply to a write, a listing and a search name the text differently."""
    row = read_row(raw)
    assert row is not None
    assert (row.text, row.metadata) == (text, {})


@pytest.mark.parametrize("answer", [None, "ok", 7, {}, {"results": None}, {"message": "Memory deleted"}])
def test_what_is_no_list_is_not_taken_for_an_empty_one(answer: object) -> None:
    """An answer without rows to read is None, and never nothing found."""
    assert rows_of(answer) is None


def test_a_bare_list_and_an_envelope_read_the_same() -> None:
    """Searches were answered in both forms."""
    rows = [{"id": "a", "memory": "tea"}, {"id": "b", "metadata": None}]
    assert [row.external_id for row in rows_of(rows) or []] == ["a", "b"]
    assert rows_of({"results": rows}) == rows_of(rows)


@pytest.mark.parametrize(
    "odd",
    [
        {"memory": "tea"},
        {"memory_id": "b", "memory": "tea"},
        {"id": 7},
        {"id": ""},
        {"id": "b", "metadata": '{"fact_id": "1"}'},
        {"id": "b", "metadata": []},
        "tea",
        None,
    ],
)
def test_one_row_that_cannot_be_read_spoils_the_answer(odd: object) -> None:
    """What has no id, or a label that nobody can read, could be the row that is asked about."""
    rows = [{"id": "a", "memory": "tea"}, odd]
    assert rows_of(rows) is None
    assert rows_of({"results": rows}) is None


@pytest.mark.parametrize(
    ("envelope", "asked", "is_last"),
    [
        ({"count": 3, "next": "https://…"}, 2, False),
        ({"count": 2, "next": None}, 2, True),
        ({"next": "https://…"}, 2, False),
        ({"next": None}, 2, True),
        ({"count": 3}, 2, False),
        ({"count": 2}, 2, True),
        ({"count": "2", "next": None}, 2, True),
    ],
)
def test_a_page_says_whether_it_is_the_last(envelope: dict[str, Any], asked: int, is_last: bool) -> None:
    """By the address of the next one or, without it, by the count of all."""
    page = page_of({**envelope, "results": [{"id": "a"}, {"id": "b"}]}, asked)
    assert page is not None
    assert page.is_last is is_last


@pytest.mark.parametrize("answer", [[], [{"id": "a"}], {"results": []}, {"results": [], "count": "0"}, None])
def test_a_page_that_does_not_say_whether_it_is_the_last_is_none(answer: object) -> None:
    """Rows without `next` and `count` may be the first hundred of many."""
    assert page_of(answer, 100) is None


# --- pages ---------------------------------------------------------------------------------


def row(n: int) -> Row:
    """Return a row that was made at second n."""
    at = NOON + timedelta(seconds=n)
    return Row(external_id=str(n), text=None, user_id="u", metadata={}, created_at=at)


class Shelf:
    """Rows in pages of two, newest first, to which something may happen after each page read."""

    def __init__(self, count: int, *then: Callable[[], None]) -> None:
        self.rows = [row(n) for n in range(count)]
        self.counts = True
        self.reads = 0
        self._then = list(then)

    async def read(self, number: int) -> Page:
        """Return a page, and let the next thing happen."""
        self.reads += 1
        shown = sorted(self.rows, key=lambda each: -int(each.external_id))
        page = Page(
            rows=shown[(number - 1) * 2 : number * 2],
            count=len(shown) if self.counts else None,
            is_last=number * 2 >= len(shown),
        )
        if self._then:
            self._then.pop(0)()
        return page

    def happen(self, *then: Callable[[], None]) -> None:
        """Let these things happen, one after each page."""
        self._then = list(then)


async def ids_of(read: Callable[[int], Awaitable[Page]]) -> list[int]:
    """Return what a listing yields."""
    return [int(each.external_id) async for each in each_once(read, 2, lambda: LookupError("unsettled"))]


async def test_one_page_is_read_once() -> None:
    """One answer is a snapshot: nothing is asked again."""
    shelf = Shelf(2)
    assert sorted(await ids_of(shelf.read)) == [0, 1]
    assert shelf.reads == 1


@pytest.mark.parametrize("counts", [True, False])
async def test_a_row_that_moved_up_is_seen_in_the_next_pass(counts: bool) -> None:
    """A deletion on a page that was read moves a row to it from the next: it is yielded all the same."""
    shelf = Shelf(8)
    shelf.counts = counts
    shelf.happen(lambda: shelf.rows.remove(row(7)))
    assert sorted(await ids_of(shelf.read)) == list(range(8))


async def test_a_deletion_and_an_insertion_hide_no_row() -> None:
    """A count that stays the same proves nothing: one row went and another came."""
    shelf = Shelf(8)

    def swap() -> None:
        shelf.rows.remove(row(6))
        shelf.rows.append(Row(external_id="-1", text=None, user_id="u", metadata={}, created_at=None))

    shelf.happen(swap)
    assert set(await ids_of(shelf.read)) >= set(range(8))


async def test_what_goes_on_arriving_does_not_keep_a_listing_from_its_end() -> None:
    """Rows younger than the pass before may be left out, so a busy store is listed in the end."""
    shelf = Shelf(8)
    ages = iter(range(8, 1_000))
    shelf.happen(*[lambda: shelf.rows.append(row(next(ages)))] * 500)
    found = await ids_of(shelf.read)
    assert set(found) >= set(range(8))
    assert len(set(found)) == len(found)
    assert shelf.reads < 100


async def test_a_count_that_is_never_reached_is_an_error() -> None:
    """A service that says there are more than it ever shows is not believed to have shown all."""
    shelf = Shelf(8)

    async def read(number: int) -> Page:
        page = await shelf.read(number)
        return Page(rows=page.rows, count=9, is_last=page.is_last)

    with pytest.raises(LookupError, match="unsettled"):
        await ids_of(read)
