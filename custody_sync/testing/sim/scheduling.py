"""A loop in which two operations take turns as a schedule says, and what their order comes to.

A schedule is who begins and after which of their moves the other one goes on. A move is whatever
the other one could notice: a question to a store or to the ledger, a put, a delete, a commit; in one
process, which shares more than that, every callback. Between two moves of one operation it makes no
difference when the other one's are made, so there is nothing to choose.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Literal

from custody_sync.testing.sim.loop import Entry, VirtualLoop
from custody_sync.testing.sim.network import CALL

Turn = Literal[0, 1]
"""Which of the two operations."""


def other(turn: Turn) -> Turn:
    """Return the other one."""
    return 0 if turn else 1


@dataclass(frozen=True, slots=True)
class Schedule:
    """Who begins, and after which moves of both the turn is the other's though it could go on."""

    first: Turn = 0
    switches: tuple[int, ...] = ()

    def __str__(self) -> str:
        return ",".join(["ab"[self.first], *map(str, self.switches)])

    @classmethod
    def read(cls, raw: str) -> Schedule:
        """Return what `str` of one says.

        Raises:
            ValueError: it is none.
        """
        first, *switches = raw.split(",")
        return cls(0 if ("a", "b").index(first) == 0 else 1, tuple(map(int, switches)))


@dataclass(slots=True)
class Order:
    """What an order of moves comes to: moves that do not touch each other may be in either order.

    Two questions do not, nor do moves at two stores; whatever changes something touches all that is
    about the same thing. Orders that come to the same leave the same behind.
    """

    _last: list[int] = field(default_factory=lambda: [0, 0])
    """By operation: what its last move comes to, with all that came before and touches it."""
    _changed: dict[str, int] = field(default_factory=dict)
    _asked: dict[str, int] = field(default_factory=dict)
    """By thing: the questions about it since it was changed last."""

    def add(self, turn: Turn, thing: str, changes: bool) -> None:
        """Take in one more move."""
        asked = self._asked.get(thing, 0)
        met = (turn, thing, changes, self._last[turn], self._changed.get(thing, 0), asked if changes else 0)
        self._last[turn] = move = hash(met)
        if changes:
            self._changed[thing], self._asked[thing] = move, 0
        else:
            # A sum, so that the order of questions makes no difference.
            self._asked[thing] = asked + move

    def wait(self, now: float) -> None:
        """Take in that both wait and time passes: that touches everything."""
        self._last = [hash((last, self._last[0], self._last[1], now)) for last in self._last]

    @property
    def state(self) -> int:
        """What all so far comes to."""
        return hash((*self._last, *sorted(self._changed.items()), *sorted(self._asked.items())))


@dataclass(frozen=True, slots=True)
class Point:
    """Where both could go on: after how many moves, whose turn it was, and what all so far comes to."""

    moves: int
    turn: Turn
    state: int


class ScheduledLoop(VirtualLoop):
    """Runs callbacks in asyncio's own order, but for those of two operations, which take turns.

    What is on its way to or from a store belongs to neither and goes first: an operation's request is
    there, and answered, when its turn ends. It hears of the answer when it goes on.

    Args:
        schedule: whose turn is when.
        shared: whether both are one process's, so that every callback is a move.
    """

    def __init__(self, schedule: Schedule, *, shared: bool) -> None:
        super().__init__(random.Random(0), window=1)  # noqa: S311  # nothing is drawn from it
        self.points: list[Point] = []
        """Where both could go on, in order."""
        self.order = Order()
        self.moves = 0
        self._schedule, self._shared = schedule, shared
        self._calls: tuple[int, ...] = ()
        self._turn: Turn = schedule.first
        self._decided = 0

    def take_turns(self, first: int, second: int) -> None:
        """From now on let the operations of two calls take turns."""
        self._calls = first, second

    def end_turns(self) -> None:
        """From now on run everything in asyncio's order."""
        self._calls = ()

    def moved(self, call: int, thing: str, changes: bool) -> None:
        """Note that an operation has asked or changed something; others' moves are not counted."""
        if call in self._calls and not self._shared:
            self._count(0 if call == self._calls[0] else 1, thing, changes)

    def _count(self, turn: Turn, thing: str, changes: bool) -> None:
        self.order.add(turn, thing, changes)
        self.moves += 1

    def _draw(self, ready: list[Entry]) -> Entry:
        if not self._calls:
            return ready.pop(0)
        at: dict[Turn, int] = {}
        for index, (handle, _, _, context) in enumerate(ready):
            call = context.get(CALL)
            if call not in self._calls or handle.cancelled():
                return ready.pop(index)
            at.setdefault(0 if call == self._calls[0] else 1, index)
        if len(at) == 2:
            self._choose()
        elif self._turn not in at:
            self._turn = other(self._turn)
        if self._shared:
            self._count(self._turn, "process", True)
        return ready.pop(at[self._turn])

    def _choose(self) -> None:
        if self.moves == self._decided:
            return
        self._decided = self.moves
        self.points.append(Point(self.moves, self._turn, self.order.state))
        if self.moves in self._schedule.switches:
            self._turn = other(self._turn)

    def _take_due(self) -> None:
        before = self._now
        super()._take_due()
        if self._now != before:
            self.order.wait(self._now)


__all__ = ["Order", "Point", "Schedule", "ScheduledLoop", "Turn", "other"]
