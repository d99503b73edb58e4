"""Checking a whole ledger: is its log intact, is it all there, and do its answers follow from it.

The log is read page by page and nothing of it is believed. *Intact* says that every event is what
its hash says and follows the one before it, and that what is gone was erased. *Complete* can only be
said against a head that was kept elsewhere. *Consistent* says that everything beside the log is what a
replay of it gives. What was not checked is named.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from custody_sync.errors import LedgerBroken, LedgerDamaged, LedgerTooOld
from custody_sync.ledger.chain import GENESIS
from custody_sync.ledger.redrafting import redraft
from custody_sync.ledger.rows import Derived
from custody_sync.ledger.sqlite_shadow import Shadow
from custody_sync.ledger.state import Position
from custody_sync.ledger.storage import Storage
from custody_sync.ledger.stored import Stored, problem_of, read_stored
from custody_sync.model import Head
from custody_sync.runtime import Runtime

PAGE = 1000
NAMED = 20
"""So many rows that do not follow from the log are named; more of them add nothing."""
EXCUSES = 8
"""So often a difference may come from an erasure between two reads: each event is read but once."""
UNREADABLE = "it cannot be read, or its bytes are not those that were committed"

UNCHECKED = "what is beside the log: the log is not intact"
KEYED = "the secret that ids of keyed writes are made with: the log does not say what it was"
MAX_SEQ = (1 << 53) - 1

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What a check of a ledger found. None means that it was not checked; `not_checked` says why."""

    ledger_id: str
    head: Head
    """The last event that was looked at."""
    kinds: Mapping[str, int]
    """How many events of each kind were looked at."""
    erased: Mapping[str, int]
    """How many sections of each name are gone, each by a forget of its fact."""
    intact: bool
    """Whether every event is what its hash says, follows the one before it, and lacks only erasures."""
    first_bad: int | None = None
    """Where the log stops being intact."""
    problem: str | None = None
    complete: bool | None = None
    """Whether everything is there that heads kept elsewhere have seen."""
    compared: tuple[int, ...] = ()
    """The places of the heads it was compared with."""
    missing: str | None = None
    consistent: bool | None = None
    """Whether facts, placements and what is owed are what a replay of the log gives."""
    inconsistent: tuple[str, ...] = ()
    not_checked: tuple[str, ...] = ()

    @property
    def events(self) -> int:
        """How many events were looked at."""
        return sum(self.kinds.values())

    @property
    def found(self) -> bool:
        """True where something is wrong."""
        return not self.intact or self.complete is False or self.consistent is False

    @property
    def passed(self) -> bool:
        """True where everything was checked and nothing is wrong; never of an empty ledger."""
        return bool(self.events and self.intact and self.complete and self.consistent)


class Problem(NamedTuple):
    """What is wrong, and with which event."""

    seq: int
    text: str


@dataclass(slots=True)
class _Log:
    """What is known of a log after some of it was read; its methods run off the event loop."""

    shadow: Shadow
    replaying: bool
    heads: Mapping[int, Sequence[Head]]
    position: Position = field(default_factory=lambda: Position(0, None, GENESIS))
    kinds: Counter[str] = field(default_factory=Counter)
    erased: Counter[str] = field(default_factory=Counter)
    broken: Problem | None = None
    """Where nothing after it can be read in its place."""
    refused: Problem | None = None
    """What no ledger can have admitted."""
    differing: int | None = None
    """The place of a head that saw another event."""

    def read(self, rows: Iterable[object], upto: int) -> None:
        """Take in the events that should come next, until one is broken."""
        good: list[Stored] = []
        for row in rows:
            try:
                stored = read_stored(row)
                problem = problem_of(stored, self.position)
                if problem is None and not self.replaying:
                    redraft(stored)
            except ValueError as error:
                problem = str(error)
            else:
                if problem is None:
                    self._take(stored)
                    good.append(stored)
                    continue
            self.broken = Problem(self.position.seq + 1, problem or "")
            break
        self.shadow.note(good, upto)
        if self.replaying:
            try:
                self.shadow.replay(good)
            except LedgerBroken as error:
                self.refused, self.replaying = Problem(error.fields["seq"], error.fields["problem"]), False

    def _take(self, stored: Stored) -> None:
        self.position = stored.position()
        self.kinds[stored.doc["kind"]] += 1
        self.erased.update(stored.doc["sealed"].keys() - stored.sections.keys())
        if any(head.hash != stored.hash for head in self.heads.get(stored.seq, ())):
            self.differing = self.differing or stored.seq

    def head(self) -> Head:
        """Return the last event that was found to be in its place."""
        return Head(self.position.seq, self.position.tx_time, self.position.hash)

    def problem(self) -> Problem | None:
        """Return the first thing that is wrong with what was read."""
        found = [problem for problem in (self.broken, self.refused) if problem is not None]
        # Where the log is broken, forgets are believed no more: neither those before nor those behind it.
        if self.broken is None and (left := self.shadow.residue()) is not None:
            found.append(Problem(left[0], f"its {left[1]} is there although it was forgotten"))
        if self.broken is None and (gap := self.shadow.unexplained()) is not None:
            found.append(Problem(gap[0], f"its {gap[1]} is gone, and no forget took it"))
        return min(found, default=None)


