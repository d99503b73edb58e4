"""Readings that many callers share: who comes while one is under way is answered by the next."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

Q = TypeVar("Q")
A = TypeVar("A")


class InTurn(Generic[Q, A]):
    """Answer together what was asked while the answer before was being made.

    A whole archive has to be read for one question, and a sweep has hundreds. A reading that had
    already begun would be no answer: what it passed by may have changed before the question came.

    Args:
        ask: Answers several questions, in their order.
    """

    def __init__(self, ask: Callable[[Sequence[Q]], Awaitable[Sequence[A]]]) -> None:
        self._ask = ask
        self._lines: WeakKeyDictionary[asyncio.AbstractEventLoop, list[tuple[Q, asyncio.Future[A]]]] = (
            WeakKeyDictionary()
        )
        self._under_way: set[asyncio.Task[None]] = set()

    async def __call__(self, question: Q) -> A:
        """Return the answer to one question; whoever gives up leaves the others theirs."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[A] = loop.create_future()
        line = self._lines.get(loop)
        if line is not None:
            line.append((question, answer))
            return await answer
        line = self._lines[loop] = [(question, answer)]
        task = loop.create_task(self._serve(loop, line))
        # The loop itself holds tasks only weakly.
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return await answer

    async def _serve(self, loop: asyncio.AbstractEventLoop, line: list[tuple[Q, asyncio.Future[A]]]) -> None:
        try:
            while line:
                asked = [(question, answer) for question, answer in line if not answer.done()]
                line.clear()
                if asked:
                    await self._answer(asked)
        finally:
            del self._lines[loop]
            for _, answer in line:
                answer.cancel()

    async def _answer(self, asked: Sequence[tuple[Q, asyncio.Future[A]]]) -> None:
        try:
            answers = await self._ask([question for question, _ in asked])
        except asyncio.CancelledError:
            for _, answer in asked:
                answer.cancel()
            raise
        except Exception as error:  # whatever it is, the callers have to hear of it
            for _, answer in asked:
                if not answer.done():
                    answer.set_exception(error)
            return
        for (_, answer), said in zip(asked, answers, strict=True):
            if not answer.done():
                answer.set_result(said)


__all__ = ["InTurn"]
