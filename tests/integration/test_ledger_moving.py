"""Moving a ledger: lossless, verified, continued after an interruption, never two ledgers of one id."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fix_golden import GOLDEN, MADE
from fix_ledger import Book, open_book

from custody_sync.errors import (
    ErasedMeanwhile,
    InvalidInput,
    LedgerBroken,
    LedgerDamaged,
    LedgerMoved,
    LedgerNotEmpty,
    LedgerTooNew,
    SweepRunning,
)
from custody_sync.ledger import Ledger
from custody_sync.ledger.moving import (
    FileSource,
    LedgerSource,
    event_line,
    export_lines,
    move,
    take_over,
)
from custody_sync.ledger.storage import MOVED, Identity
from custody_sync.testing import ManualClock, testing_runtime

EXPORT = (GOLDEN / "ledger-1.jsonl").read_bytes().splitlines(keepends=True)


def runtime(seed: int = 5) -> Any:
    """Return a runtime at the moment the golden ledger was made."""
    return testing_runtime(clock=ManualClock(MADE), seed=seed)


async def new(path: Path, identity: Identity | None = None, seed: int = 5) -> Ledger:
    """Make a ledger to copy into."""
    return await Ledger.open(f"sqlite:///{path}", create=True, runtime=runtime(seed), identity=identity)


async def filled(path: Path, seed: int = 5) -> Ledger:
    """Make a ledger with the golden log."""
    ledger = await new(path, seed=seed)
    await take_over(FileSource("golden", EXPORT), ledger)
    return ledger


async def exported(ledger: Ledger) -> list[bytes]:
    """Return the lines of an export."""
    return [line async for line in export_lines(ledger)]


async def test_p9_an_export_that_was_imported_is_exported_the_same(book: Book) -> None:
    """Every storage takes a log over, to the byte; a copy has an id of its own, in the header alone."""
    done = await take_over(FileSource("golden", EXPORT), book.ledger)
    assert (done.before, done.added, done.ledger_id) == (0, len(EXPORT) - 1, book.ledger.ledger_id)
    header, *events = await exported(book.ledger)
    assert events == EXPORT[1:]
    assert header != EXPORT[0]
    assert header == EXPORT[0].replace(
        b"01a05a43-fc00-7000-8001-c00000000001", book.ledger.ledger_id.encode()
    )
    assert (await book.ledger.verify(done.head)).passed


async def test_p9_one_that_takes_the_others_place_is_the_same_to_the_last_byte(tmp_path: Path) -> None:
    """With the id kept, the header is the same as well."""
    identity = Identity(FileSource("golden", EXPORT).ledger_id, b"s" * 32)
    async with await new(tmp_path / "l.db", identity) as ledger:
        await take_over(FileSource("golden", EXPORT), ledger)
        assert await exported(ledger) == EXPORT


@pytest.mark.parametrize("events", [0, 1, 7, len(EXPORT) - 2])
async def test_an_interrupted_import_is_continued(book: Book, events: int) -> None:
    """What was taken over is the beginning of the same history; the next run appends the rest."""
    with pytest.raises(LedgerBroken) as caught:
        await take_over(FileSource("golden", [*EXPORT[: events + 1], b'{"event": ']), book.ledger)
    assert (caught.value.seq, caught.value.problem) == (events + 1, "the file is cut short there")
    await book.ledger.restore([])
    pages = [event_line(row) async for row in FileSource("golden", EXPORT[: events + 1]).rows()]
    assert pages == EXPORT[1 : events + 1]
    await take_over(FileSource("golden", EXPORT[: events + 1]), book.ledger)
    done = await take_over(FileSource("golden", EXPORT), book.ledger)
    assert (done.before, done.added) == (events, len(EXPORT) - 1 - events)
    again = await take_over(FileSource("golden", EXPORT), book.ledger)
    assert (again.added, again.head) == (0, done.head)
    assert (await exported(book.ledger))[1:] == EXPORT[1:]


async def test_another_history_is_not_continued(book: Book) -> None:
    """A ledger with events of its own, or with more than the source, stays as it is."""
    await book.add()
    head = await book.ledger.head()
    for lines in (EXPORT, EXPORT[:1]):
        with pytest.raises(LedgerNotEmpty):
            await take_over(FileSource("golden", lines), book.ledger)
    assert await book.ledger.head() == head


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        ([], LedgerDamaged),
        ([b"subject,predicate\n"], LedgerDamaged),
        ([b'{"custody-sync":"facts","format":1,"ledger_id":"x"}\n'], LedgerDamaged),
        ([b'{"custody-sync":"ledger","format":2,"ledger_id":"x"}\n'], LedgerTooNew),
    ],
)
def test_what_is_no_export_is_refused_at_its_first_line(lines: list[bytes], error: type[Exception]) -> None:
    """Nothing is made of a file of something else, or of a later version."""
    with pytest.raises(error):
        FileSource("some.jsonl", lines)


@pytest.mark.parametrize("line", [b"nonsense\n", b"[1]\n", b'{"event":{}}\n'])
async def test_a_line_that_is_no_event_is_named(book: Book, line: bytes) -> None:
    """The place is that of the event it stands for."""
    with pytest.raises(LedgerBroken) as caught:
        await take_over(FileSource("golden", [*EXPORT[:4], line]), book.ledger)
    assert caught.value.seq == 4


async def test_a_move_keeps_who_it_is(tmp_path: Path) -> None:
    """The new place has the id and the secret, goes on, and the old one refuses."""
    async with (
        await filled(tmp_path / "old.db") as old,
        await new(tmp_path / "new.db", old.identity) as moved,
    ):
        done = await move(old, moved, moved.name)
        assert (done.ledger_id, done.head) == (old.ledger_id, await old.head())
        assert moved.keyed_id("org", "k1") == old.keyed_id("org", "k1")
    book = await open_book(tmp_path / "new.db", create=False, clock=ManualClock(MADE + timedelta(days=1)))
    await book.add()
    assert (await book.ledger.verify()).passed
    await book.ledger.close()
    book = await open_book(tmp_path / "old.db", create=False, clock=ManualClock(MADE + timedelta(days=1)))
    with pytest.raises(LedgerMoved) as caught:
        await book.add()
    assert caught.value.fields["to"] == str(tmp_path / "new.db")
    assert book.ledger.notices == (f"it was moved to {tmp_path / 'new.db'}",)
    assert (await book.ledger.as_of(limit=1)).head == done.head
    await book.ledger.close()


async def test_a_move_back_is_a_move(tmp_path: Path) -> None:
    """The old place takes over what came since, and from then on it is the ledger again."""
    identity = Identity("ledger-7", b"s" * 32)
    async with await new(tmp_path / "a.db", identity) as a, await new(tmp_path / "b.db", identity) as b:
        await take_over(FileSource("golden", EXPORT[:20]), a)
        await move(a, b, b.name)
        await take_over(FileSource("golden", EXPORT), b)
        done = await move(b, a, a.name)
        assert (done.before, done.added) == (19, len(EXPORT) - 20)
    for name, may in (("a", True), ("b", False)):
        book = await open_book(tmp_path / f"{name}.db", create=False, clock=ManualClock(MADE + timedelta(1)))
        draft = book.state(value=name)
        if may:
            await book.append(draft)
        else:
            assert await book.refused(draft) == "ledger_moved"
        await book.ledger.close()


async def test_a_move_waits_for_no_sweep(tmp_path: Path) -> None:
    """While a sweep holds its lease the ledger stays where it is, and nothing was marked."""
    async with await filled(tmp_path / "a.db") as a, await new(tmp_path / "b.db", a.identity) as b:
        await a.acquire("lease", "sweep", holder="somebody", value='""', ttl=timedelta(minutes=1))
        with pytest.raises(SweepRunning):
            await move(a, b, b.name)
        assert await a.notes(MOVED) == []
        assert (await b.head()).seq == 0


async def test_a_move_that_fails_leaves_the_ledger_where_it_was(tmp_path: Path) -> None:
    """The mark is taken back: nobody is left without a ledger."""
    async with await filled(tmp_path / "a.db") as a, await new(tmp_path / "b.db", a.identity) as b:
        await take_over(FileSource("golden", EXPORT), b)
        await b.append((await open_drafts()).state())
        with pytest.raises(LedgerNotEmpty):
            await move(a, b, b.name)
        assert await a.notes(MOVED) == []


async def open_drafts() -> Any:
    """Return a maker of drafts at the golden ledger's time."""
    from fix_ledger import Drafts

    return Drafts(ManualClock(MADE + timedelta(minutes=1)), "new-")


