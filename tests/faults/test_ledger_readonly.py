"""Ledgers that may only be read: by mode, by folder, by owner, with and without a waiting log."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fix_ledger import Book, Child, files_of, open_book

from custody_sync.errors import LedgerError, LedgerReadOnly
from custody_sync.ledger import Ledger
from custody_sync.model import Erasure

ROOT = os.geteuid() == 0


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that everyone may enter, which pytest's own are not."""
    with tempfile.TemporaryDirectory() as made:
        path = Path(made)
        path.chmod(0o755)
        yield path
        path.chmod(0o755)


def set_modes(modes: dict[Path, int]) -> None:
    """Set the modes of files and folders."""
    for path, mode in modes.items():
        path.chmod(mode)


def look(path: Path) -> dict[str, Any]:
    """Let an unprivileged process read the ledger and try to append."""
    child = Child("unprivileged-look", path)
    child.go()
    return child.report()


async def filled(path: Path, *, leave_log: bool = False) -> None:
    """Make a ledger with one retracted and one believed fact; with its log left as by a killed process."""
    book = await open_book(path)
    await book.append(book.retract(await book.add(value="old")))
    await book.add(value="pro")
    left = files_of(path.parent) if leave_log else {}
    await book.ledger.close()
    for name, data in left.items():
        if not name.endswith("-shm"):
            (path.parent / name).write_bytes(data)


READ = {"writable": False, "appended": "ledger_read_only", "values": ["pro"], "history": ["assert"]}


@pytest.mark.parametrize(("file_mode", "folder_mode"), [(0o444, 0o555), (0o444, 0o755), (0o644, 0o555)])
async def test_p10_a_read_only_ledger_is_read_as_it_is(
    folder: Path, file_mode: int, folder_mode: int
) -> None:
    """Reading needs no write permission, and nothing appears beside the file (P10)."""
    path = folder / "l.db"
    await filled(path)
    set_modes({path: file_mode})
    set_modes({folder: folder_mode})
    before = files_of(folder)
    assert look(path) == READ
    assert files_of(folder) == before


async def test_a_read_only_ledger_with_a_waiting_log_is_one_clear_sentence(folder: Path) -> None:
    """What waits in the log cannot be seen without writing, so no answer is given instead of a stale one."""
    path = folder / "l.db"
    await filled(path, leave_log=True)
    assert files_of(folder)["l.db-wal"] != b""
    set_modes({path: 0o444, folder / "l.db-wal": 0o444, folder: 0o555})
    before = files_of(folder)
    report = look(path)
    assert report["error"] == "ledger_read_only"
    assert "a write-ahead log waits beside it; open it once where it can be written" in report["said"]
    assert files_of(folder) == before
    set_modes({folder: 0o755, path: 0o644, folder / "l.db-wal": 0o644})
    async with await Ledger.open(f"sqlite:///{path}") as ledger:
        assert [fact.value for fact in await ledger.as_of()] == ["pro"]


async def test_the_log_of_a_linked_ledger_is_found_beside_the_file_itself(folder: Path) -> None:
    """A link in another folder hides no waiting log."""
    real = folder / "real"
    os.mkdir(real)
    await filled(folder / "real" / "l.db", leave_log=True)
    os.symlink(real / "l.db", folder / "link.db")
    set_modes({real / "l.db": 0o444, real / "l.db-wal": 0o444, real: 0o555})
    assert look(folder / "link.db")["error"] == "ledger_read_only"
    set_modes({real: 0o755})


async def test_a_ledger_that_may_not_be_read_is_one_clear_sentence(folder: Path) -> None:
    """Neither the file's nor the folder's refusal comes out as an exception of the system's."""
    os.mkdir(folder / "closed")
    for path in (folder / "l.db", folder / "closed" / "l.db"):
        await filled(path)
        path.chmod(0o600 if ROOT else 0o000)
    (folder / "closed").chmod(0o700 if ROOT else 0o000)
    for path in (folder / "l.db", folder / "closed" / "l.db"):
        report = look(path)
        assert report["error"] == "ledger_error"
        assert "PermissionError" in report["said"]
    (folder / "closed").chmod(0o755)


async def test_a_ledger_is_not_created_where_nothing_may_be_written(folder: Path) -> None:
    """The refusal is one sentence, and nothing is left of the try."""
    set_modes({folder: 0o555})
    child = Child("unprivileged-create-look", folder / "l.db")
    child.go()
    report = child.report()
    assert "it cannot be created (PermissionError)" in report["said"]
    assert files_of(folder) == {}


@pytest.mark.storages("sqlite")
async def test_a_file_that_is_written_under_a_reader_who_may_not_is_never_read_stale(book: Book) -> None:
    """Such a reader sees each change once it is in the file, and until then says that a log waits."""
    await book.add(value="first")
    await book.ledger.close()
    book.path.chmod(0o444)
    reader = await Ledger.open(f"sqlite:///{book.path}")
    assert [fact.value for fact in await reader.as_of()] == ["first"]
    book.path.chmod(0o600)
    writer = await open_book(book.path, create=False, prefix="2-")
    book.path.chmod(0o444)
    await writer.add(value="second")
    with pytest.raises(LedgerReadOnly, match="a write-ahead log waits"):
        await reader.as_of()
    book.path.chmod(0o600)
    await writer.ledger.close()
    book.path.chmod(0o444)
    assert [fact.value for fact in await reader.as_of()] == ["first", "second"]
    assert (reader.writable, await reader.erase()) == (False, Erasure.DONE)
    await reader.close()
    book.path.chmod(0o600)


async def test_a_marked_file_is_respected_by_root_as_well(tmp_path: Path) -> None:
    """A read-only mark means read-only, whoever asks."""
    await filled(tmp_path / "l.db")
    (tmp_path / "l.db").chmod(0o444)
    before = files_of(tmp_path)
    book = await open_book(tmp_path / "l.db", create=False, prefix="2-")
    with pytest.raises(LedgerError) as caught:
        await book.append(book.state())
    assert caught.value.code == "ledger_read_only"
    assert await book.values() == ["pro"]
    assert files_of(tmp_path) == before
    await book.ledger.close()
