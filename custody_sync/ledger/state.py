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

from custody_sync.ledger.chain import Prepared, new_event
from custody_sync.ledger.drafts import Assert, Confirm, Place, Remove, Repair, Retract
from custody_sync.ledger.rows import FactRow, Key, PlacementRow, RecordKey, block_of
from custody_sync.model import Event, PlacementState, Standing

# A union of types written where it is asked for would be made anew each time.
_CHAINED = (Confirm, Retract)
_PLACING = (Assert, Confirm, Place)
_OF_AN_ENTRY = (Remove, Repair)


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
            elif isinstance(draft, _CHAINED):
                chained.append(draft.fact_id)
            if isinstance(draft, _PLACING):
                keys += [(p.store, p.external_id) for p in draft.placements]
            elif (
                isinstance(draft, _OF_AN_ENTRY) and draft.store is not None and draft.external_id is not None
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
    """By root: the links in effect and not retracted, in order of effect; at least the last few, and those
    around each one that the group may retract."""
    placements: dict[RecordKey, PlacementRow] = field(default_factory=dict)
    held_by: dict[str, list[PlacementRow]] = field(default_factory=dict)
    """By fact id: its placements."""
    found_at: dict[Key, list[PlacementRow]] = field(default_factory=dict)
    """By entry: its placements, of which one at most is not gone."""
    holds: dict[str, set[str]] = field(default_factory=dict)
    owed: dict[str, set[str]] = field(default_factory=dict)

    new_claims: dict[str, tuple[Standing, int]] = field(default_factory=dict)
    new_facts: dict[str, FactRow] = field(default_factory=dict)
    changed_facts: dict[str, FactRow] = field(default_factory=dict)
    changed_placements: dict[RecordKey, PlacementRow] = field(default_factory=dict)
    dropped_placements: dict[RecordKey, None] = field(default_factory=dict)
    """Go before any that changed is written: an entry may have been put on record again since."""
    touched: dict[int, int] = field(default_factory=dict)
    """By block: the last event that changed one of its facts."""
    owed_added: dict[Key, str] = field(default_factory=dict)
    """By fact id and store: when it is due."""
    owed_settled: dict[Key, None] = field(default_factory=dict)
    holds_added: dict[Key, int] = field(default_factory=dict)
    holds_released: dict[Key, None] = field(default_factory=dict)
    forgotten: dict[str, tuple[bool, int]] = field(default_factory=dict)
    """Facts whose content goes: whether their identity goes too, and the seq of the forget."""
    dereferenced: dict[str, int] = field(default_factory=dict)
    """Identity-forgotten facts with nothing left to remove: of events up to a seq, ids and scopes go."""

    def add_fact(self, row: FactRow) -> None:
        """Take in a loaded fact."""
        self.facts[row.fact_id] = row

    def add_placement(self, row: PlacementRow) -> None:
        """Take in a loaded placement, once."""
        record = row.record
        if record not in self.placements:
            self._put(row, record)

    def touch(self, row: FactRow, seq: int) -> None:
        """Mark a fact as changed by an event: whether it is believed may be another thing since then."""
        self.touched[block_of(row.seq)] = seq
        self.change(row)

    def change(self, row: FactRow) -> None:
        """Mark a fact as changed in what no answer about the past depends on."""
        if row.fact_id not in self.new_facts:
            self.changed_facts[row.fact_id] = row

    def move(self, row: PlacementRow, state: PlacementState) -> None:
        """Change a placement's state."""
        row.state = state
        self.changed_placements[row.record] = row

    def limit(self, row: PlacementRow, until: str | None) -> None:
        """Change until when a placement is current."""
        row.until = until
        self.changed_placements[row.record] = row

    def new_placement(self, row: PlacementRow) -> None:
        """Record a placement unless it is known: a store may have named one entry twice."""
        record = row.record
        if record not in self.placements:
            self._put(row, record)
            self.changed_placements[record] = row

    def _put(self, row: PlacementRow, record: RecordKey) -> None:
        self.placements[record] = row
        self.held_by.setdefault(row.fact_id, []).append(row)
        self.found_at.setdefault(row.key, []).append(row)

    def drop_placement(self, row: PlacementRow) -> None:
        """Let go of a placement for which another one stands."""
        record = row.record
        del self.placements[record]
        self.held_by[row.fact_id].remove(row)
        self.found_at[row.key].remove(row)
        self.changed_placements.pop(record, None)
        self.dropped_placements[record] = None

    def placements_of(self, fact_id: str) -> list[PlacementRow]:
        """Return a fact's placements in the order in which they were put on record."""
        return sorted(self.held_by.get(fact_id, ()), key=lambda row: row.id)

    def owe(self, row: FactRow, stores: Iterable[str]) -> None:
        """These stores lack a fact that is believed, or will be once it begins."""
        for store in stores:
            self.owed.setdefault(row.fact_id, set()).add(store)
            self.owed_added[(row.fact_id, store)] = row.valid_from
            self.owed_settled.pop((row.fact_id, store), None)

    def settle(self, fact_id: str, stores: Iterable[str]) -> None:
        """These stores are no longer owed the fact."""
        for store in list(stores):
            self.owed.get(fact_id, set()).discard(store)
            self.owed_settled[(fact_id, store)] = None
            self.owed_added.pop((fact_id, store), None)


class Appended(NamedTuple):
    """One admitted draft and its place in the chain."""

    prepared: Prepared
    seq: int
    tx: datetime
    tx_time: str
    prev: str
    body: str
    hash: str

    def event(self) -> Event:
        """Return the event it became."""
        prepared, draft = self.prepared, self.prepared.draft
        return new_event(
            self.seq,
            draft.event_id,
            prepared.kind,
            self.tx,
            draft.actor,
            draft.receipt_id,
            draft.fact_id,
            prepared.data,
            {name: section.fields for name, section in prepared.sections.items()},
            self.prev,
            self.hash,
        )


class Position(NamedTuple):
    """Where the log ends before a group: the rules append after it."""

    seq: int
    tx_time: datetime | None
    hash: str
