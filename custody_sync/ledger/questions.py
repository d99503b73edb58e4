"""Questions that take a record of their own, and the records of answers that are neither fact nor event."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from custody_sync.model import Fact, Head, Placement, PlacementState, Standing


@dataclass(frozen=True, slots=True, kw_only=True)
class AsOf:
    """An as-of question in full; None in a filter means any."""

    space: str | None = None
    subject: str | None = None
    predicate: str | None = None
    valid_at: datetime | None = None
    tx_at: datetime | None = None
    include_claimed: bool = False
    limit: int = 100
    after: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What a ledger has on one fact, without its value."""

    seq: int
    fact_id: str
    space: str
    subject: str
    predicate: str
    learned_at: datetime
    superseded_at: datetime | None
    """When the ledger learned of the link that covers it; None while none does."""
    retracted: bool
    forgotten: bool
    identity_gone: bool
    holds: tuple[str, ...]
    """The holds that stand, sorted."""


@dataclass(frozen=True, slots=True)
class Unaccounted:
    """A listed entry that is not a current placement: what the ledger knows of its id and of itself."""

    external_id: str
    fact_id: str
    standing: Standing
    state: PlacementState | None
    owner: str | None
    """The fact the ledger has on record for this external id."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One entry of a store's listing beside what the ledger has on record for it."""

    external_id: str
    place: int | None
    """The place in the log of the placement that was found, as `Held` has it; None where there is none."""
    owner: str | None
    """The fact whose placement that is."""
    state: PlacementState | None
    standing: Standing
    """Who claimed the fact id that the entry was listed with."""
    current: bool
    """Whether it is a current placement of that fact, or of its owner where it was listed without one."""
    fact: Fact | None
    """The fact that it is a current placement of."""
    stored_at: datetime | None = field(default=None, compare=False)
    """When that placement was stored, where it is current."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A fact that does not begin yet, and a store that is owed it then."""

    fact_id: str
    store: str
    due_at: datetime


@dataclass(frozen=True, slots=True)
class Held:
    """A current placement and its place in the log, which is also the order of a page."""

    place: int
    placement: Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class Trail:
    """Two instants, and whether claims that nobody confirmed count; None is now."""

    valid_at: datetime | None = None
    tx_at: datetime | None = None
    include_claimed: bool = False
    adopted: tuple[tuple[str, ...], ...] = ()
    """Of each entry that is followed without a label, the ids of which adopting gives it one."""


NOW = Trail()
"""What is asked nearly always."""


class Instants(NamedTuple):
    """The two instants that a question was answered at."""

    head: Head
    valid_at: datetime

    @classmethod
    def of(cls, trail: Trail, head: Head, now: datetime) -> Instants:
        """Fill in what was not asked for: the later of the clock and the head."""
        return cls(head, trail.valid_at or (now if head.tx_time is None else max(now, head.tx_time)))
