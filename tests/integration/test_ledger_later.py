"""Facts that are valid from later: what they cover until they begin, and what is owed from then on."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from fix_ledger import Book, answers_of

from custody_sync.errors import InvalidInput, LedgerError
from custody_sync.ledger import Assert, Ledger
from custody_sync.ledger.storage import Waiting
from custody_sync.model import PlacementState, Provenance
from custody_sync.testing import testing_runtime

HELD, KEPT, DUE, GONE = PlacementState.HELD, PlacementState.KEPT, PlacementState.DUE, PlacementState.GONE
STORES = ("memories", "agent")
TICK = timedelta(microseconds=1)


def later(book: Book, *what: Any, hours: float = 0, **more: Any) -> Assert:
    """Draft a fact that begins in so many hours, and is owed to both stores then."""
    kept = more.pop("kept", ())
    draft = book.state(*what, valid_from=book.clock.now() + timedelta(hours=hours), **more)
    return replace(draft, owes=STORES, kept=kept)


async def add_later(book: Book, *what: Any, **more: Any) -> str:
    """Assert a fact that begins later and return its id."""
    return (await book.append(later(book, *what, **more))).fact_id


async def states(book: Book, fact_id: str) -> dict[str, PlacementState]:
    """Return where each entry of a fact is in its life."""
    return {p.external_id: p.state for p in await book.ledger.placements(fact_id)}


async def ended(book: Book) -> list[str]:
    """Return what has ended in either store."""
    return [p.external_id for store in STORES for p in await book.ledger.ended(store)]


async def waiting(book: Book) -> list[str]:
    """Return what waits for its beginning."""
    return [row.fact_id for row in await book.ledger.waiting() if row.store == "memories"]


async def test_what_begins_later_is_owed_from_then_on(book: Book) -> None:
    """Until then it waits; it is believed and due at the same instant, and no longer owed once placed."""
    event = await book.append(later(book, hours=1))
    fact_id, due_at = event.fact_id, book.clock.now() + timedelta(hours=1)
    assert event.data["owes"] == ["memories", "agent"]
    assert await book.ledger.waiting() == [
        Waiting(fact_id, "agent", due_at), Waiting(fact_id, "memories", due_at),
    ]  # fmt: skip
    assert await book.ledger.owed() == []
    assert await book.refused(book.place(fact_id, [("memories", "m1")])) == "not_believed"
    book.at(due_at - TICK)
    assert await book.ledger.owed() == []
    book.at(due_at)
    assert await book.ledger.owed(fact_id) == [(fact_id, "agent"), (fact_id, "memories")]
    assert await book.ledger.waiting() == []
    assert [fact.fact_id for fact in await book.ledger.as_of()] == [fact_id]
    await book.append(book.place(fact_id, [("memories", "m1")]))
    assert await book.ledger.owed() == [(fact_id, "agent")]


async def test_a_predecessor_stays_until_its_successor_begins(book: Book) -> None:
    """It is believed and current, may be placed again, and has ended at the instant the other begins."""
    old = await book.add(held=[("memories", "m1"), ("agent", "a1")])
    begins = book.clock.now() + timedelta(hours=1)
    await add_later(book, hours=1, supersedes=old)
    assert await states(book, old) == {"m1": HELD, "a1": HELD}
    assert await book.refused(book.remove(old, "memories", "m1")) == "still_believed"
    assert await ended(book) == []
    await book.append(replace(book.place(old, [("memories", "m2")]), replaces=(("memories", "m1"),)))
    book.at(begins - TICK)
    assert await book.ledger.unaccounted("memories", {"m2": old}) == []
    book.at(begins)
    assert await ended(book) == ["m2", "a1"]
    assert not (await book.ledger.compare("memories", {"m2": old}))[0].current
    await book.append(book.remove(old, "memories", "m2"))
    assert await states(book, old) == {"m1": DUE, "m2": GONE, "a1": HELD}
    assert await book.refused(book.place(old, [("memories", "m3")])) == "not_believed"


async def test_its_own_end_may_come_first(book: Book) -> None:
    """What is over before its successor begins is over; in between nobody is believed."""
    old = await book.add(held=[("memories", "m1")], valid_to=book.clock.now() + timedelta(hours=1))
    await add_later(book, hours=2, supersedes=old)
    book.later(hours=1)
    assert await ended(book) == ["m1"]
    assert await book.ledger.as_of() == []


async def test_a_store_that_keeps_what_is_superseded_keeps_it(book: Book) -> None:
    """Its policy says so when the successor is written; another store lets it go when that begins."""
    old = await book.add(held=[("memories", "m1"), ("agent", "a1")])
    await add_later(book, hours=1, supersedes=old, kept=("agent",))
    book.later(hours=1)
    assert await ended(book) == ["m1"]
    assert await states(book, old) == {"m1": HELD, "a1": HELD}


async def test_a_retracted_successor_covers_nothing(book: Book) -> None:
    """Before it begins nothing has changed; afterwards what was let go is owed again."""
    old = await book.add(held=[("memories", "m1"), ("agent", "a1")])
    first = await add_later(book, hours=1, supersedes=old)
    await book.append(book.retract(first))
    assert await book.ledger.waiting() == []
    book.later(hours=2)
    assert await ended(book) == []
    second = await add_later(book, hours=1, supersedes=old)
    book.later(hours=1)
    await book.append(book.remove(old, "memories", "m1"))
    await book.append(book.place(second, [("memories", "m9")]))
    await book.append(book.retract(second))
    assert await states(book, old) == {"m1": GONE, "a1": HELD}
    assert await states(book, second) == {"m9": DUE}
    assert (await ended(book), await book.ledger.owed()) == ([], [(old, "memories")])


async def test_retracting_the_middle_moves_an_end(book: Book) -> None:
    """What the middle covered is believed until the one behind it begins: now or later."""
    old = await book.add("x", held=[("memories", "m1")])
    middle = await add_later(book, "x", hours=1, supersedes=old)
    last = await add_later(book, "x", hours=2, supersedes=middle)
    await book.append(book.retract(middle))
    book.later(hours=1)
    assert (await ended(book), await waiting(book)) == ([], [last])
    book.later(hours=1)
    assert await ended(book) == ["m1"]
    # Another chain, whose middle has begun already.
    old = await book.add("y", held=[("memories", "n1")])
    middle = await book.add("y", held=[("memories", "n2")], supersedes=old)
    await add_later(book, "y", hours=2, supersedes=middle)
    await book.append(book.remove(old, "memories", "n1"))
    await book.append(book.retract(middle))
    assert (old, "memories") in await book.ledger.owed()
    await book.append(book.place(old, [("memories", "n3")]))
    book.later(hours=2)
    assert "n3" in await ended(book)


async def test_a_chain_of_later_facts_follows_on(book: Book) -> None:
    """Each ends when the next begins; of two that begin at once the second takes the other's place."""
    old = await book.add(held=[("memories", "m1")])
    first = await add_later(book, hours=1, supersedes=old)
    second = await add_later(book, hours=2, supersedes=first)
    third = await add_later(book, hours=2, supersedes=second)
    assert await waiting(book) == [first, third]
    book.later(hours=1)
    assert await book.ledger.owed() == [(first, "agent"), (first, "memories")]
    await book.append(book.place(first, [("memories", "m2")]))
    await book.append(book.retract(third))
    assert await waiting(book) == [second]
    book.later(hours=1)
    assert await ended(book) == ["m1", "m2"]
    assert await book.ledger.owed() == [(second, "agent"), (second, "memories")]


