"""Pages without a key to go by: each row once, although pages shift, repeat and skip while they are read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from custody_sync.adapters._mem0_rows import Row, rows_of

_PASSES = 16
_SIDE_BY_SIDE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page of a listing and what its envelope says of the whole."""

    rows: list[Row]
    count: int | None
    is_last: bool


Read = Callable[[int], Awaitable[Page]]


def page_of(answer: object, asked: int) -> Page | None:
    """Read one page; None if it cannot be read, or does not say whether it is the last.

    Args:
        answer: What the service sent.
        asked: How many rows this page and those before it hold at most.
    """
    rows = rows_of(answer)
    if rows is None or not isinstance(answer, Mapping):
        return None
    count = answer.get("count")
    if not isinstance(count, int):
        count = None
    if "next" in answer:
        is_last = not answer["next"] or not rows
    elif count is not None:
        is_last = count <= asked or not rows
    else:
        return None
    return Page(rows=rows, count=count, is_last=is_last)


async def each_once(read: Read, page_size: int, unsettled: Callable[[], Exception]) -> AsyncIterator[Row]:
    """Yield every row once, going over all pages until a pass finds nothing old that is new.

    The service orders its pages by nothing that it names, so what is inserted or deleted meanwhile
    moves rows from one page to another. Only ids are kept. What is younger than all that was known
    before a pass came while it ran, and may be left out.

    Args:
        read: Reads a page, counted from 1.
        page_size: How many rows a full page has.
        unsettled: Makes the error for a listing that never becomes whole.
    """
    seen: set[str] = set()
    newest: datetime | None = None
    for turn in range(_PASSES):
        known, held, missed, pages = newest, None, False, 0
        async for page in _pass(read, page_size):
            held = page.count if pages == 0 else held
            pages += 1
            for row in page.rows:
                if row.external_id in seen:
                    continue
                seen.add(row.external_id)
                missed = missed or known is None or row.created_at is None or row.created_at <= known
                newest = max(filter(None, (newest, row.created_at)), default=None)
                yield row
        # One page is one answer, and nothing can move in it.
        is_whole = pages == 1 or (turn > 0 and not missed)
        if is_whole and (held is None or len(seen) >= held):
            return
    raise unsettled()


async def _pass(read: Read, page_size: int) -> AsyncIterator[Page]:
    """Yield the pages in order: the first alone, then as many at once as its count says there are."""
    number, wave = 1, 1
    while True:
        some = await asyncio.gather(*(read(number + n) for n in range(wave)))
        for page in some:
            yield page
            if page.is_last:
                return
        number += wave
        left = -(-(some[-1].count or 0) // page_size) - number + 1
        wave = min(max(left, 1), _SIDE_BY_SIDE)


__all__ = ["Page", "each_once", "page_of"]
