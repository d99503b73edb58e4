"""Durations as ISO 8601 writes them, read strictly: a misread one would erase everything.

Years and months are counted on the calendar, never as 365 or 30 days.
"""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from custody_sync.errors import InvalidInput

MONTH = 2_629_800
"""Seconds of a mean month, only to tell how long is too long."""
LONGEST = 12_000 * MONTH
"""A thousand years. A longer one is a slip of the finger, and its sums would leave the calendar."""
EXPECTED = (
    "is no duration such as P90D, P1Y6M or PT12H: P, then whole positive numbers each with its unit, in the "
    "order Y M W D, then T before H M S; no more than a thousand years"
)
_FORM = re.compile(
    r"P(?=[1-9T])(?:([1-9]\d*)Y)?(?:([1-9]\d*)M)?(?:([1-9]\d*)W)?(?:([1-9]\d*)D)?"
    r"(?:T(?=[1-9])(?:([1-9]\d*)H)?(?:([1-9]\d*)M)?(?:([1-9]\d*)S)?)?",
    re.ASCII,
)
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Duration:
    """A length of time that depends on where it is counted from: calendar months, then a fixed rest."""

    text: str
    months: int
    rest: timedelta

    def before(self, instant: datetime) -> datetime:
        """Return the instant this long before another: months first, to the last day of a shorter one.

        Where the calendar ends first, its first instant: nothing is older than that.
        """
        years, month = divmod(instant.year * 12 + instant.month - 1 - self.months, 12)
        try:
            day = min(instant.day, calendar.monthrange(years, month + 1)[1])
            return instant.replace(year=years, month=month + 1, day=day) - self.rest
        except (ValueError, OverflowError):
            return datetime.min.replace(tzinfo=UTC)


def read_duration(text: object, field: str = "duration") -> Duration:
    """Return the duration that a text says, or refuse it by name.

    Raises:
        InvalidInput: it is none, is zero, negative or fractional, or is longer than a thousand years.
    """
    if not isinstance(text, str):
        raise InvalidInput(field=field, problem=f"must be a text such as P90D, not {type(text).__name__}")
    found = _FORM.fullmatch(text) if len(text) <= _SHOWN else None
    if found is not None:
        years, months, weeks, days, hours, minutes, seconds = (int(n or 0) for n in found.groups())
        months += 12 * years
        seconds += 60 * (minutes + 60 * (hours + 24 * (days + 7 * weeks)))
        if months * MONTH + seconds <= LONGEST:
            return Duration(text, months, timedelta(seconds=seconds))
    # A line that slipped under the wrong heading may be a URL with its password.
    said = "a URL" if "://" in text else repr(text[:_SHOWN])
    raise InvalidInput(field=field, problem=f"{said} {EXPECTED}")


__all__ = ["Duration", "read_duration"]
