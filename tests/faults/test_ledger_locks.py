"""SQLite's locks on a ledger stay whatever this process reads of its files: others see that it is open."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from fix_ledger import Book, open_book

from custody_sync import Ledger
from custody_sync.cli.main import run_command
from custody_sync.ledger import sqlite_bytes
from custody_sync.model import Erasure

VISIT = """
import sqlite3, sys
conn = sqlite3.connect(sys.argv[1])
print(conn.execute("SELECT count(*) FROM events").fetchone()[0])
conn.close()
"""
"""Reads and closes as any other tool does; who closes a database last removes its write-ahead log."""


UNWITNESSED = 3
"""The status of a verification that nobody's head was given to."""


async def visit(path: Path) -> int:
    """Count the events in another process, which closes the file after that."""
    asked = [sys.executable, "-c", VISIT, str(path)]
    told = await asyncio.to_thread(subprocess.run, asked, capture_output=True, text=True, check=True)
    return int(told.stdout)


def log_number(path: Path) -> int | None:
    """Return the file number of the write-ahead log, if there is one."""
    log = Path(f"{path}-wal")
    return log.stat().st_ino if log.exists() else None


async def append(book: Book) -> None:
    """Record one fact more."""
    await book.add("s", "p")


async def forget(book: Book) -> None:
    """Erase a fact, whose salt is looked for in the file."""
    await book.append(book.forget(await book.add("s", "forgotten")))
    assert await book.ledger.erase() is Erasure.DONE


async def forget_many(book: Book) -> None:
    """Erase more than is looked for, so that the file is written anew."""
    for _ in range(20):
        await book.append(book.forget(await book.add("s", "forgotten")))
    assert await book.ledger.erase() is Erasure.DONE


async def open_again(book: Book) -> None:
    """Open and close the ledger a second time."""
    await (await Ledger.open(f"sqlite:///{book.path}")).close()


async def open_to_read(book: Book) -> None:
    """Open and close it to read only."""
    await (await Ledger.open(f"sqlite:///{book.path}", read_only=True)).close()


async def create_again(book: Book) -> None:
    """Open it as if it might have to be made."""
    await (await Ledger.open(f"sqlite:///{book.path}", create=True)).close()


async def write_elsewhere(book: Book) -> None:
    """Let a second handle of this process write and be closed."""
    second = await open_book(book.path, create=False, prefix="second", seed=9)
    await second.add("s", "p")
    await second.ledger.close()


async def hold_against_the_log(book: Book) -> None:
    """Verify the whole ledger, its witness included."""
    assert not (await book.ledger.verify()).found


async def export(book: Book) -> None:
    """Write out the log."""
    assert [row async for row in book.ledger.export()]


async def run_commands(book: Book) -> None:
    """Run commands in this process, as a notebook or a scheduler does."""
    for command, status in ((["status"], 0), (["ledger", "verify"], UNWITNESSED)):
        asked = [*command, "--ledger", f"sqlite:///{book.path}"]
        assert await asyncio.to_thread(run_command, asked) == status, command


ACTS = (
    append,
    forget,
    forget_many,
    open_again,
    open_to_read,
    create_again,
    write_elsewhere,
    hold_against_the_log,
    export,
    run_commands,
)


@pytest.mark.parametrize("act", ACTS)
async def test_another_process_does_not_take_the_log_of_an_open_ledger_away(
    tmp_path: Path, act: Callable[[Book], Awaitable[None]]
) -> None:
    """Whatever was done before, what is acknowledged after its visit is there for the next one."""
    book = await open_book(tmp_path / "l.db")
    async with book.ledger:
        await append(book)
        await act(book)
        await append(book)
        kept = log_number(book.path)
        assert await visit(book.path) == (await book.ledger.head()).seq
        assert log_number(book.path) == kept
        await append(book)
        assert await visit(book.path) == (await book.ledger.head()).seq
    assert log_number(book.path) is None, "the last to close tidies up"
    assert await visit(book.path) == (await opened_head(book.path))


async def opened_head(path: Path) -> int:
    """Return the number of the last event that a new handle knows."""
    async with await Ledger.open(f"sqlite:///{path}", read_only=True) as ledger:
        return (await ledger.head()).seq


# --- descriptors that wait -----------------------------------------------------------------


