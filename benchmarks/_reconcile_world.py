"""A ledger and a pgvector table that agree, built fast, and ways to make them drift apart again."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
from _bench import memory
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import AsyncConnectionPool

from custody_sync.adapters.pgvector import PgVectorStore
from custody_sync.canonical import parse
from custody_sync.ledger import Assert, Retract
from custody_sync.ledger.chain import GENESIS, prepare, seal
from custody_sync.ledger.drafts import Draft
from custody_sync.ledger.replaying import Stored
from custody_sync.ledger.storage import open_storage
from custody_sync.model import Fact, Label, Placement, format_instant
from custody_sync.runtime import Runtime

TABLE, DIMENSIONS, NAME = "memories", 8, "pgvector"
PAGE = 5_000
CLUSTERS = 50
COLUMNS = "key, fact_id, ledger_id, space, stored_at, custody, text, embedding"
BETWEEN = timedelta(milliseconds=10)
RESTORED = 10_000


@dataclass(frozen=True)
class Setting:
    """What is compared: how many entries, beside how many events, in which ledger, under which index."""

    entries: int
    events: int
    storage: str
    index: str = "none"
    rounds: int = 3

    @property
    def orphans(self) -> int:
        """One entry of a hundred."""
        return max(self.entries // 100, 1)

    @property
    def drifted(self) -> int:
        """Two entries of a thousand: so many are lost, and so many have another text, or another label."""
        return max(self.entries // 500, 1)

    def __str__(self) -> str:
        beside = "" if self.events == self.entries else f" beside {self.events} events"
        return f"{self.entries} entries{beside}, {self.storage}, index {self.index}"


@dataclass(frozen=True)
class Place:
    """Where one world is."""

    server: str
    folder: Path
    name: str

    def url(self, database: str) -> str:
        """Return the URL of a database of this world."""
        host = conninfo_to_dict(self.server)["host"]
        return f"postgresql://postgres@/{self.name}_{database}?host={host}"

    def ledger(self, storage: str, name: str = "ledger") -> str:
        """Return a ledger's URL."""
        return self.url(name) if storage == "postgres" else f"sqlite:///{self.folder / self.name}_{name}.db"

    def make(self, *databases: str) -> None:
        """Make empty databases."""
        with psycopg.connect(self.server, autocommit=True) as conn:
            for database in databases:
                conn.execute(f"CREATE DATABASE {self.name}_{database}".encode())

    def drop(self, *databases: str) -> None:
        """Drop them again."""
        with psycopg.connect(self.server, autocommit=True) as conn:
            for database in databases:
                conn.execute(f"DROP DATABASE IF EXISTS {self.name}_{database} WITH (FORCE)".encode())


def store_of(pool: AsyncConnectionPool[Any], index: str) -> PgVectorStore:
    """Return the adapter."""
    return PgVectorStore(
        pool,
        table=TABLE,
        dimensions=DIMENSIONS,
        embed=lambda text: vector_of(hash(text)),
        name=NAME,
        index="hnsw" if index == "hnsw" else None,
        page_size=PAGE,
    )


def vector_of(number: int) -> list[float]:
    """Return a vector near the middle of one of the clusters, as those of texts about one matter are."""
    middle, noise = random.Random(number % CLUSTERS), random.Random(number)
    return [middle.uniform(-1, 1) + noise.uniform(-0.05, 0.05) for _ in range(DIMENSIONS)]


# --- building ------------------------------------------------------------------------------------


class Story:
    """The events of a ledger, and the labels of the entries that stand for them.

    Args:
        ledger_id: whose labels they are.
        entries: how many facts the store holds.
        events: how many events there are; what is beyond the entries was stated and taken back.
    """

    def __init__(self, ledger_id: str, entries: int, events: int) -> None:
        self._runtime = Runtime()
        self._ledger_id = ledger_id
        self._entries = entries
        self._events = events
        self._now = datetime.now(UTC) - timedelta(days=1)

    def pages(self) -> Iterator[tuple[list[Stored], list[tuple[Fact, Label]]]]:
        """Yield events, and what the store holds of them."""
        prev, labelled = GENESIS, list[tuple[Fact, Label]]()
        page: list[Stored] = []
        for seq, draft in enumerate(itertools.islice(self._drafts(labelled), self._events), start=1):
            prepared = prepare(draft, self._runtime.ids)
            body, prev = seal(prepared, seq=seq, tx_time=format_instant(self._now), prev=prev)
            page.append(Stored(parse(body), body, prev, dict(prepared.sections)))
            self._now += BETWEEN
            if len(page) == RESTORED or seq == self._events:
                yield page, labelled
                page = []
                labelled.clear()

    def _drafts(self, labelled: list[tuple[Fact, Label]]) -> Iterator[Draft]:
        for number in itertools.count():
            fact, label = memory(self._runtime, self._ledger_id, number, self._now)
            event_id = self._runtime.ids.event_id()
            if number < self._entries:
                labelled.append((fact, label))
                yield Assert(event_id=event_id, fact=fact, placements=(placement_of(label),))
            else:
                yield Assert(event_id=event_id, fact=fact)
                other = self._runtime.ids.event_id()
                yield Retract(event_id=other, fact_id=fact.fact_id, actor=fact.actor, reason="mistaken")


