"""What a reconciliation collects on its way, and the result that becomes of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from custody_sync.mended import Difference, Drift, Mended, ReconcileResult
from custody_sync.repair.differing import Comparison
from custody_sync.results import LastReconcile

NAMED = 10_000
"""More differences than these are only counted."""
SENTENCES = 100
"""More sentences on what could not be told than these are only counted."""
LEFT_ALONE = (Drift.FOREIGN, Drift.UNLABELLED, Drift.YOUNG)
"""What is no reason for a comparison not to be complete."""


@dataclass(slots=True)
class Account:
    """What a reconciliation collects on its way."""

    comparisons: dict[str, Comparison] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)
    unnamed: int = 0
    outcomes: dict[str, Counter[str]] = field(default_factory=dict)
    unlisted: list[str] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)
    unanswered_more: int = 0
    notices: tuple[str, ...] = ()

    def name(self, differences: Sequence[Difference]) -> None:
        """Take differences up by name, as far as there is room."""
        room = max(NAMED - len(self.differences), 0)
        self.differences += differences[:room]
        self.unnamed += max(len(differences) - room, 0)

    def mended(self, differences: Sequence[Difference]) -> None:
        """Take up what became of differences that were to be mended."""
        self.name(differences)
        for one in differences:
            self.outcomes.setdefault(one.store, Counter())[one.outcome.value] += 1

    def say(self, sentence: str) -> None:
        """Take up what could not be told."""
        if len(self.unanswered) < SENTENCES:
            self.unanswered.append(sentence)
        else:
            self.unanswered_more += 1

    def result(self, cutoff: datetime, fix: frozenset[Drift]) -> ReconcileResult:
        """Return what became of it all; complete only if nothing that was looked at differs any more."""
        unanswered = list(self.unanswered)
        if self.unanswered_more:
            unanswered.append(f"{self.unanswered_more} more cannot be told")
        open_kinds = [kind for kind in Drift if kind not in LEFT_ALONE and kind not in fix]
        differs = any(c.found[kind] for c in self.comparisons.values() for kind in open_kinds)
        left = any(counts[Mended.LEFT.value] for counts in self.outcomes.values())
        return ReconcileResult(
            before=cutoff,
            fix=tuple(kind for kind in Drift if kind in fix),
            scanned={name: c.listing.scanned for name, c in self.comparisons.items()},
            expected={name: c.expected for name, c in self.comparisons.items()},
            found={name: _counts(c.found) for name, c in self.comparisons.items()},
            outcomes={name: dict(counts) for name, counts in self.outcomes.items()},
            differences=tuple(self.differences),
            unnamed=self.unnamed,
            uncompared={name: c.uncompared for name, c in self.comparisons.items() if c.uncompared},
            unlisted=tuple(self.unlisted),
            unanswered=tuple(unanswered),
            notices=self.notices,
            dry_run=not fix,
            complete=not (differs or left or unanswered),
        )

    def last(self, now: datetime, result: ReconcileResult) -> LastReconcile:
        """Return what whoever asks how things stand is told of it."""
        altered = (Drift.ALTERED_TEXT, Drift.ALTERED_LABEL)
        return LastReconcile(
            finished_at=now,
            complete=result.complete,
            missing={name: c.found[Drift.MISSING] for name, c in self.comparisons.items()},
            altered={name: sum(c.found[kind] for kind in altered) for name, c in self.comparisons.items()},
        )


def _counts(found: Counter[Drift]) -> dict[str, int]:
    return {kind.value: found[kind] for kind in Drift if found[kind]}


__all__ = ["Account"]
