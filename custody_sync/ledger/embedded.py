"""A ledger in files of this machine: one thread that commits groups, one that reads.

What is the same for every such storage is here; a storage says how a group is made durable,
how a question reaches its rows, and how its files are let go.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, wait
from typing import Any, NamedTuple, TypeVar

from custody_sync import errors
from custody_sync.errors.base import throw
from custody_sync.ledger import sqlite_notes as beside
from custody_sync.ledger.answering import Answering, NoteWork
from custody_sync.ledger.chain import Prepared
from custody_sync.ledger.checks import check_calendar
from custody_sync.ledger.grouping import GroupWriter
from custody_sync.ledger.replaying import Stored
from custody_sync.ledger.rules import Group, event_of
from custody_sync.ledger.sqlite_reading import LATER
from custody_sync.ledger.sqlite_rows import end, load, note_erasures, position, restore, write
from custody_sync.ledger.state import Appended, Needs, Position
from custody_sync.ledger.storage import Mark, Way
from custody_sync.model import Event
from custody_sync.runtime import Runtime

Work = Prepared | NoteWork

IN_A_ROW = 16
"""So many brief questions are answered before the event loop gets a turn."""


class Applied(NamedTuple):
    """What became of a group inside its transaction."""

    results: list[Any]
    group: Group | None
    """The drafts of the group, decided on; None where there were none."""
    salts: dict[str, list[bytes]]
    """The salts of erased sections, by fact id."""


class Embedded(Answering):
    """One open ledger of this machine; see `Storage` for what each method promises.

    Args:
        name: what errors call it.
        writable: whether it was opened for writing.
        readers: the thread that it was opened on, and that it is read on.
        runtime: clock, threads and fault points.
    """

    _forked = "it was opened before this process was forked; open it again here"

    def __init__(self, name: str, writable: bool, readers: Executor, runtime: Runtime) -> None:
        super().__init__(name, runtime)
        self.writable = writable
        self._readers = readers
        self._writers = runtime.executor("custody-writer")
        self._group: GroupWriter[Work] = GroupWriter(self._writers, self._commit, name)
        self._process = os.getpid()
        self._answered = 0
        self._ending: Future[None] | None = None
        self._ending_once = threading.Lock()

    @abstractmethod
    def _commit(self, works: Sequence[Work], tell: Callable[[], None]) -> list[Any]:
        """Make a group durable and return one result or refusal for each of its works."""

    @abstractmethod
    def _ask(self, query: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Answer a question on the readers' thread."""

    @abstractmethod
    def _close_reading(self) -> None:
        """Let go of what questions need."""

    @abstractmethod
    def _close_writing(self) -> None:
        """Let go of what commits need, when nobody reads any more."""

    # --- writing ----------------------------------------------------------------------------

    async def commit(self, prepared: Prepared) -> Event:
        """Append one prepared draft with the next group."""
        return event_of(await self._write(prepared))

    async def restore(self, events: Sequence[Stored]) -> None:
        """Append events of another ledger as they are."""
        await self._write(NoteWork(lambda conn: self._restore(conn, events), (Way.TO,)))

    def _restore(self, conn: sqlite3.Connection, events: Sequence[Stored]) -> None:
        self._note_erasures(conn, restore(conn, events, self.name, self._now()))

    def _note_erasures(self, conn: sqlite3.Connection, group: Group) -> None:
        note_erasures(conn, group)

    async def _write(self, work: Work) -> Any:
        self._check_usable()
        if not self.writable:
            raise errors.LedgerReadOnly(name=self.name, cause="opened for reading")
        return await self._group.do(work)

    def _check_usable(self) -> None:
        """Refuse to work in a forked child, whose threads are gone and its files' locks with them."""
        if os.getpid() != self._process:
            raise errors.LedgerError(name=self.name, problem=self._forked)
        if self._ending is not None:
            raise errors.ClosedError(what=self.name)

    def _apply(self, conn: sqlite3.Connection, works: Sequence[Work]) -> Applied:
        # Looked at under the lock, so that no append gets past a move that has begun.
        at, is_marked = end(conn)
        mark = beside.mark(conn) if is_marked else None
        drafts = [] if mark else [work for work in works if isinstance(work, Prepared)]
        results: dict[int, Any] = {}
        salts: dict[str, list[bytes]] = {}
        group = self._group_at(conn, at, drafts) if drafts else None
        if group is not None:
            for draft in drafts:
                try:
                    results[id(draft)] = self._admit(group, draft)
                except (errors.Refused, errors.LedgerTooLarge) as refusal:
                    results[id(draft)] = refusal
            if group.appended:
                salts = write(conn, group)
                self._note_erasures(conn, group)
        done = [
            self._stopped(work, mark) or (results[id(work)] if isinstance(work, Prepared) else work.do(conn))
            for work in works
        ]
        return Applied(done, group, salts)

    def _stopped(self, work: Work, mark: Mark | None) -> errors.LedgerError | None:
        if mark is None or (isinstance(work, NoteWork) and mark.way not in work.stops):
            return None
        return mark.refusal(self.name)

    def _admit(self, group: Group, prepared: Prepared) -> Appended | Event:
        return group.admit(prepared)

    def _group_at(self, conn: sqlite3.Connection, at: Position, drafts: Sequence[Prepared]) -> Group:
        now = self._now()
        if at.tx_time is not None:
            check_calendar(at.tx_time, self.name, "its last event is of")
        return Group(load(conn, Needs.of(drafts)), at, now)

    # --- reading ----------------------------------------------------------------------------

    async def _read(self, query: Callable[..., Any], *args: Any) -> Any:
        return await self._do(self._readers, self._ask, query, args)

    async def _read_briefly(self, query: Callable[..., Any], *args: Any) -> Any:
        """Ask a question about little, here and now: handing it to a thread takes longer than the answer."""
        self._check_usable()
        answer = self._ask_at_once(query, args)
        if answer is LATER:
            return await self._read(query, *args)
        self._answered += 1
        if self._answered % IN_A_ROW == 0:
            # Without ever waiting, a caller with many questions would keep all others from their turn.
            await self._runtime.sleep(0)
        return answer

    def _ask_at_once(self, query: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Answer a question in a moment and without waiting, or say `LATER`."""
        return LATER

    async def _do(self, executor: Executor, work: Callable[..., Any], *args: Any) -> Any:
        self._check_usable()
        try:
            answer = executor.submit(work, *args)
        except RuntimeError:
            throw(errors.ClosedError(what=self.name))
        return await asyncio.wrap_future(answer)

    async def check(self, prepared: Prepared) -> None:
        """Decide on a draft against the committed state, without writing."""
        await self._read(self._check, prepared)

    def _check(self, conn: sqlite3.Connection, prepared: Prepared) -> None:
        mark = beside.mark(conn)
        if mark is not None:
            raise mark.refusal(self.name)
        self._admit(self._group_at(conn, position(conn), [prepared]), prepared)

    # --- closing ----------------------------------------------------------------------------

    async def close(self) -> None:
        """Finish what waits, then close files and threads; closing again waits for the same end."""
        if self._process == os.getpid():
            # Shielded: a close that nobody waits for any more goes on all the same.
            await asyncio.shield(asyncio.wrap_future(self.end()))

    def end(self) -> Future[None]:
        """Begin to close, once, and return when it will be done."""
        with self._ending_once:
            if self._ending is None:
                self._group.close()
                reading = self._readers.submit(self._close_reading)
                self._ending = self._writers.submit(self._close_after, reading)
                self._writers.shutdown(wait=False)
                self._readers.shutdown(wait=False)
            return self._ending

    def abandon(self) -> None:
        """Close what was opened and is used by nobody, on this thread: another may not start any more.

        While an interpreter ends, it waits for its threads and lets them begin nothing new.
        """
        self._group.close()
        self._close_reading()
        self._close_writing()
        self._writers.shutdown(wait=False)
        self._readers.shutdown(wait=False)

    def _close_after(self, reading: Future[None]) -> None:
        # The writer goes last: what it leaves behind nobody may be reading any more.
        wait([reading])
        self._close_writing()


E = TypeVar("E", bound=Embedded)


async def open_embedded(runtime: Runtime, make: Callable[[Executor], E]) -> E:
    """Open a ledger on the thread that will read it, since opening waits for disks and locks."""
    readers = runtime.executor("custody-reader")
    opening = readers.submit(make, readers)
    try:
        return await asyncio.wrap_future(opening)
    except BaseException:
        # A thread cannot be stopped: what it opens after nobody waits for it is closed by itself.
        opening.add_done_callback(lambda done: _abandon(done, readers))
        raise


def _abandon(opening: Future[E], readers: Executor) -> None:
    if opening.cancelled() or opening.exception() is not None:
        readers.shutdown(wait=False)
    else:
        opening.result().abandon()


__all__ = ["Applied", "Embedded", "Work", "open_embedded"]
