"""Appends and erasures of a ledger, beside the rows and statements they come down to."""

from __future__ import annotations

import gc
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from _bench import RawLedger, Reader, Rows, at_once
from _ledger_log import Log, Subject
from _ledger_questions import Taken
from _ledger_raw import Recording, Statement

from custody_sync import Ledger
from custody_sync.ledger import Assert, Forget
from custody_sync.model import Fact, Placement, Provenance
from custody_sync.runtime import Runtime

AT_ONCE = 64
IN_A_ROW = 20
"""Whoever comes after the other side finds threads asleep and caches cold, so neither does each time."""
STORES = ("vectors", "memories", "agent")

Replay = Callable[[], Awaitable[float]]
"""Does by hand what was appended since the last time, and returns the seconds it took."""
Again = Callable[[list[Statement]], Awaitable[float]]
"""Does by hand what an append came down to, and returns the seconds it took."""

Pairs = tuple[list[float], list[float]]
"""The seconds that ours took, and those of the floor."""


@dataclass(frozen=True)
class Amount:
    """How much is appended and erased."""

    single: int
    rounds: int
    appends: int
    forgets: int


class Drafts:
    """Makes facts about the customers of a log, now.

    Args:
        log: where they are from.
    """

    def __init__(self, log: Log) -> None:
        self._runtime = Runtime()
        self._about: list[Subject] = log.staying(log.events)
        self._made = 0

    def make(self, count: int) -> list[Assert]:
        """Return so many asserts of new facts with three placements each."""
        return [self._make() for _ in range(count)]

    def _make(self) -> Assert:
        ids, now = self._runtime.ids, self._runtime.clock.now()
        self._made += 1
        subject, fact_id = self._about[self._made % len(self._about)], ids.fact_id(now)
        value = f"the customer moved to house {self._made} and asks for a new invoice every month"
        fact = Fact(
            fact_id=fact_id,
            space=subject.space,
            subject=subject.name,
            predicate="address",
            value=value,
            text=f"{subject.name} address: {value}",
            actor="agent:support",
            provenance=Provenance.ATTESTED,
            valid_from=now,
            receipt_id=f"turn:{self._made}",
        )
        placements = tuple(
            Placement(
                store=store,
                external_id=f"{fact_id}.{ids.generation()}",
                fact_id=fact_id,
                scope=None,
                stored_at=now,
            )
            for store in STORES
        )
        return Assert(event_id=ids.event_id(), fact=fact, placements=placements)

    def forget(self, fact_id: str) -> Forget:
        """Return the erasure of a fact."""
        return Forget(event_id=self._runtime.ids.event_id(), fact_id=fact_id, actor="bench", reason="asked")


async def append(ledger: Ledger, drafts: Sequence[Assert], at: int) -> float:
    """Append with so many under way and return the seconds it took."""
    gc.collect()
    start = time.perf_counter()
    await at_once(at, ((ledger.append, {"draft": draft}) for draft in drafts))
    return time.perf_counter() - start


class RowsFloor:
    """The rows that a SQLite ledger wrote, written again by hand in the same groups.

    Args:
        written: the file they were written to.
        copy: a copy of it from before.
        events: how many events both had.
    """

    def __init__(self, written: Path, copy: Path, events: int) -> None:
        self._reader = Reader(written)
        self._raw = RawLedger(copy)
        self._events = events

    async def replay(self) -> float:
        """Write what was appended since the last time and return the seconds it took."""
        groups: list[Rows] = self._reader.groups(after=self._events)
        gc.collect()
        start = time.perf_counter()
        for rows in groups:
            self._raw.commit(rows)
        taken = time.perf_counter() - start
        self._events += sum(len(rows.tables["events"]) for rows in groups)
        return taken

    def close(self) -> None:
        """Let go of both files."""
        self._reader.close()
        self._raw.close()


async def measure_appends(ledger: Ledger, drafts: Drafts, amount: Amount, replay: Replay) -> dict[str, Taken]:
    """Alternate appends, 64 at once, with the rows they come down to."""
    ours, bare = [], []
    for _ in range(amount.rounds):
        ours.append(await append(ledger, drafts.make(amount.appends), AT_ONCE) / amount.appends)
        bare.append(await replay() / amount.appends)
    return {f"append {AT_ONCE}": Taken.of(ours, bare)}


async def measure_singles(
    ledger: Ledger, drafts: Drafts, amount: Amount, recording: Recording, again: Again
) -> dict[str, Taken]:
    """Alternate rows of appends, each after the other, with rows of their statements on a copy."""
    taken: Pairs = [], []
    ready = drafts.make(amount.single)
    gc.collect()
    for row in in_rows(ready):
        await in_turns([partial(ledger.append, draft) for draft in row], recording, again, taken)
    return {"append 1": Taken.of(*taken)}


async def measure_forgets(
    ledger: Ledger,
    drafts: Drafts,
    amount: Amount,
    recording: Recording,
    replay: Callable[[list[Statement]], float],
) -> dict[str, Taken]:
    """Alternate erasures with their statements on a copy: the event, and the cleaning of the files."""
    forgets: Pairs = [], []
    erasures: Pairs = [], []
    unwatched: Pairs = [], []

    async def again(statements: list[Statement]) -> float:
        return replay(statements)

    for row in in_rows(drafts.make(amount.single)):
        await in_turns([partial(ledger.append, draft) for draft in row], recording, again, unwatched)
        forgetting = [drafts.forget(draft.fact_id) for draft in row]
        await in_turns([partial(ledger.append, forget) for forget in forgetting], recording, again, forgets)
    # Cleaning the files leaves every cache cold, so it comes last.
    for draft in drafts.make(amount.forgets):
        forget = drafts.forget(draft.fact_id)
        appending = [partial(ledger.append, draft), partial(ledger.append, forget)]
        await in_turns(appending, recording, again, unwatched)
        await in_turns([ledger.erase], recording, again, erasures)
    return {"forget": Taken.of(*forgets), "erase": Taken.of(*erasures)}


def in_rows(drafts: Sequence[Assert]) -> Iterator[Sequence[Assert]]:
    """Yield the drafts, a row of them at a time."""
    for at in range(0, len(drafts), IN_A_ROW):
        yield drafts[at : at + IN_A_ROW]


async def in_turns(
    acts: Sequence[Callable[[], Awaitable[object]]], recording: Recording, again: Again, taken: Pairs
) -> None:
    """Do one thing after the other, then all of it once more by hand, and add the seconds of each."""
    issued: list[list[Statement]] = []
    # Once for all of them: what changes a class makes everybody's next look at it slow.
    with recording() as recorder:
        for act in acts:
            start = time.perf_counter()
            await act()
            taken[0].append(time.perf_counter() - start)
            issued.append(recorder.taken())
    for statements in issued:
        taken[1].append(await again(statements))
