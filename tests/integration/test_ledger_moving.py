"""Moving a ledger: lossless, verified, continued after an interruption, never two ledgers of one id."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fix_golden import GOLDEN, MADE
from fix_ledger import Book, Drafts, open_book

from custody_sync.errors import (
    ErasedMeanwhile,
    InvalidInput,
    LedgerArriving,
    LedgerBroken,
    LedgerDamaged,
    LedgerError,
    LedgerMoved,
    LedgerNotEmpty,
    LedgerTooNew,
    SweepRunning,
)
from custody_sync.ledger import Ledger, moving
from custody_sync.ledger.moving import (
    FileSource,
    LedgerSource,
    Moved,
    event_line,
    export_lines,
    move,
    take_over,
)
from custody_sync.ledger.storage import Identity, Note, Way
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
    # It is the file that is not intact, and not the ledger that was to take it over.
    assert (caught.value.seq, caught.value.name) == (4, "golden")


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
        assert await a.mark() is None
        assert (await b.head()).seq == 0


async def test_a_move_that_fails_leaves_the_ledger_where_it_was(tmp_path: Path) -> None:
    """The mark is taken back: nobody is left without a ledger."""
    async with await filled(tmp_path / "a.db") as a, await new(tmp_path / "b.db", unmarked(a)) as b:
        await take_over(FileSource("golden", EXPORT), b)
        await b.append(drafts().state())
        with pytest.raises(LedgerNotEmpty):
            await move(a, b, b.name)
        assert (await a.mark(), await b.mark()) == (None, None)


def drafts() -> Drafts:
    """Return a maker of drafts at the golden ledger's time."""
    return Drafts(ManualClock(MADE + timedelta(minutes=1)), "new-")


def unmarked(ledger: Ledger) -> Identity:
    """Return an identity with which a ledger is made that no move has to complete."""
    return replace(ledger.identity, arrives_from=None)


MARKS = [(Way.TO, LedgerMoved), (Way.FROM, LedgerArriving)]


@pytest.mark.parametrize(("way", "error"), MARKS)
async def test_a_mark_stops_every_handle_at_once(
    book: Book, ledger_url: str, way: Way, error: type[LedgerError]
) -> None:
    """The mark is looked at where the head is locked, not when a handle gets round to it."""
    await book.ledger.put_notes([spooled("before", book)])
    async with await beside(book, ledger_url) as idle:
        mark = await book.ledger.set_mark(None, way, "elsewhere")
        assert mark is not None
        head, draft = await idle.head(), book.state()
        results = await asyncio.gather(*(idle.append(book.state()) for _ in range(3)), return_exceptions=True)
        assert {type(result) for result in results} == {error}
        for refused in (
            idle.append(draft),
            idle.check(draft),
            idle.acquire("lease", "sweep", holder="me", value='""', ttl=timedelta(minutes=1)),
            idle.put_notes([spooled("after", book)]),
        ):
            with pytest.raises(error, match="elsewhere"):
                await refused
        # What ends work is no work.
        await idle.drop_notes("spool")
        assert await idle.head() == head
        assert await book.ledger.drop_mark(mark)
        await idle.append(draft)
        assert await idle.notes("spool") == []


async def beside(book: Book, url: str) -> Ledger:
    """Open another handle of a book's ledger."""
    return await Ledger.open(url, runtime=testing_runtime(clock=book.clock, seed=7))


def spooled(key: str, book: Book) -> Note:
    """Return a working note."""
    return Note(topic="spool", key=key, value="{}", since=book.clock.now())


async def test_what_was_moved_takes_no_log_either(book: Book) -> None:
    """An import is an append; only a ledger that a move has to complete takes one."""
    assert await book.ledger.set_mark(None, Way.TO, "elsewhere") is not None
    with pytest.raises(LedgerMoved):
        await take_over(FileSource("golden", EXPORT), book.ledger)
    mark = await book.ledger.mark()
    assert await book.ledger.set_mark(mark, Way.FROM, "elsewhere") is not None
    assert (await take_over(FileSource("golden", EXPORT), book.ledger)).added == len(EXPORT) - 1


async def test_of_two_marks_at_once_one_is_set(book: Book, ledger_url: str) -> None:
    """Each says what it expects to stand, in the transaction that sets it."""
    async with await beside(book, ledger_url) as other:
        marks = await asyncio.gather(
            book.ledger.set_mark(None, Way.TO, "b"), other.set_mark(None, Way.TO, "c")
        )
        (mark,) = [mark for mark in marks if mark is not None]
        assert await other.mark() == await book.ledger.mark() == mark
        assert not await other.drop_mark(replace(mark, run="another"))
        assert await other.drop_mark(mark)
        assert not await book.ledger.drop_mark(mark)


async def test_a_move_that_was_completed_is_complete_when_it_is_run_again(tmp_path: Path) -> None:
    """The new place has gone on and has all of the old one's history: nothing is done, no mark is lost."""
    async with await filled(tmp_path / "a.db") as a, await new(tmp_path / "b.db", a.identity) as b:
        assert b.notices == (f"the move from {a.name} to here is not complete; run it again",)
        first = await move(a, b, b.name)
        mark = await a.mark()
        await b.append(drafts().state())
        again = await move(a, b, b.name)
        assert (again.added, again.head, again.head.seq) == (0, await b.head(), first.head.seq + 1)
        assert (await a.mark(), await b.mark()) == (mark, None)
        assert again.remains == first.remains
        assert again.remains[0].startswith(f"{a.name} still has every value")


