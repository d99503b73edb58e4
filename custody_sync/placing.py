"""Putting facts into stores, and taking back what a failed write left there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from custody_sync.errors import (
    AlreadyPlaced,
    ClosedError,
    CustodyError,
    InvalidInput,
    InvalidStore,
    LedgerError,
    Refused,
    StoreError,
    StoreRefused,
    StoreThrottled,
    StoreWriteFailed,
    Terminal,
)
from custody_sync.faultpoints import FaultPoint
from custody_sync.finishing import Finishing, together
from custody_sync.ledger import Ledger, Place
from custody_sync.model import (
    PLACEMENT_MAX_AGE,
    Capability,
    Entry,
    Fact,
    Label,
    Outcome,
    Placement,
    PlacementState,
    Provenance,
)
from custody_sync.notebook import Need, needing
from custody_sync.releasing import Notebooks
from custody_sync.removal import NOT_CONFIGURED, Mandate, Remover
from custody_sync.results import Relabelled, Restored
from custody_sync.runtime import Runtime
from custody_sync.stores import Gate, describe


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """How one store answered a put: with placements, or with an error."""

    gate: Gate
    generation: str
    placements: tuple[Placement, ...] = ()
    error: CustodyError | None = None
    need: Need | None = None
    """What it asked the store's notebook for."""

    @property
    def refused(self) -> bool:
        """True when the store certainly holds nothing."""
        return isinstance(self.error, Terminal | StoreThrottled)


