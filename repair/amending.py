"""Mending differences: what is missing or altered is put anew, what has no place is taken away.

The new entry is put and on record before the old one is touched, and every removal is on record
before it begins, so that a run can end anywhere and the next one goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from custody_sync.errors import CustodyError, Refused
from custody_sync.faultpoints import FaultPoint
from custody_sync.finishing import together
from custody_sync.gathering import FEW, Gathering
from custody_sync.ledger import Ledger
from custody_sync.mended import Difference, Drift, Mended
from custody_sync.model import Capability, Entry, Fact, Leftover, Outcome, Placement, PlacementState
from custody_sync.placing import Placer
from custody_sync.removal import Mandate, Remover
from custody_sync.repair.absent import CURRENT
from custody_sync.repair.differing import WAITS, Drifted, waits
from custody_sync.repair.findings import Findings
from custody_sync.repair.lease import Lease
from custody_sync.repair.listing import Candidate
from custody_sync.repair.readback import ReadBack
from custody_sync.repair.selection import Selection
from custody_sync.repair.working import Working
from custody_sync.results import Removal
from custody_sync.runtime import Runtime
from custody_sync.stores import Gate, describe

PAGE = 500
GOES = (Drift.ORPHAN, Drift.STRAY)


class Amending:
    """Mends differences, a page at a time.

    Args:
        ledger: what is right.
        gates: the configured stores by name.
        placer: puts, and knows labels.
        remover: deletes and verifies.
        runtime: ids, clock and fault points.
        lease: kept while it works.
        read_back: looks at what was mended.
        mandate: on whose behalf.
        reason: recorded with every orphan.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        gates: Mapping[str, Gate],
        placer: Placer,
        remover: Remover,
        runtime: Runtime,
        lease: Lease,
        read_back: ReadBack,
        mandate: Mandate,
        reason: str,
    ) -> None:
        self._ledger = ledger
        self._gates = gates
        self._placer = placer
        self._remover = remover
        self._runtime = runtime
        self._lease = lease
        self._read_back = read_back
        self._mandate = mandate
        self._findings = Findings()
        # Facts that are in work at the same time are asked about together.
        self._fact = Gathering(ledger.facts, at_once=FEW)
        self._placements = Gathering(ledger.placements_of, at_once=FEW)
        self._working = Working(
            ledger=ledger,
            gates=gates,
            remover=remover,
            runtime=runtime,
            lease=lease,
            mandate=mandate,
            reason=reason,
            findings=self._findings,
        )

    @property
    def vanished(self) -> set[str]:
        """Stores that stopped answering meanwhile."""
        return self._working.vanished

    async def drain(self, selection: Selection) -> None:
        """Remove what the ledger ordered to go before, such as what a killed run had replaced.

        What is left after that and still shown is a stray.
        """
        after: int | None = None
        while True:
            page = await self._ledger.pending(limit=PAGE, after=after)
            rows = [row for row in page if selection.has_store(row.store) and row.store in self._gates]
            rows = await self._selected(rows, selection)
            await self._lease.each(rows, lambda row: self._remover.drain_row(row, self._mandate))
            await self._lease.renew()
            after = page.next
            if after is None:
                break
        for store in self._gates:
            if selection.has_store(store):
                await self._drain_ended(store, selection)

    async def _drain_ended(self, store: str, selection: Selection) -> None:
        """Remove the entries of facts that came to their end: no breaker has to stop what was to be."""
        after: int | None = None
        while True:
            page = await self._ledger.ended(store, limit=PAGE, after=after)
            rows = await self._selected(page, selection)
            await self._lease.each(rows, self._remove_ended)
            await self._lease.renew()
            after = page.next
            if after is None:
                return

    async def _selected(self, rows: Sequence[Placement], selection: Selection) -> list[Placement]:
        """Return the placements of facts whose spaces are selected."""
        if selection.space is None:
            return list(rows)
        facts = await self._ledger.facts([row.fact_id for row in rows])
        spaces = {fact_id: None if fact is None else fact.space for fact_id, fact in facts.items()}
        return [row for row in rows if selection.has_space(spaces[row.fact_id])]

    async def _remove_ended(self, row: Placement) -> None:
        try:
            await self._remover.record(row.to_entry(), Outcome.STARTED, "", self._mandate)
        except CustodyError:
            # It lives on, or was not recorded and so not touched: the comparison shows what is left.
            return
        await self._remover.drain_row(replace(row, outcome=Outcome.STARTED), self._mandate)

    async def mend(self, page: Sequence[Drifted]) -> list[Difference]:
        """Mend what of a page still differs, and say what became of each."""
        going = [one for one in page if one.kind in GOES]
        rest = [one for one in page if one.kind not in GOES]
        done = await together([self._take_away(going), self._mend_facts(rest)])
        return [one for some in done for one in some]

    async def _mend_facts(self, page: Sequence[Drifted]) -> list[Difference]:
        facts: dict[tuple[str, str], list[Drifted]] = {}
        for one in page:
            facts.setdefault((one.entry.store, one.fact_id), []).append(one)
        done = await self._lease.each(facts.values(), self._mend_fact)
        return [one for some in done for one in some]

    # --- what has no place ------------------------------------------------------------------

    async def _take_away(self, page: Sequence[Drifted]) -> list[Difference]:
        """Remove orphans and strays as a sweep does."""
        if not page:
            return []
        candidates = [_candidate(one) for one in page]
        reasons = await self._working.judge([c for c in candidates if not c.recorded])
        going = [c for c in candidates if (c.entry.store, c.entry.external_id) not in reasons]
        self._findings.repaired = []
        await self._working.remove(going)
        repaired = {(item.store, item.external_id): item for item in self._findings.repaired}
        done = []
        for one in page:
            item = repaired.get((one.entry.store, one.entry.external_id))
            if item is not None:
                outcome = Mended.MENDED if item.outcome is Outcome.VERIFIED else Mended.LEFT
                said = "" if outcome is Mended.MENDED else item.detail or item.outcome.value
                done.append(difference_of(one, outcome, said))
            elif one.entry.store in self.vanished:
                done.append(difference_of(one, Mended.LEFT, "the store stopped answering"))
            else:
                done.append(difference_of(one, Mended.SETTLED))
        return done

    # --- what is missing or altered ---------------------------------------------------------

    async def _mend_fact(self, some: Sequence[Drifted]) -> list[Difference]:
        """Mend all that differs of one fact in one store: several of its entries may."""
        store, fact_id = some[0].entry.store, some[0].fact_id
        try:
            rows = [
                row for row in await self._placements(fact_id) if row.store == store and row.state in CURRENT
            ]
        except CustodyError as error:
            return [difference_of(one, Mended.LEFT, f"not known ({error.code})") for one in some]
        current = {row.external_id: row for row in rows}
        still = [one for one in some if one.entry.external_id in current]
        done = [difference_of(one, Mended.SETTLED) for one in some if one not in still]
        if all(self._keeps_its_text(one) for one in still):
            return done + [await self._relabel(one, current[one.entry.external_id]) for one in still]
        held = [row for row in rows if row.state is PlacementState.HELD]
        kept = [one for one in still if current[one.entry.external_id].state is PlacementState.KEPT]
        done += [await self._give_up(one) for one in kept]
        return done + await self._replace([one for one in still if one not in kept], held)

    def _keeps_its_text(self, one: Drifted) -> bool:
        can_relabel = self._gates[one.entry.store].can(Capability.RELABEL)
        return one.kind is Drift.ALTERED_LABEL and can_relabel

    async def _relabel(self, one: Drifted, row: Placement) -> Difference:
        gate, entry = self._gates[row.store], one.entry
        try:
            fact = await self._fact(row.fact_id)
        except CustodyError as error:
            return difference_of(one, Mended.LEFT, f"not known ({error.code})")
        if fact is None:
            return difference_of(one, Mended.SETTLED)
        known, dot, embedded = row.external_id.partition(".")
        generation = embedded if dot and known == fact.fact_id else entry.generation
        stored_at = row.stored_at or entry.stored_at or self._runtime.clock.now()
        label = self._placer.label(fact, generation or self._runtime.ids.generation(), stored_at)
        # What has no label is known by its text, which was seen to be ours.
        shown = replace(entry, text=fact.text) if entry.fact_id is None else entry
        try:
            await gate.relabel(shown, label)
        except CustodyError as error:
            return difference_of(one, Mended.LEFT, f"keeps its label ({describe(error)})")
        return await self._looked_at(one, fact, [row], difference_of(one, Mended.MENDED))

    async def _looked_at(
        self, one: Drifted, fact: Fact, rows: Sequence[Placement], done: Difference
    ) -> Difference:
        """Say that it is mended only where the store shows what it should."""
        gate = self._gates[one.entry.store]
        try:
            seen = [await self._read_back.look(gate, fact, row, one) for row in rows]
        except CustodyError as error:
            seen = [f"what came of it is not known ({error.code})"]
        said = next((problem for problem in seen if problem), "")
        return replace(done, outcome=Mended.LEFT, detail=said) if said else done

    async def _give_up(self, one: Drifted) -> Difference:
        """Remove what is left of a superseded fact that is only kept: it cannot be put again."""
        entry = replace(one.entry, fact_id=one.fact_id, ledger_id=None)
        try:
            await self._remover.record(entry, Outcome.STARTED, "", self._mandate)
        except Refused:
            return difference_of(one, Mended.SETTLED)
        except CustodyError as error:
            return difference_of(one, Mended.LEFT, f"not recorded, so not touched ({error.code})")
        gate = self._gates[entry.store]
        outcome, detail = await self._remover.take_away(gate, entry)
        removal = await self._remover.settle(entry, Outcome.STARTED, outcome, detail, self._mandate)
        return _ended(one, [removal], ())

    async def _replace(self, some: Sequence[Drifted], held: Sequence[Placement]) -> list[Difference]:
        """Put a fact anew in place of all that the store held of it, then take that away."""
        if not some:
            return []
        store, fact_id = some[0].entry.store, some[0].fact_id
        try:
            fact = await self._fact(fact_id)
        except CustodyError as error:
            return [difference_of(one, Mended.LEFT, f"not known ({error.code})") for one in some]
        if fact is None:
            return [difference_of(one, Mended.SETTLED) for one in some]
        if waits(fact) or fact.valid_from > self._ledger.now():
            why = WAITS if waits(fact) else "it is put once it begins"
            return [difference_of(one, Mended.LEFT, why) for one in some]
        old = tuple(row.external_id for row in held)
        restored = await self._placer.place(fact, store, self._mandate, replaces=old)
        if not restored.placed:
            return [difference_of(one, Mended.LEFT, restored.detail) for one in some]
        if restored.detail:
            return [difference_of(one, Mended.SETTLED, restored.detail) for one in some]
        self._runtime.reach(FaultPoint.RECONCILE_PLACED)
        shown = {one.entry.external_id: one.entry for one in some}
        removals = [await self._take_out(row, shown.get(row.external_id)) for row in held]
        return await self._shown(some, fact, restored.external_ids, removals)

    async def _take_out(self, row: Placement, shown: Entry | None) -> Removal:
        """Remove what was replaced; where its label names another fact, a store knows it only by that."""
        if shown is None or shown.fact_id in (None, row.fact_id):
            return await self._remover.drain_row(row, self._mandate)
        outcome, detail = await self._remover.take_away(self._gates[row.store], shown)
        return await self._remover.settle(row.to_entry(), row.outcome, outcome, detail, self._mandate)

    async def _shown(
        self, some: Sequence[Drifted], fact: Fact, put: tuple[str, ...], removals: Sequence[Removal]
    ) -> list[Difference]:
        store = some[0].entry.store
        done = [_ended(one, removals, put) for one in some]
        try:
            rows = await self._placements(fact.fact_id)
        except CustodyError as error:
            said = f"what came of it is not known ({error.code})"
            return [replace(one, outcome=Mended.LEFT, detail=said) for one in done]
        rows = [row for row in rows if row.store == store and row.external_id in put]
        first = await self._looked_at(some[0], fact, rows, done[0])
        if first is done[0]:
            return done
        return [replace(one, outcome=first.outcome, detail=first.detail) for one in done]


def difference_of(one: Drifted, outcome: Mended, detail: str = "") -> Difference:
    """Return a difference as the result tells it."""
    return Difference(
        store=one.entry.store,
        kind=one.kind,
        external_id=one.entry.external_id,
        fact_id=one.fact_id,
        outcome=outcome,
        detail=detail or one.detail,
    )


def _ended(one: Drifted, removals: Sequence[Removal], put: tuple[str, ...]) -> Difference:
    left = [removal for removal in removals if removal.outcome is not Outcome.VERIFIED]
    outcome = Mended.LEFT if left else Mended.MENDED
    said = "; ".join(f"{r.external_id} is {r.outcome.value}" for r in left)
    return replace(difference_of(one, outcome, said), external_ids=put)


def _candidate(one: Drifted) -> Candidate:
    kind = Leftover.ORPHAN if one.kind is Drift.ORPHAN else Leftover.STRAY
    return Candidate(one.entry, kind, one.recorded)


__all__ = ["Amending", "difference_of"]
