"""The repair sweep: finish what is owed, then remove what the ledger does not stand behind.

Everything is listed and spooled before the first removal, so that the breaker can stop a sweep
that would empty a store because the ledger was put back from a backup. Each candidate's event
is recorded before its entry is touched.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

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
from custody_sync.finishing import Finishing, together
from custody_sync.ledger import Ledger, Repair
from custody_sync.ledger.storage import ERASURE
from custody_sync.model import (
    REPAIR_MIN_AGE,
    Capability,
    Erasure,
    Leftover,
    Outcome,
    Placement,
)
from custody_sync.placing import Placer
from custody_sync.releasing import Notebooks
from custody_sync.removal import Mandate, Remover
from custody_sync.repair.lease import Lease
from custody_sync.repair.listing import Candidate, Listing, ended, sort_out
from custody_sync.repair.spool import Spool
from custody_sync.results import (
    Repaired,
    RepairResult,
    Restored,
    Seen,
)
from custody_sync.runtime import Runtime
from custody_sync.stores import Gate, describe

S = TypeVar("S")
T = TypeVar("T")

CONCURRENCY = 64
FEW = 100
FEW_PER_STORE = 3


@dataclass(slots=True)
class Findings:
    """What a sweep collects on its way."""

    repaired: list[Repaired] = field(default_factory=list)
    restored: list[Restored] = field(default_factory=list)
    listings: dict[str, Listing] = field(default_factory=dict)
    unlisted: list[str] = field(default_factory=list)
    still_held: list[str] = field(default_factory=list)
    unrecorded: list[str] = field(default_factory=list)
    erasure: Erasure = Erasure.DONE

    def seen(self, name: str) -> tuple[Seen, ...]:
        """Gather one kind of left-alone entries over all stores."""
        return tuple(seen for listing in self.listings.values() for seen in getattr(listing, name))


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
        self._placer = placer
        self._notebooks = notebooks
        self._finishing = finishing
        self._runtime = runtime
        self._mandate = mandate
        self._reason = reason
        self._limiter = asyncio.Semaphore(CONCURRENCY)
        self._lease = Lease(ledger, runtime, mandate.actor)

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
            return self._result(findings, cutoff, dry_run=True)
        spool = Spool(self._ledger, self._runtime.ids.generation())
        try:
            await self._lease.renew()
            self._runtime.reach(FaultPoint.SWEEP_LEASED)
            await self._drain(findings)
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
                done = await self._gather(page, lambda candidate: self._work_off(candidate, findings))
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
        return self._result(findings, cutoff, dry_run=False)

    async def _let_go(self, spool: Spool) -> None:
        with contextlib.suppress(LedgerError, ClosedError):
            # The ids of other people's entries have no business beside the log once the sweep is over.
            await spool.close()
            await self._lease.release()

    async def _gather(self, items: Iterable[S], work: Callable[[S], Coroutine[Any, Any, T]]) -> list[T]:
        async def limited(item: S) -> T:
            async with self._limiter:
                await self._lease.keep()
                return await work(item)

        return await together(limited(item) for item in items)

    # --- what the ledger knows it owes ------------------------------------------------------

    async def _drain(self, findings: Findings) -> None:
        findings.erasure = await self._ledger.erase()
        after: int | None = None
        while True:
            page = await self._ledger.pending(limit=500, after=after)
            findings.repaired += await self._gather(page, self._drain_one)
            await self._lease.renew()
            after = page.next
            if after is None:
                break
        last: tuple[str, str] | None = None
        while owed := await self._placer.restore(None, self._mandate, limit=100, after=last):
            findings.restored += owed
            last = (owed[-1].fact_id, owed[-1].store)
            await self._lease.renew()

    async def _drain_one(self, row: Placement) -> Repaired:
        removal = await self._remover.drain_row(row, self._mandate)
        return Repaired(
            store=row.store,
            external_id=row.external_id,
            fact_id=row.fact_id,
            kind=Leftover.PENDING,
            outcome=removal.outcome,
            detail=removal.detail,
        )

    # --- what the stores hold ---------------------------------------------------------------

    async def _list_all(
        self, findings: Findings, cutoff: datetime, now: datetime, spool: Spool | None
    ) -> None:
        for gate in self._gates.values():
            if not gate.can(Capability.LIST_ENTRIES):
                findings.unlisted.append(gate.name)
                await self._take(findings, spool, await ended(self._ledger, gate))
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
            findings.repaired += [_repaired(candidate, Outcome.PLANNED, None, "") for candidate in candidates]
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
            return _repaired(candidate, Outcome.FAILED, None, f"not recorded, so not touched ({error.code})")
        self._runtime.reach(FaultPoint.SWEEP_RECORDED)
        outcome, detail = await self._remover.take_away(self._gates[entry.store], entry)
        removal = await self._remover.settle(entry, Outcome.STARTED, outcome, detail, self._mandate)
        return _repaired(candidate, removal.outcome, event_id, removal.detail)

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
        after: int | None = None
        while True:
            page = await self._ledger.pending(limit=1000, after=after)
            findings.repaired += [
                Repaired(
                    store=row.store,
                    external_id=row.external_id,
                    fact_id=row.fact_id,
                    kind=Leftover.PENDING,
                    outcome=Outcome.PLANNED,
                )
                for row in page
            ]
            after = page.next
            if after is None:
                break
        last: tuple[str, str] | None = None
        while owed := await self._ledger.owed(limit=1000, after=last):
            findings.restored += [Restored(fact_id=f, store=store, detail="planned") for f, store in owed]
            last = owed[-1]
        if await self._ledger.notes(ERASURE, limit=1) or await self._notebooks.are_due():
            findings.erasure = Erasure.PENDING
        await self._list_all(findings, cutoff, now, None)

    def _result(self, findings: Findings, cutoff: datetime, *, dry_run: bool) -> RepairResult:
        done = all(item.outcome is Outcome.VERIFIED for item in findings.repaired)
        placed = all(item.placed for item in findings.restored)
        clean = not (findings.still_held or findings.unrecorded or findings.seen("undated"))
        return RepairResult(
            before=cutoff,
            scanned={name: listing.scanned for name, listing in findings.listings.items()},
            repaired=tuple(findings.repaired),
            restored=tuple(findings.restored),
            young=findings.seen("young"),
            undated=findings.seen("undated"),
            unlisted=tuple(findings.unlisted),
            still_held=tuple(findings.still_held),
            unrecorded=tuple(findings.unrecorded),
            erasure=findings.erasure,
            dry_run=dry_run,
            complete=done and placed and clean and findings.erasure is Erasure.DONE,
        )


def _repaired(candidate: Candidate, outcome: Outcome, event_id: str | None, detail: str) -> Repaired:
    entry = candidate.entry
    return Repaired(
        store=entry.store,
        external_id=entry.external_id,
        fact_id=entry.fact_id or "",
        kind=candidate.kind,
        outcome=outcome,
        event_id=event_id,
        detail=detail,
    )
