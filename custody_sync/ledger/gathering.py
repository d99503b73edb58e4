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

AT_ONCE = 3
"""Questions under way; of a ledger's five connections some are left where one of them does not answer."""


class Gathering(Generic[Q, A]):
    """Ask about one thing; those who ask in the same turn of the event loop share a question.

    Who asks while a few questions are under way waits for the first of them to end, and goes with the
    next one. So no answer was given before it was asked for, and each is as fresh as one of its own would
    be. What fails for all is asked again one by one, so that nobody fails because of a neighbour, unless
    the ledger was not to be had at all.

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
        # What cannot be told apart is the asker's own trouble, and no neighbour's.
        hash(about)
        return await desk.answer(about)


class _Desk(Generic[Q, A]):
    """The askers of one event loop."""

    def __init__(self, ask: Ask[Q, A]) -> None:
        self._ask = ask
        self._waiting: list[Asker[Q, A]] = []
        self._rounds: dict[asyncio.Task[None], list[Asker[Q, A]]] = {}
        self._broken_off: set[asyncio.Task[None]] = set()
        self._is_called = False

    async def answer(self, about: Q) -> A:
        answer: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._waiting.append((about, answer))
        self._call()
        try:
            return await answer
        except asyncio.CancelledError:
            await self._leave(answer)
            raise

    def _call(self) -> None:
        """Begin a question after whatever is ready in this turn of the loop, which belongs to it."""
        if not self._is_called and len(self._rounds) < AT_ONCE:
            self._is_called = True
            asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        self._is_called = False
        askers = [asker for asker in self._waiting if not asker[1].done()]
        self._waiting = []
        if askers:
            task = asyncio.get_running_loop().create_task(self._serve(askers))
            self._rounds[task] = askers
            # An eager task may have ended by now, and is told of all the same.
            task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        for _, answer in self._rounds.pop(task, ()):
            # Nobody waits for ever, whatever became of the question.
            if error is None:
                answer.cancel()
            elif not answer.done():
                answer.set_exception(error)
        self._broken_off.discard(task)
        if self._waiting:
            self._call()

    async def _leave(self, answer: asyncio.Future[A]) -> None:
        """Break off a question that nobody waits for any more: it must not outlast those who asked."""
        left = [
            task
            for task, askers in self._rounds.items()
            if any(each is answer for _, each in askers) and all(each.done() for _, each in askers)
        ]
        for task in left:
            if not task.done() and task not in self._broken_off:
                self._broken_off.add(task)
                task.cancel()
        if left:
            await asyncio.wait(left)

    async def _serve(self, askers: Sequence[Asker[Q, A]]) -> None:
        things = list(dict.fromkeys(about for about, _ in askers))
        try:
            answers = await self._ask(things)
            for about, answer in askers:
                if not answer.done():
                    answer.set_result(answers[about])
        except Exception as error:  # whatever it is, whoever asked has to hear of it
            if len(things) == 1 or isinstance(error, Transient):
                _refuse(askers, error)
                return
        else:
            return
        apart = ([asker for asker in askers if asker[0] == thing] for thing in things)
        await asyncio.gather(*map(self._serve, apart))


def _refuse(askers: Sequence[Asker[Q, A]], error: BaseException) -> None:
    own = error
    for _, answer in askers:
        if not answer.done():
            answer.set_exception(own)
            own = again(error)


__all__ = ["Gathering"]
