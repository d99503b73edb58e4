"""The rows behind the rules in dictionaries: what a group needs is copied out, what it marked is copied back.

It does what a storage does and no more, so that what the rules forget to ask for or to mark is missed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from custody_sync.ledger.chain import GENESIS, Prepared
from custody_sync.ledger.rows import FactRow, Key, PlacementRow, RecordKey
from custody_sync.ledger.rules import Group
from custody_sync.ledger.state import Needs, Position, State
from custody_sync.model import Event, Standing

CHANGING = (
    "effect_seq", "retract_seq", "forget_seq", "live", "identity_gone", "space", "subject", "predicate",
    "covered_from",
)  # fmt: skip
"""What a storage writes of a fact that was changed."""


@dataclass
class Tables:
    """A ledger's rows, and nothing of what a group of drafts thought about them."""

    end: Position = field(default_factory=lambda: Position(0, None, GENESIS))
    events: list[Event] = field(default_factory=list)
    claims: dict[str, Standing] = field(default_factory=dict)
    facts: dict[str, FactRow] = field(default_factory=dict)
    placements: dict[RecordKey, PlacementRow] = field(default_factory=dict)
    holds: dict[Key, int] = field(default_factory=dict)
    owed: dict[Key, str] = field(default_factory=dict)
    blocks: dict[int, int] = field(default_factory=dict)
    gone: dict[int, set[str]] = field(default_factory=dict)
    """By event: the sections that were erased."""

    def begin(self, drafts: Sequence[Prepared], now: datetime) -> Group:
        """Begin a group with the rows that its drafts depend on."""
        needs, state = Needs.of(drafts), State()
        state.events = {e.event_id: self.read(e) for e in self.events if e.event_id in needs.event_ids}
        state.claims = {f: self.claims[f] for f in needs.fact_ids if f in self.claims}
        for fact_id in needs.fact_ids:
            self._load_fact(state, fact_id)
        self._load_chains(state, needs)
        for row in self.placements.values():
            if row.fact_id in state.facts or row.key in needs.keys:
                state.add_placement(replace(row))
        for fact_id, store in self.owed:
            if fact_id in state.facts:
                state.owed.setdefault(fact_id, set()).add(store)
        for fact_id, hold_id in self.holds:
            if fact_id in state.facts:
                state.holds.setdefault(fact_id, set()).add(hold_id)
        return Group(state, self.end, now)

    def read(self, event: Event) -> Event:
        """Return an event with what is left of it."""
        gone = self.gone.get(event.seq, set()) & set(event.sealed)
        left = {name: fields for name, fields in event.sealed.items() if name not in gone}
        return replace(event, sealed=left, erased=tuple(sorted(gone)))

    def _load_fact(self, state: State, fact_id: str | None) -> None:
        if fact_id in self.facts and fact_id not in state.facts:
            state.add_fact(replace(self.facts[fact_id]))

    def _load_chains(self, state: State, needs: Needs) -> None:
        chained = [state.facts[fact_id] for fact_id in needs.chained if fact_id in state.facts]
        for row in chained:
            self._load_fact(state, row.supersedes)
        for root in {row.root for row in chained}:
            links = [row for row in self.facts.values() if row.root == root and row.retract_seq is None]
            links = sorted((row for row in links if row.effect_seq), key=lambda row: row.effect_seq or 0)
            around = [links.index(self.facts[r.fact_id]) for r in chained if self.facts[r.fact_id] in links]
            near = needs.size + 1
            wanted = {n for at in around for n in range(at - near + 1, at + near + 1)}
            wanted |= set(range(len(links) - near, len(links)))
            for nth, link in enumerate(links):
                if nth in wanted:
                    self._load_fact(state, link.fact_id)
                    state.chains.setdefault(root, []).append(state.facts[link.fact_id])

    def finish(self, group: Group) -> list[Event]:
        """Write back what a group appended, and of everything else only what it marked."""
        state = group.state
        self.end = group.position
        self.events += [appended.event() for appended in group.appended]
        self.claims |= {fact_id: standing for fact_id, (standing, _) in state.new_claims.items()}
        assert self.facts.keys().isdisjoint(state.new_facts), "a fact is new but once"
        self.facts |= {fact_id: replace(row) for fact_id, row in state.new_facts.items()}
        for fact_id, row in state.changed_facts.items():
            changed = {name: getattr(row, name) for name in CHANGING}
            self.facts[fact_id] = replace(self.facts[fact_id], **changed)
        self._write_placements(state)
        for key in state.owed_settled:
            self.owed.pop(key, None)
        for key, since in state.owed_added.items():
            self.owed.setdefault(key, since)
        for key in state.holds_released:
            self.holds.pop(key, None)
        assert self.holds.keys().isdisjoint(state.holds_added), "a hold is added but once"
        self.holds |= state.holds_added
        self.blocks |= state.touched
        self._erase(state)
        return [self.read(event) for event in self.events[len(self.events) - len(group.appended) :]]

    def _write_placements(self, state: State) -> None:
        for record in state.dropped_placements:
            self.placements.pop(record, None)
        for record, row in state.changed_placements.items():
            known = self.placements.get(record)
            changed = {"state": row.state, "outcome": row.outcome, "id": row.id, "until": row.until}
            self.placements[record] = replace(row) if known is None else replace(known, **changed)

    def _erase(self, state: State) -> None:
        for event in self.events:
            gone = self.gone.setdefault(event.seq, set())
            if event.fact_id in state.forgotten:
                identity, before = state.forgotten[event.fact_id]
                gone |= {"content"} | ({"identity"} if identity and event.seq < before else set())
            if event.seq <= state.dereferenced.get(event.fact_id, 0):
                gone |= {"refs"}
