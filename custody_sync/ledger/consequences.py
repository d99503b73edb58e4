"""What follows from an event: who is believed then, what stores owe and are owed, and what is erased.

The rules say whether an event may be appended; here is what it does. Neither does I/O.
"""

from __future__ import annotations

from datetime import datetime

from custody_sync.ledger.rows import FactRow, PlacementRow, place_of
from custody_sync.ledger.state import Appended, Position, State
from custody_sync.model import ERASED_ID, Outcome, PlacementState, format_instant


class Consequences:
    """The state of a group of drafts, and what each of them makes of it.

    Args:
        state: the rows the drafts depend on; changes are collected in it.
        position: the committed head.
        now: the ledger's clock, read inside the transaction.
    """

    def __init__(self, state: State, position: Position, now: datetime) -> None:
        self.state = state
        self.position = position
        self.now = now
        self.tx = now
        """The time of the event being decided on: what follows from it depends on the log alone."""
        self.appended: list[Appended] = []
        self._admitted: dict[str, Appended] = {}
        self._erased: dict[int, set[str]] = {}
        """By event: which of its sections this group erases."""

    def _take_effect(self, row: FactRow, seq: int, kept: tuple[str, ...]) -> None:
        chain = self.state.chains.setdefault(row.root, [])
        if chain:
            covered = chain[-1]
            covered.live = False
            self.state.touch(covered, seq)
            self._end_placements(covered, kept)
            self.state.settle(covered.fact_id, self.state.owed.get(covered.fact_id, ()))
        row.effect_seq = seq
        row.live = True
        self.state.touch(row, seq)
        chain.append(row)

    def _restore(self, row: FactRow, seq: int) -> None:
        """The last link was retracted: this one is believed again and owed to the stores that let it go."""
        if row.forget_seq is not None:
            return
        row.live = True
        self.state.touch(row, seq)
        holding: set[str] = set()
        stores: set[str] = set()
        for placement in self.state.placements_of(row.fact_id):
            stores.add(placement.store)
            if placement.state is PlacementState.KEPT:
                self.state.move(placement, PlacementState.HELD)
            if placement.state is PlacementState.HELD:
                holding.add(placement.store)
        if not self._ended(row.valid_to):
            self.state.owe(row.fact_id, sorted(stores - holding))

    def _end_placements(self, row: FactRow, kept: tuple[str, ...]) -> None:
        for placement in self.state.placements_of(row.fact_id):
            if placement.state is PlacementState.HELD and placement.store in kept:
                self.state.move(placement, PlacementState.KEPT)
            elif placement.state in (PlacementState.HELD, PlacementState.KEPT):
                self.state.move(placement, PlacementState.DUE)

    def _hold_placements(self, placements: tuple[PlacementRow, ...], row: FactRow, seq: int) -> None:
        for nth, placement in enumerate(placements):
            placement.id = place_of(seq, nth)
            placement.until = row.valid_to
            self.state.new_placement(placement)

    def _ended(self, valid_to: str | None) -> bool:
        return valid_to is not None and valid_to <= format_instant(self.tx)

    def _erase(self, fact_id: str, section: str, before: int) -> None:
        """Nothing may tell later drafts of the group what this one erases, as nothing tells later groups."""
        events = [(event.fact_id, event.seq) for event in self.state.events.values()]
        events += [(event.prepared.draft.fact_id, event.seq) for event in self._admitted.values()]
        for named, seq in events:
            if named == fact_id and seq < before:
                self._erased.setdefault(seq, set()).add(section)

    def _dereference_if_gone(self, row: FactRow, seq: int) -> None:
        """Where an identity is erased and all its entries are gone, one placement a store stands for them."""
        left = self.state.placements_of(row.fact_id)
        if not row.identity_gone or any(p.state is not PlacementState.GONE for p in left):
            return
        self.state.dereferenced[row.fact_id] = seq
        self._erase(row.fact_id, "refs", seq + 1)
        first: dict[str, int] = {}
        for placement in left:
            first.setdefault(placement.store, placement.id)
            self.state.drop_placement(placement)
        for store, place in first.items():
            self.state.new_placement(stand_in(row, store, place))


def stand_in(fact: FactRow, store: str, place: int) -> PlacementRow:
    """Return what stands for all entries a store held of a fact once an erasure took their ids."""
    return PlacementRow(
        store=store,
        external_id=f"{ERASED_ID}{fact.seq}",
        fact_id=fact.fact_id,
        scope=None,
        stored_at=None,
        until=fact.valid_to,
        state=PlacementState.GONE,
        outcome=Outcome.VERIFIED,
        id=place,
    )
