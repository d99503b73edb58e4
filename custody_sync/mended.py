"""What an operator's longer work came to: counts of everything, and the first of what was left by name.

A store may hold ten million entries, so no list here grows with it, and nothing here says a text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

NAMED = 1000
"""More entries of one kind than these are only counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """One entry or fact that work left as it was, and why; of what is not known, the id is empty."""

    external_id: str = ""
    fact_id: str = ""
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One entry that became a fact, or would: where it lies, and which space and id it got."""

    external_id: str
    scope: str | None
    space: str
    fact_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptResult:
    """What adopting a store came to. In a dry run `adopted` and `labelled` are what would be done.

    `complete` is True when every entry without a label is a fact now, was left by the mapping's choice
    or belongs to somebody else, and every label is written that the store lets us write.
    """

    store: str
    scanned: int
    adopted: int
    """Entries that became facts."""
    adopted_before: int
    """Entries of facts that an earlier run, or one at the same time, made."""
    labelled: int
    """Labels written, those included that an earlier run did not come to."""
    ours: int
    """Entries with a label of this ledger: written by custody, or orphans for `repair`."""
    foreign: int
    """Entries with the label of another ledger."""
    skipped: int
    """Entries that the mapping left alone."""
    refused: Mapping[str, int] = field(default_factory=dict)
    """By reason, how many entries cannot become facts."""
    refusals: tuple[Left, ...] = ()
    unlabelled: Mapping[str, int] = field(default_factory=dict)
    """By reason, how many entries of adopted facts have no label although the store writes labels, or
    another text by now."""
    without_label: tuple[Left, ...] = ()
    no_labels: str = ""
    """Why this store writes no label beside an entry that is there; empty where it does."""
    elsewhere: int = 0
    """Entries that lie in another scope than the store would give new facts of their space."""
    unseen: int = 0
    """Adopted entries that were given, in a store that writes no labels and could not be asked whether it
    holds them: only the caller says that they are there."""
    spaces: Mapping[str, int] = field(default_factory=dict)
    """By space, how many facts; of more than a thousand spaces the rest under an empty name."""
    samples: tuple[Sample, ...] = ()
    more: bool = False
    """True when a limit ended it and there was more to do; running it again goes on."""
    stopped: str | None = None
    """Why it ended early; running it again goes on."""
    dry_run: bool = True
    complete: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillResult:
    """What filling a store with all that is believed came to. In a dry run `placed` is what would be."""

    store: str
    lacking: int
    """Facts that the store did not hold, as far as this run went."""
    placed: int
    placed_elsewhere: int = 0
    """Facts that another process placed, or ended, at the same time."""
    refused: Mapping[str, int] = field(default_factory=dict)
    """By reason, how many facts are still missing in the store."""
    refusals: tuple[Left, ...] = ()
    left: int = 0
    """Tries that may have left an entry which the ledger does not place: repair removes it."""
    leftovers: tuple[str, ...] = ()
    """Of which facts; the first of them."""
    more: bool = False
    """True when a limit ended it and there was more to do; running it again goes on."""
    stopped: str | None = None
    """Why it ended early; running it again goes on."""
    dry_run: bool = True
    complete: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmManyResult:
    """What confirming many claims came to. In a dry run `confirmed` is what would be."""

    claimed: int
    """Claims that waited, as far as this run went."""
    confirmed: int
    unfinished: int = 0
    """Confirmed facts that some store has still to take or give up: run repair."""
    refused: Mapping[str, int] = field(default_factory=dict)
    refusals: tuple[Left, ...] = ()
    stopped: str | None = None
    dry_run: bool = True
    complete: bool = True


class Drift(StrEnum):
    """One way in which a store differs from the ledger; the first five can be mended."""

    ORPHAN = "orphan"
    """An entry with our label that no event stands behind."""
    STRAY = "stray"
    """An entry of a known fact that is no current placement of it."""
    MISSING = "missing"
    """A current placement that the store does not hold."""
    ALTERED_TEXT = "altered_text"
    """A current placement whose text is another one than the ledger's."""
    ALTERED_LABEL = "altered_label"
    """A current placement whose label does not say what the ledger says."""
    UNDATED = "undated"
    """An orphan or stray that says it was stored in the future, so that nobody can tell its age."""
    YOUNG = "young"
    """An orphan or stray that may be a write under way."""
    OWED = "owed"
    """A believed fact that the store is owed, since it has begun or is believed again: for `repair`."""
    UNPLACED = "unplaced"
    """A believed fact that the store has no placement of: for `backfill`."""
    UNUSABLE = "unusable"
    """An entry with our label that cannot be handled, or that stands where another fact was placed."""
    FOREIGN = "foreign"
    """An entry with the label of another ledger; never touched."""
    UNLABELLED = "unlabelled"
    """An entry without a label; never touched unless the ledger adopted it."""

    @property
    def can_be_mended(self) -> bool:
        """True where `fix` may name it."""
        return self in MENDABLE


MENDABLE = (Drift.ORPHAN, Drift.STRAY, Drift.MISSING, Drift.ALTERED_TEXT, Drift.ALTERED_LABEL)


class Mended(StrEnum):
    """What became of one difference."""

    FOUND = "found"
    """It was seen and not to be mended."""
    MENDED = "mended"
    LEFT = "left"
    """It is not mended, or not all of it; the detail says why."""
    SETTLED = "settled"
    """There was nothing left to mend when its turn came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One entry, or one placement, in which a store differs from the ledger. It never says a text."""

    store: str
    kind: Drift
    external_id: str
    fact_id: str
    outcome: Mended = Mended.FOUND
    detail: str = ""
    """Of a label, which of its parts are others; of what was not mended, why."""
    external_ids: tuple[str, ...] = ()
    """What was put in its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileResult:
    """The whole difference between the ledger and the stores, and what of it was mended.

    `found` counts by store and kind, `outcomes` what became of those that were to be mended, by store
    and outcome. `complete` is True when nothing that was looked at differs any more.
    """

    before: datetime
    fix: tuple[Drift, ...] = ()
    scanned: Mapping[str, int] = field(default_factory=dict)
    expected: Mapping[str, int] = field(default_factory=dict)
    """By store, how many current placements it ought to hold."""
    found: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    outcomes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    differences: tuple[Difference, ...] = ()
    unnamed: int = 0
    """How many more there are that are only counted."""
    uncompared: Mapping[str, int] = field(default_factory=dict)
    """By store, entries whose text it does not show, so that nobody compared it."""
    unlisted: tuple[str, ...] = ()
    """Stores that cannot list, so that they were not looked at."""
    unanswered: tuple[str, ...] = ()
    """What could not be told, one sentence each."""
    notices: tuple[str, ...] = ()
    dry_run: bool = True
    complete: bool = True

    def count(self, *kinds: Drift) -> int:
        """Return how many differences of some kinds there are in all stores."""
        return sum(counts.get(kind.value, 0) for counts in self.found.values() for kind in kinds)
