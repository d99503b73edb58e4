"""L7: the witness keeps the last head away from the ledger, forwards only, and never accuses wrongly."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest
from fix_ledger import Book, Child, open_book

from custody_sync.ledger import Ledger
from custody_sync.ledger import witness as module
from custody_sync.ledger.witness import VARIABLE, head_line, read_head, witness_folder
from custody_sync.model import Head
from custody_sync.testing import testing_runtime


def kept(book: Book) -> Head | None:
    """Return the head in a book's witness."""
    path = book.ledger.witness.path
    assert path is not None
    return read_head(json.loads(path.read_text()))[1] if path.exists() else None


async def test_a_closed_ledger_is_witnessed(book: Book) -> None:
    """The file has the last head, one line, and is readable by its owner only."""
    await book.add()
    await book.add()
    head = await book.ledger.head()
    assert kept(book) is None, "an append waits for no file"
    await book.ledger.close()
    assert kept(book) == head
    path = book.ledger.witness.path
    assert path is not None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text() == head_line(book.ledger.ledger_id, head) + "\n"
    assert book.path.parent not in path.parents


async def test_what_is_appended_is_witnessed_within_a_moment(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many appends cost one file, and none of them waits for it."""
    monkeypatch.setattr(module, "PAUSE", 0.3)
    written = asyncio.Event()
    swap, calls = module.Witness._swap, []

    def counted(witness: module.Witness, *args: object) -> bool:
        calls.append(args)
        written.set()
        return swap(witness, *args)

    monkeypatch.setattr(module.Witness, "_swap", counted)
    for _ in range(20):
        await book.append(book.state())
    await written.wait()
    assert len(calls) < 20
    head = await book.ledger.head()
    await book.ledger.close()
    assert kept(book) == head
    assert head.seq == 20


def _tail(head: object) -> tuple[object, str]:
    assert isinstance(head, Head)
    return head.tx_time, head.hash


async def test_handles_that_take_turns_are_never_accused(tmp_path: Path) -> None:
    """Each continues what the other wrote, in whatever order they are closed."""
    path = tmp_path / "l.db"
    first = await open_book(path)
    second = await open_book(path, prefix="2-", create=False)
    for turn in range(4):
        await (first, second)[turn % 2].add()
        await (first, second)[turn % 2].ledger.witness.flush()
    last = await first.ledger.head()
    await second.ledger.close()
    await first.ledger.close()
    assert kept(first) == last
    third = await open_book(path, prefix="3-", create=False)
    result = await third.ledger.verify()
    assert (result.complete, result.compared) == (True, (4,))
    assert third.ledger.notices == ()
    await third.ledger.close()


async def test_a_slow_writer_puts_nothing_back(tmp_path: Path) -> None:
    """A handle that saw less leaves the file of one that saw more."""
    path = tmp_path / "l.db"
    slow = await open_book(path)
    await slow.add()
    fast = await open_book(path, prefix="2-", create=False)
    await fast.add()
    head = await fast.ledger.head()
    await fast.ledger.close()
    await slow.ledger.close()
    assert kept(slow) == head
    assert slow.ledger.notices == ()


async def test_two_machines_are_never_accused(tmp_path: Path) -> None:
    """Each machine's witness has seen some of the history, and none of it is missing."""
    path = tmp_path / "l.db"
    turns = itertools.count()
    for machine in ("a", "b", "a"):
        book = await open_book(path, prefix=f"{next(turns)}-", witness=tmp_path / machine)
        for _ in range(3):
            await book.append(book.state(value=machine))
        assert (await book.ledger.verify()).complete is not False
        await book.ledger.close()
        path_of = book.ledger.witness.path
        assert path_of is not None
        assert path_of.parent == tmp_path / machine


async def test_processes_share_a_witness(tmp_path: Path) -> None:
    """Two processes that write one ledger at once leave the head that is the last."""
    path = tmp_path / "l.db"
    book = await open_book(path)
    children = [Child("append", path, name, 40) for name in ("a", "b")]
    for child in children:
        child.go()
    await asyncio.gather(*(asyncio.to_thread(child.report) for child in children))
    found, head = kept(book), await book.ledger.head()
    assert found is not None
    assert head.seq == 80
    result = await book.ledger.verify()
    assert result.passed, result
    # The last one to write may have met the other's lock, never its end.
    assert found.seq > 40
    await book.ledger.close()


async def test_a_ledger_that_lost_events_cannot_overtake_its_witness(tmp_path: Path) -> None:
    """However long it grows, the file keeps what it has seen, and the handle says so."""
    path, backup = tmp_path / "l.db", tmp_path / "backup.db"
    book = await open_book(path)
    await book.add()
    await book.ledger.close()
    shutil.copy(path, backup)
    book = await open_book(path, prefix="2-")
    await book.add()
    await book.ledger.close()
    seen = kept(book)
    shutil.copy(backup, path)
    book = await open_book(path, prefix="3-")
    for _ in range(5):
        await book.append(book.state())
    assert (await book.ledger.verify()).complete is False
    await book.ledger.close()
    assert kept(book) == seen
    (notice,) = book.ledger.notices
    assert "has seen another event 2 than is here" in notice


def cut(path: Path, last: int) -> None:
    """Take the end off a SQLite ledger in place, as if it had never been."""
    with closing(sqlite3.connect(path)) as conn:
        for table in ("events", "sealed", "facts", "claims"):
            conn.execute(f"DELETE FROM {table} WHERE seq > ?", (last,))
        conn.execute("UPDATE blocks SET changed = ?", (last,))
        conn.execute(
            "UPDATE head SET (seq, tx_time, hash, count) = "
            "(SELECT seq, tx_time, hash, seq FROM events WHERE seq = ?)",
            (last,),
        )
        conn.commit()


@pytest.mark.parametrize("witnessed", [True, False])
async def test_a_writer_does_not_carry_its_witness_onto_another_history(
    tmp_path: Path, witnessed: bool
) -> None:
    """The end is cut off under a handle that goes on appending: the file stays, and the handle says so."""
    book = await open_book(tmp_path / "l.db")
    for _ in range(2):
        await book.add()
    await book.ledger.witness.flush()
    await book.add()
    if witnessed:
        await book.ledger.witness.flush()
    seen = kept(book)
    cut(book.path, 1)
    for _ in range(6):
        await book.add()
    await book.ledger.witness.flush()
    (notice,) = book.ledger.notices
    assert notice.startswith("event 3, which was appended here, is no longer in the ledger")
    assert (await book.ledger.verify()).complete is False
    await book.ledger.close()
    assert kept(book) == seen
    assert seen is not None
    assert seen.seq == (3 if witnessed else 2)


async def test_a_handle_that_was_open_through_a_restore_takes_no_acceptance_back(tmp_path: Path) -> None:
    """What it saw last is gone, so its close leaves the witness where the operator put it."""
    book = await open_book(tmp_path / "l.db")
    for _ in range(4):
        await book.add()
    await book.ledger.witness.flush()
    cut(book.path, 2)
    other = await open_book(book.path, prefix="2-", create=False)
    assert (await other.ledger.verify()).complete is False
    await other.ledger.witness.accept(await other.ledger.head())
    await book.ledger.close()
    assert "event 4, which was appended here, is no longer" in book.ledger.notices[0]
    assert (await other.ledger.verify()).passed
    await other.add()
    await other.ledger.close()
    assert kept(other) == Head(3, *_tail(kept(other)))


async def test_concurrent_appends_may_be_told_of_in_any_order(book: Book) -> None:
    """An event that is not behind the last one seen is no trouble as long as both are there."""
    events = [await book.append(book.state()) for _ in range(3)]
    for event in reversed(events):
        book.ledger.witness.saw(Head(event.seq, event.tx_time, event.hash))
    await book.ledger.witness.flush()
    assert book.ledger.notices == ()
    assert kept(book) == await book.ledger.head()


async def test_a_handle_that_accepts_goes_on_from_there(tmp_path: Path) -> None:
    """What it saw before does not count any more."""
    book = await open_book(tmp_path / "l.db")
    for _ in range(4):
        await book.add()
    await book.ledger.witness.flush()
    cut(book.path, 2)
    await book.add()
    await book.ledger.witness.flush()
    assert len(book.ledger.notices) == 1
    await book.ledger.witness.accept(await book.ledger.head())
    await book.add()
    await book.ledger.close()
    assert book.ledger.notices == ()
    assert kept(book) == Head(4, *_tail(kept(book)))


async def test_an_operator_accepts_a_backup(tmp_path: Path) -> None:
    """After a backup was put back on purpose the witness begins anew from its head."""
    path, backup = tmp_path / "l.db", tmp_path / "backup.db"
    book = await open_book(path)
    await book.add()
    await book.ledger.close()
    shutil.copy(path, backup)
    book = await open_book(path, prefix="2-")
    await book.add()
    await book.ledger.close()
    shutil.copy(backup, path)
    book = await open_book(path, prefix="3-")
    assert (await book.ledger.verify()).complete is False
    await book.ledger.witness.accept(await book.ledger.head())
    assert (await book.ledger.verify()).passed
    await book.add()
    await book.ledger.close()
    assert kept(book) == Head(2, *_tail(kept(book)))


async def test_a_reader_compares_and_writes_nothing(tmp_path: Path) -> None:
    """Reading needs no witness and leaves none."""
    path = tmp_path / "l.db"
    book = await open_book(path, witness=False)
    await book.add()
    await book.ledger.close()
    assert book.ledger.witness.path is None
    reader = await Ledger.open(
        f"sqlite:///{path}", read_only=True, runtime=testing_runtime(), witness=tmp_path / "witness"
    )
    result = await reader.verify()
    await reader.close()
    assert result.complete is None
    assert not (tmp_path / "witness").exists()


@pytest.mark.parametrize("what", ["file for a folder", "garbage"])
async def test_a_witness_that_does_not_work_fails_nobody(tmp_path: Path, what: str) -> None:
    """Appends go on; the ledger says what is wrong, and a check names what it could not compare."""
    folder = tmp_path / "witness"
    book = await open_book(tmp_path / "l.db", witness=folder)
    path = book.ledger.witness.path
    assert path is not None
    if what == "garbage":
        folder.mkdir()
        path.write_text('{"seq": 7')
    else:
        folder.write_text("")
    await book.add()
    result = await book.ledger.verify()
    assert (result.intact, result.complete) == (True, None)
    assert any("cannot be read" in said for said in result.not_checked)
    await book.ledger.close()
    assert any("witness" in said for said in book.ledger.notices)


async def test_a_locked_witness_is_given_up(tmp_path: Path) -> None:
    """Nobody waits for a process that hangs with the lock in its hand."""
    fcntl = pytest.importorskip("fcntl", reason="this system locks no files")
    book = await open_book(tmp_path / "l.db", witness=tmp_path)
    path = book.ledger.witness.path
    assert path is not None
    await book.add()
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        await book.ledger.close()
    (notice,) = book.ledger.notices
    assert "locked by another process" in notice


def test_where_witnesses_are_kept() -> None:
    """Each system has a place for state; the variable and the caller come first."""
    home = {"HOME": "/home/ada", "LOCALAPPDATA": "C:/Users/ada/Local"}
    assert witness_folder(None, home, "linux") == Path("/home/ada/.local/state/custody-sync/witness")
    state = {**home, "XDG_STATE_HOME": "/state"}
    assert witness_folder(None, state, "linux") == Path("/state/custody-sync/witness")
    relative = {**home, "XDG_STATE_HOME": "state"}
    assert witness_folder(None, relative, "linux") == Path("/home/ada/.local/state/custody-sync/witness")
    mac = witness_folder(None, home, "darwin")
    assert mac == Path("/home/ada/Library/Application Support/custody-sync/witness")
    assert witness_folder(None, home, "win32") == Path("C:/Users/ada/Local/custody-sync/witness")
    assert witness_folder(None, {**home, VARIABLE: "/else"}, "linux") == Path("/else")
    assert witness_folder(None, {**home, VARIABLE: "off"}, "linux") is None
    assert witness_folder(False, home, "linux") is None
    assert witness_folder("/mine", {VARIABLE: "off"}, "linux") == Path("/mine")


def test_a_ledger_id_is_no_path(tmp_path: Path) -> None:
    """A foreign ledger cannot name a file of somebody else's."""

    class Foreign:
        ledger_id = "../../somebody"

    storage: object = Foreign()
    made = module.Witness(tmp_path, storage, testing_runtime())
    assert made.path is not None
    assert made.path.parent == tmp_path
    assert len(made.path.stem) == 64


NO_HEADS: list[object] = [
    None,
    [],
    {},
    {"seq": 1},
    {"seq": True, "hash": "0" * 64},
    {"seq": -1, "hash": "0" * 64},
    {"seq": 1, "hash": "x"},
]


@pytest.mark.parametrize("document", NO_HEADS)
def test_what_is_no_head_is_refused(document: object) -> None:
    """A line has to be one that `ledger head` printed, or a proof's document."""
    with pytest.raises(ValueError, match="head"):
        read_head(document)


async def test_a_forked_child_writes_no_witness(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its threads are gone, and the parent will write."""
    await book.add()
    monkeypatch.setattr("os.getpid", lambda: -1)
    await book.ledger.witness.flush()
    monkeypatch.undo()
    assert book.ledger.notices == ()
    assert kept(book) is None
