"""The repair sweep: finish what is owed, then remove what the ledger does not stand behind.

Everything is listed and spooled before the first removal, so that the breaker can stop a sweep
that would empty a store because the ledger was put back from a backup. Each candidate's event
is recorded before its entry is touched. What was killed is gone on with by the next one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime, timedelta

from custody_sync.errors import BreakerOpen, ClosedError, InvalidInput, LedgerError, StoreError
from custody_sync.faultpoints import FaultPoint
from custody_sync.finishing import Finishing
from custody_sync.ledger import Ledger
from custody_sync.ledger.storage import ERASURE
from custody_sync.model import REPAIR_MIN_AGE, Capability, Erasure
from custody_sync.placing import Placer
from custody_sync.ports import Watch
from custody_sync.releasing import Notebooks
from custody_sync.removal import Mandate, Remover
from custody_sync.repair.applying import Applying
from custody_sync.repair.draining import Allowance, Draining
from custody_sync.repair.findings import Findings
from custody_sync.repair.guards import doubts_of, guard
from custody_sync.repair.last import note_last
from custody_sync.repair.lease import LEASE, Lease
from custody_sync.repair.listing import Batch, Listing, Sorter
from custody_sync.repair.plan import PlanWriter, check_plan, writing
from custody_sync.repair.reaching import Reach
from custody_sync.repair.resuming import TOPIC as RUN
from custody_sync.repair.resuming import Phase, Progress, about_of, find_run
from custody_sync.repair.salvaging import Salvaging
from custody_sync.repair.selection import EVERYTHING, Selection
from custody_sync.repair.spool import Spool, Spooled
from custody_sync.repair.working import Working
from custody_sync.results import RepairResult
from custody_sync.runtime import Runtime
from custody_sync.stores import Gate, describe

FEW = 100
FEW_PER_STORE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a sweep is told to do."""

    selection: Selection = EVERYTHING
    before: datetime | None = None
    max_removals: int | None = None
    limit: int | None = None
    """At most so many removals; the rest is left for the next time."""
    fresh: bool = False
    """Whether to drop an interrupted sweep and begin anew."""
    watch: Watch | None = None


