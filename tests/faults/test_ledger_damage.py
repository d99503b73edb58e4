"""A damaged SQLite file: it is refused, or `verify` names the event; no event is lost without a word."""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fix_ledger import open_book

from custody_sync.errors import LedgerDamaged, LedgerError
from custody_sync.ledger import Ledger
from custody_sync.testing import testing_runtime

SEQ = 4
FULL = bool(os.environ.get("CUSTODY_SYNC_FULL"))
PARTS = 6 if FULL else 1


def bits(at: int) -> Iterable[int]:
    """Choose what is flipped of a byte: one bit, another one than of the byte before, or all of them."""
    return range(8) if FULL else (at % 8,)


@dataclass(frozen=True)
class Whole:
    """An undamaged ledger: its file and its log, and where one event's rows lie in the file."""

    data: bytes
    log: list[dict[str, Any]]
    event: range
    sealed: range


async def make(path: Path) -> list[dict[str, Any]]:
    """Make a small ledger with events of several kinds and return its log."""
    book = await open_book(path)
    first = await book.add("user:7", "city", "Zürich", held=[("memories", "m1")])
    await book.append(book.hold(first, "h1", "a reason"))
    await book.append(book.release(first, "h1"))
    second = await book.add("s", "p", "v", text="t")
    gone = await book.add("user:8", "city", "gone")
    await book.append(book.forget(gone))
    await book.append(book.retract(second))
    await book.add("s", "p", 1e20)
    await book.ledger.erase()
    log = await book.export()
    await book.ledger.close()
    return log


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """A small ledger; each row of one event is found in the file by what is in it."""
    path = tmp_path_factory.mktemp("whole") / "l.db"
    log = asyncio.run(make(path))
    conn = sqlite3.connect(path)
    body, digest = conn.execute("SELECT body, hash FROM events WHERE seq = ?", (SEQ,)).fetchone()
    (content,) = conn.execute("SELECT content FROM sealed WHERE seq = ?", (SEQ,)).fetchone()
    conn.close()
    data = path.read_bytes()
    assert data.count(digest.encode() + body.encode()) == data.count(content.encode()) == 1
    row = data.index(digest.encode() + body.encode())
    # In front of the hash lie the row's header, its ids and its time; behind the content its salt.
    event = range(row - 60, row + len(digest) + len(body))
    start = data.index(content.encode())
    return Whole(data, log, event, range(start - 12, start + len(content) + 16))


async def look(path: Path) -> tuple[list[dict[str, Any]] | None, int | None, bool]:
    """Open a file and check it; return its log, the first bad event, and whether anything was found."""
    try:
        ledger = await Ledger.open(
            f"sqlite:///{path}", read_only=True, runtime=testing_runtime(), witness=False
        )
    except LedgerError:
        return None, None, True
    try:
        found = await ledger.verify(replay=False)
        try:
            log = [row async for row in ledger.export()]
        except LedgerError:
            log = None
        return log, found.first_bad, found.found
    except LedgerError:
        return None, None, True
    finally:
        await ledger.close()


async def test_a_file_cut_anywhere_is_refused(whole: Whole, tmp_path: Path) -> None:
    """Between pages as within one: it says that it is cut short, and stays as it is."""
    path, size = tmp_path / "l.db", len(whole.data)
    anywhere = random.Random(4).sample(range(size), 60)
    for cut in [*range(0, size, 4096), *range(size - 20, size), *anywhere]:
        path.write_bytes(whole.data[:cut])
        with pytest.raises(LedgerDamaged):
            await Ledger.open(f"sqlite:///{path}")
        assert path.read_bytes() == whole.data[:cut]
        assert os.listdir(tmp_path) == ["l.db"]


