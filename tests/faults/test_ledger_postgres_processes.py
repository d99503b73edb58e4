"""Several processes on one Postgres ledger: one order, seen as it was made, and one winner for each id."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise
from typing import Any

from fix_ledger import Child, check_replay, open_book, start

from custody_sync.ledger import Ledger
from custody_sync.runtime import Runtime

PROCESSES = 4


async def test_i8_four_processes_append_in_one_order_that_a_reader_sees_as_it_is_made(
    schema_url: str, tmp_path: Any
) -> None:
    """800 of 800, in one chain; nothing is seen before what came before it."""
    book = await open_book(tmp_path / "none", url=schema_url, runtime=Runtime(), create=True, witness=False)
    children = [Child("append", schema_url, me, 200) for me in range(PROCESSES)]
    await asyncio.to_thread(start, children)
    reports = [asyncio.create_task(asyncio.to_thread(child.report)) for child in children]
    seen: list[int] = []
    heads: list[int] = []
    while len(seen) < PROCESSES * 200:
        rows = await _next(book.ledger, seen)
        seen += rows
        page = await book.ledger.as_of(limit=1000)
        assert len(page) == page.head.seq, "a page shows exactly what its head counts"
        heads.append(page.head.seq)
        if all(report.done() for report in reports) and not rows:
            break
    assert seen == list(range(1, PROCESSES * 200 + 1))
    assert heads == sorted(heads)
    assert [len((await report)["done"]) for report in reports] == [200] * PROCESSES
    events = [row["event"] for row in await book.export()]
    assert all(a["tx_time"] < b["tx_time"] for a, b in pairwise(events))
    assert len({event["event_id"].split("-")[1] for event in events[:400]}) > 1, "the processes did not meet"
    await check_replay(book, tmp_path / "replayed.db")
    await book.ledger.close()


async def _next(ledger: Ledger, seen: list[int]) -> list[int]:
    """Return the numbers of the events that came since."""
    return [row["event"]["seq"] for row in await ledger._storage.events(1000, seen[-1] if seen else 0)]


async def test_l1_of_racing_processes_exactly_one_wins_each_id(schema_url: str) -> None:
    """Asserts and repairs of the same ids; the losers hear by name, and nobody of a lock."""
    count = 120
    async with await Ledger.open(schema_url, create=True, witness=False):
        pass
    children = [Child("race", schema_url, me, count) for me in range(PROCESSES)]
    start(children)
    reports = [child.report() for child in children]
    wins = Counter(fact_id for report in reports for fact_id in report["won"])
    assert wins == Counter({f"f{i:04d}": 1 for i in range(count)})
    lost = sum((Counter(report["lost"]) for report in reports), Counter())
    assert lost.total() == (PROCESSES - 1) * count
    assert set(lost) <= {"duplicate_fact", "repaired_id", "asserted_id", "already_recorded"}


async def test_l4_one_chain_built_by_four_processes_never_forks(schema_url: str, tmp_path: Any) -> None:
    """Every supersede that was taken covers the one before it, in one line."""
    book = await open_book(tmp_path / "none", url=schema_url, runtime=Runtime(), witness=False)
    first = await book.add("s", "p", valid_from=book.ledger.now())
    children = [Child("supersede", schema_url, me, 10) for me in range(PROCESSES)]
    start(children)
    assert [child.report()["done"] for child in children] == [10] * PROCESSES
    events = [row["event"] for row in await book.export()]
    await book.ledger.close()
    line = [event["data"]["supersedes"] for event in events]
    assert line == [None, first, *(event["fact_id"] for event in events[1:-1])]
