"""Removing entries and proving that they are gone.

A removal deletes, then asks the store's own search until it no longer finds the entry or the
patience ends. What was not seen gone stays pending in the ledger, by name, until somebody sees
it gone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from custody_sync.errors import CustodyError, Refused
from custody_sync.faultpoints import FaultPoint
from custody_sync.finishing import together
from custody_sync.ledger import Ledger, Remove
from custody_sync.model import ERASED_ID, Capability, Entry, Outcome, Placement, PlacementState
from custody_sync.proving import CANNOT_PROVE, NOT_OURS, STRIPPED, Patience, Prover
from custody_sync.results import Removal
from custody_sync.runtime import Runtime
from custody_sync.stores import Gate, describe

NOT_CONFIGURED = "this store is not configured here"
KEYED = 8
"""The version of the UUIDs that `Ledger.keyed_id` makes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mandate:
    """On whose behalf removals are recorded."""

    actor: str
    receipt_id: str | None = None


class Remover(Prover):
    """Takes entries out of stores and writes every outcome into the ledger.

    Args:
        ledger: where outcomes are recorded.
        gates: the configured stores by name.
        runtime: sleep, ids and fault points.
        patience: of the questions.
    """

    def __init__(
        self, ledger: Ledger, gates: Mapping[str, Gate], runtime: Runtime, patience: Patience
    ) -> None:
        super().__init__(ledger, runtime, patience)
        self._gates = gates

    async def remove_fact(
        self, fact_id: str, mandate: Mandate, *, text: str | None = None, ask_again: bool = False
    ) -> list[Removal]:
        """Remove what the ledger owes and what the stores show of a fact that is not believed any more.

        Args:
            fact_id: the fact.
            mandate: actor and receipt for the events.
            text: its text while it is known; the stores are then probed with it.
            ask_again: also ask about entries that were seen gone before.
        """
        rows = await self._ledger.placements(fact_id)
        found, unasked = await self._find_everywhere(fact_id, rows)
        due = {(row.store, row.external_id): row for row in rows if _is_due(row, ask_again)}
        tasks: list[Coroutine[None, None, Removal | None]] = [
            self._remove_row(row, mandate, text, [e for e in found if _lies_elsewhere(e, row)])
            for row in due.values()
        ]
        tasks += [self._remove_found(e, mandate, text) for e in found if (e.store, e.external_id) not in due]
        done = await together(tasks)
        return [removal for removal in done if removal is not None] + unasked

    async def drain_row(self, row: Placement, mandate: Mandate, *, once: bool = False) -> Removal:
        """Remove one pending placement; `once` where nobody knows yet whether the store answers at all."""
        gate = self._gates.get(row.store)
        if gate is None or not once:
            return await self._remove_row(row, mandate, None)
        answers = gate.answers
        outcome, detail = await self.take_away(gate, row.to_entry(), once=True)
        if gate.answers > answers and outcome is not Outcome.VERIFIED:
            # It is there, and gets the patience that every removal gets.
            return await self._remove_row(row, mandate, None)
        return await self.settle(row.to_entry(), row.outcome, outcome, detail, mandate)

    async def _find_everywhere(
        self, fact_id: str, rows: list[Placement]
    ) -> tuple[list[Entry], list[Removal]]:
        known = {(row.store, row.external_id): row for row in rows}
        gates = [gate for gate in self._gates.values() if gate.can(Capability.FIND)]
        answers = await together(_find(gate, fact_id) for gate in gates)
        found: list[Entry] = []
        unasked: list[Removal] = []
        for gate, answer in zip(gates, answers, strict=True):
            if isinstance(answer, CustodyError):
                # Its placements are asked about anyway, but it may hold more than those.
                detail = f"cannot be asked ({describe(answer)})"
                unknown = Entry(store=gate.name, external_id="", fact_id=fact_id)
                unasked.append(_removal(unknown, Outcome.UNVERIFIED, detail))
            else:
                found += [
                    e for e in answer if _is_loose(known.get((e.store, e.external_id)), e, self._ledger)
                ]
        return found, unasked

    async def _remove_found(self, entry: Entry, mandate: Mandate, text: str | None) -> Removal | None:
        """Remove an entry that no placement owes: first on record, then in the store."""
        try:
            await self.record(entry, Outcome.STARTED, "", mandate)
        except Refused:
            # It became somebody's placement, or may still become one: not ours to take.
            return None
        except CustodyError as error:
            return _removal(entry, Outcome.FAILED, f"not recorded, so not touched ({error.code})")
        return await self._finish(entry, Outcome.STARTED, mandate, text)

    async def _remove_row(
        self, row: Placement, mandate: Mandate, text: str | None, elsewhere: Iterable[Entry] = ()
    ) -> Removal:
        return await self._finish(row.to_entry(), row.outcome, mandate, text, elsewhere)

    async def _finish(
        self,
        entry: Entry,
        last: Outcome | None,
        mandate: Mandate,
        text: str | None,
        elsewhere: Iterable[Entry] = (),
    ) -> Removal:
        """Take an entry away, and what the store shows of it in other scopes; the worst outcome counts."""
        gate = self._gates.get(entry.store)
        if gate is None:
            return await self.settle(entry, last, Outcome.FAILED, NOT_CONFIGURED, mandate)
        await self._take_away_unlabelled(gate, entry, text)
        # A store that does not look at scopes would not call it gone while another one holds it.
        places = [*elsewhere, entry]
        ends = [await self._take_place(gate, place, text) for place in places]
        outcome, detail = next((end for end in ends if end[0] is not Outcome.VERIFIED), ends[-1])
        return await self.settle(entry, last, outcome, detail, mandate)

    async def _take_place(self, gate: Gate, entry: Entry, text: str | None) -> tuple[Outcome, str]:
        """Take away what one place holds; also what lost its label and still has the very text there."""
        end = await self.take_away(gate, replace(entry, text=text))
        if end[1] != STRIPPED:
            return end
        with contextlib.suppress(CustodyError):
            if was := text or await self._text_of(entry.fact_id or ""):
                await gate.delete(replace(self._as_ours(entry), fact_id=None, text=was))
                return await self.ask(gate, replace(entry, text=was), once=True)
        return end

    async def _take_away_unlabelled(self, gate: Gate, entry: Entry, text: str | None) -> None:
        """Delete what lies under the id of an adopted entry that never got its label, if its text is known.

        A store that goes by labels would leave it, as a row of somebody else; and once its text is
        forgotten nobody can tell whether it is. Whether it is gone, the question that follows has to tell.
        """
        fact_id = entry.fact_id or ""
        if not _is_keyed(fact_id) or entry.external_id.startswith((f"{fact_id}.", ERASED_ID)):
            return
        with contextlib.suppress(CustodyError):
            events = await self._ledger.history(fact_id, limit=1)
            if not events or events[0].data.get("adopted") is not True:
                return
            if was := text or await self._text_of(fact_id):
                await gate.delete(replace(self._as_ours(entry), fact_id=None, text=was))

    async def settle(
        self, entry: Entry, last: Outcome | None, outcome: Outcome, detail: str, mandate: Mandate
    ) -> Removal:
        """Record an outcome if it changed; an outcome the ledger did not take is not claimed.

        What was seen gone stays gone when its id holds something of somebody else's since.
        """
        if last is Outcome.VERIFIED and detail in NOT_OURS.values():
            return _removal(entry, last, "seen gone before; its id holds something else now")
        if outcome is not last:
            try:
                await self.record(entry, outcome, _lasting(detail), mandate)
            except CustodyError as error:
                if outcome is Outcome.VERIFIED:
                    return _removal(entry, Outcome.UNVERIFIED, f"seen gone, but not recorded ({error.code})")
                said = f"{detail}; not recorded" if detail else "not recorded"
                return _removal(entry, outcome, f"{said} ({error.code})")
            self._runtime.reach(FaultPoint.REMOVED)
        return _removal(entry, outcome, detail)

    async def record(self, entry: Entry, outcome: Outcome, detail: str, mandate: Mandate) -> str:
        """Append a `remove` event and return its id."""
        event_id = self._runtime.ids.event_id()
        await self._ledger.append(
            Remove(
                event_id=event_id,
                fact_id=entry.fact_id or "",
                actor=mandate.actor,
                receipt_id=mandate.receipt_id,
                store=entry.store,
                external_id=entry.external_id,
                scope=entry.scope,
                stored_at=entry.stored_at or entry.created_at,
                outcome=outcome,
                detail=detail,
            )
        )
        return event_id