@pytest.mark.parametrize("part", range(PARTS))
async def test_every_flipped_bit_of_an_event_is_refused_or_named(
    whole: Whole, tmp_path: Path, part: int
) -> None:
    """In what the event says, in its hash and in the bytes that frame its row.

    One bit of each byte; CUSTODY_SYNC_FULL=1 flips them all.
    """
    path = tmp_path / "l.db"
    path.write_bytes(whole.data)
    text = whole.event.stop - whole.event.start - 60
    named = 0
    for at in whole.event[part::PARTS]:
        for bit in bits(at):
            with path.open("r+b") as file:
                flip(file.fileno(), at, whole.data[at] ^ 1 << bit)
                log, first_bad, found = await look(path)
                flip(file.fileno(), at, whole.data[at])
            assert found or log == whole.log, f"byte {at}, bit {bit}"
            if at >= whole.event.stop - text:
                assert found
                assert first_bad in (SEQ, None)
                named += first_bad == SEQ
    assert named > 100


async def test_every_flipped_bit_of_a_value_is_refused_or_named(whole: Whole, tmp_path: Path) -> None:
    """What was committed to is what is there, salt included; which bits, see above."""
    path = tmp_path / "l.db"
    path.write_bytes(whole.data)
    for at in whole.sealed:
        for bit in bits(at):
            with path.open("r+b") as file:
                flip(file.fileno(), at, whole.data[at] ^ 1 << bit)
                log, _, found = await look(path)
                flip(file.fileno(), at, whole.data[at])
            assert found or log == whole.log, f"byte {at}, bit {bit}"
            if at >= whole.sealed.start + 12:
                assert found


@pytest.mark.parametrize("seq", range(1, 9))
@pytest.mark.parametrize("damage", ["dropped", "swapped", "doubled"])
async def test_a_row_dropped_swapped_or_doubled_is_named(
    whole: Whole, tmp_path: Path, damage: str, seq: int
) -> None:
    """By whoever can write the file; only the loss of the last one leaves a log that is whole in itself."""
    path = tmp_path / "l.db"
    path.write_bytes(whole.data)
    conn = sqlite3.connect(path, isolation_level=None)
    if damage == "dropped":
        conn.execute("DELETE FROM events WHERE seq = ?", (seq,))
    elif damage == "swapped":
        conn.execute("UPDATE events SET seq = seq + 100 WHERE seq IN (?, ?)", (seq, seq % 8 + 1))
        conn.execute("UPDATE events SET seq = ? WHERE seq = ?", (seq % 8 + 1, seq + 100))
        conn.execute("UPDATE events SET seq = ? WHERE seq = ?", (seq, seq % 8 + 101))
    else:
        columns = "fact_id, hash, body"
        conn.execute(
            f"INSERT INTO events (seq, event_id, tx_time, {columns}) "
            f"SELECT 9, 'again', '2027', {columns} FROM events WHERE seq = ?",
            (seq,),
        )
    conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    conn.close()
    log, first_bad, found = await look(path)
    assert found or (damage, seq) == ("dropped", 8)
    if log is not None and found:
        bad = {"dropped": seq, "swapped": min(seq, seq % 8 + 1), "doubled": 9}[damage]
        assert first_bad == bad


async def test_a_table_whose_rows_lost_their_numbers_is_named(whole: Whole, tmp_path: Path) -> None:
    """As after a torn page: a check says what cannot be read, and ends with no error of the interpreter's."""
    path = tmp_path / "l.db"
    path.write_bytes(whole.data)
    conn = sqlite3.connect(path, isolation_level=None)
    conn.execute("DROP TABLE blocks")
    conn.execute("CREATE TABLE blocks (block INTEGER PRIMARY KEY, changed INTEGER)")
    conn.execute("INSERT INTO blocks (block) VALUES (0)")
    conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    conn.close()
    async with await Ledger.open(f"sqlite:///{path}", runtime=testing_runtime(), witness=False) as ledger:
        found = await ledger.verify()
    assert found.found
    assert "what is kept of blocks of the log cannot be read" in found.inconsistent


def flip(handle: int, at: int, byte: int) -> None:
    """Write one byte of a file."""
    os.pwrite(handle, bytes([byte]), at)
