"""The Postgres storage: one pool in one event loop, one connection that commits groups.

Whoever appends locks the head first and reads what the rules need afterwards, so that the order
of appends, of their times and of their becoming visible is one, over any number of processes.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import psycopg

from custody_sync import errors
from custody_sync.ledger.chain import Prepared
from custody_sync.ledger.checks import check_calendar
from custody_sync.ledger.grouping import LoopGroupWriter
from custody_sync.ledger.outstanding import About, Backlog, Removed, RemovedCount
from custody_sync.ledger.postgres_erasure import NOT_REACHED, NOT_VACUUMED, Eraser
from custody_sync.ledger.postgres_errors import is_cut, ledger_errors
from custody_sync.ledger.postgres_notes import Notes
from custody_sync.ledger.postgres_outstanding import OutstandingReads
from custody_sync.ledger.postgres_plain import Plain
from custody_sync.ledger.postgres_pool import Pool
from custody_sync.ledger.postgres_reads import Reads
from custody_sync.ledger.postgres_rows import Rows, check_keys
from custody_sync.ledger.postgres_schema import (
    connect,
    find,
    identity_of,
    meet,
    new_identity,
    prepare_session,
)
from custody_sync.ledger.postgres_trails import Trails
from custody_sync.ledger.postgres_url import Location
from custody_sync.ledger.postgres_writing import Writer
from custody_sync.ledger.questions import Instants, Trail
from custody_sync.ledger.replaying import Stored
from custody_sync.ledger.rows import Derived
from custody_sync.ledger.rules import Group, event_of
from custody_sync.ledger.storage import (
    Account,
    AsOf,
    Compared,
    Held,
    Identity,
    Mark,
    Note,
    Unaccounted,
    Waiting,
)
from custody_sync.ledger.whereabouts import Whereabouts
from custody_sync.model import Entry, Erasure, Event, Fact, Head, Page, Placement, PlacementState, Standing
from custody_sync.recalled import Followed, Link
from custody_sync.runtime import Runtime, SystemClock

T = TypeVar("T")

MAX_CONNECTIONS = 5
"""Of one open ledger: one that writes, the others read."""


async def open_postgres(
    url: str, *, create: bool, read_only: bool, runtime: Runtime, identity: Identity | None = None
) -> PostgresStorage:
    """Open a ledger in a Postgres database.

    Raises:
        InvalidInput: the URL cannot be read; nothing of it is repeated.
        LedgerError: there is none, or it cannot be reached or used.
    """
    location = Location.parse(url)
    conn, met = await meet(location, create=create)
    first = conn if met is not None else None
    try:
        if met is None:
            met = await find(
                conn,
                location,
                create=create,
                write=not read_only,
                make=new_identity(runtime, identity),
                now=runtime.clock.now(),
            )
        writable = not read_only and met.writable
        known = identity_of(met.settings, location.name)
    except BaseException:
        await conn.close()
        raise
    if first is None:
        await conn.close()
    pool = Pool(
        first,
        kwargs={"autocommit": True, **location.parameters},
        min_size=1,
        # The first one is beside the pool.
        max_size=MAX_CONNECTIONS - (first is not None),
        timeout=location.patience,
        # After an outage nobody waits out a delay that has doubled for minutes: whoever asks begins anew.
        reconnect_timeout=location.patience,
        configure=prepare_session,
    )
    return PostgresStorage(location, pool, writable, known, runtime)


class PostgresStorage:
    """One open ledger in a database; see `Storage` for what each method promises.

    It belongs to the event loop that it was opened in.
    """

    notices: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()

    def __init__(
        self,
        location: Location,
        pool: Pool,
        writable: bool,
        identity: Identity,
        runtime: Runtime,
    ) -> None:
        self.name, self.writable = location.name, writable
        self.ledger_id, self.secret = identity.ledger_id, identity.secret
        self.remains = (NOT_REACHED,) if location.vacuum else (NOT_REACHED, NOT_VACUUMED)
        self._location = location
        self._pool = pool
        self._runtime = runtime
        self._loop = asyncio.get_running_loop()
        self._process = os.getpid()
        self._reads, self._notes = Reads(location.schema), Notes(location.schema)
        self._trails = Trails(location.schema)
        self._outstanding = OutstandingReads(location.schema)
        self._rows = Rows(location.schema)
        self._writer = Writer(self.name, pool, self._rows, Plain(location.schema, self._rows), runtime)
        self._group: LoopGroupWriter[Prepared] = LoopGroupWriter(self._writer.commit, self.name)
        self._eraser = Eraser(location, self._notes, runtime)
        self._ending: asyncio.Task[None] | None = None

    # --- writing ----------------------------------------------------------------------------

    async def commit(self, prepared: Prepared) -> Event:
        """Append one prepared draft with the next group."""
        self._check_writable()
        check_keys(prepared)
        return event_of(await self._group.do(prepared))

    async def restore(self, events: Sequence[Stored]) -> None:
        """Append events of another ledger as they are, in a transaction of their own."""
        self._check_writable()
        await self._writer.restore(events)

    def _check_writable(self) -> None:
        self._check_usable()
        if not self.writable:
            raise errors.LedgerReadOnly(name=self.name, cause="opened for reading")

    def _check_usable(self) -> None:
        """Refuse to work in a forked child or in another event loop, where the connections are not."""
        problem = None
        if os.getpid() != self._process:
            problem = "it was opened before this process was forked; open it again here"
        elif asyncio.get_running_loop() is not self._loop:
            problem = "it belongs to the event loop that it was opened in; open it again in this one"
        if problem is not None:
            raise errors.LedgerError(name=self.name, problem=problem)
        if self._ending is not None:
            raise errors.ClosedError(what=self.name)

    def _now(self) -> datetime:
        return check_calendar(self._runtime.clock.now(), self.name, "its clock says")

    # --- erasure ----------------------------------------------------------------------------

    async def erase(self) -> Erasure:
        """Rewrite the tables that hold erased rows; pending where a reader's snapshot is in the way."""
        self._check_usable()
        if not self.writable:
            return Erasure.PENDING if await self._read(self._notes.due) else Erasure.DONE
        if not await self._read(self._notes.due):
            return Erasure.DONE
        # The pool's connections keep their settings, and a VACUUM wants none of them.
        conn = await connect(self._location)
        try:
            return await self._eraser.run(conn)
        finally:
            await conn.close()

    # --- reading ----------------------------------------------------------------------------

    async def _read(self, query: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Ask a question, a second time where the server had closed the connection meanwhile."""
        self._check_usable()
        with ledger_errors(self.name):
            try:
                return await self._pool.lend(query, *args)
            except psycopg.Error as error:
                if not is_cut(error):
                    raise
            await self._pool.check()
            return await self._pool.lend(query, *args)

    async def check(self, prepared: Prepared) -> None:
        """Decide on a draft against the committed state, without writing."""
        check_keys(prepared)
        state, at, mark = await self._read(self._rows.look, [prepared])
        if mark is not None:
            raise mark.refusal(self.name)
        if at.tx_time is not None:
            check_calendar(at.tx_time, self.name, "its last event is of")
        Group(state, at, self._now()).admit(prepared)

    async def as_of(self, question: AsOf) -> Page[Fact]:
        """Answer an as-of question at one moment."""
        return await self._read(self._reads.as_of, question, self._runtime.clock.now())

    async def get(self, fact_id: str) -> Fact | None:
        """Return a fact whatever its state."""
        return await self._read(self._reads.get, fact_id)

    async def history(self, fact_id: str, limit: int, after: int) -> Page[Event]:
        """Return one fact's events in order."""
        return await self._read(self._reads.history, fact_id, limit, after)

    async def events(self, limit: int, after: int) -> list[dict[str, Any]]:
        """Return stored events, sections and salts included, in order."""
        return await self._read(self._reads.events, limit, after)

    async def spaces(self, limit: int, after: str) -> list[str]:
        """Return the spaces that have facts."""
        return await self._read(self._reads.spaces, limit, after)

    async def accounts(self, space: str | None, subject: str | None, limit: int, after: int) -> Page[Account]:
        """Return what there is on facts, a page at a time."""
        return await self._read(self._reads.accounts, space, subject, limit, after)

    async def facts(self, ids: Sequence[str]) -> dict[str, Fact | None]:
        """Return facts by id whatever their state."""
        return await self._read(self._reads.facts, list(ids))

    async def placements_of(self, ids: Sequence[str]) -> dict[str, list[Placement]]:
        """Return placements by fact id."""
        return await self._read(self._reads.placements_of, list(ids))

    async def known(self, ids: Sequence[str]) -> dict[str, Standing]:
        """Return the standing of every id."""
        return await self._read(self._reads.known, list(ids))

    async def placements(self, fact_id: str) -> list[Placement]:
        """Return a fact's placements."""
        return await self._read(self._reads.placements, fact_id)

    async def placements_in(
        self, states: Sequence[PlacementState], limit: int, after: int
    ) -> Page[Placement]:
        """Return placements by state, a page at a time."""
        return await self._read(self._reads.placements_in, list(states), limit, after)

    async def ended(self, store: str, limit: int, after: int) -> Page[Placement]:
        """Return a store's placements whose facts have ended, a page at a time."""
        return await self._read(self._reads.ended, store, limit, after, self._runtime.clock.now())

    async def owed(self, fact_id: str | None, limit: int, after: tuple[str, str]) -> list[tuple[str, str]]:
        """Return what is owed, of one fact or of all."""
        return await self._read(self._reads.owed, fact_id, limit, after, self._runtime.clock.now())

    async def waiting(self, limit: int, after: int) -> Page[Waiting]:
        """Return what is owed once it begins, a page at a time."""
        return await self._read(self._reads.waiting, limit, after, self._runtime.clock.now())

    async def unaccounted(self, store: str, pairs: Mapping[str, str], keep: bool) -> list[Unaccounted]:
        """Return the listed entries that are not current placements."""
        now = self._runtime.clock.now()
        return await self._read(self._reads.unaccounted, store, dict(pairs), keep, now)

    async def compare(self, store: str, listed: Mapping[str, str], keep: bool) -> list[Compared]:
        """Say of every listed entry what there is on it."""
        now = self._runtime.clock.now()
        return await self._read(self._reads.compare, store, dict(listed), keep, now)

    async def held(self, store: str, limit: int, after: int) -> Page[Held]:
        """Return a store's current placements, a page at a time."""
        return await self._read(self._reads.held, store, limit, after, self._runtime.clock.now())

    async def lacking(self, store: str, limit: int, after: int) -> Page[str]:
        """Return the facts that a store lacks, a page at a time."""
        return await self._read(self._reads.lacking, store, limit, after, self._runtime.clock.now())

    async def follow(self, entries: Sequence[Entry], trail: Trail) -> tuple[Instants, list[Followed]]:
        """Say of every entry where it leads."""
        return await self._read(self._trails.follow, list(entries), trail, self._runtime.clock.now())

    async def links(self, fact_ids: Sequence[str], trail: Trail) -> tuple[Instants, list[tuple[Link, ...]]]:
        """Return the chains of facts."""
        return await self._read(self._trails.links, list(fact_ids), trail, self._runtime.clock.now())

    async def removed_facts(self, about: About, limit: int, after: int) -> Page[Removed]:
        """Return facts of which something had to go, a page at a time."""
        return await self._read(self._outstanding.removed_facts, about, limit, after)

    async def count_removed(self, about: About) -> RemovedCount:
        """Count the facts of which something had to go."""
        return await self._read(self._outstanding.count_removed, about)

    async def backlog(self) -> list[Backlog]:
        """Return what is still to do by store."""
        return await self._read(self._outstanding.backlog, self._runtime.clock.now())

    async def whereabouts(self) -> Whereabouts:
        """Return which cluster, database and schema it is in, and the server's time.

        Only this machine's clock can be held against the server's; one that was made up is nobody's.
        """
        found = await self._read(self._reads.whereabouts)
        real = isinstance(self._runtime.clock, SystemClock)
        return found if real else replace(found, server_time=None)

    async def head(self) -> Head:
        """Return the committed head."""
        return await self._read(self._reads.head)

    async def derived(self, limit: int, after: str) -> tuple[Head, list[Derived]]:
        """Return what is kept beside the log, by fact id."""
        return await self._read(self._reads.derived, limit, after)

    async def blocks(self) -> tuple[Head, dict[int, int]]:
        """Return by block of the log the last event that changed one of its facts."""
        return await self._read(self._reads.blocks)

    async def structure(self) -> list[str]:
        """Return what stands in the schema that this version does not make."""
        return await self._read(self._reads.structure)

    async def notes(self, topic: str, limit: int, after: str = "") -> list[Note]:
        """Return a topic's notes in order of key."""
        return await self._read(self._notes.page, topic, limit, after)

    async def notes_at(self, topic: str, keys: Sequence[str]) -> dict[str, Note]:
        """Return a topic's notes by key."""
        return await self._read(self._notes.at, topic, list(keys))

    # --- notes ------------------------------------------------------------------------------

    async def _change(self, change: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Change notes, each in one statement; done twice it is done as well as once."""
        self._check_writable()
        return await self._read(change, *args)

    async def acquire(self, topic: str, key: str, value: str, holder: str, ttl: timedelta | None) -> Note:
        """Set a note unless another holder's stands; return the one that stands now."""
        return await self._change(self._notes.acquire, topic, key, value, holder, ttl, self._now(), self.name)

    async def put_notes(self, notes: Sequence[Note], *, arriving: bool = False) -> None:
        """Set notes in one statement."""
        await self._change(self._notes.put, notes, self.name, arriving)

    async def drop_notes(
        self, topic: str, keys: Sequence[str] | None = None, holder: str | None = None
    ) -> None:
        """Remove notes of a topic, by key or holder where given."""
        await self._change(self._notes.drop, topic, keys, holder)

    async def mark(self) -> Mark | None:
        """Return what stops the ledger."""
        return await self._read(self._notes.mark)

    async def set_mark(self, was: Mark | None, mark: Mark | None) -> bool:
        """Put a mark in another one's place."""
        return await self._change(self._notes.set_mark, was, mark, self._now())

    async def close(self) -> None:
        """Finish what waits, then let go of the connections; closing again waits for the same end."""
        if self._process != os.getpid():
            return
        if self._ending is None:
            self._check_usable()
            self._ending = asyncio.create_task(self._end())
        # Shielded: a close that nobody waits for any more goes on all the same.
        await asyncio.shield(self._ending)

    async def _end(self) -> None:
        await self._group.close()
        await self._writer.close()
        await self._pool.close()
