"""Recall for synchronous code; `Coordinator` does it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from custody_sync.coordinator import AsyncCoordinator
from custody_sync.loop_thread import LoopThread
from custody_sync.recall import Keep, Unlabelled
from custody_sync.recalled import Budget, Card, RecallResult


class Serving:
    """The same methods as `AsyncServing`, run on the coordinator's own loop thread."""

    _thread: LoopThread
    _custody: AsyncCoordinator

    def recall(
        self,
        query: str,
        *,
        k: int = 10,
        spaces: Sequence[str] | None = None,
        valid_at: datetime | None = None,
        tx_at: datetime | None = None,
        include_claimed: bool = False,
        with_history: bool = False,
        store: str | None = None,
        unlabelled: Unlabelled = "drop",
        budget: Budget | None = None,
        keep: Keep | None = None,
    ) -> RecallResult:
        """Search a store and return only what the ledger believes; see `AsyncCoordinator.recall`."""
        return self._thread.run(
            self._custody.recall(
                query,
                k=k,
                spaces=spaces,
                valid_at=valid_at,
                tx_at=tx_at,
                include_claimed=include_claimed,
                with_history=with_history,
                store=store,
                unlabelled=unlabelled,
                budget=budget,
                keep=keep,
            )
        )

    def card(
        self,
        subject: str,
        predicate: str,
        *,
        space: str | None = None,
        valid_at: datetime | None = None,
        tx_at: datetime | None = None,
    ) -> tuple[Card, ...]:
        """Return all there is on one property, a card a space; see `AsyncCoordinator.card`."""
        return self._thread.run(
            self._custody.card(subject, predicate, space=space, valid_at=valid_at, tx_at=tx_at)
        )


__all__ = ["Serving"]
