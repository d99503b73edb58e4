"""What verifying removed facts on pgvector costs beside bare SQL that asks the same.

Ours pages through a ledger of removed facts and asks the store about each: whether its row is there under
its key or under its fact id, and whether any row has its fact id. The floor knows the keys already and asks
the same table the same two things, one statement a page. What is left out of neither is the trip to the
server; what only ours does is read the ledger, count, and keep how far it came.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from _bench import Bound, conclude, growth, median, memory, spread
from psycopg_pool import AsyncConnectionPool

from custody_sync import AsyncCoordinator
from custody_sync.adapters.pgvector import PgVectorStore
from custody_sync.ledger import Assert, Ledger, Remove, Retract
from custody_sync.model import Outcome, Placement
from custody_sync.runtime import Runtime
from custody_sync.testing.postgres import EmbeddedPostgres

BOUND: Bound = {"verify_ratio": {"most": 60.0}, "megabytes": {"most": 60.0}}
DIMENSIONS = 8
PAGE = 500
SIZE_VARIABLE = "CUSTODY_SYNC_BENCH_FACTS"
FLOOR = """
select k.key,
    exists (select from removed t where t.key = k.key or (t.fact_id = k.fact_id and t.ledger_id = %s)),
    exists (select from removed t where t.fact_id = k.fact_id)
from unnest(%s::text[], %s::text[]) k (key, fact_id)
"""


@dataclass(frozen=True)
class Size:
    """How much was removed, beside how much is still there."""

    removed: int
    held: int
    rounds: int


QUICK = Size(removed=200, held=200, rounds=1)


def full() -> Size:
    """Return the size of a real run: as the environment says, or small enough for a coffee."""
    removed = int(os.environ.get(SIZE_VARIABLE, "5000"))
    return Size(removed=removed, held=removed, rounds=3)


def embed(_: str) -> list[float]:
    """Return one vector for everything: nothing is searched for by nearness once a text is gone."""
    return [1.0] * DIMENSIONS


async def fill(ledger: Ledger, store: PgVectorStore, size: Size) -> list[tuple[str, str]]:
    """Record facts that were removed and verified, and put others that nobody removed; return the keys."""
    runtime = Runtime()
    keys: list[tuple[str, str]] = []

    async def one(number: int) -> None:
        fact, label = memory(runtime, ledger.ledger_id, number)
        row = Placement(
            store=store.name,
            external_id=label.key,
            fact_id=fact.fact_id,
            scope=None,
            stored_at=label.stored_at,
        )
        new = runtime.ids.event_id
        await ledger.append(Assert(event_id=new(), fact=fact, placements=(row,)))
        await ledger.append(Retract(event_id=new(), fact_id=fact.fact_id, actor="bench"))
        await ledger.append(
            Remove(
                event_id=new(),
                fact_id=fact.fact_id,
                actor="bench",
                store=store.name,
                external_id=label.key,
                outcome=Outcome.VERIFIED,
            )
        )
        keys.append((label.key, fact.fact_id))

    for start in range(0, size.removed, 200):
        await asyncio.gather(*(one(n) for n in range(start, min(start + 200, size.removed))))
    await store.put_many([memory(runtime, ledger.ledger_id, n) for n in range(size.held)])
    return keys


async def bare(connection: psycopg.AsyncConnection[Any], ledger_id: str, keys: list[tuple[str, str]]) -> int:
    """Ask the same by hand, a page at a time; return how many are gone."""
    gone = 0
    for start in range(0, len(keys), PAGE):
        page = keys[start : start + PAGE]
        asked = (ledger_id, [key for key, _ in page], [fact_id for _, fact_id in page])
        rows = await (await connection.execute(FLOOR, asked)).fetchall()
        gone += sum(not under_key and not under_fact for _, under_key, under_fact in rows)
    return gone


async def measure(uri: str, folder: Path, size: Size) -> dict[str, float | None]:
    """Alternate ours and the floor, and return the medians."""
    pool: AsyncConnectionPool[Any] = AsyncConnectionPool(uri, open=False, min_size=1, max_size=8)
    store = PgVectorStore(pool, table="removed", dimensions=DIMENSIONS, embed=embed)
    ours, floor, peak = list[float](), list[float](), 0.0
    async with (
        pool,
        await Ledger.open(f"sqlite:///{folder}/custody.db", create=True, witness=False) as ledger,
        AsyncCoordinator(ledger, stores=[store]) as custody,
        await psycopg.AsyncConnection.connect(uri, autocommit=True) as connection,
    ):
        keys = await fill(ledger, store, size)
        await connection.execute("analyze removed")
        for _ in range(size.rounds):
            told = 0

            def tell(_: object) -> None:
                nonlocal told
                told += 1

            with growth() as grown:
                start = time.perf_counter()
                result = await custody.verify(actor="bench", tell=tell)
                between = time.perf_counter()
            assert (result.complete, told) == (True, size.removed), result
            assert await bare(connection, ledger.ledger_id, keys) == size.removed
            end = time.perf_counter()
            ours.append(between - start)
            floor.append(end - between)
            peak = max(peak, grown.megabytes)
    ratios = [a / b for a, b in zip(ours, floor, strict=True)]
    print(f"ours   {size.removed / median(ours):9,.0f} facts/s")
    print(f"floor  {size.removed / median(floor):9,.0f} facts/s")
    print(f"ratio  {spread(ratios)}")
    print(f"memory {peak:9.1f} MB more at the peak")
    return {
        "verify_ratio": median(ratios),
        "facts_per_second": size.removed / median(ours),
        "megabytes": peak,
    }


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke test of a few seconds")
    quick = parser.parse_args().quick
    with EmbeddedPostgres() as uri, tempfile.TemporaryDirectory() as folder:
        figures = asyncio.run(measure(uri, Path(folder), QUICK if quick else full()))
    return conclude("verify", figures, BOUND, enforced=not quick)


if __name__ == "__main__":
    sys.exit(main())
