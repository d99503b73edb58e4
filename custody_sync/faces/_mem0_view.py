"""For whom a face speaks and what it serves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from custody_sync.adapters.mem0 import Mem0Store
from custody_sync.faces._pending import tell_pending
from custody_sync.results import ForgetManyResult, WriteResult

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
        """Say of removals that they are not verified yet; Mem0's own answers have no room for it."""
        tell_pending(self.on_pending, *results)


__all__ = ["Pending", "View"]