def descriptors_of(path: Path) -> int:
    """Count this process's descriptors of a file."""
    wanted, found = path.stat().st_ino, 0
    for name in os.listdir("/dev/fd"):
        try:
            found += os.fstat(int(name)).st_ino == wanted
        except OSError:
            continue
    return found


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file that may be anything."""
    path = tmp_path / "l.db"
    sqlite_bytes.create(path)
    path.write_bytes(b"a" * 3_000_000 + b"needle" + b"b" * 1_000)
    return path


def read(path: Path) -> bytes:
    """Read a file's first bytes."""
    with sqlite_bytes.opened(path) as opened:
        return opened.read(3)


def test_without_a_connection_nothing_waits(file: Path) -> None:
    """A descriptor that spares no lock is closed at once."""
    assert read(file) == b"aaa"
    assert descriptors_of(file) == 0


def test_one_descriptor_waits_for_the_last_connection_however_often_is_read(file: Path) -> None:
    """It is used again, and closed when nothing is open any more."""
    first, second = sqlite_bytes.hold(file), sqlite_bytes.hold(file)
    assert first
    assert second
    assert {read(file) for _ in range(5)} == {b"aaa"}
    assert descriptors_of(file) == 1
    first.release()
    first.release()
    assert descriptors_of(file) == 1
    second.release()
    assert descriptors_of(file) == 0


def test_a_file_in_anothers_place_is_read_itself(file: Path) -> None:
    """What waits belongs to a file and not to its name."""
    kept = sqlite_bytes.hold(file)
    assert read(file) == b"aaa"
    other = file.with_name("other")
    other.write_bytes(b"new")
    os.replace(other, file)
    assert read(file) == b"new"
    assert kept


def test_a_connection_that_was_dropped_keeps_nothing_for_good(file: Path) -> None:
    """Whoever reads next closes what waited for it."""
    kept = sqlite_bytes.hold(file)
    read(file)
    assert kept
    del kept
    gc.collect()
    read(file)
    assert descriptors_of(file) == 0


def test_a_file_that_is_not_there_is_held_by_nobody(tmp_path: Path) -> None:
    """SQLite says so itself; reading it is the system's error."""
    assert sqlite_bytes.hold(tmp_path / "none") is None
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "none")


@pytest.mark.parametrize("needle", [b"needle", b"aneedleb", b"a", b"bbb", b"a" * 1024, b"b" * 1000])
def test_bytes_are_found_wherever_they_lie(file: Path, needle: bytes) -> None:
    """Also at the very end, and whatever is looked for beside them."""
    assert sqlite_bytes.holds_any(file, [b"absent" * 10, needle])
    assert not sqlite_bytes.holds_any(file, [b"absent", needle + b"!"])
    assert not sqlite_bytes.holds_any(file, [])


def test_bytes_are_found_where_two_pieces_meet(tmp_path: Path) -> None:
    """A file is read piece by piece, and a salt may begin in one and end in the next."""
    piece = sqlite_bytes._SEARCH
    for start in range(piece - 16, piece + 1):
        path = tmp_path / str(start)
        path.write_bytes(bytes(start) + b"0123456789abcdef" + bytes(10))
        assert sqlite_bytes.holds_any(path, [b"0123456789abcdef"])
        assert not sqlite_bytes.holds_any(path, [b"0123456789abcdeX"])


def test_threads_that_open_read_and_close_leave_no_descriptor_and_no_lock_behind(file: Path) -> None:
    """While anybody's connection is open something waits, and after the last one nothing."""
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(300):
                kept = sqlite_bytes.hold(file)
                assert read(file) == b"aaa"
                assert descriptors_of(file) >= 1
                assert kept
                kept.release()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert descriptors_of(file) == 0


def test_a_forked_child_waits_for_no_thread_of_its_parent(file: Path) -> None:
    """Somebody may hold the lock at the moment of the fork."""
    with sqlite_bytes._registry.guard:
        held = threading.Event()
        child = 0

        def fork() -> None:
            nonlocal child
            child = os.fork()
            if child == 0:
                os._exit(0 if read(file) == b"aaa" else 1)
            held.set()

        thread = threading.Thread(target=fork)
        thread.start()
        assert held.wait(20)
        thread.join()
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
