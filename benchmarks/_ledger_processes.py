"""Many processes append to one Postgres ledger: beside claims, which have no order at all.

The floor claims an id and appends its event in one statement, and only the unique key stands in
the way of another: what one writes who needs no total order. Rows of claims alone are shown too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

import psycopg
from _bench import at_once, median
from _ledger_appends import Drafts
from _ledger_log import Log
from psycopg import AsyncConnection

from custody_sync import Ledger
from custody_sync.ledger.chain import Prepared, prepare
from custody_sync.ledger.storage import open_storage
from custody_sync.runtime import Runtime

KINDS = ("ids", "claims", "storage", "ledger")
FIRST = 6
"""Of each writer, before the clock runs: everybody's statements are prepared by then."""
MAKE = """
CREATE TABLE claimed (fact_id text PRIMARY KEY, standing text NOT NULL);
CREATE TABLE appended (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_id text NOT NULL,
    fact_id text NOT NULL,
    tx_time timestamptz NOT NULL DEFAULT clock_timestamp(),
    body text NOT NULL
)
"""
ONLY = "INSERT INTO claimed (fact_id, standing) VALUES (%(fact_id)s, 'asserted') ON CONFLICT DO NOTHING"
CLAIM = f"""
WITH mine AS ({ONLY} RETURNING fact_id)
INSERT INTO appended (event_id, fact_id, body) SELECT %(event_id)s, fact_id, %(body)s FROM mine
"""


async def one_process(kind: str, url: str, writers: int, appends: int) -> None:
    """Prepare, wait to be told, append, and say how long it took."""
    log = Log(600)
    for _ in log.pages():
        pass
    first = FIRST * writers
    drafts = Drafts(log).make(first + appends)
    runtime = Runtime()
    ready = [prepare(draft, runtime.ids) for draft in drafts] if kind != "ledger" else []
    if kind in ("ids", "claims"):
        # Each writer has a connection of its own, and each claim a transaction.
        conns = [await AsyncConnection.connect(url, autocommit=True) for _ in range(writers)]
        rows = iter([_row(each) for each in ready])
        claims = partial(_claims, conns, ONLY if kind == "ids" else CLAIM)
        await claims(islice(rows, first))
        await _timed(lambda: claims(rows))
        for conn in conns:
            await conn.close()
        return
    if kind == "storage":
        storage = await open_storage(url, create=False, read_only=False, runtime=runtime)
        commits = ((storage.commit, {"prepared": each}) for each in ready)
        await at_once(writers, islice(commits, first))
        await _timed(lambda: at_once(writers, commits))
        await storage.close()
        return
    async with await Ledger.open(url) as ledger:
        appended = ((ledger.append, {"draft": draft}) for draft in drafts)
        await at_once(writers, islice(appended, first))
        await _timed(lambda: at_once(writers, appended))


def _row(prepared: Prepared) -> dict[str, str]:
    draft, sections = prepared.draft, prepared.sections.values()
    body = prepared.start + prepared.end + "".join(section.body for section in sections)
    return {"fact_id": draft.fact_id, "event_id": draft.event_id, "body": body}


async def _claims(
    conns: Sequence[AsyncConnection[Any]], statement: str, waiting: Iterator[dict[str, str]]
) -> None:
    async def claim(conn: AsyncConnection[Any]) -> None:
        for row in waiting:
            await conn.execute(statement.encode(), row)

    await asyncio.gather(*map(claim, conns))


async def _timed(work: Callable[[], Awaitable[object]]) -> None:
    print("ready", flush=True)
    sys.stdin.readline()
    start = time.time()
    await work()
    print(json.dumps([start, time.time()]), flush=True)


def rate(kind: str, url: str, processes: int, writers: int, appends: int) -> float:
    """Let processes append at once and return how many events a second they made together."""
    command = [sys.executable, __file__, kind, url, str(writers), str(appends)]
    children = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(processes)
    ]
    try:
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        for child in children:
            assert child.stdin is not None
            child.stdin.write("\n")
            child.stdin.flush()
        spans = [json.loads(child.communicate()[0]) for child in children]
    finally:
        for child in children:
            child.kill()
            child.wait()
    return processes * appends / (max(end for _, end in spans) - min(start for start, _ in spans))


def measure_processes(url: str, processes: int, writers: int, appends: int, rounds: int) -> dict[str, float]:
    """Alternate claims, storage and ledger; return the rates of the last two as shares of the first."""
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(MAKE.encode())
    rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(rounds):
        for kind in KINDS:
            rates[kind].append(rate(kind, url, processes, writers, appends))
    print(f"{processes} processes × {writers} writers, {rounds} rounds of {processes * appends} events")
    for kind, seen in rates.items():
        print(f"  {kind:8s} {median(seen):8.0f} a second")
    shares = {
        kind: median([mine / bare for mine, bare in zip(rates[kind], rates["claims"], strict=True)])
        for kind in ("storage", "ledger")
    }
    return {"postgres storage, of claims": shares["storage"], "postgres ledger, of claims": shares["ledger"]}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("url")
    parser.add_argument("writers", type=int)
    parser.add_argument("appends", type=int)
    given = parser.parse_args()
    asyncio.run(one_process(given.kind, given.url, given.writers, given.appends))
