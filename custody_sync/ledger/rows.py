"""The rows that the rules decide on: a fact and a placement as a storage keeps them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from custody_sync.model import PlacementState

FACT = (
    "fact_id, seq, root, supersedes, space, subject, predicate, provenance, valid_from, valid_to, "
    "actor, receipt_id, effect_seq, retract_seq, forget_seq, live, identity_gone, covered_from"
)
_FACT_COLUMNS = FACT.split(", ")
PLACEMENT = "store, external_id, fact_id, scope, stored_at, until, state, outcome, id"
_FLAGS = {0: False, 1: True}

Key = tuple[str, str]
"""(store, external id)."""
RecordKey = tuple[str, str, str]
"""(store, external id, fact id): an entry that was seen gone may turn up again as another fact's."""
MAX_PLACEMENTS = 1 << 16
"""No event names more, and every id stays a safe integer."""


@dataclass(slots=True, kw_only=True)
class FactRow:
    """One asserted fact as the rules see it; times are fixed-width UTC text.

    `effect_seq` is the event that made it believable (its assert, or its confirm), and `live` says
    that nothing takes its place: in effect, not retracted, not forgotten, the last of its chain.
    """

    fact_id: str
    seq: int
    root: str
    supersedes: str | None
    space: str
    subject: str
    predicate: str
    provenance: str
    valid_from: str
    valid_to: str | None
    actor: str = ""
    receipt_id: str | None = None
    effect_seq: int | None = None
    retract_seq: int | None = None
    forget_seq: int | None = None
    live: bool = False
    identity_gone: bool = False
    covered_from: str | None = None
    """When the next link of its chain begins, if it has one that is in effect and not retracted."""

    @property
    def end(self) -> str | None:
        """When it is believed no more, whether for its validity or for what takes its place."""
        if self.valid_to is None or self.covered_from is None:
            return self.valid_to or self.covered_from
        return min(self.valid_to, self.covered_from)


@dataclass(slots=True, kw_only=True)
class PlacementRow:
    """One placement, current or past."""

    store: str
    external_id: str
    fact_id: str
    scope: str | None
    stored_at: str | None
    until: str | None
    state: PlacementState
    outcome: str | None = None
    id: int = 0
    """Its place among all placements, by the event that put it on record: see `place_of`."""

    @property
    def key(self) -> Key:
        """Where it is."""
        return self.store, self.external_id

    @property
    def record(self) -> RecordKey:
        """Which fact's record it is, and where."""
        return self.store, self.external_id, self.fact_id


BLOCK_BITS = 10
"""A block is 1,024 places of the log in a row."""


def block_of(seq: int) -> int:
    """Return the block of the log that a place is in."""
    return seq >> BLOCK_BITS


def place_of(seq: int, nth: int) -> int:
    """Return the id of the nth placement of an event: the order of placements follows from the log alone."""
    return seq * MAX_PLACEMENTS + nth


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """All that a storage keeps beside the log on one fact id: a pure function of the log."""

    fact_id: str
    events: tuple[tuple[int, str, str], ...]
    """Seq, event id and time of its events, in order."""
    claim: tuple[str, int] | None
    """Its standing, and the event that claimed the id."""
    fact: FactRow | None
    learned: str | None
    """When the ledger took the fact in."""
    placements: tuple[PlacementRow, ...]
    """In the order they were made."""
    owed: tuple[tuple[str, str], ...]
    """The stores that lack it, sorted, and since when."""
    holds: tuple[tuple[str, int], ...]
    """The holds that stand and the events that set them, sorted."""


def fact_row(row: tuple[object, ...]) -> FactRow:
    """Return the fact of the columns `FACT`."""
    values: dict[str, Any] = dict(zip(_FACT_COLUMNS, row, strict=True))
    for flag in ("live", "identity_gone"):
        # What is neither 0 nor 1 was put there by somebody else, and has to differ from both.
        values[flag] = _FLAGS.get(values[flag], values[flag])
    return FactRow(**values)


def placement_row(row: tuple[Any, ...]) -> PlacementRow:
    """Return the placement of the columns `PLACEMENT`."""
    store, external_id, fact_id, scope, stored_at, until, state, outcome, place = row
    return PlacementRow(
        store=store,
        external_id=external_id,
        fact_id=fact_id,
        scope=scope,
        stored_at=stored_at,
        until=until,
        state=PlacementState(state),
        outcome=outcome,
        id=place,
    )
