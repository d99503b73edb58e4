"""Closing and giving up: a ledger's files and threads are let go of, and whoever is caught by it is told."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from fix_ledger import Book, files_of, open_book

from custody_sync.errors import ClosedError, LedgerError
from custody_sync.ledger import Ledger
from custody_sync.ledger.sqlite_files import Location
from custody_sync.ledger.sqlite_reading import Reading
from custody_sync.ledger.sqlite_reads import head
from custody_sync.testing import ManualClock, testing_runtime


class Pool(ThreadPoolExecutor):
    """A thread that tells when it was let go of."""

    def __init__(self, name: str) -> None:
        super().__init__(1, name)
        self.let_go = threading.Event()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let go of it."""
        super().shutdown(wait, cancel_futures=cancel_futures)
        self.let_go.set()


class Pools:
    """Real threads that a test can hold up and wait for."""

    def __init__(self) -> None:
        self.made: list[Pool] = []
        self.gate = threading.Event()

    def __call__(self, name: str) -> Executor:
        """Make a worker thread."""
        self.made.append(Pool(name))
        return self.made[-1]

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep the reader's thread busy."""
        self.made[0].submit(self.gate.wait)
        try:
            yield
        finally:
            self.gate.set()

    def join(self) -> None:
        """Wait until all threads have ended by themselves; the reader's is let go of last."""
        assert self.made[0].let_go.wait(30)
        for pool in self.made:
            pool.shutdown(wait=True)


async def test_a_close_that_nobody_waits_for_is_finished_all_the_same(tmp_path: Path) -> None:
    """A cancelled close goes on, and a second one waits for its end."""
    pools = Pools()
    book = await open_book(tmp_path / "l.db", runtime=testing_runtime(executor=pools))
    await book.add()
    with pools.held():
        closing = asyncio.ensure_future(book.ledger.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
    await book.ledger.close()
    assert list(files_of(tmp_path)) == ["l.db"]


async def test_who_waits_when_a_ledger_is_closed_is_answered(tmp_path: Path) -> None:
    """What was asked before is answered, what comes after hears that it is closed, and nothing hangs."""
    pools = Pools()
    book = await open_book(tmp_path / "l.db", runtime=testing_runtime(executor=pools))
    await book.add()
    with pools.held():
        before = asyncio.ensure_future(book.ledger.head())
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(book.ledger.close())
        await asyncio.sleep(0)
        for late in (book.ledger.as_of(), book.ledger.erase(), book.append(book.state())):
            with pytest.raises(ClosedError):
                await late
    assert (await before).seq == 1
    await closing


@pytest.mark.storages("sqlite")
async def test_a_read_that_comes_to_its_turn_too_late_hears_that_the_ledger_is_closed(book: Book) -> None:
    """Another thread may have asked just before; SQLite's own complaint would be no answer."""
    reading = Reading(Location.parse(str(book.path)))
    assert reading.run(head, ()).seq == 0
    reading.close()
    with pytest.raises(ClosedError, match="is closed"):
        reading.run(head, ())


class SlowClock(ManualClock):
    """Stands still in another sense: it lets a ledger under creation wait."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.gate = threading.Event(), threading.Event()

    def now(self) -> datetime:
        """Wait for the gate, then answer."""
        self.asked.set()
        assert self.gate.wait(30)
        return super().now()


@pytest.mark.parametrize("when", ["before", "meanwhile"])
async def test_what_an_abandoned_opening_opens_is_closed(tmp_path: Path, when: str) -> None:
    """The thread cannot be stopped, but what it opened does not stay open until it is collected."""
    pools, clock = Pools(), SlowClock()
    gc.disable()
    try:
        opening = asyncio.ensure_future(
            Ledger.open(
                f"sqlite:///{tmp_path / 'l.db'}",
                create=True,
                runtime=testing_runtime(executor=pools, clock=clock),
            )
        )
        await asyncio.sleep(0)
        if when == "meanwhile":
            await asyncio.to_thread(clock.asked.wait, 30)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        clock.gate.set()
        await asyncio.to_thread(pools.join)
        assert set(files_of(tmp_path)) <= {"l.db"}
    finally:
        gc.enable()


@pytest.mark.storages("sqlite")
async def test_a_system_out_of_files_is_an_error_of_the_ledger(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Erasing says so in our words, and is completed once there are files again."""
    fact_id = await book.add(value="x" * 300)
    await book.append(book.forget(fact_id))

    def none_left(*_: Any, **__: Any) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", none_left)
        with pytest.raises(LedgerError, match="the system says EMFILE") as caught:
            await book.ledger.erase()
    assert caught.value.__context__ is None
    assert await book.ledger.erase() == "done"
