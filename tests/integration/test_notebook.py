"""A store's notebook, kept by the ledger: the first claim stands, in every process and place."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fix_custody import LATER, error_of
from fix_ledger import ACTOR, Book, Child, start
from fix_notebook import ScopedStore

from custody_sync import AsyncCoordinator
from custody_sync import notebook as notebook_module
from custody_sync.errors import InvalidStore, LedgerError, LedgerMoved, StoreWriteFailed
from custody_sync.ledger import Ledger
from custody_sync.ledger.moving import move
from custody_sync.ledger.storage import CLAIMS, USED, USES
from custody_sync.notebook import StoreNotebook, needing
from custody_sync.testing import MemoryStore, testing_runtime


@asynccontextmanager
async def custody_of(book: Book, *stores: ScopedStore) -> AsyncIterator[AsyncCoordinator]:
    """Open a coordinator on the book's ledger."""
    async with AsyncCoordinator(
        book.ledger, stores=stores, runtime=testing_runtime(clock=book.clock)
    ) as custody:
        yield custody


def notebook_of(book: Book, store: str = "scoped", seed: int = 7) -> StoreNotebook:
    """Return a store's notebook."""
    return StoreNotebook(book.ledger, store, testing_runtime(clock=book.clock, seed=seed))


async def test_the_first_claim_stands(book: Book) -> None:
    """A key has the value that was claimed first, whoever asks, until it is dropped."""
    one, two = notebook_of(book, seed=1), notebook_of(book, seed=2)
    assert await one.get("user:42") is None
    assert await one.claim("user:42", "a") == "a"
    assert await two.claim("user:42", "b") == "a"
    assert await two.get("user:42") == "a"
    book.later(days=10_000)
    assert await two.claim("user:42", "c") == "a"
    await two.drop("user:42")
    assert (await one.get("user:42"), await one.claim("user:42", "c")) == (None, "c")


