"""Soaks of fake rounds on a clock that only sleeping moves."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from soak.records import Failure, Part, Round, Seen, Tally
from soak.report import document
from soak.soaking import Soak


class Clock:
    """Time that only sleeping moves."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.interrupt_at = float("inf")

    def sleep(self, seconds: float) -> None:
        """Move on, or be interrupted."""
        self.seconds += seconds
        if self.seconds >= self.interrupt_at:
            self.interrupt_at = float("inf")
            raise KeyboardInterrupt


class FakeChild:
    """A round that takes a while on the clock and prints one word."""

    def __init__(self, clock: Clock, takes: float, code: int, said: str) -> None:
        self.code: int | None = None
        self.was_interrupted = self.was_discarded = False
        self._clock, self._ends, self._code, self._said = clock, clock.seconds + takes, code, said

    def ended(self) -> bool:
        """Tell whether its time is over."""
        if self._clock.seconds >= self._ends:
            self.code = self._code
        return self.code is not None

    def output(self) -> str:
        """Return what it printed."""
        return self._said

    def interrupt(self) -> None:
        """Remember it."""
        self.was_interrupted = True

    def stop(self) -> None:
        """End; nobody does without an interrupt."""
        assert self.was_interrupted
        self.code = -2

    def discard(self) -> None:
        """Remember it."""
        self.was_discarded = True


def counted(output: str, ran: Round) -> Seen:
    """Count a round; one that prints a failure names it."""
    failures = (Failure(what=output, command=f"again {ran.about}"),) if output.startswith("broken") else ()
    return Seen(counts={"rounds": 1}, failures=failures)


def endless(start: int) -> Iterator[Round]:
    """Yield rounds without an end."""
    return (Round(arguments=("-m", "it", str(n)), about=str(n)) for n in itertools.count(start))


def single(start: int) -> Iterator[Round]:
    """Yield one round."""
    yield Round(arguments=("-m", "whole"), about="all")


def part(name: str, share: float, *, is_whole: bool = False, **more: Any) -> Part:
    """Return a part that goes on for ever, or a whole one."""
    told: dict[str, Any] = {"title": name, "rounds": single if is_whole else endless, "read": counted} | more
    return Part(name=name, share=share, is_whole=is_whole, **told)


class Bench:
    """A soak of fake rounds: how long each takes and how it ends are given by part.

    Args:
        parts: the parts.
        seconds: how long it goes on.
        takes: seconds of a round, 1 by default.
        ends: exit code and output of a round, by the part's name and the round's number.
    """

    def __init__(
        self, parts: list[Part], seconds: float, *, takes: dict[str, float] | None = None, ends: Any = None
    ) -> None:
        self.clock, self.children, self.said = Clock(), list[FakeChild](), list[str]()
        self.most_at_once = 0
        takes, ends = takes or {}, ends or {}

        def begin(of: Part, ran: Round) -> FakeChild:
            code, said = ends.get((of.name, ran.about), (0, "fine"))
            self.children.append(FakeChild(self.clock, takes.get(of.name, 1.0), code, said))
            self.most_at_once = max(self.most_at_once, sum(c.code is None for c in self.children))
            return self.children[-1]

        self.soak = Soak(
            parts=parts,
            seconds=seconds,
            start=0,
            width=2,
            begin=begin,
            now=lambda: self.clock.seconds,
            sleep=self.clock.sleep,
            cpu=lambda: 2 * self.clock.seconds,
            say=self.said.append,
        )

    def run(self) -> dict[str, Tally]:
        """Soak, and return what came of each part."""
        self.finished = self.soak.run()
        return {tally.part.name: tally for tally in self.soak.tallies}


def reported(tallies: list[Tally], *, interrupted: bool = False) -> dict[str, Any]:
    """Return the document of some tallies."""
    machine = {"system": "Linux x86_64", "cores": 2, "memory_gb": 4.0, "python": "CPython 3.11.7"}
    about = {"commit": "c0ffee", "machine": machine, "interrupted": interrupted, "left_out": ["x"]}
    began = datetime(2026, 5, 4, 3, 2, tzinfo=UTC)
    return document(tallies, began=began, hours=0.5, start=9, about=about)