class Placer:
    """Writes facts through to stores.

    Args:
        ledger: names itself in labels and records placements.
        gates: the configured stores by name.
        remover: takes back what must not stay.
        runtime: ids and fault points.
        finishing: sees compensation through when a caller gives up.
        notebooks: what the stores noted for other processes.
    """

    def __init__(
        self,
        ledger: Ledger,
        gates: Mapping[str, Gate],
        remover: Remover,
        runtime: Runtime,
        finishing: Finishing,
        notebooks: Notebooks,
    ) -> None:
        self._ledger = ledger
        self._gates = gates
        self._remover = remover
        self._runtime = runtime
        self._finishing = finishing
        self._notebooks = notebooks

    async def put_everywhere(self, fact: Fact, *, but: Collection[str] = ()) -> tuple[Put, ...]:
        """Put a fact into every store at once, but those that hold it; all of them, or none.

        Waits for all to settle before anything is taken back, so that no put can land behind
        the compensation's back unnoticed.

        Raises:
            InvalidInput: a store refused the fact by name and nothing is left anywhere.
            InvalidStore: a store cannot be used as it was set up, and nothing is left anywhere.
            StoreWriteFailed: names the store, the cause, what was removed and what may be left.
            LedgerError: what a store keeps in the ledger could not be asked; names what may be left.
        """
        gates = [gate for gate in self._gates.values() if gate.name not in but]
        if not gates:
            return ()
        tasks = [asyncio.ensure_future(self.put(gate, fact)) for gate in gates]
        try:
            puts = await asyncio.gather(*tasks)
        except BaseException:
            # Cancelled: what has landed is taken back, what is unknown stays an orphan for the sweep.
            await self._finishing.see_through(self._abandon(tasks, fact))
            raise
        failed = [put for put in puts if put.error is not None]
        if failed:
            raise await self._finishing.see_through(self._undo(fact, puts, failed))
        return tuple(puts)

    async def put(self, gate: Gate, fact: Fact) -> Put:
        """Put a fact into one store; what it raised is in the answer, and nothing is taken back."""
        generation = self._runtime.ids.generation()

        def label(now: datetime) -> Label:
            return self.label(fact, generation, now)

        with needing(fact.space) as need:
            try:
                # Asked first: a scope that cannot be told must not leave an entry that cannot be addressed.
                scope = gate.scope_of(fact)
                stamped, ids = await gate.put(fact, label)
            except CustodyError as error:
                return Put(gate=gate, generation=generation, error=error)
        placements = _placements(gate, fact, scope, stamped, ids)
        return Put(gate=gate, generation=generation, placements=placements, need=need)

    async def put_many(self, gate: Gate, facts: Sequence[Fact]) -> list[Put]:
        """Put facts of one space with one call; where it fails, any of them may have arrived."""
        generations = [self._runtime.ids.generation() for _ in facts]

        def labels(now: datetime) -> list[Label]:
            return [self.label(fact, made, now) for fact, made in zip(facts, generations, strict=True)]

        with needing(facts[0].space) as need:
            try:
                scopes = [gate.scope_of(fact) for fact in facts]
                stamped, answers = await gate.put_many(facts, labels)
            except CustodyError as error:
                return [Put(gate=gate, generation=made, error=error) for made in generations]
        return [
            Put(
                gate=gate,
                generation=label.generation,
                placements=_placements(gate, fact, scope, label, ids),
                need=need,
            )
            for fact, scope, label, ids in zip(facts, scopes, stamped, answers, strict=True)
        ]

    def label(self, fact: Fact, generation: str, stored_at: datetime) -> Label:
        """Return what is written beside a fact's text; a claim that was confirmed is attested there."""
        confirmed = fact.confirmed and fact.provenance is Provenance.CLAIMED
        return Label(
            ledger_id=self._ledger.ledger_id,
            fact_id=fact.fact_id,
            space=fact.space,
            stored_at=stored_at,
            generation=generation,
            actor=fact.actor,
            provenance=Provenance.ATTESTED if confirmed else fact.provenance,
            valid_from=fact.valid_from,
            receipt_id=fact.receipt_id,
        )

    # --- what was placed before a fact was believed --------------------------------------------

    async def relabel(self, fact: Fact, rows: Iterable[Placement]) -> tuple[Relabelled, ...]:
        """Bring the labels of entries to what their fact has become; a second put would double them."""
        return tuple(await together(self._relabel_one(fact, row) for row in rows))

    async def _relabel_one(self, fact: Fact, row: Placement) -> Relabelled:
        gate, detail = self._gates.get(row.store), ""
        if gate is None:
            detail = NOT_CONFIGURED
        elif not gate.can(Capability.RELABEL):
            detail = f"keeps its old label ({gate.supports[Capability.RELABEL].reason})"
        else:
            try:
                await self._relabel_at(gate, fact, row)
            except CustodyError as error:
                detail = f"keeps its old label ({describe(error)})"
        return Relabelled(store=row.store, external_id=row.external_id, detail=detail)

    async def _relabel_at(self, gate: Gate, fact: Fact, row: Placement) -> None:
        label, entry = await self._label_of(gate, fact, row), row.to_entry()
        try:
            await gate.relabel(entry, label)
        except StoreRefused:
            # An adopted entry may never have had a label; it gets one only beside the adopted text.
            await gate.relabel(replace(entry, fact_id=None, text=fact.text), label)

    async def _label_of(self, gate: Gate, fact: Fact, row: Placement) -> Label:
        """Return the label an entry is to have: since when it is there, and its key, do not change."""
        known, _, generation = row.external_id.partition(".")
        if known != fact.fact_id and gate.can(Capability.FIND):
            entries = await gate.find(fact.fact_id)
            generation = next((e.generation or "" for e in entries if e.external_id == row.external_id), "")
        stored_at = row.stored_at or self._runtime.clock.now()
        return self.label(fact, generation or self._runtime.ids.generation(), stored_at)

    async def stand_by(self, puts: Iterable[Put]) -> None:
        """See that what recorded puts relied on is still noted; nothing that fails here undoes them."""
        for put in puts:
            if put.need is not None:
                await self.stand_by_need(put.need)

    async def stand_by_need(self, need: Need) -> None:
        """See that what a recorded fact's space needs is still noted."""
        if need.claims:
            with contextlib.suppress(CustodyError):
                await self._notebooks.renew(need)

    async def _abandon(self, tasks: Sequence[asyncio.Future[Put]], fact: Fact) -> None:
        for task in tasks:
            task.cancel()
        settled = await asyncio.gather(*tasks, return_exceptions=True)
        await self.take_back(fact, [put for put in settled if isinstance(put, Put)])

    async def _undo(self, fact: Fact, puts: Sequence[Put], failed: Sequence[Put]) -> CustodyError:
        removed, left = await self.take_back(fact, puts)
        first = failed[0]
        if isinstance(first.error, InvalidInput | InvalidStore) and not left:
            return first.error
        if isinstance(first.error, LedgerError) and all(isinstance(p.error, LedgerError) for p in failed):
            # The stores are well: adapters keep notes in the ledger, and that did not answer.
            return first.error.leaving(left)
        later = {"retry_after": first.error.retry_after} if isinstance(first.error, StoreThrottled) else {}
        return StoreWriteFailed(
            store=first.gate.name,
            cause=describe(first.error) if first.error else "",
            removed=removed,
            left=left,
            fact_id=fact.fact_id,
            **later,
        )

    # --- what a failed write left ---------------------------------------------------------------

    async def take_back_all(self, fact: Fact, puts: Sequence[Put]) -> list[str]:
        """Delete and verify what the ledger did not take; returns the stores where it may be left."""
        _, left = await self._finishing.see_through(self.take_back(fact, puts))
        return left

    async def take_back(self, fact: Fact, puts: Sequence[Put]) -> tuple[list[str], list[str]]:
        """Delete and verify what puts left; returns where it was removed, and where it may be left."""
        self._runtime.reach(FaultPoint.BEFORE_COMPENSATION)
        clean = await together(self._take_back_one(fact, put) for put in puts)
        removed = [put.gate.name for put, gone in zip(puts, clean, strict=True) if gone is True]
        left = [put.gate.name for put, gone in zip(puts, clean, strict=True) if gone is False]
        return removed, left

    async def _take_back_one(self, fact: Fact, put: Put) -> bool | None:
        """Return True when it was there and is gone, None when it never was, False when nobody can say."""
        try:
            entries, all_known = await (self._landed(fact, put) if put.error else self._answered(fact, put))
        except StoreError:
            return None if put.refused else False
        except Exception:
            # The ledger cannot say whose it is, so it stays; the sweep will know.
            return False
        outcomes = [(await self._remover.take_away(put.gate, entry))[0] for entry in entries]
        if not all_known or not all(outcome is Outcome.VERIFIED for outcome in outcomes):
            return False
        return True if outcomes else None

    async def _landed(self, fact: Fact, put: Put) -> tuple[list[Entry], bool]:
        """Return what a failed put left all the same, and whether that is certainly all."""
        if not put.gate.can(Capability.FIND):
            return [], put.refused
        # Only what this very put left: another process may be placing the same fact right now.
        shown = [entry for entry in await put.gate.find(fact.fact_id) if _is_left_by(entry, put)]
        ours = [entry for entry in shown if not await self._stands_for_a_fact(entry)]
        # After a lost reply an empty answer proves nothing: the put may still land.
        return ours, put.refused or bool(shown)

    async def _answered(self, fact: Fact, put: Put) -> tuple[list[Entry], bool]:
        """Return what a put answered with, as far as it is certainly its own, and whether that is all.

        A key that we chose is no other write's. An id that the store made may stand for an equal text of
        one that is still under way, so it is ours only where the store shows our label under it.
        """
        entries = [placement.to_entry(fact.text) for placement in put.placements]
        loose = [entry for entry in entries if not await self._stands_for_a_fact(entry)]
        made = {e.external_id for e in loose if not e.external_id.startswith(f"{fact.fact_id}.")}
        if made and put.gate.can(Capability.FIND):
            found = await put.gate.find(fact.fact_id)
            made -= {entry.external_id for entry in found if _is_left_by(entry, put)}
        return [entry for entry in loose if entry.external_id not in made], not made

    async def _stands_for_a_fact(self, entry: Entry) -> bool:
        """Tell whether the ledger placed it: for a fact of equal text, or since a salvage took it up."""
        fact_id = entry.fact_id or ""
        try:
            loose = await self._ledger.unaccounted(entry.store, {entry.external_id: fact_id}, keep=True)
        except (LedgerError, ClosedError):
            # A key that we chose, so young that no salvage takes it yet, is nobody else's.
            since, chosen = entry.stored_at, entry.external_id.startswith(f"{fact_id}.")
            if chosen and since and abs(self._runtime.clock.now() - since) < PLACEMENT_MAX_AGE:
                return False
            raise
        return not any(row.owner in (None, fact_id) or row.state is PlacementState.GONE for row in loose)

    # --- what a retraction brings back ------------------------------------------------------

    async def restore(
        self,
        fact_id: str | None,
        mandate: Mandate,
        *,
        limit: int = 1000,
        after: tuple[str, str] | None = None,
    ) -> list[Restored]:
        """Place what is owed of one fact, or of all: facts that are believed again and missing in a store."""
        owed = await self._ledger.owed(fact_id, limit=limit, after=after)
        return await together(self.place(f, store, mandate) for f, store in owed)

    async def place(
        self, fact: Fact | str, store: str, mandate: Mandate, *, replaces: tuple[str, ...] = ()
    ) -> Restored:
        """Place what one store lacks; whatever stands in the way is said in the result.

        Args:
            fact: as the ledger has just given it, or its id.
            store: the store.
            mandate: actor and receipt for the event.
            replaces: external ids of what the store holds of it, which have to go once it is placed.
        """
        fact_id = fact if isinstance(fact, str) else fact.fact_id
        try:
            found = await self._ledger.get(fact) if isinstance(fact, str) else fact
            return await self._place_again(fact_id, found, store, mandate, replaces)
        except InvalidInput as error:
            return Restored(fact_id=fact_id, store=store, detail=f"put refused ({error.code})")
        except CustodyError as error:
            # Whether it was recorded is unknown: the sweep will know, and removes it if it was not.
            return Restored(fact_id=fact_id, store=store, detail=f"not recorded ({error.code})")

    async def _place_again(
        self, fact_id: str, fact: Fact | None, store: str, mandate: Mandate, replaces: tuple[str, ...]
    ) -> Restored:
        gate = self._gates.get(store)
        if gate is None or fact is None:
            return Restored(fact_id=fact_id, store=store, detail=NOT_CONFIGURED)
        # Its limit may be another one than when the fact was written.
        gate.check_text(fact.text or "")
        put = await self.put(gate, fact)
        if put.error is not None:
            return Restored(fact_id=fact_id, store=store, detail=f"put failed ({describe(put.error)})")
        self._runtime.reach(FaultPoint.RESTORED)
        place = Place(
            event_id=self._runtime.ids.event_id(),
            fact_id=fact_id,
            actor=mandate.actor,
            receipt_id=mandate.receipt_id,
            placements=put.placements,
            replaces=tuple((store, external_id) for external_id in replaces),
        )
        try:
            await self._ledger.append(place)
        except Refused as refusal:
            _, left = await self.take_back(fact, [put])
            ids, detail = tuple[str, ...](), f"not recorded ({refusal.code})"
            if isinstance(refusal, AlreadyPlaced):
                its = await self._ledger.placements(fact_id)
                ids = tuple(p.external_id for p in its if (p.store, p.state) == (store, PlacementState.HELD))
                detail = "placed by another process"
            if left:
                ids, detail = (), f"{detail}; an entry of this try may be left: run repair"
            return Restored(fact_id=fact_id, store=store, external_ids=ids, detail=detail)
        await self.stand_by([put])
        placed = tuple(p.external_id for p in put.placements)
        return Restored(fact_id=fact_id, store=store, external_ids=placed)


def _placements(
    gate: Gate, fact: Fact, scope: str | None, label: Label, ids: Iterable[str]
) -> tuple[Placement, ...]:
    return tuple(
        Placement(
            store=gate.name,
            external_id=external_id,
            fact_id=fact.fact_id,
            scope=scope,
            stored_at=label.stored_at,
        )
        for external_id in ids
    )


def _is_left_by(entry: Entry, put: Put) -> bool:
    return entry.generation == put.generation or entry.external_id == f"{entry.fact_id}.{put.generation}"
