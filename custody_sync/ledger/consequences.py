"""What follows from an event: who is believed then, what stores owe and are owed, and what is erased.

The rules say whether an event may be appended; here is what it does. Neither does I/O.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from custody_sync.ledger.rows import FactRow, PlacementRow, place_of
from custody_sync.ledger.state import Appended, Position, State
from custody_sync.model import ERASED_ID, MAX_SKEW, Outcome, PlacementState, format_instant

AHEAD = 2 * MAX_SKEW
"""What begins no later than this from now was placed at once: whoever wrote it took it to begin by a clock
that may differ from its host's and from the ledger's."""
NO_TIME = timedelta(0)


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

    def _take_effect(self, row: FactRow, seq: int, kept: tuple[str, ...], owes: tuple[str, ...]) -> None:
        chain = self.state.chains.setdefault(row.root, [])
        if chain:
            self._cover(chain[-1], row, seq, kept, later=self._begins_later(row, owes))
        row.effect_seq = seq
        row.live = True
        self.state.touch(row, seq)
        self.state.owe(row, owes)
        chain.append(row)

    def _begins_later(self, row: FactRow, owes: tuple[str, ...]) -> bool:
        return row.valid_from > format_instant(self.tx + (NO_TIME if owes else AHEAD))

    def _cover(self, row: FactRow, by: FactRow, seq: int, kept: tuple[str, ...], *, later: bool) -> None:
        """A link takes effect behind this one, which leaves the stores now or when that one begins."""
        row.live = False
        self.state.touch(row, seq)
        if later:
            self._cover_from(row, by.valid_from, kept)
            return
        row.covered_from = by.valid_from
        self._end_placements(row, kept)
        # What it was never placed in it is owed again if it comes back: nothing else would tell of it.
        seen = {placement.store for placement in self.state.placements_of(row.fact_id)}
        self.state.settle(row.fact_id, seen & self.state.owed.get(row.fact_id, set()))

    def _cover_from(self, row: FactRow, instant: str | None, kept: tuple[str, ...] = ()) -> None:
        """Entries are current until their fact's end, but for those that a store keeps beyond it."""
        before, row.covered_from = row.end, instant
        for placement in self.state.placements_of(row.fact_id):
            is_kept = placement.store in kept or placement.until != before
            if placement.state is PlacementState.HELD and not is_kept:
                self.state.limit(placement, row.end)

    def _uncover(self, row: FactRow, by: FactRow | None, seq: int) -> None:
        """The next link was retracted, and the one behind it, if any, takes its place.

        Until that begins this one is believed again, and owed to the stores that let it go.
        """
        if by is None and row.forget_seq is None:
            row.live = True
            self.state.touch(row, seq)
        self.state.change(row)
        self._cover_from(row, None if by is None else by.valid_from)
        if row.forget_seq is not None or self._ended(row.covered_from):
            return
        holding: set[str] = set()
        stores: set[str] = set()
        for placement in self.state.placements_of(row.fact_id):
            stores.add(placement.store)
            if placement.state is PlacementState.KEPT:
                self.state.move(placement, PlacementState.HELD)
            if placement.state is PlacementState.HELD:
                holding.add(placement.store)
        if not self._ended(row.valid_to):
            self.state.owe(row, sorted(stores - holding))

    def _end_placements(self, row: FactRow, kept: tuple[str, ...]) -> None:
        for placement in self.state.placements_of(row.fact_id):
            if placement.state is PlacementState.HELD and placement.store in kept:
                self.state.move(placement, PlacementState.KEPT)
            elif placement.state in (PlacementState.HELD, PlacementState.KEPT):
                self.state.move(placement, PlacementState.DUE)

    def _hold_placements(self, placements: tuple[PlacementRow, ...], row: FactRow, seq: int) -> None:
        for nth, placement in enumerate(placements):
            placement.id = place_of(seq, nth)
            placement.until = row.end
            self.state.new_placement(placement)

    def _ended(self, end: str | None) -> bool:
        return end is not None and end <= format_instant(self.tx)

    def _erase(self, fact_id: str, section: str) -> None:
        """Nothing may tell later drafts of the group what this one erases, as nothing tells later groups.

        It is of the events before the one being decided on, which is not among them yet.
        """
        events = [(event.fact_id, event.seq) for event in self.state.events.values()]
        events += [(event.prepared.draft.fact_id, event.seq) for event in self._admitted.values()]
        for named, seq in events:
            if named == fact_id:
                self._erased.setdefault(seq, set()).add(section)

    def _dereference_if_gone(self, row: FactRow, seq: int) -> None:
        """Where an identity is erased and all its entries are gone, one placement a store stands for them."""
        left = self.state.placements_of(row.fact_id)
        if not row.identity_gone or any(p.state is not PlacementState.GONE for p in left):
            return
        self.state.dereferenced[row.fact_id] = seq
        self._erase(row.fact_id, "refs")
        # The event being decided on has an entry's id as well.
        self._erased.setdefault(seq, set()).add("refs")
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
