"""Orphans become claimed facts instead of being removed: after a ledger was lost, they may be all there is.

The label says which fact id and which space, the store says the text; that it is true nobody says, so
the fact waits, flagged as adopted, until somebody confirms or retracts it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from custody_sync.errors import CustodyError, DuplicateFact, RepairedId, StoreError
from custody_sync.finishing import together
from custody_sync.ledger import Assert, Ledger
from custody_sync.model import Capability, Entry, Placement, PlacementState, Provenance
from custody_sync.proposing import Proposals, read_request
from custody_sync.recording import Recorder, Unrecorded
from custody_sync.removal import Mandate
from custody_sync.repair.tally import reason_of
from custody_sync.results import Salvaged
from custody_sync.runtime import Runtime
from custody_sync.stores import Gate, describe


class Salvaging:
    """Saves what a sweep would remove as an orphan.

    Args:
        ledger: where the facts are recorded.
        gates: the configured stores by name.
        proposals: validates each fact as a write is.
        recorder: appends, and settles unknown outcomes.
        runtime: clock and ids.
        mandate: on whose behalf.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        gates: Mapping[str, Gate],
        proposals: Proposals,
        recorder: Recorder,
        runtime: Runtime,
        mandate: Mandate,
    ) -> None:
        self._ledger = ledger
        self._gates = gates
        self._proposals = proposals
        self._recorder = recorder
        self._runtime = runtime
        self._mandate = mandate

    async def save(self, entry: Entry) -> Salvaged | str:
        """Make a claim of an orphan, with all of its entries that the stores show; or say why it is left.

        Nothing is said of one that went, or became part of another's claim.

        Entries of one write lie in several stores. Whichever is first records them all, and the others
        find themselves placed.
        """
        try:
            return await self._save(entry)
        except StoreError as error:
            return f"the store cannot be asked for its text ({describe(error)})"
        except Unrecorded as settled:
            return settled.error.code
        except CustodyError as error:
            return reason_of(error)

    async def _save(self, entry: Entry) -> Salvaged | str:
        fact_id = entry.fact_id or ""
        if not self._gates[entry.store].can(Capability.FIND):
            return "the store cannot be asked for one fact"
        shown = await self._shown(fact_id, entry.store)
        own = [e for e in shown if (e.store, e.external_id) == (entry.store, entry.external_id)]
        if not own:
            # It went since it was listed.
            return ""
        text, space = own[0].text, own[0].space
        if not text:
            return "the store shows no text of it"
        if not space:
            return "its label says no space"
        now = self._proposals.check_clock()
        since = own[0].stored_at or own[0].created_at
        request = read_request(
            value=text,
            space=space,
            actor=self._mandate.actor,
            subject=None,
            predicate=None,
            text=text,
            supersedes=None,
            valid_from=now if since is None or since > now else since,
            valid_to=None,
            receipt_id=self._mandate.receipt_id,
            idempotency_key=None,
            provenance=Provenance.CLAIMED,
        )
        fact = await self._proposals.validate(request.to_fact(fact_id, now))
        if fact.text != text:
            return "a validator rewrites its text"
        placements = tuple(_placement(e) for e in shown if e.text in (None, text) and e.space == space)
        draft = Assert(event_id=self._runtime.ids.event_id(), fact=fact, placements=placements, adopted=True)
        try:
            await self._recorder.append(draft, placements)
        except DuplicateFact:
            return await self._placed(entry)
        except RepairedId:
            return "its fact id was repaired before, which stands; repair without salvage removes it"
        entries: dict[str, tuple[str, ...]] = {}
        for row in placements:
            entries[row.store] = (*entries.get(row.store, ()), row.external_id)
        return Salvaged(fact_id=fact_id, space=space, entries=entries)

    async def _shown(self, fact_id: str, store: str) -> list[Entry]:
        """Return this ledger's entries of a fact; only the store that is swept has to answer."""

        async def ask(gate: Gate) -> list[Entry]:
            if gate.name == store:
                return await gate.find(fact_id)
            with contextlib.suppress(StoreError):
                return await gate.find(fact_id)
            return []

        able = [gate for gate in self._gates.values() if gate.can(Capability.FIND)]
        answers = await together(ask(gate) for gate in able)
        return [e for entries in answers for e in entries if e.ledger_id == self._ledger.ledger_id]

    async def _placed(self, entry: Entry) -> str:
        rows = await self._ledger.placements(entry.fact_id or "")
        is_placed = any(
            (row.store, row.external_id) == (entry.store, entry.external_id)
            and row.state is PlacementState.HELD
            for row in rows
        )
        return "" if is_placed else "its fact was recorded without it; the next repair removes it"


def _placement(entry: Entry) -> Placement:
    return Placement(
        store=entry.store,
        external_id=entry.external_id,
        fact_id=entry.fact_id or "",
        scope=entry.scope,
        stored_at=entry.stored_at or entry.created_at,
    )


__all__ = ["Salvaging"]
