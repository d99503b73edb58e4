"""Notes beside the log: an erasure takes those that name what it erased, and no others."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from fix_ledger import Book

from custody_sync.ledger.drafts import Draft
from custody_sync.ledger.storage import Note
from custody_sync.model import Erasure, Outcome
from custody_sync.repair.lease import holder


@pytest.mark.parametrize("what", ["a forget that is refused", "an entry found since"])
async def test_only_an_erasure_takes_notes(book: Book, what: str) -> None:
    """An event that erases nothing makes no erasure due: what was noted since stays, nothing is pending."""
    fact_id = await book.add()
    await book.append(book.forget(fact_id, identity=True))
    assert await book.ledger.erase() is Erasure.DONE
    noted = Note(topic="spool", key="a", value=json.dumps({"fact_id": fact_id}), since=book.clock.now())
    await book.ledger.put_notes([noted])
    draft: Draft
    if what == "a forget that is refused":
        draft = book.forget(fact_id, identity=True)
        assert await book.refused(draft) == "forgotten"
    else:
        await book.append(book.remove(fact_id, "agent", "late", Outcome.STARTED))
    assert await book.ledger.erase() is Erasure.DONE
    assert await book.ledger.notes("spool") == [noted]


async def test_a_note_without_an_end_is_the_first_ones(book: Book) -> None:
    """A note that never lapses stands for ever: whoever comes later gets what the first one set."""
    ledger = book.ledger
    first = await ledger.acquire("t", "k", holder="one", value='"a"', ttl=None)
    book.later(days=10_000)
    second = await ledger.acquire("t", "k", holder="two", value='"b"', ttl=None)
    assert (first.value, first.expires_at) == ('"a"', None)
    assert second == first
    await ledger.drop_notes("t", ["k"])
    assert (await ledger.acquire("t", "k", holder="two", value='"b"', ttl=None)).value == '"b"'


async def test_a_note_of_a_clock_that_went_back_is_void(book: Book) -> None:
    """What lapses an hour later than its whole term from now does not stand; a little ahead is no reason."""
    ledger, minute = book.ledger, timedelta(minutes=1)
    now = book.clock.now()
    for ahead, stands in ((timedelta(minutes=59), True), (timedelta(days=365), False)):
        book.clock.set(now + ahead)
        await ledger.acquire("lease", "sweep", holder="one", value='"a"', ttl=minute)
        book.clock.set(now)
        assert (await holder(ledger) is not None) is stands
        found = await ledger.acquire("lease", "sweep", holder="two", value='"b"', ttl=minute)
        assert found.holder == ("one" if stands else "two")
        await ledger.drop_notes("lease")
