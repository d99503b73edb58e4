"""Notes beside the log: an erasure takes those that name what it erased, and no others."""

from __future__ import annotations

import json

import pytest
from fix_ledger import Book

from custody_sync.ledger.drafts import Draft
from custody_sync.ledger.storage import Note
from custody_sync.model import Erasure, Outcome


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
