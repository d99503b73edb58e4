"""After an outage: what the stores hold and should not, what they lack, and whether it is right now.

The half of the coordinator that an operator uses. Nothing here states a fact of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from custody_sync.canonical import check_name
from custody_sync.errors import InvalidInput
from custody_sync.keeping import AsyncKeeping
from custody_sync.placing import Placer
from custody_sync.proposing import read_when
from custody_sync.recording import check_place
from custody_sync.releasing import Notebooks
from custody_sync.removal import Remover
from custody_sync.repair.sweep import Sweep
from custody_sync.repair.verify import verify_removed
from custody_sync.results import RepairResult, VerifyResult


class AsyncMending(AsyncKeeping):
    """Repairs and verifies; `AsyncCoordinator` is one."""

    _remover: Remover
    _placer: Placer
    _notebooks: Notebooks

    async def repair(
        self,
        *,
        actor: str,
        reason: str,
        before: datetime | None = None,
        dry_run: bool = False,
        max_removals: int | None = None,
        receipt_id: str | None = None,
    ) -> RepairResult:
        """Finish what is owed, then find and remove every entry that the ledger does not stand behind.

        Entries younger than ten minutes are left alone, since their write may still be under way.

        Args:
            actor: who orders it.
            reason: why; recorded with every orphan.
            before: only entries older than this; moved to ten minutes ago if later.
            dry_run: only say what would be done.
            max_removals: the most removals to allow where the breaker would stop.
            receipt_id: the caller's reference.

        Raises:
            LedgerMoved: the ledger goes on in another place, also in a dry run.
            SweepRunning: another sweep holds the lease.
            BreakerOpen: suspiciously much to remove; nothing was removed.
        """
        self._check_open()
        if max_removals is not None and (type(max_removals) is not int or max_removals < 0):
            raise InvalidInput(field="max_removals", problem="must be a whole number, 0 or more")
        sweep = Sweep(
            ledger=self.ledger,
            gates=self._gates,
            remover=self._remover,
            placer=self._placer,
            notebooks=self._notebooks,
            finishing=self._finishing,
            runtime=self._runtime,
            mandate=self._mandate(actor, receipt_id),
            reason=check_name(reason, "reason"),
        )
        cutoff = None if before is None else read_when(before, "before")
        await check_place(self.ledger)
        return await sweep.run(before=cutoff, dry_run=dry_run, max_removals=max_removals)

    async def verify(
        self, *, actor: str, fact_ids: Sequence[str] | None = None, receipt_id: str | None = None
    ) -> VerifyResult:
        """Ask every store again about every removed fact, or about some; nothing asked is never complete."""
        self._check_open()
        mandate = self._mandate(actor, receipt_id)
        return await verify_removed(self.ledger, self._gates, self._remover, mandate, fact_ids)
