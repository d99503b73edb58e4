"""Reading an archive from end to end through Letta's cursor, whatever is deleted meanwhile.

The server looks the cursor's row up: where that row was deleted the page is empty, as at the end.
So each page is asked for from the row before the last one known, and has to show that last row
again: an empty page then means a lost cursor and never an end.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import partial

from custody_sync.adapters._failures import paged
from custody_sync.adapters._letta_api import Address, LettaCalls, Passage
from custody_sync.adapters._letta_places import Place, Places
from custody_sync.errors import StoreUnavailable
from custody_sync.model import Entry

_PROBE = 500


class Walks:
    """Reads the archives of one store.

    Args:
        store: The store's name, for errors.
        calls: The server.
        places: Where its archives are.
        page_size: How many passages one page has; one carries its embedding, about 17 KB.
    """

    def __init__(self, store: str, calls: LettaCalls, places: Places, page_size: int) -> None:
        self._store = store
        self._calls = calls
        self._places = places
        self._page_size = page_size

    async def walk(self, operation: str, place: Place, search: str | None = None) -> AsyncGenerator[Passage]:
        """Yield every passage once, oldest first; with `search` those whose text is like it.

        Nothing is held but ids, and what was yielded may be deleted at once.
        """
        known: dict[str, int] = {}
        order: list[str] = []
        asked: set[str | None] = set()
        after, back = None, 1
        while True:
            page = await paged(operation, partial(self._page, operation, place, after, search))
            if not page:
                if after is None:
                    return
                # The cursor is gone: go back, in growing steps, to one that is still there.
                at = known[after] - back
                after, back = (order[at] if at >= 0 else None), back * 2
                continue
            back = 1
            new = [row for row in page if row.id not in known]
            for row in new:
                if row.id not in known:
                    known[row.id] = len(order)
                    order.append(row.id)
                    yield row
            if new:
                asked.clear()
            elif len(page) < self._page_size:
                return
            elif after in asked:
                raise StoreUnavailable(store=self._store, operation=operation, cause="PagesDoNotMove")
            asked.add(after)
            after = page[-2].id if len(page) > 1 else after

    def entry(self, place: Place, passage: Passage, *, with_text: bool = True) -> Entry:
        """Read the label back."""
        return Entry.from_metadata(
            passage.metadata,
            store=self._store,
            external_id=str(Address(place.archive.id, passage.id)),
            scope=place.scope,
            text=passage.text if with_text else None,
            created_at=passage.created_at,
        )

    async def _page(
        self, operation: str, place: Place, after: str | None, search: str | None
    ) -> list[Passage]:
        """Return a page; an empty one only where the agent that was asked does have the archive."""
        for _ in range(2):
            agent = await self._places.reader(operation, place)
            page = await self._calls.page(operation, agent, after=after, limit=self._page_size, search=search)
            is_ours = all(row.archive in (None, place.archive.id) for row in page)
            if page and is_ours:
                return page
            if await self._places.reads(operation, place) and is_ours:
                return page
        raise StoreUnavailable(store=self._store, operation=operation, cause="ArchiveNotReadable")


def like(text: str) -> str:
    """Return a pattern that every passage with this text matches, and perhaps others.

    Letta takes it into a LIKE as it is: % and _ are wildcards, and a backslash makes the next
    character literal, so a text with one in it would not match itself (0.16.8). Capitals beyond
    ASCII may fold by what stands beside them.
    """
    return "".join(map(_wild, text[:_PROBE]))


def _wild(character: str) -> str:
    if character == "\\":
        return "_"
    return "%" if not character.isascii() and character.lower() != character else character


__all__ = ["Walks", "like"]
