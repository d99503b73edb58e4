"""What a random story once found: records of entries, groups that erase, and clocks that go back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fix_ledger import START, Book, open_book, open_group_book

from custody_sync.ledger import Ledger
from custody_sync.model import Event, Outcome, PlacementState, Provenance
from custody_sync.testing import testing_runtime

X1, X2, A1 = ("memories", "x1"), ("memories", "x2"), ("agent", "a1")


async def test_what_stands_for_erased_entries_keeps_their_place(book: Book) -> None:
    """Entries come in the order of the log, before and after an erasure, here and in a copy."""
    first, second = await book.add(held=[X1, A1]), await book.add(held=[X2])
    for fact_id in (first, second):
        await book.append(book.retract(fact_id))
    await book.append(book.forget(first, identity=True))
    for entry in (X1, A1):
        await book.append(book.remove(first, *entry))
    removed = [(p.store, p.external_id) for p in await book.ledger.removed()]
    assert removed == [("memories", "erased~1"), ("agent", "erased~1"), X2]


async def test_each_fact_keeps_its_own_record_of_an_entry(book: Book) -> None:
    """An external id that was seen gone and is used again by another fact is on record for both."""
    first = await book.add(held=[X1, A1])
    await book.append(book.retract(first))
    await book.append(book.remove(first, *X1))
    await book.append(book.repair("orphan", *X1))
    [mine] = [p for p in await book.ledger.placements(first) if p.store == "memories"]
    [theirs] = await book.ledger.placements("orphan")
    assert (mine.state, theirs.state) == (PlacementState.GONE, PlacementState.DUE)
    # Asked about the entry, the ledger names the one that is not gone.
    [found] = await book.ledger.unaccounted("memories", {"x1": first})
    assert (found.state, found.owner) == (PlacementState.DUE, "orphan")
    assert await book.refused(book.remove(first, *X1)) == "still_believed"
    await book.append(book.remove("orphan", *X1))
    await book.append(book.forget(first, identity=True))
    await book.append(book.remove(first, *A1))
    assert [p.external_id for p in await book.ledger.placements(first)] == ["erased~1"] * 2
    assert [p.external_id for p in await book.ledger.placements("orphan")] == ["x1"]


async def test_an_event_id_with_a_reason_it_never_had_is_another_event(book: Book) -> None:
    """The commitments of an event say which sections it had; what was erased cannot be compared any more."""
    fact_id = await book.add()
    draft = book.hold(fact_id)
    await book.append(draft)
    assert await book.refused(replace(draft, reason="why")) == "duplicate_event"
    stated = book.state(value="secret")
    event = await book.append(stated)
    await book.append(book.forget(event.fact_id))
    other = replace(stated, fact=replace(stated.fact, value="guess", text="guess"))
    assert (await book.append(other)).seq == event.seq
    assert await book.refused(replace(other, placements=book.held(event.fact_id, [X1]))) == "duplicate_event"
    [again, _] = await book.ledger.history(event.fact_id)
    assert (again.erased, set(again.sealed)) == (("content",), {"identity"})


async def test_a_group_sees_what_its_earlier_drafts_erased(tmp_path: Path) -> None:
    """Erased ids are free at once, an erased value cannot be compared, and a later entry keeps its id."""
    book = await open_group_book(tmp_path / "l.db")
    draft = book.state(value="secret", held=[X1])
    fact_id = draft.fact_id
    await book.append(draft)
    guess = replace(draft, fact=replace(draft.fact, value="guess", text="guess"))
    found = await book.group(
        [
            book.forget(fact_id, identity=True),
            guess,
            book.remove(fact_id, *X1),
            book.remove(fact_id, *X2, outcome=Outcome.STARTED),
            book.state(held=[X1]),
        ]
    )
    assert [event.seq for event in found if isinstance(event, Event)] == [2, 1, 3, 4, 5]
    log = await book.export()
    assert ["refs" in row["sealed"] for row in log] == [False, False, False, True, True]
    assert [p.external_id for p in await book.ledger.placements(fact_id)] == ["erased~1", "x2"]
    await book.ledger.close()


async def test_what_has_ended_does_not_go_on_when_the_clock_goes_back(book: Book) -> None:
    """The later of clock and head says what is over, as it does for what is believed."""
    old = await book.add(held=[X1], valid_to=book.clock.now().replace(hour=2))
    kept = await book.add(held=[A1], valid_to=book.clock.now().replace(hour=2))
    new = await book.add(supersedes=old)
    await book.append(book.retract(new))
    assert await book.ledger.owed() == [(old, "memories")]
    book.later(hours=3)
    await book.add()
    book.at(START)
    assert await book.ledger.owed() == []
    assert [p.fact_id for p in await book.ledger.ended("agent")] == [kept]
    assert [u.state for u in await book.ledger.unaccounted("agent", {"a1": kept})] == [PlacementState.HELD]
    assert await book.refused(book.place(old, [X2])) == "not_believed"


async def test_a_log_is_taken_over_in_many_pages(book: Book, ledger_url: str, tmp_path: Path) -> None:
    """However many pages it takes, and whatever was refused in between."""
    source = await open_book(tmp_path / "source.db", prefix="s")
    for _ in range(15):
        await source.add(provenance=Provenance.CLAIMED)
    for row in await source.export():
        await book.ledger.restore([row])
        await book.refused(book.retract("nobody"))
    assert await book.export() == await source.export()
    await source.ledger.close()
    async with await Ledger.open(ledger_url, runtime=testing_runtime(clock=book.clock)) as other:
        assert (await other.head()).seq == 15
