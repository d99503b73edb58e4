"""Writing a ledger's log as a file: a header and one canonical line per event, as a JSONL ledger keeps them.

What is forgotten meanwhile stands in lines that were written before. A stream can only be told so; in a
file these lines are read again, which takes moments, so that forgets hardly ever outrun it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import IO, Any

from custody_sync.canonical import canonical, parse
from custody_sync.errors import ErasedMeanwhile, LedgerBroken
from custody_sync.ledger.jsonl_lines import END, header_line
from custody_sync.ledger.ledger import Ledger
from custody_sync.model import EventKind

PAGE = 1000
ROUNDS = 50
"""So often lines are read again before the forgets are told to pause."""
BLOCK = 1 << 20
_ERASING = (EventKind.FORGET, EventKind.REMOVE)
"""A removal takes the ids of entries, where the identity went before."""

Row = Mapping[str, Any]
Tell = Callable[[int], None]


def event_line(row: Row) -> bytes:
    """Return the line of an event."""
    return canonical(dict(row)) + END


def nobody(done: int) -> None:
    """Tell nobody how far it is."""
    return None


async def export_lines(ledger: Ledger, tell: Tell = nobody) -> AsyncIterator[bytes]:
    """Yield a ledger's log as lines.

    Raises:
        ErasedMeanwhile: a value was erased while it was read, and lines before still have it.
    """
    start = await ledger.head()
    yield header_line(ledger.ledger_id)
    erased = False
    async for row in ledger.export(page=PAGE):
        yield event_line(row)
        erased = erased or (row["event"]["seq"] > start.seq and row["event"]["kind"] == EventKind.FORGET)
        tell(1)
    if erased:
        raise ErasedMeanwhile(name=ledger.name)


async def export_file(ledger: Ledger, file: IO[bytes], tell: Tell = nobody) -> None:
    """Write a ledger's log into an empty file, and nothing that was erased before it was done.

    Args:
        ledger: the ledger, which may go on.
        file: open for reading and writing; what it holds is a whole log only when this returns.
        tell: called with the number of events that were written.

    Raises:
        ErasedMeanwhile: forgets came faster than lines could be read again.
    """
    start = (await ledger.head()).seq
    file.write(header_line(ledger.ledger_id))
    last, erased = await _append(ledger, file, 0, start, tell)
    for _ in range(ROUNDS):
        if not erased:
            return
        await _renew(ledger, file, erased)
        # Only what is read last knows of every erasure that the lines before may show.
        last, erased = await _append(ledger, file, last, last, tell)
    raise ErasedMeanwhile(name=ledger.name)


async def _append(
    ledger: Ledger, file: IO[bytes], after: int, known: int, tell: Tell
) -> tuple[int, set[str]]:
    """Write what follows an event; return the last one, and the facts that events after `known` erase."""
    erased: set[str] = set()
    async for row in ledger.export(page=PAGE, after=after):
        file.write(event_line(row))
        event = row["event"]
        after = event["seq"]
        if after > known and event["kind"] in _ERASING:
            erased.add(event["fact_id"])
        tell(1)
    return after, erased


async def _renew(ledger: Ledger, file: IO[bytes], fact_ids: set[str]) -> None:
    """Read the events of some facts again, in place: a line that lost a section is shorter than it was."""
    read = written = 0
    while True:
        file.seek(read)
        lines = file.readlines(BLOCK)
        read = file.tell()
        if not lines:
            break
        fresh = [await _renewed(ledger, line, fact_ids) for line in lines]
        file.seek(written)
        file.writelines(fresh)
        written = file.tell()
    file.seek(written)
    file.truncate()


async def _renewed(ledger: Ledger, line: bytes, fact_ids: set[str]) -> bytes:
    event = parse(line).get("event")
    if event is None or event["fact_id"] not in fact_ids:
        return line
    row = await ledger.stored(event["seq"])
    if row is None:
        raise LedgerBroken(name=ledger.name, seq=event["seq"], problem="it was there and is no longer")
    return event_line(row)


__all__ = ["PAGE", "Row", "Tell", "event_line", "export_file", "export_lines", "nobody"]