async def test_what_was_never_placed_is_owed_when_it_comes_back(book: Book) -> None:
    """It was due, no store took it, and another fact took its place meanwhile."""
    first = await add_later(book, hours=1)
    book.later(hours=2)
    second = await book.add(supersedes=first, held=[("memories", "m1")])
    assert await book.ledger.owed() == []
    await book.append(book.retract(second))
    assert await book.ledger.owed() == [(first, "agent"), (first, "memories")]


async def test_an_erased_successor_still_covers(book: Book) -> None:
    """An erased value never brings an older one back; it is placed nowhere itself."""
    old = await book.add(held=[("memories", "m1")])
    newer = await add_later(book, hours=1, supersedes=old)
    await book.append(book.forget(newer))
    assert await book.ledger.waiting() == []
    assert await states(book, old) == {"m1": HELD}
    book.later(hours=1)
    assert (await ended(book), await book.ledger.owed(), await book.ledger.as_of()) == (["m1"], [], [])


async def test_a_claim_covers_from_its_beginning_once_it_is_confirmed(book: Book) -> None:
    """Nothing is owed for a claim, and everything for what was confirmed."""
    old = await book.add(held=[("memories", "m1")])
    begins = book.clock.now() + timedelta(hours=1)
    claim = await book.add(supersedes=old, valid_from=begins, provenance=Provenance.CLAIMED)
    with pytest.raises(InvalidInput, match="confirms a claim"):
        await book.append(later(book, provenance=Provenance.CLAIMED))
    assert await book.ledger.waiting() == []
    await book.append(replace(book.confirm(claim), owes=STORES))
    assert await waiting(book) == [claim]
    assert await states(book, old) == {"m1": HELD}
    book.at(begins)
    assert await ended(book) == ["m1"]
    assert len(await book.ledger.owed(claim)) == 2


