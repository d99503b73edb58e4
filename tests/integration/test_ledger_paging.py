"""L9: every read pages, and no row is lost or doubled at a page's edge."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from fix_ledger import Book

from custody_sync.errors import InvalidInput
from custody_sync.ledger.storage import Note
from custody_sync.model import Outcome, Page, Standing

Ask = Callable[..., Awaitable[Page[Any]]]


async def all_pages(ask: Ask, limit: int, **question: Any) -> list[Any]:
    """Follow `next` to the end."""
    rows: list[Any] = []
    after = None
    while True:
        page = await ask(limit=limit, after=after, **question)
        assert len(page) <= limit
        rows += page
        after = page.next
        if after is None:
            return rows


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
async def test_l9_as_of_gives_every_fact_once_in_order(book: Book, limit: int) -> None:
    """Facts that are not believed in between leave no gap that ends the reading."""
    ids = [await book.add(value=i) for i in range(13)]
    for fact_id in ids[3:9]:
        await book.append(book.retract(fact_id))
    found = await all_pages(book.ledger.as_of, limit)
    assert [fact.fact_id for fact in found] == ids[:3] + ids[9:]
    assert [
        fact.value for fact in await all_pages(book.ledger.as_of, limit, space="org", subject="acct:42")
    ] == [
        *range(3),
        *range(9, 13),
    ]


async def test_l9_the_last_page_says_so(book: Book) -> None:
    """`next` is None exactly when nothing follows."""
    for i in range(4):
        await book.add(value=i)
    assert (await book.ledger.as_of(limit=3)).next == 3
    assert (await book.ledger.as_of(limit=4)).next is None
    assert (await book.ledger.as_of(limit=3, after=3)).next is None
    assert await book.ledger.as_of(limit=3, after=4) == []


async def test_l9_pages_of_one_moment_stay_of_one_moment(book: Book) -> None:
    """With the first page's head as `tx_at`, what is appended between two pages changes nothing."""
    ids = [await book.add(value=i) for i in range(6)]
    first = await book.ledger.as_of(limit=3)
    await book.append(book.retract(ids[4]))
    await book.add(value="new")
    rest = await book.ledger.as_of(limit=10, after=first.next, tx_at=first.head.tx_time)
    assert [fact.fact_id for fact in [*first, *rest]] == ids


@pytest.mark.parametrize("limit", [1, 2, 50])
async def test_l9_history_pages(book: Book, limit: int) -> None:
    """A fact with many events is read a page at a time."""
    fact_id = await book.add()
    for i in range(4):
        await book.append(book.hold(fact_id, f"h{i}"))
        await book.add("noise")
    ledger = book.ledger
    events = await all_pages(lambda **page: ledger.history(fact_id, **page), limit)
    assert [event.data.get("hold_id") for event in events] == [None, "h0", "h1", "h2", "h3"]
    assert await book.ledger.history("f-unknown") == []


@pytest.mark.parametrize("limit", [1, 2, 50])
async def test_l9_pending_and_removed_page(book: Book, limit: int) -> None:
    """Every due placement is found once, and `removed` also shows what is gone."""
    ids = []
    for i in range(5):
        ids.append(await book.add(value=i, held=[("memories", f"m{i}"), ("agent", f"a{i}")]))
        await book.append(book.retract(ids[-1]))
    await book.append(book.remove(ids[2], "memories", "m2"))
    await book.append(book.remove(ids[3], "memories", "m3", Outcome.UNVERIFIED))
    everything = sorted(f"{kind}{i}" for i in range(5) for kind in "am")
    pending = await all_pages(book.ledger.pending, limit)
    assert sorted(p.external_id for p in pending) == sorted(set(everything) - {"m2"})
    removed = await all_pages(book.ledger.removed, limit)
    assert sorted(p.external_id for p in removed) == everything


