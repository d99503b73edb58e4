"""The soak itself: each part for its share of the time, then once more those that could go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from soak.processes import Child
from soak.records import Failure, Part, Round, Seen, State, Tally

POLL = 0.2
OVERRUN = 0.05
"""By which share of the whole time a round that has begun may go beyond its end."""
GRACE = 300.0
"""Seconds that a round has beyond the share of its part before it is held to hang."""
UNREADABLE = (LookupError, ValueError, TypeError, AttributeError)
"""What reading an output raises when it is not what its part prints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A round that has begun."""

    round: Round
    child: Child
    began: float


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
    _running: list[Running] = field(init=False, default_factory=list)
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
                self._end_what_hangs(tally)
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
            try:
                child = self.begin(tally.part, following)
            except OSError as error:
                # Whatever keeps one from beginning keeps the next one too: no room, no processes.
                tally.is_exhausted = True
                self._add(tally, following, _of(following, f"could not be begun ({type(error).__name__})"))
                break
            self._running.append(Running(round=following, child=child, began=self.now()))
            tally.command = tally.command or following.command
            began = True
        return began

    def _collect(self, tally: Tally) -> None:
        """Count the rounds that have ended."""
        for one in [one for one in self._running if one.child.ended()]:
            self._running.remove(one)
            self._count(tally, one)

    def _end_what_hangs(self, tally: Tally) -> None:
        """Stop what runs for longer than a round of its part would, so that other parts have their time.

        A whole round has no limit but its time: it is stopped at the end of that, and said to be cut short.
        """
        limit = tally.part.share * self.seconds + GRACE
        for one in [one for one in self._running if self.now() - one.began >= limit]:
            if not tally.part.is_whole:
                self._running.remove(one)
                one.child.interrupt()
                one.child.stop()
                self._count(tally, one, was_cut=True, hung=True)

    def _stop(self, tally: Tally) -> None:
        """Cut short what still runs; what it says then is counted too."""
        for one in self._running:
            one.child.interrupt()
        while self._running:
            one = self._running.pop()
            one.child.stop()
            self._count(tally, one, was_cut=True)

    def _count(self, tally: Tally, one: Running, *, was_cut: bool = False, hung: bool = False) -> None:
        seen = _read(tally.part, one)
        failures = list(seen.failures)
        if hung:
            failures.append(_failure(one.round, f"did not end within {self.now() - one.began:,.0f} seconds"))
        if one.child.code and not was_cut and not failures:
            # A process that failed without naming what failed is a failure nevertheless.
            failures.append(_failure(one.round, f"ended with exit code {one.child.code}"))
        if not failures:
            # A log that stays is in nobody's way.
            with suppress(OSError):
                one.child.discard()
        self._add(tally, one.round, Seen(counts=seen.counts, failures=tuple(failures)), was_cut=was_cut)

    def _add(self, tally: Tally, ran: Round, seen: Seen, *, was_cut: bool = False) -> None:
        tally.counts.update(seen.counts)
        tally.failures += seen.failures
        tally.rounds += 1
        tally.cut += was_cut
        tally.state = State.STOPPED if tally.cut else State.RAN
        said = ", ".join(f"{number:,} {what}" for what, number in tally.counts.items()) or "nothing counted"
        self.say(f"{tally.part.name}: {ran.about}{' cut short' if was_cut else ''}; so far {said}")
        for failure in seen.failures:
            self.say(f"{tally.part.name}: FAILED {failure.what}\n    again: {failure.command}")


def _read(part: Part, one: Running) -> Seen:
    """Return what a round printed; one that cannot be read has failed, whatever its exit code."""
    try:
        return part.read(one.child.output(), one.round)
    except OSError:
        return _of(one.round, "its log cannot be read")
    except UNREADABLE:
        return _of(one.round, "its output cannot be read")


def _of(ran: Round, what: str) -> Seen:
    return Seen(counts={}, failures=(_failure(ran, what),))


def _failure(ran: Round, what: str) -> Failure:
    return Failure(what=what, command=ran.command)
