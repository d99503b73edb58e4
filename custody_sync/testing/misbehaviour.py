"""The faults of a `MemoryStore`: each is something that a real store was seen doing."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, TypeVar

from custody_sync.errors import InvalidInput, StoreUnavailable

FOREVER: Final = math.inf
"""As a number of calls or questions: until the test says otherwise."""

Operation: TypeAlias = Literal[
    "put", "delete", "find", "list_entries", "verify_deleted", "search", "put_many", "relabel"
]
OPERATIONS: Final[frozenset[str]] = frozenset(
    ("put", "delete", "find", "list_entries", "verify_deleted", "search", "put_many", "relabel")
)

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
    delays: dict[Operation, float] = field(default_factory=dict)
    """Seconds that the reply of an operation takes; its effect is there at once."""
    _refusals: dict[Operation, _Refusal] = field(default_factory=dict)
    _lost: dict[Operation, float] = field(default_factory=dict)
    _late: dict[LatePut, float] = field(default_factory=dict)

    def refuse(
        self, operation: Operation, error: BaseException | None = None, *, times: float = FOREVER
    ) -> None:
        """Make the next calls raise without effect: the given error, or `StoreUnavailable`."""
        self._refusals[_known(operation)] = _Refusal(error, times)

    def allow(self, *operations: Operation) -> None:
        """End refusals, lost replies and delays of these operations, or of all."""
        for operation in operations or tuple(self._refusals) + tuple(self._lost) + tuple(self.delays):
            self._refusals.pop(operation, None)
            self._lost.pop(operation, None)
            self.delays.pop(operation, None)

    def lose_reply(self, operation: Operation, *, times: float = 1) -> None:
        """Let the next calls take effect and raise `StoreUnavailable` all the same."""
        self._lost[_known(operation)] = times

    def land_later(self, *, after: float | None = None, times: float = 1) -> None:
        """Let the next puts raise now and take effect after so many seconds, or when `land()` is called."""
        self._late[LatePut(after)] = times

    def check(self, operation: Operation, store: str) -> None:
        """Raise if a call of this operation is to be refused."""
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
        return _take(self._lost, operation)

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
