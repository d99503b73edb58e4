"""Many processes append to one Postgres ledger: beside claims alone, which have no order at all."""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import psycopg
from _bench import at_once, median
from _ledger_appends import Drafts
from _ledger_log import Log
from psycopg import AsyncConnection

from custody_sync import Ledger
from custody_sync.ledger import Assert
from custody_sync.ledger.chain import prepare
from custody_sync.ledger.storage import open_storage
from custody_sync.runtime import Runtime

KINDS = ("claims", "storage", "ledger")
TABLE = "claims_only"
MAKE = f"CREATE TABLE {TABLE} (fact_id text PRIMARY KEY, standing text NOT NULL, seq bigint NOT NULL)"
CLAIM = f"INSERT INTO {TABLE} (fact_id, standing, seq) VALUES (%s, 'asserted', 0) ON CONFLICT DO NOTHING"


async def one_process(kind: str, url: str, writers: int, appends: int) -> None:
    """Prepare, wait to be told, append, and say how long it took."""
    log = Log(600)
    for _ in log.pages():
        pass
    drafts = Drafts(log).make(appends)
    if kind == "claims":
        # Each writer has a connection of its own, and each claim a transaction.
        conns = [await AsyncConnection.connect(url, autocommit=True) for _ in range(writers)]
        await _timed(_claims(conns, drafts))
        for conn in conns:
            await conn.close()
        return
    runtime = Runtime()
    if kind == "storage":
        storage = await open_storage(url, create=False, read_only=False, runtime=runtime)
        ready = [prepare(draft, runtime.ids) for draft in drafts]
        await _timed(lambda: at_once(writers, ((storage.commit, {"prepared": each}) for each in ready)))
        await storage.close()
        return
    async with await Ledger.open(url) as ledger:
        await _timed(lambda: at_once(writers, ((ledger.append, {"draft": draft}) for draft in drafts)))


def _claims(
    conns: Sequence[AsyncConnection[Any]], drafts: Sequence[Assert]
) -> Callable[[], Awaitable[object]]:
    waiting = iter(drafts)

    async def claim(conn: AsyncConnection[Any]) -> None:
        for draft in waiting:
            await conn.execute(CLAIM.encode(), (draft.fact_id,))

    return lambda: asyncio.gather(*map(claim, conns))


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
        for kind in KINDS[1:]
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
