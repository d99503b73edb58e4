"""The rules of the ledger, once for all storages: may this event be appended, and what follows.

`Group.admit` decides on one draft after another against a `State`; each sees the effects of
the ones before it, and a refusal changes nothing. The storage calls it inside the transaction
that then writes the changes, so no check can be outrun (L2).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from custody_sync import errors
from custody_sync.ledger.chain import Prepared, same_event, seal
from custody_sync.ledger.consequences import AHEAD, Consequences
from custody_sync.ledger.drafts import (
    Assert,
    Confirm,
    Forget,
    Hold,
    Place,
    Release,
    Remove,
    Repair,
    Retract,
)
from custody_sync.ledger.rows import FactRow, PlacementRow, place_of
from custody_sync.ledger.state import Appended, Position
from custody_sync.model import (
    PLACEMENT_MAX_AGE,
    REPAIR_MIN_AGE,
    Event,
    Outcome,
    Placement,
    PlacementState,
    Provenance,
    Standing,
    format_instant,
)

TICK = timedelta(microseconds=1)


class Group(Consequences):
    """One group of drafts being decided on at the end of the log."""

    def admit(self, prepared: Prepared) -> Appended | Event:
        """Append one draft, or refuse it by name and change nothing.

        A draft whose event id is committed already answers with that event. `event_of` makes an
        event of either, which is left to whoever is not under the ledger's lock.

        Raises:
            Refused: one of its subclasses says which rule forbids it.
        """
        draft = prepared.draft
        known = self._admitted.get(draft.event_id) or self.state.events.get(draft.event_id)
        if known is not None:
            if same_event(prepared, event_of(known), self._erased.get(known.seq, ())):
                return known
            raise errors.DuplicateEvent(event_id=draft.event_id)
        last = self.position.tx_time
        self.tx = self.now if last is None or self.now > last else last + TICK
        decide: Callable[..., None] = RULES[type(draft)]
        decide(self, prepared, draft, self.position.seq + 1)
        return self._append(prepared)

    def _append(self, prepared: Prepared) -> Appended:
        tx = self.tx
        seq, tx_time, prev = self.position.seq + 1, format_instant(tx), self.position.hash
        body, digest = seal(prepared, seq=seq, tx_time=tx_time, prev=prev)
        self.position = Position(seq, tx, digest)
        appended = Appended(prepared, seq, tx, tx_time, prev, body, digest)
        self.appended.append(appended)
        self._admitted[prepared.draft.event_id] = appended
        return appended

    # --- the rules, one method per kind of draft --------------------------------------------

    def _assert(self, prepared: Prepared, draft: Assert, seq: int) -> None:
        fact = draft.fact
        standing = self.state.claims.get(fact.fact_id)
        if standing is Standing.REPAIRED:
            raise errors.RepairedId(fact_id=fact.fact_id)
        if standing is Standing.ASSERTED:
            raise errors.DuplicateFact(fact_id=fact.fact_id)
        target = self._target(fact.supersedes)
        row = prepared.fact
        assert row is not None  # noqa: S101  # an assert is prepared with its row
        row.seq = seq
        if target is not None:
            row.root = target.root
        if target is not None:
            self._check_replacement(row, target)
        self._check_placements(draft.placements, fact.fact_id, may_be_old=draft.adopted)
        self.state.claims[fact.fact_id] = Standing.ASSERTED
        self.state.new_claims[fact.fact_id] = (Standing.ASSERTED, seq)
        self.state.new_facts[fact.fact_id] = row
        self.state.add_fact(row)
        self.state.touch(row, seq)
        if fact.provenance is not Provenance.CLAIMED:
            self._take_effect(row, seq, draft.kept, draft.owes)
        self._hold_placements(prepared.placements, row, seq)

    def _confirm(self, prepared: Prepared, draft: Confirm, seq: int) -> None:
        row = self._asserted(draft.fact_id)
        if row.effect_seq is not None:
            raise errors.AlreadyConfirmed(fact_id=draft.fact_id)
        target = self._target(row.supersedes)
        if target is not None:
            self._check_replacement(row, target)
        self._check_placements(draft.placements, draft.fact_id)
        self._take_effect(row, seq, draft.kept, draft.owes)
        self._hold_placements(prepared.placements, row, seq)

    def _retract(self, prepared: Prepared, draft: Retract, seq: int) -> None:
        row = self._asserted(draft.fact_id)
        row.retract_seq = seq
        row.live = False
        self.state.touch(row, seq)
        self._end_placements(row, kept=())
        self.state.settle(row.fact_id, self.state.owed.get(row.fact_id, ()))
        row.covered_from = None
        if row.effect_seq is None:
            return
        chain = self.state.chains[row.root]
        place = chain.index(row)
        del chain[place]
        if place:
            self._uncover(chain[place - 1], chain[place] if place < len(chain) else None, seq)

    def _forget(self, prepared: Prepared, draft: Forget, seq: int) -> None:
        row = self.state.facts.get(draft.fact_id)
        if row is None:
            raise self._unknown(draft.fact_id)
        if row.forget_seq is not None and not (draft.identity and not row.identity_gone):
            raise errors.Forgotten(fact_id=draft.fact_id)
        if holds := self.state.holds.get(draft.fact_id):
            raise errors.OnHold(fact_id=draft.fact_id, holds=sorted(holds))
        row.forget_seq = row.forget_seq or seq
        row.live = False
        self._end_placements(row, kept=())
        self.state.settle(row.fact_id, self.state.owed.get(row.fact_id, ()))
        if draft.identity:
            row.identity_gone = True
            row.space = row.subject = row.predicate = ""
        self.state.touch(row, seq)
        self.state.forgotten[row.fact_id] = (row.identity_gone, seq)
        self._erase(row.fact_id, "content")
        if draft.identity:
            self._erase(row.fact_id, "identity")
        self._dereference_if_gone(row, seq)

    def _hold(self, prepared: Prepared, draft: Hold, seq: int) -> None:
        row = self.state.facts.get(draft.fact_id)
        if row is None:
            raise self._unknown(draft.fact_id)
        if row.forget_seq is not None:
            raise errors.Forgotten(fact_id=draft.fact_id)
        holds = self.state.holds.setdefault(draft.fact_id, set())
        if draft.hold_id in holds:
            raise errors.DuplicateHold(fact_id=draft.fact_id, hold_id=draft.hold_id)
        holds.add(draft.hold_id)
        self.state.holds_added[(draft.fact_id, draft.hold_id)] = seq

    def _release(self, prepared: Prepared, draft: Release, seq: int) -> None:
        if draft.fact_id not in self.state.facts:
            raise self._unknown(draft.fact_id)
        holds = self.state.holds.get(draft.fact_id, set())
        if draft.hold_id not in holds:
            raise errors.NoSuchHold(fact_id=draft.fact_id, hold_id=draft.hold_id)
        holds.discard(draft.hold_id)
        self.state.holds_released[(draft.fact_id, draft.hold_id)] = None
        self.state.holds_added.pop((draft.fact_id, draft.hold_id), None)

    def _repair(self, prepared: Prepared, draft: Repair, seq: int) -> None:
        standing = self.state.claims.get(draft.fact_id)
        if standing is Standing.ASSERTED:
            raise errors.AssertedId(fact_id=draft.fact_id)
        if draft.store is None or draft.external_id is None:
            if standing is Standing.REPAIRED:
                raise errors.AlreadyRecorded(fact_id=draft.fact_id, store=None, external_id=None)
        else:
            if (draft.store, draft.external_id, draft.fact_id) in self.state.placements:
                raise errors.AlreadyRecorded(
                    fact_id=draft.fact_id, store=draft.store, external_id=draft.external_id
                )
            self._check_owner(draft.store, draft.external_id, draft.fact_id)
            self.state.new_placement(
                PlacementRow(
                    store=draft.store,
                    external_id=draft.external_id,
                    fact_id=draft.fact_id,
                    scope=draft.scope,
                    stored_at=None if draft.stored_at is None else format_instant(draft.stored_at),
                    until=None,
                    state=PlacementState.DUE,
                    outcome=Outcome.STARTED,
                    id=place_of(seq, 0),
                )
            )
        if standing is not Standing.REPAIRED:
            self.state.claims[draft.fact_id] = Standing.REPAIRED
            self.state.new_claims[draft.fact_id] = (Standing.REPAIRED, seq)

    def _place(self, prepared: Prepared, draft: Place, seq: int) -> None:
        row = self._asserted(draft.fact_id)
        if row.effect_seq is None or not self._has_begun(row) or self._ended(row.end):
            raise errors.NotBelieved(fact_id=draft.fact_id)
        replaced = [self._replaced(draft.fact_id, *key) for key in draft.replaces]
        stores = {p.store for p in draft.placements}
        for held in self.state.placements_of(draft.fact_id):
            if held.state is PlacementState.HELD and held.store in stores and held.key not in draft.replaces:
                raise errors.AlreadyPlaced(store=held.store, fact_id=draft.fact_id)
        self._check_placements(draft.placements, draft.fact_id)
        for placement in replaced:
            self.state.move(placement, PlacementState.DUE)
        self._hold_placements(prepared.placements, row, seq)
        self.state.settle(row.fact_id, stores)

    def _remove(self, prepared: Prepared, draft: Remove, seq: int) -> None:
        if draft.fact_id not in self.state.claims:
            raise errors.UnknownFact(fact_id=draft.fact_id)
        self._check_owner(draft.store, draft.external_id, draft.fact_id)
        row = self.state.placements.get((draft.store, draft.external_id, draft.fact_id))
        if row is None:
            self._check_settled(draft)
            row = PlacementRow(
                store=draft.store,
                external_id=draft.external_id,
                fact_id=draft.fact_id,
                scope=draft.scope,
                stored_at=None if draft.stored_at is None else format_instant(draft.stored_at),
                until=None,
                state=PlacementState.DUE,
                id=place_of(seq, 0),
            )
            self.state.new_placement(row)
        elif row.state is PlacementState.HELD and not self._ended(row.until):
            raise errors.StillBelieved(
                fact_id=draft.fact_id, store=draft.store, external_id=draft.external_id
            )
        row.outcome = draft.outcome
        self.state.move(row, PlacementState.GONE if draft.outcome is Outcome.VERIFIED else PlacementState.DUE)
        fact = self.state.facts.get(draft.fact_id)
        if fact is not None:
            self._dereference_if_gone(fact, seq)

    # --- what the rules share ---------------------------------------------------------------

    def _unknown(self, fact_id: str) -> errors.Refused:
        if self.state.claims.get(fact_id) is Standing.REPAIRED:
            return errors.RepairedId(fact_id=fact_id)
        return errors.UnknownFact(fact_id=fact_id)

    def _asserted(self, fact_id: str) -> FactRow:
        row = self.state.facts.get(fact_id)
        if row is None:
            raise self._unknown(fact_id)
        if row.forget_seq is not None:
            raise errors.Forgotten(fact_id=fact_id)
        if row.retract_seq is not None:
            raise errors.AlreadyRetracted(fact_id=fact_id)
        return row

    def _target(self, fact_id: str | None) -> FactRow | None:
        return None if fact_id is None else self._asserted(fact_id)

    def _check_replacement(self, row: FactRow, target: FactRow) -> None:
        if target.effect_seq is None:
            raise errors.NotConfirmed(fact_id=target.fact_id)
        for field in ("space", "subject", "predicate"):
            if not self._is_same_statement(row, target, field):
                raise errors.OtherStatement(field=field, fact_id=target.fact_id)
        tip = self.state.chains[target.root][-1]
        if tip.fact_id != target.fact_id:
            raise errors.AlreadyCovered(fact_id=target.fact_id, by=tip.fact_id)
        if row.valid_from < target.valid_from:
            raise errors.StartsTooEarly(
                valid_from=row.valid_from, fact_id=target.fact_id, target_from=target.valid_from
            )

    def _is_same_statement(self, row: FactRow, target: FactRow, field: str) -> bool:
        return bool(getattr(row, field) == getattr(target, field))

    def _has_begun(self, row: FactRow) -> bool:
        return row.valid_from <= format_instant(self.tx)

    def _is_stale(self, stored_at: datetime | None) -> bool:
        return stored_at is None or stored_at < self.now - PLACEMENT_MAX_AGE

    def _is_on_its_way(self, stored_at: datetime | None) -> bool:
        return stored_at is None or stored_at > self.now - REPAIR_MIN_AGE

    def _replaced(self, fact_id: str, store: str, external_id: str) -> PlacementRow:
        row = self.state.placements.get((store, external_id, fact_id))
        if row is None or row.state not in (PlacementState.HELD, PlacementState.KEPT):
            raise errors.NotPlaced(fact_id=fact_id, store=store, external_id=external_id)
        return row

    def _check_placements(
        self, placements: tuple[Placement, ...], fact_id: str, *, may_be_old: bool = False
    ) -> None:
        for p in placements:
            rows = self.state.found_at.get((p.store, p.external_id), ())
            for row in rows:
                if row.fact_id != fact_id:
                    raise errors.SharedEntry(store=p.store, external_id=p.external_id, fact_id=row.fact_id)
            if rows or (self._is_stale(p.stored_at) and not may_be_old):
                raise errors.StalePlacement(store=p.store, external_id=p.external_id, fact_id=fact_id)

    def _check_owner(self, store: str, external_id: str, fact_id: str) -> None:
        """An external id that stands for another fact is never taken up for removal."""
        for row in self.state.found_at.get((store, external_id), ()):
            if row.fact_id != fact_id and row.state is not PlacementState.GONE:
                raise errors.StillBelieved(fact_id=row.fact_id, store=store, external_id=external_id)

    def _check_settled(self, draft: Remove) -> None:
        """An unrecorded entry of a fact that is, or may become, believed could be a write under way."""
        fact = self.state.facts.get(draft.fact_id)
        if fact is None or fact.retract_seq is not None or fact.forget_seq is not None:
            return
        is_over = fact.covered_from is not None and fact.covered_from <= format_instant(self.tx + AHEAD)
        if self._is_on_its_way(draft.stored_at) and not is_over:
            raise errors.StillBelieved(
                fact_id=draft.fact_id, store=draft.store, external_id=draft.external_id
            )


RULES: dict[type, Callable[..., None]] = {
    Assert: Group._assert,
    Confirm: Group._confirm,
    Retract: Group._retract,
    Forget: Group._forget,
    Hold: Group._hold,
    Release: Group._release,
    Repair: Group._repair,
    Place: Group._place,
    Remove: Group._remove,
}


def event_of(result: Appended | Event) -> Event:
    """Return the event that a draft became, now or when it was appended before."""
    return result if isinstance(result, Event) else result.event()
