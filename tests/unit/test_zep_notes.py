"""Notes about deleted episodes: what is replaced never leaves a moment in which nothing stands."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from custody_sync.adapters._scopes import LooseNotes
from custody_sync.adapters._zep_notes import LEFT, Notes


class Ending(LooseNotes):
    """A notebook whose process ends after so many changes."""

    def __init__(self) -> None:
        super().__init__()
        self.changes = 1_000

    async def claim(self, key: str, value: str) -> str:
        """Claim, unless the process has ended."""
        self._change()
        return await super().claim(key, value)

    async def drop(self, key: str, value: str | None = None) -> None:
        """Drop, unless the process has ended."""
        self._change()
        await super().drop(key, value)

    def _change(self) -> None:
        if self.changes <= 0:
            raise ConnectionError("the process ended here")
        self.changes -= 1


class InStep(LooseNotes):
    """A notebook of two processes, of which both have looked before either claims."""

    def __init__(self) -> None:
        super().__init__()
        self._both = asyncio.Barrier(2)
        self._first = 2

    async def claim(self, key: str, value: str) -> str:
        """Wait, the first time, until both are here."""
        if self._first:
            self._first -= 1
            await self._both.wait()
        return await super().claim(key, value)


def notes_in(book: LooseNotes) -> Notes:
    """Return the notes in a notebook."""
    graphs: Any = SimpleNamespace(notebook=book)
    return Notes(graphs)


async def test_what_is_replaced_is_gone_and_what_is_new_stands() -> None:
    """Of many replacements the last one stands, and only that."""
    notes = notes_in(LooseNotes())
    for value in ("one", "two", "two", "three"):
        await notes.replace(LEFT, "e", value)
        assert await notes.read(LEFT, "e") == [value]
    assert await notes.read(LEFT, "another") == []
    await notes.drop(LEFT, "e", ["three"])
    assert await notes.read(LEFT, "e") == []


@pytest.mark.parametrize("changes", range(3))
async def test_a_process_that_ends_leaves_something_standing(changes: int) -> None:
    """Wherever it ends, the old value or the new one is read by the next process, and then replaced."""
    book = Ending()
    notes = notes_in(book)
    await notes.replace(LEFT, "e", "old")
    await book.claim(f"{LEFT}e:2", "older")
    book.changes = changes
    with pytest.raises(ConnectionError):
        await notes.replace(LEFT, "e", "new")
    assert await notes.read(LEFT, "e")
    book.changes = 1_000
    await notes.replace(LEFT, "e", "newest")
    assert await notes.read(LEFT, "e") == ["newest"]


async def test_two_processes_that_replace_at_once_lose_neither_view() -> None:
    """What either saw stands, since each of them may have seen something that the other did not."""
    book = InStep()
    first, second = notes_in(book), notes_in(book)
    await asyncio.gather(first.replace(LEFT, "e", "a"), second.replace(LEFT, "e", "b"))
    assert sorted(await first.read(LEFT, "e")) == ["a", "b"]


async def test_a_value_that_was_noted_meanwhile_is_not_dropped() -> None:
    """Who saw that something is cleared drops what he read, not what another process found since."""
    notes = notes_in(LooseNotes())
    await notes.replace(LEFT, "e", "old")
    await notes.replace(LEFT, "e", "new")
    await notes.drop(LEFT, "e", ["old"])
    assert await notes.read(LEFT, "e") == ["new"]
