"""A sweep killed again and again: what it repeats, what it leaves, and what it never does."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from custody_sync.ledger import Assert, Ledger
from custody_sync.model import Fact, Label, Placement, Provenance
from custody_sync.runtime import Runtime

FULL = os.environ.get("CUSTODY_SYNC_FULL") == "1"
ENTRIES, BATCH, KILLS = (100_000, 10_000, 20) if FULL else (4_000, 1_000, 6)
ORPHANS = ENTRIES // 20
PAGE = 500
"""What is worked off between two notes of how far a sweep has come."""
HERE = Path(__file__).parent
DIMENSIONS = 8


class Yesterday:
    """A clock that is ten hours behind, so that what is built now is old enough for a sweep."""

    def now(self) -> datetime:
        """Return the time ten hours ago."""
        return datetime.now(UTC) - timedelta(hours=10)


@dataclass
class Log:
    """What the children said, in order."""

    path: Path
    rows: list[list[Any]] = field(default_factory=list)

    def read(self) -> None:
        """Read it anew."""
        self.rows = [json.loads(line) for line in self.path.read_text().splitlines()]

    @property
    def listed(self) -> int:
        """How many rows the table handed over."""
        return sum(row[1] for row in self.rows if row[0] == "listed")

    @property
    def deleted(self) -> Counter[str]:
        """How often each entry was deleted."""
        return Counter(row[1] for row in self.rows if row[0] == "deleted")

    @property
    def done(self) -> list[Any] | None:
        """What the sweep that came to its end said."""
        return self.rows[-1] if self.rows and self.rows[-1][0] == "done" else None


@dataclass
class Arena:
    """One ledger file and one table."""

    uri: str
    folder: Path
    table: str
    log: Log
    by: float = 0.0

    @property
    def ledger(self) -> str:
        """The ledger's URL."""
        return f"sqlite:///{self.folder / self.table}.db"

    def sweep(self, last: int) -> int:
        """Sweep in a process of its own, which is killed at a moment; return how it ended."""
        # A killed one's lease has lapsed by then, and its sweep is not outdated yet.
        self.by += 61
        order = {"last": last, "log": str(self.log.path), "by": self.by, "batch": BATCH}
        order |= {"uri": self.uri, "ledger": self.ledger, "table": self.table}
        command = [sys.executable, str(HERE / "sweep_child.py"), json.dumps(order)]
        environ = {**os.environ, "PYTHONPATH": str(HERE.parent)}
        ended = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
        self.log.read()
        return ended.returncode

    async def end_state(self) -> tuple[set[str], set[tuple[str, str]], Counter[str]]:
        """Return the table's keys, what was recorded of which entry, and how often orphans were."""
        events: set[tuple[str, str]] = set()
        repairs: Counter[str] = Counter()
        async with await Ledger.open(self.ledger, witness=False) as ledger:
            assert await ledger.pending() == []
            for topic in ("sweep-run", "sweep-spool", "sweep-seen", "lease"):
                assert await ledger.notes(topic) == []
            async for row in ledger.export():
                event, refs = row["event"], row["sealed"].get("refs", {}).get("body", {})
                if event["kind"] == "assert":
                    continue
                events.add((event["data"].get("outcome", event["kind"]), refs["external_id"]))
                if event["kind"] == "repair":
                    repairs[refs["external_id"]] += 1
        return set(_ask(self.uri, f"select key from {self.table}")), events, repairs


def _ask(uri: str, statement: str) -> Iterator[str]:
    import psycopg

    with psycopg.connect(uri, autocommit=True) as conn:
        cursor = conn.execute(statement.encode())
        yield from (row[0] for row in (cursor.fetchall() if cursor.description else ()))


def _memory(runtime: Runtime, ledger_id: str, number: int) -> tuple[Fact, Label]:
    now = runtime.clock.now()
    common: dict[str, Any] = {"fact_id": runtime.ids.fact_id(now), "space": "org", "actor": "agent:test"}
    common |= {"provenance": Provenance.ATTESTED, "valid_from": now}
    fact = Fact(subject=f"s:{number}", predicate="p", value=number, text=f"s:{number} p: {number}", **common)
    return fact, Label(ledger_id=ledger_id, stored_at=now, generation="g", **common)


