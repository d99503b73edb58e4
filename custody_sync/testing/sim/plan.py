"""What happens in one run: operations, faults and waits, all drawn from the seed before it begins.

A plan is data: a run can be repeated with some of its steps left out, or without their faults,
which is how a failing one is made small.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from custody_sync.faultpoints import FaultPoint
from custody_sync.testing.sim.disk import DiskFault
from custody_sync.testing.sim.network import NetFault

KINDS = ("keys", "own", "mute", "parts")
"""Stores: one takes our keys, one makes up its own, one cannot be asked by fact id, one splits a text."""
CHOICES: Mapping[str, int] = {
    "write": 22,
    "write_keyed": 7,
    "write_claimed": 5,
    "write_later": 3,
    "write_ending": 3,
    "write_naive": 1,
    "supersede": 12,
    "supersede_claimed": 3,
    "confirm": 6,
    "retract": 9,
    "forget": 8,
    "hold": 3,
    "release": 3,
    "repair": 8,
    "repair_before": 3,
    "verify": 3,
    "expire": 2,
    "recall": 9,
    "reconcile": 6,
    "adopt": 6,
    "backfill": 4,
    "forget_where": 5,
}
"""Operations, and how often each is drawn."""
POINTS = tuple(FaultPoint)
"""Where a process may die."""
RACES = (
    "supersede",
    "supersede",
    "retract",
    "forget",
    "hold",
    "confirm",
    "repair",
    "write_keyed",
    "recall",
    "reconcile",
)
"""What is drawn as the second of two that run at once on one fact."""
GAPS = (0.0, 0.0, 0.0, 0.5, 20.0, 61.0, 301.0, 599.0, 661.0)
LIES = (
    "index_lag",
    "broken_index",
    "put_lag",
    "silent_delete",
    "short_listing",
    "breaking_listing",
    "pending",
    "lost_entries",
)
OPERATIONS = (
    "put",
    "put",
    "put",
    "delete",
    "delete",
    "find",
    "verify_deleted",
    "verify_deleted",
    "list_entries",
    "search",
    "relabel",
)


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong from its step on.

    `what` says which: `net` (a call of a store), `away` (a store for a while), `lie` (a store until it
    is healed), `disk` (commits), `gone` (the ledger for a while), `step` (a process dies after so many
    steps), `point` (it dies at a fault point), `cancel` (a caller gives up), `clock` (a clock is set).
    """

    what: Literal["net", "away", "lie", "disk", "gone", "step", "point", "cancel", "clock"]
    kind: str = ""
    store: int = 0
    operation: str = ""
    number: float = 1

    def __str__(self) -> str:
        parts = [self.what, self.kind, self.operation, f"{self.store}", f"{self.number:g}"]
        return " ".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class Step:
    """One operation, on whose behalf, and what goes wrong with it."""

    number: int
    process: int
    operation: str
    pick: int
    """Which of the facts known by then it is about."""
    gap: float = 0.0
    """Seconds that pass before it."""
    alone: bool = True
    """Whether nothing else of the run goes on when it begins."""
    heals: bool = False
    """Whether all faults end before it."""
    faults: tuple[Fault, ...] = ()

    def __str__(self) -> str:
        said = [f"{self.number}: {self.operation} #{self.pick} by process {self.process}"]
        said += [f"after {self.gap:g} s"] if self.gap else []
        said += ["at the same time"] if not self.alone else []
        said += ["healed"] if self.heals else []
        return ", ".join(said + [f"[{fault}]" for fault in self.faults])