async def test_l9_spaces_page_and_forgotten_ones_are_not_listed(book: Book) -> None:
    """Spaces come sorted, all of them or from one on; one whose only fact lost its identity is gone."""
    names = ["org", "team:a", "team:b", "user:1", "user:ü"]
    for name in [*names, *names]:
        await book.add(space=name)
    only = await book.add(space="user:9")
    await book.append(book.forget(only, identity=True))
    assert await book.ledger.spaces() == names
    found: list[str] = []
    while page := await book.ledger.spaces(limit=2, after=found[-1] if found else ""):
        found += page
    assert found == names


@pytest.mark.parametrize("limit", [1, 2, 50])
async def test_l9_what_is_owed_pages(book: Book, limit: int) -> None:
    """Pairs that nobody can place do not hide those behind them."""
    pairs = []
    for i in range(4):
        old = await book.add(value=i, held=[("memories", f"m{i}"), ("agent", f"a{i}")])
        await book.append(book.retract(await book.add(value="x", supersedes=old)))
        pairs += [(old, "agent"), (old, "memories")]
    found: list[tuple[str, str]] = []
    while page := await book.ledger.owed(limit=limit, after=found[-1] if found else None):
        found += page
    assert found == sorted(pairs)
    assert await book.ledger.owed(pairs[0][0]) == pairs[:2]


async def test_what_is_owed_ends_with_the_facts_validity(book: Book) -> None:
    """A restored fact that ended before it was placed is not owed any more."""
    ends = book.clock.now() + timedelta(hours=1)
    old = await book.add(held=[("memories", "m1")], valid_to=ends)
    await book.append(book.retract(await book.add(supersedes=old)))
    assert await book.ledger.owed() == [(old, "memories")]
    book.at(ends)
    assert await book.ledger.owed() == []


@pytest.mark.parametrize("limit", [1, 2, 50])
async def test_l9_placements_of_ended_facts_page(book: Book, limit: int) -> None:
    """A store's placements are listed once their facts' validity is over, but for what is due anyway."""
    ends = book.clock.now() + timedelta(hours=1)
    ids = [await book.add(value=i, held=[("m", f"m{i}"), ("a", f"a{i}")], valid_to=ends) for i in range(5)]
    await book.add(held=[("m", "stays")])
    await book.append(book.retract(ids[2]))
    assert await book.ledger.ended("m") == []
    book.at(ends)
    ledger = book.ledger
    found = await all_pages(lambda **page: ledger.ended("m", **page), limit)
    assert [placement.external_id for placement in found] == ["m0", "m1", "m3", "m4"]


async def test_l9_notes_page_by_key(book: Book) -> None:
    """A spool is read from the last key on."""
    notes = [Note(topic="spool", key=f"{i:03d}", value="{}", since=book.clock.now()) for i in range(7)]
    await book.ledger.put_notes(notes)
    found: list[Note] = []
    while page := await book.ledger.notes("spool", limit=3, after=found[-1].key if found else ""):
        found += page
    assert found == notes
    await book.ledger.drop_notes("spool", ["001", "005"])
    assert [note.key for note in await book.ledger.notes("spool")] == ["000", "002", "003", "004", "006"]


async def test_l9_known_answers_for_every_id_asked(book: Book) -> None:
    """Thousands of ids in one question, odd ones included, each with its standing."""
    fact_id = await book.add()
    await book.append(book.repair("f-orphan"))
    odd = ["", "f1' OR 1=1 --", 'q"uote', "back\\slash", "\U0001f600", fact_id + "\x00", "\ud800"]
    ids = [fact_id, "f-orphan", *odd, *(f"no-{i}" for i in range(5000))]
    known = await book.ledger.known(ids)
    assert list(known) == ids
    assert [known[fact_id], known["f-orphan"]] == [Standing.ASSERTED, Standing.REPAIRED]
    assert {known[other] for other in ids[2:]} == {Standing.UNKNOWN}
    assert await book.ledger.known([]) == {}


