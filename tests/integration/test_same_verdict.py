"""What is accepted and what is refused does not depend on which store would have noticed: *validate* decides.

Over every ledger storage, with a ledger alone and with stores of different limits behind it.
"""

from __future__ import annotations

import unicodedata
from dataclasses import replace
from typing import Any

import pytest
from fix_custody import error_of
from fix_ledger import ACTOR, Book

from custody_sync import AsyncCoordinator
from custody_sync.errors import InvalidInput, StoreWriteFailed, TextTooLong
from custody_sync.model import Fact, Limits
from custody_sync.testing import MemoryStore, testing_runtime

MEGABYTE = 1_000_000
STATED = {"subject": "acct:42", "predicate": "note"}
LIMITS = {
    "a ledger alone": [],
    "one store": [None],
    "stores of several limits": [None, Limits(text_chars=8000), Limits(text_bytes=60_000)],
}

ACCEPTED: dict[str, dict[str, Any]] = {
    "emoji": {"value": "👩‍👩‍👧‍👦 🏳️‍🌈 🧑🏿‍🚀"},
    "right-to-left": {"value": "שלום \u202e עולם \u2067سلم\u2069"},
    "decomposed": {"value": unicodedata.normalize("NFD", "Ångström é ạ̈")},
    "composed": {"value": unicodedata.normalize("NFC", "Ångström é ạ̈")},
    "blanks around": {"value": "  pro\n"},
    "no value, but a text": {"value": "", "text": "the plan is unknown", **STATED},
    "an empty list": {"value": [], **STATED},
    "an empty object": {"value": {}, **STATED},
    "null": {"value": None, **STATED},
    "an empty text as a value": {"value": "", **STATED},
    "a large value with a short text": {"value": "x" * MEGABYTE, "text": "a file", **STATED},
    "a large object with a short text": {"value": {"k": ["ü" * 50] * 10_000}, "text": "a list", **STATED},
}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({"value": ""}, "value"),
    "blanks": ({"value": " \t\n\u2003"}, "value"),
    "a blank text": ({"value": "pro", "text": "  ", **STATED}, "text"),
    "an empty text": ({"value": "pro", "text": "", **STATED}, "text"),
    "free text that is none": ({"value": None}, "value"),
    "a list as free text": ({"value": []}, "value"),
    "NUL": ({"value": "a\x00b"}, "value"),
    "a lone surrogate": ({"value": "a\ud800"}, "value"),
}


def open_custody(book: Book, kind: str, **more: Any) -> tuple[AsyncCoordinator, list[MemoryStore]]:
    """Return a coordinator over stores of the limits under test."""
    stores = [
        MemoryStore(f"store{n}", limits=limits, clock=book.clock) for n, limits in enumerate(LIMITS[kind])
    ]
    runtime = testing_runtime(clock=book.clock)
    return AsyncCoordinator(book.ledger, stores=stores, runtime=runtime, **more), stores


async def is_untouched(book: Book, stores: list[MemoryStore]) -> bool:
    """Tell that no store was called and nothing recorded."""
    return not any(store.calls for store in stores) and (await book.ledger.head()).seq == 0


@pytest.mark.parametrize("kind", LIMITS)
@pytest.mark.parametrize("case", ACCEPTED)
async def test_accepted_everywhere(book: Book, kind: str, case: str) -> None:
    """It is taken by every store and read back from the ledger exactly as it was given."""
    custody, stores = open_custody(book, kind)
    async with custody:
        told = ACCEPTED[case]
        written = await custody.write(space="org", actor=ACTOR, **told)
        fact = await book.ledger.get(written.fact.fact_id)
        assert fact is not None
        assert (fact.value, fact.text) == (told["value"], written.fact.text)
        held = [entry.text for store in stores for entry in store.snapshot().values()]
        assert held == [fact.text] * len(stores)


@pytest.mark.parametrize("kind", LIMITS)
@pytest.mark.parametrize("case", REFUSED)
async def test_refused_everywhere(book: Book, kind: str, case: str) -> None:
    """It is refused by the argument's name, and no store is touched."""
    custody, stores = open_custody(book, kind)
    told, field = REFUSED[case]
    async with custody:
        error = await error_of(custody.write(space="org", actor=ACTOR, **told), InvalidInput)
        assert (error.field, await is_untouched(book, stores)) == (field, True)


@pytest.mark.parametrize("kind", LIMITS)
async def test_one_text_in_two_facts(book: Book, kind: str) -> None:
    """The same text twice is two facts with entries of their own."""
    custody, stores = open_custody(book, kind)
    async with custody:
        ids = {(await custody.write(value="same", space="org", actor=ACTOR)).fact.fact_id for _ in range(2)}
        assert {fact.fact_id for fact in await book.ledger.as_of()} == ids
        assert all({e.fact_id for e in store.snapshot().values()} == ids for store in stores)


