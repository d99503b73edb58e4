"""What a ledger is asked and told: any page token, limit, instant, id and scope, kept as it is or refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from fix_fuzz import HUGE, JSONS, NAUGHTY, TEXTS, fuzzed, refused
from fix_ledger import Book, open_book
from hypothesis import strategies as st

from custody_sync.errors import CustodyError
from custody_sync.ledger import Ledger
from custody_sync.ledger.moving import FileSource, export_lines, take_over

SCHEMES = ("sqlite", "jsonl")
TOKENS = (
    st.none() | st.integers(-3, 12) | HUGE | TEXTS | NAUGHTY | JSONS | st.booleans() | st.binary(max_size=3)
    | st.datetimes() | st.datetimes(timezones=st.timezones())
)  # fmt: skip


async def first(rows: AsyncIterator[Any]) -> Any:
    """Return what comes first, if anything does."""
    return await anext(rows, None)


QUESTIONS: dict[str, Callable[[Ledger, Any, Any], Awaitable[Any]]] = {
    "as_of": lambda ledger, limit, after: ledger.as_of(limit=limit, after=after),
    "valid_at": lambda ledger, limit, after: ledger.as_of(valid_at=limit, tx_at=after),
    "names": lambda ledger, limit, after: ledger.as_of(space=limit, subject=after),
    "history": lambda ledger, limit, after: ledger.history("f1", limit=limit, after=after),
    "history of": lambda ledger, limit, after: ledger.history(limit, after=after),
    "spaces": lambda ledger, limit, after: ledger.spaces(limit=limit, after=after),
    "accounts": lambda ledger, limit, after: ledger.accounts(limit=limit, after=after),
    "pending": lambda ledger, limit, after: ledger.pending(limit=limit, after=after),
    "removed": lambda ledger, limit, after: ledger.removed(limit=limit, after=after),
    "waiting": lambda ledger, limit, after: ledger.waiting(limit=limit, after=after),
    "held": lambda ledger, limit, after: ledger.held("memories", limit=limit, after=after),
    "lacking": lambda ledger, limit, after: ledger.lacking("memories", limit=limit, after=after),
    "ended": lambda ledger, limit, after: ledger.ended(limit, after=after),
    "get": lambda ledger, limit, after: ledger.get(limit),
    "known": lambda ledger, limit, after: ledger.known([limit, after]),
    "placements": lambda ledger, limit, after: ledger.placements(limit),
    "stored": lambda ledger, limit, after: ledger.stored(limit),
    "export": lambda ledger, limit, after: first(ledger.export(page=limit, after=after)),
    "notes": lambda ledger, limit, after: ledger.notes("lease", limit=limit, after=after),
}


class Books:
    """One ledger of each storage, each with a fact, in a loop of their own."""

    def __init__(self, folder: Path, runner: asyncio.Runner) -> None:
        self.folder, self.runner = folder, runner
        self.books = {scheme: runner.run(self._made(scheme)) for scheme in SCHEMES}

    async def _made(self, scheme: str) -> Book:
        path = self.folder / f"custody.{scheme}"
        book = await open_book(path, url=f"{scheme}:///{path}?synchronous=off", witness=False)
        await book.add()
        return book

    def close(self) -> None:
        """Close them."""
        for book in self.books.values():
            self.runner.run(book.ledger.close())


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Books]:
    """Ledgers for all examples."""
    with asyncio.Runner() as runner:
        made = Books(tmp_path_factory.mktemp("fuzz"), runner)
        yield made
        made.close()


@fuzzed(
    150, asked=st.sampled_from(sorted(QUESTIONS)), limit=TOKENS, after=TOKENS, scheme=st.sampled_from(SCHEMES)
)
def test_a_page_is_an_answer_or_a_refusal(
    books: Books, asked: str, limit: Any, after: Any, scheme: str
) -> None:
    """Whatever stands for a limit, a token, an instant or an id, nothing is recorded by asking."""
    ledger = books.books[scheme].ledger

    async def ask() -> None:
        before = await ledger.head()
        try:
            await QUESTIONS[asked](ledger, limit, after)
        except CustodyError as error:
            refused(error)
        assert await ledger.head() == before

    books.runner.run(ask())


@fuzzed(
    40,
    external_id=TEXTS | NAUGHTY,
    scope=st.none() | TEXTS | NAUGHTY,
    store=TEXTS,
    names=st.lists(TEXTS, min_size=3, max_size=3),
    scheme=st.sampled_from(SCHEMES),
)
def test_an_odd_entry_is_recorded_as_it_is_or_refused(
    books: Books, external_id: str, scope: str | None, store: str, names: list[str], scheme: str
) -> None:
    """Ids and scopes of any characters come back from the ledger, and from a copy on another storage."""
    urls = [f"{one}:///{books.folder}/new.{one}?synchronous=off" for one in SCHEMES]

    async def record() -> None:
        for file in books.folder.glob("new.*"):
            file.unlink()
        url, other = urls if scheme == SCHEMES[0] else reversed(urls)
        book = await open_book(books.folder, url=url, witness=False)
        async with book.ledger:
            subject, predicate, space = names
            draft = book.state(subject, predicate, names, space=space)
            held = book.held(draft.fact_id, [(store, external_id)], scope=scope)
            try:
                await book.append(replace(draft, placements=held))
            except CustodyError as error:
                refused(error)
                assert (await book.ledger.head()).seq == 0
                return
            (found,) = await book.ledger.placements(draft.fact_id)
            assert (found.store, found.external_id, found.scope) == (store, external_id, scope)
            copy = await open_book(books.folder, url=other, clock=book.clock, witness=False)
            async with copy.ledger:
                lines = [line async for line in export_lines(book.ledger)]
                await take_over(FileSource("export", lines), copy.ledger)
                assert await copy.ledger.placements(draft.fact_id) == [found]
                assert await copy.ledger.get(draft.fact_id) == await book.ledger.get(draft.fact_id)

    books.runner.run(record())


def test_instants_of_the_questions_are_checked(books: Books) -> None:
    """What is drawn above reaches the check: a time without a zone is refused, one with a zone is not."""
    ledger = books.books["sqlite"].ledger
    assert books.runner.run(ledger.as_of(valid_at=datetime(2100, 1, 1, tzinfo=UTC)))
    with pytest.raises(CustodyError):
        books.runner.run(ledger.as_of(valid_at=datetime(2100, 1, 1)))
