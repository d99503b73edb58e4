"""What can go wrong in the crash matrix: the places, the kinds, and the trap that makes one happen.

A place is the n-th passage of a fault point, the n-th call of a store's method, or the n-th append.
Cases are derived from a recording of the operation, so a new passage is a new case by itself.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from typing import Any

from fix_custody import Crash, Key

from custody_sync import errors
from custody_sync.faultpoints import FaultPoint
from custody_sync.ledger import Remove, Repair
from custody_sync.model import Capability, Entry, Fact, Label
from custody_sync.testing import Faults, InlineExecutor, ManualClock, MemoryStore
from custody_sync.testing.misbehaviour import Operation

Commit = Callable[[Any], Awaitable[Any]]

APPEND = "append"
AFTER_IMAGES = 1000
UNWANTED = "unwanted"
"""No store takes a text with this word while it is picky."""


class Kind(StrEnum):
    """What happens at a place."""

    DIES = "dies"
    RAISES = "raises"
    CANCELLED = "cancelled"
    FULL = "full"
    """The commit fails, and everybody knows that it did."""
    BROKEN = "broken"
    """The commit is broken off, and nobody knows; it is not done."""
    AWAY = "away"
    """It is broken off, and so is every later one."""
    UNTOLD = "untold"
    """The commit is done, and the answer is lost."""
    LANDS_LATER = "lands_later"
    """The commit is broken off, nobody knows, and the server carries it out before the next one."""
    REQUEST_LOST = "request_lost"
    REPLY_LOST = "reply_lost"
    REFUSED = "refused"
    THROTTLED = "throttled"
    TIMES_OUT = "times_out"
    """No answer in time; a put is carried out seconds later."""


ANYWHERE = (Kind.DIES, Kind.CANCELLED, Kind.RAISES)
COMMITS = {
    FaultPoint.BEFORE_COMMIT.value: (Kind.DIES, Kind.CANCELLED, Kind.FULL, Kind.BROKEN, Kind.AWAY),
    FaultPoint.AFTER_COMMIT.value: (Kind.DIES, Kind.CANCELLED, Kind.UNTOLD),
    APPEND: (Kind.LANDS_LATER,),
}
CALLS = (Kind.REQUEST_LOST, Kind.REPLY_LOST, Kind.REFUSED, Kind.THROTTLED, Kind.TIMES_OUT)


class OurBug(Exception):
    """An error that nobody expects where no store and no ledger is called."""


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One kind of fault at one place. Written `place#n:kind`."""

    place: str
    at: int
    kind: Kind

    def __str__(self) -> str:
        return f"{self.place}#{self.at}:{self.kind}"

    @property
    def is_of_a_store(self) -> bool:
        """Tell whether it is a call to a store that goes wrong."""
        return self.kind in CALLS

    @classmethod
    def parse(cls, said: str) -> Fault:
        """Read what `str` gives."""
        place, _, rest = said.rpartition("#")
        at, _, kind = rest.partition(":")
        return cls(place, int(at), Kind(kind))


def faults_of(recorded: Sequence[str]) -> list[Fault]:
    """Return every fault at every passage of a recording, in its order."""
    seen: Counter[str] = Counter()
    found: list[Fault] = []
    for place in recorded:
        seen[place] += 1
        kinds = CALLS if place.startswith("call ") else COMMITS.get(place, ANYWHERE)
        found += [Fault(place, seen[place], kind) for kind in kinds]
    return found


class Trap:
    """The fault hook of one process after another; also told of every call to a store and every append."""

    def __init__(self) -> None:
        self.recorded: list[str] = []
        self.is_dead = self.is_armed = self.is_away = False
        self.fired: list[Fault] = []
        self.task: asyncio.Task[Any] | None = None
        self.on_death: Callable[[], None] = lambda: None
        self._faults: list[Fault] = []
        self._seen: Counter[str] = Counter()
        self._late: list[tuple[Commit, Any]] = []
        self.loose: frozenset[Key] = frozenset()
        """Entries that no event names: each has to be on record before it is deleted."""
        self.hasty: list[Key] = []
        """Those that were not."""
        self._on_record: set[Key] = set()

    def forget(self) -> None:
        """Begin a case: nothing of `loose` is on record, and nothing was deleted."""
        self.hasty, self._on_record = [], set()

    def deleting(self, key: Key) -> None:
        """Note what is deleted without anything on record."""
        if key in self.loose and key not in self._on_record:
            self.hasty.append(key)

    def arm(self, faults: Iterable[Fault], task: asyncio.Task[Any]) -> None:
        """Count from now; do each of these when its place is reached."""
        self.disarm()
        self._faults, self.task, self.is_armed = list(faults), task, True
        self.recorded, self.fired = [], []

    def disarm(self) -> None:
        """Let everything go well, in another process if this one is dead."""
        self.is_dead = self.is_armed = self.is_away = False
        self._faults, self._seen, self.task = [], Counter(), None

    def due(self, place: str) -> Kind | None:
        """Count a passage and return what is to happen at it."""
        if self.is_dead:
            raise Crash
        if not self.is_armed:
            return None
        self.recorded.append(place)
        self._seen[place] += 1
        for fault in self._faults:
            if (fault.place, fault.at) == (place, self._seen[place]):
                self.fired.append(fault)
                return fault.kind
        return None

    def appending(self, commit: Commit) -> Commit:
        """Return the same way of appending, but that it can land later than it is answered."""

        async def append(prepared: Any) -> Any:
            kind = self.due(APPEND)
            await self.land()
            if kind is Kind.LANDS_LATER:
                self._late.append((commit, prepared))
                raise errors.OutcomeUnknown(name="ledger")
            is_open = True
            try:
                return await commit(prepared)
            except (errors.LedgerFull, errors.LedgerBusy):
                is_open = False
                raise
            finally:
                # Whoever died of it, or was cancelled, may have recorded it all the same.
                if is_open:
                    self._note(prepared.draft)

        return append

    def _note(self, draft: object) -> None:
        if isinstance(draft, Remove | Repair) and draft.store is not None and draft.external_id is not None:
            self._on_record.add((draft.store, draft.external_id))

    async def land(self) -> None:
        """Let the server carry out what it was sent."""
        while self._late:
            commit, prepared = self._late.pop()
            self._note(prepared.draft)
            with suppress(errors.CustodyError):
                await commit(prepared)

    def __call__(self, point: str) -> None:
        """Reach a fault point."""
        place = FaultPoint(point).value
        kind = self.due(place)
        if self.is_away and place == FaultPoint.BEFORE_COMMIT.value:
            raise errors.OutcomeUnknown(name="ledger")
        if kind is None:
            return
        if kind is Kind.DIES:
            self.is_dead = True
            self.on_death()
            raise Crash
        if kind is Kind.CANCELLED:
            assert self.task is not None
            self.task.cancel()
            return
        self.is_away = kind is Kind.AWAY
        raise _error_of(kind, place)