async def _find(gate: Gate, fact_id: str) -> list[Entry] | CustodyError:
    try:
        return await gate.find(fact_id)
    except CustodyError as error:
        return error


def _lasting(detail: str) -> str:
    """Return what an event may say for ever: an adapter's own sentences are only for results."""
    return CANNOT_PROVE if detail.startswith(CANNOT_PROVE) else detail


def _is_keyed(fact_id: str) -> bool:
    """Tell whether an id was derived of a key, as those of adopted facts are, and not made up."""
    try:
        return UUID(fact_id).version == KEYED
    except ValueError:
        return False


def all_gone(removals: Iterable[Removal]) -> bool:
    """Tell whether every removal was verified."""
    return all(removal.outcome is Outcome.VERIFIED for removal in removals)


def _is_due(row: Placement, ask_again: bool) -> bool:
    return row.state is PlacementState.DUE or (
        ask_again and row.state is PlacementState.GONE and not row.erased
    )


def _is_loose(row: Placement | None, entry: Entry, ledger: Ledger) -> bool:
    """An entry of this ledger that is neither a placement nor already dealt with as one that is due."""
    if entry.ledger_id is not None and entry.ledger_id != ledger.ledger_id:
        return False
    if row is not None and row.state is PlacementState.DUE:
        return _lies_elsewhere(entry, row)
    return row is None or row.state is PlacementState.GONE


def _lies_elsewhere(entry: Entry, row: Placement) -> bool:
    """Tell whether an entry has a placement's id and lies in another scope than was recorded."""
    same = (entry.store, entry.external_id) == (row.store, row.external_id)
    return same and None not in (entry.scope, row.scope) and entry.scope != row.scope


def _removal(entry: Entry, outcome: Outcome, detail: str) -> Removal:
    return Removal(
        store=entry.store,
        external_id=entry.external_id,
        outcome=outcome,
        detail=detail,
        fact_id=entry.fact_id or "",
    )


__all__ = ["NOT_CONFIGURED", "Mandate", "Patience", "Remover", "all_gone"]
