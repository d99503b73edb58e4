"""Writes to a JSONL ledger that fail, and files that others altered: nothing is lost, nothing hidden."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fix_ledger import Book, files_of, open_book

from custody_sync.canonical import canonical
from custody_sync.errors import LedgerBroken, LedgerError, LedgerFull, OutcomeUnknown
from custody_sync.ledger import Ledger
from custody_sync.model import Erasure


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[Book]:
    """A new JSONL ledger."""
    path = tmp_path / "l.jsonl"
    book = await open_book(path, url=f"jsonl:///{path}")
    yield book
    await book.ledger.close()


def lines_of(path: Path) -> list[bytes]:
    """Return a file's lines as they are."""
    return path.read_bytes().split(b"\n")


@pytest.mark.parametrize(
    ("number", "error"), [(errno.ENOSPC, LedgerFull), (errno.EFBIG, LedgerFull), (errno.EIO, LedgerError)]
)
@pytest.mark.parametrize("call", ["pwrite", "fsync", "write", "replace"])
async def test_an_append_that_fails_leaves_the_log_as_it_was(
    kept: Book, monkeypatch: pytest.MonkeyPatch, call: str, number: int, error: type[LedgerError]
) -> None:
    """Also one that got half way: what was acknowledged is there, and it goes on once there is room."""
    fact_id = await kept.add(value="there")
    before = kept.path.read_bytes()
    forgets = call in ("write", "replace")
    draft = kept.forget(fact_id) if forgets else kept.state()
    real = getattr(os, call)
    failed: list[int] = []

    def fail(handle: Any, data: Any = b"", *more: Any) -> Any:
        if call == "pwrite" and len(data) < 100:
            return real(handle, data, *more)
        if call in ("pwrite", "write"):
            real(handle, bytes(data)[: len(data) // 2], *more)
        elif failed:
            return real(handle)
        failed.append(1)
        raise OSError(number, "no")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(error) as caught:
            await kept.append(draft)
    assert type(caught.value) is error
    assert kept.path.read_bytes() == before
    assert "l.jsonl-rewrite" not in files_of(kept.path.parent)
    assert await kept.values() == ["there"]
    await kept.append(draft)
    assert len(await kept.values()) == (0 if forgets else 2)


async def test_a_log_that_cannot_be_taken_back_is_an_unknown_outcome(
    kept: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever stayed of it is looked at by the next commit, which settles it."""
    await kept.add(value="there")
    real, draft = os.pwrite, kept.state(value="x" * 300)

    def fail(handle: int, data: Any, at: int) -> int:
        if len(data) < 100:
            return real(handle, data, at)
        real(handle, bytes(data)[:-50], at)
        raise OSError(errno.EIO, "no")

    def broken(*_: Any) -> None:
        raise OSError(errno.EIO, "no")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", fail)
        patch.setattr(os, "ftruncate", broken)
        with pytest.raises(OutcomeUnknown):
            await kept.append(draft)
    assert await kept.values() == ["there"]
    assert (await kept.append(draft)).seq == 2
    assert kept.ledger.notices[0].startswith("an unfinished line of")
    assert len(await kept.export()) == 2


async def test_a_rewrite_whose_name_may_not_last_is_an_unknown_outcome(
    kept: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is settled by forgetting again, and the value is gone all the same."""
    draft = kept.forget(await kept.add(value="to be erased"))
    real = os.fsync

    def fail(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EIO, "no")
        real(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OutcomeUnknown):
            await kept.append(draft)
    assert (await kept.append(draft)).seq == 2
    assert b"to be erased" not in kept.path.read_bytes()
    assert await kept.values() == []


async def test_an_altered_line_is_noticed_by_an_open_ledger(kept: Book) -> None:
    """Where the file was changed and nothing was added to it, all of it is read again."""
    await kept.add(value="first")
    await kept.add(value="second")
    data = kept.path.read_bytes()
    kept.path.write_bytes(data.replace(b'"value":"first"', b'"value":"tsrif"'))
    os.utime(kept.path, ns=(1, 1))
    with pytest.raises(LedgerBroken, match=r"event 1: its content is not what was committed to \(line 2\)"):
        await kept.values()
    kept.path.write_bytes(data)
    assert await kept.values() == ["first", "second"]


async def test_a_log_made_by_hand_keeps_nothing_that_it_forgets(kept: Book, tmp_path: Path) -> None:
    """Lines that were put together with an erased value in them: it is erased, and until then it is due."""
    fact_id = await kept.add(value="should be gone", held=[("memories", "m1")])
    line = lines_of(kept.path)[1]
    await kept.append(kept.forget(fact_id))
    await kept.ledger.close()
    header, _, *rest = lines_of(kept.path)
    kept.path.write_bytes(b"\n".join([header, line, *rest]))
    url = f"jsonl:///{kept.path}"
    async with await Ledger.open(url, read_only=True) as reader:
        assert await reader.erase() is Erasure.PENDING
    async with await Ledger.open(url) as ledger:
        fact = await ledger.get(fact_id)
        assert fact is not None
        assert fact.forgotten
        assert b"should be gone" in kept.path.read_bytes()
        assert await ledger.erase() is Erasure.DONE
        assert b"should be gone" not in kept.path.read_bytes()
        assert [canonical(row) async for row in ledger.export()] == lines_of(kept.path)[1:-1]
    assert json.loads(lines_of(kept.path)[1])["sealed"].keys() == {"identity", "refs"}


async def test_a_page_that_forgets_what_an_earlier_page_stated_takes_it_out(
    kept: Book, tmp_path: Path
) -> None:
    """Taking over a log page by page leaves no value behind that the log's own end erased."""
    other = await open_book(tmp_path / "other" / "l.jsonl", url=f"jsonl:///{make(tmp_path)}", seed=1)
    fact_id = await other.add(value="should be gone")
    (before,) = await other.export()
    await other.append(other.forget(fact_id))
    _, forget = await other.export()
    await kept.ledger.restore([before])
    assert b"should be gone" in kept.path.read_bytes()
    await kept.ledger.restore([forget])
    assert b"should be gone" not in kept.path.read_bytes()
    assert lines_of(kept.path)[1:] == lines_of(tmp_path / "other" / "l.jsonl")[1:]
    await other.ledger.close()


def make(tmp_path: Path) -> Path:
    """Return where a second ledger can be made."""
    (tmp_path / "other").mkdir()
    return tmp_path / "other" / "l.jsonl"


@pytest.fixture
def synced(kept: Book, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows with every fsync of the log."""
    calls: list[int] = []
    real, log = os.fsync, kept.path.stat().st_ino

    def fsync(handle: int) -> None:
        real(handle)
        if os.fstat(handle).st_ino == log:
            calls.append(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    return calls


@pytest.mark.parametrize("opened", ["before", "before, and has read", "afterwards"])
async def test_what_a_dead_writer_did_not_sync_is_synced_before_anybody_is_told(
    kept: Book, synced: list[int], opened: str
) -> None:
    """A repeated draft is answered with its line, which a power cut must then not take any more."""
    await kept.add(value="there")
    lock = kept.path.with_name("l.jsonl-lock")
    other = None if opened == "afterwards" else await Ledger.open(f"jsonl:///{kept.path}", witness=False)
    mark, draft = lock.read_bytes(), kept.state()
    event = await kept.append(draft)
    # It died between its write and its fsync, so it has marked nothing.
    lock.write_bytes(mark)
    if other is not None and opened == "before, and has read":
        assert (await other.head()).seq == 2
    synced.clear()
    other = other or await Ledger.open(f"jsonl:///{kept.path}", witness=False)
    assert await other.append(draft) == event
    assert len(synced) == 1
    assert await other.append(draft) == event
    assert len(synced) == 1
    await other.close()


async def test_what_a_living_writer_has_synced_is_not_synced_again(kept: Book, synced: list[int]) -> None:
    """Two writers in turn pay for one fsync each, not for the other's as well."""
    async with await Ledger.open(f"jsonl:///{kept.path}", witness=False) as other:
        await kept.add(value="there")
        synced.clear()
        for value in range(3):
            draft = kept.state(value=value)
            event = await kept.append(draft)
            assert await other.append(draft) == event
            await other.append(kept.state(value=str(value)))
    assert len(synced) == 6
