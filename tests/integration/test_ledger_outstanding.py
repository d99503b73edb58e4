"""What had to go and what is still to do, asked of every storage."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from fix_ledger import Book

from custody_sync.errors import InvalidInput
from custody_sync.ledger.outstanding import About
from custody_sync.model import Outcome, PlacementState

DAY = timedelta(days=1)


async def _facts(book: Book, *, limit: int = 500, **about: Any) -> list[str]:
    """Return the facts that had to go, over all pages, in order."""
    found: list[str] = []
    after: int | None = None
    while True:
        page = await book.ledger.removed_facts(About(**about), limit=limit, after=after)
        found += [removed.fact_id for removed in page]
        after = page.next
        if after is None:
            return found


async def _retracted(book: Book, subject: str, *stores: str, **more: Any) -> str:
    fact_id = await book.add(subject, held=[(store, f"{subject}-{store}") for store in stores], **more)
    await book.append(book.retract(fact_id))
    return fact_id


@pytest.mark.parametrize("limit", [1, 2, 500])
async def test_a_removed_fact_comes_once_with_all_its_placements(book: Book, limit: int) -> None:
    """However small the pages are and however many entries of it had to go."""
    first = await _retracted(book, "a", "s", "t")
    await book.add("kept", held=[("s", "k")])
    second = await _retracted(book, "b", "s")
    await book.append(book.remove(first, "s", "a-s"))
    await book.append(book.repair("orphan", "s", "lost"))
    assert await _facts(book, limit=limit) == [first, second, "orphan"]
    (removed,) = await book.ledger.removed_facts(limit=1)
    assert [(row.store, row.state) for row in removed.placements] == [
        ("s", PlacementState.GONE),
        ("t", PlacementState.DUE),
    ]
    count = await book.ledger.count_removed()
    assert (count.facts, count.stores) == (3, ("s", "t"))


async def test_only_a_space_or_what_begins_like_it(book: Book) -> None:
    """A repaired id and a fact whose identity was erased are in no space."""
    mine = await _retracted(book, "a", "s", space="user:1")
    other = await _retracted(book, "b", "s", space="user:12")
    gone = await _retracted(book, "c", "s", space="user:1")
    await book.append(book.forget(gone, identity=True))
    await book.append(book.repair("orphan", "s", "lost"))
    assert await _facts(book, space="user:1") == [mine]
    assert await _facts(book, space="user:1*") == [mine, other]
    assert await _facts(book, space="nobody") == []
    assert (await book.ledger.count_removed(About(space="user:1*"))).facts == 2


async def test_only_what_was_recorded_since(book: Book) -> None:
    """A removal counts from its retraction, its successor, or the last that was recorded of it."""
    old = await _retracted(book, "a", "s")
    covered = await book.add("b", held=[("s", "b1")])
    looked_at = await _retracted(book, "c", "s")
    since = book.later(days=1)
    await book.add("b", held=[("s", "b2")], supersedes=covered)
    await book.append(book.remove(looked_at, "s", "c-s"))
    assert await _facts(book, since=since) == [covered, looked_at]
    assert await _facts(book, since=since + DAY) == []
    assert set(await _facts(book, since=since - DAY * 2)) == {old, covered, looked_at}
    assert (await book.ledger.count_removed(About(since=since))).facts == 2


async def test_what_cannot_be_asked(book: Book) -> None:
    """A page of no size, an odd place and an instant without an offset are refused by name."""
    for bad in ({"limit": 0}, {"limit": 10_001}, {"after": -1}):
        with pytest.raises(InvalidInput):
            await book.ledger.removed_facts(**bad)  # type: ignore[arg-type]  # that is the point
    with pytest.raises(InvalidInput, match="since"):
        await book.ledger.count_removed(About(since=book.clock.now().replace(tzinfo=None)))


async def test_the_backlog_counts_by_store_and_outcome(book: Book) -> None:
    """What is verified is not in it any more; the oldest says when it was ordered, not when it was placed."""
    assert await book.ledger.backlog() == []
    first = await book.add("a", held=[("s", "a1"), ("t", "a2")])
    second = await book.add("b", held=[("s", "b1")])
    ordered = book.later(days=1)
    await book.append(book.retract(first))
    book.later(days=1)
    await book.append(book.retract(second))
    await book.append(book.remove(second, "s", "b1", Outcome.FAILED))
    await book.append(book.remove(first, "t", "a2"))
    (store,) = await book.ledger.backlog()
    assert (store.store, store.by_outcome) == ("s", {"failed": 1, "untried": 1})
    assert store.oldest is not None
    assert timedelta(0) <= store.oldest - ordered < timedelta(minutes=1)


async def test_the_backlog_counts_what_is_owed(book: Book) -> None:
    """A fact that is believed again is owed to the store it was taken from."""
    first = await book.add("a", held=[("s", "a1")])
    second = await book.add("a", held=[("s", "a2")], supersedes=first)
    await book.append(book.remove(first, "s", "a1"))
    await book.append(book.retract(second))
    (store,) = await book.ledger.backlog()
    assert (store.owed, store.by_outcome) == (1, {"untried": 1})


async def test_an_entry_that_a_repair_recorded_waits_since_then(book: Book) -> None:
    """An orphan has no fact; it is due since its repair."""
    recorded = book.later(days=1)
    await book.append(book.repair("orphan", "s", "lost"))
    (store,) = await book.ledger.backlog()
    assert store.oldest is not None
    assert timedelta(0) <= store.oldest - recorded < timedelta(minutes=1)


async def test_an_entry_whose_fact_has_ended_is_in_the_backlog(book: Book) -> None:
    """Nobody ordered it out, yet it is to go: it counts as untried since its end, beside what was ordered."""
    ends = book.clock.now() + timedelta(days=1)
    await book.add("a", held=[("s", "a1"), ("t", "a2")], valid_to=ends)
    gone = await book.add("b", held=[("s", "b1")])
    await book.append(book.retract(gone))
    assert [(store.store, store.by_outcome) for store in await book.ledger.backlog()] == [
        ("s", {"untried": 1})
    ]
    book.later(days=2)
    found = {store.store: store for store in await book.ledger.backlog()}
    assert {name: store.by_outcome for name, store in found.items()} == {
        "s": {"untried": 2},
        "t": {"untried": 1},
    }
    assert found["t"].oldest == ends
