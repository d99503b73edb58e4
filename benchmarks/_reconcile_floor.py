"""The floor of a reconciliation: what has to be asked and done, by hand and through the drivers alone."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import psycopg
from _bench import RawLedger, Reader, Rows, at_once
from _ledger_postgres import recording_postgres
from _ledger_raw import PRAGMAS, Recorder, recording_sqlite
from _reconcile_world import COLUMNS, NAME, TABLE, Drift, Place, Setting, vector_of
from psycopg.rows import tuple_row
from psycopg_pool import AsyncConnectionPool

from custody_sync import Ledger
from custody_sync.model import format_instant
from custody_sync.repair.listing import BATCH

LISTED = "key, fact_id, ledger_id, space, stored_at, created_at"
TABLES = ("events", "sealed", "claims", "placements")


class Questions(Protocol):
    """The questions of a ledger as its storage words them, asked through the driver."""

    def ask(self, name: str, **parameters: Any) -> list[tuple[Any, ...]]:
        """Issue a statement and fetch all its rows."""
        ...

    def close(self) -> None:
        """Let go of the connection."""
        ...


async def wordings(ledger: Ledger, storage: str) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Return by question the statement that a storage issues for it, and its parameters."""
    recording = recording_postgres if storage == "postgres" else recording_sqlite
    asked: dict[str, Callable[[], Awaitable[Any]]] = {
        "compare": lambda: ledger.compare(NAME, {"no such": "no such"}),
        "unaccounted": lambda: ledger.unaccounted(NAME, {"no such": "no such"}),
        "held": lambda: ledger.held(NAME, limit=BATCH),
        "lacking": lambda: ledger.lacking(NAME, limit=BATCH),
    }
    found: dict[str, tuple[Any, dict[str, Any]]] = {}
    for name, ask in asked.items():
        with recording() as recorder:
            await ask()
        found[name] = _wording(recorder)
    return found


def _wording(recorder: Recorder) -> tuple[Any, dict[str, Any]]:
    """Return the longest statement: the others begin a transaction, or read the head."""
    whole = [s for s in recorder.statements if isinstance(s.parameters, dict)]
    longest = max(whole, key=lambda statement: len(statement.sql))
    return longest.sql, dict(longest.parameters)


class Asked:
    """Questions through one synchronous connection.

    Args:
        connection: of `sqlite3` or psycopg.
        words: by question.
    """

    def __init__(self, connection: Any, words: dict[str, tuple[Any, dict[str, Any]]]) -> None:
        self._connection = connection
        self._words = words

    def ask(self, name: str, **parameters: Any) -> list[tuple[Any, ...]]:
        """Issue a statement and fetch all its rows."""
        sql, told = self._words[name]
        rows: list[tuple[Any, ...]] = self._connection.execute(sql, told | parameters).fetchall()
        return rows

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()


def connect(place: Place, setting: Setting) -> Any:
    """Connect to the ledger's rows."""
    if setting.storage == "postgres":
        return psycopg.connect(place.ledger("postgres"), autocommit=True, row_factory=tuple_row)
    conn = sqlite3.connect(place.ledger("sqlite").removeprefix("sqlite:///"), isolation_level=None)
    for pragma in PRAGMAS:
        conn.execute(f"PRAGMA {pragma}")
    return conn


# --- comparing -----------------------------------------------------------------------------------


