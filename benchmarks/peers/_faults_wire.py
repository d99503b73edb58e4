"""The wire between a process and what outlives it, on which every peer gets the same faults.

Each call of a store's client goes through it, and each call of what a peer keeps beside the store: a
record manager, a history, a ledger. One fault strikes one call, or one operation, of a whole story.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from inspect import isawaitable
from typing import Any

from custody_sync.faultpoints import FaultPoint

RECORD = "record"
"""What a peer keeps beside its stores, as the name of a place that is called."""


class Kind(StrEnum):
    """What a call is for."""

    PUT = "put"
    DELETE = "delete"
    ASK = "ask"
    RECORD = "record"


class Fault(StrEnum):
    """What happens to a call; those of the record, and of a store that is away, to a whole operation."""

    REQUEST_LOST = "request lost"
    REPLY_LOST = "reply lost"
    REFUSED = "refused"
    THROTTLED = "throttled"
    TIMEOUT = "timeout, done later"
    DIES_BEFORE = "process dies before the call"
    DIES_AFTER = "process dies after the call"
    NOT_DELETED = "a delete that does nothing"
    DELETED_LATE = "deleted only later"
    RECORD_DOWN = "record or ledger down"
    RECORD_REPLY_LOST = "record or ledger: reply lost"
    STORE_DOWN = "one of two stores down"


OF_AN_OPERATION = frozenset({Fault.RECORD_DOWN, Fault.RECORD_REPLY_LOST, Fault.STORE_DOWN})
_STORE = frozenset({Kind.PUT, Kind.DELETE, Kind.ASK})
_CHANGES = frozenset({Kind.PUT, Kind.DELETE})
STRIKES: Mapping[Fault, frozenset[Kind]] = {
    Fault.REQUEST_LOST: _STORE,
    Fault.REPLY_LOST: _CHANGES,
    Fault.REFUSED: _STORE,
    Fault.THROTTLED: _STORE,
    Fault.TIMEOUT: _CHANGES,
    Fault.DIES_BEFORE: frozenset(Kind),
    Fault.DIES_AFTER: _CHANGES | {Kind.RECORD},
    Fault.NOT_DELETED: frozenset({Kind.DELETE}),
    Fault.DELETED_LATE: frozenset({Kind.DELETE}),
    Fault.RECORD_DOWN: frozenset({Kind.RECORD}),
    Fault.RECORD_REPLY_LOST: frozenset({Kind.RECORD}),
    Fault.STORE_DOWN: _STORE,
}
"""Which calls a fault can strike: a question changes nothing, so a lost reply is a lost request there."""


class Died(BaseException):
    """The process ended here, as after `kill -9`: nothing that it does afterwards reaches anybody."""


class HttpError(Exception):
    """What a client raises for an answer that is none.

    Args:
        status: the status of the answer.
    """

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status_code = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """One fault of one run.

    Args:
        fault: what happens.
        at: the number of the call it happens to, or of the operation.
        place: the store that is away.
    """

    fault: Fault
    at: int
    place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call that went over the wire."""

    number: int
    operation: int
    place: str
    kind: Kind


