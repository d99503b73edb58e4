"""What the benchmarks share: the raw ledger floor, medians, and the closing JSON line."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sqlite3
import statistics
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from custody_sync.ledger.rows import BLOCK_BITS
from custody_sync.model import Fact, Label, Provenance
from custody_sync.runtime import Runtime

Bound = Mapping[str, Mapping[str, float]]
"""By figure: `most` or `least`, the value it may not pass."""

# A claim and its placements are written with the event that claimed the id.
_CLAIMED_BY = "events e JOIN claims c ON c.fact_id = e.fact_id AND c.seq = e.seq"
TABLES = {
    "events": "events e",
    "sealed": "events e JOIN sealed t USING (seq)",
    "claims": _CLAIMED_BY,
    "facts": "events e JOIN facts t USING (seq)",
    "placements": f"{_CLAIMED_BY} JOIN placements t ON t.fact_id = c.fact_id",
}
_COLUMNS = {"events": "e.*", "claims": "c.*"}
TICK = timedelta(microseconds=1)


def memory(runtime: Runtime, ledger_id: str, number: int, at: datetime | None = None) -> tuple[Fact, Label]:
    """Return a new fact about one of 500 users, and a label for it, both of this moment or of a given one."""
    now, about = at or runtime.clock.now(), f"user:{number % 500}"
    said = f"note {number}: the customer prefers a call on weekdays before noon"
    fact = Fact(
        fact_id=runtime.ids.fact_id(now),
        space=about,
        subject=about,
        predicate="memory",
        value=said,
        text=said,
        actor="agent:bench",
        provenance=Provenance.ATTESTED,
        valid_from=now,
    )
    label = Label(
        ledger_id=ledger_id,
        fact_id=fact.fact_id,
        space=fact.space,
        stored_at=now,
        generation=runtime.ids.generation(),
        actor=fact.actor,
        provenance=fact.provenance,
        valid_from=now,
    )
    return fact, label


def median(values: Sequence[float]) -> float:
    """Return the median; half of a noisy machine's runs may be bad without moving it much."""
    return statistics.median(values)


def spread(values: Sequence[float]) -> str:
    """Show a median between its extremes."""
    return f"{median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def conclude(name: str, figures: Mapping[str, float | None], bound: Bound, *, enforced: bool) -> int:
    """Print the closing JSON line and return the exit code: 0 when every bound holds.

    A quick run is too short for its figures to mean anything, so it only shows that the
    benchmark still runs; `enforced` False then keeps the exit code 0.
    """
    holds = all(_within(figures[figure], limit) for figure, limit in bound.items())
    rounded = {key: None if value is None else round(value, 3) for key, value in figures.items()}
    print(json.dumps({"name": name, "figures": rounded, "bound": bound, "holds": holds}))
    return 0 if holds or not enforced else 1


def _within(value: float | None, limit: Mapping[str, float]) -> bool:
    return value is not None and limit.get("least", value) <= value <= limit.get("most", value)


async def at_once(n: int, calls: Iterable[tuple[Callable[..., Awaitable[Any]], dict[str, Any]]]) -> None:
    """Make calls with so many under way at any time."""
    waiting = iter(calls)

    async def worker() -> None:
        for call, arguments in waiting:
            await call(**arguments)

    await asyncio.gather(*(worker() for _ in range(n)))


@dataclass(slots=True)
class Rows:
    """Rows of one group of events, by table, and the head they lead to."""

    tables: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    head: tuple[Any, ...] = ()


class Reader:
    """Read what a ledger wrote, as the rows that a floor then writes by hand.

    Args:
        path: the ledger's file.
    """

    def __init__(self, path: Path) -> None:
        self._conn = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)

    def groups(self, after: int) -> list[Rows]:
        """Return what was appended after an event, in the groups in which ours committed it."""
        return [self._rows(first, last) for first, last in self._bounds(after)]

    def _bounds(self, after: int) -> Iterator[tuple[int, int]]:
        """Tell groups by their clock: it is read once a group, and then goes on by one tick an event."""
        events = self._conn.execute("SELECT seq, tx_time FROM events WHERE seq > ? ORDER BY seq", (after,))
        first = last = after
        before: datetime | None = None
        for seq, tx_time in events:
            now = datetime.fromisoformat(tx_time)
            if before is not None and now != before + TICK:
                yield first + 1, last
                first = last
            last, before = seq, now
        if last > first:
            yield first + 1, last

    def _rows(self, first: int, last: int) -> Rows:
        rows = Rows()
        for table, source in TABLES.items():
            query = f"SELECT {_COLUMNS.get(table, 't.*')} FROM {source} WHERE e.seq BETWEEN ? AND ?"
            rows.tables[table] = self._conn.execute(query, (first, last)).fetchall()
        head = "SELECT seq, tx_time, hash, ? FROM events WHERE seq = ?"
        rows.head = self._conn.execute(head, (last - first + 1, last)).fetchone()
        return rows

    def close(self) -> None:
        """Let go of the file."""
        self._conn.close()


class RawLedger:
    """The floor of an append: the ledger's schema and pragmas, its rows, and nothing else.

    Args:
        path: a ledger file that custody-sync created and closed, so that the schema is the same.
    """

    def __init__(self, path: Path) -> None:
        self._conn = sqlite3.connect(path, isolation_level=None)
        for pragma in ("secure_delete = ON", "journal_mode = WAL", "synchronous = FULL"):
            self._conn.execute(f"PRAGMA {pragma}")
        self._conn.execute("PRAGMA temp_store = MEMORY")
        self._insert = {table: self._statement(table) for table in TABLES}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        self._conn.close()

    def _statement(self, table: str) -> str:
        columns = self._conn.execute(f"SELECT count(*) FROM pragma_table_info('{table}')").fetchone()[0]
        return f"INSERT INTO {table} VALUES ({', '.join('?' * columns)})"

    def commit(self, rows: Rows) -> None:
        """Write one group in one durable transaction."""
        self._conn.execute("BEGIN IMMEDIATE")
        for table, theirs in rows.tables.items():
            self._conn.executemany(self._insert[table], theirs)
        blocks = dict.fromkeys((fact[0] >> BLOCK_BITS for fact in rows.tables["facts"]), rows.head[0])
        self._conn.executemany(
            "INSERT INTO blocks VALUES (?, ?) ON CONFLICT (block) DO UPDATE SET changed = excluded.changed",
            list(blocks.items()),
        )
        self._conn.execute("UPDATE head SET seq = ?, tx_time = ?, hash = ?, count = count + ?", rows.head)
        self._conn.execute("COMMIT")


class Growth:
    """How much more memory the process held at the peak than at the beginning."""

    def __init__(self) -> None:
        self.peak = 0

    @property
    def megabytes(self) -> float:
        """The growth, in units of 1,000,000 bytes."""
        return self.peak / 1e6


@contextmanager
def growth(interval: float = 0.002) -> Iterator[Growth]:
    """Sample the resident set in a thread while a block runs."""
    gc.collect()
    seen, done, start = Growth(), threading.Event(), _resident()

    def sample() -> None:
        while not done.wait(interval):
            seen.peak = max(seen.peak, _resident() - start)

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        seen.peak = max(seen.peak, _resident() - start)
        done.set()
        thread.join()


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