class Comparing:
    """Lists a table and holds it against a ledger.

    Args:
        pool: of the table's database.
        questions: of the ledger.
        is_postgres: how a page is handed over, and where its answer has what.
    """

    def __init__(self, pool: AsyncConnectionPool[Any], questions: Questions, is_postgres: bool) -> None:
        self._pool = pool
        self._questions = questions
        self._is_postgres = is_postgres

    async def pages(self, columns: str) -> Any:
        """Yield pages of a bare server-side cursor."""
        async with self._pool.connection() as conn, conn.cursor(name="floor") as cursor:
            await cursor.execute(f"SELECT {columns} FROM {TABLE}".encode())
            while rows := await cursor.fetchmany(BATCH):
                yield rows

    async def sweep(self) -> list[tuple[str, str]]:
        """Return what the ledger does not stand behind."""
        found: list[tuple[str, str]] = []
        async for rows in self.pages(LISTED):
            pairs = {row[0]: row[1] for row in rows}
            loose = self._ask("unaccounted", "pairs", pairs)
            listed = list(pairs)
            keys = [listed[row[0]] if self._is_postgres else row[0] for row in loose]
            found += [(key, pairs[key]) for key in keys]
        return found

    async def compare(self) -> dict[str, list[tuple[str, str]]]:
        """Return what differs, by kind."""
        seen: set[int] = set()
        differing: dict[str, list[tuple[str, str]]] = {"orphan": [], "text": [], "label": [], "missing": []}
        async for rows in self.pages(f"{LISTED}, text, custody"):
            pairs = {row[0]: row[1] for row in rows}
            for row, answer in zip(rows, self._in_order(pairs), strict=True):
                kind = self._judge(row, answer, seen)
                if kind:
                    differing[kind].append((row[0], row[1]))
        after = 0
        while held := self._ask_held(after):
            differing["missing"] += [(row[2], row[3]) for row in held[:BATCH] if row[0] not in seen]
            if len(held) <= BATCH:
                break
            after = held[BATCH - 1][0]
        self._questions.ask("lacking")
        return differing

    def _ask(self, name: str, key: str, pairs: dict[str, str]) -> list[tuple[Any, ...]]:
        if not self._is_postgres:
            return self._questions.ask(name, **{key: json.dumps(pairs)})
        entries = [{"place": n, "external_id": k, "fact_id": f} for n, (k, f) in enumerate(pairs.items())]
        return self._questions.ask(name, entries=json.dumps(entries))

    def _in_order(self, pairs: dict[str, str]) -> Iterator[tuple[Any, ...]]:
        answers = self._ask("compare", "listed", pairs)
        if self._is_postgres:
            return iter(answers)
        by_key = {answer[0]: answer for answer in answers}
        return (by_key[key] for key in pairs)

    def _ask_held(self, after: int) -> list[tuple[Any, ...]]:
        rows = self._questions.ask("held", after=after)
        return [row[3:] for row in rows if row[3] is not None] if self._is_postgres else rows

    def _judge(self, row: tuple[Any, ...], answer: tuple[Any, ...], seen: set[int]) -> str:
        _, _, place, _, _, stored_at, current, *fact = answer
        if not current:
            return "orphan"
        seen.add(place)
        content = json.loads(fact[13])
        if content["body"]["text"] != row[6] if "body" in content else content["text"] != row[6]:
            return "text"
        said = json.loads(row[7])
        told = (said["actor"], said["provenance"], said["receipt_id"], said["valid_from"])
        if told != (fact[5], fact[6], fact[10], fact[7]) or row[3] != fact[2]:
            return "label"
        return "" if format_instant(row[4]) == stored_at else "label"


# --- mending -------------------------------------------------------------------------------------


