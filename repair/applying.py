"""Carrying out a plan: exactly its lines, and of these what still holds."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice

from custody_sync.errors import CustodyError
from custody_sync.ledger import Ledger
from custody_sync.model import REPAIR_MIN_AGE, Capability, Leftover, Placement, PlacementState, read_instant
from custody_sync.repair.draining import Allowance, Draining
from custody_sync.repair.findings import Findings
from custody_sync.repair.lease import Lease
from custody_sync.repair.listing import Candidate
from custody_sync.repair.pile import drop_left
from custody_sync.repair.plan import Line, read_plan
from custody_sync.repair.working import PLACED, SINCE, Working
from custody_sync.results import Repaired, Skipped
from custody_sync.stores import Gate, describe

PAGE = 500
NOT_CONFIGURED = "its store is not configured here, or was not selected"
YOUNG = "it is younger than ten minutes, or nobody can say how old it is"
NOT_SHOWN = "its store does not show it any more"
BLIND = "its store cannot be asked for one fact, so nobody can say whose it is now: run repair"
STRANGE = "its store shows it under another ledger's label"
REFUSED = "it is, or may become, the entry of a believed fact"
VANISHED = "its store stopped answering"
SETTLED = (PLACED, SINCE, NOT_SHOWN)


class Applying:
    """Carries out a plan.

    Args:
        ledger: judges each line once more.
        gates: the configured stores by name, as far as they were selected.
        working: removes what a listing had shown.
        draining: removes what the ledger owes.
        lease: kept while it works.
        allowance: how many removals may be begun.
        findings: take what became of each line.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        gates: Mapping[str, Gate],
        working: Working,
        draining: Draining,
        lease: Lease,
        allowance: Allowance,
        findings: Findings,
    ) -> None:
        self._ledger = ledger
        self._gates = gates
        self._working = working
        self._draining = draining
        self._lease = lease
        self._allowance = allowance
        self._findings = findings

    async def run(self, path: os.PathLike[str] | str) -> None:
        """Work off every line of a file that was read to its end before."""
        await drop_left(self._ledger)
        for page in _pages(read_plan(path, self._ledger)):
            # A line that stands there twice is one; on a later page it is done already.
            lines = list(_by_entry(page).values())
            await self._lease.renew()
            latest = self._ledger.now() - REPAIR_MIN_AGE
            there = [line for line in lines if self._has_store(line.candidate)]
            rows = await self._owed([line.candidate for line in there if line.owed])
            rows = rows[: self._allowance.grant(len(rows))]
            done = await self._lease.each(rows, self._remove_owed)
            self._findings.repaired += [item for item in done if item is not None]
            due = await self._due([line.candidate for line in there if not line.owed], latest)
            granted = self._allowance.grant(len(due))
            for left in await self._working.remove(due[:granted]):
                vanished = left.entry.store in self._working.vanished
                self._skip(left, VANISHED if vanished else REFUSED)

    def _has_store(self, candidate: Candidate) -> bool:
        known = candidate.entry.store in self._gates
        if not known:
            self._skip(candidate, NOT_CONFIGURED)
        return known

    # --- what the ledger owes ---------------------------------------------------------------

    async def _owed(self, candidates: Sequence[Candidate]) -> list[Placement]:
        """Return the placements that still have to go."""
        rows: list[Placement] = []
        now = self._ledger.now()
        for candidate in candidates:
            entry = candidate.entry
            ended = candidate.kind is not Leftover.PENDING
            for row in await self._ledger.placements(entry.fact_id or ""):
                if (row.store, row.external_id) == (entry.store, entry.external_id):
                    break
            else:
                self._skip(candidate, SINCE)
                continue
            if row.state is PlacementState.GONE:
                self._skip(candidate, SINCE)
            elif row.state is not PlacementState.DUE and not (ended and await self._is_over(row, now)):
                self._skip(candidate, PLACED)
            else:
                rows.append(row)
        return rows

    async def _is_over(self, row: Placement, now: datetime) -> bool:
        loose = await self._ledger.unaccounted(row.store, {row.external_id: row.fact_id}, keep=True)
        return bool(loose)

    async def _remove_owed(self, row: Placement) -> Repaired | None:
        if row.state is PlacementState.DUE:
            return await self._draining.remove_pending(row)
        return await self._draining.remove_stray(row)

    # --- what a listing had shown -----------------------------------------------------------

    async def _due(self, candidates: Sequence[Candidate], latest: datetime) -> list[Candidate]:
        """Return what still has to go, as its store shows it now; the rest is skipped, with the reason."""
        reasons = await self._working.judge(candidates)
        held = []
        for candidate in candidates:
            reason = reasons.get((candidate.entry.store, candidate.entry.external_id), "")
            if reason:
                self._skip(candidate, reason)
            else:
                held.append(candidate)
        looked = await self._lease.each(held, self._look)
        return [one for one in looked if one is not None and not self._is_young(one, latest)]

    async def _look(self, candidate: Candidate) -> Candidate | None:
        """Ask the store for the entry: the file may say of it what it likes."""
        entry = candidate.entry
        gate = self._gates[entry.store]
        if not gate.can(Capability.FIND):
            self._skip(candidate, BLIND)
            return None
        try:
            found = await gate.find(entry.fact_id or "")
        except CustodyError as error:
            self._skip(candidate, f"its store cannot be asked ({describe(error)})")
            return None
        shown = [one for one in found if one.external_id == entry.external_id]
        ours = [one for one in shown if one.ledger_id == self._ledger.ledger_id]
        if not ours:
            self._skip(candidate, STRANGE if shown else NOT_SHOWN)
            return None
        return Candidate(ours[0], candidate.kind, candidate.recorded)

    def _is_young(self, candidate: Candidate, latest: datetime) -> bool:
        age_from = candidate.entry.stored_at or read_instant(candidate.entry.created_at)
        young = age_from is None or age_from > latest
        if young:
            self._skip(candidate, YOUNG)
        return young

    def _skip(self, candidate: Candidate, reason: str) -> None:
        entry = candidate.entry
        self._findings.skipped.append(
            Skipped(
                store=entry.store,
                external_id=entry.external_id,
                fact_id=entry.fact_id or "",
                reason=reason,
                settled=reason in SETTLED,
            )
        )


def _by_entry(lines: Sequence[Line]) -> dict[tuple[str, str, str | None, bool], Line]:
    entries = [(line.candidate.entry, line) for line in lines]
    return {(e.store, e.external_id, e.fact_id, line.owed): line for e, line in entries}


def _pages(lines: Iterator[Line]) -> Iterator[list[Line]]:
    while page := list(islice(lines, PAGE)):
        yield page


__all__ = ["Applying"]