def placement_of(label: Label) -> Placement:
    """Return what the ledger has of an entry."""
    return Placement(
        store=NAME, external_id=label.key, fact_id=label.fact_id, scope=None, stored_at=label.stored_at
    )


async def build(place: Place, setting: Setting) -> None:
    """Fill a ledger and a table that agree."""
    url = place.ledger(setting.storage)
    if setting.storage == "sqlite":
        url += "?synchronous=off"
    async with AsyncConnectionPool(place.url("store"), open=False) as pool:
        await store_of(pool, "none").find("nothing")
    storage = await open_storage(url, create=True, read_only=False, runtime=Runtime())
    story = Story(storage.ledger_id, setting.entries, setting.events)
    numbers = itertools.count()
    with psycopg.connect(place.url("store")) as conn:
        for page, labelled in story.pages():
            await storage.restore(page)
            copy_rows(conn, labelled, numbers)
    await storage.close()
    async with AsyncConnectionPool(place.url("store"), open=False) as pool:
        await store_of(pool, setting.index).find("nothing")
    urls = [place.url("store"), *([url] if setting.storage == "postgres" else [])]
    for vacuumed in urls:
        with psycopg.connect(vacuumed, autocommit=True) as conn:
            conn.execute("VACUUM ANALYZE")


def copy_rows(
    conn: psycopg.Connection[Any], rows: Iterable[tuple[Fact, Label]], numbers: Iterator[int]
) -> None:
    """Put rows into the table as the adapter would have."""
    with conn.cursor().copy(f"COPY {TABLE} ({COLUMNS}) FROM STDIN".encode()) as copy:
        for fact, label in rows:
            custody = label.to_metadata()["custody"]
            vector = str(vector_of(next(numbers)))
            copy.write_row(
                (label.key, label.fact_id, label.ledger_id, label.space, label.stored_at, custody,
                 fact.text, vector)
            )  # fmt: skip


# --- drifting ------------------------------------------------------------------------------------

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Drift:
    """What was done to the table, whole rows as they were before."""

    lost: Sequence[Row]
    edited: Sequence[Row]
    relabelled: Sequence[Row]
    orphans: Sequence[str]


def drift(url: str, ledger_id: str, setting: Setting, seed: int, entries: bool) -> Drift:
    """Leave orphans, and if told to lose some entries, edit others and relabel others."""
    runtime, at = Runtime(), datetime.now(UTC) - timedelta(hours=20)
    orphans = [memory(runtime, ledger_id, number, at) for number in range(setting.orphans)]
    some = setting.drifted if entries else 0
    with psycopg.connect(url) as conn:
        rows = conn.execute(
            f"SELECT {COLUMNS} FROM {TABLE} ORDER BY hashtextextended(key, %s) LIMIT %s".encode(),
            (seed, 3 * some),
        ).fetchall()
        lost, edited, relabelled = rows[:some], rows[some : 2 * some], rows[2 * some :]
        for change, theirs in (
            (f"DELETE FROM {TABLE}", lost),
            (f"UPDATE {TABLE} SET text = 'somebody else wrote this'", edited),
            (f"UPDATE {TABLE} SET space = 'elsewhere'", relabelled),
        ):
            conn.execute(f"{change} WHERE key = ANY(%s)".encode(), ([row[0] for row in theirs],))
        copy_rows(conn, orphans, itertools.count())
    with psycopg.connect(url, autocommit=True) as conn:
        # Else the second of a round would pay for what the first left dead.
        conn.execute(f"VACUUM {TABLE}".encode())
    return Drift(lost, edited, relabelled, [label.key for _, label in orphans])