def of_broken(error: LedgerBroken) -> Verification:
    """Return what a check finds of a ledger that cannot be opened because its log is not intact."""
    return Verification(
        ledger_id="",
        head=Head(0, None, GENESIS),
        kinds={},
        erased={},
        intact=False,
        first_bad=error.fields["seq"],
        problem=error.fields["problem"],
        not_checked=("completeness: the log cannot be read to its end", UNCHECKED),
    )


async def verify(
    storage: Storage,
    runtime: Runtime,
    heads: Sequence[Head],
    *,
    replay: bool = True,
    not_checked: Sequence[str] = (),
) -> Verification:
    """Check a ledger against its own log and against heads that were kept elsewhere.

    Args:
        storage: the ledger.
        runtime: its clock and threads.
        heads: what was seen of this ledger before; they were read before the ledger is.
        replay: whether to compare what is beside the log with a replay of it.
        not_checked: what the caller did not check, one sentence each.
    """
    executor = runtime.executor("custody-verify")

    async def run(work: Callable[..., T], *args: Any) -> T:
        return await asyncio.wrap_future(executor.submit(work, *args))

    by_seq: dict[int, list[Head]] = {}
    for head in heads:
        by_seq.setdefault(head.seq, []).append(head)
    shadow = await run(Shadow, storage.name, runtime.clock.now())
    try:
        log = _Log(shadow, replay, by_seq)
        head = await _read_log(storage, log, run)
        problem = await run(log.problem)
        kinds, erased = dict(log.kinds), dict(log.erased)
        names = [*not_checked, KEYED]
        complete, missing = _completeness(log, sorted(by_seq), names)
        consistent: bool | None = None
        inconsistent: tuple[str, ...] = ()
        if replay and problem is None:
            try:
                differing = [*await _differences(storage, log, run), *await _structure(storage)]
                consistent, inconsistent = not differing, tuple(differing)
            except LedgerTooOld:
                names.append(
                    "what is beside the log: it is of an older schema until it is opened for writing"
                )
        elif replay:
            names.append(UNCHECKED)
        else:
            names.append("what is beside the log: a replay was not asked for")
    finally:
        await run(shadow.close)
        executor.shutdown(wait=False)
    if head.seq == 0:
        names.append("anything: the ledger has no events")
    return Verification(
        ledger_id=storage.ledger_id,
        head=head,
        kinds=kinds,
        erased=erased,
        intact=problem is None,
        first_bad=None if problem is None else problem.seq,
        problem=None if problem is None else problem.text,
        complete=complete,
        compared=tuple(sorted(by_seq)),
        missing=missing,
        consistent=consistent,
        inconsistent=inconsistent,
        not_checked=tuple(names),
    )


Run = Callable[..., Any]


async def _read_log(storage: Storage, log: _Log, run: Run) -> Head:
    """Read the log to its head; further, where a forget since then may explain what is gone."""
    try:
        head = await storage.head()
    except LedgerBroken as error:
        log.broken = Problem(error.fields["seq"], error.fields["problem"])
        return log.head()
    except LedgerDamaged:
        await _read_up_to(storage, log, MAX_SEQ, run)
        log.broken = log.broken or Problem(log.position.seq + 1, "the head that the ledger keeps is gone")
        return log.head()
    while True:
        await _read_up_to(storage, log, head.seq, run)
        if log.broken is not None:
            return head
        at = log.position
        if (at.seq, at.tx_time, at.hash) != (head.seq, head.tx_time, head.hash):
            text = "the head that the ledger keeps is not that of its last event"
            if at.seq < head.seq:
                text = f"events {at.seq + 1} to {head.seq} are missing"
            log.broken = Problem(min(at.seq + 1, head.seq), text)
            return head
        beyond = await _events(storage, 1, head.seq)
        now = await storage.head()
        if now.seq == head.seq:
            if beyond:
                log.broken = Problem(head.seq + 1, "it stands behind the head that the ledger keeps")
            return head
        if await run(log.shadow.unexplained) is None:
            return head
        head = now


