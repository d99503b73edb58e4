"""Appending plain facts to Postgres in one message, so that the lock is held by the server alone.

A group that supersedes nothing depends on nothing that is there, unless one of its names is on record
already. So the rules decide on it before the lock, as at the head of an empty ledger; under the lock
the server sees whether that was right, moves places, times and the chain behind the real head, writes,
and commits. Nobody waits there for a client to be scheduled, to think, or to answer, nor for what can
be looked up before.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import AsyncConnection
from psycopg.pq.abc import PGresult

from custody_sync.errors import Refused
from custody_sync.ledger import rows as places
from custody_sync.ledger.chain import FORMAT, Prepared
from custody_sync.ledger.drafts import Assert
from custody_sync.ledger.postgres_rows import Rows, columns_of, prefilled
from custody_sync.ledger.postgres_sql import statements
from custody_sync.ledger.postgres_wire import BEGIN, COMMIT, Call, Statement, array, last, quoted, results
from custody_sync.ledger.rows import MAX_PLACEMENTS
from custody_sync.ledger.rules import Group
from custody_sync.ledger.state import Appended, Position, State
from custody_sync.model import format_instant, read_instant

_APPENDED = 3
"""Which of a message's results says what was appended."""
PATIENCE = 0.15
"""Seconds from the reading of the clock to the lock, at most: an event is dated by it, and a placement is as
old as it says. Whoever is later asks the clock again, under the lock."""


class _Ahead(Group):
    """A group decided on before it is known where the log ends: nothing of it is sealed yet."""

    def _append(self, prepared: Prepared) -> Appended:
        seq = self.position.seq + 1
        self.position = Position(seq, self.tx, "")
        appended = Appended(prepared, seq, self.tx, format_instant(self.tx), "", "", "")
        self.appended.append(appended)
        self._admitted[prepared.draft.event_id] = appended
        return appended


@dataclass(frozen=True, slots=True)
class Attempt:
    """One message that appends a group, if nothing speaks against it."""

    drafts: Sequence[Prepared]
    calls: tuple[Call, ...]


class Plain:
    """The statements that append plain facts to one schema.

    Args:
        schema: the ledger's.
        rows: the statements of every other group, of which it takes the lock.
    """

    def __init__(self, schema: str, rows: Rows) -> None:
        parts = {
            "most": str(MAX_PLACEMENTS),
            "version": str(FORMAT),
            "patience": str(int(PATIENCE * 1000)),
        }
        self._sql = {
            name: Statement.read(name, prefilled(text, **parts))
            for name, text in statements("plain.sql", schema).items()
        }
        self._lock = rows.lock
        self.prepare = "; ".join(statement.prepare() for statement in self._sql.values()).encode()

    async def ahead(self, conn: AsyncConnection[Any]) -> float:
        """Return how far the server's clock is ahead of the event loop's."""
        asked = asyncio.get_running_loop().time()
        cursor = await conn.execute(self._sql["clock"].given.encode())
        (read,) = await cursor.fetchone() or (0,)
        return float(read) - asked

    def attempt(self, drafts: Sequence[Prepared], now: datetime, until: float) -> Attempt | None:
        """Return what appends a group; None where it is not plain, or a rule refuses some of it already.

        Args:
            drafts: the group.
            now: the ledger's clock.
            until: the server's time from when on that clock was read too long ago.
        """
        if not all(isinstance(each.draft, Assert) and each.draft.fact.supersedes is None for each in drafts):
            return None
        group = _Ahead(State(), Position(0, None, ""), now)
        try:
            for each in drafts:
                if not isinstance(group.admit(each), Appended):
                    return None
        except Refused:
            return None
        if len(group.appended) != len(drafts) or not _only_adds(group.state):
            return None
        values = {
            **columns_of(group),
            "now": format_instant(now),
            "until": repr(until),
            "count": len(drafts),
            "bits": places.BLOCK_BITS,
            "starts": array(quoted(each.start) for each in drafts),
            "ends": array(quoted(each.end) for each in drafts),
        }
        before, append = (self._sql[name].call(values) for name in ("before", "append"))
        return Attempt(drafts, (BEGIN, before, self._lock, append, COMMIT))

    async def send(self, conn: AsyncConnection[Any], attempt: Attempt) -> list[Appended] | None:
        """Send it, and return what was appended; None where nothing was, since a name is on record.

        Raises:
            psycopg.Error: the connection was lost, and with it the answer; or what the server says.
        """
        found = await results(conn, attempt.calls)
        if last(found).command_status != b"COMMIT":
            return None
        rows = found[_APPENDED]
        return _read(attempt.drafts, rows) if rows.ntuples else None


def is_quiet(conn: AsyncConnection[Any]) -> bool:
    """Tell whether an idle connection has nothing to say: what the server says unasked is a farewell."""
    poll = select.poll()
    poll.register(conn.pgconn.socket, select.POLLIN)
    return not poll.poll(0)


def _only_adds(state: State) -> bool:
    return not (
        state.changed_facts or state.owed_added or state.owed_settled or state.holds_added or state.forgotten
    )


def _read(drafts: Sequence[Prepared], rows: PGresult) -> list[Appended]:
    appended: list[Appended] = []
    prev = ""
    for n, prepared in enumerate(drafts):
        seq, tx_time, digest = (_text(rows, n, column) for column in range(3))
        tx = read_instant(tx_time)
        if tx is None:
            raise ValueError("tx_time")
        prev = prev or _text(rows, n, 3)
        appended.append(Appended(prepared, int(seq), tx, tx_time, prev, "", digest))
        prev = digest
    return appended


def _text(rows: PGresult, row: int, column: int) -> str:
    value = rows.get_value(row, column)
    return "" if value is None else value.decode()