async def test_what_begins_in_a_moment_was_placed_at_once(book: Book) -> None:
    """Clocks differ: so near a beginning is none that anybody waits for, unless stores are owed it."""
    for minutes, owes, state in ((4, (), DUE), (4.1, (), HELD), (1, STORES, HELD), (-1, STORES, DUE)):
        old = await book.add(f"s{minutes}", held=[("memories", f"m{minutes}")], valid_from=book.clock.now())
        book.later(hours=1)
        draft = later(book, f"s{minutes}", hours=minutes / 60, supersedes=old)
        await book.append(replace(draft, owes=owes))
        assert await states(book, old) == {f"m{minutes}": state}


async def test_a_store_is_owed_only_what_it_does_not_hold(book: Book) -> None:
    """Both at once would place a fact there twice."""
    draft = replace(book.state(held=[("memories", "m1")]), owes=("memories",))
    with pytest.raises(InvalidInput, match="holds the fact already"):
        await book.append(draft)
    for bad in (("",), ("x\x00",)):
        with pytest.raises(InvalidInput):
            await book.append(replace(draft, owes=bad))


@pytest.mark.parametrize("limit", [1, 2, 50])
async def test_waiting_pages_by_fact(book: Book, limit: int) -> None:
    """A page has all stores of each of its facts, in the order in which they were written."""
    ids = [await add_later(book, f"s{i}", hours=5 - i) for i in range(4)]
    await book.append(book.retract(ids.pop(1)))
    found: list[Waiting] = []
    after = None
    while True:
        page = await book.ledger.waiting(limit=limit, after=after)
        assert len(page) <= 2 * limit
        found += page
        after = page.next
        if after is None:
            break
    assert [(row.fact_id, row.store) for row in found] == [(i, s) for i in ids for s in ("agent", "memories")]


async def test_the_backlog_counts_what_waits(book: Book) -> None:
    """By store, with when the first of it is due."""
    now = book.clock.now()
    await add_later(book, "a", hours=2)
    await add_later(book, "b", hours=1)
    (agent, _) = await book.ledger.backlog()
    assert (agent.owed, agent.waiting, agent.next_waiting) == (0, 2, now + timedelta(hours=1))
    book.later(hours=1)
    (agent, _) = await book.ledger.backlog()
    assert (agent.owed, agent.waiting, agent.next_waiting) == (1, 1, now + timedelta(hours=2))
    book.later(hours=1)
    (agent, _) = await book.ledger.backlog()
    assert (agent.owed, agent.waiting, agent.next_waiting) == (2, 0, None)


