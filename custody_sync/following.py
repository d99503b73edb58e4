"""What the stores still have to do once the ledger has decided.

Nothing here raises for a store or for the ledger: the event is recorded, so whatever cannot be
done now is named in the result and left to the next call, to `repair` and to `verify`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from custody_sync.errors import CustodyError
from custody_sync.ledger import Ledger
from custody_sync.model import (
    Capability,
    Erasure,
    Fact,
    Outcome,
    Placement,
    PlacementState,
)
from custody_sync.placing import Placer
from custody_sync.releasing import Notebooks
from custody_sync.removal import Mandate, Remover
from custody_sync.results import (
    Removal,
    Restored,
)
from custody_sync.stores import Gate, describe

MOST_LINKS = 20
PAGE = 100
GONE = "it holds it no more; reconcile puts it again"


class FollowUp:
    """Brings the stores to where the ledger is.

    Args:
        ledger: what is decided.
        gates: the configured stores by name.
        remover: takes entries away.
        placer: puts back what is believed again.
        notebooks: what the stores noted, and let go of.
    """

    def __init__(
        self,
        ledger: Ledger,
        gates: Mapping[str, Gate],
        remover: Remover,
        placer: Placer,
        notebooks: Notebooks,
    ) -> None:
        self.notebooks = notebooks
        self._ledger = ledger
        self._gates = gates
        self._remover = remover
        self._placer = placer

    async def remove(
        self, fact_id: str, mandate: Mandate, *, text: str | None = None, ask_again: bool = False
    ) -> tuple[Removal, ...]:
        """Remove what is due of a fact; where the ledger cannot be asked, say so for every store."""
        try:
            return tuple(await self._remover.remove_fact(fact_id, mandate, text=text, ask_again=ask_again))
        except CustodyError as error:
            return tuple(
                Removal(
                    store=name,
                    external_id="",
                    outcome=Outcome.UNVERIFIED,
                    detail=f"not removed yet ({error.code})",
                    fact_id=fact_id,
                )
                for name in self._gates or ("",)
            )

    async def restore(self, fact: Fact, mandate: Mandate) -> tuple[Restored, ...]:
        """Place what a retraction brought back: the nearest link of the chain that still stands."""
        seen: Fact | None = fact
        while seen is not None and (covered := seen.supersedes) is not None:
            try:
                restored = await self._placer.restore(covered, mandate)
                held = await self._ledger.placements(covered)
                seen = await self._ledger.get(covered)
            except CustodyError as error:
                return (Restored(fact_id=covered, store="", detail=f"not known ({error.code})"),)
            if restored or any(row.state is PlacementState.HELD for row in held):
                return tuple(restored)
        return ()

    async def hold_on(
        self, fact: Fact, rows: Sequence[Placement], mandate: Mandate
    ) -> tuple[tuple[Restored, ...], tuple[Removal, ...]]:
        """Look for what stores held of a fact before it was believed, and put again what they hold no more.

        Returns:
            What was put again, or of which stores it cannot be said that they hold it; and what of the
            old entries had to go.
        """
        by_store: dict[str, list[Placement]] = {}
        for row in rows:
            if row.store in self._gates:
                by_store.setdefault(row.store, []).append(row)
        restored: list[Restored] = []
        removals: list[Removal] = []
        for store, held in by_store.items():
            seen = [await self._see(self._gates[store], fact, row) for row in held]
            said = next((problem for problem in seen if problem), "")
            if GONE not in seen or fact.valid_from > self._ledger.now():
                restored += [Restored(fact_id=fact.fact_id, store=store, detail=said)] if said else []
                continue
            ids = tuple(row.external_id for row in held)
            put = await self._placer.place(fact.fact_id, store, mandate, replaces=ids)
            restored.append(put)
            if put.placed and not put.detail:
                removals += [await self._remover.drain_row(row, mandate) for row in held]
        return tuple(restored), tuple(removals)

    async def _see(self, gate: Gate, fact: Fact, row: Placement) -> str:
        """Return why a store was not seen to hold an entry of a fact; nothing where it was."""
        entry = row.to_entry()
        try:
            found = await gate.find(fact.fact_id) if gate.can(Capability.FIND) else []
            shown = next((one for one in found if one.external_id == row.external_id), None)
            if shown is not None:
                return "" if shown.text in (None, fact.text) else "it holds another text under that id"
            if not gate.can(Capability.VERIFY_DELETED):
                return GONE if gate.can(Capability.FIND) else "it cannot be asked whether it holds it"
            # An adopted entry may never have had a label: then only its text tells that it is this one.
            bare = replace(entry, fact_id=None, ledger_id=None, text=fact.text)
            if await gate.is_gone(bare) and await gate.is_gone(entry):
                return GONE
        except CustodyError as error:
            return f"it cannot be asked whether it holds it ({describe(error)})"
        has_label = gate.can(Capability.FIND) and gate.can(Capability.RELABEL)
        return "it shows nothing with the fact's label under that id" if has_label else ""

    async def erase(self) -> Erasure:
        """Drive erased values out of the ledger's files; pending where that cannot be told."""
        try:
            erasure = await self._ledger.erase()
            return Erasure.PENDING if await self.notebooks.are_due() else erasure
        except (CustodyError, OSError):
            return Erasure.PENDING

    async def placements(self, fact_id: str) -> list[Placement]:
        """Return where a fact is or was held; nothing where the ledger cannot be asked."""
        try:
            return await self._ledger.placements(fact_id)
        except CustodyError:
            return []

    async def earlier_links(self, fact: Fact) -> tuple[str, ...]:
        """Name the earlier links of the chain that an erasure of this one leaves as they are."""
        return await self.links_left([fact.fact_id]) if fact.supersedes is not None else ()

    async def links_left(self, fact_ids: Sequence[str]) -> tuple[str, ...]:
        """Name the earlier links of all their chains that an erasure of many leaves as they are, once."""
        left: list[str] = []
        seen: set[str] = set()
        whose = "its chain" if len(fact_ids) == 1 else "their chains"
        try:
            for start in range(0, len(fact_ids), PAGE):
                asked = fact_ids[start : start + PAGE]
                _, chains = await self._ledger.links(asked)
                # Facts of one chain share it.
                once = {id(chain): chain for chain in chains}.values()
                known = {link.fact.fact_id: link.fact for chain in once for link in chain}
                for fact_id in asked:
                    link = known.get(known[fact_id].supersedes or "") if fact_id in known else None
                    while link is not None and link.fact_id not in seen:
                        seen.add(link.fact_id)
                        if not link.forgotten:
                            left.append(link.fact_id)
                        link = known.get(link.supersedes or "")
        except CustodyError as error:
            return (f"whether earlier links of {whose} are forgotten is not known ({error.code})",)
        if not left:
            return ()
        more = f" and {len(left) - MOST_LINKS} more" if len(left) > MOST_LINKS else ""
        return (f"earlier links of {whose} are not forgotten: {', '.join(left[:MOST_LINKS])}{more}",)

    async def notes(self, rows: Sequence[Placement]) -> tuple[str, ...]:
        """Let the stores clean up after a forget, and say what they and the ledger leave behind."""
        notes = [*self._ledger.remains]
        for gate in self._gates.values():
            theirs = [row.to_entry() for row in rows if row.store == gate.name]
            if theirs:
                try:
                    notes += await gate.after_forget(theirs)
                except CustodyError as error:
                    notes.append(
                        f"{gate.name}: its clean-up failed ({error.fields.get('cause', error.code)})"
                    )
        return tuple(notes)
