"""What the rules need to see of a ledger to decide on a group of drafts, and what they changed.

A storage loads exactly the rows that `Needs` names, hands them over as a `State`, and writes
back what the rules marked as changed. The rules therefore never do I/O and are the same on
every storage.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from custody_sync.ledger.chain import Prepared, Section
from custody_sync.ledger.drafts import Assert, Confirm, Place, Remove, Repair, Retract
from custody_sync.model import Event, Placement, PlacementState, Standing

Key = tuple[str, str]
"""(store, external id)."""


@dataclass(slots=True, kw_only=True)
class FactRow:
    """One asserted fact as the rules see it; times are fixed-width UTC text.

    `effect_seq` is the event that made it believable (its assert, or its confirm), and `live`
    says that it belongs in the stores: in effect, not retracted, not forgotten, not covered.
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

    @property
    def key(self) -> Key:
        """Where it is."""
        return self.store, self.external_id


@dataclass(frozen=True, slots=True)
class Needs:
    """Which rows a group of drafts depends on, first round: what the drafts themselves name."""

    event_ids: tuple[str, ...]
    fact_ids: tuple[str, ...]
    chained: tuple[str, ...]
    """The facts among them whose chain of supersession matters."""
    keys: tuple[Key, ...]
    size: int

    @classmethod
    def of(cls, group: Sequence[Prepared]) -> Needs:
        """Collect what a group names."""
        events: list[str] = []
        facts: list[str] = []
        chained: list[str] = []
        keys: list[Key] = []
        for prepared in group:
            draft = prepared.draft
            events.append(draft.event_id)
            facts.append(draft.fact_id)
            if isinstance(draft, Assert) and draft.fact.supersedes is not None:
                facts.append(draft.fact.supersedes)
                chained.append(draft.fact.supersedes)
            elif isinstance(draft, Confirm | Retract):
                chained.append(draft.fact_id)
            if isinstance(draft, Assert | Confirm | Place):
                keys += [(p.store, p.external_id) for p in draft.placements]
            elif (
                isinstance(draft, Remove | Repair)
                and draft.store is not None
                and draft.external_id is not None
            ):
                keys.append((draft.store, draft.external_id))
        return cls(tuple(events), tuple(dict.fromkeys(facts)), tuple(chained), tuple(keys), len(group))


@dataclass(slots=True)
class State:
    """The rows a group depends on, and the changes the rules made to them."""

    events: dict[str, Event] = field(default_factory=dict)
    claims: dict[str, Standing] = field(default_factory=dict)
    facts: dict[str, FactRow] = field(default_factory=dict)
    chains: dict[str, list[FactRow]] = field(default_factory=dict)
    """By root: the links in effect and not retracted, in order of effect; at least the last few."""
    placements: dict[Key, PlacementRow] = field(default_factory=dict)
    held_by: dict[str, set[Key]] = field(default_factory=dict)
    """By fact id: where its placements are."""
    holds: dict[str, set[str]] = field(default_factory=dict)
    owed: dict[str, set[str]] = field(default_factory=dict)

    new_claims: dict[str, tuple[Standing, int]] = field(default_factory=dict)
    new_facts: dict[str, FactRow] = field(default_factory=dict)
    changed_facts: dict[str, FactRow] = field(default_factory=dict)
    changed_placements: dict[Key, PlacementRow] = field(default_factory=dict)
    owed_added: dict[Key, None] = field(default_factory=dict)
    owed_settled: dict[Key, None] = field(default_factory=dict)
    holds_added: dict[Key, int] = field(default_factory=dict)
    holds_released: dict[Key, None] = field(default_factory=dict)
    forgotten: dict[str, tuple[bool, int]] = field(default_factory=dict)
    """Facts whose content goes: whether their identity goes too, and the seq of the forget."""
    dereferenced: dict[str, None] = field(default_factory=dict)
    """Identity-forgotten facts with nothing left to remove: external ids and scopes go."""

    def add_fact(self, row: FactRow) -> None:
        """Take in a loaded fact."""
        self.facts[row.fact_id] = row

    def add_placement(self, row: PlacementRow) -> None:
        """Take in a loaded placement."""
        key = row.key
        self.placements[key] = row
        self.held_by.setdefault(row.fact_id, set()).add(key)

    def touch(self, row: FactRow) -> None:
        """Mark a fact as changed."""
        if row.fact_id not in self.new_facts:
            self.changed_facts[row.fact_id] = row

    def move(self, row: PlacementRow, state: PlacementState) -> None:
        """Change a placement's state."""
        row.state = state
        self.changed_placements[row.key] = row

    def new_placement(self, row: PlacementRow) -> None:
        """Record a placement that was not known, or was another fact's before it went."""
        key = row.key
        old = self.placements.get(key)
        if old is not None:
            self.held_by.get(old.fact_id, set()).discard(key)
        self.placements[key] = self.changed_placements[key] = row
        self.held_by.setdefault(row.fact_id, set()).add(key)

    def placements_of(self, fact_id: str) -> list[PlacementRow]:
        """Return a fact's placements in a stable order."""
        return [self.placements[key] for key in sorted(self.held_by.get(fact_id, ()))]

    def owe(self, fact_id: str, stores: Iterable[str]) -> None:
        """A fact is believed again and these stores lack it."""
        for store in stores:
            self.owed.setdefault(fact_id, set()).add(store)
            self.owed_added[(fact_id, store)] = None
            self.owed_settled.pop((fact_id, store), None)

    def settle(self, fact_id: str, stores: Iterable[str]) -> None:
        """These stores are no longer owed the fact."""
        for store in list(stores):
            self.owed.get(fact_id, set()).discard(store)
            self.owed_settled[(fact_id, store)] = None
            self.owed_added.pop((fact_id, store), None)


class Appended(NamedTuple):
    """One admitted event in stored form."""

    seq: int
    event_id: str
    fact_id: str
    tx_time: str
    body: str
    hash: str
    sections: dict[str, Section]


def placement_row(placement: Placement, until: str | None, stored_at: str | None) -> PlacementRow:
    """Return a held placement in stored form."""
    return PlacementRow(
        store=placement.store,
        external_id=placement.external_id,
        fact_id=placement.fact_id,
        scope=placement.scope,
        stored_at=stored_at,
        until=until,
        state=PlacementState.HELD,
    )


class Position(NamedTuple):
    """Where the log ends before a group: the rules append after it."""

    seq: int
    tx_time: datetime | None
    hash: str
