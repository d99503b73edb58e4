"""Several processes on one JSONL file, and processes that die on it: nothing is lost, nothing stays half."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from fix_ledger import ACTOR, START, Child, files_of, open_book, start

from custody_sync.canonical import canonical
from custody_sync.errors import LedgerBroken, LedgerBusy, LedgerError
from custody_sync.faultpoints import FaultPoint
from custody_sync.ledger import Forget, Ledger, jsonl_lock
from custody_sync.model import Erasure
from custody_sync.runtime import Runtime

SECRET = "the-secret-that-has-to-go-0123456789"
POINTS = (
    FaultPoint.BEFORE_COMMIT,
    FaultPoint.AFTER_COMMIT,
    FaultPoint.BEFORE_ERASURE,
    FaultPoint.AFTER_ERASURE,
)


async def log_of(url: str) -> list[dict[str, Any]]:
    """Read the whole log."""
    async with await Ledger.open(url) as ledger:
        return [row async for row in ledger.export()]


@pytest.mark.parametrize("scheme", ["sqlite", "jsonl"])
async def test_four_processes_append_eight_hundred_events_to_one_file(tmp_path: Path, scheme: str) -> None:
    """All 800 are acknowledged and there, in one order and one chain, and nobody hears of a lock."""
    path = tmp_path / "l.db"
    await (await Ledger.open(f"{scheme}:///{path}", create=True)).close()
    children = [Child("append", path, me, 200, scheme=scheme) for me in range(4)]
    start(children)
    reports = await asyncio.gather(*[asyncio.to_thread(child.report) for child in children])
    told = sorted(tuple(each) for report in reports for each in report["done"])
    log = await log_of(f"{scheme}:///{path}")
    assert told == [(row["event"]["seq"], row["hash"]) for row in log]
    assert [seq for seq, _ in told] == list(range(1, 801))
    assert [row["event"]["prev"] for row in log[1:]] == [row["hash"] for row in log[:-1]]
    assert all(a["event"]["tx_time"] < b["event"]["tx_time"] for a, b in pairwise(log))
    writers = [row["event"]["fact_id"].split("-")[0] for row in log]
    assert sum(a != b for a, b in pairwise(writers)) > 3, "the processes did not meet"


async def new_ledger(path: Path) -> None:
    """Make a ledger with a few facts; one of them is to go."""
    book = await open_book(path, url=f"jsonl:///{path}", runtime=Runtime())
    for value in ("first", SECRET, "last"):
        await book.add(value=value, valid_from=START)
    await book.ledger.close()


def whole_lines(path: Path) -> list[bytes]:
    """Return the events of a file whose lines are whole."""
    lines = path.read_bytes().split(b"\n")[1:-1]
    return [line for line in lines if canonical(json.loads(line)) == line]


async def check_after_death(path: Path, acknowledged: bool) -> bool:
    """Reopen a ledger that a process died on; return whether what it was at is recorded."""
    before = whole_lines(path)
    async with await Ledger.open(f"jsonl:///{path}") as ledger:
        log = [row async for row in ledger.export()]
        assert set(files_of(path.parent)) <= {"l.jsonl", "l.jsonl-lock", "l.jsonl-notes"}
        assert [canonical(row) for row in log][: len(before)] == before
        assert whole_lines(path) == [canonical(row) for row in log]
        kinds = [row["event"]["kind"] for row in log]
        erased = "forget" in kinds
        done = erased or len(log) == 6
        assert done or not acknowledged
        values = {fact.value for fact in await ledger.as_of(limit=100)}
        assert (SECRET in values) != erased
        found = any(SECRET.encode() in data for data in files_of(path.parent).values())
        assert found != erased
        await ledger.append(Forget(event_id="e-last", fact_id=log[0]["event"]["fact_id"], actor=ACTOR))
        assert await ledger.erase() is Erasure.DONE
    assert "e-last" in [row["event"]["event_id"] for row in await log_of(f"jsonl:///{path}")]
    return done


def killed(path: Path, work: str, where: str) -> dict[str, Any] | None:
    """Let a process work until it is killed at a place; what it says where it lived on."""
    child = Child("die", path, work, where, SECRET, scheme="jsonl")
    child.go()
    out, err = child.process.communicate(timeout=100)
    assert err == ""
    if not out:
        assert child.process.returncode == -signal.SIGKILL
        return None
    report: dict[str, Any] = json.loads(out)
    return report


@pytest.mark.parametrize("when", ["half", "after"])
@pytest.mark.parametrize(("work", "least"), [("append", 4), ("forget", 6)])
async def test_a_process_killed_at_any_write_leaves_a_whole_ledger(
    tmp_path: Path, work: str, least: int, when: str
) -> None:
    """Before, within and after each call that changes a file: no event is lost, an erased value is gone."""
    outcomes: list[bool] = []
    for number in range(1, 40):
        path = tmp_path / str(number) / "l.jsonl"
        path.parent.mkdir()
        await new_ledger(path)
        report = killed(path, work, f"{when}:{number}")
        outcomes.append(await check_after_death(path, report is not None))
        if report is not None:
            assert report["writes"] == number - 1
            break
    assert len(outcomes) > least
    assert outcomes == sorted(outcomes), "what was durable once stayed so"
    assert set(outcomes) == {False, True}


@pytest.mark.parametrize("point", POINTS)
async def test_a_process_killed_at_a_fault_point_leaves_a_whole_ledger(
    tmp_path: Path, point: FaultPoint
) -> None:
    """A forget is not there before its commit and complete after it, value and all."""
    path = tmp_path / "l.jsonl"
    await new_ledger(path)
    assert killed(path, "forget", point) is None
    after = point in (FaultPoint.AFTER_COMMIT, FaultPoint.AFTER_ERASURE)
    assert await check_after_death(path, acknowledged=after) == after


@pytest.mark.parametrize("acknowledged", [3, 60])
async def test_every_acknowledged_event_survives_a_kill(tmp_path: Path, acknowledged: int) -> None:
    """What a process was told is recorded is there after it was killed, and a reader saw all of it."""
    path = tmp_path / "l.jsonl"
    url = f"jsonl:///{path}"
    await (await open_book(path, url=url)).ledger.close()
    reader = await Ledger.open(url, read_only=True)
    child = Child("acknowledge", path, "me", scheme="jsonl")
    child.go()
    told = {}
    for _ in range(acknowledged):
        fact_id, told[fact_id] = child.out.readline().split()
        (event,) = await reader.history(fact_id)
        assert event.hash == told[fact_id]
    os.kill(child.process.pid, signal.SIGKILL)
    # Read on where reading stopped: what the stream has taken in already may end within a line.
    rest = child.out.read()
    child.bury()
    told.update(line.split() for line in rest.splitlines() if re.fullmatch(r"\S+ [0-9a-f]{64}", line))
    there = {row["event"]["fact_id"]: row["hash"] for row in await log_of(url)}
    assert {fact_id: there.get(fact_id) for fact_id in told} == told
    assert (await reader.head()).hash == list(there.values())[-1]
    await reader.close()


async def test_what_another_process_erased_is_gone_from_this_one(tmp_path: Path) -> None:
    """Its file was replaced: the next question reads the new one, and an append goes on after it."""
    path = tmp_path / "l.jsonl"
    await new_ledger(path)
    book = await open_book(path, url=f"jsonl:///{path}", create=False, runtime=Runtime(), prefix="2-")
    assert SECRET in await book.values()
    report = killed(path, "forget", "none")
    assert report is not None
    assert await book.values() == ["first", "last"]
    await book.add(value="more", valid_from=START)
    assert not any(SECRET.encode() in data for data in files_of(tmp_path).values())
    assert len(await log_of(f"jsonl:///{path}")) == 5
    storage: Any = book.ledger._storage
    assert SECRET not in "\n".join(storage._image.conn.iterdump())
    await book.ledger.close()


async def test_a_lock_that_lasts_too_long_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is recorded, reading goes on, an erasure is pending; once the lock is gone all goes on."""
    monkeypatch.setattr(jsonl_lock, "PATIENCE", 0.05)
    path = tmp_path / "l.jsonl"
    book = await open_book(path, url=f"jsonl:///{path}")
    other = jsonl_lock.Lock(tmp_path / "l.jsonl-lock", "other", None)
    draft = book.state()
    with other.held(lambda: None):
        with pytest.raises(LedgerBusy, match="nothing was recorded"):
            await book.append(draft)
        assert await book.values() == []
        assert await book.ledger.erase() is Erasure.PENDING
    await book.append(draft)
    assert await book.values() == ["pro"]
    assert await book.ledger.erase() is Erasure.DONE
    await book.ledger.close()


