"""Moving a ledger: its log as a file, the file as a ledger, and one ledger's log into another.

An export is a header and one canonical line per event, which is also how a JSONL ledger keeps them.
What is taken over goes through `Ledger.restore`: nothing is believed, and a copy that was interrupted
is a shorter ledger of the same history, which the next run continues.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from custody_sync.canonical import canonical, parse
from custody_sync.errors import (
    ErasedMeanwhile,
    LedgerBroken,
    LedgerError,
    LedgerMoved,
    LedgerNotEmpty,
    SweepRunning,
)
from custody_sync.ledger.jsonl_lines import END, header_line, read_header
from custody_sync.ledger.ledger import Ledger
from custody_sync.ledger.storage import MOVED, Note
from custody_sync.model import EventKind, Head, format_instant

PAGE = 1000
ATTEMPTS = 3

Row = Mapping[str, Any]
Tell = Callable[[int], None]


def event_line(row: Row) -> bytes:
    """Return the line of an event."""
    return canonical(dict(row)) + END


def _nobody(done: int) -> None:
    return None


async def export_lines(ledger: Ledger, tell: Tell = _nobody) -> AsyncIterator[bytes]:
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


class Source(Protocol):
    """A log to take over, read once from its first event."""

    @property
    def name(self) -> str:
        """What errors call it."""
        ...

    def rows(self) -> AsyncIterator[Row]:
        """Yield its events."""
        ...


@dataclass(frozen=True, slots=True)
class LedgerSource:
    """The log of an open ledger."""

    ledger: Ledger

    @property
    def name(self) -> str:
        """Where it is."""
        return self.ledger.name

    async def rows(self) -> AsyncIterator[Row]:
        """Yield its events."""
        async for row in self.ledger.export(page=PAGE):
            yield row


class FileSource:
    """An exported log.

    Args:
        name: what errors call it.
        lines: its lines, the header first.

    Raises:
        LedgerDamaged: it is no export.
        LedgerTooNew: a later version wrote it.
    """

    def __init__(self, name: str, lines: Iterable[bytes]) -> None:
        self.name = name
        self._lines = iter(lines)
        self.ledger_id = read_header(next(self._lines, b""), name)

    async def rows(self) -> AsyncIterator[Row]:
        """Yield its events."""
        for number, line in enumerate(self._lines, 1):
            problem = None if line.endswith(END) else "the file is cut short there"
            try:
                row: Any = parse(line)
            except (RecursionError, ValueError):
                problem, row = problem or "its line is no JSON", {}
            if problem is not None:
                raise LedgerBroken(name=self.name, seq=number, problem=problem)
            yield row if isinstance(row, dict) else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """What was taken over: how many events were there before, how many came, and where the log ends now."""

    ledger_id: str
    before: int
    added: int
    head: Head


async def take_over(source: Source, target: Ledger, tell: Tell = _nobody) -> Moved:
    """Append a source's events to a ledger that has none, or the first of them, and check it.

    Raises:
        LedgerNotEmpty: the target has other events.
        LedgerBroken: the source is not intact; what came before that place was taken over. Where an
            event lacks what no forget erased, that shows only at the end.
    """
    done = await _append_all(source, target, tell)
    await _check(target)
    return done


async def _check(target: Ledger) -> None:
    """Hold what is gone against what was forgotten; a page cannot tell, since a forget may follow it."""
    found = await target.verify(witness=False, replay=False)
    if not found.intact:
        raise LedgerBroken(name=target.name, seq=found.first_bad, problem=found.problem)


async def _append_all(source: Source, target: Ledger, tell: Tell = _nobody) -> Moved:
    before = await target.head()
    last: tuple[int, str] | None = None
    page: list[Row] = []
    seq = 0
    async for row in source.rows():
        seq += 1
        tell(1)
        if seq < before.seq:
            continue
        last = (seq, str(row.get("hash")))
        if seq == before.seq:
            if last[1] != before.hash:
                raise LedgerNotEmpty(name=target.name)
            continue
        page.append(row)
        if len(page) == PAGE:
            await target.restore(page)
            page = []
    if seq < before.seq:
        raise LedgerNotEmpty(name=target.name)
    if page:
        await target.restore(page)
    await target.erase()
    head = await target.head()
    if last is not None and (head.seq, head.hash) != last:
        raise LedgerBroken(name=target.name, seq=head.seq, problem="somebody else appended to it meanwhile")
    return Moved(ledger_id=target.ledger_id, before=before.seq, added=head.seq - before.seq, head=head)


async def move(source: Ledger, target: Ledger, to: str, tell: Tell = _nobody) -> Moved:
    """Let a ledger go on in another place: take over its log, and refuse further appends where it was.

    Args:
        source: the ledger as it is; no sweep may be at work on it.
        target: a ledger of the same identity, new or left by an interrupted move.
        to: where that is, without secrets.
        tell: called with the number of events that were looked at.

    Raises:
        SweepRunning: a sweep holds its lease on the source.
        LedgerMoved: the source is not where the ledger goes on.
    """
    for note in await source.notes("lease"):
        if note.expires_at is None or note.expires_at > source.now():
            until = "?" if note.expires_at is None else format_instant(note.expires_at)
            raise SweepRunning(holder=note.holder, since=format_instant(note.since), until=until)
    await _check_not_moved(source, to)
    # First the mark, then the copy: whoever opens the source from now on appends nothing to it.
    mark = Note(topic=MOVED, key="to", value=to, since=source.now())
    await source.put_notes([mark])
    try:
        done = await _append_all(LedgerSource(source), target, tell)
        left = await source.head()
        for _ in range(ATTEMPTS):
            if left.seq == done.head.seq:
                break
            # A handle that was open before may have gone on for a moment.
            more = await _append_all(LedgerSource(source), target)
            done = replace(more, before=done.before, added=done.added + more.added)
            left = await source.head()
        else:
            raise LedgerError(name=source.name, problem="somebody goes on appending to it; stop them first")
        await _check(target)
    except BaseException:
        await source.drop_notes(MOVED)
        raise
    await target.drop_notes(MOVED)
    return done


async def _check_not_moved(source: Ledger, to: str) -> None:
    for note in await source.notes(MOVED):
        if note.value != to:
            raise LedgerMoved(name=source.name, to=note.value)


__all__ = [
    "FileSource",
    "LedgerSource",
    "Moved",
    "Source",
    "event_line",
    "export_lines",
    "move",
    "take_over",
]
