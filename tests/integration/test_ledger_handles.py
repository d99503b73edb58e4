"""Several handles on one ledger file: what one does the others see, and a file that went away is noticed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from fix_ledger import files_of, open_book

from custody_sync.errors import LedgerError, LedgerReadOnly


async def made(path: Path) -> str:
    """Make a ledger with one fact and return the fact's id."""
    book = await open_book(path)
    fact_id = await book.add()
    await book.ledger.close()
    return fact_id


@pytest.mark.parametrize("how", ["removed", "replaced", "moved"])
async def test_a_file_that_went_away_is_noticed(tmp_path: Path, how: str) -> None:
    """Reading, appending and erasing all say so; nothing goes into the void and no file appears."""
    path, other = tmp_path / "l.db", tmp_path / "other.db"
    await made(path)
    await made(other)
    book = await open_book(path, create=False, prefix="2-")
    reader = await open_book(path, create=False, read_only=True)
    if how == "removed":
        path.unlink()
    elif how == "replaced":
        os.replace(other, path)
    else:
        os.replace(path, tmp_path / "elsewhere.db")
    before = {name for name in files_of(tmp_path) if not name.endswith(("-wal", "-shm"))}
    for call in (
        lambda: book.append(book.state()),
        lambda: book.ledger.as_of(),
        lambda: book.ledger.erase(),
        lambda: reader.ledger.get("f2"),
    ):
        with pytest.raises(LedgerError, match="moved or replaced; open it again"):
            await call()
    await book.ledger.close()
    await reader.ledger.close()
    assert {name for name in files_of(tmp_path) if not name.endswith(("-wal", "-shm"))} == before


async def test_another_handles_appends_are_seen_at_once(tmp_path: Path) -> None:
    """Nothing is cached that another handle can change, in either direction, for readers as well."""
    one = await open_book(tmp_path / "l.db")
    two = await open_book(tmp_path / "l.db", create=False, prefix="2-")
    reader = await open_book(tmp_path / "l.db", create=False, read_only=True)
    for i in range(4):
        fact_id = await (one, two)[i % 2].add(value=i)
        for book in (one, two, reader):
            assert await book.values() == list(range(i + 1))
            assert (await book.ledger.known([fact_id]))[fact_id] == "asserted"
    new = await one.add(value="new", supersedes=fact_id)
    assert await two.refused(two.state(supersedes=fact_id)) == "already_covered"
    await two.append(two.retract(new))
    assert await reader.values() == [0, 1, 2, 3]
    for book in (one, two, reader):
        await book.ledger.close()


async def test_a_read_only_handle_refuses_to_append(tmp_path: Path) -> None:
    """It says why, and the ledger stays readable beside it."""
    await made(tmp_path / "l.db")
    book = await open_book(tmp_path / "l.db", create=False, read_only=True)
    assert not book.ledger.writable
    with pytest.raises(LedgerReadOnly, match="opened for reading"):
        await book.append(book.state())
    assert await book.values() == ["pro"]
    await book.ledger.close()


async def test_a_copy_taken_after_closing_is_the_whole_ledger(tmp_path: Path) -> None:
    """Closing the last handle folds the log into the one file."""
    await made(tmp_path / "l.db")
    assert list(files_of(tmp_path)) == ["l.db"]
    shutil.copy(tmp_path / "l.db", tmp_path / "copy.db")
    book = await open_book(tmp_path / "copy.db", create=False)
    assert await book.values() == ["pro"]
    await book.ledger.close()