@pytest.mark.parametrize("name", ["acct'42", 'a"b', "back\\slash", "\U0001f600 ü", "%_", "a\nb", "x" * 900])
async def test_odd_names_are_names_like_any_other(book: Book, name: str) -> None:
    """Ids, spaces, subjects, stores and external ids are data everywhere."""
    fact_id = await book.add(name, name, name, space=name, fact_id=f"f {name}", held=[(name, name)])
    assert await book.values(space=name, subject=name, predicate=name) == [name]
    assert [p.external_id for p in await book.ledger.placements(fact_id)] == [name]
    assert await book.ledger.unaccounted(name, {name: fact_id}) == []
    (stray,) = await book.ledger.unaccounted(name, {f"{name}2": fact_id})
    assert (stray.external_id, stray.fact_id, stray.standing) == (f"{name}2", fact_id, Standing.ASSERTED)
    new = await book.add(name, name, "new", space=name, supersedes=fact_id)
    await book.append(book.retract(new, name))
    assert (await book.ledger.history(new))[1].reason == name
    assert await book.ledger.owed() == [(fact_id, name)]


@pytest.mark.parametrize("bad", [0, -1, 10_001, 2.5, "5", True, None])
async def test_l9_a_limit_is_a_whole_number_in_its_bounds(book: Book, bad: Any) -> None:
    """A bad limit is refused and not taken for 'all'."""
    for ask in (book.ledger.as_of, book.ledger.pending, book.ledger.removed, book.ledger.owed):
        with pytest.raises(InvalidInput, match="limit"):
            await ask(limit=bad)
    with pytest.raises(InvalidInput, match="limit"):
        await book.ledger.history("f1", limit=bad)


@pytest.mark.parametrize("bad", ["3", -1, 2**60, 1.0, True])
async def test_l9_a_cursor_is_one_that_the_ledger_gave(book: Book, bad: Any) -> None:
    """A bad cursor is refused and does not come out as an empty last page."""
    for ask in (book.ledger.as_of, book.ledger.pending, book.ledger.removed):
        with pytest.raises(InvalidInput, match="after"):
            await ask(after=bad)


async def test_ids_that_no_ledger_can_hold_are_never_accounted_for(book: Book) -> None:
    """A store may list a NUL character or a lone surrogate; the rest of the batch is answered."""
    fact_id = await book.add(held=[("memories", "x1")])
    pairs = {"x1": fact_id, "x\x00": fact_id, "\ud800": "f\x00", "x2": "f\udfff", "": "", "x3": "f-other"}
    found = {row.external_id: row for row in await book.ledger.unaccounted("memories", pairs)}
    assert {key: row.fact_id for key, row in found.items()} == {k: v for k, v in pairs.items() if k != "x1"}
    assert found["x\x00"].standing is Standing.ASSERTED
    assert {found[key].standing for key in ("\ud800", "x2", "", "x3")} == {Standing.UNKNOWN}
    (other,) = await book.ledger.unaccounted("memories", {"x1": "f\ud800"})
    assert (other.owner, other.standing) == (fact_id, Standing.UNKNOWN)


@pytest.mark.parametrize("bad", ["a\x00", "\ud800", 7])
async def test_what_is_no_text_is_refused_where_it_is_asked(book: Book, bad: Any) -> None:
    """It is the caller's mistake and is not taken for damage of the ledger."""
    ledger: Any = book.ledger
    for call in (
        lambda: ledger.spaces(after=bad),
        lambda: ledger.ended(bad),
        lambda: ledger.owed(bad),
        lambda: ledger.owed(after=("f1", bad)),
        lambda: ledger.notes("spool", after=bad),
        lambda: ledger.unaccounted(bad, {}),
        lambda: ledger.acquire("lease", bad, holder="me", value="1", ttl=timedelta(1)),
        lambda: ledger.put_notes([Note(topic="spool", key="k", value=bad, since=book.clock.now())]),
    ):
        with pytest.raises(InvalidInput):
            await call()
    for call in (lambda: ledger.known([7]), lambda: ledger.unaccounted("s", {"x": None})):
        with pytest.raises(InvalidInput, match="must be strings"):
            await call()
