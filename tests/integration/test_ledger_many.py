"""Questions about many ids at once, which answer what the questions about one do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from fix_ledger import Book

from custody_sync.errors import InvalidInput
from custody_sync.ledger import Ledger
from custody_sync.ledger.storage import Note
from custody_sync.model import Provenance

UNHOLDABLE = ["x\x00", "\ud800", ""]
Many = Callable[[Ledger, list[str]], Awaitable[dict[str, Any]]]
MANY: dict[str, Many] = {
    "facts": lambda ledger, ids: ledger.facts(ids),
    "placements": lambda ledger, ids: ledger.placements_of(ids),
    "notes": lambda ledger, ids: ledger.notes_at("topic", ids),
}
NOTHING = {"facts": dict.fromkeys(UNHOLDABLE), "placements": {key: [] for key in UNHOLDABLE}, "notes": {}}


@pytest.fixture(params=list(MANY))
def about(request: pytest.FixtureRequest) -> str:
    """What is asked about."""
    chosen: str = request.param
    return chosen


async def all_kinds(book: Book) -> list[str]:
    """Write facts that end in every way, one of them in several places, and name an orphan and a stranger."""
    held = [("memories", "m1"), ("archive", "a1")]
    plain, old = await book.add(held=held), await book.add("acct:7", "plan", 1, held=[("memories", "m2")])
    new = await book.add("acct:7", "plan", 2, supersedes=old, held=[("memories", "m3")])
    gone, erased = (
        await book.add("acct:8", "plan", 1, held=[("memories", "m4")]),
        await book.add("acct:9", "plan", {"a": ["é"]}),
    )
    claim = await book.add("acct:10", "plan", 1, provenance=Provenance.CLAIMED)
    for draft in (
        replace(book.place(plain, [("memories", "m5")]), replaces=(("memories", "m1"),)),
        book.retract(gone),
        book.forget(erased),
        book.confirm(claim, [("memories", "m6")]),
        book.repair("orphan", "memories", "m7"),
    ):
        await book.append(draft)
    return [new, plain, "nobody", claim, erased, old, "orphan", gone]


async def test_facts_are_those_of_get(book: Book) -> None:
    """Each id has the fact that it alone would have, in the order that was asked for."""
    ids = await all_kinds(book)
    found = await book.ledger.facts(ids)
    assert list(found) == ids
    assert found == {fact_id: await book.ledger.get(fact_id) for fact_id in ids}
    assert [fact_id for fact_id, fact in found.items() if fact is None] == ["nobody", "orphan"]


async def test_placements_are_those_of_each(book: Book) -> None:
    """Each id has its placements in the order they were made, past ones included, and no other's."""
    ids = await all_kinds(book)
    found = await book.ledger.placements_of(ids)
    assert list(found) == ids
    assert found == {fact_id: await book.ledger.placements(fact_id) for fact_id in ids}
    assert [row.external_id for row in found[ids[1]]] == ["m1", "a1", "m5"]


async def test_an_id_that_is_named_twice_counts_once(book: Book) -> None:
    """Nobody has a placement twice because of being asked about twice."""
    fact_id = await book.add(held=[("memories", "m1")])
    assert len((await book.ledger.placements_of([fact_id, fact_id]))[fact_id]) == 1
    assert list(await book.ledger.facts([fact_id, fact_id])) == [fact_id]


async def test_notes_are_found_by_key(book: Book) -> None:
    """Of a topic's notes those under the keys are given, whole, and no other topic's."""
    now = book.ledger.now()
    notes = [
        Note(topic="topic", key=key, value=f'"{key}"', holder="me", since=now) for key in ("a", "b", "é")
    ]
    await book.ledger.put_notes([*notes, Note(topic="topics", key="c", value='""', since=now)])
    assert await book.ledger.notes_at("topic", ["é", "c", "a"]) == {"a": notes[0], "é": notes[2]}


async def test_ids_that_no_ledger_can_hold_are_nobodys(book: Book, about: str) -> None:
    """Any text may be asked about, and spoils no other answer."""
    fact_id = await book.add(held=[("memories", "m1")])
    await book.ledger.put_notes([Note(topic="topic", key=fact_id, value='""', since=book.ledger.now())])
    found = await MANY[about](book.ledger, [*UNHOLDABLE, fact_id])
    assert found.pop(fact_id)
    assert found == NOTHING[about]


async def test_nothing_and_very_much_can_be_asked(book: Book, about: str) -> None:
    """No id is an answer too, and thousands are one question."""
    assert await MANY[about](book.ledger, []) == {}
    fact_id = await book.add(held=[("memories", "m1")])
    await book.ledger.put_notes([Note(topic="topic", key=fact_id, value='""', since=book.ledger.now())])
    found = await MANY[about](book.ledger, [*(f"nobody {n}" for n in range(3000)), fact_id])
    assert [key for key, answer in found.items() if answer] == [fact_id]


async def test_one_string_is_no_list_of_ids(book: Book) -> None:
    """What would be read as an id a character is refused."""
    for ask in (book.ledger.facts, book.ledger.placements_of):
        with pytest.raises(InvalidInput):
            await ask("f1")