class Hands:
    """Deletes, puts and questions, one statement each.

    Args:
        pool: of the table's database.
        limit: how many at once.
    """

    def __init__(self, pool: AsyncConnectionPool[Any], limit: int) -> None:
        self._pool = pool
        self._limit = limit

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete rows."""
        await at_once(
            self._limit,
            ((self._do, {"sql": f"DELETE FROM {TABLE} WHERE key = %s", "told": (k,)}) for k in keys),
        )

    async def check(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Ask whether rows are gone."""
        sql = f"SELECT key FROM {TABLE} WHERE key = %s UNION ALL SELECT key FROM {TABLE} WHERE fact_id = %s"
        await at_once(self._limit, ((self._do, {"sql": sql, "told": pair}) for pair in pairs))

    async def put(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Write rows."""
        marks = ", ".join(["%s"] * 8)
        again = "ON CONFLICT (key) DO UPDATE SET text = excluded.text"
        sql = f"INSERT INTO {TABLE} ({COLUMNS}) VALUES ({marks}) {again}"
        told = ((*row[:7], str(vector_of(hash(row[6])))) for row in rows)
        await at_once(self._limit, ((self._do, {"sql": sql, "told": one}) for one in told))

    async def relabel(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Write labels."""
        changes = ", ".join(f"{c} = %s" for c in ("fact_id", "ledger_id", "space", "stored_at", "custody"))
        sql = f"UPDATE {TABLE} SET {changes} WHERE key = %s"
        told = ((*row[1:6], row[0]) for row in rows)
        await at_once(self._limit, ((self._do, {"sql": sql, "told": one}) for one in told))

    async def _do(self, sql: str, told: Sequence[Any]) -> None:
        async with self._pool.connection() as conn:
            cursor = await conn.execute(sql.encode(), told)
            if cursor.description is not None:
                await cursor.fetchall()


async def floor(
    hands: Hands, comparing: Comparing, drifted: Drift | None, commit: Callable[[], None]
) -> dict[str, float]:
    """Do a sweep's work, or with drift a reconciliation's, and return the seconds of each part."""
    parts: dict[str, float] = {}
    last = time.perf_counter()

    def took(part: str) -> None:
        nonlocal last
        now = time.perf_counter()
        parts[part] = parts.get(part, 0.0) + now - last
        last = now

    if drifted is None:
        gone = await comparing.sweep()
        took("list, compare")
    else:
        differing = await comparing.compare()
        took("list, compare")
        await hands.check(differing["missing"])
        await hands.check(differing["missing"])
        took("ask for missing")
        gone = differing["orphan"]
    commit()
    took("events")
    if drifted is not None:
        fresh = [(f"{row[0]}x", *row[1:]) for row in (*drifted.lost, *drifted.edited)]
        await hands.put(fresh)
        await hands.relabel(drifted.relabelled)
        took("puts, labels")
        gone = [*gone, *differing["text"], *differing["missing"]]
        assert [len(differing[k]) for k in ("missing", "text", "label")] == [len(drifted.lost)] * 3
    await hands.delete([key for key, _ in gone])
    took("deletes")
    await hands.check(gone)
    took("checks")
    return parts


# --- events --------------------------------------------------------------------------------------


def sqlite_commit(written: Path, empty: Path, after: int) -> Callable[[], None]:
    """Return what writes the rows of ours since an event, in the same groups, into an empty ledger."""
    with closing(Reader(written)) as reader:
        groups = reader.groups(after=after)

    def commit() -> None:
        with RawLedger(empty) as raw:
            for rows in groups:
                raw.commit(rows)

    return commit


def postgres_commit(written: str, empty: str, after: int) -> Callable[[], None]:
    """Return the same for a ledger in Postgres."""
    groups = list(_postgres_groups(written, after))

    def commit() -> None:
        with psycopg.connect(empty, autocommit=True) as conn:
            for rows in groups:
                _commit(conn, rows)

    return commit


def _postgres_groups(url: str, after: int) -> Iterator[Rows]:
    source = {
        "events": "SELECT t.* FROM custody_sync.events t WHERE t.seq BETWEEN %s AND %s",
        "sealed": "SELECT t.* FROM custody_sync.sealed t WHERE t.seq BETWEEN %s AND %s",
        "claims": "SELECT t.* FROM custody_sync.claims t WHERE t.seq BETWEEN %s AND %s",
        "placements": "SELECT t.* FROM custody_sync.placements t WHERE t.id / 65536 BETWEEN %s AND %s",
    }
    with psycopg.connect(url, row_factory=tuple_row) as conn:
        at = conn.execute(
            "SELECT seq, tx_time FROM custody_sync.events WHERE seq > %s ORDER BY seq", (after,)
        ).fetchall()
        for first, last in _bounds(at):
            tables = {
                table: conn.execute(sql.encode(), (first, last)).fetchall() for table, sql in source.items()
            }
            yield Rows(tables=tables, head=(last, last - first + 1))


def _bounds(events: Sequence[tuple[int, str]]) -> Iterator[tuple[int, int]]:
    """Tell groups by their clock: within one it goes on by a microsecond an event."""
    first = before = 0
    last = ""
    for seq, tx_time in events:
        if first and not _follows(last, tx_time):
            yield first, before
            first = seq
        first, before, last = first or seq, seq, tx_time
    if first:
        yield first, before


def _follows(one: str, two: str) -> bool:
    return int(two[20:26]) - int(one[20:26]) in (1, -999_999)


def _commit(conn: psycopg.Connection[Any], rows: Rows) -> None:
    with conn.transaction(), conn.cursor() as cursor:
        for table, theirs in rows.tables.items():
            if theirs:
                marks = ", ".join(["%s"] * len(theirs[0]))
                cursor.executemany(f"INSERT INTO custody_sync.{table} VALUES ({marks})".encode(), theirs)
        cursor.execute(b"UPDATE custody_sync.head SET count = count + %s", (rows.head[1],))