async def _read_up_to(storage: Storage, log: _Log, last: int, run: Run) -> None:
    size = PAGE
    while log.broken is None and log.position.seq < last:
        size = min(size, last - log.position.seq)
        try:
            rows = await storage.events(size, log.position.seq)
        except (LedgerDamaged, LedgerBroken):
            if size == 1:
                log.broken = Problem(log.position.seq + 1, UNREADABLE)
                return
            # One at a time, to name the place.
            size = 1
            continue
        if not rows:
            return
        before = log.position.seq
        await run(log.read, rows, last)
        if log.position.seq == before and log.broken is None:
            return


async def _events(storage: Storage, limit: int, after: int) -> list[dict[str, Any]]:
    try:
        return await storage.events(limit, after)
    except (LedgerDamaged, LedgerBroken):
        return [{}]


def _completeness(log: _Log, places: Sequence[int], names: list[str]) -> tuple[bool | None, str | None]:
    """Say whether the log has what heads have seen; a head before the first event has seen nothing."""
    seen = [place for place in places if place > 0]
    if not seen:
        names.append("completeness: no head was given and no witness has seen this ledger")
        return None, None
    if log.differing is not None:
        return False, f"event {log.differing} is not the one that a head kept elsewhere is of"
    if log.position.seq >= seen[-1]:
        return True, None
    if log.broken is not None and not log.broken.text.startswith("events "):
        names.append(f"completeness: the log cannot be read beyond event {log.position.seq}")
        return None, None
    return False, f"the ledger ends at event {log.position.seq}, and a head kept elsewhere is of {seen[-1]}"


async def _differences(storage: Storage, log: _Log, run: Run) -> list[str]:
    """Compare what is beside the log with its replay, each page at the very head it was read at.

    An erasure between the two takes sections out of events that were not read yet, so a difference
    counts only where the log did not go on meanwhile, or where it outlasts the erasures there can be.
    """
    found: list[str] = []
    excused: Counter[str] = Counter()
    after = ""
    while len(found) < NAMED:
        try:
            head, rows = await storage.derived(PAGE, after)
        except (LedgerDamaged, LedgerBroken):
            return [*found, f"what is beside the log cannot be read behind fact id {after!r}"]
        await _read_up_to(storage, log, head.seq, run)
        if log.broken is not None or not log.replaying:
            return [*found, f"the log changed while it was checked, at event {log.position.seq + 1}"]
        told = await run(log.shadow.derived, PAGE, after)
        full = [page[-1].fact_id for page in (rows, told) if len(page) == PAGE]
        last = min(full, default=None)
        differing = _compare(_until(rows, last), _until(told, last))
        again = [fact_id for fact_id in differing if excused[fact_id] < EXCUSES]
        if again and (now := await storage.head()).seq > head.seq:
            excused.update(again)
            await _read_up_to(storage, log, now.seq, run)
            continue
        found += differing.values()
        if last is None:
            break
        after = last
    found += await _undated(storage, log, run)
    return found[:NAMED]


async def _undated(storage: Storage, log: _Log, run: Run) -> list[str]:
    """Say of which blocks a question about the past could overlook that they have changed since.

    One that is dated late makes an answer slow and not wrong; an upgrade dates all of them so.
    """
    try:
        head, kept = await storage.blocks()
    except (LedgerDamaged, LedgerBroken):
        return ["what is kept of blocks of the log cannot be read"]
    await _read_up_to(storage, log, head.seq, run)
    told = await run(log.shadow.blocks)
    places = [block for block, changed in told.items() if not changed <= kept.get(block, 0) <= head.seq]
    return [
        f"block {block} of the log: when it changed last"
        for block in sorted({*places, *(kept.keys() - told)})
    ]


async def _structure(storage: Storage) -> list[str]:
    try:
        return await storage.structure()
    except (LedgerDamaged, LedgerBroken):
        return ["its tables and indexes cannot be checked"]


def _until(rows: Iterable[Derived], last: str | None) -> dict[str, Derived]:
    return {row.fact_id: row for row in rows if last is None or row.fact_id <= last}


_PARTS = ("events", "claim", "fact", "learned", "placements", "owed", "holds")


def _compare(kept: Mapping[str, Derived], told: Mapping[str, Derived]) -> dict[str, str]:
    """Return a sentence for each fact id whose rows differ."""
    found: dict[str, str] = {}
    for fact_id in sorted(kept.keys() | told.keys()):
        ours, theirs = kept.get(fact_id), told.get(fact_id)
        parts = [part for part in _PARTS if getattr(ours, part, None) != getattr(theirs, part, None)]
        if parts:
            found[fact_id] = f"{fact_id}: {', '.join(parts)}"
    return found


__all__ = ["Problem", "Verification", "of_broken", "verify"]
