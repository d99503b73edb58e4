"""Several processes on one ledger file: the first record wins, order holds, nobody hears of a lock."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from fix_ledger import Child, open_book, start

from custody_sync.errors import LedgerBusy
from custody_sync.ledger import Ledger, sqlite_files
from custody_sync.model import Erasure
from custody_sync.runtime import Runtime

PROCESSES = 8


def together(job: str, path: Path, arguments: list[tuple[object, ...]]) -> list[dict[str, Any]]:
    """Run processes that start at the same moment."""
    children = [Child(job, path, *each) for each in arguments]
    start(children)
    return [child.report() for child in children]


async def log_of(path: Path) -> list[dict[str, Any]]:
    """Read the whole log."""
    async with await Ledger.open(f"sqlite:///{path}") as ledger:
        return [row["event"] async for row in ledger.export()]


async def test_l1_of_eight_racing_processes_exactly_one_wins_each_id(tmp_path: Path) -> None:
    """500 ids, each raced by four asserts and four repairs; the losers get their refusal by name, no lock."""
    path, count = tmp_path / "l.db", 500
    await (await open_book(path)).ledger.close()
    reports = together("race", path, [(me, count) for me in range(PROCESSES)])
    wins = Counter(fact_id for report in reports for fact_id in report["won"])
    assert wins == Counter({f"f{i:04d}": 1 for i in range(count)})
    lost = sum((Counter(report["lost"]) for report in reports), Counter())
    assert lost.total() == (PROCESSES - 1) * count
    assert set(lost) <= {"duplicate_fact", "repaired_id", "asserted_id", "already_recorded"}
    events = await log_of(path)
    assert sorted(event["fact_id"] for event in events) == sorted(wins)
    assert [event["seq"] for event in events] == list(range(1, count + 1))
    assert all(a["tx_time"] < b["tx_time"] for a, b in pairwise(events))
    winner = {fact_id: me for me, report in enumerate(reports) for fact_id in report["won"]}
    assert all((event["kind"] == "repair") == bool(winner[event["fact_id"]] % 2) for event in events)
    assert len({event["event_id"].split("-")[0] for event in events}) > 1, "the processes did not meet"


async def test_l4_one_chain_built_by_four_processes_never_forks(tmp_path: Path) -> None:
    """Every supersede that was taken covers the one before it, in one line."""
    path = tmp_path / "l.db"
    book = await open_book(path, runtime=Runtime())
    first = await book.add("s", "p", valid_from=book.ledger.now())
    await book.ledger.close()
    reports = together("supersede", path, [(me, 25) for me in range(4)])
    assert [report["done"] for report in reports] == [25] * 4
    events = await log_of(path)
    assert len(events) == 101
    line = [event["data"]["supersedes"] for event in events]
    assert line == [None, first, *(event["fact_id"] for event in events[1:-1])]


async def test_eight_processes_that_create_one_ledger_make_one(tmp_path: Path) -> None:
    """All of them open the same ledger, whoever was first."""
    path = tmp_path / "l.db"
    reports = together("create-race", path, [(me, 8) for me in range(PROCESSES)])
    assert sum(len(report["won"]) for report in reports) == 8
    conn = sqlite3.connect(path)
    ids = conn.execute("SELECT value FROM settings WHERE name = 'ledger_id'").fetchall()
    conn.close()
    assert len(ids) == 1


@pytest.mark.parametrize("acknowledged", [3, 40, 200])
async def test_every_acknowledged_event_survives_a_kill(tmp_path: Path, acknowledged: int) -> None:
    """A process killed while it appends loses nothing that it was told is recorded, and the chain holds."""
    path = tmp_path / "l.db"
    await (await open_book(path)).ledger.close()
    child = Child("acknowledge", path, "me")
    child.go()
    lines = [child.out.readline().split() for _ in range(acknowledged)]
    os.kill(child.process.pid, signal.SIGKILL)
    # Not by `communicate`, which passes over what was read ahead with the lines before.
    rest = child.out.read()
    child.bury()
    told = lines + [line.split() for line in rest.splitlines() if len(line.split()[-1]) == 64]
    async with await Ledger.open(f"sqlite:///{path}") as ledger:
        log = [row async for row in ledger.export()]
        there = {row["event"]["fact_id"]: row["hash"] for row in log}
        assert {fact_id: there.get(fact_id) for fact_id, _ in told} == dict(told)
        assert [row["event"]["prev"] for row in log[1:]] == [row["hash"] for row in log[:-1]]
        assert (await ledger.head()).hash == log[-1]["hash"]
        assert await ledger.erase() is Erasure.DONE


async def test_a_forked_child_is_told_to_begin_anew(tmp_path: Path) -> None:
    """Instead of waiting for threads that it does not have; the parent goes on."""
    path = tmp_path / "l.db"
    await (await open_book(path)).ledger.close()
    (report,) = together("fork", path, [()])
    assert report["parent"] == 1
    assert len(report["child"]) == 3
    assert all("it was open when this process was forked" in said for said in report["child"])


async def test_nobody_opens_again_after_a_fork_what_was_open_before(tmp_path: Path) -> None:
    """SQLite would believe that it has the locks, which stay with the parent; what was closed is opened."""
    path, before = tmp_path / "l.db", tmp_path / "before.db"
    await (await open_book(path)).ledger.close()
    (report,) = together("reopen", path, [(f"sqlite:///{before}",)])
    again, other = report["child"]
    assert "it was open when this process was forked, which leaves SQLite's locks behind" in again
    assert "open it after the fork only, or start this process anew (spawn)" in again
    assert (other, report["parent"]) == ("", 1)
    async with await Ledger.open(f"sqlite:///{before}") as ledger:
        assert (await ledger.head()).seq == 1


async def test_a_lock_that_lasts_too_long_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the wait the caller hears that nothing was recorded; once the lock is gone it is."""
    monkeypatch.setattr(sqlite_files, "BUSY_TIMEOUT_MS", 50)
    book = await open_book(tmp_path / "l.db")
    other = sqlite3.connect(tmp_path / "l.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    draft = book.state()
    with pytest.raises(LedgerBusy, match="nothing was recorded"):
        await book.append(draft)
    assert await book.values() == []
    other.execute("ROLLBACK")
    other.close()
    await book.append(draft)
    assert await book.values() == ["pro"]
    await book.ledger.close()


async def test_another_processs_appends_are_seen_at_once(tmp_path: Path) -> None:
    """What one process was acknowledged, another one reads in its next question."""
    path = tmp_path / "l.db"
    book = await open_book(path)
    child = Child("acknowledge", path, "other")
    child.go()
    for _ in range(30):
        fact_id, digest = child.out.readline().split()
        (event,) = await book.ledger.history(fact_id)
        assert event.hash == digest
    child.process.kill()
    child.process.communicate(timeout=20)
    await book.ledger.close()
