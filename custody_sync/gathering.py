"""One question for many who each ask about one thing at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from custody_sync.errors import Transient
from custody_sync.errors.base import again

Q = TypeVar("Q")
A = TypeVar("A")

Ask = Callable[[Sequence[Q]], Awaitable[Mapping[Q, A]]]

FEW = 3
"""Questions to a ledger under way: of its five connections some are left where one does not answer."""


class Gathering(Generic[Q, A]):
    """Ask about one thing; those who ask in the same turn of the event loop share a question.

    A round trip costs more than what is asked. No question serves whoever came after it began, so no answer
    was given before it was asked for. What fails for all is asked again one by one, so that nobody fails
    because of a neighbour, unless whoever was asked was not to be had at all.

    Args:
        ask: answers about several things at once, each of them once; there is an answer about each.
        at_once: how many questions are under way; while they are, those who come wait for one of them to
            end, and go together. None is as many as there are turns.
    """

    def __init__(self, ask: Ask[Q, A], *, at_once: int | None = None) -> None:
        self._ask = ask
        self._at_once = at_once
        self._rounds: WeakKeyDictionary[asyncio.AbstractEventLoop, _Round[Q, A]] = WeakKeyDictionary()
        self._under_way: WeakKeyDictionary[asyncio.AbstractEventLoop, int] = WeakKeyDictionary()

    async def __call__(self, about: Q) -> A:
        """Return the answer about one thing; whoever gives up leaves the others theirs."""
        # What cannot be told apart is the asker's own trouble, and no neighbour's.
        hash(about)
        loop = asyncio.get_running_loop()
        its = self._rounds.get(loop)
        if its is None:
            its = self._rounds[loop] = _Round(self._ask)
            # After whatever is ready in this turn of the loop, which belongs to the question.
            loop.call_soon(self._begin, loop)
        return await its.answer(about)

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin the question of those who wait, unless enough are under way: then the next end begins it."""
        count = self._under_way.get(loop, 0)
        if loop not in self._rounds or (self._at_once is not None and count >= self._at_once):
            return
        task = self._rounds.pop(loop).begin()
        if task is not None:
            self._under_way[loop] = count + 1
            task.add_done_callback(partial(self._end, loop))

    def _end(self, loop: asyncio.AbstractEventLoop, _: asyncio.Task[None]) -> None:
        self._under_way[loop] -= 1
        self._begin(loop)


class _Round(Generic[Q, A]):
    """One question, and those who asked it."""

    def __init__(self, ask: Ask[Q, A]) -> None:
        self._ask = ask
        self._askers: list[tuple[Q, asyncio.Future[A]]] = []
        self._task: asyncio.Task[None] | None = None
        self._is_broken_off = False

    async def answer(self, about: Q) -> A:
        answer: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._askers.append((about, answer))
        try:
            return await answer
        except asyncio.CancelledError:
            await self._leave()
            raise

    def begin(self) -> asyncio.Task[None] | None:
        """Ask, unless all have given up already."""
        things = list(dict.fromkeys(about for about, answer in self._askers if not answer.done()))
        if things:
            self._task = asyncio.get_running_loop().create_task(self._serve(things))
            self._task.add_done_callback(self._end)
        return self._task

    async def _leave(self) -> None:
        """Break off a question that nobody waits for any more: it must not outlast those who asked."""
        task = self._task
        if task is None or task.done() or not all(answer.done() for _, answer in self._askers):
            return
        if not self._is_broken_off:
            self._is_broken_off = True
            task.cancel()
        await asyncio.wait([task])

    async def _serve(self, things: Sequence[Q]) -> None:
        try:
            answers = await self._ask(things)
            for about, answer in self._waiting_for(things):
                answer.set_result(answers[about])
        except Exception as error:  # whatever it is, whoever asked has to hear of it
            if len(things) == 1 or isinstance(error, Transient):
                self._refuse(things, error)
                return
        else:
            return
        await asyncio.gather(*(self._serve([thing]) for thing in things))

    def _waiting_for(self, things: Sequence[Q]) -> list[tuple[Q, asyncio.Future[A]]]:
        asked = set(things)
        return [(about, answer) for about, answer in self._askers if about in asked and not answer.done()]

    def _refuse(self, things: Sequence[Q], error: BaseException) -> None:
        own = error
        for _, answer in self._waiting_for(things):
            answer.set_exception(own)
            own = again(error)

    def _end(self, task: asyncio.Task[None]) -> None:
        """See that nobody waits for ever, whatever became of the question."""
        error = None if task.cancelled() else task.exception()
        for _, answer in self._askers:
            if error is None:
                answer.cancel()
            elif not answer.done():
                answer.set_exception(error)


__all__ = ["FEW", "Gathering"]