class Sweep:
    """One repair run.

    Args:
        ledger: what is believed.
        gates: the configured stores by name.
        remover: deletes and verifies.
        placer: places what is owed.
        notebooks: lets go of what stores noted of erased spaces.
        finishing: lets go of the lease even if the caller gives up.
        runtime: clock, ids and fault points.
        mandate: on whose behalf.
        reason: recorded with every orphan.
        order: what it is told to do.
        lasts: how long its lease holds without being renewed.
        salvaging: saves orphans instead of removing them, if that was ordered.
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
        order: Order,
        lasts: timedelta = LEASE,
        salvaging: Salvaging | None = None,
    ) -> None:
        self._ledger = ledger
        self._gates = {name: gate for name, gate in gates.items() if order.selection.has_store(name)}
        self._whole = order.before is None and order.selection.whole(gates)
        self._notebooks = notebooks
        self._finishing = finishing
        self._runtime = runtime
        self._order = order
        self._about = about_of(ledger, order.selection)
        self._findings = Findings()
        self._allowance = Allowance(order.limit)
        self._spool = Spool(ledger, runtime.ids.generation())
        self._lease = Lease(ledger, runtime, mandate.actor, lasts)
        self._working = Working(
            ledger=ledger,
            gates=self._gates,
            remover=remover,
            runtime=runtime,
            lease=self._lease,
            mandate=mandate,
            reason=reason,
            findings=self._findings,
            salvaging=salvaging,
        )
        self._reach = Reach(ledger, self._gates, self._lease, runtime)
        self._draining = Draining(
            ledger=ledger,
            gates=self._gates,
            remover=remover,
            placer=placer,
            lease=self._lease,
            mandate=mandate,
            selection=order.selection,
            allowance=self._allowance,
            reach=self._reach,
        )

    async def run(self, *, moved: bool = False) -> RepairResult:
        """Sweep every store once, or what an interrupted sweep left of it.

        Raises:
            LedgerRestored, LedgerElsewhere, ClockSkew: this may not be the ledger that goes on.
            SweepRunning: another sweep holds the lease.
            BreakerOpen: too much to remove unasked; nothing unrecorded was touched.
        """
        try:
            await self._begin_at(moved)
            await self._draining.drain(self._findings)
            self._runtime.reach(FaultPoint.SWEEP_DRAINED)
            await self._lease.renew()
            progress = await self._take_up()
            if progress.phase is Phase.LISTING:
                await self._list_all(progress)
            self._findings.name_odd()
            self._runtime.reach(FaultPoint.SWEEP_SPOOLED)
            await self._work_off_all(progress)
            await self._notebooks.settle(most=None, tell=self._lease.keep)
            await self._finish()
            self._runtime.reach(FaultPoint.SWEEP_DONE)
        finally:
            await self._finishing.see_through(self._let_go())
        return self._findings.result(progress.cutoff, dry_run=False)

    async def plan(self, path: os.PathLike[str] | str | None = None) -> RepairResult:
        """Say what a sweep that begins now would do, in a file as well, and change nothing.

        Raises:
            InvalidInput: the file cannot be written.
        """
        now = self._ledger.now()
        doubts = await doubts_of(self._ledger)
        self._findings.notices += [*map(str, doubts.refusals), *doubts.notices]
        progress = self._begin(now)
        if path is None:
            await self._plan(progress)
        else:
            at = await self._ledger.head(), self._order.selection, progress.cutoff
            with writing(path, self._ledger, *at) as file:
                await self._plan(progress, file)
        return self._findings.result(progress.cutoff, dry_run=True)

    async def _plan(self, progress: Progress, file: PlanWriter | None = None) -> None:
        await self._draining.plan(self._findings)
        if file is not None:
            for item in self._findings.repaired:
                file.write_owed(item)
        if await self._ledger.notes(ERASURE, limit=1) or await self._notebooks.are_due():
            self._findings.erasure = Erasure.PENDING
        for gate in self._listable():
            async with aclosing(self._batches(gate, progress)) as batches:
                async for batch in batches:
                    for candidate in batch.candidates:
                        self._findings.repaired.append(self._working.planned(candidate))
                        if file is not None:
                            file.write(candidate)
        self._findings.name_odd()

    async def apply(self, path: os.PathLike[str] | str, *, moved: bool = False) -> RepairResult:
        """Do what a plan says, and nothing else; what does not hold any more is skipped.

        Raises:
            InvalidInput: the file is no plan of this ledger; nothing was done.
        """
        check_plan(path, self._ledger)
        try:
            await self._begin_at(moved)
            await Applying(
                ledger=self._ledger,
                gates=self._gates,
                working=self._working,
                draining=self._draining,
                lease=self._lease,
                allowance=self._allowance,
                findings=self._findings,
            ).run(path)
            self._findings.left_over += self._allowance.refused
            self._findings.erasure = await self._ledger.erase()
        finally:
            await self._finishing.see_through(self._let_go())
        return self._findings.result(self._latest(self._ledger.now()), dry_run=False)

    async def _begin_at(self, moved: bool) -> None:
        """Take the lease, unless this may not be the ledger that goes on."""
        await self._lease.renew()
        self._runtime.reach(FaultPoint.SWEEP_LEASED)
        self._findings.notices += await guard(self._ledger, moved=moved)

    # --- where it begins, and where it ends -------------------------------------------------

    def _begin(self, now: datetime) -> Progress:
        names = [gate.name for gate in self._listable()]
        progress = Progress.begin(self._spool.run, self._about, names, now, self._latest(now))
        self._findings.listings = progress.listings
        return progress

    def _latest(self, now: datetime) -> datetime:
        """Return before when an entry must have been stored to be swept."""
        return min(now - REPAIR_MIN_AGE, self._order.before or now)

    def _listable(self) -> list[Gate]:
        listable = [gate for gate in self._gates.values() if gate.can(Capability.LIST_ENTRIES)]
        self._findings.unlisted = [name for name, gate in self._gates.items() if gate not in listable]
        return listable

    async def _take_up(self) -> Progress:
        """Return the sweep that was interrupted, or a new one in its place."""
        now = self._ledger.now()
        progress = None
        if not self._order.fresh:
            names, latest = [gate.name for gate in self._listable()], self._latest(now)
            progress = await find_run(self._ledger, self._spool, names, self._about, latest)
        if progress is None:
            await self._drop(others=True)
            return self._begin(now)
        self._findings.listings = progress.listings
        self._findings.resumed = progress.begun
        return progress

    async def _finish(self) -> None:
        findings = self._findings
        findings.left_over += self._allowance.refused
        if not findings.left_over:
            # First, since an erasure is not complete while these rows name what it takes.
            await self._drop()
        findings.erasure = await self._ledger.erase()
        if await self._notebooks.are_due():
            findings.erasure = Erasure.PENDING
        if self._whole:  # A part says nothing of how all of it stands.
            await note_last(self._ledger, findings.last(self._ledger.now()))

    async def _drop(self, *, others: bool = False) -> None:
        await self._lease.renew()
        await self._ledger.drop_notes(RUN, holder=None if others else self._spool.run)
        await self._spool.clear(others=others)

    async def _note(self, progress: Progress) -> None:
        await self._lease.keep()
        await self._ledger.put_notes([progress.note(self._ledger.now())])

    async def _let_go(self) -> None:
        with contextlib.suppress(LedgerError, ClosedError):
            await self._lease.release()

    # --- what the stores hold ---------------------------------------------------------------

    async def _list_all(self, progress: Progress) -> None:
        for gate in self._listable():
            place = progress.places[gate.name]
            if place.done:
                continue
            if progress.listings[gate.name].scanned and place.cursor is None:
                # It cannot say where it was, so it is listed from its beginning.
                await self._lease.renew()
                await progress.restart(gate.name, self._spool)
            await self._list(gate, progress)
            await self._reach.saw(gate, progress.listings[gate.name])
        await self._check_breaker(progress)
        progress.phase = Phase.WORKING
        await self._note(progress)

    async def _list(self, gate: Gate, progress: Progress) -> None:
        """List one store to its end, into the spool."""
        async with aclosing(self._batches(gate, progress)) as batches:
            async for batch in batches:
                await self._lease.keep()
                await self._spool.put(batch, progress.note(self._ledger.now(), (gate.name, batch)))
                self._tell(f"listing {gate.name}", batch.scanned)
        if progress.listings[gate.name].misread:
            await progress.restart(gate.name, self._spool)
        progress.places[gate.name].done = True
        await self._note(progress)

    async def _batches(self, gate: Gate, progress: Progress) -> AsyncGenerator[Batch]:
        """Yield what a store lists from where the sweep is; one that fails is named and ends."""
        listing = progress.listings[gate.name]
        sorter = Sorter(
            ledger=self._ledger,
            selection=self._order.selection,
            cutoff=progress.cutoff,
            now=self._ledger.now(),
        )
        listing.failed = None
        try:
            after = progress.places[gate.name].cursor
            async with aclosing(sorter.sort(gate, listing, after=after)) as batches:
                async for batch in batches:
                    progress.take(gate.name, batch)
                    yield batch
        except StoreError as error:
            listing.failed = f"{gate.name}: cannot list: {describe(error)}"

    async def _check_breaker(self, progress: Progress) -> None:
        """Stop before the first removal where there is suspiciously much to remove."""
        listings = progress.listings.values()
        planned, scanned = sum(map(self._going, listings)), sum(listing.scanned for listing in listings)
        if self._order.max_removals is not None:
            stop = planned > self._order.max_removals
        else:
            stop = planned > FEW and planned * 100 > scanned
            for listing in listings:
                going = self._going(listing)
                stop |= going > FEW_PER_STORE and going * 3 > listing.labelled
        if stop:
            await self._drop()
            raise BreakerOpen(planned=planned, scanned=scanned)

    def _going(self, listing: Listing) -> int:
        """Return how many entries are to go: what is to be saved is none of them."""
        return listing.strays if self._order.selection.salvage else listing.planned

    # --- what has to go ---------------------------------------------------------------------

    async def _work_off_all(self, progress: Progress) -> None:
        working = self._working
        async with aclosing(self._spool.pages(without=working.vanished)) as pages:
            async for page in pages:
                await self._lease.renew()
                if not await self._work_off(page, progress):
                    self._findings.left_over += await self._spool.count()
                    break
                self._tell("removing", progress.worked, progress.spooled)
        lost = progress.spooled - progress.worked
        if lost > 0 and not working.vanished and not self._findings.left_over:
            said = f"{lost} entries to remove were lost on the way; run repair again"
            self._findings.unrecorded.append(said)

    async def _work_off(self, page: Spooled, progress: Progress) -> bool:
        """Work off a page of the spool; tell whether there was room for all of it."""
        reasons = await self._working.judge(page.candidates)
        rows = list(zip(page.keys, page.candidates, strict=True))
        due = [row for row in rows if (row[1].entry.store, row[1].entry.external_id) not in reasons]
        granted = self._allowance.take(len(due))
        left = {key for key, _ in due[granted:]}
        await self._working.remove([candidate for _, candidate in due[:granted]])
        done = [key for key, _ in rows if key not in left]
        progress.worked += len(done)
        # Written first: a page that is worked off twice is counted twice, and nothing seems lost.
        await self._note(progress)
        await self._spool.drop(done)
        return not left

    def _tell(self, step: str, done: int, of: int | None = None) -> None:
        if self._order.watch is not None:
            self._order.watch(step, done, of)


def check_apart(
    *,
    plan: os.PathLike[str] | str | None,
    apply: os.PathLike[str] | str | None,
    dry_run: bool,
    order: Order,
) -> None:
    """Refuse what cannot be meant at once."""
    if apply is None:
        return
    if plan is not None or dry_run:
        raise InvalidInput(field="apply", problem="changes something; it goes with neither plan nor dry_run")
    if order.before is not None or order.max_removals is not None or order.fresh or order.selection.space:
        problem = "does what the file says; before, max_removals, space and fresh do not go with it"
        raise InvalidInput(field="apply", problem=problem)


__all__ = ["Order", "Sweep", "check_apart"]
