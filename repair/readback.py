"""Looking at what was mended, and remembering what a store keeps otherwise than it was given.

Some stores strip a text, or keep an instant to the second. What they are given again they keep in the
same way again, so an entry that came back otherwise is left from then on, and named every time.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Sequence

from custody_sync.errors import CustodyError
from custody_sync.gathering import FEW, Gathering
from custody_sync.ledger import Ledger
from custody_sync.ledger.storage import Note
from custody_sync.mended import Drift
from custody_sync.model import Capability, Fact, Placement
from custody_sync.repair.differing import Drifted, differing_parts
from custody_sync.stores import Gate, describe

TOPIC = "reconcile-otherwise"
MANY = 100
"""A store that keeps so many entries otherwise keeps them all so: nothing more of the kind is given to it."""
KEEPS = "the store keeps it otherwise than it is given"
UNSEEN = "it cannot be asked what it shows now; run reconcile again"


class ReadBack:
    """What stores were seen to keep otherwise, beside the log from one run to the next.

    Args:
        ledger: keeps it.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._known: dict[str, tuple[str, str]] = {}
        """By key: of which store it is, and how it differed."""
        self._again: set[str] = set()
        self._many: Counter[tuple[str, str]] = Counter()
        self._note = Gathering(self._put, at_once=FEW)

    async def load(self) -> None:
        """Read what earlier runs saw."""
        after = ""
        while notes := await self._ledger.notes(TOPIC, after=after):
            for note in notes:
                said = json.loads(note.value)
                self._known[note.key] = said["store"], said["how"]
                self._many[said["store"], said["how"]] += said["seen"]
            after = notes[-1].key

    def is_kept_so(self, one: Drifted) -> bool:
        """Tell whether an entry was mended before and came back as it is, or its store is known for that."""
        key, so = _key(one.entry.store, one.entry.external_id), (one.entry.store, _how(one.kind, one.detail))
        if self._known.get(key) == so:
            self._again.add(key)
            return True
        return self._many[so] >= MANY

    async def forget_others(self, stores: Collection[str]) -> None:
        """Let go of what stores that were compared as a whole do not show any more."""
        over = [k for k, (store, _) in self._known.items() if store in stores and k not in self._again]
        if over:
            await self._ledger.drop_notes(TOPIC, over)

    async def look(self, gate: Gate, fact: Fact, row: Placement, one: Drifted) -> str:
        """Return what the store shows otherwise under an id that was just written, or nothing."""
        if not gate.can(Capability.FIND):
            await self._remember(one.kind, one.detail, row, seen=False)
            return UNSEEN
        try:
            found = await gate.find(fact.fact_id)
        except CustodyError as error:
            return f"it cannot be asked what it shows now ({describe(error)})"
        entry = next((e for e in found if e.external_id == row.external_id), None)
        if entry is None:
            # An index may lag: what the next listing shows rightly is forgotten again.
            await self._remember(one.kind, one.detail, row, seen=False)
            return "the store does not show it yet; run reconcile again"
        if entry.text is not None and entry.text != fact.text:
            await self._remember(Drift.ALTERED_TEXT, "", row, seen=True)
            return KEEPS
        if parts := differing_parts(entry, fact, row.stored_at):
            await self._remember(Drift.ALTERED_LABEL, ", ".join(parts), row, seen=True)
            return f"{KEEPS}: {', '.join(parts)}"
        return ""

    async def _remember(self, kind: Drift, detail: str, row: Placement, *, seen: bool) -> None:
        if kind is Drift.MISSING:
            return
        how = _how(kind, detail)
        said = {"fact_id": row.fact_id, "store": row.store, "how": how, "seen": seen}
        note = Note(
            topic=TOPIC,
            key=_key(row.store, row.external_id),
            value=json.dumps(said),
            since=self._ledger.now(),
        )
        await self._note(note)
        self._many[row.store, how] += seen

    async def _put(self, notes: Sequence[Note]) -> dict[Note, None]:
        """Note what many entries came back as, in one transaction."""
        await self._ledger.put_notes(notes)
        return dict.fromkeys(notes)


def _key(store: str, external_id: str) -> str:
    return f"{store}/{external_id}"


def _how(kind: Drift, detail: str) -> str:
    return f"{kind.value}: {detail}"


__all__ = ["KEEPS", "ReadBack"]
