"""One removed fact and one store: what is asked, and which answer is a proof.

Nothing is deleted here. A fact may be believed again, or lose its identity, while it is asked about;
what a store shows without a record is therefore held against the ledger once more.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from custody_sync.errors import CustodyError
from custody_sync.ledger import Ledger
from custody_sync.ledger.outstanding import Removed
from custody_sync.model import Capability, Outcome, Placement, PlacementState
from custody_sync.removal import NOT_CONFIGURED, Mandate, Remover
from custody_sync.results import Removal
from custody_sync.stores import Gate, describe


def rows_of(removed: Removed, store: str) -> list[Placement]:
    """Return what of a fact had to go from a store: of one that is believed again only what is due."""
    believed = is_believed(removed.placements)
    return [
        row
        for row in removed.placements
        if row.store == store
        and (row.state is PlacementState.DUE or (row.state is PlacementState.GONE and not believed))
    ]


def is_believed(rows: Sequence[Placement]) -> bool:
    """Tell whether a fact with these placements belongs in the stores."""
    return any(row.state is PlacementState.HELD for row in rows)


class Asker:
    """Asks stores about removed facts and records every changed outcome.

    Args:
        ledger: what was removed.
        remover: asks about one entry.
        mandate: on whose behalf outcomes are recorded.
    """

    def __init__(self, ledger: Ledger, remover: Remover, mandate: Mandate) -> None:
        self._ledger = ledger
        self._remover = remover
        self._mandate = mandate

    async def look(self, gate: Gate, removed: Removed) -> None:
        """Ask a store one question, without patience, to see whether it answers; what it says is not kept."""
        with contextlib.suppress(CustodyError):
            if gate.can(Capability.FIND):
                await gate.find(removed.fact_id)
            elif gate.can(Capability.VERIFY_DELETED):
                for row in rows_of(removed, gate.name)[:1]:
                    await gate.is_gone(row.to_entry())

    async def ask(self, gate: Gate, removed: Removed) -> list[Removal]:
        """Ask one store about one fact: entry by entry, and by fact id for what nobody recorded."""
        rows = rows_of(removed, gate.name)
        removals = [await self._ask_row(gate, row) for row in rows if not row.erased]
        if not is_believed(removed.placements):
            owes_proof = any(row.erased for row in rows)
            removals += await self._ask_by_id(gate, removed, owes_proof)
        return removals

    async def ask_ended(self, gate: Gate, row: Placement) -> Removal:
        """Ask about an entry whose fact has ended and which no event has ordered out yet; record nothing."""
        outcome, detail = await self._remover.ask(gate, row.to_entry())
        if outcome is Outcome.STILL_INDEXED:
            detail = "its fact has ended; run repair"
        return _said(row.store, row.external_id, row.fact_id, outcome, detail)

    async def _ask_row(self, gate: Gate, row: Placement) -> Removal:
        """Ask about one entry; one that had to go is never a current one again."""
        entry = row.to_entry()
        outcome, detail = await self._remover.ask(gate, entry)
        if outcome is Outcome.STILL_INDEXED and row.outcome is Outcome.FAILED:
            # It was never deleted, so waiting for an index would be in vain.
            outcome, detail = Outcome.FAILED, "its delete failed before; run repair"
        if row.state is PlacementState.DUE:
            return await self._remover.settle(entry, row.outcome, outcome, detail, self._mandate)
        if outcome in (Outcome.STILL_INDEXED, Outcome.FAILED):
            return await self._remover.settle(entry, Outcome.VERIFIED, outcome, detail, self._mandate)
        # A store that does not answer takes nothing back of what it answered before.
        return _said(row.store, row.external_id, row.fact_id, outcome, detail)

    async def _ask_by_id(self, gate: Gate, removed: Removed, owes_proof: bool) -> list[Removal]:
        """Look for entries of a fact that the ledger has no record of, or no record of any more."""
        fact_id = removed.fact_id
        if not gate.can(Capability.FIND):
            detail = "its ids were erased and the store cannot be asked by fact id"
            return [_said(gate.name, "", fact_id, Outcome.UNVERIFIED, detail)] if owes_proof else []
        try:
            entries = await gate.find(fact_id)
        except CustodyError as error:
            detail = f"cannot be asked by fact id ({describe(error)})"
            return [_said(gate.name, "", fact_id, Outcome.UNVERIFIED, detail)]
        recorded = {(row.store, row.external_id) for row in removed.placements}
        ours = [e for e in entries if e.ledger_id in (None, self._ledger.ledger_id)]
        loose = [entry for entry in ours if (entry.store, entry.external_id) not in recorded]
        if loose:
            # Meanwhile the fact may have been placed again.
            now = {(row.store, row.external_id) for row in await self._ledger.placements(fact_id)}
            loose = [entry for entry in loose if (entry.store, entry.external_id) not in now]
        if owes_proof and not loose:
            return [_said(gate.name, "", fact_id, Outcome.VERIFIED, "asked by fact id")]
        detail = "unrecorded; run repair"
        return [_said(gate.name, e.external_id, fact_id, Outcome.STILL_INDEXED, detail) for e in loose]


def without_a_store(removed: Removed, store: str) -> list[Removal]:
    """Return what can be said of a fact in a store that is not configured."""
    return [
        _said(store, row.external_id, removed.fact_id, Outcome.FAILED, NOT_CONFIGURED)
        for row in rows_of(removed, store)
    ]


def not_asked(removed: Removed, gate: Gate, cause: str) -> list[Removal]:
    """Return what can be said of a fact in a store that was given up."""
    rows = rows_of(removed, gate.name)
    ids = [row.external_id for row in rows if not row.erased]
    if len(ids) < len(rows) or (
        not rows and gate.can(Capability.FIND) and not is_believed(removed.placements)
    ):
        ids.append("")
    return [_said(gate.name, external_id, removed.fact_id, Outcome.UNVERIFIED, cause) for external_id in ids]


def ended_unasked(row: Placement, outcome: Outcome, detail: str) -> Removal:
    """Return what can be said of the same where its store is not configured or was given up."""
    return _said(row.store, row.external_id, row.fact_id, outcome, detail)


def _said(store: str, external_id: str, fact_id: str, outcome: Outcome, detail: str) -> Removal:
    return Removal(store=store, external_id=external_id, outcome=outcome, detail=detail, fact_id=fact_id)


__all__ = ["Asker", "ended_unasked", "is_believed", "not_asked", "rows_of", "without_a_store"]
