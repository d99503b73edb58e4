"""After an outage: what the stores hold and should not, what they lack, and whether it is right now.

The half of the coordinator that an operator uses. Nothing here states a fact of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from custody_sync.canonical import check_name
from custody_sync.errors import InvalidInput
from custody_sync.intake import AsyncIntake
from custody_sync.mended import Drift, ReconcileResult
from custody_sync.placing import Placer
from custody_sync.ports import Watch
from custody_sync.proposing import read_when
from custody_sync.recording import check_place
from custody_sync.releasing import Notebooks
from custody_sync.removal import Mandate, Remover
from custody_sync.repair.asking import Asker
from custody_sync.repair.backoff import leave_resting
from custody_sync.repair.reconcile import Reconcile, Task, read_fix
from custody_sync.repair.salvaging import Salvaging
from custody_sync.repair.selection import Part, check_count, select
from custody_sync.repair.status import status_of
from custody_sync.repair.sweep import Order, Sweep, check_apart
from custody_sync.repair.verify import Question, Tell, Verifying, read_fact_ids
from custody_sync.results import RepairResult, Status, VerifyResult
from custody_sync.signals.operations import traced


class AsyncMending(AsyncIntake):
    """Repairs and verifies; `AsyncCoordinator` is one."""

    _remover: Remover
    _placer: Placer
    _notebooks: Notebooks
    _lasts: timedelta
    """How long a sweep's lease holds."""

    @traced("repair")
    async def repair(
        self,
        *,
        actor: str,
        reason: str,
        before: datetime | None = None,
        dry_run: bool = False,
        max_removals: int | None = None,
        stores: Iterable[str] | None = None,
        space: str | None = None,
        part: Part | None = None,
        limit: int | None = None,
        fresh: bool = False,
        only_due: bool = False,
        moved: bool = False,
        salvage: bool = False,
        plan: os.PathLike[str] | str | None = None,
        apply: os.PathLike[str] | str | None = None,
        receipt_id: str | None = None,
        watch: Watch | None = None,
    ) -> RepairResult:
        """Finish what is owed, then find and remove every entry that the ledger does not stand behind.

        Entries younger than ten minutes are left alone, since their write may still be under way. A
        sweep that was killed is gone on with by the next call over the same stores and spaces; what came
        after it began is then looked at by the call after that.

        Args:
            actor: who orders it.
            reason: why; recorded with every orphan.
            before: only entries older than this; moved to ten minutes ago if later.
            dry_run: only say what would be done.
            max_removals: the most removals to allow where the breaker would stop.
            stores: only these stores.
            space: only this space, or those that begin like it where it ends with a `*`.
            part: only a stretch of one store's listing.
            limit: at most so many removals this time; the next call goes on.
            fresh: drop an interrupted sweep and begin anew.
            only_due: leave alone the stores that did not answer and whose next try is not due, as a job
                that runs often should.
            moved: this ledger is the one that goes on, though it swept elsewhere before.
            salvage: make claims of orphans instead of removing them; they wait to be confirmed.
            plan: write what would be removed to this file, and change nothing.
            apply: do what such a file says, and nothing else; each line is judged once more.
            receipt_id: the caller's reference.
            watch: told how far it is.

        Raises:
            InvalidInput: an argument, or a file that is no plan of this ledger; nothing was done.
            LedgerMoved: the ledger goes on in another place, also in a dry run.
            LedgerRestored: the ledger is older than what its witness has seen.
            LedgerElsewhere: the ledger swept at another place before, and nobody said that it was moved.
            ClockSkew: the ledger's server has another time.
            SweepRunning: another sweep holds the lease.
            BreakerOpen: suspiciously much to remove; nothing was removed.
        """
        self._check_open()
        selection = select(self._gates, stores=stores, space=space, part=part)
        resting: tuple[str, ...] = ()
        if only_due:
            selection, resting = await leave_resting(self.ledger, self._gates, selection)
        order = Order(
            selection=replace(selection, salvage=salvage),
            before=None if before is None else read_when(before, "before"),
            max_removals=check_count(max_removals, "max_removals", 0),
            limit=check_count(limit, "limit", 1),
            fresh=fresh,
            watch=watch,
        )
        if salvage and (plan is not None or apply is not None):
            raise InvalidInput(field="salvage", problem="goes with no plan: a plan says what is removed")
        check_apart(plan=plan, apply=apply, dry_run=dry_run, order=order)
        mandate = self._mandate(actor, receipt_id)
        sweep = Sweep(
            ledger=self.ledger,
            gates=self._gates,
            remover=self._remover,
            placer=self._placer,
            notebooks=self._notebooks,
            finishing=self._finishing,
            runtime=self._runtime,
            mandate=mandate,
            reason=check_name(reason, "reason"),
            order=order,
            lasts=self._lasts,
            salvaging=self._salvaging(mandate) if salvage else None,
        )
        await check_place(self.ledger)
        if apply is not None:
            return await sweep.apply(apply, moved=moved)
        if dry_run or plan is not None:
            return await sweep.plan(plan)
        result = await sweep.run(moved=moved)
        if not resting:
            return result
        return replace(result, still_held=(*result.still_held, *resting), complete=False)

    @traced("reconcile")
    async def reconcile(
        self,
        *,
        actor: str,
        reason: str = "reconcile",
        fix: Iterable[Drift | str] = (),
        stores: Iterable[str] | None = None,
        space: str | None = None,
        before: datetime | None = None,
        max_removals: int | None = None,
        max_puts: int | None = None,
        moved: bool = False,
        receipt_id: str | None = None,
        watch: Watch | None = None,
    ) -> ReconcileResult:
        """Return the whole difference between the ledger and the stores, and mend of it what is named.

        Nothing is changed unless `fix` names it. What is missing or altered is put again from the
        ledger's text before what it replaces is removed; other ledgers' entries, and what nobody
        labelled, are counted and left alone.

        Args:
            actor: who orders it.
            reason: why; recorded with every orphan.
            fix: kinds of differences to mend (`orphan`, `stray`, `missing`, `altered_text`,
                `altered_label`), or `"all"` of them.
            stores: only these stores.
            space: only this space, or those that begin like it where it ends with a `*`.
            before: orphans and strays only if older than this; moved to ten minutes ago if later.
            max_removals: the most removals to allow where the breaker would stop.
            max_puts: the most puts to allow where the breaker would stop.
            moved: this ledger is the one that goes on, though it swept elsewhere before.
            receipt_id: the caller's reference.
            watch: told how far it is.

        Raises:
            InvalidInput: an argument; nobody was asked.
            LedgerMoved: the ledger goes on in another place, also in a dry run.
            SweepRunning: a sweep, or another reconciliation, holds the lease.
            BreakerOpen: suspiciously much to remove; nothing was mended.
            TooManyPuts: suspiciously much to put again; nothing was mended.
        """
        self._check_open()
        check_count(max_removals, "max_removals", least=0)
        check_count(max_puts, "max_puts", least=0)
        reconcile = Reconcile(
            ledger=self.ledger,
            gates=self._gates,
            remover=self._remover,
            placer=self._placer,
            finishing=self._finishing,
            runtime=self._runtime,
            mandate=self._mandate(actor, receipt_id),
            reason=check_name(reason, "reason"),
            task=Task(
                fix=read_fix(fix),
                selection=select(self._gates, stores=stores, space=space),
                before=None if before is None else read_when(before, "before"),
                max_removals=max_removals,
                max_puts=max_puts,
                moved=moved,
                lasts=self._lasts,
                watch=watch,
            ),
        )
        await check_place(self.ledger)
        return await reconcile.run()

    @traced("verify")
    async def verify(
        self,
        *,
        actor: str,
        fact_ids: Sequence[str] | None = None,
        space: str | None = None,
        since: datetime | None = None,
        stores: Iterable[str] | None = None,
        resume: bool = False,
        receipt_id: str | None = None,
        watch: Watch | None = None,
        tell: Tell | None = None,
    ) -> VerifyResult:
        """Ask every store again about every removed fact, or about some; nothing asked is never complete.

        Each store is asked at its own pace, a page of facts at a time. A run that was stopped leaves in
        the ledger how far it came.

        Args:
            actor: who asks.
            fact_ids: only these facts.
            space: only facts of this space, or of those that begin like it where it ends with a `*`.
            since: only facts whose removal, or anything about it, was recorded then or later.
            stores: only these stores.
            resume: go on with the last run over the same that was stopped, if there is one.
            receipt_id: the caller's reference.
            watch: told how far it is.
            tell: given every answer as it comes, so that memory stays flat; the result then names only
                what proves nothing.

        Raises:
            InvalidInput: an argument; nobody was asked.
            UnknownFact: a given id was never in this ledger.
            NotRemoved: a given fact is believed.
        """
        self._check_open()
        named = read_fact_ids(fact_ids)
        if named is not None and (space is not None or since is not None or resume):
            raise InvalidInput(field="fact_ids", problem="are asked about all at once; leave out the rest")
        verifying = Verifying(
            ledger=self.ledger,
            gates=self._gates,
            asker=Asker(self.ledger, self._remover, self._mandate(actor, receipt_id)),
            runtime=self._runtime,
            question=Question(
                selection=select(self._gates, stores=stores, space=space),
                since=None if since is None else read_when(since, "since"),
                fact_ids=named,
            ),
            watch=watch,
            tell=tell,
        )
        return await verifying.run(resume=resume)

    def _salvaging(self, mandate: Mandate) -> Salvaging:
        return Salvaging(
            ledger=self.ledger,
            gates=self._gates,
            proposals=self._proposals,
            recorder=self._recorder,
            runtime=self._runtime,
            mandate=mandate,
        )

    async def status(self) -> Status:
        """Return what there is to do, as the ledger has it; no store is asked, and none has to be up."""
        self._check_open()
        return await status_of(self.ledger, self._gates)
