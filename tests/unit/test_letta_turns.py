"""Readings that callers share: each is answered by one that began after its question."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from custody_sync.adapters._letta_turns import InTurn
from custody_sync.errors import StoreUnavailable


class Desk:
    """Answers questions with their doubles, a batch at a time, when it is let go."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.let_go = asyncio.Event()
        self.failure: Exception | None = None

    async def __call__(self, questions: Sequence[int]) -> list[int]:
        """Answer a batch."""
        self.batches.append(list(questions))
        await self.let_go.wait()
        if self.failure is not None:
            raise self.failure
        return [question * 2 for question in questions]


async def begun(call: InTurn[int, int], *questions: int) -> list[asyncio.Task[int]]:
    """Ask, each in a task of its own, and let all of them begin."""
    tasks = [asyncio.ensure_future(call(question)) for question in questions]
    for _ in range(3):
        await asyncio.sleep(0)
    return tasks


async def test_who_comes_meanwhile_is_answered_by_the_next() -> None:
    """A question never joins a reading under way; those that come meanwhile share the next one."""
    desk = Desk()
    call = InTurn(desk)
    first = await begun(call, 1)
    later = await begun(call, 2, 3, 4)
    assert desk.batches == [[1]]
    desk.let_go.set()
    assert await asyncio.gather(*first, *later) == [2, 4, 6, 8]
    assert desk.batches == [[1], [2, 3, 4]]


async def test_who_gives_up_leaves_the_others_theirs() -> None:
    """A caller that is cancelled ends neither the reading nor its neighbours, and is not read for."""
    desk = Desk()
    call = InTurn(desk)
    first = await begun(call, 1)
    later = await begun(call, 2, 3)
    first[0].cancel()
    later[0].cancel()
    await asyncio.sleep(0)
    desk.let_go.set()
    assert await later[1] == 6
    assert desk.batches == [[1], [3]]


async def test_what_fails_is_heard_by_all_who_asked() -> None:
    """An error goes to everybody of its batch, and the next question is asked anew."""
    desk = Desk()
    call = InTurn(desk)
    desk.failure = StoreUnavailable(store="letta", operation="find", cause="test")
    desk.let_go.set()
    for task in await begun(call, 1, 2):
        with pytest.raises(StoreUnavailable):
            await task
    desk.failure = None
    assert await call(5) == 10


def test_a_second_loop_has_a_line_of_its_own() -> None:
    """What an event loop left behind is cancelled with it, and another loop is served."""

    async def leave(call: InTurn[int, int]) -> None:
        await begun(call, 1, 2)

    async def ask(call: InTurn[int, int], desk: Desk) -> int:
        desk.let_go = asyncio.Event()
        desk.let_go.set()
        return await call(3)

    desk = Desk()
    call = InTurn(desk)
    asyncio.run(leave(call))
    assert asyncio.run(ask(call, desk)) == 6
