"""The repair sweep: finish what is owed, then remove what the ledger does not stand behind.

Everything is listed and spooled before the first removal, so that the breaker can stop a sweep
that would empty a store because the ledger was put back from a backup. Each candidate's event
is recorded before its entry is touched.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from contextlib import aclosing
from datetime import datetime

from custody_sync.errors import (
    AlreadyRecorded,
    AssertedId,
    BreakerOpen,
    ClosedError,
    CustodyError,
    LedgerError,
    StillBelieved,
    StoreError,
)
from custody_sync.faultpoints import FaultPoint
from custody_sync.finishing import Finishing
from custody_sync.ledger import Ledger, Repair
from custody_sync.ledger.storage import ERASURE
from custody_sync.model import (
    REPAIR_MIN_AGE,
    Capability,
    Erasure,
    Leftover,
    Outcome,
)
from custody_sync.placing import Placer
from custody_sync.releasing import Notebooks
from custody_sync.removal import Mandate, Remover
from custody_sync.repair.draining import Allowance, Draining
from custody_sync.repair.findings import Findings, repaired_of
from custody_sync.repair.lease import Lease
from custody_sync.repair.listing import Candidate, Listing, sort_out
from custody_sync.repair.selection import EVERYTHING
from custody_sync.repair.spool import Spool
from custody_sync.results import (
    Repaired,
    RepairResult,
)
from custody_sync.runtime import Runtime
from custody_sync.stores import Gate, describe

FEW = 100
FEW_PER_STORE = 3


class Sweep:
    """One repair run.

    Args:
        ledger: what is believed.
        gates: the configured stores by name.
        remover: deletes and verifies.
        placer: places what is owed.
        notebooks: lets go of what stores noted of erased spaces.
        finishing: lets go of lease and spool even if the caller gives up.
        runtime: clock, ids and fault points.
        mandate: on whose behalf.
        reason: recorded with every orphan.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        gates: Mapping[str, Gate],
        remover: Remover,
        placer: Placer,
        notebooks: Notebooks,
        finishing: Finishing,
        runtime: Runtime,
        mandate: Mandate,
        reason: str,
    ) -> None:
        self._ledger = ledger
        self._gates = gates
        self._remover = remover
        self._notebooks = notebooks
        self._finishing = finishing
        self._runtime = runtime
        self._mandate = mandate
        self._reason = reason
        self._lease = Lease(ledger, runtime, mandate.actor)
        self._draining = Draining(
            ledger=ledger,
            gates=gates,
            remover=remover,
            placer=placer,
            lease=self._lease,
            mandate=mandate,
            selection=EVERYTHING,
            allowance=Allowance(),
        )

    async def run(self, *, before: datetime | None, dry_run: bool, max_removals: int | None) -> RepairResult:
        """Sweep every store once.

        Raises:
            SweepRunning: another sweep holds the lease.
            BreakerOpen: too much to remove unasked; nothing unrecorded was touched.
        """
        now = self._ledger.now()
        cutoff = min(now - REPAIR_MIN_AGE, before or now)
        findings = Findings()
        if dry_run:
            await self._plan(findings, cutoff, now)
            return findings.result(cutoff, dry_run=True)
        spool = Spool(self._ledger, self._runtime.ids.generation())
        try:
            await self._lease.renew()
            self._runtime.reach(FaultPoint.SWEEP_LEASED)
            await self._draining.drain(findings)
            self._runtime.reach(FaultPoint.SWEEP_DRAINED)
            await self._lease.renew()
            await spool.clear()
            await self._list_all(findings, cutoff, now, spool)
            self._check_breaker(findings, max_removals)
            await spool.flush()
            self._runtime.reach(FaultPoint.SWEEP_SPOOLED)
            worked_off = 0
            async for page in spool.pages():
                await self._lease.renew()
                done = await self._lease.each(page, lambda candidate: self._work_off(candidate, findings))
                findings.repaired += [item for item in done if item is not None]
                worked_off += len(page)
            if worked_off != spool.count:
                lost = spool.count - worked_off
                findings.unrecorded.append(f"{lost} entries to remove were lost on the way; run repair again")
            await self._notebooks.settle(most=None, tell=self._lease.keep)
            findings.erasure = await self._ledger.erase()
            if await self._notebooks.are_due():
                findings.erasure = Erasure.PENDING
            self._runtime.reach(FaultPoint.SWEEP_DONE)
        finally:
            await self._finishing.see_through(self._let_go(spool))
        return findings.result(cutoff, dry_run=False)

    async def _let_go(self, spool: Spool) -> None:
        with contextlib.suppress(LedgerError, ClosedError):
            # The ids of other people's entries have no business beside the log once the sweep is over.
            await spool.close()
            await self._lease.release()

    # --- what the stores hold ---------------------------------------------------------------

    async def _list_all(
        self, findings: Findings, cutoff: datetime, now: datetime, spool: Spool | None
    ) -> None:
        for gate in self._gates.values():
            if not gate.can(Capability.LIST_ENTRIES):
                findings.unlisted.append(gate.name)
                continue
            listing = findings.listings.setdefault(gate.name, Listing())
            try:
                async with aclosing(sort_out(self._ledger, gate, cutoff, now, listing)) as batches:
                    async for candidates in batches:
                        await self._take(findings, spool, candidates)
            except StoreError as error:
                findings.still_held.append(f"{gate.name}: cannot list: {describe(error)}")
            findings.unrecorded += [
                f"{seen.store}/{seen.external_id}: placed for another fact" for seen in listing.contested
            ]
            findings.unrecorded += [
                f"{gate.name}/{row.external_id}: cannot be used: {row.problem}" for row in listing.spoiled
            ]
            if listing.spoiled_more:
                findings.unrecorded.append(f"{gate.name}: {listing.spoiled_more} more entries cannot be used")

    async def _take(self, findings: Findings, spool: Spool | None, candidates: list[Candidate]) -> None:
        """Spool candidates; in a dry run there is no spool, and they are only reported."""
        if spool is None:
            findings.repaired += [
                repaired_of(candidate, Outcome.PLANNED, None, "") for candidate in candidates
            ]
            return
        await spool.add(candidates)
        await self._lease.keep()

    def _check_breaker(self, findings: Findings, max_removals: int | None) -> None:
        planned = sum(listing.planned for listing in findings.listings.values())
        scanned = sum(listing.scanned for listing in findings.listings.values())
        if max_removals is not None:
            if planned > max_removals:
                raise BreakerOpen(planned=planned, scanned=scanned)
            return
        if planned > FEW and planned * 100 > scanned:
            raise BreakerOpen(planned=planned, scanned=scanned)
        for listing in findings.listings.values():
            if listing.planned > FEW_PER_STORE and listing.planned * 3 > listing.labelled:
                raise BreakerOpen(planned=planned, scanned=scanned)

    async def _work_off(self, candidate: Candidate, findings: Findings) -> Repaired | None:
        """Record one candidate, then delete and verify it; None if it found its place meanwhile."""
        entry, event_id = candidate.entry, None
        try:
            event_id = await self._record(candidate)
        except (AssertedId, StillBelieved):
            return None
        except CustodyError as error:
            findings.unrecorded.append(f"{entry.store}/{entry.external_id}: {error.code}")
            return repaired_of(
                candidate, Outcome.FAILED, None, f"not recorded, so not touched ({error.code})"
            )
        self._runtime.reach(FaultPoint.SWEEP_RECORDED)
        outcome, detail = await self._remover.take_away(self._gates[entry.store], entry)
        removal = await self._remover.settle(entry, Outcome.STARTED, outcome, detail, self._mandate)
        return repaired_of(candidate, removal.outcome, event_id, removal.detail)

    async def _record(self, candidate: Candidate) -> str | None:
        entry = candidate.entry
        if candidate.kind is Leftover.STRAY or candidate.recorded:
            return await self._remover.record(entry, Outcome.STARTED, "", self._mandate)
        event_id = self._runtime.ids.event_id()
        draft = Repair(
            event_id=event_id,
            fact_id=entry.fact_id or "",
            actor=self._mandate.actor,
            receipt_id=self._mandate.receipt_id,
            reason=self._reason,
            store=entry.store,
            external_id=entry.external_id,
            scope=entry.scope,
            stored_at=entry.stored_at,
        )
        try:
            await self._ledger.append(draft)
        except AlreadyRecorded:
            return None
        return event_id

    # --- results ----------------------------------------------------------------------------

    async def _plan(self, findings: Findings, cutoff: datetime, now: datetime) -> None:
        await self._draining.plan(findings)
        if await self._ledger.notes(ERASURE, limit=1) or await self._notebooks.are_due():
            findings.erasure = Erasure.PENDING
        await self._list_all(findings, cutoff, now, None)
