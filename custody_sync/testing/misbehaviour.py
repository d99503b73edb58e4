"""The faults of a `MemoryStore`: each is something that a real store was seen doing."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, TypeVar

from custody_sync.errors import InvalidInput, StoreThrottled, StoreUnavailable

FOREVER: Final = math.inf
"""As a number of calls or questions: until the test says otherwise."""

Operation: TypeAlias = Literal[
    "put", "delete", "find", "list_entries", "verify_deleted", "search", "put_many", "relabel"
]
OPERATIONS: Final[frozenset[str]] = frozenset(
    ("put", "delete", "find", "list_entries", "verify_deleted", "search", "put_many", "relabel")
)

WRITES: Final[frozenset[str]] = frozenset(("put", "delete", "put_many", "relabel"))

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class LatePut:
    """A put that answers with an error and takes effect afterwards."""

    after: float | None
    """Seconds until it lands by itself; None waits for `MemoryStore.land()`."""


@dataclass(frozen=True, slots=True)
class _Refusal:
    error: BaseException | None
    times: float


@dataclass(slots=True)
class Faults:
    """What a `MemoryStore` does wrong. All fields may be changed while it is in use.

    A question is a call of `search` or `verify_deleted`.
    """

    index_lag: float = 0
    """For how many questions after its delete an entry is still shown; `FOREVER` is a broken index."""
    put_lag: float = 0
    """For how many questions after its put an entry is not yet searchable."""
    silent_delete: bool = False
    """A delete says yes and does nothing."""
    shared_ids: bool = False
    """A put of a text that is already there returns the ids it has, under the label it has."""
    repeat_pages: bool = False
    """Each page of a listing begins with the last entry of the page before."""
    list_breaks_after: int | None = None
    """A listing raises after this many entries."""
    rough_pages: bool = False
    """The pages behind a listing each begin with the last row of the page before; the store copes."""
    short_listings: float = 0
    """In how many listings the second page lacks its first row; the store notices, and raises."""
    pending: bool = False
    """Puts and deletes are accepted and never carried out."""
    lost_writes: float = 0
    """How many of the next writes, whichever they are, take effect and have their reply lost."""
    empty_replies: float = 0
    """How many of the next writes are carried out and answered with nothing, no ids above all."""
    delays: dict[Operation, float] = field(default_factory=dict)
    """Seconds that the reply of an operation takes; its effect is there at once."""
    _refusals: dict[Operation, _Refusal] = field(default_factory=dict)
    _lost: dict[Operation, float] = field(default_factory=dict)
    _late: dict[LatePut, float] = field(default_factory=dict)
    _turned_away: float = 0
    _throttled: bool = False

    def refuse(
        self, operation: Operation, error: BaseException | None = None, *, times: float = FOREVER
    ) -> None:
        """Make the next calls raise without effect: the given error, or `StoreUnavailable`."""
        self._refusals[_known(operation)] = _Refusal(error, times)

    def allow(self, *operations: Operation) -> None:
        """End refusals, lost replies and delays of these operations; without any, whatever stops a call."""
        if not operations:
            self._turned_away = self.lost_writes = self.empty_replies = 0
            self.pending = False
        for operation in operations or tuple(self._refusals) + tuple(self._lost) + tuple(self.delays):
            self._refusals.pop(operation, None)
            self._lost.pop(operation, None)
            self.delays.pop(operation, None)

    def turn_away(self, *, times: float = 1, throttled: bool = False) -> None:
        """Turn the next calls away, whichever they are: `StoreThrottled`, or as a reset connection does."""
        self._turned_away, self._throttled = times, throttled

    def lose_reply(self, operation: Operation, *, times: float = 1) -> None:
        """Let the next calls take effect and raise `StoreUnavailable` all the same."""
        self._lost[_known(operation)] = times

    def land_later(self, *, after: float | None = None, times: float = 1) -> None:
        """Let the next puts raise now and take effect after so many seconds, or when `land()` is called."""
        self._late[LatePut(after)] = times

    def check(self, operation: Operation, store: str) -> None:
        """Raise if a call of this operation is to be refused."""
        if self._turned_away > 0:
            self._turned_away -= 1
            if self._throttled:
                raise StoreThrottled(store=store, operation=operation, cause="throttled", retry_after=0.0)
            raise StoreUnavailable(store=store, operation=operation, cause="reset")
        refusal = self._refusals.get(operation)
        if refusal is None:
            return
        left = refusal.times - 1
        if left > 0:
            self._refusals[operation] = _Refusal(refusal.error, left)
        else:
            del self._refusals[operation]
        if refusal.error is not None:
            raise refusal.error
        raise StoreUnavailable(store=store, operation=operation, cause="refused")

    def take_lost_reply(self, operation: Operation) -> bool:
        """Return True if this reply is to be lost, and count it."""
        if operation in WRITES and self.lost_writes > 0:
            self.lost_writes -= 1
            return True
        return _take(self._lost, operation)

    def take_empty_reply(self) -> bool:
        """Return True if this write is to be answered with nothing, and count it."""
        empty = self.empty_replies > 0
        self.empty_replies -= empty
        return empty

    def take_short_listing(self) -> bool:
        """Return True if this listing is to lack a row, and count it."""
        short = self.short_listings > 0
        self.short_listings -= short
        return short

    def take_late_put(self) -> LatePut | None:
        """Return how this put is to be late, if it is, and count it."""
        late = next(iter(self._late), None)
        if late is not None:
            _take(self._late, late)
        return late


def _known(operation: Operation) -> Operation:
    if operation not in OPERATIONS:
        raise InvalidInput(field="operation", problem=f"{operation!r} is not one of {sorted(OPERATIONS)}")
    return operation


def _take(left: dict[K, float], key: K) -> bool:
    if key not in left:
        return False
    left[key] -= 1
    if left[key] <= 0:
        del left[key]
    return True
