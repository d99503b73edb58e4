"""Reconciling: the whole difference between the ledger and each store, and mending what was asked for.

A store is listed once, with texts, and every page is held against the ledger while the next one is
read. What the ledger has and the listing did not show is asked for again. Nothing is mended before
all stores were compared, so that the breaker sees the whole.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime, timedelta

from custody_sync.errors import (
    BreakerOpen,
    ClosedError,
    InvalidInput,
    LedgerError,
    StoreError,
    StoreUnavailable,
    TooManyPuts,
)
from custody_sync.faultpoints import FaultPoint
from custody_sync.finishing import Finishing
from custody_sync.ledger import Ledger
from custody_sync.mended import MENDABLE, Difference, Drift, Mended, ReconcileResult
from custody_sync.model import REPAIR_MIN_AGE, Capability
from custody_sync.placing import Placer
from custody_sync.ports import Watch
from custody_sync.removal import Mandate, Remover
from custody_sync.repair.absent import Absences, Unknown, count_unplaced
from custody_sync.repair.account import Account
from custody_sync.repair.amending import Amending, difference_of
from custody_sync.repair.differing import WAITS, Comparison, Drifted, Judge
from custody_sync.repair.guards import doubts_of, guard
from custody_sync.repair.last import note_last_reconcile
from custody_sync.repair.lease import LEASE, Lease
from custody_sync.repair.listing import MOST
from custody_sync.repair.pile import Pile, drop_left
from custody_sync.repair.readback import KEEPS, ReadBack
from custody_sync.repair.selection import EVERYTHING, Selection
from custody_sync.runtime import Runtime
from custody_sync.stores import Gate, describe

ALTERED = (Drift.ALTERED_TEXT, Drift.ALTERED_LABEL)
FEW = 100
FEW_PER_STORE = 3
LISTED = 2_500
"""Entries of a page: small enough that a store of ten thousand is listed and looked up at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a reconciliation is told to do."""

    fix: frozenset[Drift] = frozenset()
    selection: Selection = EVERYTHING
    before: datetime | None = None
    max_removals: int | None = None
    max_puts: int | None = None
    moved: bool = False
    lasts: timedelta = LEASE
    watch: Watch | None = None


def read_fix(fix: Iterable[Drift | str]) -> frozenset[Drift]:
    """Return what is to be mended: kinds of differences, or "all".

    Raises:
        InvalidInput: a kind that cannot be mended, or that is none.
    """
    named = ["all"] if fix == "all" else list(fix)
    wanted: set[Drift] = set()
    for name in named:
        if name == "all":
            wanted |= set(MENDABLE)
        elif name in MENDABLE:
            wanted.add(Drift(name))
        else:
            can = ", ".join(kind.value for kind in MENDABLE)
            problem = f"{str(name)!r} is nothing that can be mended; {can}, or all"
            raise InvalidInput(field="fix", problem=problem)
    return frozenset(wanted)


class Reconcile:
    """One reconciliation.

    Args:
        ledger: what is right.
        gates: the configured stores by name.
        remover: deletes and verifies.
        placer: puts what is missing.
        finishing: lets go of lease and pile even if the caller gives up.
        runtime: clock, ids and fault points.
        mandate: on whose behalf.
        reason: recorded with every orphan.
        task: what is to be mended, and where.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        gates: Mapping[str, Gate],
        remover: Remover,
        placer: Placer,
        finishing: Finishing,
        runtime: Runtime,
        mandate: Mandate,
        reason: str,
        task: Task,
    ) -> None:
        self._ledger = ledger
        self._gates = {n: gate for n, gate in gates.items() if task.selection.has_store(n)}
        self._finishing = finishing
        self._runtime = runtime
        self._task = task
        self._account = Account()
        self._whole: set[str] = set()
        """Stores whose listing came to its end."""
        self._lease = Lease(ledger, runtime, mandate.actor, task.lasts)
        self._pile = Pile(ledger, runtime.ids.generation())
        self._read_back = ReadBack(ledger)
        self._amending = Amending(
            ledger=ledger,
            gates=gates,
            placer=placer,
            remover=remover,
            runtime=runtime,
            lease=self._lease,
            read_back=self._read_back,
            mandate=mandate,
            reason=reason,
        )

    async def run(self) -> ReconcileResult:
        """Compare every selected store with the ledger, then mend what was ordered.

        Raises:
            SweepRunning: a sweep, or another reconciliation, holds the lease.
            BreakerOpen: suspiciously much to remove; nothing was mended.
            TooManyPuts: suspiciously much to put again; nothing was mended.
        """
        now = self._ledger.now()
        cutoff = min(now - REPAIR_MIN_AGE, self._task.before or now)
        await self._read_back.load()
        if not self._task.fix:
            doubts = await doubts_of(self._ledger)
            self._account.notices = (*map(str, doubts.refusals), *doubts.notices)
            await self._compare_all(cutoff, now)
        else:
            try:
                await self._lease.renew()
                self._account.notices = await guard(self._ledger, moved=self._task.moved)
                await drop_left(self._ledger)
                if Drift.STRAY in self._task.fix:
                    await self._amending.drain(self._task.selection)
                await self._compare_all(cutoff, now)
                self._check_removals()
                self._check_puts()
                await self._pile.flush()
                if self._task.selection.space is None:
                    await self._read_back.forget_others(self._whole)
                self._runtime.reach(FaultPoint.RECONCILE_PILED)
                await self._mend_all()
            finally:
                await self._finishing.see_through(self._let_go())
        result = self._account.result(cutoff, self._task.fix)
        await self._note(result)
        return result

    async def _let_go(self) -> None:
        with contextlib.suppress(LedgerError, ClosedError):
            await self._pile.close()
            await self._lease.release()

    # --- comparing --------------------------------------------------------------------------

    async def _compare_all(self, cutoff: datetime, now: datetime) -> None:
        judge = Judge(ledger=self._ledger, selection=self._task.selection, cutoff=cutoff, now=now)
        for gate in self._gates.values():
            if not gate.can(Capability.LIST_ENTRIES):
                self._account.unlisted.append(gate.name)
                continue
            head = (await self._ledger.head()).seq
            comparison = self._account.comparisons[gate.name] = Comparison(gate, head)
            try:
                async with aclosing(self._listed(judge, comparison)) as pages:
                    async for found in pages:
                        await self._take(found)
                        self._tell(f"comparing {gate.name}", comparison.listing.scanned, None)
            except StoreError as error:
                said = "cannot list, so that what is missing there was not looked for"
                self._account.say(f"{gate.name}: {said}: {describe(error)}")
            else:
                await self._look_for_missing(comparison)
                self._whole.add(gate.name)
            self._name_unusable(comparison)
            await count_unplaced(self._ledger, self._task.selection, comparison)

    async def _listed(self, judge: Judge, comparison: Comparison) -> AsyncGenerator[list[Drifted]]:
        """Yield the differences of each page; the ledger is asked of one while the store lists the next."""
        gate, asked = comparison.gate, None
        problem: StoreError | None = None
        try:
            try:
                async with aclosing(gate.pages(LISTED, texts=True, strict=False)) as pages:
                    async for page in pages:
                        before = asked
                        comparison.listing.take(page, self._ledger.ledger_id)
                        _check_end(comparison)
                        asked = asyncio.create_task(judge.judge(page, comparison))
                        if before is not None:
                            yield await before
            except StoreError as error:
                problem = error
            if asked is not None:
                yield await asked
        finally:
            if asked is not None:
                asked.cancel()
                await asyncio.gather(asked, return_exceptions=True)
        if problem is not None:
            raise problem

    async def _look_for_missing(self, comparison: Comparison) -> None:
        absences = Absences(self._ledger, self._task.selection)
        async with aclosing(absences.pages(comparison)) as pages:
            async for page in pages:
                await self._take([one for one in page if isinstance(one, Drifted)])
                for one in page:
                    if isinstance(one, Unknown):
                        where = f"{one.placement.store}/{one.placement.external_id}"
                        self._account.say(f"{where}: {one.problem}")
                self._tell(f"looking for what {comparison.gate.name} lacks", comparison.expected, None)

    async def _take(self, found: Sequence[Drifted]) -> None:
        """Keep what is to be mended for later, and name the rest."""
        wanted: list[Drifted] = []
        for one in found:
            is_wanted = one.kind in self._task.fix
            if why := self._why_left(one):
                self._account.comparisons[one.entry.store].unput[one.kind] += 1
                if is_wanted:
                    self._account.mended([difference_of(one, Mended.LEFT, why)])
                else:
                    self._account.name([difference_of(one, Mended.FOUND, why)])
            elif is_wanted:
                wanted.append(one)
            else:
                self._account.name([difference_of(one, Mended.FOUND)])
        if self._task.fix:
            await self._pile.add(wanted)
            await self._lease.keep()

    def _why_left(self, one: Drifted) -> str:
        """Return why a difference is not mended whatever was asked for: it would only come back."""
        if one.kind not in ALTERED and one.kind is not Drift.MISSING:
            return ""
        if self._read_back.is_kept_so(one):
            return f"{KEEPS}: {one.detail}" if one.detail else KEEPS
        return one.detail if one.detail == WAITS else ""

    def _name_unusable(self, comparison: Comparison) -> None:
        listing, name = comparison.listing, comparison.gate.name
        comparison.found[Drift.UNUSABLE] += len(listing.spoiled) + listing.spoiled_more
        self._account.unnamed += listing.spoiled_more
        self._account.name(
            [
                Difference(
                    store=name,
                    kind=Drift.UNUSABLE,
                    external_id=row.external_id,
                    fact_id="",
                    detail=f"it cannot be used: {row.problem}",
                )
                for row in listing.spoiled
            ]
        )

    # --- stopping where it looks wrong ------------------------------------------------------

    def _check_removals(self) -> None:
        comparisons = self._account.comparisons.values()
        going = {c.gate.name: self._going(c) for c in comparisons}
        planned, scanned = sum(going.values()), sum(c.listing.scanned for c in comparisons)
        if self._task.max_removals is not None:
            stop = planned > self._task.max_removals
        else:
            stop = planned > FEW and planned * 100 > scanned
            for c in comparisons:
                count = going[c.gate.name]
                stop = stop or (count > FEW_PER_STORE and count * 3 > c.listing.labelled)
        if stop:
            raise BreakerOpen(planned=planned, scanned=scanned)

    def _going(self, comparison: Comparison) -> int:
        """Return how many removals the ledger did not order before."""
        strays = comparison.found[Drift.STRAY] - comparison.ordered
        fix, orphans = self._task.fix, comparison.found[Drift.ORPHAN]
        return orphans * (Drift.ORPHAN in fix) + strays * (Drift.STRAY in fix)

    def _check_puts(self) -> None:
        """A store that was emptied, or another table than before, looks like one that lacks nearly all."""
        planned = {c.gate.name: self._putting(c) for c in self._account.comparisons.values()}
        if self._task.max_puts is not None:
            total = sum(planned.values())
            if total > self._task.max_puts:
                name = max(planned, key=lambda store: planned[store])
                expected = self._account.comparisons[name].expected
                raise TooManyPuts(store=name, planned=planned[name], expected=expected, total=total)
            return
        for comparison in self._account.comparisons.values():
            name, expected = comparison.gate.name, comparison.expected
            if planned[name] > FEW and planned[name] * 3 > expected:
                total = sum(planned.values())
                raise TooManyPuts(store=name, planned=planned[name], expected=expected, total=total)

    def _putting(self, comparison: Comparison) -> int:
        """Return how many entries would be put again."""
        kinds = {Drift.MISSING, Drift.ALTERED_TEXT}
        if not comparison.gate.can(Capability.RELABEL):
            kinds.add(Drift.ALTERED_LABEL)
        return sum(comparison.found[kind] - comparison.unput[kind] for kind in kinds & self._task.fix)

    # --- mending ----------------------------------------------------------------------------

    async def _mend_all(self) -> None:
        done = 0
        async for page in self._pile.pages():
            await self._lease.renew()
            self._account.mended(await self._amending.mend(page))
            done += len(page)
            self._tell("mending", done, self._pile.count)
        if done != self._pile.count:
            lost = self._pile.count - done
            self._account.say(f"{lost} differences were lost on the way; run reconcile again")
        for store in sorted(self._amending.vanished):
            self._account.say(f"{store}: stopped answering; run reconcile again")
        self._runtime.reach(FaultPoint.RECONCILE_DONE)

    def _tell(self, step: str, done: int, of: int | None) -> None:
        if self._task.watch is not None:
            self._task.watch(step, done, of)

    # --- how it ends ------------------------------------------------------------------------

    async def _note(self, result: ReconcileResult) -> None:
        """Keep what it came to for whoever asks how things stand, if all was compared."""
        if self._task.selection.everything and self._ledger.writable:
            with contextlib.suppress(LedgerError):
                await note_last_reconcile(self._ledger, self._account.last(self._ledger.now(), result))


def _check_end(comparison: Comparison) -> None:
    """Break off a listing that will not end by itself."""
    listing, cause = comparison.listing, ""
    if listing.circles:
        cause = "it comes back to the same entries again and again"
    elif listing.scanned >= MOST:
        cause = f"it goes on after {MOST:,} entries"
    if cause:
        raise StoreUnavailable(store=comparison.gate.name, operation="list", cause=cause)


__all__ = ["Reconcile", "Task", "read_fix"]
