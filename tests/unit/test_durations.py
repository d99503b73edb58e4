"""Durations: what is read, what is refused, and how they count back on a calendar."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody_sync.durations import read_duration
from custody_sync.errors import InvalidInput

NOW = datetime(2026, 3, 31, 12, 30, tzinfo=UTC)
REFUSED = [
    "", "P", "PT", "P0D", "PT0S", "-P1D", "+P1D", "P-1D", "P1.5D", "P1,5D", "p1d", "P1d", "P1DT", "P01D",
    "P1Y0M", "P1D1Y", "PT1M2H", "P1D2D", "P1W1W", "P1H", "PT1D", "P 1D", " P1D", "P1D ", "P1D\n", "1D", "D",
    "P1", "90", "P1D/P2D", "P\u0661D", "P1001Y", "P12001M", "P365251D", "P999999999999D",
    "P" + "9" * 50 + "D",
    "P1DT" + "1" * 5000 + "S", "P1000YT1S",
]  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_duration_is_refused_and_quoted(text: str) -> None:
    """Anything but whole positive numbers in order is refused in one sentence that names the text."""
    with pytest.raises(InvalidInput) as caught:
        read_duration(text, "windows.org")
    said = str(caught.value)
    assert said.startswith(f"windows.org: {text[:60]!r} is no duration such as P90D")
    assert said.count(". ") == 0
    assert len(said) < 400


@pytest.mark.parametrize("value", [None, 90, 1.5, True, timedelta(days=1), b"P1D", ["P1D"]])
def test_only_a_text_is_a_duration(value: object) -> None:
    """A bare number could be days or seconds, so it is refused."""
    with pytest.raises(InvalidInput, match="must be a text such as P90D"):
        read_duration(value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("P1D", NOW - timedelta(days=1)),
        ("P90D", NOW - timedelta(days=90)),
        ("P2W", NOW - timedelta(weeks=2)),
        ("PT36H", NOW - timedelta(hours=36)),
        ("PT1M", NOW - timedelta(minutes=1)),
        ("PT1S", NOW - timedelta(seconds=1)),
        ("P1M", datetime(2026, 2, 28, 12, 30, tzinfo=UTC)),
        ("P25M", datetime(2024, 2, 29, 12, 30, tzinfo=UTC)),
        ("P1Y", datetime(2025, 3, 31, 12, 30, tzinfo=UTC)),
        ("P4M", datetime(2025, 11, 30, 12, 30, tzinfo=UTC)),
        ("P1M1D", datetime(2026, 2, 27, 12, 30, tzinfo=UTC)),
        ("P1Y2M3W4DT5H6M7S", datetime(2025, 1, 6, 7, 23, 53, tzinfo=UTC)),
        ("P1000Y", datetime(1026, 3, 31, 12, 30, tzinfo=UTC)),
    ],
)
def test_a_duration_counts_back(text: str, expected: datetime) -> None:
    """Months and years go by the calendar, to the last day of a shorter month; the rest is exact."""
    assert read_duration(text).before(NOW) == expected


def test_before_the_calendar_nothing_is_old_enough() -> None:
    """Where the calendar ends, its first instant is the answer, not an error."""
    early = datetime(500, 1, 1, tzinfo=UTC)
    first = datetime.min.replace(tzinfo=UTC)
    assert read_duration("P1000Y").before(early) == first
    assert read_duration("P364000D").before(early) == first


def test_leap_day() -> None:
    """A year before 29 February is 28 February."""
    assert read_duration("P1Y").before(datetime(2024, 2, 29, tzinfo=UTC)) == datetime(2023, 2, 28, tzinfo=UTC)


@given(st.integers(1, 12_000), st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)))
def test_months_keep_day_and_time_where_they_can(months: int, naive: datetime) -> None:
    """The month is that many months earlier, the day the same or the last one, the time unchanged."""
    now = naive.replace(tzinfo=UTC)
    then = read_duration(f"P{months}M").before(now)
    assert (now.year - then.year) * 12 + now.month - then.month == months
    assert then.timetz() == now.timetz()
    assert then.day == now.day or (then.day < now.day and (then + timedelta(days=1)).day == 1)


@given(st.text(alphabet="PTYMWDHS0123456789.-+ ", max_size=12))
def test_whatever_is_read_lies_in_the_past(text: str) -> None:
    """No text is read as nothing, or as time to come."""
    try:
        duration = read_duration(text)
    except InvalidInput:
        return
    assert duration.before(NOW) < NOW
