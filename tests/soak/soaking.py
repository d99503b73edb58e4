"""The soak itself: each part for its share of the time, then once more those that could go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from soak.processes import Child
from soak.records import Failure, Part, Round, State, Tally

POLL = 0.2
OVERRUN = 0.05
"""By which share of the whole time a round that has begun may go beyond its end."""


@dataclass(kw_only=True)
class Soak:
    """One soak.

    Args:
        parts: what it consists of.
        seconds: how long it goes on.
        start: the seed that everything random follows from.
        width: how many rounds of a part run at once, where they may.
        begin: starts a round.
        now: seconds on a clock that is never set back.
        sleep: waits for so many seconds.
        cpu: CPU seconds of all rounds so far.
        say: shows how far it is.
    """

    parts: Sequence[Part]
    seconds: float
    start: int
    width: int
    begin: Callable[[Part, Round], Child]
    now: Callable[[], float]
    sleep: Callable[[float], None]
    cpu: Callable[[], float]
    say: Callable[[str], None]
    tallies: list[Tally] = field(init=False)
    _rounds: dict[str, Iterator[Round]] = field(init=False)
    _running: list[tuple[Round, Child]] = field(init=False, default_factory=list)
    _ends: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        self.tallies = [Tally(part=part) for part in self.parts]
        self._rounds = {part.name: part.rounds(self.start) for part in self.parts}

    def run(self) -> bool:
        """Run until the time is up or nothing is left; return False if somebody interrupted it."""
        self._ends = self.now() + self.seconds
        try:
            for number, tally in enumerate(self.tallies):
                self._run_part(tally, self._time_for(number))
            while going_on := [tally for tally in self.tallies if self._can_go_on(tally)]:
                for tally in going_on:
                    self._run_part(tally, self._ends - self.now() if len(going_on) == 1 else self._lap(tally))
        except KeyboardInterrupt:
            return False
        return True

    def _time_for(self, number: int) -> float:
        """Return how long a part may go on: its share; a whole one also has what nobody after it needs."""
        part = self.parts[number]
        share = part.share * self.seconds
        left = self._ends - self.now()
        if part.is_whole:
            share = max(share, left - sum(later.share for later in self.parts[number + 1 :]) * self.seconds)
        return min(share, left)

    def _can_go_on(self, tally: Tally) -> bool:
        return not tally.is_exhausted and not tally.part.is_whole and self.now() < self._ends

    def _lap(self, tally: Tally) -> float:
        """Return a piece of the time that the parts before have left over."""
        return min(self._ends - self.now(), max(tally.part.share * self.seconds / 4, POLL))

    # --- one part ---------------------------------------------------------------------------

    def _run_part(self, tally: Tally, seconds: float) -> None:
        """Run rounds until the time is up; those that have begun may end, but for whole ones."""
        if seconds <= 0 or tally.is_exhausted:
            return
        began, cpu = self.now(), self.cpu()
        until = began + seconds
        try:
            while self._fill(tally, until) or self._running:
                self._collect(tally)
                if self.now() >= (until if tally.part.is_whole else self._ends + self.seconds * OVERRUN):
                    self._stop(tally)
                elif self._running:
                    self.sleep(POLL)
        finally:
            self._stop(tally)
            tally.wall_seconds += self.now() - began
            tally.cpu_seconds += self.cpu() - cpu

    def _fill(self, tally: Tally, until: float) -> bool:
        """Begin rounds until enough run; return whether one was begun."""
        width = self.width if tally.part.side_by_side else 1
        began = False
        while len(self._running) < width and self.now() < until and not tally.is_exhausted:
            following = next(self._rounds[tally.part.name], None)
            if following is None:
                tally.is_exhausted = True
                break
            self._running.append((following, self.begin(tally.part, following)))
            tally.command = tally.command or following.command
            began = True
        return began

    def _collect(self, tally: Tally) -> None:
        """Count the rounds that have ended."""
        for ran, child in [pair for pair in self._running if pair[1].ended()]:
            self._running.remove((ran, child))
            self._count(tally, ran, child, was_cut=False)

    def _stop(self, tally: Tally) -> None:
        """Cut short what still runs; what it says then is counted too."""
        for _, child in self._running:
            child.interrupt()
        while self._running:
            ran, child = self._running.pop()
            child.stop()
            self._count(tally, ran, child, was_cut=True)

    def _count(self, tally: Tally, ran: Round, child: Child, *, was_cut: bool) -> None:
        seen = tally.part.read(child.output(), ran)
        failures = list(seen.failures)
        if child.code and not was_cut and not failures:
            # A process that failed without naming what failed is a failure nevertheless.
            failures.append(Failure(what=f"ended with exit code {child.code}", command=ran.command))
        if not failures:
            child.discard()
        tally.counts.update(seen.counts)
        tally.failures += failures
        tally.rounds += 1
        tally.cut += was_cut
        tally.state = State.STOPPED if tally.cut else State.RAN
        said = ", ".join(f"{number:,} {what}" for what, number in tally.counts.items()) or "nothing counted"
        self.say(f"{tally.part.name}: {ran.about}{' cut short' if was_cut else ''}; so far {said}")
        for failure in failures:
            self.say(f"{tally.part.name}: FAILED {failure.what}\n    again: {failure.command}")
