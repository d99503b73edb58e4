"""What `PgVectorStore.put_many` costs beside a raw COPY of the same columns into the same table.

Both begin with the facts, their labels and an embedder that answers at once, and end with a durable
commit; the floor makes the label's columns by hand and lets pgvector's own types pack the vectors.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from _bench import Bound, conclude, median, memory, spread
from pgvector import Vector
from pgvector.psycopg import register_vector_async
from psycopg_pool import AsyncConnectionPool

from custody_sync.adapters.pgvector import PgVectorStore
from custody_sync.model import Fact, Label
from custody_sync.runtime import Runtime
from custody_sync.testing.postgres import EmbeddedPostgres

BOUND: Bound = {"put_ratio": {"most": 2.0}}
DIMENSIONS = 384
TYPES = ("text", "text", "text", "text", "timestamptz", "text", "text", "vector")
COPY = """copy {} (key, fact_id, ledger_id, space, stored_at, custody, text, embedding)
    from stdin (format binary)"""
Items = Sequence[tuple[Fact, Label]]


@dataclass(frozen=True)
class Size:
    """How much is put."""

    rows: int
    rounds: int


FULL, QUICK = Size(rows=10_000, rounds=9), Size(rows=200, rounds=1)


class Embedder:
    """Vectors that were made before, so that no model is measured."""

    def __init__(self, seed: int = 7) -> None:
        chance = random.Random(seed)
        self._vectors = [[chance.gauss(0, 1) for _ in range(DIMENSIONS)] for _ in range(512)]

    def __call__(self, text: str) -> list[float]:
        return self._vectors[hash(text) % len(self._vectors)]


def items(count: int) -> Items:
    """Return new facts and labels."""
    runtime = Runtime()
    return [memory(runtime, "bench", n) for n in range(count)]


async def raw(connection: psycopg.AsyncConnection[Any], embed: Embedder, pairs: Items) -> None:
    """Write the same rows by hand."""
    async with (
        connection.transaction(),
        connection.cursor() as cursor,
        cursor.copy(COPY.format("floor").encode()) as copy,
    ):
        copy.set_types(TYPES)
        for fact, label in pairs:
            custody = label.to_metadata()["custody"]
            vector = Vector(embed(fact.text or ""))
            key = f"{label.fact_id}.{label.generation}"
            row = (key, label.fact_id, "bench", label.space, label.stored_at, custody, fact.text, vector)
            await copy.write_row(row)


async def measure(uri: str, size: Size) -> dict[str, float | None]:
    """Alternate ours and the floor, each on a table of its own, and return the medians."""
    embed = Embedder()
    ours, floor = list[float](), list[float]()
    pool: AsyncConnectionPool[Any] = AsyncConnectionPool(uri, open=False, min_size=1, max_size=2)
    store = PgVectorStore(pool, table="ours", dimensions=DIMENSIONS, embed=embed)
    twin = PgVectorStore(pool, table="floor", dimensions=DIMENSIONS, embed=embed)
    await store.find("nothing")
    await twin.find("nothing")
    async with await psycopg.AsyncConnection.connect(uri, autocommit=True) as connection:
        await register_vector_async(connection)
        for n in range(size.rounds + 1):
            mine, theirs = items(size.rows), items(size.rows)
            start = time.perf_counter()
            await store.put_many(mine)
            between = time.perf_counter()
            await raw(connection, embed, theirs)
            end = time.perf_counter()
            if n or size is QUICK:  # the first round fills the caches of both
                ours.append(between - start)
                floor.append(end - between)
            await connection.execute("truncate ours, floor")
    await pool.close()
    ratios = [a / b for a, b in zip(ours, floor, strict=True)]
    print(f"ours   {size.rows / median(ours):9,.0f} rows/s")
    print(f"floor  {size.rows / median(floor):9,.0f} rows/s")
    print(f"ratio  {spread(ratios)}")
    return {"put_ratio": median(ratios), "rows_per_second": size.rows / median(ours)}


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke test of a few seconds")
    quick = parser.parse_args().quick
    with EmbeddedPostgres(durable=True) as uri:
        figures = asyncio.run(measure(uri, QUICK if quick else FULL))
    return conclude("pgvector_put", figures, BOUND, enforced=not quick)


if __name__ == "__main__":
    sys.exit(main())
