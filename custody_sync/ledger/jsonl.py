"""The JSONL storage: one readable line per event, in a file that is the whole ledger.

Answers come from memory, filled from the file and kept up with it. A commit appends its lines
with one write and one fsync, under a lock that is held over processes; an erasure writes the
file anew without what goes and puts it into the old one's place.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from datetime import datetime
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from custody_sync import errors
from custody_sync.errors.base import throw
from custody_sync.faultpoints import FaultPoint
from custody_sync.ledger import sqlite_reads as reads
from custody_sync.ledger.chain import Prepared
from custody_sync.ledger.drafts import Assert, Forget, Remove
from custody_sync.ledger.embedded import Applied, Embedded, Work, open_embedded
from custody_sync.ledger.jsonl_files import Files, Log, is_there
from custody_sync.ledger.jsonl_image import Image, holds_erased
from custody_sync.ledger.jsonl_lines import header_line, in_pieces, lines_after
from custody_sync.ledger.jsonl_lock import Lock
from custody_sync.ledger.jsonl_notes import are_there, provide, strangers
from custody_sync.ledger.rules import Group
from custody_sync.ledger.sqlite_connection import Connection
from custody_sync.ledger.sqlite_erasure import Due, drop_named, due, forget_due
from custody_sync.ledger.sqlite_errors import damage, ledger_errors, translate
from custody_sync.ledger.sqlite_files import Location, is_writable
from custody_sync.ledger.sqlite_reading import LATER, within_bounds
from custody_sync.ledger.sqlite_rows import note_erasures, position
from custody_sync.ledger.state import Appended
from custody_sync.ledger.storage import Identity
from custody_sync.ledger.stored import Stored
from custody_sync.ledger.whereabouts import Whereabouts, of_file
from custody_sync.model import Erasure, Event, format_instant
from custody_sync.runtime import Runtime

MAX_EVENTS = 100_000
"""From here on no facts are added: all answers come from memory."""
ERASE_PATIENCE = 0.2
"""Seconds that an erasure waits for another process before it is left pending."""

NOTES_ANEW = (
    "the file of notes beside it was missing and was made anew, with a new secret: "
    "a keyed write that is repeated becomes a second fact"
)


async def open_jsonl(
    rest: str,
    *,
    create: bool,
    read_only: bool,
    runtime: Runtime,
    identity: Identity | None = None,
    most: int = MAX_EVENTS,
) -> JsonlStorage:
    """Open a ledger file; `rest` is what stands behind `jsonl:///` in its URL."""
    location = Location.parse(rest)
    if location.synchronous == "normal":
        raise errors.InvalidInput(field="ledger", problem="a JSONL ledger is synchronous=full or off")
    return await open_embedded(
        runtime, lambda readers: _open(location, create, read_only, runtime, readers, identity, most)
    )


def _open(
    location: Location,
    create: bool,
    read_only: bool,
    runtime: Runtime,
    readers: Executor,
    identity: Identity | None,
    most: int,
) -> JsonlStorage:
    name, files = location.name, Files.of(location)

    @cache
    def made() -> Identity:
        return identity or Identity.new(runtime)

    with ledger_errors(name), damage(name), contextlib.ExitStack() as opened:
        if create:
            _create(location, files, made, runtime.clock.now())
        if not is_there(location):
            raise errors.LedgerNotFound(name=name)
        like = files.log.stat()
        write, lock = not read_only and is_writable(location), Lock(files.lock, name, like)
        image = Image(files, lock, runtime, lambda: made().secret, write=write)
        opened.enter_context(contextlib.closing(image))
        image.keep_up()
        if write:
            with lock.held(lambda: None):
                files.drop_rewrite()
                image.keep_up(alone=True)
                image.wrote()
                if identity is None and not are_there(files):
                    image.notices[NOTES_ANEW] = None
                provide(files, image.log.ledger_id, made, like, runtime.clock.now())
        image.attach_notes()
        storage = JsonlStorage(name, lock, image, readers, runtime, write, most)
        opened.pop_all()
        return storage


def _create(location: Location, files: Files, made: Callable[[], Identity], now: datetime) -> None:
    """Make an empty log where there is none; of two processes that try at once, one does it."""
    if is_there(location) and files.log.stat().st_size:
        return
    if not files.log.parent.is_dir():
        raise errors.LedgerError(name=files.name, problem="its folder does not exist")
    with Lock(files.lock, files.name, None).held(lambda: None):
        if is_there(location) and files.log.stat().st_size:
            return
        if are_there(files):
            raise strangers(files)
        header = header_line(made().ledger_id)
        os.close(files.replace_log([header], None, lambda: None))
        files.sync_folder()
        provide(files, made().ledger_id, made, None, now)


class JsonlStorage(Embedded):
    """One open JSONL ledger; see `Storage` for what each method promises."""

    def __init__(
        self,
        name: str,
        lock: Lock,
        image: Image,
        readers: Executor,
        runtime: Runtime,
        writable: bool,
        most: int,
    ) -> None:
        super().__init__(name, writable, readers, runtime)
        self._lock, self._image, self._most = lock, image, most
        # One connection answers and decides: a question waits for the commit that is under way.
        self._turn = threading.RLock()
        self._closed = False
        self.ledger_id, self.secret = self._ask(reads.settings, ())

    @property
    def files(self) -> tuple[Path, ...]:
        """The log and what is kept beside it."""
        return self._image.files

    async def whereabouts(self) -> Whereabouts:
        """Return the log's path alone: an erasure writes it anew."""
        return of_file(self.files[0], numbered=False)

    @property
    def notices(self) -> tuple[str, ...]:
        """What opening or keeping up found and mended, in sentences."""
        return tuple(self._image.notices)

    # --- writing ----------------------------------------------------------------------------

    def _commit(self, works: Sequence[Work], tell: Callable[[], None]) -> list[Any]:
        self._image.log.is_in_place()
        with self._lock.held(tell), self._turn:
            applied, rewritten = self._commit_alone(works, tell)
        if rewritten:
            self._runtime.reach(FaultPoint.AFTER_ERASURE)
        self._runtime.reach(FaultPoint.AFTER_COMMIT)
        return applied.results

    def _commit_alone(self, works: Sequence[Work], tell: Callable[[], None]) -> tuple[Applied, bool]:
        image = self._image
        with ledger_errors(self.name), damage(self.name):
            image.keep_up(alone=True)
            image.wrote()
            conn = image.conn
            expected = self._expect_erasures(conn, works)
            conn.execute("BEGIN")
        fresh, data = None, b""
        try:
            with ledger_errors(self.name), damage(self.name):
                before = position(conn).seq
                applied = self._apply(conn, works)
                _drop_expected(conn, expected)
                rewrite = image.settle_erasures(before)
                if not rewrite:
                    data = b"".join(lines_after(conn, before))
            tell()
            self._runtime.reach(FaultPoint.BEFORE_COMMIT)
            if rewrite:
                fresh = self._rewrite(conn)
            elif data:
                image.append(data)
        except BaseException:
            self._leave(conn)
            raise
        try:
            self._send_commit(conn, written=rewrite or bool(data))
        except BaseException:
            if fresh is not None:
                fresh.close()
            raise
        if fresh is not None:
            image.moved_to(fresh)
        else:
            image.wrote(data)
        return applied, rewrite

    def _rewrite(self, conn: Connection) -> Log:
        lines = chain([self._image.log.header], lines_after(conn, 0))
        return self._image.log.rewrite(
            in_pieces(lines), lambda: self._runtime.reach(FaultPoint.BEFORE_ERASURE)
        )

    def _send_commit(self, conn: Connection, *, written: bool) -> None:
        try:
            conn.let_go()
            conn.execute("COMMIT")
        except sqlite3.Error as error:
            self._leave(conn)
            if written:
                throw(errors.OutcomeUnknown(name=self.name))
            throw(translate(error, self.name))

    def _leave(self, conn: Connection) -> None:
        with contextlib.suppress(sqlite3.Error):
            conn.leave()

    def _admit(self, group: Group, prepared: Prepared) -> Appended | Event:
        """Refuse new facts beyond the ceiling; what ends, moves or erases one can always be recorded."""
        draft, held = prepared.draft, group.position.seq
        if held >= self._most and isinstance(draft, Assert) and draft.event_id not in group.state.events:
            raise errors.LedgerTooLarge(name=self.name, events=held, most=self._most)
        return super()._admit(group, prepared)

    def _restore(self, conn: sqlite3.Connection, events: Sequence[Stored]) -> None:
        held = position(conn).seq
        if held + len(events) > self._most:
            raise errors.LedgerTooLarge(name=self.name, events=held, most=self._most)
        super()._restore(conn, events)

    def _note_erasures(self, conn: sqlite3.Connection, group: Group) -> None:
        # A value is gone with the file that held it: only notes can name an identity any longer.
        note_erasures(conn, group, values=False)

    # --- erasure ----------------------------------------------------------------------------

    def _expect_erasures(self, conn: sqlite3.Connection, works: Sequence[Work]) -> list[str]:
        """Note whose identity may go before it goes, since log and notes do not commit as one.

        Returns:
            The facts of which nothing was due before.
        """
        drafts = [work.draft for work in works if isinstance(work, Prepared)]
        going = [d.fact_id for d in drafts if isinstance(d, Forget) and d.identity]
        going += _anonymous(conn, [d.fact_id for d in drafts if isinstance(d, Remove)])
        owing = {fact_id for fact_id, _, _ in due(conn)} if going else set()
        expected = [fact_id for fact_id in dict.fromkeys(going) if fact_id not in owing]
        if expected:
            query = (
                "INSERT INTO notes (topic, key, value, holder, since) "
                "VALUES ('erasure', ?, 'identity', '', ?)"
            )
            conn.execute("BEGIN")
            conn.executemany(query, [(fact_id, format_instant(self._now())) for fact_id in expected])
            conn.execute("COMMIT")
        return expected

    async def erase(self) -> Erasure:
        """Erase what notes still name of erased identities; values went with the forget itself."""
        if not self.writable:
            return Erasure.PENDING if await self._read(_is_due) else Erasure.DONE
        erasure: Erasure = await self._do(self._writers, self._erase)
        return erasure

    def _erase(self) -> Erasure:
        self._image.log.is_in_place()
        try:
            with self._lock.held(lambda: None, ERASE_PATIENCE), self._turn:
                return self._erase_alone()
        except errors.LedgerBusy:
            return Erasure.PENDING

    def _erase_alone(self) -> Erasure:
        with ledger_errors(self.name), damage(self.name):
            self._image.keep_up(alone=True)
            conn = self._image.conn
            if holds_erased(conn, position(conn).seq):
                self._purge(conn)
            owing = due(conn)
            return self._erase_notes(conn, owing) if owing else Erasure.DONE

    def _purge(self, conn: Connection) -> None:
        """Take out of the file what a forget in it erases: whoever wrote it did not."""
        conn.execute("BEGIN")
        try:
            self._image.settle_erasures(position(conn).seq)
            fresh = self._rewrite(conn)
            conn.execute("COMMIT")
        except BaseException:
            self._leave(conn)
            raise
        self._image.moved_to(fresh)

    def _erase_notes(self, conn: Connection, owing: Sequence[Due]) -> Erasure:
        gone = set(_anonymous(conn, [fact_id for fact_id, _, _ in owing]))
        named, _ = drop_named(conn, [row for row in owing if row[0] in gone], self._now())
        done = [row for row in owing if row[0] not in named]
        if done:
            # Pages keep copies of rows in their gaps.
            conn.execute("VACUUM beside")
            forget_due(conn, done)
        return Erasure.PENDING if named else Erasure.DONE

    # --- reading and closing ----------------------------------------------------------------

    def _ask(self, query: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        if self._closed:
            raise errors.ClosedError(what=self.name)
        with self._turn, ledger_errors(self.name), damage(self.name):
            self._image.keep_up()
            conn = self._image.conn
            conn.execute("BEGIN")
            try:
                return query(conn, *args)
            finally:
                conn.leave()

    def _ask_at_once(self, query: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        if not self._turn.acquire(blocking=False):
            return LATER
        try:
            if self._closed or not self._image.is_current():
                return LATER
            conn = self._image.conn
            conn.begin()
            try:
                return within_bounds(conn, query, args)
            finally:
                conn.leave()
        except Exception:
            # Whatever it is, asking once more says it properly.
            return LATER
        finally:
            self._turn.release()

    def _close_reading(self) -> None:
        self._closed = True

    def _close_writing(self) -> None:
        self._image.close()


def _is_due(conn: sqlite3.Connection) -> bool:
    return bool(due(conn)) or holds_erased(conn, position(conn).seq)


def _drop_expected(conn: sqlite3.Connection, fact_ids: Sequence[str]) -> None:
    """Take back the erasures that did not come: those that did have their event for a holder."""
    query = "DELETE FROM notes WHERE topic = 'erasure' AND holder = '' AND key = ?"
    conn.executemany(query, [(fact_id,) for fact_id in fact_ids])


def _anonymous(conn: sqlite3.Connection, fact_ids: Sequence[str]) -> list[str]:
    """Return those of some facts whose identity was erased."""
    if not fact_ids:
        return []
    query = "SELECT fact_id FROM facts WHERE identity_gone AND fact_id IN (SELECT value FROM json_each(?))"
    return [fact_id for (fact_id,) in conn.execute(query, (json.dumps(fact_ids),))]
