"""Stores first, then the ledger: what `write` and `confirm` share.

A fact is recorded only after every store has confirmed it. Whatever keeps it from being
recorded takes back what the stores already hold, or says where something may be left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from custody_sync.errors import ClosedError, CustodyError, InvalidInput, Refused
from custody_sync.faultpoints import FaultPoint
from custody_sync.finishing import Finishing
from custody_sync.following import FollowUp
from custody_sync.ledger import Assert, Confirm, Ledger
from custody_sync.model import (
    MAX_SKEW,
    Event,
    Fact,
    Outcome,
    Placement,
    PlacementState,
    Provenance,
)
from custody_sync.placing import Placer, Put
from custody_sync.proposing import Proposals, Request
from custody_sync.recording import NOT_COMMITTED, Recorder, Unrecorded, check_place
from custody_sync.removal import Mandate, all_gone
from custody_sync.results import (
    Removal,
    WriteResult,
)
from custody_sync.runtime import Runtime
from custody_sync.stores import Gate


class Writer:
    """Takes a fact through the stores into the ledger.

    Args:
        ledger: checks before, records after.
        gates: the configured stores by name.
        proposals: validators, limits and clocks.
        placer: puts into the stores, and takes back.
        recorder: appends, and settles unknown outcomes.
        following: removes what a new fact supersedes.
        finishing: sees compensation through when a caller gives up.
        runtime: clock, ids and fault points.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        gates: Mapping[str, Gate],
        proposals: Proposals,
        placer: Placer,
        recorder: Recorder,
        following: FollowUp,
        finishing: Finishing,
        runtime: Runtime,
    ) -> None:
        self._ledger = ledger
        self._gates = tuple(gates)
        self._kept = tuple(gate.name for gate in gates.values() if gate.keeps)
        self._proposals = proposals
        self._placer = placer
        self._recorder = recorder
        self._following = following
        self._finishing = finishing
        self._runtime = runtime

    async def write(self, request: Request, fact_id: str, now: datetime) -> WriteResult:
        """Write a checked request under an id; all of it, or an error that says what is left."""
        since = await self._since(request, now)
        fact = await self._proposals.validate(request.to_fact(fact_id, since))
        unconfirmed = fact.provenance is Provenance.CLAIMED
        draft = Assert(
            event_id=self._runtime.ids.event_id(),
            fact=fact,
            kept=self._kept,
            owes=() if unconfirmed else self._owes(fact),
            request=None if request.idempotency_key is None else request.digest(),
        )
        if fact.supersedes is None:
            await check_place(self._ledger)
        else:
            await self._ledger.check(draft)
        self._runtime.reach(FaultPoint.VALIDATED)
        puts = await self._put(fact, quarantined=unconfirmed, but=draft.owes)
        placements = _placements(puts)
        event = await self._record(replace(draft, placements=placements), fact, puts)
        recorded = replace(fact, tx_time=event.tx_time, seq=event.seq)
        mandate = Mandate(actor=fact.actor, receipt_id=fact.receipt_id)
        return await self._result(recorded, placements, mandate, event, draft.owes)

    def _owes(self, fact: Fact, held: Collection[str] = ()) -> tuple[str, ...]:
        """Return the stores that are to have a fact once it begins; what begins within minutes is put now."""
        if fact.valid_from <= self._runtime.clock.now() + MAX_SKEW:
            return ()
        return tuple(name for name in self._gates if name not in held)

    async def _since(self, request: Request, now: datetime) -> datetime:
        """Return when a fact begins by default: now, but not before the one that it replaces.

        Two hosts' clocks may differ by minutes, or one be set back.
        """
        if request.valid_from is not None or request.supersedes is None:
            return now
        target = await self._ledger.get(request.supersedes)
        return now if target is None else max(now, target.valid_from)

    async def confirm(self, fact: Fact, mandate: Mandate, reason: str | None) -> WriteResult:
        """Place a claimed fact, then record that it is believed; entries it has already are relabelled.

        What a store was to have of it and has no more is put there again.
        """
        draft = Confirm(
            event_id=self._runtime.ids.event_id(),
            fact_id=fact.fact_id,
            actor=mandate.actor,
            receipt_id=mandate.receipt_id,
            reason=reason,
            kept=self._kept,
        )
        await self._ledger.check(draft)
        self._proposals.check_text(fact)
        self._runtime.reach(FaultPoint.VALIDATED)
        confirmed = replace(fact, confirmed=True)
        held = await self._held(fact)
        there = {row.store for row in held}
        owes = self._owes(fact, there)
        puts = await self._put(confirmed, quarantined=False, but={*there, *owes})
        placements = _placements(puts)
        event = await self._record(replace(draft, placements=placements, owes=owes), fact, puts)
        result = await self._result(confirmed, (*held, *placements), mandate, event, owes)
        return result if self._has_ended(fact) else await self._hold_on(result, held, mandate)

    async def _hold_on(
        self, result: WriteResult, held: tuple[Placement, ...], mandate: Mandate
    ) -> WriteResult:
        """Relabel what stores held before, and see that they still do."""
        relabelled = await self._placer.relabel(result.fact, held)
        restored, removals = await self._following.hold_on(result.fact, held, mandate)
        again = {one.store: one.external_ids for one in restored if one.placed}
        return replace(
            result,
            placements={**result.placements, **again},
            relabelled=tuple(one for one in relabelled if one.store not in again),
            restored=restored,
            removals=(*result.removals, *removals),
            complete=result.complete and all_gone(removals) and all(one.placed for one in restored),
        )

    async def _held(self, fact: Fact) -> tuple[Placement, ...]:
        """Return where an adopted claim is held already; any other claim is in no store."""
        rows = await self._ledger.placements(fact.fact_id)
        return tuple(row for row in rows if row.state is PlacementState.HELD)

    def _has_ended(self, fact: Fact) -> bool:
        return fact.valid_to is not None and fact.valid_to <= self._runtime.clock.now()

    async def _put(self, fact: Fact, *, quarantined: bool, but: Collection[str] = ()) -> tuple[Put, ...]:
        if quarantined or self._has_ended(fact):
            return ()
        puts = await self._placer.put_everywhere(fact, but=but)
        self._runtime.reach(FaultPoint.STORED)
        return puts

    async def _record(self, draft: Assert | Confirm, fact: Fact, puts: tuple[Put, ...]) -> Event:
        try:
            event = await self._recorder.append(draft, draft.placements)
        except asyncio.CancelledError as cancelled:
            await self._finishing.see_through(self._give_up(draft, fact, puts, cancelled))
            raise
        except Unrecorded as settled:
            problem = settled
        except (Refused, InvalidInput, ClosedError, *NOT_COMMITTED) as error:
            left = await self._placer.take_back_all(fact, puts)
            raise error.leaving(left) from None
        else:
            self._runtime.reach(FaultPoint.RECORDED)
            await self._placer.stand_by(puts)
            return event
        left = await self._placer.take_back_all(fact, puts)
        raise problem.but_only(left)

    async def _give_up(
        self, draft: Assert | Confirm, fact: Fact, puts: tuple[Put, ...], cause: BaseException
    ) -> None:
        """Settle an append whose caller was cancelled: recorded whole, or taken back."""
        if not isinstance(draft, Assert):
            # A confirm claims no id, so nothing can be settled against it: its entries wait for the sweep.
            return
        try:
            await self._recorder.claim(draft, draft.placements, cause)
        except (Unrecorded, Refused):
            await self._placer.take_back_all(fact, puts)
        except CustodyError:
            return

    async def _result(
        self,
        fact: Fact,
        placements: tuple[Placement, ...],
        mandate: Mandate,
        event: Event,
        owes: tuple[str, ...],
    ) -> WriteResult:
        """Follow up in the stores what the fact changed: its predecessor is not believed any more.

        Until a fact begins that one still is.
        """
        removals: tuple[Removal, ...] = ()
        unconfirmed = fact.provenance is Provenance.CLAIMED and not fact.confirmed
        begins_later = bool(owes) and fact.valid_from > event.tx_time
        if fact.supersedes is not None and not unconfirmed and not begins_later:
            removals = await self._following.remove(fact.supersedes, mandate)
        return WriteResult(
            fact=fact,
            placements=_by_store(placements),
            removals=removals,
            complete=all_gone(removals),
            waiting=owes,
        )

    async def as_written(self, fact: Fact, left: Sequence[str] = ()) -> WriteResult:
        """Answer a repeated keyed write with what the first one left, and what the repetition may have."""
        held = (PlacementState.HELD, PlacementState.KEPT)
        placements = [p for p in await self._ledger.placements(fact.fact_id) if p.state in held]
        covered = [] if fact.supersedes is None else await self._ledger.placements(fact.supersedes)
        removals = tuple(
            Removal(
                store=p.store,
                external_id=p.external_id,
                outcome=p.outcome or Outcome.UNVERIFIED,
                fact_id=p.fact_id,
            )
            for p in covered
            if p.state is PlacementState.DUE
        ) + tuple(
            Removal(
                store=store,
                external_id="",
                outcome=Outcome.UNVERIFIED,
                detail="the repeated write may have left an entry; run repair",
                fact_id=fact.fact_id,
            )
            for store in left
        )
        return WriteResult(
            fact=fact,
            placements=_by_store(placements),
            removals=removals,
            complete=not removals,
            duplicate=True,
            waiting=await self._waiting(fact),
        )

    async def _waiting(self, fact: Fact) -> tuple[str, ...]:
        """Return the stores that are to have a recorded fact once it begins."""
        if fact.seq is None or fact.valid_from <= self._ledger.now():
            return ()
        page = await self._ledger.waiting(limit=1, after=fact.seq - 1)
        return tuple(row.store for row in page if row.fact_id == fact.fact_id)


def _placements(puts: Sequence[Put]) -> tuple[Placement, ...]:
    return tuple(placement for put in puts for placement in put.placements)


def _by_store(placements: list[Placement] | tuple[Placement, ...]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for placement in placements:
        found[placement.store] = (*found.get(placement.store, ()), placement.external_id)
    return found
