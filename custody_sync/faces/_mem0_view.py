"""For whom a face speaks and what it serves."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from custody_sync.adapters.mem0 import Mem0Store
from custody_sync.forgetting import ForgetManyResult
from custody_sync.results import WriteResult

log = logging.getLogger("custody_sync.faces")

Pending: TypeAlias = Callable[[WriteResult | ForgetManyResult], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What is fixed in a face; another actor's is a copy with another name in it."""

    actor: str
    receipt_id: str | None = None
    store: str | None = None
    include_claimed: bool = False
    inferring: Mem0Store | None = None
    """Through which Mem0's model may write, if it may."""
    reranker: Any = None
    on_pending: Pending | None = None

    def tell(self, results: Sequence[WriteResult | ForgetManyResult]) -> None:
        """Say once that removals are not verified yet, and hand each such result over.

        Mem0's own answers have no room for it. Everything is recorded by then, so nothing may fail.
        """
        pending = [result for result in results if not result.complete]
        if pending:
            log.warning("a removal is recorded and not yet verified in every store: run repair")
        tell = self.on_pending
        if tell is None:
            return
        for result in pending:
            try:
                tell(result)
            except Exception as error:
                log.warning("on_pending raised %s", type(error).__name__)


__all__ = ["Pending", "View"]
