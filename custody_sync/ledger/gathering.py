"""One question to a ledger for many who each ask about one thing at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from custody_sync.errors import Transient
from custody_sync.ledger.grouping import again

Q = TypeVar("Q")
A = TypeVar("A")

Asker = tuple[Q, asyncio.Future[A]]
Ask = Callable[[Sequence[Q]], Awaitable[Mapping[Q, A]]]


class Gathering(Generic[Q, A]):
    """Ask about one thing; those who ask in the same turn of the event loop share a question.

    Who asks while a question is under way waits for the next one. So no answer was given before it was
    asked for, and each is as fresh as one of its own would be. What fails for all is asked again one by
    one, so that nobody fails because of a neighbour, unless the ledger was not to be had at all.

    Args:
        ask: answers about several things at once, each of them once; there is an answer about each.
    """

    def __init__(self, ask: Ask[Q, A]) -> None:
        self._ask = ask
        self._desks: WeakKeyDictionary[asyncio.AbstractEventLoop, _Desk[Q, A]] = WeakKeyDictionary()

    async def __call__(self, about: Q) -> A:
        """Return the answer about one thing; whoever gives up leaves the others theirs."""
        loop = asyncio.get_running_loop()
        desk = self._desks.get(loop)
        if desk is None:
            desk = self._desks[loop] = _Desk(self._ask)
        return await desk.answer(about)


class _Desk(Generic[Q, A]):
    """The askers of one event loop."""

    def __init__(self, ask: Ask[Q, A]) -> None:
        self._ask = ask
        self._waiting: list[Asker[Q, A]] = []
        self._served: list[Asker[Q, A]] = []
        self._clerk: asyncio.Task[None] | None = None

    async def answer(self, about: Q) -> A:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[A] = loop.create_future()
        self._waiting.append((about, answer))
        if self._clerk is None:
            # It begins after whatever is ready in this turn of the loop, which belongs to the question.
            self._clerk = loop.create_task(self._serve_all())
        try:
            return await answer
        except asyncio.CancelledError:
            await self._leave()
            raise

    async def _leave(self) -> None:
        """Break off a question that nobody waits for any more: it must not outlast those who asked."""
        clerk = self._clerk
        if clerk is not None and all(answer.done() for _, answer in (*self._served, *self._waiting)):
            # Whoever comes now has a question of their own.
            self._clerk, self._waiting = None, []
            clerk.cancel()
            await asyncio.wait([clerk])

    async def _serve_all(self) -> None:
        try:
            while self._waiting:
                self._served, self._waiting = self._waiting, []
                await self._serve(self._served)
        finally:
            if self._clerk is asyncio.current_task():
                # Somebody is left only where the loop is being torn down.
                for _, answer in self._waiting:
                    answer.cancel()
                self._clerk, self._waiting, self._served = None, [], []

    async def _serve(self, askers: Sequence[Asker[Q, A]]) -> None:
        things = list(dict.fromkeys(about for about, answer in askers if not answer.done()))
        try:
            answers = await self._ask(things)
        except asyncio.CancelledError:
            for _, answer in askers:
                answer.cancel()
            raise
        except BaseException as error:  # whatever it is, whoever asked has to hear of it
            if len(things) == 1 or isinstance(error, Transient):
                _refuse(askers, error)
                return
        else:
            for about, answer in askers:
                if not answer.done():
                    answer.set_result(answers[about])
            return
        for thing in things:
            await self._serve([(about, answer) for about, answer in askers if about == thing])


def _refuse(askers: Sequence[Asker[Q, A]], error: BaseException) -> None:
    own = error
    for _, answer in askers:
        if not answer.done():
            answer.set_exception(own)
            own = again(error)


__all__ = ["Gathering"]