async def test_a_stale_drop_takes_no_newer_claim(book: Book) -> None:
    """A drop that names a value leaves what was claimed anew, also when that came while it was looking."""
    slow, fast = notebook_of(book, seed=1), notebook_of(book, seed=2)
    await slow.claim("user:42", "a")
    await slow.drop("user:42", "b")
    assert await fast.get("user:42") == "a"
    drop_notes = book.ledger.drop_notes

    async def late(*given: Any, **options: Any) -> None:
        await drop_notes(CLAIMS, [slow._row("user:42")])
        await fast.claim("user:42", "a")
        await drop_notes(*given, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(book.ledger, "drop_notes", late)
        await slow.drop("user:42", "a")
    assert await fast.get("user:42") == "a"
    await slow.drop("user:42", "a")
    assert await fast.get("user:42") is None


async def test_stores_have_notebooks_of_their_own(book: Book) -> None:
    """What one store notes another does not read, whatever the keys are."""
    one, two = notebook_of(book, "mem0"), notebook_of(book, "mem")
    keys = ["a", "0a", "ü\u202e😀", "k" * 1000]
    for key in keys:
        await one.claim(key, f"{key} of mem0")
    await two.claim("a", "")
    assert dict(await one.read()) == {key: f"{key} of mem0" for key in keys}
    assert dict(await two.read()) == {"a": ""}


async def test_a_large_notebook(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it is read, also beyond a page, and each key is found among many."""
    monkeypatch.setattr(notebook_module, "PAGE", 7)
    notebook = notebook_of(book)
    claimed = {f"user:{n}": str(n) for n in range(60)}
    for key, value in claimed.items():
        await notebook.claim(key, value)
    assert dict(await notebook.read()) == claimed
    assert [await notebook.get(key) for key in list(claimed)[:20]] == list(claimed.values())[:20]


async def test_a_listing_after_a_restart(book: Book) -> None:
    """A new process that knows nothing lists what an earlier one put, since its scopes were claimed."""
    store = ScopedStore(clock=book.clock)
    async with custody_of(book, store) as custody:
        for space in ("user:1", "user:2"):
            await custody.write(value="x", space=space, actor=ACTOR)
    other = store.handle()
    assert [entry async for entry in other.list_entries()] == []
    async with custody_of(book, other) as custody:
        assert sorted([entry.scope or "" async for entry in other.list_entries()]) == ["user:1", "user:2"]
        assert (await custody.repair(actor="ops", reason="look")).scanned == {"scoped": 2}


async def test_an_orphan_in_a_scope_of_its_own(book: Book) -> None:
    """A write that put and was never recorded left its scope claimed: the next process's sweep finds it."""
    store = ScopedStore(clock=book.clock)
    async with custody_of(book, store) as custody:
        store.faults.lose_reply("put")
        store.faults.refuse("find")
        error = await error_of(custody.write(value="x", space="user:9", actor=ACTOR), StoreWriteFailed)
        assert error.left == ["scoped"]
    book.clock.advance(LATER)
    other = store.handle()
    async with custody_of(book, other) as custody:
        result = await custody.repair(actor="ops", reason="after a crash", max_removals=10)
        assert [(r.kind, r.outcome) for r in result.repaired] == [("orphan", "verified")]
    assert store.snapshot() == {}


async def test_a_ledger_that_is_gone_touches_no_store(book: Book) -> None:
    """Where the scope cannot be claimed nothing is sent."""
    store = ScopedStore(clock=book.clock)
    async with custody_of(book, store) as custody:

        async def broken(*_: object, **__: object) -> None:
            raise LedgerError(name="l", problem="it is gone")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(book.ledger, "acquire", broken)
            await error_of(custody.write(value="x", space="user:1", actor=ACTOR), LedgerError)
    assert (store.snapshot(), store.calls["put"]) == ({}, 0)


@pytest.mark.storages("sqlite", "jsonl", "postgres")
async def test_of_racing_processes_one_names_each_scope(book: Book, ledger_url: str) -> None:
    """Four processes that claim the same keys at once hear the same values, and each claim is one's."""
    await book.ledger.close()
    children = [Child("note", ledger_url, me, 40) for me in range(4)]
    start(children)
    reports = [child.report()["stands"] for child in children]
    assert all(report == reports[0] for report in reports)
    assert len(reports[0]) == 40
    async with await Ledger.open(ledger_url) as ledger:
        notebook = StoreNotebook(ledger, "memories", testing_runtime(clock=book.clock))
        assert dict(await notebook.read()) == reports[0]


@pytest.mark.parametrize("target", ["sqlite", "jsonl", "postgres"])
async def test_a_move_takes_the_notebooks_along(
    book: Book, tmp_path: Path, target: str, request: pytest.FixtureRequest
) -> None:
    """Where a ledger goes on, its stores know their scopes; where it was, nobody claims any more."""
    url = f"{target}:///{tmp_path / 'moved.db'}"
    if target == "postgres":
        url = str(request.getfixturevalue("schema_url"))
        if book.ledger.name.startswith("postgresql"):
            url = f"{url}_moved"
    store = ScopedStore(clock=book.clock)
    async with custody_of(book, store) as custody:
        await custody.write(value="x", space="user:1", actor=ACTOR)
    async with AsyncExitStack() as stack:
        runtime = testing_runtime(clock=book.clock)
        identity = book.ledger.identity
        moved = await stack.enter_async_context(
            await Ledger.open(url, create=True, runtime=runtime, identity=identity)
        )
        await move(book.ledger, moved, "elsewhere")
        other = store.handle()
        custody = await stack.enter_async_context(AsyncCoordinator(moved, stores=[other], runtime=runtime))
        assert (await custody.repair(actor="ops", reason="look")).scanned == {"scoped": 1}
        assert await StoreNotebook(moved, "scoped", runtime).get("user:1") == "uuid of user:1"
        await error_of(notebook_of(book).claim("user:2", "x"), LedgerMoved)
        with needing("user:1"):
            assert await notebook_of(book).get("user:1") == "uuid of user:1"


class Hasty(MemoryStore):
    """Takes its notebook in a way that nobody waits for."""

    async def remember_in(self, notebook: object) -> None:
        """Never run."""


async def test_a_notebook_is_taken_at_once(book: Book) -> None:
    """A coroutine would never be run, and the store would remember nothing: refused when it is configured."""
    with pytest.raises(InvalidStore, match="plain method"):
        AsyncCoordinator(book.ledger, stores=[Hasty("hasty")])


async def test_puts_at_the_same_time_look_up_and_note_together(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever their number they take a few questions and notes, and each space has what it needs noted."""
    counts: Counter[str] = Counter()

    def counting(name: str) -> Any:
        ask = getattr(book.ledger, name)

        async def counted(*given: Any, **more: Any) -> Any:
            counts[name] += 1
            return await ask(*given, **more)

        return counted

    for name in ("notes", "notes_at", "put_notes"):
        monkeypatch.setattr(book.ledger, name, counting(name))
    notebook, spaces = notebook_of(book), [f"user:{n}" for n in range(40)]

    async def put(space: str) -> None:
        with needing(space) as need:
            assert await notebook.claim("place", "here") == "here"
            await notebook.renew("place", "here")
        assert need.claims == {("scoped", "place"): "here"}

    await asyncio.gather(*map(put, spaces))
    # One by one they took six each.
    assert sum(counts.values()) < len(spaces), counts
    assert {len(await book.ledger.notes(topic)) for topic in (USES, USED)} == {len(spaces)}