async def test_a_move_takes_back_no_mark_of_an_earlier_one(tmp_path: Path) -> None:
    """Where the new place has another history, the old one still does not go on."""
    async with await filled(tmp_path / "a.db") as a, await new(tmp_path / "b.db", unmarked(a)) as b:
        await b.append(drafts().state())
        mark = await a.set_mark(None, Way.TO, b.name)
        with pytest.raises(LedgerNotEmpty):
            await move(a, b, b.name)
        assert (await a.mark(), await b.mark()) == (mark, None)


async def test_of_two_moves_at_once_one_is_made(tmp_path: Path) -> None:
    """The other one is told where the ledger went, and what it was to make takes nothing."""
    async with await filled(tmp_path / "a.db") as a:
        targets = [await new(tmp_path / f"{name}.db", a.identity) for name in ("b", "c")]
        results = await asyncio.gather(*(move(a, t, t.name) for t in targets), return_exceptions=True)
        assert {type(result) for result in results} == {Moved, LedgerMoved}
        for target, result in zip(targets, results, strict=True):
            if isinstance(result, Moved):
                await target.append(drafts().state())
            else:
                with pytest.raises(LedgerArriving):
                    await target.append(drafts().state())
            await target.close()


class Interrupted(Exception):
    """Stands for a process that goes away."""


async def test_half_of_a_move_is_no_ledger_yet(
    tmp_path: Path, ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a death in the middle neither place takes anything until the move is run again."""
    monkeypatch.setattr(moving, "PAGE", 5)
    async with await filled(tmp_path / "a.db") as a:
        with monkeypatch.context() as dying:
            # One that is killed takes nothing back.
            dying.setattr(moving._Run, "give_up", nothing)
            async with await Ledger.open(
                ledger_url, create=True, runtime=runtime(), identity=a.identity
            ) as b:
                with pytest.raises(Interrupted):
                    await move(a, b, b.name, stop_at(12))
        async with await Ledger.open(ledger_url, runtime=runtime()) as b:
            assert (await b.head()).seq == 10
            for ledger, error in ((a, LedgerMoved), (b, LedgerArriving)):
                with pytest.raises(error):
                    await ledger.append(drafts().state())
            with pytest.raises(LedgerArriving):
                await move(b, a, a.name)
            done = await move(a, b, b.name)
            assert (done.before, done.added) == (10, len(EXPORT) - 11)
            await b.append(drafts().state())


async def nothing(run: object) -> None:
    """Do nothing."""


def stop_at(events: int) -> Callable[[int], None]:
    """Return what ends a move after so many events."""
    left = [None] * events

    def tell(done: int) -> None:
        if not left:
            raise Interrupted
        left.pop()

    return tell


async def test_a_move_that_fails_half_way_leaves_half_of_a_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source goes on; what came over waits for the next run."""
    monkeypatch.setattr(moving, "PAGE", 5)
    async with await filled(tmp_path / "a.db") as a, await new(tmp_path / "b.db", a.identity) as b:
        with pytest.raises(Interrupted):
            await move(a, b, b.name, stop_at(12))
        await a.append(drafts().state())
        with pytest.raises(LedgerArriving):
            await b.append(drafts().state())
        assert (await move(a, b, b.name)).before == 10


async def test_a_run_that_was_overtaken_lets_nobody_go_on(tmp_path: Path) -> None:
    """Another run may complete the target any moment, so the source stays stopped."""
    async with await filled(tmp_path / "a.db") as a, await new(tmp_path / "b.db", a.identity) as b:
        overtaking = moving._Run(a, b, None)

        async def overtake(ledger: Ledger) -> None:
            overtaking.was = await b.mark()
            await overtaking.begin()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(moving, "_check", overtake)
            with pytest.raises(LedgerError, match="another move of it is under way"):
                await move(a, b, b.name)
        mark = await a.mark()
        assert mark is not None
        await overtaking.finish()
        await b.append(drafts().state())


async def test_a_ledger_is_not_moved_to_where_it_is(tmp_path: Path) -> None:
    """A link is another name, not another place; nothing stays stopped."""
    (tmp_path / "link.db").symlink_to(tmp_path / "a.db")
    async with await filled(tmp_path / "a.db") as a, await new(tmp_path / "link.db") as link:
        with pytest.raises(InvalidInput, match="to where it is"):
            await move(a, link, link.name)
        await a.append(drafts().state())


async def test_a_move_needs_the_secret_as_well(tmp_path: Path) -> None:
    """A ledger made of an export has the id alone: keyed writes would become new facts there."""
    async with await filled(tmp_path / "a.db") as a:
        async with await new(tmp_path / "b.db", Identity(a.ledger_id, b"t" * 32)) as b:
            with pytest.raises(InvalidInput, match="another ledger"):
                await move(a, b, b.name)
        assert await a.mark() is None


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
