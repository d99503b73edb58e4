"""SQLite's locks on a ledger stay whatever this process reads of its files: others see that it is open."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest
from fix_files import descriptors_of
from fix_ledger import Book, open_book

from custody_sync import Ledger, rawfiles
from custody_sync.cli.main import run_command
from custody_sync.errors import LedgerDamaged, LedgerError
from custody_sync.ledger import sqlite_files
from custody_sync.model import Erasure

VISIT = """
import sqlite3, sys
conn = sqlite3.connect(sys.argv[1])
print(conn.execute("SELECT count(*) FROM events").fetchone()[0])
conn.close()
"""
"""Reads and closes as any other tool does; who closes a database last removes its write-ahead log."""


REFUSED = (2, 5)
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


def is_held(path: Path) -> bool:
    """Tell whether a connection to a file is counted."""
    found = path.stat()
    return (found.st_dev, found.st_ino) in rawfiles._open._holds


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


async def open_as_another_storage(book: Book) -> None:
    """Mistake it for a file of lines, to read, to write and to make."""
    for more in ({"read_only": True}, {}, {"create": True}):
        with pytest.raises(LedgerDamaged):
            await Ledger.open(f"jsonl:///{book.path}", **more)


async def open_what_lies_beside(book: Book) -> None:
    """Mistake what SQLite keeps beside it for a ledger."""
    for end in ("-shm", "-wal"):
        with pytest.raises(LedgerDamaged):
            await Ledger.open(f"sqlite:///{book.path}{end}")


async def name_it_everywhere(book: Book) -> None:
    """Give it to commands as every other file that they read."""
    ledger = ("--ledger", f"sqlite:///{book.path.with_name('other.db')}")
    await (await Ledger.open(ledger[1], create=True)).close()
    path = str(book.path)
    for command in (
        ["import", path, *ledger],
        ["ledger", "import", path, "--ledger", f"sqlite:///{book.path.with_name('third.db')}"],
        ["ledger", "verify", "--head", path, *ledger],
        ["status", "--config", path],
        ["status", "--metrics-file", path, *ledger],
        ["repair", "--reason", "r", "--plan", path, *ledger],
        ["repair", "--reason", "r", "--apply", path, *ledger],
        ["ledger", "copy", ledger[1], f"jsonl:///{path}"],
    ):
        assert await asyncio.to_thread(run_command, command) in REFUSED, command


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
    open_as_another_storage,
    open_what_lies_beside,
    name_it_everywhere,
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


async def test_a_closed_ledger_leaves_no_descriptor(tmp_path: Path) -> None:
    """What waited for its connections is closed with the last of them."""
    book = await open_book(tmp_path / "l.db")
    await forget(book)
    await open_again(book)
    assert descriptors_of(book.path) > 0
    await book.ledger.close()
    assert descriptors_of(book.path) == 0


async def test_a_connection_that_cannot_be_set_up_leaves_no_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever keeps the error keeps no file open."""
    path = tmp_path / "l.db"
    await (await open_book(path)).ledger.close()
    monkeypatch.setattr(sqlite_files, "CACHE_KB", "no number")
    with pytest.raises(LedgerError) as caught:
        sqlite_files.connect(sqlite_files.Location.parse(str(path)), write=True)
    assert descriptors_of(path) == 0
    assert caught.value


async def test_a_wrong_url_again_and_again_takes_one_descriptor(tmp_path: Path) -> None:
    """Who tries for ever does not run out of files."""
    book = await open_book(tmp_path / "l.db")
    async with book.ledger:
        before = descriptors_of(book.path)
        for _ in range(20):
            await open_as_another_storage(book)
        assert descriptors_of(book.path) <= before + 1


async def test_a_ledger_that_cannot_be_opened_leaves_no_descriptor(tmp_path: Path) -> None:
    """Also where it breaks after its connections were made, and whoever keeps the errors."""
    path, kept = tmp_path / "l.db", list[LedgerError]()
    await (await open_book(path)).ledger.close()
    with closing(sqlite3.connect(path)) as conn:
        conn.execute("DROP TABLE settings")
    for _ in range(5):
        with pytest.raises(LedgerError) as caught:
            await Ledger.open(f"sqlite:///{path}")
        kept.append(caught.value)
    assert descriptors_of(path) == 0


async def test_what_is_read_without_locks_may_be_opened_after_a_fork(tmp_path: Path) -> None:
    """A file that nobody may write is read as it is, and there is nothing to leave with the parent."""
    path = tmp_path / "l.db"
    await (await open_book(path)).ledger.close()
    path.chmod(0o444)
    async with await Ledger.open(f"sqlite:///{path}", read_only=True):
        assert not is_held(path)


async def test_a_connection_that_was_not_made_is_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever keeps the error keeps nobody from opening the ledger after a fork."""
    path = tmp_path / "l.db"
    await (await open_book(path)).ledger.close()

    def no_files(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("unable to open database file")

    monkeypatch.setattr(sqlite3, "connect", no_files)
    with pytest.raises(LedgerError) as caught:
        sqlite_files.connect(sqlite_files.Location.parse(str(path)), write=True)
    assert caught.value
    assert not is_held(path)


async def test_a_connection_lets_go_of_its_file_only_once_it_is_closed(tmp_path: Path) -> None:
    """Until then a descriptor that is closed would take its locks."""
    path, closed = tmp_path / "l.db", list[bool]()
    await (await open_book(path)).ledger.close()

    class Watched(rawfiles.Hold):
        def release(self) -> None:
            try:
                _ = conn.total_changes
            except sqlite3.ProgrammingError:
                closed.append(True)
            else:
                closed.append(False)
            super().release()

    conn = sqlite_files.connect(sqlite_files.Location.parse(str(path)), write=True)
    conn.keep(Watched((0, 0), str(path)))
    conn.close()
    assert closed[0]
