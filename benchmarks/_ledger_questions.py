"""What is asked of a ledger, and how long it and the bare statements take for an answer."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from _bench import median
from _ledger_log import Log
from _ledger_raw import Floor, Recording, record

from custody_sync import Ledger

Ask = Callable[[Ledger], Awaitable[Any]]

POINTS = ("open", "subject now", "subject past", "history")
"""The questions about little: their time may grow as the depth of an index does."""
MANY = 10_000


@dataclass(frozen=True, slots=True)
class Taken:
    """Medians in seconds."""

    ours: float
    floor: float

    @property
    def ratio(self) -> float:
        """How many times the floor's time ours is."""
        return self.ours / self.floor

    @classmethod
    def of(cls, ours: Sequence[float], floor: Sequence[float]) -> Taken:
        """Return the medians of two series."""
        return cls(median(ours), median(floor))


def questions(log: Log, times: int) -> dict[str, list[Ask]]:
    """Return each question, about as many different things as it is asked times."""
    rng, middle = random.Random(1), log.events // 2
    then = log.time_of(middle)
    here = rng.choices(log.staying(log.events), k=times)
    were = rng.choices(log.staying(middle), k=times)
    facts = rng.sample(log.fact_ids, min(times, len(log.fact_ids)))
    ids = rng.choices(log.fact_ids, k=MANY - 2 * MANY // 10) + rng.choices(log.orphans, k=MANY // 10)
    ids += [f"nobody-knows-{i}" for i in range(MANY // 10)]
    few = max(times // 20, 1)
    return {
        "subject now": [lambda ledger, s=s: ledger.as_of(space=s.space, subject=s.name) for s in here],
        "subject past": [
            lambda ledger, s=s: ledger.as_of(space=s.space, subject=s.name, tx_at=then) for s in were
        ],
        "history": [lambda ledger, fact=fact: ledger.history(fact) for fact in facts],
        "spaces": [lambda ledger: ledger.spaces()] * few,
        "space page": [lambda ledger, s=s: ledger.as_of(space=s.space) for s in here],
        "page": [lambda ledger: ledger.as_of()] * few * 4,
        "page past": [lambda ledger: ledger.as_of(tx_at=then)] * few,
        "known": [lambda ledger: ledger.known(ids)] * few,
    }


async def measure(
    asks: Sequence[Ask], ledger: Ledger, recorded: Ledger, recording: Recording, floor: Floor
) -> Taken:
    """Alternate a ledger's answers with the same statements by hand; both have seen the rows before.

    Args:
        asks: the question, each time about something else.
        ledger: who is asked.
        recorded: whose statements are issued by hand: the same one, or one with the same log.
        recording: notes them.
        floor: who issues them.
    """
    ours, bare = [], []
    gc.collect()
    for ask in asks:
        statements = await record(recording, lambda ask=ask: ask(recorded))
        await ask(ledger)
        floor.run(statements)
        start = time.perf_counter()
        await ask(ledger)
        ours.append(time.perf_counter() - start)
        bare.append(floor.run(statements))
    return Taken.of(ours, bare)


async def measure_opening(
    url: str, recorded_url: str, asks: Sequence[Ask], recording: Recording, floor: Floor
) -> Taken:
    """Alternate opening a ledger for a first question with connecting and asking the same by hand."""
    ours, bare = [], []
    for ask in asks:
        async with await Ledger.open(recorded_url) as recorded:
            statements = await record(recording, lambda ask=ask, recorded=recorded: ask(recorded))
        gc.collect()
        start = time.perf_counter()
        ledger = await Ledger.open(url)
        await ask(ledger)
        ours.append(time.perf_counter() - start)
        await ledger.close()
        bare.append(floor.open_and_run(statements))
    return Taken.of(ours, bare)
