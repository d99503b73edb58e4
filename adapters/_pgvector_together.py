"""One statement for the questions of many callers who each ask about one row."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Q = TypeVar("Q")
A = TypeVar("A")


class Together(Generic[Q, A]):
    """Put the questions of one turn of the event loop into one statement.

    A sweep asks about thousands of rows, and a round trip costs more than the question does. What
    fails together is asked again one by one, so that nobody fails because of a neighbour.

    Args:
        ask: Answers several questions, in their order.
    """

    def __init__(self, ask: Callable[[Sequence[Q]], Awaitable[Sequence[A]]]) -> None:
        self._ask = ask
        self._waiting: list[tuple[Q, asyncio.Future[A]]] = []
        self._under_way: set[asyncio.Task[None]] = set()

    async def __call__(self, question: Q) -> A:
        """Return the answer to one question; whoever gives up leaves the others theirs."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[A] = loop.create_future()
        self._waiting.append((question, answer))
        if len(self._waiting) == 1:
            loop.call_soon(self._begin)
        return await answer

    def _begin(self) -> None:
        waiting, self._waiting = self._waiting, []
        task = asyncio.ensure_future(self._answer(waiting))
        # The loop itself holds tasks only weakly.
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _answer(self, waiting: Sequence[tuple[Q, asyncio.Future[A]]]) -> None:
        try:
            answers = await self._ask([question for question, _ in waiting])
        except asyncio.CancelledError:
            for _, future in waiting:
                future.cancel()
            raise
        except Exception as error:  # whatever it is, the callers have to hear of it
            if len(waiting) == 1:
                _settle(waiting[0][1], error)
            else:
                await asyncio.gather(*(self._answer([one]) for one in waiting))
            return
        for (_, future), answer in zip(waiting, answers, strict=True):
            _settle(future, answer)


def _settle(future: asyncio.Future[A], answer: A | Exception) -> None:
    if future.done():
        return
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)
