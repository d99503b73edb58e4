"""What an operator does after an outage, for synchronous code; `Coordinator` is one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from datetime import datetime

from custody_sync.mended import Drift, ReconcileResult
from custody_sync.ports import Watch
from custody_sync.repair.selection import Part
from custody_sync.repair.verify import Tell
from custody_sync.results import RepairResult, Status, VerifyResult
from custody_sync.sync_intake import Intake


class Mending(Intake):
    """The same methods as `AsyncMending`, run on the coordinator's own loop thread."""

    def repair(
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
        """Sweep every store; see `AsyncCoordinator.repair`. `watch` is called in the coordinator's thread."""
        return self._thread.run(
            self._custody.repair(
                actor=actor,
                reason=reason,
                before=before,
                dry_run=dry_run,
                max_removals=max_removals,
                stores=stores,
                space=space,
                part=part,
                limit=limit,
                fresh=fresh,
                only_due=only_due,
                moved=moved,
                salvage=salvage,
                plan=plan,
                apply=apply,
                receipt_id=receipt_id,
                watch=watch,
            )
        )

    def reconcile(
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
        """Compare and mend; see `AsyncCoordinator.reconcile`. `watch` is called in its thread."""
        return self._thread.run(
            self._custody.reconcile(
                actor=actor,
                reason=reason,
                fix=fix,
                stores=stores,
                space=space,
                before=before,
                max_removals=max_removals,
                max_puts=max_puts,
                moved=moved,
                receipt_id=receipt_id,
                watch=watch,
            )
        )

    def verify(
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
        """Ask every store again; see `AsyncCoordinator.verify`.

        `watch` and `tell` are called in the coordinator's own thread.
        """
        return self._thread.run(
            self._custody.verify(
                actor=actor,
                fact_ids=fact_ids,
                space=space,
                since=since,
                stores=stores,
                resume=resume,
                receipt_id=receipt_id,
                watch=watch,
                tell=tell,
            )
        )

    def status(self) -> Status:
        """Return what there is to do; see `AsyncCoordinator.status`."""
        return self._thread.run(self._custody.status())
