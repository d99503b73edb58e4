"""What is believed now is read from what nothing covers, and is what the whole log says it is."""

from __future__ import annotations

import sqlite3
from datetime import timedelta
from typing import Any

import pytest
from fix_ledger import Book, day

from custody_sync.ledger import sqlite_asof
from custody_sync.model import Provenance


async def test_a_correction_that_begins_later_leaves_what_it_covers_believed_until_then(book: Book) -> None:
    """Also where an earlier correction was retracted since, so that nothing marks the first one any more."""
    first = await book.add(value="first", valid_from=day(1))
    middle = await book.add(value="middle", valid_from=day(1), supersedes=first)
    await book.add(value="last", valid_from=day(20), supersedes=middle)
    assert await book.values() == ["middle"]
    await book.append(book.retract(middle))
    assert await book.values() == ["first"]
    assert await book.values(subject="acct:42", space="org") == ["first"]
    assert await book.values(valid_at=day(20)) == ["last"]
    assert await book.values(valid_at=day(19)) == ["first"]
    book.at(day(20))
    assert await book.values() == ["last"]


async def test_pages_go_on_in_order_over_facts_claims_and_what_is_not_covered_yet(book: Book) -> None:
    """They come from different indexes, and nobody can tell."""
    covered = await book.add("acct:1", value="covered later")
    await book.add("acct:2", value="claimed", provenance=Provenance.CLAIMED)
    await book.add("acct:3", value="plain")
    await book.add("acct:1", value="not yet", valid_from=day(25), supersedes=covered)
    gone = await book.add("acct:4", value="retracted")
    await book.append(book.retract(gone))
    await book.add("acct:5", value="another")
    for claimed in (False, True):
        everything = ["covered later", *(["claimed"] if claimed else []), "plain", "another"]
        question: dict[str, Any] = {"include_claimed": claimed, "limit": 1}
        found, after = [], None
        while True:
            page = await book.ledger.as_of(after=after, **question)
            found += [fact.value for fact in page]
            after = page.next
            if after is None:
                break
        assert found == everything


async def test_now_and_the_same_moment_named_have_the_same_answer(book: Book) -> None:
    """The head is the present until something is appended after it."""
    old = await book.add(value="old")
    head = await book.ledger.head()
    assert head.tx_time is not None
    assert await book.values(tx_at=head.tx_time) == ["old"]
    book.later(hours=1)
    await book.add(value="new", supersedes=old)
    assert await book.values(tx_at=head.tx_time) == ["old"]
    assert await book.values() == ["new"]
    assert await book.values(tx_at=book.clock.now() + timedelta(days=1)) == ["new"]


@pytest.mark.storages("sqlite")
@pytest.mark.parametrize(
    ("space", "index"), [(False, "facts_live (seq>?)"), (True, "facts_live_space (space=? AND rowid>?)")]
)
async def test_a_page_of_now_passes_over_nothing_that_is_not_believed(
    book: Book, space: bool, index: str
) -> None:
    """A page costs a page, however much was superseded before it."""
    await book.add()
    query = sqlite_asof._select(sqlite_asof._LIVE, False, space, False, False)
    parameters = {"valid_at": "", "after": 0, "space": "org", "limit": 1}
    conn = sqlite3.connect(book.path)
    plan = [row[3] for row in conn.execute(f"EXPLAIN QUERY PLAN {query}", parameters)]
    conn.close()
    assert plan[0] == f"SEARCH f USING INDEX {index}"
    assert not any("TEMP B-TREE" in step for step in plan)
