"""The first label of an entry that is on record: written once, beside the text that was adopted."""

from __future__ import annotations

import contextlib
from datetime import datetime

from custody_sync.errors import CustodyError, StoreError
from custody_sync.ledger import Ledger
from custody_sync.model import Capability, Entry, Fact
from custody_sync.notebook import needing
from custody_sync.placing import Placer
from custody_sync.runtime import Runtime
from custody_sync.stores import Gate, describe


class Labeller:
    """Writes first labels in one store.

    Args:
        ledger: where what a store noted is kept.
        gate: the store.
        placer: makes labels, and sees that what they relied on stays noted.
        runtime: ids.
    """

    def __init__(self, ledger: Ledger, gate: Gate, placer: Placer, runtime: Runtime) -> None:
        self._ledger = ledger
        self._gate = gate
        self._placer = placer
        self._runtime = runtime

    @property
    def unable(self) -> str:
        """Why the store writes no label beside what is there; empty where it does."""
        return "" if self._gate.can(Capability.RELABEL) else self._gate.supports[Capability.RELABEL].reason

    async def write(self, entry: Entry, fact: Fact, stored_at: datetime) -> str | None:
        """Label an entry that had no label when it was listed; return why it has none now, or None.

        A reply that was lost, and another run that was first, show in what the store holds.
        """
        label = self._placer.label(fact, self._runtime.ids.generation(), stored_at)
        with needing(fact.space) as need:
            try:
                await self._gate.relabel(entry, label)
            except CustodyError as error:
                problem = describe(error)
            else:
                await self._placer.stand_by_need(need)
                return None
        return None if await self._is_labelled(entry, fact) else problem

    async def _is_labelled(self, entry: Entry, fact: Fact) -> bool:
        if not self._gate.can(Capability.FIND):
            return False
        with contextlib.suppress(StoreError):
            found = await self._gate.find(fact.fact_id)
            return any((e.external_id, e.scope) == (entry.external_id, entry.scope) for e in found)
        return False


__all__ = ["Labeller"]