async def _build(arena: Arena) -> None:
    """Fill ledger and table: every asserted fact in both, and orphans in the table alone."""
    import psycopg
    from psycopg_pool import AsyncConnectionPool

    from custody_sync.adapters.pgvector import PgVectorStore

    runtime = Runtime(clock=Yesterday())
    url = f"{arena.ledger}?synchronous=off"
    labels: list[Label] = []
    async with await Ledger.open(url, create=True, runtime=runtime, witness=False) as ledger:
        for start in range(0, ENTRIES - ORPHANS, 200):
            made = [_memory(runtime, ledger.ledger_id, start + n) for n in range(200)]
            await asyncio.gather(
                *(
                    ledger.append(
                        Assert(
                            event_id=runtime.ids.event_id(),
                            fact=fact,
                            placements=(
                                Placement(
                                    store="memories",
                                    external_id=label.key,
                                    fact_id=fact.fact_id,
                                    scope=None,
                                    stored_at=label.stored_at,
                                ),
                            ),
                        )
                    )
                    for fact, label in made
                )
            )
            labels += [label for _, label in made]
        labels += [_memory(runtime, ledger.ledger_id, n)[1] for n in range(ORPHANS)]
    async with AsyncConnectionPool(arena.uri, open=False) as pool:
        await PgVectorStore(pool, table=arena.table, dimensions=DIMENSIONS, embed=list).find("nothing")
    columns = "key, fact_id, ledger_id, space, stored_at, custody, text, embedding"
    statement = f"copy {arena.table} ({columns}) from stdin".encode()
    with psycopg.connect(arena.uri) as conn, conn.cursor().copy(statement) as copy:
        for label in labels:
            head = (label.key, label.fact_id, label.ledger_id, label.space, label.stored_at)
            copy.write_row((*head, label.to_metadata()["custody"], "x", str([1.0] * DIMENSIONS)))


@pytest.mark.timeout(3000 if FULL else 240)
async def test_a_sweep_killed_at_random_moments_ends_as_one_that_was_left_alone(
    database_uri: str, tmp_path: Path
) -> None:
    """Each kill repeats a batch at most; no entry is deleted without an event, and none is recorded twice."""
    alone = Arena(database_uri, tmp_path, "alone", Log(tmp_path / "alone.log"))
    await _build(alone)
    killed = Arena(database_uri, tmp_path, "killed", Log(tmp_path / "killed.log"))
    shutil.copy(tmp_path / "alone.db", tmp_path / "killed.db")
    list(_ask(database_uri, "create table killed (like alone including all)"))
    list(_ask(database_uri, "insert into killed select * from alone"))

    assert alone.sweep(0) == 0
    assert alone.log.done is not None
    moments = alone.log.done[1]
    assert alone.log.done[2:] == [True, ORPHANS, {"memories": ENTRIES}]

    chance = random.Random(7)
    for nth in range(KILLS):
        # The first half of them while it is still listed: of all moments those are few.
        range_of = (20, 40) if nth < KILLS // 2 else (1, 3 * moments // (2 * KILLS))
        assert killed.sweep(chance.randint(*range_of)) == -signal.SIGKILL
        _check_recorded(killed, await _recorded(killed))
    assert killed.sweep(0) == 0
    done = killed.log.done
    assert done is not None
    assert done[2]

    assert await killed.end_state() == await alone.end_state()
    _, _, repairs = await killed.end_state()
    assert set(repairs.values()) == {1}
    repeated_rows = killed.log.listed - ENTRIES
    repeated_deletes = killed.log.deleted.total() - ORPHANS
    said = f"{repeated_rows} rows listed again, {repeated_deletes} deletes made again"
    print(f"{KILLS} kills within {moments} moments: {said}")
    assert 0 <= repeated_rows <= KILLS * BATCH
    assert 0 <= repeated_deletes <= KILLS * PAGE
    assert len(killed.log.deleted) == ORPHANS


async def _recorded(arena: Arena) -> set[str]:
    async with await Ledger.open(arena.ledger, witness=False, read_only=True) as ledger:
        return {
            row["sealed"]["refs"]["body"]["external_id"]
            async for row in ledger.export()
            if row["event"]["kind"] in ("repair", "remove")
        }


def _check_recorded(arena: Arena, recorded: set[str]) -> None:
    there = set(_ask(arena.uri, f"select key from {arena.table}"))
    gone = set(_ask(arena.uri, "select key from alone")) | set(arena.log.deleted)
    assert set(arena.log.deleted) <= recorded, "deleted without an event"
    assert gone - there <= recorded, "gone without an event"
