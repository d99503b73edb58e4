"""A check that runs while others write and erase: exact, and never a false alarm."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from fix_ledger import Book, Child, open_book

from custody_sync.ledger import verifying
from custody_sync.ledger.verifying import Verification


async def test_a_ledger_is_checked_while_another_process_writes_it(tmp_path: Path) -> None:
    """However far the writer gets between two pages, what was read is held against its own moment."""
    path = tmp_path / "l.db"
    book = await open_book(path)
    writer = Child("append", path, "w", 150)
    writer.go()
    found: list[Verification] = []
    done = asyncio.ensure_future(asyncio.to_thread(writer.report))
    while not done.done() or not found:
        found.append(await book.ledger.verify(witness=False))
        await asyncio.sleep(0)
    await done
    assert [result for result in found if result.found] == []
    assert (await book.ledger.verify(await book.ledger.head(), witness=False)).passed
    await book.ledger.close()


MOMENTS = {
    "after the head": ("head", 1),
    "after the log": ("derived", 1),
    "between two pages": ("derived", 2),
}


@pytest.mark.parametrize("moment", list(MOMENTS))
async def test_what_changes_between_two_steps_is_no_finding(
    book: Book, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """An erasure, with and without identity, and events of every sort at the worst moments."""
    monkeypatch.setattr(verifying, "PAGE", 2)
    facts = [await book.add(value=f"v{n}", held=[("memories", f"m-{n}")]) for n in range(5)]
    storage, (name, call) = book.ledger._storage, MOMENTS[moment]
    asked, calls = getattr(storage, name), itertools.count(1)

    async def meddled(*args: object) -> object:
        answer = await asked(*args)
        if next(calls) == call:
            await book.append(book.forget(facts[0], identity=True, reason="asked"))
            await book.append(book.remove(facts[0], "memories", "m-0"))
            await book.append(book.forget(facts[3]))
            await book.append(book.retract(facts[4], "wrong"))
            await book.add(value="new", held=[("memories", "m-9")])
        return answer

    monkeypatch.setattr(storage, name, meddled)
    result = await book.ledger.verify(witness=False)
    monkeypatch.undo()
    assert not result.found, result
    assert (result.intact, result.consistent) == (True, True)
    assert (await book.ledger.head()).seq == 10
    again = await book.ledger.verify(await book.ledger.head(), witness=False)
    assert again.passed
    assert again.erased == {"content": 2, "identity": 1, "refs": 2}


async def test_what_came_and_went_while_it_was_checked_is_no_finding(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fact asserted after the log was read, and forgotten with identity before its event is read."""
    await book.add()
    storage, late = book.ledger._storage, book.state(value="late", held=[("memories", "m-1")])
    asked, calls = storage.derived, itertools.count(1)

    async def meddled(limit: int, after: str) -> object:
        first = next(calls) == 1
        if first:
            await book.append(late)
        answer = await asked(limit, after)
        if first:
            await book.append(book.forget(late.fact_id, identity=True))
            await book.append(book.remove(late.fact_id, "memories", "m-1"))
        return answer

    monkeypatch.setattr(storage, "derived", meddled)
    result = await book.ledger.verify(witness=False)
    assert (result.intact, result.consistent, result.inconsistent) == (True, True, ())
    assert next(calls) == 3


@pytest.mark.damages
@pytest.mark.storages("sqlite")
async def test_what_was_changed_is_found_however_busy_the_ledger_is(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that goes on at each look cannot hide a row that was changed."""
    fact_id = await book.add()
    with closing(sqlite3.connect(book.path)) as conn:
        conn.execute("UPDATE facts SET subject = 'acct:43'")
        conn.commit()
    storage = book.ledger._storage
    asked = storage.derived

    async def busy(limit: int, after: str) -> object:
        answer = await asked(limit, after)
        await book.append(book.hold(fact_id, book.event_id()))
        return answer

    monkeypatch.setattr(storage, "derived", busy)
    result = await book.ledger.verify(witness=False)
    assert (result.intact, result.inconsistent) == (True, (f"{fact_id}: fact",))


async def test_a_page_of_any_size_finds_the_same(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    """No event and no row falls between two pages."""
    for n in range(7):
        await book.add(value=n)
    results = []
    for size in (1, 2, 3, 7, 1000):
        monkeypatch.setattr(verifying, "PAGE", size)
        results.append(await book.ledger.verify(witness=False))
    assert all(result == results[0] for result in results)
    assert results[0].events == 7


async def test_a_check_that_is_given_up_lets_go_of_its_thread(book: Book) -> None:
    """The ledger can be closed and used afterwards."""
    await book.add()
    checking = asyncio.ensure_future(book.ledger.verify())
    await asyncio.sleep(0)
    checking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await checking
    assert (await book.ledger.verify(witness=False)).intact
