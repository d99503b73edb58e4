"""A JSONL ledger: a file of exported events that is the whole ledger, and what lies beside it."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
from fix_ledger import (
    Book,
    answers_of,
    check_replay,
    files_of,
    open_book,
)

from custody_sync.canonical import canonical
from custody_sync.errors import (
    InvalidInput,
    LedgerError,
    LedgerNotFound,
    LedgerReadOnly,
    LedgerTooLarge,
)
from custody_sync.ledger import Ledger
from custody_sync.ledger.jsonl import open_jsonl
from custody_sync.ledger.storage import Note
from custody_sync.model import Erasure
from custody_sync.testing import ManualClock, testing_runtime

ODD = "one\u2028two\u0085three\u2029four\u000bfive\rsix"


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[Book]:
    """A new JSONL ledger."""
    path = tmp_path / "l.jsonl"
    book = await open_book(path, url=f"jsonl:///{path}")
    yield book
    await book.ledger.close()


async def story(book: Book) -> dict[str, str]:
    """Let everything happen that can happen to facts, and return some ids."""
    a = await book.add("user:7", "city", "Oslo", held=[("memories", "m1")])
    b = await book.add("user:7", "city", "Rome", held=[("memories", "m2")], supersedes=a)
    await book.append(book.remove(a, "memories", "m1"))
    await book.append(book.hold(b, "h1", "a reason"))
    await book.append(book.release(b, "h1"))
    await book.append(book.retract(b))
    await book.append(book.remove(b, "memories", "m2"))
    c = await book.add("user:8", "city", {"n": [1e20, ODD]}, held=[("memories", "m3")])
    await book.append(book.repair("f-orphan", "memories", "m4"))
    await book.append(book.forget(c, identity=True))
    await book.append(book.remove(c, "memories", "m3"))
    await book.append(book.place(a, [("memories", "m5")]))
    return {"a": a, "b": b, "c": c}


def lines_of(path: Path) -> list[bytes]:
    """Return a file's lines as they are."""
    return path.read_bytes().split(b"\n")


async def test_the_file_is_a_header_and_the_exported_events(kept: Book) -> None:
    """Byte for byte, also after erasures; the last line has its end, and the file is its owner's alone."""
    await story(kept)
    header, *lines, end = lines_of(kept.path)
    assert header == canonical({"custody-sync": "ledger", "format": 1, "ledger_id": kept.ledger.ledger_id})
    assert lines == [canonical(row) for row in await kept.export()]
    assert end == b""
    assert len(lines) == 12
    assert stat.S_IMODE(kept.path.stat().st_mode) == 0o600
    await check_replay(kept, kept.path.with_name("replayed.db"))


async def test_i7_the_file_alone_gives_the_same_answers(kept: Book, tmp_path: Path) -> None:
    """To a handle that wrote it, to a new one, and to one of a copy with nothing beside it."""
    await story(kept)
    mine = await answers_of(kept.ledger)
    (tmp_path / "copy").mkdir()
    copy = tmp_path / "copy" / "audit.jsonl"
    copy.write_bytes(kept.path.read_bytes())
    for path, read_only in ((kept.path, True), (kept.path, False), (copy, True), (copy, False)):
        runtime = testing_runtime(clock=kept.clock)
        url = f"jsonl:///{path}"
        async with await Ledger.open(url, read_only=read_only, runtime=runtime) as ledger:
            assert await answers_of(ledger) == mine
            assert ledger.ledger_id == kept.ledger.ledger_id
            anew = not read_only and path == copy
            assert [notice.partition(" was ")[0] for notice in ledger.notices] == (
                ["the file of notes beside it"] if anew else []
            )
        if read_only and path == copy:
            assert list(files_of(copy.parent)) == ["audit.jsonl"]


async def test_the_same_story_gives_the_same_bytes_on_sqlite(kept: Book, tmp_path: Path) -> None:
    """Storages differ in where they keep an event, not in the event."""
    other = await open_book(tmp_path / "l.db")
    await story(other)
    await story(kept)
    assert await other.export() == await kept.export()
    assert other.ledger.ledger_id == kept.ledger.ledger_id
    await other.ledger.close()


async def test_p9_a_line_ends_at_its_byte_and_nowhere_else(kept: Book) -> None:
    """Texts with what others take for line ends come back as they were; the next event has the next seq."""
    fact_id = kept.ledger.keyed_id("org", "x")
    draft = kept.state("s", "p", ODD, fact_id=fact_id, text=ODD)
    event = await kept.append(draft)
    await kept.ledger.close()
    again = await open_book(kept.path, url=f"jsonl:///{kept.path}", create=False, prefix="2-")
    assert again.ledger.keyed_id("org", "x") == fact_id
    fact = await again.ledger.get(fact_id)
    assert fact is not None
    assert (fact.value, fact.text) == (ODD, ODD)
    assert (await again.append(draft)).hash == event.hash
    assert await again.refused(again.state(fact_id=fact_id)) == "duplicate_fact"
    assert (await again.append(again.state())).seq == 2
    assert len(lines_of(kept.path)) == 4
    await again.ledger.close()


