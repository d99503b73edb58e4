"""What an operator does after an outage, for synchronous code; `Coordinator` is one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from custody_sync.coordinator import AsyncCoordinator
from custody_sync.loop_thread import LoopThread
from custody_sync.results import RepairResult, VerifyResult


class Mending:
    """The same methods as `AsyncMending`, run on the coordinator's own loop thread."""

    _thread: LoopThread
    _custody: AsyncCoordinator

    def repair(
        self,
        *,
        actor: str,
        reason: str,
        before: datetime | None = None,
        dry_run: bool = False,
        max_removals: int | None = None,
        receipt_id: str | None = None,
    ) -> RepairResult:
        """Sweep every store; see `AsyncCoordinator.repair`."""
        return self._thread.run(
            self._custody.repair(
                actor=actor,
                reason=reason,
                before=before,
                dry_run=dry_run,
                max_removals=max_removals,
                receipt_id=receipt_id,
            )
        )

    def verify(
        self, *, actor: str, fact_ids: Sequence[str] | None = None, receipt_id: str | None = None
    ) -> VerifyResult:
        """Ask every store again; see `AsyncCoordinator.verify`."""
        return self._thread.run(self._custody.verify(actor=actor, fact_ids=fact_ids, receipt_id=receipt_id))
