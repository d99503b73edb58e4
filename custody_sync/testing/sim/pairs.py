"""Two operations on one fact: which there are, what they find, and what they come to."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from custody_sync.testing.sim.judge import Violation
from custody_sync.testing.sim.scheduling import Point, Schedule
from custody_sync.testing.sim.world import Outcome

OPERATIONS = (
    "write",
    "write_keyed",
    "supersede",
    "retract",
    "forget",
    "repair",
    "confirm",
    "hold",
    "release",
    "expire",
    "recall",
    "verify",
)
"""What is tried two and two, each with itself as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What two operations find: a fact, which superseded another one eleven minutes ago.

    Where one of the two confirms there is a claim that is to replace the fact, and where one releases, a
    hold stands on it.
    """

    processes: int = 2
    """Whether they are one process's, or each has its own with a clock of its own."""
    stores: int = 1
    owing: bool = False
    """Whether a store did not take the removal of the first fact, and a keyed write died half done."""
    claim: bool = False
    """Whether the claim is what the one that does not confirm is about."""

    def __str__(self) -> str:
        said = [f"{self.processes}p{self.stores}s"]
        said += ["owing"] if self.owing else []
        said += ["claim"] if self.claim else []
        return "-".join(said)

    @classmethod
    def read(cls, raw: str) -> Setting:
        """Return what `str` of one says.

        Raises:
            ValueError: it is none.
        """
        return SETTINGS[[str(one) for one in SETTINGS].index(raw)]


SETTINGS = tuple(
    Setting(processes=processes, stores=stores, owing=owing, claim=claim)
    for processes, stores, owing, claim in product((2, 1), (1, 2), (True, False), (False, True))
)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two operations on one fact."""

    first: str
    second: str

    def __str__(self) -> str:
        return f"{self.first}:{self.second}"

    @classmethod
    def read(cls, raw: str) -> Pair:
        """Return what `str` of one says, in either order.

        Raises:
            ValueError: it is none.
        """
        first, _, second = raw.partition(":")
        if not {first, second} <= set(OPERATIONS):
            raise ValueError(raw)
        return Pair(*sorted((first, second), key=OPERATIONS.index))

    @property
    def both(self) -> tuple[str, str]:
        """Their names."""
        return self.first, self.second

    @property
    def settings(self) -> tuple[Setting, ...]:
        """The settings that make a difference to them."""
        differs = "confirm" in self.both and self.first != self.second
        return tuple(one for one in SETTINGS if differs or not one.claim)


PAIRS = tuple(Pair(first, second) for at, first in enumerate(OPERATIONS) for second in OPERATIONS[at:])


@dataclass(frozen=True, slots=True)
class Came:
    """What two operations come to: how each ended, and what the log says of every fact."""

    ended: tuple[str, str]
    """`done`, or the code of the error."""
    facts: tuple[tuple[str, str], ...]
    """Of every fact, by the words that it has in every run, what it is, such as `covered held`."""

    def count(self, state: str) -> int:
        """Return how many facts are something."""
        return sum(state in is_now.split() for _, is_now in self.facts)

    def __str__(self) -> str:
        return f"{' and '.join(self.ended)}: {', '.join(' '.join(fact) for fact in self.facts)}"


@dataclass(frozen=True, slots=True)
class Run:
    """One schedule, carried out."""

    pair: Pair
    setting: Setting
    schedule: Schedule
    outcome: Outcome
    came: Came
    violation: Violation | None
    """What does not hold: an invariant, or what the two results say against each other."""
    points: tuple[Point, ...]
    """Where both could have gone on."""
    state: int
    """What the order of all their moves comes to."""

    @property
    def command(self) -> str:
        """The one command that repeats it."""
        told = f"--interleave {self.pair} --setting {self.setting} --order {self.schedule}"
        return f"python -m custody_sync.testing.sim {told}"

    def __str__(self) -> str:
        return f"{self.violation or 'every invariant holds'}\n  came to {self.came}\nagain: {self.command}"


__all__ = ["OPERATIONS", "PAIRS", "SETTINGS", "Came", "Pair", "Run", "Setting"]
