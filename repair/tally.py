"""Counting what could not be done, by reason, and naming the first of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from custody_sync.errors import CustodyError, InvalidInput, TextTooLong, ValidatorFailed
from custody_sync.mended import NAMED, Left

REASONS = 100
"""A mapping may make up as many reasons as there are entries; past these they count as one."""
MORE = "more reasons than are told apart"


@dataclass(slots=True)
class Tally:
    """What was left, and why."""

    reasons: Counter[str] = field(default_factory=Counter)
    named: list[Left] = field(default_factory=list)

    def add(self, reason: str, *, external_id: str = "", fact_id: str = "") -> None:
        """Count one, and name it as long as the list is short."""
        known = reason in self.reasons or len(self.reasons) < REASONS
        self.reasons[reason if known else MORE] += 1
        if len(self.named) < NAMED:
            self.named.append(Left(external_id=external_id, fact_id=fact_id, detail=reason))

    @property
    def count(self) -> int:
        """How many were left."""
        return self.reasons.total()


def reason_of(error: CustodyError) -> str:
    """Say why something was refused; a validator's own words may quote the text, so its code has to do."""
    if isinstance(error, TextTooLong):
        return f"its text is longer than the {error.limit} {error.unit} that store {error.store!r} takes"
    if isinstance(error, ValidatorFailed):
        return f"validator {error.fields.get('validator')}: {error.fields.get('problem')}"
    if isinstance(error, InvalidInput):
        return f"its {error.fields.get('field')} is refused ({error.code})"
    return error.code


__all__ = ["Tally", "reason_of"]