def _error_of(kind: Kind, place: str) -> Exception:
    """Return what a point raises: what a ledger or a store would, or what nobody expects."""
    if kind is Kind.FULL:
        return errors.LedgerFull(name="ledger")
    if kind in (Kind.BROKEN, Kind.AWAY, Kind.UNTOLD):
        return errors.OutcomeUnknown(name="ledger")
    if place.startswith("ledger."):
        return errors.LedgerError(name="ledger", problem="it failed")
    if place.startswith("store.") and place != FaultPoint.BEFORE_COMPENSATION.value:
        return errors.StoreUnavailable(store="one", operation="call", cause="it failed")
    return OurBug()


class TrappedStore(MemoryStore):
    """A memory store that outlives the processes that call it, and that a trap can break for one call."""

    def __init__(self, name: str, trap: Trap, clock: ManualClock, **more: Any) -> None:
        super().__init__(name, clock=clock, **more)
        self._trap = trap
        self.is_picky = False
        self.gone: set[str] = set()
        """What it has called gone since it was put."""

    def _begin(self, operation: Operation) -> None:
        kind = self._trap.due(f"call {self.name}.{operation}")
        super()._begin(operation)
        told = {"store": self.name, "operation": operation}
        if kind is Kind.REQUEST_LOST:
            raise errors.StoreUnavailable(**told, cause="the request was lost")
        if kind is Kind.REFUSED:
            raise errors.StoreRefused(**told, cause="refused")
        if kind is Kind.THROTTLED:
            raise errors.StoreThrottled(**told, cause="429", retry_after=1.0)
        if kind is Kind.TIMES_OUT and operation == "put":
            self.faults.land_later(after=5.0)
        elif kind is Kind.TIMES_OUT:
            raise TimeoutError
        elif kind is Kind.REPLY_LOST:
            self.faults.lose_reply(operation)

    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        """Hold a text, unless it is not wanted."""
        if self.is_picky and UNWANTED in (fact.text or ""):
            self._begin("put")
            raise errors.StoreRefused(store=self.name, operation="put", cause="unwanted")
        return await super().put(fact, label)

    def _take(self, fact: Fact, label: Label) -> tuple[str, ...]:
        ids = super()._take(fact, label)
        self.gone -= set(ids)
        return ids

    async def delete(self, entry: Entry) -> None:
        """Delete, and let the trap know before."""
        self._trap.deleting((self.name, entry.external_id))
        await super().delete(entry)

    async def verify_deleted(self, entry: Entry) -> bool:
        """Answer, and remember what was called gone."""
        gone = await super().verify_deleted(entry)
        if gone:
            self.gone.add(entry.external_id)
        return gone

    def image(self) -> dict[str, Any]:
        """Return what is held, to be put back later."""
        return dict(self._held)

    def put_back(self, image: dict[str, Any]) -> None:
        """Hold what an image says and nothing else; ids and places go on where no image has any."""
        self._held, self._ghosts, self._late = dict(image), {}, []
        begin = AFTER_IMAGES if image else 1
        self._ids, self._places = count(begin), count(begin)
        self.faults, self.is_picky, self.gone, self._asked = Faults(), False, set(), 0


def make_stores(number: int, trap: Trap, clock: ManualClock) -> list[TrappedStore]:
    """One store takes our keys, one makes up its own, one cannot be asked by fact id."""
    return [
        TrappedStore("keys", trap, clock),
        TrappedStore("own", trap, clock, own_ids=True),
        TrappedStore("mute", trap, clock, own_ids=True, without=[Capability.FIND]),
    ][:number]


def held_by(stores: Iterable[TrappedStore], ledger_id: str) -> dict[Key, str]:
    """Return every entry with this ledger's label that a store really holds."""
    return {
        (store.name, key): entry.fact_id
        for store in stores
        for key, entry in store.snapshot().items()
        if entry.fact_id is not None and entry.ledger_id == ledger_id
    }


__all__ = ["APPEND", "Fault", "InlineExecutor", "Kind", "OurBug", "Trap", "TrappedStore", "faults_of"]
