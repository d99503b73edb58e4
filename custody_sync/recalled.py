"""What a recall answers: facts the ledger stands behind now, and what became of everything else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from custody_sync.model import Entry, Fact, Head, Json, Provenance


class Belief(StrEnum):
    """Where a fact stands at two instants."""

    BELIEVED = "believed"
    SUPERSEDED = "superseded"
    """A later link of its chain has taken effect."""
    CLAIMED = "claimed"
    """Nobody has confirmed it."""
    RETRACTED = "retracted"
    FORGOTTEN = "forgotten"
    ENDED = "ended"
    """Its validity was over."""
    LATER = "later"
    """It had not begun, or the ledger had not heard of it yet."""
    REPAIRED = "repaired"
    """A sweep claimed its id: the ledger never asserted it."""
    UNKNOWN = "unknown"
    """The ledger never heard of it."""


@dataclass(frozen=True, slots=True)
class Followed:
    """Where one entry that a store served leads.

    `belief` is of the fact that the entry belongs to, `fact` is the link of its chain that was believed,
    None where none was. An entry without a label belongs to the fact that adopted it; `owner` names it.
    """

    belief: Belief
    owner: str | None
    fact: Fact | None


@dataclass(frozen=True, slots=True)
class Link:
    """One fact of a chain of supersession, and where it stood."""

    fact: Fact
    belief: Belief


class Dropped(StrEnum):
    """Why an entry that the store served is not in the answer."""

    ORPHAN = "orphan"
    """Its label names a fact that the ledger never asserted, or that a sweep took back."""
    RETRACTED = "retracted"
    FORGOTTEN = "forgotten"
    CLAIMED = "claimed"
    ENDED = "ended"
    LATER = "later"
    SUPERSEDED = "superseded"
    """Superseded, and nothing of its chain was believed."""
    OTHER_SPACE = "other_space"
    """The ledger has it in a space that was not asked for, whatever its label says."""
    OTHER_LEDGER = "other_ledger"
    UNLABELLED = "unlabelled"
    UNREADABLE = "unreadable"
    """The store showed something that is no entry."""
    REPEATED = "repeated"
    """It leads to a fact that another entry led to before."""
    FILTERED = "filtered"
    """It leads to a fact that the caller's own filter leaves out."""
    BUDGET = "budget"
    """It leads to a fact that there was no room for."""


class RecallStatus(StrEnum):
    """How far an answer can be relied on to be all there is."""

    FULL = "full"
    """As many facts as were asked for; not that no other fact is nearer to the query, since who is nearest
    is the store's to say, of the entries in which it looked."""
    EXHAUSTED = "exhausted"
    """Fewer, and there are no more: everything believed in these spaces is in the answer, or was filtered."""
    SHORT = "short"
    """Fewer, though the ledger has more: the store served no more of them for this query, or did not answer
    when it was asked for more."""
    TIMED_OUT = "timed_out"
    """The time was over; what was known by then is in the answer. It may lack facts, and histories."""
    BUDGET_SPENT = "budget_spent"
    """The characters were spent before `k` facts were reached."""
    BUDGET_TOO_SMALL = "budget_too_small"
    """A correction did not fit; it is kept whole or not at all, and nothing stale takes its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How much an answer may be; None is no limit.

    The best facts come first, and none that is worse takes the place of one that does not fit.
    """

    characters: int | None = None
    """Of the texts of all facts together; values and histories are not counted."""
    per_fact: int | None = None
    """To which each text is cut, at least 2, the mark included; a fact that corrects another is never cut."""
    seconds: float | None = None
    """For the store's answers and the ledger's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled:
    """One fact of an answer; everything but `store`, `external_id` and `score` is from the ledger."""

    fact: Fact
    text: str
    """The fact's text, cut where a budget says so."""
    store: str
    external_id: str
    """The entry whose hit led here; it may be one of a fact that this one superseded."""
    score: float | None
    cut: bool = False
    history: tuple[Link, ...] = ()
    """With `with_history`: the chain, oldest first, this fact included; each link says where it stands.

    Claims that nobody ever confirmed are only in it with `include_claimed`."""

    @property
    def fact_id(self) -> str:
        """The fact's id."""
        return self.fact.fact_id

    @property
    def value(self) -> Json:
        """The fact's value; the whole of it, whatever a budget left of the text."""
        return self.fact.value

    @property
    def space(self) -> str:
        """Who or what it belongs to."""
        return self.fact.space

    @property
    def actor(self) -> str:
        """Who stated it."""
        return self.fact.actor

    @property
    def provenance(self) -> Provenance:
        """How far it may be believed."""
        return self.fact.provenance

    @property
    def valid_from(self) -> datetime:
        """Since when it is true."""
        return self.fact.valid_from

    @property
    def valid_to(self) -> datetime | None:
        """Until when, exclusive."""
        return self.fact.valid_to

    @property
    def tx_time(self) -> datetime | None:
        """Since when the ledger has it."""
        return self.fact.tx_time

    @property
    def receipt_id(self) -> str | None:
        """The writer's reference to where it came from."""
        return self.fact.receipt_id


