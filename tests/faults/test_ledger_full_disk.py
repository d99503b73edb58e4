"""A full disk: one clear error, nothing lost of what was acknowledged, and it goes on once there is room."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fix_ledger import Book, Child, GroupBook, files_of, open_book, open_group_book

from custody_sync.errors import LedgerFull
from custody_sync.ledger import Ledger
from custody_sync.model import Erasure, Event


def set_room(book: Book, pages: int) -> None:
    """Let the ledger's file grow by so many pages and no further."""
    storage: Any = book.ledger._storage
    (size,) = storage._writer.execute("PRAGMA page_count").fetchone()
    storage._writer.execute(f"PRAGMA max_page_count = {size + pages}")


async def believed(path: Path) -> dict[str, Any]:
    """Return what the ledger believes, read by a fresh handle, after checking that its log is whole."""
    async with await Ledger.open(f"sqlite:///{path}") as ledger:
        log = [row async for row in ledger.export()]
        assert [row["event"]["prev"] for row in log[1:]] == [row["hash"] for row in log[:-1]]
        assert (await ledger.head()).seq == len(log)
        return {fact.fact_id: fact.value for fact in await ledger.as_of(limit=10_000)}


async def fill(book: Book) -> list[str]:
    """Append until there is no room, and return what was acknowledged."""
    done: list[str] = []
    while True:
        try:
            done.append(await book.add(value="x" * 3000, text="t"))
        except LedgerFull:
            return done


@pytest.mark.storages("sqlite")
async def test_a_full_ledger_refuses_by_name_and_goes_on_when_there_is_room(book: Book) -> None:
    """Every acknowledged fact stays, the refused one is not there, reading works meanwhile."""
    set_room(book, 12)
    done = await fill(book)
    assert len(done) > 2
    draft = book.state(value="y" * 9000)
    for _ in range(2):
        with pytest.raises(LedgerFull, match="is full; nothing was recorded"):
            await book.append(draft)
    assert list(await believed(book.path)) == done
    assert await book.ledger.get(draft.fact_id) is None
    set_room(book, 1000)
    await book.append(draft)
    assert list(await believed(book.path)) == [*done, draft.fact_id]


async def test_all_of_a_group_that_found_no_room_hear_of_it(tmp_path: Path) -> None:
    """Nothing of the group is recorded, and all of it can be appended again."""
    book: GroupBook = await open_group_book(tmp_path / "l.db")
    set_room(book, 2)
    drafts = [book.state(value="x" * 3000) for _ in range(8)]
    results = await book.group(drafts)
    assert [type(result) for result in results] == [LedgerFull] * 8
    assert (await book.ledger.head()).seq == 0
    set_room(book, 1000)
    assert [type(result) for result in await book.group(drafts)] == [Event] * 8
    await book.ledger.close()


@pytest.mark.parametrize("kilobytes", [300, 900])
async def test_a_limit_on_file_sizes_loses_nothing(tmp_path: Path, kilobytes: int) -> None:
    """Where writes fail in the middle of a commit, what was acknowledged is there and the log is whole."""
    path = tmp_path / "l.db"
    await (await open_book(path)).ledger.close()
    child = Child("fill", path, kilobytes * 1024)
    child.go()
    report = child.report()
    assert report["error"] in ("outcome_unknown", "ledger_full", "ledger_error")
    assert len(report["said"]) < 300
    there = await believed(path)
    assert len(report["done"]) > 2
    assert set(report["done"]) <= set(there)
    assert set(there) - set(report["done"]) <= {report["open"]}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    options = ["-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if mount is None or subprocess.run([mount, *options], capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system is not allowed here; the file size limit covers the rest")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


async def test_a_disk_that_is_really_full_loses_nothing(small_disk: Path) -> None:
    """The child is told so by name; the ledger stays readable and takes appends again."""
    path = small_disk / "l.db"
    await (await open_book(path)).ledger.close()
    child = Child("fill", path, 0)
    child.go()
    report = child.report()
    assert (report["error"], report["said"]) == (
        "ledger_full",
        f"The disk of ledger {path} is full; nothing was recorded.",
    )
    assert len(report["done"]) > 5
    moved = small_disk.parent / "l.db"
    for name in os.listdir(small_disk):
        if not name.endswith("-shm"):
            shutil.copy(small_disk / name, small_disk.parent / name)
    assert list(await believed(moved)) == report["done"]
    book = await open_book(moved, create=False, prefix="2-")
    await book.add()
    await book.ledger.close()


async def test_a_ledger_is_not_made_on_a_full_disk(small_disk: Path) -> None:
    """The error is clear, and a later try with room makes the ledger."""
    (small_disk / "ballast").write_bytes(b"x" * (1024 * 1024 - 8192))
    with pytest.raises(LedgerFull):
        await Ledger.open(f"sqlite:///{small_disk}/l.db", create=True)
    (small_disk / "ballast").unlink()
    async with await Ledger.open(f"sqlite:///{small_disk}/l.db", create=True) as ledger:
        assert await ledger.as_of() == []


async def test_an_erasure_without_room_stays_pending(small_disk: Path) -> None:
    """It is never called done, and is completed once there is room."""
    book = await open_group_book(small_disk / "l.db")
    victim = await book.add(value="secret value")
    await book.group([book.state(value="x" * 2000, text="t") for _ in range(60)])
    await book.append(book.forget(victim, identity=True))
    free = shutil.disk_usage(small_disk).free
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * (free - 16_384))
    assert await book.ledger.erase() is Erasure.PENDING
    ballast.unlink()
    assert await book.ledger.erase() is Erasure.DONE
    assert b"secret value" not in b"".join(files_of(small_disk).values())
    await book.ledger.close()
