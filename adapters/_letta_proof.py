"""Whether an archive still has a passage: by substring and search with its text, by its instant without."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from contextlib import aclosing

from custody_sync.adapters._letta_api import AT_MOST, Address, LettaCalls, Passage
from custody_sync.adapters._letta_places import Place, Places
from custody_sync.adapters._letta_turns import InTurn
from custody_sync.adapters._letta_walk import Walks, like
from custody_sync.errors import NoProof, StoreError
from custody_sync.model import Entry
from custody_sync.ports import Whose, whose

_ASKING = "verify_deleted"
# How many hits an agent's own search is asked for until it has shown everything.
_WIDER = (1_000, 10_000, 100_000, 1_000_000)
_LONGEST_QUERY = 1_000


class Proof:
    """Asks one store's archives about single passages.

    Args:
        store: The store's name, for errors.
        calls: The server.
        places: Where its archives are.
        walks: Reads them.
        page_size: How many passages a page has.
    """

    def __init__(self, store: str, calls: LettaCalls, places: Places, walks: Walks, page_size: int) -> None:
        self._store = store
        self._calls = calls
        self._places = places
        self._walks = walks
        self._page_size = page_size
        self._dated: set[str] = set()
        self._undated: set[str] = set()
        self._read = InTurn(self._read_all)

    async def is_there(self, place: Place, passage_id: str, entry: Entry) -> bool:
        """Tell whether an archive that is known to exist has the passage, or its search still serves it.

        Raises:
            NoProof: the answers decide nothing.
        """
        if not entry.text:
            return await self._is_listed(place, passage_id, entry)
        async with aclosing(self._walks.walk(_ASKING, place, like(entry.text))) as passages:
            async for passage in passages:
                if passage.id == passage_id:
                    return True
        return await self._is_served(place, passage_id, entry.text)

    async def whose(self, operation: str, address: Address, entry: Entry) -> Whose | None:
        """Tell whose a passage is; None where it is not shown.

        Its label's instant finds it with one question and without an agent; where that is not what the
        archive keeps, or the search fails, everything is read.
        """
        found: Passage | None = None
        if entry.stored_at is not None:
            with contextlib.suppress(StoreError):
                rows = await self._calls.at(operation, address.archive, entry.stored_at)
                found = next((row for row in rows if row.id == address.passage), None)
        if found is None:
            found = await self._in_listing(operation, address, entry.scope)
        if found is None:
            return None
        shown = Entry.from_metadata(
            found.metadata, store=self._store, external_id=entry.external_id, text=found.text
        )
        return whose(entry, shown)

    async def _in_listing(self, operation: str, address: Address, scope: str | None) -> Passage | None:
        try:
            place = await self._places.at(operation, address.archive, scope)
        except NoProof:
            return None
        async with aclosing(self._walks.walk(operation, place)) as passages:
            async for passage in passages:
                if passage.id == address.passage:
                    return passage
        return None

    def saw(self, place: Place, entry: Entry) -> bool | None:
        """Learn whether the archive dates passages as it is told; None where an entry teaches nothing."""
        if entry.stored_at is None:
            return None
        kept = entry.stored_at == entry.created_at
        (self._dated if kept else self._undated).add(place.archive.id)
        return kept

    # --- with the text ---------------------------------------------------------------------

    async def _is_served(self, place: Place, passage: str, text: str) -> bool:
        hits = await self._calls.nearest(_ASKING, text, archive=place.archive.id)
        if any(hit.id == passage for hit in hits):
            return True
        if len(hits) < AT_MOST or (place.archive.is_native and not _alike(hits[-1], text)):
            return False
        # As many equal texts as one answer holds: the agent's own search has no such bound.
        agent = await self._places.reader(_ASKING, place)
        for top_k in _WIDER:
            ids = await self._calls.recalled(_ASKING, agent, text[:_LONGEST_QUERY], top_k)
            if passage in ids:
                return True
            if len(ids) < top_k:
                return False
        raise NoProof(store=self._store, operation=_ASKING, cause="TooManyHits")

    # --- without ---------------------------------------------------------------------------

    async def _is_listed(self, place: Place, passage_id: str, entry: Entry) -> bool:
        """Read the archive, or only what it holds of the passage's instant.

        A passage is created with the label's own instant, and no call changes that; where the archive
        was seen to keep it so, the server's own comparison of instants is a lookup. Else everything
        is read, once for all who ask.
        """
        if not place.archive.is_native:
            # Its search reads a copy that no question without the text reaches.
            raise NoProof(store=self._store, operation=_ASKING, cause="TextUnknown")
        at = entry.stored_at
        if at is not None and entry.created_at in (None, at) and await self._keeps_instants(place):
            rows = await self._calls.at(_ASKING, place.archive.id, at)
            if len(rows) < AT_MOST:
                return any(row.id == passage_id for row in rows)
        return await self._read((place, passage_id))

    async def _keeps_instants(self, place: Place) -> bool:
        archive = place.archive.id
        if archive not in self._dated | self._undated:
            read = 0
            async with aclosing(self._walks.walk(_ASKING, place)) as passages:
                async for passage in passages:
                    self.saw(place, self._walks.entry(place, passage))
                    read += 1
                    if read >= self._page_size:
                        break
        return archive in self._dated and archive not in self._undated

    async def _read_all(self, asked: Sequence[tuple[Place, str]]) -> list[bool]:
        wanted: dict[Place, set[str]] = {}
        for place, passage in asked:
            wanted.setdefault(place, set()).add(passage)
        found: set[str] = set()
        for place, passages in wanted.items():
            async with aclosing(self._walks.walk(_ASKING, place)) as rows:
                async for row in rows:
                    if row.id in passages:
                        found.add(row.id)
        return [passage in found for _, passage in asked]


def _alike(hit: Passage, text: str) -> bool:
    """Tell whether an embedding model may see the same in both: the same words, in any order."""
    return _words(hit.text) == _words(text)


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.casefold()))


__all__ = ["Proof"]
