"""Working off what a sweep found: each entry is judged once more, recorded, deleted and verified."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from custody_sync.errors import AlreadyRecorded, AssertedId, CustodyError, StillBelieved
from custody_sync.faultpoints import FaultPoint
from custody_sync.ledger import Ledger, Repair
from custody_sync.ledger.storage import Unaccounted
from custody_sync.model import Entry, Outcome, PlacementState
from custody_sync.removal import Mandate, Remover
from custody_sync.repair.findings import Findings, repaired_of
from custody_sync.repair.lease import Lease
from custody_sync.repair.listing import Candidate
from custody_sync.repair.salvaging import Salvaging
from custody_sync.results import Repaired, Salvaged
from custody_sync.runtime import Runtime
from custody_sync.stores import Gate

VANISHED = 5
"""Entries in a row that a store was not to be reached for, retries included, until it counts as gone."""
PLACED = "it is a current placement now"
SHARED = "its id stands for another fact now"
SINCE = "its removal was recorded meanwhile"
SAVES = "would be saved as a claim, not removed"


class Working:
    """Removes candidates, a page at a time.

    Args:
        ledger: judges and records.
        gates: the configured stores by name.
        remover: deletes and verifies.
        runtime: ids and fault points.
        lease: kept while it works.
        mandate: on whose behalf.
        reason: recorded with every orphan.
        findings: take what became of each entry.
        salvaging: saves orphans instead, if that was asked for.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        gates: Mapping[str, Gate],
        remover: Remover,
        runtime: Runtime,
        lease: Lease,
        mandate: Mandate,
        reason: str,
        findings: Findings,
        salvaging: Salvaging | None = None,
    ) -> None:
        self._ledger = ledger
        self._gates = gates
        self._remover = remover
        self._runtime = runtime
        self._lease = lease
        self._mandate = mandate
        self._reason = reason
        self._findings = findings
        self._salvaging = salvaging
        self._out_of_reach: Counter[str] = Counter()
        self.vanished: set[str] = set()
        """Stores that stopped answering while they were worked on; nothing more of theirs is begun."""

    async def judge(self, candidates: Sequence[Candidate]) -> dict[tuple[str, str], str]:
        """Return why some of these do not have to go any more, by store and external id."""
        reasons: dict[tuple[str, str], str] = {}
        for store in {candidate.entry.store for candidate in candidates}:
            listed = {c.entry.external_id: c for c in candidates if c.entry.store == store}
            pairs = {external_id: c.entry.fact_id or "" for external_id, c in listed.items()}
            found = await self._ledger.unaccounted(store, pairs, keep=self._gates[store].keeps)
            loose = {row.external_id: row for row in found}
            for external_id, candidate in listed.items():
                reason = _no_longer(candidate, loose.get(external_id))
                if reason:
                    reasons[store, external_id] = reason
        return reasons

    async def remove(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Remove what was judged, and return what was left: it found its place, or its store vanished."""
        done = await self._lease.each(candidates, self._work_off)
        self._findings.repaired += [item for item in done if item is not None]
        return [one for one, item in zip(candidates, done, strict=True) if item is None]

    def planned(self, candidate: Candidate) -> Repaired:
        """Say what would become of a candidate."""
        return repaired_of(candidate, Outcome.PLANNED, None, SAVES if self._saves(candidate) else "")

    def _saves(self, candidate: Candidate) -> bool:
        return self._salvaging is not None and candidate.is_orphan and not candidate.recorded

    async def _work_off(self, candidate: Candidate) -> Repaired | None:
        """Record one candidate, then delete and verify it; None if it was left, or found its place."""
        entry, event_id = candidate.entry, None
        if entry.store in self.vanished:
            return None
        if self._salvaging is not None and candidate.is_orphan and not candidate.recorded:
            self._take(entry, await self._salvaging.save(entry))
            return None
        try:
            event_id = await self._record(candidate)
        except (AssertedId, StillBelieved):
            return None
        except CustodyError as error:
            self._findings.unrecorded.append(f"{entry.store}/{entry.external_id}: {error.code}")
            detail = f"not recorded, so not touched ({error.code})"
            return repaired_of(candidate, Outcome.FAILED, None, detail)
        self._runtime.reach(FaultPoint.SWEEP_RECORDED)
        gate = self._gates[entry.store]
        outcome, detail = await self._remover.take_away(gate, entry)
        self._count(gate, outcome)
        removal = await self._remover.settle(entry, Outcome.STARTED, outcome, detail, self._mandate)
        return repaired_of(candidate, removal.outcome, event_id, removal.detail)

    def _take(self, entry: Entry, saved: Salvaged | str) -> None:
        if isinstance(saved, Salvaged):
            self._findings.salvaged.append(saved)
        elif saved:
            self._findings.unrecorded.append(f"{entry.store}/{entry.external_id}: not salvaged: {saved}")

    def _count(self, gate: Gate, outcome: Outcome) -> None:
        """Notice a store that does not answer any more."""
        if outcome is not Outcome.FAILED or not gate.unanswered:
            self._out_of_reach[gate.name] = 0
            return
        self._out_of_reach[gate.name] += 1
        if self._out_of_reach[gate.name] >= VANISHED and gate.name not in self.vanished:
            self.vanished.add(gate.name)
            self._findings.still_held.append(
                f"{gate.name}: stopped answering; what is left of it was neither recorded nor touched"
            )

    async def _record(self, candidate: Candidate) -> str | None:
        entry = candidate.entry
        if not candidate.is_orphan or candidate.recorded:
            return await self._remover.record(entry, Outcome.STARTED, "", self._mandate)
        event_id = self._runtime.ids.event_id()
        draft = Repair(
            event_id=event_id,
            fact_id=entry.fact_id or "",
            actor=self._mandate.actor,
            receipt_id=self._mandate.receipt_id,
            reason=self._reason,
            store=entry.store,
            external_id=entry.external_id,
            scope=entry.scope,
            stored_at=entry.stored_at,
        )
        try:
            await self._ledger.append(draft)
        except AlreadyRecorded:
            return None
        return event_id


def _no_longer(candidate: Candidate, found: Unaccounted | None) -> str:
    """Return why a candidate does not have to go any more; nothing if it does."""
    if found is None:
        return PLACED
    if found.owner == candidate.entry.fact_id:
        # What was recorded before it was listed came back, and has to go again.
        is_new = found.state is PlacementState.DUE or not candidate.recorded
        return SINCE if is_new and found.state is not None else ""
    return SHARED if found.owner is not None and found.state is not PlacementState.GONE else ""


__all__ = ["PLACED", "SAVES", "SHARED", "SINCE", "Working"]
