"""What was in the stores before, and what a new one lacks, for synchronous code; `Coordinator` does it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from custody_sync.mended import AdoptResult, BackfillResult, ConfirmManyResult
from custody_sync.model import Entry, Provenance
from custody_sync.ports import Watch
from custody_sync.repair.adoption import Mapper
from custody_sync.sync_serving import Serving


class Intake(Serving):
    """The same methods as `AsyncIntake`, run on the coordinator's own loop thread."""

    def adopt(
        self,
        store: str,
        *,
        actor: str,
        space: str | Mapper,
        provenance: Provenance | str = Provenance.CLAIMED,
        dry_run: bool = True,
        limit: int | None = None,
        entries: Iterable[Entry] | None = None,
        receipt_id: str | None = None,
        watch: Watch | None = None,
    ) -> AdoptResult:
        """Make facts of a store's entries that have no label; see `AsyncCoordinator.adopt`."""
        return self._thread.run(
            self._custody.adopt(
                store,
                actor=actor,
                space=space,
                provenance=provenance,
                dry_run=dry_run,
                limit=limit,
                entries=entries,
                receipt_id=receipt_id,
                watch=watch,
            )
        )

    def backfill(
        self,
        store: str,
        *,
        actor: str,
        space: str | None = None,
        dry_run: bool = True,
        limit: int | None = None,
        receipt_id: str | None = None,
        watch: Watch | None = None,
    ) -> BackfillResult:
        """Put into a store what it lacks of what is believed; see `AsyncCoordinator.backfill`."""
        return self._thread.run(
            self._custody.backfill(
                store,
                actor=actor,
                space=space,
                dry_run=dry_run,
                limit=limit,
                receipt_id=receipt_id,
                watch=watch,
            )
        )

    def confirm_many(
        self,
        *,
        actor: str,
        fact_ids: Sequence[str] | None = None,
        space: str | None = None,
        reason: str | None = None,
        dry_run: bool = True,
        receipt_id: str | None = None,
        watch: Watch | None = None,
    ) -> ConfirmManyResult:
        """Confirm many claims; see `AsyncCoordinator.confirm_many`."""
        return self._thread.run(
            self._custody.confirm_many(
                actor=actor,
                fact_ids=fact_ids,
                space=space,
                reason=reason,
                dry_run=dry_run,
                receipt_id=receipt_id,
                watch=watch,
            )
        )


__all__ = ["Intake"]