class _Recalled:
    """One while it is filled in: a frozen one takes three times as long to make."""

    __slots__ = Recalled.__slots__


class _Followed:
    """One while it is filled in, as every recall makes a dozen of them as well."""

    __slots__ = Followed.__slots__


def followed_to(belief: Belief, owner: str | None, fact: Fact | None) -> Followed:
    """Return where an entry leads."""
    made: Any = _Followed()
    made.belief = belief
    made.owner = owner
    made.fact = fact
    made.__class__ = Followed
    followed: Followed = made
    return followed


def recalled_of(
    fact: Fact, text: str, store: str, external_id: str, score: float | None, cut: bool
) -> Recalled:
    """Return what is served of a fact, without a history."""
    made: Any = _Recalled()
    made.fact = fact
    made.text = text
    made.store = store
    made.external_id = external_id
    made.score = score
    made.cut = cut
    made.history = ()
    made.__class__ = Recalled
    recalled: Recalled = made
    return recalled


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallResult:
    """The facts that a store's search led to, best first, as the ledger believed them at two instants.

    The same ledger, store, query and instants give the same result.
    """

    hits: tuple[Recalled, ...]
    status: RecallStatus
    store: str
    seen: int
    """How many entries the store served, each counted once however often it was asked."""
    valid_at: datetime
    head: Head | None
    """Up to which event the ledger was read; None where time was over before anything of it was."""
    dropped: Mapping[Dropped, int] = field(default_factory=dict)
    """What it served and is left out, by reason; what is not in here has count 0."""
    unlabelled: tuple[Entry, ...] = ()
    """With `unlabelled="show"`: what the store served that nobody stands behind."""
    notes: tuple[str, ...] = ()
    """What to do about it, in sentences."""

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The facts alone."""
        return tuple(hit.fact for hit in self.hits)

    @property
    def complete(self) -> bool:
        """True for `full` and `exhausted`: as many facts as were asked for, or no more that are believed."""
        return self.status in (RecallStatus.FULL, RecallStatus.EXHAUSTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """What the ledger has on one property of one subject in one space: the chain and what holds of it."""

    space: str
    subject: str
    predicate: str
    current: tuple[Fact, ...]
    """What is believed; more than one where facts were not written as corrections of each other."""
    original: Fact | None
    """The first that was stated."""
    chain: tuple[Link, ...]
    """Everything stated of it, oldest first, with receipts."""
    valid_at: datetime
    head: Head


__all__ = [
    "Belief",
    "Budget",
    "Card",
    "Dropped",
    "Followed",
    "Link",
    "RecallResult",
    "RecallStatus",
    "Recalled",
]
