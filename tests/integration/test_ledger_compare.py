"""A store's listing compared with the ledger, and what of the ledger a store holds or lacks."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from fix_ledger import Book

from custody_sync.errors import InvalidInput
from custody_sync.ledger.storage import Compared, Held
from custody_sync.model import PlacementState, Provenance, Standing

HELD, KEPT, DUE, GONE = PlacementState.HELD, PlacementState.KEPT, PlacementState.DUE, PlacementState.GONE
ASSERTED, REPAIRED, UNKNOWN = Standing.ASSERTED, Standing.REPAIRED, Standing.UNKNOWN


async def compared(book: Book, listed: dict[str, str], keep: bool = False) -> dict[str, Compared]:
    """Compare a listing of `memories`, whose answers come in its order."""
    found = await book.ledger.compare("memories", listed, keep)
    assert [row.external_id for row in found] == list(listed)
    return {row.external_id: row for row in found}


async def places(book: Book, store: str = "memories") -> dict[str, int]:
    """Return where in the log a store's placements are."""
    return {held.placement.external_id: held.place for held in await book.ledger.held(store)}


async def test_a_current_placement_comes_with_its_fact(book: Book) -> None:
    """Its text and its label are what the store's entry is held against."""
    fact_id = await book.add("acct:7", "plan", {"a": [1, "é"]}, held=[("memories", "m1")])
    found = (await compared(book, {"m1": fact_id}))["m1"]
    place = (await places(book))["m1"]
    assert found == Compared("m1", place, fact_id, HELD, ASSERTED, True, await book.ledger.get(fact_id))


async def test_an_entry_without_our_label_is_current_by_its_id_alone(book: Book) -> None:
    """Whose label was stripped is told from whoever else's by the external id that is on record."""
    fact_id = await book.add(held=[("memories", "m1")])
    gone = await book.add(held=[("memories", "m2")])
    await book.append(book.retract(gone))
    found = await compared(book, {"m1": "", "m2": "", "m3": ""})
    assert found["m1"].fact == await book.ledger.get(fact_id)
    assert (found["m1"].owner, found["m1"].current, found["m1"].standing) == (fact_id, True, UNKNOWN)
    assert (found["m2"].owner, found["m2"].state, found["m2"].current, found["m2"].fact) == (
        gone, DUE, False, None,
    )  # fmt: skip
    assert found["m3"] == Compared("m3", None, None, None, UNKNOWN, False, None)


async def test_what_is_not_current_says_why(book: Book) -> None:
    """Another fact's entry, a stray, an orphan and an id of nobody are told apart."""
    mine, other = await book.add(held=[("memories", "m1")]), await book.add()
    await book.append(book.repair("orphan", "memories", "m2"))
    found = await compared(book, {"m1": other, "m2": "orphan", "m3": mine, "m4": "nobody"})
    told = {key: (row.owner, row.state, row.standing) for key, row in found.items()}
    assert told == {
        "m1": (mine, HELD, ASSERTED),
        "m2": ("orphan", DUE, REPAIRED),
        "m3": (None, None, ASSERTED),
        "m4": (None, None, UNKNOWN),
    }
    assert not any(row.current or row.fact for row in found.values())


async def test_the_same_entries_are_current_as_are_accounted_for(book: Book) -> None:
    """Kept ones count where the policy says so, and what has ended or is due does not."""
    old = await book.add(held=[("memories", "m1")])
    newer = book.state(supersedes=old, held=[("memories", "m2")], valid_to=book.clock.now() + timedelta(1))
    await book.append(replace(newer, kept=("memories",)))
    listed = {"m1": old, "m2": newer.fact_id}
    for keep, days, current in ((False, 0, {"m2"}), (True, 0, {"m1", "m2"}), (True, 2, {"m1"})):
        book.later(days=days)
        found = await compared(book, listed, keep)
        assert {key for key, row in found.items() if row.current} == current
        loose = await book.ledger.unaccounted("memories", listed, keep=keep)
        assert {row.external_id for row in loose} == listed.keys() - current


async def test_an_entry_on_record_for_several_facts_is_judged_by_the_one_that_counts(book: Book) -> None:
    """What was seen gone of one fact may stand for another one since."""
    first = await book.add(held=[("memories", "m1")])
    await book.append(book.retract(first))
    await book.append(book.remove(first, "memories", "m1"))
    await book.append(book.repair("orphan", "memories", "m1"))
    found = await compared(book, {"m1": first})
    assert (found["m1"].owner, found["m1"].state, found["m1"].standing) == ("orphan", DUE, ASSERTED)
    await book.append(book.remove("orphan", "memories", "m1"))
    assert (await compared(book, {"m1": first}))["m1"].owner == first
    assert (await compared(book, {"m1": ""}))["m1"].owner == "orphan"


