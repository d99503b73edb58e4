"""Questions of one turn of the loop share a statement, and nobody pays for a neighbour."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from custody_sync.adapters._pgvector_together import Together


class Asked:
    """Doubles numbers, refuses 13, and remembers what it was asked."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.begun: asyncio.Queue[None] = asyncio.Queue()
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def __call__(self, questions: Sequence[int]) -> list[int]:
        """Answer all of them, or fail for all of them."""
        self.calls.append(list(questions))
        self.begun.put_nowait(None)
        await self.go_on.wait()
        if 13 in questions:
            raise LookupError("13")
        return [2 * question for question in questions]


async def test_one_turn_is_one_statement() -> None:
    """Callers who ask in the same turn get their own answers from one call."""
    asked = Asked()
    together = Together(asked)
    assert await asyncio.gather(*(together(n) for n in range(5))) == [0, 2, 4, 6, 8]
    assert asked.calls == [[0, 1, 2, 3, 4]]


async def test_the_next_turn_does_not_wait() -> None:
    """A call that takes its time holds up nobody who comes later."""
    asked = Asked()
    together = Together(asked)
    asked.go_on.clear()
    first = asyncio.ensure_future(together(1))
    await asked.begun.get()
    second = asyncio.ensure_future(together(2))
    await asked.begun.get()
    asked.go_on.set()
    assert (await first, await second) == (2, 4)


async def test_only_the_bad_question_fails() -> None:
    """What fails together is asked one by one."""
    together = Together(Asked())
    answers = await asyncio.gather(*(together(n) for n in (1, 13, 2)), return_exceptions=True)
    assert (answers[0], type(answers[1]), answers[2]) == (2, LookupError, 4)


async def test_whoever_gives_up_leaves_the_others_their_answer() -> None:
    """A cancelled caller takes nothing with it."""
    asked = Asked()
    together = Together(asked)
    asked.go_on.clear()
    callers = [asyncio.ensure_future(together(n)) for n in (1, 2)]
    await asked.begun.get()
    callers[0].cancel()
    asked.go_on.set()
    assert await callers[1] == 4
    assert asked.calls == [[1, 2]]
    with pytest.raises(asyncio.CancelledError):
        await callers[0]


async def test_a_cancelled_statement_leaves_nobody_waiting() -> None:
    """Who waits for a statement that was cancelled hears of it."""

    async def cancelled(_: Sequence[int]) -> list[int]:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await Together(cancelled)(1)