async def test_two_handles_see_each_others_events_at_once(kept: Book) -> None:
    """Whichever wrote last: order and chain go on, and nothing is cached."""
    other = await open_book(kept.path, url=f"jsonl:///{kept.path}", create=False, prefix="2-", seed=1)
    for value in range(5):
        await kept.add(value=value)
        await other.add(value=value + 100)
        assert await kept.values() == await other.values()
    log = await kept.export()
    assert [row["event"]["prev"] for row in log[1:]] == [row["hash"] for row in log[:-1]]
    await other.append(other.forget(log[0]["event"]["fact_id"]))
    assert (await kept.values())[0] == 100
    await kept.add(value="after")
    assert (await other.values())[-1] == "after"
    await other.ledger.close()


async def test_notes_are_beside_the_log_and_shared(kept: Book) -> None:
    """Leases and spools are no events: they change nothing in the file, and other handles see them."""
    before = kept.path.read_bytes()
    other = await open_book(kept.path, url=f"jsonl:///{kept.path}", create=False)
    note = Note(topic="spool", key="k", value="{}", since=kept.clock.now())
    await kept.ledger.put_notes([note])
    assert await other.ledger.notes("spool") == [note]
    reader = await Ledger.open(f"jsonl:///{kept.path}", read_only=True)
    assert await reader.notes("spool") == [note]
    await other.ledger.drop_notes("spool")
    assert await kept.ledger.notes("spool") == await reader.notes("spool") == []
    assert kept.path.read_bytes() == before
    await reader.close()
    await other.ledger.close()


async def test_a_copy_without_notes_gets_a_secret_of_its_own(kept: Book, tmp_path: Path) -> None:
    """Its keyed writes have other ids from then on, and keep them."""
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(kept.path.read_bytes())
    ids = []
    for seed in (1, 2):
        runtime = testing_runtime(clock=kept.clock, seed=seed)
        async with await Ledger.open(f"jsonl:///{copy}", runtime=runtime) as ledger:
            ids.append(ledger.keyed_id("org", "x"))
    assert ids[0] == ids[1] != kept.ledger.keyed_id("org", "x")


async def test_a_log_that_lost_its_notes_says_so(kept: Book, tmp_path: Path) -> None:
    """With them went the secret, so that ids of keyed writes are others from now on."""
    await kept.add()
    await kept.ledger.close()
    assert kept.ledger.notices == ()
    (tmp_path / "l.jsonl-notes").unlink()
    for said in (1, 0):
        book = await open_book(kept.path, url=f"jsonl:///{kept.path}")
        assert len(book.ledger.notices) == said
        assert all("with a new secret" in notice for notice in book.ledger.notices)
        await book.ledger.close()


async def test_l7_a_log_that_was_changed_while_it_is_open(kept: Book) -> None:
    """A check names the place, where a question is refused."""
    for _ in range(3):
        await kept.add()
    lines = kept.path.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b"agent:test", b"agent:tess")
    kept.path.write_bytes(b"".join(lines))
    result = await kept.ledger.verify()
    assert (result.intact, result.first_bad) == (False, 2)
    assert (result.consistent, result.head.seq) == (None, 0)


async def test_l7_notes_that_are_built_otherwise_are_found(kept: Book, tmp_path: Path) -> None:
    """They are a database, in which somebody else may have put what changes our statements."""
    await kept.add()
    assert (await kept.ledger.verify()).consistent
    with closing(sqlite3.connect(tmp_path / "l.jsonl-notes")) as conn:
        conn.execute("CREATE TABLE stash AS SELECT * FROM settings")
        conn.commit()
    result = await kept.ledger.verify()
    assert (result.intact, result.inconsistent) == (True, ("table stash: this version makes none",))


async def test_notes_of_another_ledger_are_not_taken_for_its_own(kept: Book, tmp_path: Path) -> None:
    """Neither by a log that was put beside them nor by a new one; nothing is created or changed."""
    await kept.ledger.close()
    before = files_of(tmp_path)
    theirs = before["l.jsonl"].replace(kept.ledger.ledger_id.encode(), b"another")
    for data in (theirs, None):
        kept.path.write_bytes(theirs) if data else kept.path.unlink()
        with pytest.raises(LedgerError, match=r"notes beside it \(l\.jsonl-notes\) are of another ledger"):
            await Ledger.open(f"jsonl:///{kept.path}", create=True)
        assert files_of(tmp_path)["l.jsonl-notes"] == before["l.jsonl-notes"]
        assert files_of(tmp_path).get("l.jsonl") == data


async def test_opening_never_creates_unless_asked(tmp_path: Path) -> None:
    """And leaves nothing behind; what is created twice is the same ledger."""
    url = f"jsonl:///{tmp_path / 'l.jsonl'}"
    with pytest.raises(LedgerNotFound):
        await Ledger.open(url)
    with pytest.raises(LedgerError, match="its folder does not exist"):
        await Ledger.open(f"jsonl:///{tmp_path}/none/l.jsonl", create=True)
    with pytest.raises(LedgerError, match="it is a folder"):
        await Ledger.open(f"jsonl:///{tmp_path}", create=True)
    assert os.listdir(tmp_path) == []
    (tmp_path / "l.jsonl").touch()
    ids = []
    for _ in range(2):
        async with await Ledger.open(url, create=True) as ledger:
            ids.append(ledger.ledger_id)
    assert ids[0] == ids[1]