async def test_what_was_moved_once_is_not_moved_elsewhere(tmp_path: Path) -> None:
    """The place that it went to has gone on, so only from there."""
    async with await filled(tmp_path / "a.db") as a:
        for name in ("b", "b", "c"):
            async with await new(tmp_path / f"{name}.db", a.identity) as target:
                if name == "c":
                    with pytest.raises(LedgerMoved):
                        await move(a, target, target.name)
                else:
                    await move(a, target, target.name)


async def test_a_place_of_another_ledger_is_no_place_to_move_to(tmp_path: Path) -> None:
    """An id is not given to a ledger that has one."""
    async with await filled(tmp_path / "a.db") as a, await new(tmp_path / "b.db", seed=6):
        with pytest.raises(InvalidInput, match="another ledger"):
            await new(tmp_path / "b.db", a.identity)


async def test_what_is_erased_while_it_is_exported_is_no_export(book: Book) -> None:
    """Lines that were written before the forget have the value still, so the reader is told."""
    fact_id = await book.add(value="secret")
    lines: AsyncIterator[bytes] = export_lines(book.ledger)
    await anext(lines)
    assert b"secret" in await anext(lines)
    await book.append(book.forget(fact_id))
    with pytest.raises(ErasedMeanwhile):
        async for _ in lines:
            pass
    assert not any(b"secret" in line for line in await exported(book.ledger))


async def test_what_was_forgotten_since_is_forgotten_by_a_copy_that_is_continued(
    book: Book, tmp_path: Path
) -> None:
    """A copy made before a forget loses the value when it takes the forget over."""
    fact_id = await book.add(value="hush-hush")
    async with await new(tmp_path / "copy.db") as copy:
        await take_over(LedgerSource(book.ledger), copy)
        await book.append(book.forget(fact_id))
        done = await take_over(LedgerSource(book.ledger), copy)
        assert done.added == 1
        fact = await copy.get(fact_id)
        assert fact is not None
        assert fact.forgotten
        assert (await copy.verify(done.head)).passed
    assert b"hush-hush" not in (tmp_path / "copy.db").read_bytes()  # a test may wait
