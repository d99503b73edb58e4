"""Questions about little are answered where they are asked; what takes longer is asked on a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest
from fix_ledger import Book, files_of, open_book

from custody_sync.errors import LedgerError
from custody_sync.ledger import Ledger, sqlite_reading
from custody_sync.ledger.embedded import IN_A_ROW
from custody_sync.ledger.storage import Note
from custody_sync.runtime import new_executor
from custody_sync.testing import InlineExecutor, ManualClock, testing_runtime

Ask = Callable[[Ledger, str], Awaitable[Any]]

BRIEF: dict[str, Ask] = {
    "as_of": lambda ledger, _: ledger.as_of(subject="acct:42"),
    "page": lambda ledger, _: ledger.as_of(),
    "get": lambda ledger, fact_id: ledger.get(fact_id),
    "history": lambda ledger, fact_id: ledger.history(fact_id),
    "placements": lambda ledger, fact_id: ledger.placements(fact_id),
    "known": lambda ledger, fact_id: ledger.known([fact_id, "nobody"]),
    "facts": lambda ledger, fact_id: ledger.facts([fact_id, "nobody"]),
    "placements_of": lambda ledger, fact_id: ledger.placements_of([fact_id, "nobody"]),
    "notes_at": lambda ledger, fact_id: ledger.notes_at("topic", [fact_id]),
    "spaces": lambda ledger, _: ledger.spaces(),
    "head": lambda ledger, _: ledger.head(),
}
LONG: dict[str, Ask] = {
    "as_of": lambda ledger, _: ledger.as_of(limit=101),
    "known": lambda ledger, _: ledger.known([str(i) for i in range(101)]),
    "facts": lambda ledger, _: ledger.facts([str(i) for i in range(101)]),
    "placements_of": lambda ledger, _: ledger.placements_of([str(i) for i in range(101)]),
    "notes_at": lambda ledger, _: ledger.notes_at("topic", [str(i) for i in range(101)]),
    "pending": lambda ledger, _: ledger.pending(),
}


class CountingExecutor(InlineExecutor):
    """Counts what it was given to do."""

    def __init__(self) -> None:
        super().__init__()
        self.given = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Count the work and do it."""
        self.given += 1
        return super().submit(fn, *args, **kwargs)


@pytest.fixture(params=["sqlite", "jsonl"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a ledger of a storage of this machine can be made."""
    return f"{request.param}:///{tmp_path / 'custody.db'}"


async def opened(url: str, tmp_path: Path) -> tuple[Book, CountingExecutor]:
    """Open a ledger with one fact in it, and the thread that answers for it."""
    readers = CountingExecutor()

    def executor(name: str) -> Executor:
        return readers if "reader" in name else InlineExecutor()

    clock = ManualClock()
    runtime = testing_runtime(clock=clock, executor=executor)
    book = await open_book(tmp_path / "custody.db", url=url, runtime=runtime, clock=clock)
    await book.add(held=[("memories", "m1")])
    await book.ledger.put_notes([Note(topic="topic", key="f1", value='""', since=clock.now())])
    readers.given = 0
    return book, readers


@pytest.mark.parametrize("name", BRIEF)
async def test_a_brief_question_needs_no_thread(url: str, tmp_path: Path, name: str) -> None:
    """Handing it over would take longer than the answer."""
    book, readers = await opened(url, tmp_path)
    async with book.ledger as ledger:
        assert await BRIEF[name](ledger, "f1")
        assert readers.given == 0


@pytest.mark.parametrize("name", LONG)
async def test_a_question_about_much_goes_to_the_thread(url: str, tmp_path: Path, name: str) -> None:
    """Whatever else the event loop has to do goes on meanwhile."""
    book, readers = await opened(url, tmp_path)
    async with book.ledger as ledger:
        await LONG[name](ledger, "f1")
        assert readers.given == 1


@pytest.mark.parametrize("name", BRIEF)
async def test_a_question_that_turns_out_long_is_asked_again_on_the_thread(
    url: str, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stopped in time, leaves no transaction behind, and has the same answer."""
    book, readers = await opened(url, tmp_path)
    async with book.ledger as ledger:
        brief = await BRIEF[name](ledger, "f1")
        monkeypatch.setattr(sqlite_reading, "PIECE", 1)
        monkeypatch.setattr(sqlite_reading, "BRIEF", 0)
        assert await BRIEF[name](ledger, "f1") == brief
        assert readers.given == 1
        monkeypatch.undo()
        assert await BRIEF[name](ledger, "f1") == brief
        assert readers.given == 1
        assert await book.append(book.retract("f1"))


async def test_what_earlier_questions_took_stops_no_later_one(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite counts the steps of a statement over all its uses; a few each time are no long question."""
    monkeypatch.setattr(sqlite_reading, "PIECE", 50)
    book, readers = await opened(url, tmp_path)
    async with book.ledger as ledger:
        for _ in range(300):
            assert await ledger.get("f1")
            assert await ledger.as_of(subject="acct:42")
        assert readers.given == 0


async def test_many_brief_questions_leave_others_their_turn(url: str, tmp_path: Path) -> None:
    """A caller that never has to wait would otherwise keep the event loop for itself."""
    book, _ = await opened(url, tmp_path)
    async with book.ledger as ledger:
        done = asyncio.ensure_future(asyncio.sleep(0))
        asked = 0
        while not done.done():
            asked += 1
            assert asked <= 2 * IN_A_ROW
            await ledger.get("f1")


async def test_a_brief_question_does_not_wait_for_a_long_one(tmp_path: Path) -> None:
    """It queues behind it on the thread, where waiting disturbs nobody."""
    clock = ManualClock()
    runtime = testing_runtime(clock=clock, executor=new_executor)
    book = await open_book(tmp_path / "custody.db", runtime=runtime, clock=clock)
    async with book.ledger as ledger:
        fact_id = await book.add()
        reader: Any = ledger._storage
        with reader._reader._one_at_a_time:
            asked = asyncio.ensure_future(ledger.get(fact_id))
            for _ in range(10):
                await asyncio.sleep(0)
            assert not asked.done()
        assert await asked


async def test_who_only_asks_leaves_nothing_beside_the_file(tmp_path: Path) -> None:
    """The connection that writes is made when it is needed; the last one to go cleans up all the same."""
    book = await open_book(tmp_path / "custody.db")
    fact_id = await book.add()
    await book.ledger.close()
    again = await open_book(book.path, create=False, clock=book.clock)
    storage: Any = again.ledger._storage
    assert again.ledger.writable
    assert await again.ledger.get(fact_id)
    assert storage._connected is None
    await again.ledger.close()
    assert list(files_of(tmp_path)) == ["custody.db"]


async def test_a_file_put_in_the_place_of_the_ledger_is_not_touched(tmp_path: Path) -> None:
    """Not even by the connection that is only made for the first append."""
    book = await open_book(tmp_path / "custody.db")
    await book.ledger.close()
    again = await open_book(book.path, create=False, clock=book.clock)
    book.path.rename(tmp_path / "moved.db")
    book.path.write_bytes(b"another file")
    with pytest.raises(LedgerError, match="moved or replaced"):
        await again.add()
    await again.ledger.close()
    assert book.path.read_bytes() == b"another file"