@pytest.mark.parametrize("url", ["jsonl://l.jsonl", "jsonl:///", "jsonl:///l.jsonl?synchronous=normal"])
async def test_a_url_of_another_form_is_refused(url: str) -> None:
    """It says how one looks."""
    with pytest.raises(InvalidInput, match="JSONL"):
        await Ledger.open(url, create=True)


async def test_a_path_is_taken_literally(tmp_path: Path) -> None:
    """Per cent, hash and question marks are part of a name, and every file of the ledger has it."""
    path = tmp_path / "a%20b#c?d.jsonl"
    book = await open_book(path, url=f"jsonl:///{path}")
    await book.append(book.forget(await book.add()))
    await book.ledger.close()
    assert set(files_of(tmp_path)) == {path.name, f"{path.name}-lock", f"{path.name}-notes"}


async def test_a_link_leads_to_the_file_and_its_companions(tmp_path: Path) -> None:
    """An erasure replaces the file, not the link; a hard link is refused, since an erasure would miss it."""
    (tmp_path / "real").mkdir()
    real, link = tmp_path / "real" / "l.jsonl", tmp_path / "link.jsonl"
    link.symlink_to(real)
    book = await open_book(link, url=f"jsonl:///{link}")
    await book.append(book.forget(await book.add(value="erased")))
    await book.ledger.close()
    assert link.is_symlink()
    assert len(lines_of(real)) == 4
    assert sorted(os.listdir(tmp_path)) == ["link.jsonl", "real"]
    os.link(real, tmp_path / "hard.jsonl")
    with pytest.raises(LedgerError, match="an erasure would reach only one of them"):
        await Ledger.open(f"jsonl:///{link}")


async def test_the_companions_may_be_used_by_whoever_may_use_the_file(kept: Book) -> None:
    """A rewrite, the lock and the notes have the permissions of the log."""
    await kept.ledger.close()
    kept.path.chmod(0o640)
    for name in ("l.jsonl-lock", "l.jsonl-notes"):
        kept.path.with_name(name).unlink()
    book = await open_book(kept.path, url=f"jsonl:///{kept.path}", create=False)
    await book.append(book.forget(await book.add()))
    await book.ledger.close()
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in kept.path.parent.iterdir()}
    assert set(modes.values()) == {0o640}


async def test_a_file_that_may_not_be_written_is_read_as_it_is(kept: Book) -> None:
    """Without a lock, without notes, and with nothing made beside it."""
    await story(kept)
    await kept.ledger.close()
    for name in ("l.jsonl-lock", "l.jsonl-notes"):
        kept.path.with_name(name).unlink()
    kept.path.chmod(0o444)
    async with await Ledger.open(f"jsonl:///{kept.path}") as ledger:
        assert not ledger.writable
        assert len([row async for row in ledger.export()]) == 12
        with pytest.raises(LedgerReadOnly):
            await ledger.append(kept.state())
        assert await ledger.erase() is Erasure.DONE
    assert list(files_of(kept.path.parent)) == ["l.jsonl"]


async def large(tmp_path: Path, most: int) -> tuple[Book, Ledger]:
    """Open a ledger with a low ceiling."""
    clock = ManualClock()
    runtime = testing_runtime(clock=clock)
    storage = await open_jsonl(
        str(tmp_path / "l.jsonl"), create=True, read_only=False, runtime=runtime, most=most
    )
    ledger = Ledger(storage, runtime, None, None)
    return Book(clock, ledger=ledger, path=tmp_path / "l.jsonl"), ledger


async def test_beyond_its_ceiling_a_ledger_takes_no_more_facts(tmp_path: Path) -> None:
    """The error says how to move on; reading goes on, and what ends or erases a fact is still recorded."""
    book, ledger = await large(tmp_path, 3)
    first = book.state(value="gone")
    await book.append(first)
    kept = [await book.add(value=value) for value in "ab"]
    for work in (book.append(book.state()), ledger.check(book.state())):
        with pytest.raises(LedgerTooLarge, match=r"holds 3 events, and .* up to 3; nothing was recorded"):
            await work
    assert (await book.append(first)).seq == 1
    await book.append(book.retract(kept[0]))
    await book.append(book.forget(first.fact_id))
    assert await book.values() == ["b"]
    log = await book.export()
    assert len(log) == 5
    await ledger.close()
    (tmp_path / "l.jsonl").unlink()
    (tmp_path / "l.jsonl-notes").unlink()
    book, ledger = await large(tmp_path, 4)
    with pytest.raises(LedgerTooLarge, match="holds 0 events"):
        await ledger.restore(log)
    assert await book.export() == []
    await ledger.close()
