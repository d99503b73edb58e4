"""Taking over events that were admitted before: by another storage, or by an earlier version.

Everything beside the log is derived from it, so moving a ledger is moving its events. They obey
the rules already, except those that asked the clock; what an erasure took is left out of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from custody_sync.errors import DuplicateEvent, LedgerBroken, Refused
from custody_sync.ledger.chain import Prepared
from custody_sync.ledger.consequences import AHEAD, stand_in
from custody_sync.ledger.drafts import Assert, Confirm, Place, Remove
from custody_sync.ledger.redrafting import redraft
from custody_sync.ledger.rows import FactRow, place_of
from custody_sync.ledger.rules import RULES, Group
from custody_sync.ledger.state import Appended, Position, State
from custody_sync.ledger.stored import Stored, problem_of, read_stored
from custody_sync.model import REPAIR_MIN_AGE, format_instant


def prepare_replay(events: Sequence[Stored], after: Position, name: str) -> list[Prepared]:
    """Check that events follow a position and each other, and return what they were made of.

    Raises:
        LedgerBroken: says of which event what is wrong.
    """
    prepared: list[Prepared] = []
    for stored in events:
        problem = problem_of(stored, after)
        if problem is None:
            try:
                prepared.append(redraft(stored))
            except ValueError as error:
                problem = str(error)
        if problem is not None:
            raise LedgerBroken(name=name, seq=after.seq + 1, problem=problem)
        after = stored.position()
    return prepared


class Replay(Group):
    """A group of events that were admitted before.

    What asked the clock is not asked again, and where an erasure took the ids of entries, one
    placement a store stands for all that were removed from it.
    """

    def __init__(self, state: State, position: Position, now: datetime) -> None:
        super().__init__(state, position, now)
        self._left: dict[str, set[str]] = {}
        """By fact asserted in this group: the sections that are still there."""

    def take_all(self, events: Sequence[Stored], prepared: Sequence[Prepared], name: str) -> None:
        """Append events as they are.

        Raises:
            LedgerBroken: no ledger can have admitted one of them there.
        """
        for stored, draft in zip(events, prepared, strict=True):
            try:
                self.take(stored, draft)
            except Refused as refusal:
                problem = f"it breaks a rule ({refusal.code})"
                raise LedgerBroken(name=name, seq=stored.seq, problem=problem) from None

    def take(self, stored: Stored, prepared: Prepared) -> None:
        """Append an event as it is.

        Raises:
            Refused: no ledger can have admitted it here.
        """
        draft, data = prepared.draft, prepared.data
        if draft.event_id in self._admitted or draft.event_id in self.state.events:
            raise DuplicateEvent(event_id=draft.event_id)
        self.tx = stored.tx_time
        if isinstance(draft, Remove) and "refs" not in prepared.sections:
            if draft.fact_id not in self.state.facts:
                raise self._unknown(draft.fact_id)
            self._stand_in(self.state.facts[draft.fact_id], [draft.store], stored.seq)
        else:
            RULES[type(draft)](self, prepared, draft, stored.seq)
        if isinstance(draft, Assert | Confirm | Place) and not draft.placements and data["stores"]:
            stores: Any = data["stores"]
            self._stand_in(self.state.facts[draft.fact_id], stores, stored.seq)
        self.position = stored.position()
        prev = str(stored.doc["prev"])
        self.appended.append(
            Appended(
                prepared, stored.seq, self.tx, str(stored.doc["tx_time"]), prev, stored.body, stored.hash
            )
        )
        self._admitted[draft.event_id] = self.appended[-1]
        self._drop_done(prepared)

    def _drop_done(self, prepared: Prepared) -> None:
        """Leave to the storage only erasures of what is still there: a log may be read page by page."""
        fact_id, state = prepared.draft.fact_id, self.state
        if isinstance(prepared.draft, Assert):
            self._left[fact_id] = set()
        left = self._left.get(fact_id)
        if left is None:
            # Asserted in an earlier page: only the storage can tell.
            return
        identity, _ = state.forgotten.get(fact_id, (False, 0))
        if not left & ({"content", "identity"} if identity else {"content"}):
            state.forgotten.pop(fact_id, None)
        left.update(prepared.sections)
        if "refs" not in left:
            state.dereferenced.pop(fact_id, None)

    def _stand_in(self, fact: FactRow, stores: Sequence[str], seq: int) -> None:
        for nth, store in enumerate(stores):
            row = stand_in(fact, store, place_of(seq, nth))
            if row.record not in self.state.placements:
                self.state.new_placement(row)

    def _has_begun(self, row: FactRow) -> bool:
        # Earlier versions placed a fact again whose beginning was near.
        return row.valid_from <= format_instant(self.tx + AHEAD)

    def _is_stale(self, stored_at: datetime | None) -> bool:
        # No clock is asked again; that a placement was dated at all was asked of every one.
        return stored_at is None

    def _is_on_its_way(self, stored_at: datetime | None) -> bool:
        return stored_at is None or stored_at > self.tx - REPAIR_MIN_AGE

    def _is_same_statement(self, row: FactRow, target: FactRow, field: str) -> bool:
        return not row.space or not target.space or super()._is_same_statement(row, target, field)


__all__ = ["Replay", "Stored", "prepare_replay", "problem_of", "read_stored", "redraft"]
