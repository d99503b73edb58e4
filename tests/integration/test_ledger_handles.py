"""Several handles on one ledger file: what one does the others see, and a file that went away is noticed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from fix_ledger import files_of, open_book

from custody_sync.errors import LedgerError, LedgerReadOnly
from custody_sync.ledger.sqlite_files import Location


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


async def test_one_file_under_two_names_is_refused(tmp_path: Path) -> None:
    """SQLite keeps a log per name, so two names for one file would lose facts; it opens again without."""
    await made(tmp_path / "l.db")
    os.link(tmp_path / "l.db", tmp_path / "backup.db")
    for name in ("l.db", "backup.db"):
        for options in ({}, {"read_only": True}, {"create": True}):
            with pytest.raises(LedgerError, match=r"one file under 2 names.*remove the other hard links"):
                await open_book(tmp_path / name, **{"create": False, **options})
    (tmp_path / "backup.db").unlink()
    book = await open_book(tmp_path / "l.db", create=False)
    assert await book.values() == ["pro"]
    await book.ledger.close()


async def test_a_file_that_is_rebuilt_meanwhile_is_not_called_cut_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An erasure of another process may empty the log between two looks; the file is looked at again."""
    path = tmp_path / "l.db"
    await made(path)
    whole, looks = path.read_bytes(), []
    path.write_bytes(whole[:8192])

    def emptied_just_now(_: Location) -> bool:
        looks.append(path.stat().st_size)
        path.write_bytes(whole)
        return False

    monkeypatch.setattr(Location, "waits", emptied_just_now)
    book = await open_book(path, create=False)
    assert looks[:2] == [8192, len(whole)]
    assert await book.values() == ["pro"]
    await book.ledger.close()
