"""After an error every answer is of the head again, however long somebody keeps the error."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from fix_ledger import Book, open_book

from custody_sync.errors import LedgerDamaged, LedgerError
from custody_sync.ledger.sqlite_connection import Connection
from custody_sync.model import Erasure

BROKEN = {
    "no JSON": "'{tuna-CANARY'",
    "a list": "'[1]'",
    "a string": "'\"tuna-CANARY\"'",
    "too deep": "replace(hex(zeroblob(10000)), '0', '[')",
    "no UTF-8": "CAST(x'ff' AS TEXT)",
    "a blob": "x'ff00'",
}


def alter(path: Path, statement: str) -> None:
    """Change a ledger behind its back."""
    conn = sqlite3.connect(path)
    conn.execute(statement)
    conn.commit()
    conn.close()


@pytest.mark.storages("sqlite")
@pytest.mark.damages
@pytest.mark.parametrize("broken", BROKEN)
async def test_an_error_that_somebody_keeps_keeps_no_old_answers(book: Book, broken: str) -> None:
    """The read that failed half-way has ended: what comes afterwards is seen, and can be erased."""
    bad = await book.append(book.state(space="other"))
    fact_id = await book.add(value="keep")
    alter(book.path, f"UPDATE sealed SET content = {BROKEN[broken]} WHERE seq = {bad.seq}")
    kept = []
    for read in (book.ledger.as_of, lambda: book.ledger.get(bad.fact_id), lambda: book.ledger.as_of(limit=1)):
        with pytest.raises(LedgerDamaged) as caught:
            await read()
        kept.append(caught.value)
    await book.append(book.retract(fact_id))
    assert await book.values(space="org") == []
    new = await book.add(value="fresh")
    assert await book.ledger.get(new)
    await book.append(book.forget(new))
    assert await book.ledger.erase() is Erasure.DONE
    assert len(kept) == 3


@pytest.mark.storages("sqlite")
@pytest.mark.damages
async def test_a_group_that_failed_half_way_leaves_no_transaction(book: Book) -> None:
    """The writer's transaction has ended as well: other handles write and erase, and so does this one."""
    fact_id = await book.add(held=[("memories", "x1")])
    alter(book.path, "UPDATE placements SET state = 'bogus'")
    with pytest.raises(LedgerDamaged) as caught:
        await book.append(book.retract(fact_id))
    other = await open_book(book.path, create=False, prefix="2-")
    new = await other.add(value="x" * 50)
    await other.append(other.forget(new))
    assert await other.ledger.erase() is Erasure.DONE
    await other.ledger.close()
    assert (await book.append(book.state())).seq == 4
    assert caught.value.__context__ is None


@pytest.mark.parametrize("write", [False, True])
def test_a_half_read_cursor_ends_with_its_transaction(tmp_path: Path, write: bool) -> None:
    """Whoever still holds it: the next read is of the newest state, and the log can be emptied."""
    other = sqlite3.connect(tmp_path / "l.db", isolation_level=None)
    other.execute("PRAGMA journal_mode = WAL").fetchone()
    other.execute("CREATE TABLE t (n)")
    other.executemany("INSERT INTO t VALUES (?)", [(n,) for n in range(10)])
    conn = sqlite3.connect(tmp_path / "l.db", isolation_level=None, factory=Connection)
    conn.execute("BEGIN IMMEDIATE" if write else "BEGIN")
    held = conn.execute("SELECT n FROM t")
    assert next(held) == (0,)
    conn.leave()
    other.execute("INSERT INTO t VALUES (99)")
    assert conn.execute("SELECT max(n) FROM t").fetchone() == (99,)
    assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() == (0, 0, 0)
    with pytest.raises(sqlite3.ProgrammingError):
        next(held)
    conn.close()
    other.close()


@pytest.mark.storages("sqlite")
@pytest.mark.damages
@pytest.mark.parametrize("broken", BROKEN)
async def test_nothing_of_a_record_hangs_on_an_error(book: Book, broken: str) -> None:
    """A JSON error carries the whole text; ours stands alone, without cause or context."""
    fact_id = await book.add(value="tuna-CANARY")
    alter(book.path, f"UPDATE sealed SET content = {BROKEN[broken]}")
    with pytest.raises(LedgerError) as caught:
        await book.ledger.get(fact_id)
    error = caught.value
    assert (error.code, error.__context__, error.__cause__) == ("ledger_damaged", None, None)
    assert "CANARY" not in str(error)


@pytest.mark.parametrize("how", ["missing", "folder", "foreign", "cut short"])
async def test_nothing_hangs_on_an_error_of_opening(tmp_path: Path, how: str) -> None:
    """Neither SQLite's error nor the system's."""
    path = tmp_path / "l.db"
    if how == "folder":
        path.mkdir()
    elif how == "foreign":
        path.write_bytes(b"SQLite format 3\x00" + b"x" * 5000)
    elif how == "cut short":
        await (await open_book(path)).ledger.close()
        path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(LedgerError) as caught:
        await open_book(path, create=False)
    assert (caught.value.__context__, caught.value.__cause__) == (None, None)
