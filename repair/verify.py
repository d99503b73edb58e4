"""Asking every store again about every removed fact.

A removal that was verified once can be undone by a store's own restore, a late put or a
re-index; asking again is the only way to know. Nothing is deleted here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

from custody_sync.canonical import check_name
from custody_sync.errors import CustodyError, InvalidInput, NotRemoved, UnknownFact
from custody_sync.finishing import together
from custody_sync.ledger import Ledger
from custody_sync.model import (
    Capability,
    Outcome,
    Placement,
    PlacementState,
    Standing,
)
from custody_sync.removal import NOT_CONFIGURED, Mandate, Remover, all_gone
from custody_sync.results import (
    Removal,
    VerifyResult,
)
from custody_sync.stores import Gate, describe

CONCURRENCY = 32
REMOVED = (PlacementState.DUE, PlacementState.GONE)


async def verify_removed(
    ledger: Ledger,
    gates: Mapping[str, Gate],
    remover: Remover,
    mandate: Mandate,
    fact_ids: Sequence[str] | None,
) -> VerifyResult:
    """Ask about all removed facts, or the given ones, and record every changed outcome.

    A fact that is believed again is not a removed one: only entries of it that are still due are
    asked about.

    Raises:
        InvalidInput: `fact_ids` is not a list of ids.
        UnknownFact: a given id was never in this ledger.
        NotRemoved: a given fact is believed.
    """
    limiter = asyncio.Semaphore(CONCURRENCY)
    removals: list[Removal] = []
    async for facts, rows in _rows(ledger, fact_ids):
        askable = [row for row in rows if not row.erased]
        removals += await together(_ask(row, gates, remover, mandate, limiter) for row in askable)
        erased = {(row.fact_id, row.store) for row in rows if row.erased}
        found = await together(_ask_by_id(f, ledger, gates, erased, limiter) for f in facts)
        removals += [removal for some in found for removal in some]
    return VerifyResult(
        asked=len(removals), removals=tuple(removals), complete=bool(removals) and all_gone(removals)
    )


async def _rows(
    ledger: Ledger, fact_ids: Sequence[str] | None
) -> AsyncIterator[tuple[list[str], list[Placement]]]:
    if fact_ids is not None:
        if isinstance(fact_ids, str):
            raise InvalidInput(field="fact_ids", problem="must be a list of ids, not one string")
        ids = list(dict.fromkeys(check_name(fact_id, "fact_id") for fact_id in fact_ids))
        for fact_id, standing in (await ledger.known(ids)).items():
            if standing is Standing.UNKNOWN:
                raise UnknownFact(fact_id=fact_id)
        for fact_id in ids:
            rows = _removed(await ledger.placements(fact_id))
            if rows is None:
                raise NotRemoved(fact_id=fact_id)
            yield [fact_id], rows
        return
    after: int | None = None
    while True:
        page = await ledger.removed(limit=500, after=after)
        facts = list(dict.fromkeys(row.fact_id for row in page))
        believed = {f for f in facts if _is_believed(await ledger.placements(f))}
        due = [row for row in page if row.fact_id not in believed or row.state is PlacementState.DUE]
        yield [fact_id for fact_id in facts if fact_id not in believed], due
        after = page.next
        if after is None:
            return


def _is_believed(rows: Sequence[Placement]) -> bool:
    return any(row.state is PlacementState.HELD for row in rows)


def _removed(rows: Sequence[Placement]) -> list[Placement] | None:
    """Return what is to be asked about; None where the fact is believed and nothing of it is due."""
    due = [row for row in rows if row.state is PlacementState.DUE]
    if _is_believed(rows):
        return due or None
    return [row for row in rows if row.state in REMOVED]


async def _ask(
    row: Placement, gates: Mapping[str, Gate], remover: Remover, mandate: Mandate, limiter: asyncio.Semaphore
) -> Removal:
    gate = gates.get(row.store)
    entry = row.to_entry()
    async with limiter:
        if gate is None:
            outcome, detail = Outcome.FAILED, NOT_CONFIGURED
        else:
            outcome, detail = await remover.ask(gate, entry)
            if outcome is Outcome.STILL_INDEXED and row.outcome is Outcome.FAILED:
                # It was never deleted, so waiting for an index would be in vain.
                outcome, detail = Outcome.FAILED, "its delete failed before; run repair"
        if row.state is PlacementState.DUE:
            return await remover.settle(entry, row.outcome, outcome, detail, mandate)
        if outcome is Outcome.STILL_INDEXED:
            return await remover.settle(entry, Outcome.VERIFIED, outcome, detail, mandate)
        # A store that does not answer takes nothing back of what it answered before.
        return Removal(
            store=row.store, external_id=row.external_id, outcome=outcome, detail=detail, fact_id=row.fact_id
        )


async def _ask_by_id(
    fact_id: str,
    ledger: Ledger,
    gates: Mapping[str, Gate],
    erased: set[tuple[str, str]],
    limiter: asyncio.Semaphore,
) -> list[Removal]:
    """Look for entries of a removed fact that the ledger has no record of, or no record of any more."""
    recorded = {(row.store, row.external_id) for row in await ledger.placements(fact_id)}
    found: list[Removal] = []
    for gate in gates.values():
        owes_proof = (fact_id, gate.name) in erased
        if not gate.can(Capability.FIND):
            if owes_proof:
                detail = "its ids were erased and the store cannot be asked by fact id"
                found.append(_unrecorded(gate, "", fact_id, Outcome.UNVERIFIED, detail))
            continue
        async with limiter:
            try:
                entries = await gate.find(fact_id)
            except CustodyError as error:
                detail = f"cannot be asked by fact id ({describe(error)})"
                found.append(_unrecorded(gate, "", fact_id, Outcome.UNVERIFIED, detail))
                continue
        loose = [entry for entry in entries if (entry.store, entry.external_id) not in recorded]
        found += [
            _unrecorded(gate, e.external_id, fact_id, Outcome.STILL_INDEXED, "unrecorded; run repair")
            for e in loose
        ]
        if owes_proof and not loose:
            found.append(_unrecorded(gate, "", fact_id, Outcome.VERIFIED, "asked by fact id"))
    return found


def _unrecorded(gate: Gate, external_id: str, fact_id: str, outcome: Outcome, detail: str) -> Removal:
    return Removal(store=gate.name, external_id=external_id, outcome=outcome, detail=detail, fact_id=fact_id)
