"""Entries that come in another one's place, and entries that were there before the fact."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from fix_ledger import Book

from custody_sync.errors import InvalidInput, NotPlaced
from custody_sync.ledger import Place
from custody_sync.model import PlacementState, Provenance

HELD, DUE, GONE = PlacementState.HELD, PlacementState.DUE, PlacementState.GONE


def replacing(book: Book, fact_id: str, new: str, *old: str, store: str = "memories") -> Place:
    """Draft a placement that comes in others' place."""
    draft = book.place(fact_id, [(store, new)])
    return replace(draft, replaces=tuple((store, external_id) for external_id in old))


async def states(book: Book, fact_id: str) -> dict[str, PlacementState]:
    """Return where each entry of a fact is in its life."""
    return {p.external_id: p.state for p in await book.ledger.placements(fact_id)}


async def test_what_is_replaced_is_due_in_the_same_event(book: Book) -> None:
    """The store is never without a current placement on record, nor with two of them."""
    fact_id = await book.add(held=[("memories", "m1"), ("agent", "a1")])
    assert await book.refused(book.place(fact_id, [("memories", "m2")])) == "already_placed"
    event = await book.append(replacing(book, fact_id, "m2", "m1"))
    assert await states(book, fact_id) == {"m1": DUE, "a1": HELD, "m2": HELD}
    assert event.data == {"stores": ["memories"]}
    assert event.sealed["refs"]["replaces"] == [{"external_id": "m1", "store": "memories"}]
    await book.append(book.remove(fact_id, "memories", "m1"))
    assert await states(book, fact_id) == {"m1": GONE, "a1": HELD, "m2": HELD}


async def test_only_current_placements_of_the_fact_can_be_replaced(book: Book) -> None:
    """One that has to go already, another fact's, and one that nobody knows are refused by name."""
    fact_id, other = await book.add(held=[("memories", "m1")]), await book.add(held=[("memories", "m9")])
    await book.append(replacing(book, fact_id, "m2", "m1"))
    for old in ("m1", "m9", "unknown", "erased~1"):
        with pytest.raises(NotPlaced) as refused:
            await book.append(replacing(book, fact_id, "m3", "m2", old))
        assert refused.value.fields == {"fact_id": fact_id, "store": "memories", "external_id": old}
    assert await states(book, fact_id) == {"m1": DUE, "m2": HELD}
    assert await states(book, other) == {"m9": HELD}


async def test_a_store_gets_something_in_its_place(book: Book) -> None:
    """Otherwise a believed fact would be missing there, and nobody would owe it."""
    fact_id = await book.add(held=[("memories", "m1")])
    with pytest.raises(InvalidInput, match="no other entry"):
        await book.append(replace(book.place(fact_id, [("agent", "a1")]), replaces=(("memories", "m1"),)))
    with pytest.raises(InvalidInput, match="no other entry"):
        await book.append(replace(book.place(fact_id, []), replaces=(("memories", "m1"),)))
    for bad in ((("memories", ""),), (("", "m1"),), (("memories", "x\x00"),)):
        with pytest.raises(InvalidInput):
            await book.append(replace(book.place(fact_id, [("memories", "m2")]), replaces=bad))


async def test_an_entry_cannot_replace_itself(book: Book) -> None:
    """It would be due and held at once."""
    fact_id = await book.add(held=[("memories", "m1")])
    assert await book.refused(replacing(book, fact_id, "m1", "m1")) == "stale_placement"


async def test_the_same_replacement_again_is_the_same_event(book: Book) -> None:
    """An unknown outcome is settled by appending it again; another one under its id is not it."""
    fact_id = await book.add(held=[("memories", "m1"), ("memories", "m2")])
    draft = replacing(book, fact_id, "m3", "m1", "m2")
    event = await book.append(draft)
    assert await book.append(draft) == event
    assert await book.refused(replace(draft, replaces=draft.replaces[:1])) == "duplicate_event"


async def test_a_replaced_entry_is_erased_with_the_identity(book: Book) -> None:
    """Its id may name a person like any other, and goes once everything was seen gone."""
    fact_id = await book.add(held=[("memories", "mail-1")])
    await book.append(replacing(book, fact_id, "mail-2", "mail-1"))
    await book.append(book.forget(fact_id, identity=True))
    for external_id in ("mail-1", "mail-2"):
        await book.append(book.remove(fact_id, "memories", external_id))
    (left,) = await book.ledger.placements(fact_id)
    assert left.erased
    assert "mail-" not in str(await book.export())


async def test_old_entries_are_taken_over_where_a_fact_is_adopted(book: Book) -> None:
    """They were there before the ledger knew; any other entry so old may be the sweep's already."""
    old = book.clock.now() - timedelta(days=100)
    for stored_at in (old, None):
        draft = book.state(held=[("memories", f"m-{stored_at}")])
        draft = replace(draft, placements=tuple(replace(p, stored_at=stored_at) for p in draft.placements))
        assert await book.refused(draft) == "stale_placement"
        event = await book.append(replace(draft, adopted=True))
        assert event.data["adopted"] is True
        assert (await book.ledger.placements(draft.fact_id))[0].stored_at == stored_at
    usual = await book.append(book.state(held=[("memories", "m9")]))
    assert "adopted" not in usual.data


async def test_an_adopted_claim_keeps_its_entry(book: Book) -> None:
    """It waits for somebody to confirm it, and stays where it was found."""
    draft = book.state(held=[("memories", "m1")], provenance=Provenance.CLAIMED)
    await book.append(replace(draft, adopted=True))
    assert await states(book, draft.fact_id) == {"m1": HELD}
    assert await book.ledger.as_of() == []
    assert await book.ledger.unaccounted("memories", {"m1": draft.fact_id}) == []
    await book.append(book.confirm(draft.fact_id))
    assert await states(book, draft.fact_id) == {"m1": HELD}


async def test_an_adopted_entry_is_nobody_elses(book: Book) -> None:
    """All that is asked of an entry besides its age is asked of it as well."""
    other = await book.add(held=[("memories", "m1")])
    assert await book.refused(replace(book.state(held=[("memories", "m1")]), adopted=True)) == "shared_entry"
    await book.append(book.retract(other))
    again = replace(book.state(held=[("memories", "m2")], fact_id=other), adopted=True)
    assert await book.refused(again) == "duplicate_fact"
    await book.append(book.repair("orphan", "memories", "m3"))
    await book.append(book.remove("orphan", "memories", "m3"))
    assert await book.refused(replace(book.state(held=[("memories", "m3")]), adopted=True)) == "shared_entry"
    with pytest.raises(InvalidInput):
        await book.append(replace(book.state(), adopted=1))  # type: ignore[arg-type]