@pytest.mark.parametrize(
    ("text", "store", "limit", "unit"),
    [
        ("x" * 8001, "store1", 8000, "characters"),
        ("x" * MEGABYTE, "store1", 8000, "characters"),
        ("😀" * 8000, None, None, None),
        ("\U0001d54f" * 15_001, "store1", 8000, "characters"),
        ("\u0801" * 7999, None, None, None),
    ],
    ids=["one over", "a megabyte", "wide characters that fit", "over both", "three bytes each"],
)
@pytest.mark.storages("sqlite")
async def test_the_smallest_limit_speaks(
    book: Book, text: str, store: str | None, limit: int | None, unit: str | None
) -> None:
    """A text over any limit is refused before all stores; named is the store that takes least of it."""
    custody, stores = open_custody(book, "stores of several limits")
    async with custody:
        if store is None:
            assert (await custody.write(value=text, space="org", actor=ACTOR)).complete
            return
        error = await error_of(custody.write(value=text, space="org", actor=ACTOR), TextTooLong)
        assert (error.store, error.limit, error.unit) == (store, limit, unit)
        assert await is_untouched(book, stores)


@pytest.mark.storages("sqlite")
async def test_limits_of_different_units_are_compared(book: Book) -> None:
    """Of a limit in characters and one in bytes the one that leaves less of this very text is named."""
    limits = [Limits(text_chars=100), Limits(text_bytes=150), Limits(text_chars=90)]
    stores = [MemoryStore(f"store{n}", limits=limit) for n, limit in enumerate(limits)]
    runtime = testing_runtime(clock=book.clock)
    async with AsyncCoordinator(book.ledger, stores=stores, runtime=runtime) as custody:
        wide = await error_of(custody.write(value="ü" * 101, space="org", actor=ACTOR), TextTooLong)
        plain = await error_of(custody.write(value="u" * 151, space="org", actor=ACTOR), TextTooLong)
    assert (wide.store, wide.size, wide.unit) == ("store1", 202, "bytes")
    assert (plain.store, plain.limit) == ("store2", 90)


@pytest.mark.parametrize("text", ["", "   "])
@pytest.mark.storages("sqlite")
async def test_a_validator_that_empties_the_text(book: Book, text: str) -> None:
    """What a validator leaves is what stores would index: a blank is refused then as well."""

    async def redact(fact: Fact, view: Any) -> Fact:
        return replace(fact, text=text)

    custody, stores = open_custody(book, "one store", validators=[redact])
    async with custody:
        error = await error_of(custody.write(value="secret", space="org", actor=ACTOR), InvalidInput)
        assert (error.field, await is_untouched(book, stores)) == ("text", True)


@pytest.mark.storages("sqlite")
async def test_a_claim_meets_the_limits_twice(book: Book) -> None:
    """A claim has to fit the stores of its day, and those of the day on which it is confirmed."""
    custody, stores = open_custody(book, "stores of several limits")
    async with custody:
        too_long = custody.write(value="x" * 8001, space="org", actor=ACTOR, provenance="claimed")
        await error_of(too_long, TextTooLong)
        claimed = await custody.write(value="x" * 50, space="org", actor=ACTOR, provenance="claimed")
        assert not any(store.calls for store in stores)
    narrow = MemoryStore("narrow", limits=Limits(text_chars=49))
    runtime = testing_runtime(clock=book.clock, seed=2)
    async with AsyncCoordinator(book.ledger, stores=[narrow, *stores], runtime=runtime) as custody:
        error = await error_of(custody.confirm(claimed.fact.fact_id, actor=ACTOR), TextTooLong)
        assert (error.store, narrow.calls["put"]) == ("narrow", 0)
        assert not any(store.calls for store in stores)


@pytest.mark.storages("sqlite")
async def test_what_comes_back_meets_the_limits_again(book: Book) -> None:
    """A text that a store does not take any more is not sent to it again, and what is owed says why."""
    custody, (store,) = open_custody(book, "one store")
    told = {"space": "org", "actor": ACTOR, **STATED}
    async with custody:
        first = (await custody.write(value="x", text="a long text", **told)).fact.fact_id
        second = await custody.write(value="y", text="short", supersedes=first, **told)
        store.limits = Limits(text_chars=5)
    runtime = testing_runtime(clock=book.clock, seed=2)
    async with AsyncCoordinator(book.ledger, stores=[store], runtime=runtime) as custody:
        puts = store.calls["put"]
        result = await custody.retract(second.fact.fact_id, actor=ACTOR, reason="wrong")
        assert [(item.detail, item.placed) for item in result.restored] == [
            ("put refused (text_too_long)", False)
        ]
        assert (result.complete, store.calls["put"]) == (False, puts)


@pytest.mark.storages("sqlite")
async def test_a_store_that_refuses_all_the_same(book: Book) -> None:
    """A limit that a store never stated is its own refusal, by name, and the others are taken back."""
    custody, stores = open_custody(book, "stores of several limits")
    async with custody:
        stores[0].limits = Limits(text_chars=3)
        error = await error_of(custody.write(value="four", space="org", actor=ACTOR), StoreWriteFailed)
        assert (error.store, error.removed, error.left) == ("store0", ["store1", "store2"], [])