async def test_a_listing_may_hold_what_no_ledger_can(book: Book) -> None:
    """Such ids are nobody's, wherever they stand in the listing, and hide none of the others."""
    fact_id = await book.add(held=[("memories", "m1"), ("memories", "é")])
    listed = {"x\x00": fact_id, "m1": fact_id, "\ud800": "", "é": "f\ud800", "y\x00": "z\x00", "m2": "\x00"}
    found = await compared(book, listed)
    assert [(row.standing, row.current) for row in found.values()] == [
        (ASSERTED, False), (ASSERTED, True), (UNKNOWN, False), (UNKNOWN, False), (UNKNOWN, False),
        (UNKNOWN, False),
    ]  # fmt: skip
    assert found["é"].owner == fact_id
    assert await book.ledger.compare("memories", {}, keep=False) == []


async def test_a_forgotten_fact_is_current_nowhere(book: Book) -> None:
    """What it said is compared with nothing any more."""
    fact_id = await book.add(held=[("memories", "m1")])
    await book.append(book.forget(fact_id))
    found = (await compared(book, {"m1": fact_id}, keep=True))["m1"]
    assert (found.state, found.current, found.fact) == (DUE, False, None)


@pytest.mark.parametrize("limit", [1, 2, 50])
async def test_held_pages_through_a_stores_current_placements(book: Book, limit: int) -> None:
    """In the order of the log; what has to go, has ended or is another store's is left out."""
    ids = [await book.add(held=[("memories", f"m{i}"), ("agent", f"a{i}")]) for i in range(3)]
    ended = await book.add(held=[("memories", "m9")], valid_to=book.clock.now() + timedelta(hours=1))
    assert (await book.ledger.held("memories", limit=10))[-1].placement.fact_id == ended
    await book.append(book.retract(ids[1]))
    await book.append(replace(book.state(supersedes=ids[2], held=[("memories", "m4")]), kept=("memories",)))
    book.later(hours=2)
    found: list[Held] = []
    after = None
    while True:
        page = await book.ledger.held("memories", limit=limit, after=after)
        found += page
        after = page.next
        if after is None:
            break
    told = [(held.placement.external_id, held.placement.state) for held in found]
    assert told == [("m0", HELD), ("m2", KEPT), ("m4", HELD)]
    assert [held.place for held in found] == sorted(held.place for held in found)
    placements = [p for i in (*ids, found[-1].placement.fact_id) for p in await book.ledger.placements(i)]
    assert all(held.placement in placements for held in found)


@pytest.mark.parametrize("limit", [1, 2, 50])
async def test_lacking_pages_through_what_a_store_ought_to_hold(book: Book, limit: int) -> None:
    """Believed now, confirmed or attested, and on record nowhere in that store."""
    missing = [await book.add(held=[("agent", f"a{i}")]) for i in range(3)]
    await book.add(held=[("memories", "m1")])
    await book.add(provenance=Provenance.CLAIMED)
    confirmed = await book.add(provenance=Provenance.CLAIMED)
    await book.append(book.confirm(confirmed))
    await book.append(book.retract(missing.pop(1)))
    await book.append(book.forget(missing.pop(0)))
    await book.add(valid_to=book.clock.now() + timedelta(minutes=1))
    old = await book.add()
    newer = await book.add(supersedes=old)
    gone = await book.add(held=[("memories", "m2")], subject="acct:9")
    last = await book.add(supersedes=gone, held=[("memories", "m3")], subject="acct:9")
    await book.append(book.retract(last))
    book.later(minutes=2)
    found: list[str] = []
    after = None
    while True:
        page = await book.ledger.lacking("memories", limit=limit, after=after)
        found += page
        after = page.next
        if after is None:
            break
    assert found == [*missing, confirmed, newer, gone]
    believed = {fact.fact_id for fact in await book.ledger.as_of(limit=100)}
    assert set(found) == believed - {h.placement.fact_id for h in await book.ledger.held("memories")}


async def test_a_fact_that_is_believed_until_its_correction_begins_is_lacking_as_well(book: Book) -> None:
    """It is covered by nothing yet, so a store that is filled up needs it."""
    old = await book.add(valid_from=book.clock.now())
    newer = await book.add(supersedes=old, valid_from=book.clock.now() + timedelta(days=1))
    assert await book.ledger.lacking("memories") == [old]
    book.later(days=2)
    assert await book.ledger.lacking("memories") == [newer]


async def test_bad_questions_are_refused(book: Book) -> None:
    """Names, limits and ids are checked before anything is asked."""
    for call in (
        lambda: book.ledger.compare("", {}),
        lambda: book.ledger.compare("memories", {"x": None}),  # type: ignore[dict-item]
        lambda: book.ledger.held("memories", limit=0),
        lambda: book.ledger.lacking("memories", after=-1),
        lambda: book.ledger.lacking("x\x00"),
    ):
        with pytest.raises(InvalidInput):
            await call()
