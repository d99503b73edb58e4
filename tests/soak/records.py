"""What a soak consists of, and what comes of it: parts, their rounds, what was seen, and failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

SKIPPED = "tests skipped"
"""The one count that tells of nothing that was tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One process of a part.

    Args:
        arguments: what Python is started with; `-m pytest` and so on.
        environment: what is set for it beside what is set anyway.
        about: which seeds or files these are, as shown while it runs.
    """

    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    about: str = ""

    @property
    def command(self) -> str:
        """The line that a reader types to run it again."""
        return shell_line(self.arguments, self.environment)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Something that went wrong, and the one command that shows it again."""

    what: str
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the output of one round says."""

    counts: Mapping[str, int]
    failures: tuple[Failure, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One kind of search for faults.

    Args:
        name: how it is chosen on the command line.
        title: what it does, in a few words.
        share: how much of the time is set aside for it; of all parts together 1.
        rounds: what is run, one after another, from a seed that is new in every soak.
        read: reads a round's output.
        side_by_side: whether several rounds run at once, one for each core; a round that uses every core
            by itself does not.
        is_whole: whether a round is long and means little if it is cut short. It may go on for as long
            as the parts after it keep their shares.
    """

    name: str
    title: str
    share: float
    rounds: Callable[[int], Iterator[Round]]
    read: Callable[[str, Round], Seen]
    side_by_side: bool = False
    is_whole: bool = False


class State(StrEnum):
    """How far a part came."""

    RAN = "ran"
    """All of its rounds, or those that its time was enough for, each to its end."""
    STOPPED = "stopped"
    """A round was cut short."""
    NOT_RUN = "not run"


@dataclass(slots=True, kw_only=True)
class Tally:
    """What came of a part."""

    part: Part
    state: State = State.NOT_RUN
    rounds: int = 0
    cut: int = 0
    """Rounds that were cut short: what they did before is counted as far as they said it."""
    is_exhausted: bool = False
    """Whether nothing is left that it could have run."""
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    command: str = ""
    """The first round's."""

    @property
    def counted_nothing(self) -> bool:
        """Whether rounds came to their end and tried nothing: no success, whatever their exit code."""
        tried = sum(number for what, number in self.counts.items() if what != SKIPPED)
        return self.rounds > self.cut and not tried


def shell_line(arguments: tuple[str, ...], environment: Mapping[str, str]) -> str:
    """Return a command as it is typed, with words quoted where a shell would read them otherwise."""
    words = [f"{name}={_quoted(value)}" for name, value in environment.items()]
    return " ".join([*words, "python", *map(_quoted, arguments)])


def _quoted(word: str) -> str:
    plain = all(letter.isalnum() or letter in "-_=./:,@%+" for letter in word)
    return word if word and plain else f"'{word}'"