class Wire:
    """Carries calls, and lets one fault strike.

    Args:
        strike: the fault; none to learn which calls there are.
    """

    def __init__(self, strike: Strike | None = None) -> None:
        self.calls: list[Call] = []
        self.struck = 0
        """How often the fault happened."""
        self.operation = 0
        """The operation of the story that goes on; 0 between them, when nothing strikes."""
        self._strike = strike
        self.is_dead = False
        """Whether the process has died; then every call dies too."""
        self._depth = 0
        self._late: list[Callable[[], Any]] = []

    # --- attaching --------------------------------------------------------------------------

    def attach(self, client: Any, place: str, methods: Mapping[str, Kind]) -> None:
        """Have calls of a client's methods go over the wire."""
        for name, kind in methods.items():
            original = getattr(client, name)
            setattr(client, name, self._carried(original, place, lambda *_, kind=kind: kind))

    def attach_batches(self, client: Any, place: str, kind_of: Callable[..., Kind]) -> None:
        """Have batches of a LangGraph store go over the wire, blocking or awaited."""
        client.batch = self._carried(client.batch, place, kind_of, many=True)
        client.abatch = self._awaited(client.abatch, place, kind_of)

    def reach(self, point: str) -> None:
        """Carry the commits of a ledger, told by its fault points."""
        if point == FaultPoint.BEFORE_COMMIT:
            self._before(RECORD, Kind.RECORD)
        elif self.is_dead:
            raise Died
        elif point == FaultPoint.AFTER_COMMIT and self.operation:
            self._after(self.calls[-1])

    def _carried(
        self, original: Callable[..., Any], place: str, kind_of: Callable[..., Kind], *, many: bool = False
    ) -> Callable[..., Any]:
        def carried(*args: Any, **options: Any) -> Any:
            # What a client calls of itself is no call of its own.
            if self._depth or (not self.operation and not self.is_dead):
                return original(*args, **options)
            self._depth += 1
            try:
                return self._carry(
                    lambda: original(*args, **options),
                    place,
                    kind_of(*args),
                    [None] * len(args[0]) if many else None,
                )
            finally:
                self._depth -= 1

        return carried

    def _awaited(
        self, original: Callable[..., Awaitable[Any]], place: str, kind_of: Callable[..., Kind]
    ) -> Callable[..., Awaitable[Any]]:
        async def awaited(ops: Any) -> Any:
            if not self.operation and not self.is_dead:
                return await original(ops)
            found = self._carry(lambda: original(ops), place, kind_of(ops), [None] * len(ops))
            return await found if isawaitable(found) else found

        return awaited

    # --- carrying ---------------------------------------------------------------------------

    def _carry(self, do: Callable[[], Any], place: str, kind: Kind, nothing: Any) -> Any:
        """Do what is asked, or what the fault makes of it; `nothing` is what a done deletion answers."""
        call = self._before(place, kind)
        match self._fault_of(call):
            case Fault.NOT_DELETED:
                return nothing
            case Fault.DELETED_LATE:
                self._late.append(do)
                return nothing
            case Fault.TIMEOUT:
                self._late.append(do)
                raise TimeoutError
        found = do()
        if isawaitable(found):
            return self._answered(found, call)
        self._after(call)
        return found

    async def _answered(self, found: Awaitable[Any], call: Call) -> Any:
        answer = await found
        self._after(call)
        return answer

    def _before(self, place: str, kind: Kind) -> Call:
        """Note the call, and strike if the fault is one that lets nothing happen."""
        if self.is_dead:
            raise Died
        call = Call(number=len(self.calls) + 1, operation=self.operation, place=place, kind=kind)
        if not self.operation:
            return call
        self.calls.append(call)
        fault = self._fault_of(call)
        self.struck += fault is not None
        match fault:
            case Fault.REQUEST_LOST | Fault.RECORD_DOWN | Fault.STORE_DOWN:
                raise ConnectionError
            case Fault.REFUSED:
                raise HttpError(403)
            case Fault.THROTTLED:
                raise HttpError(429)
            case Fault.DIES_BEFORE:
                self.is_dead = True
                raise Died
        return call

    def _after(self, call: Call) -> None:
        """Strike if the fault is one that comes after the call was carried out."""
        match self._fault_of(call):
            case Fault.REPLY_LOST | Fault.RECORD_REPLY_LOST:
                raise ConnectionError
            case Fault.DIES_AFTER:
                self.is_dead = True
                raise Died

    def _fault_of(self, call: Call) -> Fault | None:
        """Return the fault that strikes a call."""
        strike = self._strike
        if strike is None or not call.operation or call.kind not in STRIKES[strike.fault]:
            return None
        if strike.fault in OF_AN_OPERATION:
            is_here = not strike.place or strike.place == call.place
            # A reply is lost once; what is down is down for as long as the operation takes.
            again = strike.fault is Fault.RECORD_REPLY_LOST and any(
                c.operation == call.operation and c.kind is Kind.RECORD and c.number < call.number
                for c in self.calls
            )
            return strike.fault if strike.at == call.operation and is_here and not again else None
        return strike.fault if strike.at == call.number else None

    # --- time -------------------------------------------------------------------------------

    def revive(self) -> None:
        """Let a new process use the wire."""
        self.is_dead = False

    async def settle(self) -> None:
        """Let happen what was only late."""
        late, self._late = self._late, []
        for do in late:
            found = do()
            if isawaitable(found):
                await found
