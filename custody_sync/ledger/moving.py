"""Moving a ledger: a file of its log as a ledger, and one ledger's log into another.

What is taken over goes through `Ledger.restore`: nothing is believed, and a copy that was interrupted
is a shorter ledger of the same history, which the next run continues.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from custody_sync.canonical import parse
from custody_sync.errors import (
    CustodyError,
    InvalidInput,
    LedgerBroken,
    LedgerError,
    LedgerNotEmpty,
    SweepRunning,
)
from custody_sync.errors.base import throw
from custody_sync.ledger.exporting import PAGE, Row, Tell, event_line, export_lines, nobody
from custody_sync.ledger.jsonl_lines import END, read_header
from custody_sync.ledger.ledger import Ledger
from custody_sync.ledger.storage import NOTEBOOK, Mark, Way
from custody_sync.model import Head, format_instant


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
    remains: tuple[str, ...] = ()
    """What a move leaves for somebody to see to, one sentence each."""


async def take_over(source: Source, target: Ledger, tell: Tell = nobody) -> Moved:
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


async def _append_all(source: Source, target: Ledger, tell: Tell = nobody) -> Moved:
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
            await _restore(source, target, page)
            page = []
    if seq < before.seq:
        raise LedgerNotEmpty(name=target.name)
    if page:
        await _restore(source, target, page)
    await target.erase()
    head = await target.head()
    if last is not None and (head.seq, head.hash) != last:
        raise LedgerBroken(name=target.name, seq=head.seq, problem="somebody else appended to it meanwhile")
    return Moved(ledger_id=target.ledger_id, before=before.seq, added=head.seq - before.seq, head=head)


async def _restore(source: Source, target: Ledger, page: list[Row]) -> None:
    """Append a page; what is wrong with it is the source's fault, and the error says so."""
    try:
        await target.restore(page)
    except LedgerBroken as broken:
        throw(LedgerBroken(name=source.name, seq=broken.seq, problem=broken.problem))


async def move(source: Ledger, target: Ledger, to: str, tell: Tell = nobody) -> Moved:
    """Let a ledger go on in another place: take over its log, and refuse further appends where it was.

    At no moment do both take events: the target is marked before the source, and its mark goes last.

    Args:
        source: the ledger as it is; no sweep may be at work on it.
        target: a ledger of the same identity, new or left by an interrupted move.
        to: where that is, without secrets.
        tell: called with the number of events that were looked at.

    Raises:
        SweepRunning: a sweep holds its lease on the source.
        LedgerMoved: the source is not where the ledger goes on.
        LedgerArriving: the source itself is what an unfinished move left.
        InvalidInput: the target is another ledger, or the source itself.
    """
    if source.identity != target.identity:
        raise InvalidInput(field="ledger", problem="is another ledger than the one to be moved there")
    stands = await source.mark()
    if stands is not None and (stands.way, stands.place) != (Way.TO, to):
        raise stands.refusal(source.name)
    if stands is not None and await _went_on(source, target):
        head = await target.head()
        return Moved(
            ledger_id=target.ledger_id, before=head.seq, added=0, head=head, remains=_remains(source)
        )
    await _check_no_sweep(source)
    run = _Run(source, target, await target.mark())
    await run.begin()
    try:
        if stands is None:
            await run.stop_source(to)
            # Whoever took a lease before the source was marked has it; nobody gets one now.
            await _check_no_sweep(source)
        done = await _append_all(LedgerSource(source), target, tell)
        await _check(target)
        await _carry_notebooks(source, target)
        await run.finish()
    except BaseException:
        await run.give_up()
        raise
    return replace(done, remains=_remains(source))


async def _carry_notebooks(source: Ledger, target: Ledger) -> None:
    """Take along what stores noted, while neither end takes anything new of it."""
    for topic in NOTEBOOK:
        after = ""
        while notes := await source.notes(topic, limit=PAGE, after=after):
            await target.put_notes(notes, arriving=True)
            after = notes[-1].key


def _remains(source: Ledger) -> tuple[str, ...]:
    return (
        f"{source.name} still has every value that was not erased, and a later forget does not reach it; "
        "delete it once the new place is in use",
    )


async def _went_on(source: Ledger, target: Ledger) -> bool:
    """Tell whether an earlier run was completed: the target is in use and has all of the source's history."""
    mark, head = await target.mark(), await source.head()
    if (mark is not None and mark.way is Way.FROM) or (await target.head()).seq < head.seq:
        return False
    if head.seq == 0:
        return True
    same = await target.stored(head.seq)
    return same is not None and bool(same["hash"] == head.hash)


async def _check_no_sweep(source: Ledger) -> None:
    for note in await source.notes("lease"):
        if note.expires_at is None or note.expires_at > source.now():
            until = "?" if note.expires_at is None else format_instant(note.expires_at)
            raise SweepRunning(holder=note.holder, since=format_instant(note.since), until=until)


@dataclass(slots=True)
class _Run:
    """The marks of one run of a move, which are the only ones that it takes away."""

    source: Ledger
    target: Ledger
    was: Mark | None
    """The target's mark before this run."""
    began: Head | None = None
    held: Mark | None = None
    """The target's mark of this run; another run puts its own in its place."""
    stopped: Mark | None = None
    """The source's mark, where this run set it."""

    async def begin(self) -> None:
        """Stop the target, whose events are the source's from now on."""
        self.held = await self.target.set_mark(self.was, Way.FROM, self.source.name)
        if self.held is None:
            raise _under_way(self.target)
        self.began = await self.target.head()
        if await self.source.mark() == self.held:
            await self.target.drop_mark(self.held)
            raise InvalidInput(field="ledger", problem="cannot be moved to where it is")

    async def stop_source(self, to: str) -> None:
        """Stop the source, or say what stopped it first."""
        self.stopped = await self.source.set_mark(None, Way.TO, to)
        if self.stopped is None:
            stands = await self.source.mark()
            raise _under_way(self.source) if stands is None else stands.refusal(self.source.name)

    async def finish(self) -> None:
        """Let the target take events."""
        if self.held is None or not await self.target.drop_mark(self.held):
            raise _under_way(self.target)

    async def give_up(self) -> None:
        """Let the source go on, unless another run may complete the target."""
        with contextlib.suppress(CustodyError):
            if self.held is not None and await self._let_go(self.held) and self.stopped is not None:
                await self.source.drop_mark(self.stopped)

    async def _let_go(self, held: Mark) -> bool:
        """Put the target's mark back where nothing came; half of a ledger stays one that a move completes."""
        head = await self.target.head()
        if head.seq == 0 or head != self.began:
            return await self.target.set_mark(held, Way.FROM, self.source.name) is not None
        if self.was is None:
            return await self.target.drop_mark(held)
        return await self.target.set_mark(held, self.was.way, self.was.place) is not None


def _under_way(ledger: Ledger) -> LedgerError:
    return LedgerError(name=ledger.name, problem="another move of it is under way")


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
