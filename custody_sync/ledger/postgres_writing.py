"""Committing groups in Postgres: two messages to the server, and the lock held between them.

The first takes the lock and brings what the rules need, the second carries all changes and the COMMIT.
Until the second is sent nothing can have been recorded; from then on a lost connection leaves it open.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import psycopg
from psycopg import AsyncConnection
from psycopg.pq import TransactionStatus

from custody_sync import errors
from custody_sync.errors.base import throw
from custody_sync.faultpoints import FaultPoint
from custody_sync.ledger.chain import Prepared
from custody_sync.ledger.checks import check_calendar
from custody_sync.ledger.postgres_errors import is_cut, is_lost, ledger_errors
from custody_sync.ledger.postgres_plain import PATIENCE, Plain, is_quiet
from custody_sync.ledger.postgres_pool import Pool
from custody_sync.ledger.postgres_rows import Rows, check_keys, read_loaded, read_row
from custody_sync.ledger.postgres_wire import COMMIT, Call, execute
from custody_sync.ledger.replaying import Replay, Stored, prepare_replay
from custody_sync.ledger.rules import Group
from custody_sync.ledger.state import Position, State
from custody_sync.ledger.storage import Way
from custody_sync.runtime import Runtime


class Writer:
    """The one connection of an open ledger that appends.

    Args:
        name: what errors call the ledger.
        pool: where the connection comes from, and another one when it is lost.
        rows: the statements.
        plain: those of groups that depend on nothing.
        runtime: clock and fault points.
    """

    def __init__(self, name: str, pool: Pool, rows: Rows, plain: Plain, runtime: Runtime) -> None:
        self._name = name
        self._pool = pool
        self._rows = rows
        self._plain = plain
        self._runtime = runtime
        self._conn: AsyncConnection[Any] | None = None
        self._ahead = 0.0
        self._turn = asyncio.Lock()

    async def commit(self, drafts: Sequence[Prepared]) -> list[Any]:
        """Append a group and return what became of each draft: appended, an earlier event, or refused."""
        async with self._turn:
            with ledger_errors(self._name):
                results = await self._commit(drafts)
            self._runtime.reach(FaultPoint.AFTER_COMMIT)
            return results

    async def _commit(self, drafts: Sequence[Prepared]) -> list[Any]:
        until = asyncio.get_running_loop().time() + self._ahead + PATIENCE
        attempt = self._plain.attempt(drafts, self._now(), until)
        if attempt is None or self._conn is None or not is_quiet(self._conn):
            return await self._decide(drafts)
        self._runtime.reach(FaultPoint.BEFORE_COMMIT)
        try:
            appended = await self._plain.send(self._conn, attempt)
        except psycopg.Error as error:
            if is_lost(error):
                return await self._settle(drafts)
            await self._leave(self._conn)
        except BaseException:
            await self._drop()
            raise
        else:
            if appended is not None:
                return list(appended)
            # One of the two clocks may have been set.
            self._ahead = await self._plain.ahead(self._conn)
        return await self._decide(drafts)

    async def _settle(self, drafts: Sequence[Prepared]) -> list[Any]:
        """Append again what was sent with its COMMIT: events that were committed are found by their ids."""
        await self._drop()
        try:
            return await self._decide(drafts)
        except (psycopg.Error, errors.LedgerError):
            throw(errors.OutcomeUnknown(name=self._name))

    async def _decide(self, drafts: Sequence[Prepared]) -> list[Any]:
        """Append a group that depends on what is there: the rules are asked under the lock."""
        conn, state, at = await self._begin(drafts, tuple(Way))
        try:
            group, loaded = self._group(state, at), frozenset(state.placements)
            results = [_admit(group, draft) for draft in drafts]
            changes = self._rows.write(group, loaded) if group.appended else []
            self._runtime.reach(FaultPoint.BEFORE_COMMIT)
        except BaseException:
            await self._leave(conn)
            raise
        await self._send(conn, changes)
        return results

    async def restore(self, events: Sequence[Stored]) -> None:
        """Append events that were admitted before, as they are, right after the head.

        Raises:
            LedgerBroken: an event does not follow, is not what its hash says, or breaks a rule.
        """
        async with self._turn:
            with ledger_errors(self._name):
                _, at, drafts = await self._replayed(events)
                conn, state, now_at = await self._begin(drafts, (Way.TO,))
                try:
                    if now_at != at:
                        # Somebody appended meanwhile, so they do not follow any more.
                        prepare_replay(events, now_at, self._name)
                    loaded = frozenset(state.placements)
                    replay = Replay(state, now_at, self._runtime.clock.now())
                    replay.take_all(events, drafts, self._name)
                    changes = self._rows.write(replay, loaded) if replay.appended else []
                except BaseException:
                    await self._leave(conn)
                    raise
                await self._send(conn, changes)

    async def _replayed(self, events: Sequence[Stored]) -> tuple[State, Position, list[Prepared]]:
        conn, state, at = await self._begin([], (Way.TO,))
        await self._leave(conn)
        drafts = prepare_replay(events, at, self._name)
        for draft in drafts:
            check_keys(draft)
        return state, at, drafts

    def _group(self, state: State, at: Position) -> Group:
        if at.tx_time is not None:
            check_calendar(at.tx_time, self._name, "its last event is of")
        return Group(state, at, self._now())

    def _now(self) -> datetime:
        return check_calendar(self._runtime.clock.now(), self._name, "its clock says")

    async def _begin(
        self, drafts: Sequence[Prepared], stops: Sequence[Way]
    ) -> tuple[AsyncConnection[Any], State, Position]:
        """Take the lock and read what a group depends on; nothing is lost by trying that twice."""
        calls = self._rows.begin(drafts)
        try:
            return await self._lock_and_load(calls, stops)
        except psycopg.Error as error:
            if not is_cut(error):
                raise
        # The server was restarted, or has cut off an idle connection.
        await self._pool.check()
        return await self._lock_and_load(calls, stops)

    async def _lock_and_load(
        self, calls: Sequence[Call], stops: Sequence[Way]
    ) -> tuple[AsyncConnection[Any], State, Position]:
        conn = self._conn
        try:
            conn = await self._connect()
            state, at, mark = read_loaded(read_row(await execute(conn, calls)))
            if mark is not None and mark.way in stops:
                raise mark.refusal(self._name)
            return conn, state, at
        except BaseException:
            if conn is not None:
                await self._leave(conn)
            raise

    async def _connect(self) -> AsyncConnection[Any]:
        """Return the connection, with all statements prepared on it."""
        if self._conn is None:
            conn = self._conn = await self._pool.getconn()
            # What psycopg prepares by itself it gives up after a ROLLBACK, and ours with it.
            conn.prepare_threshold = None
            try:
                await conn.execute(self._rows.prepare + b"; " + self._plain.prepare)
                self._ahead = await self._plain.ahead(conn)
            except BaseException:
                await self._drop()
                raise
        return self._conn

    async def _send(self, conn: AsyncConnection[Any], changes: Sequence[Call]) -> None:
        try:
            end = await execute(conn, [*changes, COMMIT])
        except psycopg.Error as error:
            # An error that leaves the connection is one of a change, and the COMMIT after it was skipped.
            known = not is_lost(error) and conn.info.transaction_status is TransactionStatus.INERROR
            await self._leave(conn)
            if known:
                raise
            throw(errors.OutcomeUnknown(name=self._name))
        except BaseException:
            await self._drop()
            raise
        if end.command_status != b"COMMIT":
            raise errors.LedgerError(name=self._name, problem="Postgres rolled the transaction back")

    async def _leave(self, conn: AsyncConnection[Any]) -> None:
        """End a transaction whose changes are not wanted; a connection that cannot is dropped."""
        try:
            await conn.execute(b"ROLLBACK")
        except psycopg.Error:
            await self._drop()
        except BaseException:
            await self._drop()
            raise

    async def _drop(self) -> None:
        """Give a connection up; what was prepared on it goes with it."""
        conn, self._conn = self._conn, None
        if conn is not None:
            with contextlib.suppress(psycopg.Error):
                await conn.close()
            await self._pool.putconn(conn)

    async def close(self) -> None:
        """Let go of the connection."""
        async with self._turn:
            conn, self._conn = self._conn, None
            if conn is not None:
                await self._pool.putconn(conn)


def _admit(group: Group, draft: Prepared) -> Any:
    try:
        return group.admit(draft)
    except errors.Refused as refusal:
        return refusal
