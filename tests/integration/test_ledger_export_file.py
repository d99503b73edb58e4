"""An export to a file while the ledger goes on: it holds nothing that was erased before it was done."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from fix_ledger import Book

from custody_sync.errors import ErasedMeanwhile, LedgerBroken
from custody_sync.ledger import Ledger, exporting
from custody_sync.ledger.exporting import export_file, export_lines
from custody_sync.ledger.moving import FileSource, take_over
from custody_sync.testing import testing_runtime

Erase = Callable[[], Any]


def meanwhile(monkeypatch: pytest.MonkeyPatch, ledger: Ledger, *steps: Erase) -> list[Erase]:
    """Take one step whenever an export has written a line; return the steps that are left."""
    left, read = list(steps), ledger.export

    async def export(**how: Any) -> AsyncIterator[dict[str, Any]]:
        async for row in read(**how):
            yield row
            if left:
                await left.pop(0)()

    monkeypatch.setattr(ledger, "export", export)
    monkeypatch.setattr(exporting, "PAGE", 1)
    monkeypatch.setattr(exporting, "BLOCK", 200)
    return left


async def check(file: io.BytesIO, book: Book) -> None:
    """Hold a file against what the ledger exports now, and against a ledger that is made of it."""
    lines = file.getvalue().splitlines(keepends=True)
    assert lines == [line async for line in export_lines(book.ledger)]
    url = f"sqlite:///{book.path.parent / 'made.db'}"
    async with await Ledger.open(url, create=True, runtime=testing_runtime(clock=book.clock)) as made:
        await take_over(FileSource("file", lines), made)
        assert (await made.verify(witness=False)).intact


async def test_what_is_forgotten_meanwhile_is_read_again(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often that happens: the lines before lose the value, and the forget is in the file."""
    ids = [await book.add(value=f"secret-{i}") for i in range(6)]

    def forget(i: int, **more: Any) -> Erase:
        return lambda: book.append(book.forget(ids[i], **more))

    with monkeypatch.context() as patch:
        left = meanwhile(
            patch, book.ledger, forget(3), forget(0, identity=True), forget(4), forget(1), forget(5)
        )
        file = io.BytesIO()
        await export_file(book.ledger, file)
        assert not left
    assert [i for i in range(6) if f"secret-{i}".encode() in file.getvalue()] == [2]
    await check(file, book)


async def test_the_ids_of_entries_that_go_meanwhile_are_read_again(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A removal takes them where the identity is forgotten."""
    fact_id = await book.add(held=[("s", "entry-1")])
    await book.add()
    await book.append(book.forget(fact_id, identity=True))
    with monkeypatch.context() as patch:
        meanwhile(patch, book.ledger, lambda: book.append(book.remove(fact_id, "s", "entry-1")))
        file = io.BytesIO()
        await export_file(book.ledger, file)
    assert b"entry-1" not in file.getvalue()
    await check(file, book)


async def test_forgets_that_never_pause_are_told_to(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    """After some rounds it is said what to do, and not tried for ever."""
    ids = [await book.add() for _ in range(6)]
    monkeypatch.setattr(exporting, "ROUNDS", 3)

    async def endless() -> None:
        await book.append(book.forget(ids.pop()))

    meanwhile(monkeypatch, book.ledger, endless)
    monkeypatch.setattr(exporting, "_renew", forgetting(endless))
    with pytest.raises(ErasedMeanwhile, match="while nothing is forgotten"):
        await export_file(book.ledger, io.BytesIO())


def forgetting(endless: Erase) -> Callable[..., Any]:
    """Return what reads nothing again and forgets once more."""

    async def renew(*_: object) -> None:
        await endless()

    return renew


async def test_an_event_that_is_gone_meanwhile_is_named(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that loses events is no log; the file is not taken for one."""
    fact_id = await book.add()
    await book.add()

    async def gone(seq: int) -> None:
        return None

    meanwhile(monkeypatch, book.ledger, lambda: book.append(book.forget(fact_id)))
    monkeypatch.setattr(book.ledger, "stored", gone)
    with pytest.raises(LedgerBroken) as caught:
        await export_file(book.ledger, io.BytesIO())
    assert caught.value.seq == 1