async def test_the_past_does_not_change_when_what_was_to_come_has_come(book: Book) -> None:
    """I8: what was believed of any instant, as it was known then, stays what it was."""
    old = await book.add("x", value="old")
    known = (await book.ledger.head()).tx_time
    book.later(minutes=1)
    newer = await book.append(later(book, "x", hours=1, supersedes=old, value="new"))
    book.later(hours=2)
    await book.add("y")
    begins = newer.tx_time + timedelta(hours=1)
    for tx_at, before, since in ((known, "old", "old"), (newer.tx_time, "old", "new")):
        asked = {"subject": "x", "tx_at": tx_at}
        assert await book.values(valid_at=begins - TICK, **asked) == [before]
        assert await book.values(valid_at=begins, **asked) == [since]


async def tell(book: Book) -> None:
    """Tell a story in which everything begins when it is written."""
    old = await book.add("x", held=[("memories", "m1"), ("agent", "a1")])
    newer = await book.add("x", held=[("memories", "m2")], supersedes=old)
    await book.append(book.remove(old, "memories", "m1"))
    await book.append(book.retract(newer))
    third = await book.add("y", held=[("memories", "m3")])
    fourth = await book.add("y", supersedes=third)
    fifth = await book.add("y", supersedes=fourth)
    await book.append(book.retract(fourth))
    await book.add("y", supersedes=fifth, provenance=Provenance.CLAIMED)
    await book.append(book.forget(fifth))


@pytest.mark.storages("sqlite", "postgres")
async def test_i7_a_ledger_in_which_everything_began_at_once_is_upgraded(book: Book, ledger_url: str) -> None:
    """It is read as it is where it can be, upgraded when it is opened for writing, and verifies in full."""
    await tell(book)
    wanted, backlog = await answers_of(book.ledger), await book.ledger.backlog()
    drops = ["ALTER TABLE {}facts DROP COLUMN covered_from", "ALTER TABLE {}owed DROP COLUMN due_at"]
    if ledger_url.startswith("sqlite"):
        await book.ledger.close()
        with closing(sqlite3.connect(book.path)) as conn:
            for drop in drops:
                conn.execute(drop.format(""))
            conn.execute("PRAGMA user_version = 3")
        async with await Ledger.open(
            ledger_url, read_only=True, runtime=testing_runtime(clock=book.clock)
        ) as old:
            assert await answers_of(old) == wanted
            assert await old.backlog() == backlog
    else:
        schema = ledger_url.rpartition("schema=")[2]
        async with book.ledger._storage._pool.connection() as server:
            for drop in drops:
                await server.execute(drop.format(f"{schema}.").encode())
            await server.execute(f"UPDATE {schema}.settings SET value = '2' WHERE name = 'version'".encode())
        await book.ledger.close()
        with pytest.raises(LedgerError, match="older version"):
            await Ledger.open(ledger_url, read_only=True)
    book.ledger = await Ledger.open(ledger_url, runtime=testing_runtime(clock=book.clock))
    assert await answers_of(book.ledger) == wanted
    assert (await book.ledger.verify(await book.ledger.head())).passed


@pytest.mark.parametrize("retracted", range(6))
async def test_the_neighbours_of_a_link_deep_in_a_chain_are_found(book: Book, retracted: int) -> None:
    """Whatever is retracted of a long chain, the one before it ends when the one behind it begins."""
    chain = [await book.add(held=[("memories", "m0")])]
    for hours in range(1, 8):
        chain.append(await add_later(book, hours=hours, supersedes=chain[-1]))
    for gone in (retracted + 1, retracted + 2):
        await book.append(book.retract(chain[gone]))
    left = [i for i in range(8) if i not in (retracted + 1, retracted + 2)]
    assert await waiting(book) == [chain[i] for i in left[1:]]
    for hour in range(8):
        (believed,) = await book.ledger.as_of()
        assert believed.fact_id == chain[max(i for i in left if i <= hour)]
        assert (await ended(book) == ["m0"]) is (hour >= left[1])
        book.later(hours=1)