@dataclass(frozen=True, slots=True)
class Plan:
    """A run before it begins."""

    seed: int
    stores: tuple[str, ...]
    keeps: tuple[bool, ...]
    """Which stores keep what is superseded."""
    skews: tuple[float, ...]
    """How far ahead each process's clock is; there is one process for each."""
    slow: float
    """How long a message takes at most."""
    steps: tuple[Step, ...]
    length: int | None = None
    """How many operations it was told to have."""
    kept: tuple[int, ...] | None = None
    """Which steps are left of the seed's own, if not all."""
    calmed: tuple[int, ...] = ()
    """Which steps were left without their faults."""

    @classmethod
    def draw(cls, seed: int, *, steps: int | None = None) -> Plan:
        """Draw a plan from a seed; the same seed gives the same plan."""
        chance = random.Random(f"plan {seed}")  # noqa: S311  # a seeded generator is the point
        stores = tuple(chance.sample(KINDS, chance.choice((1, 2, 2, 3))))
        skews = tuple(round(chance.uniform(-50, 50), 3) for _ in range(chance.choice((1, 2, 2, 3))))
        length = chance.randint(2, 7) if steps is None else steps
        trouble = chance.choice((0.15, 0.35, 0.6))
        drawn = tuple(_step(chance, number, len(stores), len(skews), trouble) for number in range(length))
        return cls(
            seed=seed,
            stores=stores,
            keeps=tuple(chance.random() < 0.15 for _ in stores),
            skews=skews,
            slow=chance.choice((0.0, 0.0, 0.3, 4.0)),
            steps=drawn,
            length=steps,
        )

    def only(self, kept: Sequence[int], calmed: Sequence[int] = ()) -> Plan:
        """Return the same with only some of its steps, and some of those without faults."""
        chosen, calm = frozenset(kept), frozenset(calmed)
        steps = tuple(
            replace(step, faults=(), heals=False) if step.number in calm else step
            for step in self.steps
            if step.number in chosen
        )
        numbers = tuple(step.number for step in steps)
        return replace(self, steps=steps, kept=numbers, calmed=tuple(n for n in numbers if n in calm))

    @property
    def command(self) -> str:
        """The one command that repeats the run."""
        said = f"python -m custody_sync.testing.sim --seed {self.seed}"
        if self.length is not None:
            said += f" --steps {self.length}"
        if self.kept is not None:
            said += f" --keep {','.join(map(str, self.kept)) or 'none'}"
        if self.calmed:
            said += f" --calm {','.join(map(str, self.calmed))}"
        return said

    def __str__(self) -> str:
        stores = ", ".join(
            f"{name} (keeps)" if keeps else name for name, keeps in zip(self.stores, self.keeps, strict=True)
        )
        skews = ", ".join(f"{skew:+g} s" for skew in self.skews)
        head = f"seed {self.seed}: stores {stores}; clocks {skews}; messages up to {self.slow:g} s"
        return "\n".join([head, *(f"  {step}" for step in self.steps)])


def _step(chance: random.Random, number: int, stores: int, processes: int, trouble: float) -> Step:
    races = number > 1 and chance.random() < 0.3
    if races:
        operation = chance.choice(RACES)
    else:
        (operation,) = chance.choices(list(CHOICES), weights=list(CHOICES.values()))
    if number < 2:
        operation = chance.choice(("write", "write", "write", "write_claimed", "write_keyed"))
    faults: tuple[Fault, ...] = ()
    if chance.random() < trouble:
        faults = tuple(_fault(chance, stores) for _ in range(chance.choice((1, 1, 1, 2))))
    return Step(
        number=number,
        process=chance.randrange(processes),
        operation=operation,
        pick=chance.randrange(6),
        gap=0.0 if races else chance.choice(GAPS),
        alone=not races,
        heals=chance.random() < 0.2,
        faults=faults,
    )


def _fault(chance: random.Random, stores: int) -> Fault:
    store = chance.randrange(stores)
    what = chance.choices(
        ("net", "away", "lie", "disk", "gone", "step", "point", "cancel", "clock"),
        weights=(30, 5, 14, 14, 4, 16, 9, 4, 2),
    )[0]
    if what == "net":
        kind = chance.choice(list(NetFault)).value
        return Fault("net", kind, store, chance.choice(OPERATIONS), chance.choice((1, 1, 1, 2, 5)))
    if what == "away":
        return Fault("away", store=store, number=chance.choice((0.5, 5.0, 400.0)))
    if what == "lie":
        return Fault("lie", chance.choice(LIES), store, number=chance.choice((1, 2, 5)))
    if what == "disk":
        return Fault("disk", chance.choice(list(DiskFault)).value, number=chance.choice((1, 1, 2, 3, 6)))
    if what == "gone":
        return Fault("gone", number=chance.choice((0.5, 5.0, 400.0)))
    if what == "point":
        return Fault("point", chance.choice(POINTS).value)
    if what == "clock":
        return Fault("clock", number=round(chance.uniform(-50, 50), 3))
    return Fault("cancel" if what == "cancel" else "step", number=int(1 + 80 * chance.random() ** 2))


__all__ = ["Fault", "Plan", "Step"]