async def test_what_is_written_and_not_yet_committed_is_not_read(tmp_path: Path) -> None:
    """It may be taken back when the disk turns out to be full; once the lock is free it stands."""
    path = tmp_path / "l.jsonl"
    url = f"jsonl:///{path}"
    book = await open_book(path, url=url)
    await book.add(value="first")
    reader = await Ledger.open(url, read_only=True)
    whole = path.read_bytes()
    await book.add(value="second")
    tail = path.read_bytes()[len(whole) :]
    os.truncate(path, len(whole))
    await book.ledger.close()
    lock = jsonl_lock.Lock(tmp_path / "l.jsonl-lock", "other", None)
    with lock.held(lambda: None):
        lock.mark((path.stat().st_dev, path.stat().st_ino), len(whole))
        with path.open("ab") as file:
            file.write(tail)
        assert [fact.value for fact in await reader.as_of()] == ["first"]
    assert [fact.value for fact in await reader.as_of()] == ["first", "second"]
    await reader.close()


async def test_a_file_put_back_to_yesterday_under_an_open_ledger_is_noticed(tmp_path: Path) -> None:
    """Whether by a new file or into the old one: events that were acknowledged are not there any more."""
    path = tmp_path / "l.jsonl"
    book = await open_book(path, url=f"jsonl:///{path}")
    await book.add(value="first")
    yesterday = path.read_bytes()
    await book.add(value="second")
    today = path.read_bytes()
    for put in (lambda data: path.write_bytes(data), lambda data: replaced(path, data)):
        put(yesterday)
        for work in (book.values(), book.append(book.state())):
            with pytest.raises(LedgerError, match="moved or replaced; open it again"):
                await work
        put(today)
        assert await book.values() == ["first", "second"]
    path.write_bytes(today[:-1].replace(b"second", b"Second") + b"\n")
    with pytest.raises(LedgerBroken, match=r"not intact at event 2: its content .* \(line 3\)"):
        await book.append(book.state())
    path.unlink()
    with pytest.raises(LedgerError, match="moved or replaced"):
        await book.values()
    await book.ledger.close()


def replaced(path: Path, data: bytes) -> None:
    """Put another file into a file's place."""
    other = path.with_name("other")
    other.write_bytes(data)
    other.replace(path)
