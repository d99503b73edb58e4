"""Holds what clients were told against the log: a pure function over histories and events.

Every call of every client is in a history: when it began and when it was answered, how, and which
heads of the ledger were known before and afterwards. Its receipt stands in the events that it made.
The log is replayed through the reference model, which says what each reader could have seen.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from itertools import accumulate
from typing import Any

from fix_history_log import Logged, draft_of
from fix_model import Fate, Model
from fix_model_answers import Answers

from custody_sync.ledger import Confirm, Forget, Hold, Release, Retract
from custody_sync.ledger.drafts import Draft

FAR = datetime(2100, 1, 1, tzinfo=UTC)
"""A valid time at which everything has begun, so that an answer depends on the head alone."""
PRIMARY = {
    **dict.fromkeys(("write", "claim", "supersede", "write_keyed"), "assert"),
    **{kind: kind for kind in ("confirm", "retract", "forget", "hold", "release")},
}
"""Which kind of event a call is there for; what follows from it are other kinds."""
ONCE = ("retract", "forget")
"""Said again it is acknowledged as well, and makes no second event."""
READS = ("read", "recall")
SAME = {"supersede_conflict": "already_covered"}
FREE = {"store_write_failed", "write_in_progress", "starts_too_early"}
"""Refusals that follow from a store, a reservation or a clock, and not from the log."""


class Outcome(StrEnum):
    """What a client was told."""

    ACKNOWLEDGED = "acknowledged"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """It was told that nobody knows, or was killed before it was told anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of one client; times are of one clock that all clients share."""

    client: str
    operation: str
    receipt: str
    began: int
    low: int
    """The head that the client saw before."""
    ended: int | None = None
    looked: int | None = None
    """When it had seen `high`."""
    high: int | None = None
    """The head that it saw after the answer; None where there was none."""
    outcome: Outcome = Outcome.UNKNOWN
    code: str | None = None
    """Of the error."""
    asked: Mapping[str, Any] = field(default_factory=dict)
    fact_id: str | None = None
    """What was answered."""
    head: int | None = None
    """The head that a reader was told its answer is of."""
    seen: tuple[tuple[str, Any], ...] = ()
    """What a reader was shown: fact ids with values."""

    def __str__(self) -> str:
        return f"{self.operation} {self.receipt} of {self.client}"


def check(calls: Sequence[Call], events: Sequence[Logged]) -> list[str]:
    """Return in sentences what is wrong; nothing where every history fits the log."""
    return [*check_log(events), *Checker.over(calls, events).problems()]


def check_log(events: Sequence[Logged]) -> list[str]:
    """Say of the log alone what no order of calls explains: gaps, repeats, times that do not grow."""
    found = []
    ids: set[str] = set()
    for place, event in enumerate(events, 1):
        if event.seq != place:
            found.append(f"event {event.seq} stands at place {place}")
        if event.event_id in ids:
            found.append(f"event {event.seq} is in the log twice")
        if place > 1 and event.tx <= events[place - 2].tx:
            found.append(f"event {event.seq} is not later than the one before")
        ids.add(event.event_id)
    return found


@dataclass
class Checker:
    """What the calls and the log come to, and one rule a method."""

    calls: Sequence[Call]
    events: Sequence[Logged]
    model: Model
    broken: list[str]
    """What the reference model would not have taken."""
    states: list[dict[str, Fate]]
    """By head: the facts as they stood then."""
    effects: dict[str, list[Logged]]
    """By receipt: the events that a call was there for."""
    times: list[int]
    heads: list[int]
    """Up to each time the highest head that anybody had seen."""

    @classmethod
    def over(cls, calls: Sequence[Call], events: Sequence[Logged]) -> Checker:
        """Replay the log, and gather who saw which head when."""
        model, broken, states = Model(), [], [dict[str, Fate]()]
        effects: dict[str, list[Logged]] = {}
        for event in events:
            taken = model.append(draft_of(event), event.tx)
            if isinstance(taken, set):
                broken.append(f"event {event.seq} breaks a rule: {', '.join(sorted(taken))}")
            states.append({key: replace(fate, holds=set(fate.holds)) for key, fate in model.facts.items()})
            if event.kind in PRIMARY.values() and event.receipt is not None:
                effects.setdefault(event.receipt, []).append(event)
        saw = sorted(_observations(calls))
        heads = list(accumulate((head for _, head in saw), max))
        return cls(calls, events, model, broken, states, effects, [time for time, _ in saw], heads)

    def problems(self) -> list[str]:
        """Return everything that is wrong."""
        found = [*self.broken, *self._nobodys()]
        for call in self.calls:
            found += self._of(call)
        return found

    def _nobodys(self) -> Iterable[str]:
        receipts = {call.receipt for call in self.calls}
        for receipt, events in self.effects.items():
            if receipt not in receipts:
                yield f"event {events[0].seq} is of a call that nobody made ({receipt})"

    def low(self, call: Call) -> int:
        """Return the head that was certainly committed before a call began."""
        place = bisect_right(self.times, call.began)
        return max(call.low, self.heads[place - 1] if place else 0)

    def high(self, call: Call) -> int:
        """Return the last head that can have been committed before a call was answered."""
        return len(self.events) if call.high is None else call.high

    def _of(self, call: Call) -> Iterable[str]:
        low, high = self.low(call), self.high(call)
        if not low <= high <= len(self.events):
            yield f"{call}: the log had {low} events before it, {high} after it, and has {len(self.events)}"
            return
        if call.operation in READS:
            if call.outcome is Outcome.ACKNOWLEDGED:
                yield from self._reading(call, low, high)
            return
        made = [e for e in self.effects.get(call.receipt, []) if e.kind == PRIMARY[call.operation]]
        if len(made) > 1:
            yield f"{call} has {len(made)} effects: events {', '.join(str(e.seq) for e in made)}"
        if call.operation == "write_keyed":
            yield from self._keyed(call, made, high)
        elif call.outcome is Outcome.ACKNOWLEDGED:
            yield from self._acknowledged(call, made, low, high)
        elif call.outcome is Outcome.FAILED:
            yield from self._failed(call, made, low, high)
        elif made and made[0].seq <= low:
            yield f"{call} took effect as event {made[0].seq}, before it began (head {low})"

    def _acknowledged(self, call: Call, made: list[Logged], low: int, high: int) -> Iterable[str]:
        kind, fact_id = PRIMARY[call.operation], call.fact_id
        if not made and call.operation in ONCE:
            if not any(e.kind == kind and e.fact_id == fact_id for e in self.events[:high]):
                yield f"{call} was acknowledged, and {fact_id} has no such event before its answer"
            return
        if not made:
            yield f"{call} was acknowledged and is not in the log"
            return
        if made[0].fact_id != fact_id:
            yield f"{call} was answered with {fact_id} and recorded for {made[0].fact_id}"
        if not low < made[0].seq <= high:
            yield f"{call} took effect as event {made[0].seq}, outside of {low + 1} to {high}"

    def _failed(self, call: Call, made: list[Logged], low: int, high: int) -> Iterable[str]:
        if made:
            yield f"{call} failed ({call.code}) and is in the log as event {made[0].seq}"
        elif call.code not in FREE and not self._is_explained(call, low, high):
            yield f"{call} was refused as {call.code}, which no head from {low} to {high} explains"

    def _keyed(self, call: Call, made: list[Logged], high: int) -> Iterable[str]:
        """All calls with one key share one receipt, and with it one event."""
        if call.outcome is Outcome.ACKNOWLEDGED:
            if not made:
                yield f"{call} was acknowledged and is not in the log"
            elif made[0].fact_id != call.fact_id:
                yield f"{call} was answered with {call.fact_id}, and its key is {made[0].fact_id}"
            elif made[0].seq > high:
                yield f"{call} was answered before event {made[0].seq}"
        elif call.outcome is Outcome.FAILED and call.code not in FREE:
            gone = {e.fact_id for e in self.events[:high] if e.kind == "forget"}
            if call.code != "forgotten" or not any(e.fact_id in gone for e in made):
                yield f"{call} was refused as {call.code}, which nothing explains"

    def _is_explained(self, call: Call, low: int, high: int) -> bool:
        code = SAME.get(call.code or "", call.code)
        return any(code in self._refusals(call, at) for at in range(low, high + 1))

    def _refusals(self, call: Call, head: int) -> set[str]:
        """Return the codes of the rules that a call broke at a head."""
        model = Model(facts=self.states[head])
        target = model.facts.get(call.asked["fact_id"])
        if call.operation == "supersede":
            if target is None:
                return {"unknown_fact"}
            return model._replacing(replace(target.fact, supersedes=target.fact.fact_id, valid_from=FAR))
        return model.broken(_draft(call), FAR, FAR)

    def _reading(self, call: Call, low: int, high: int) -> Iterable[str]:
        assert call.head is not None
        if not low <= call.head <= high:
            what = "stale" if call.head < low else "early"
            yield f"{call} is {what}: it is of head {call.head}, and was made between {low} and {high}"
            return
        believed = self.believed(call.head)
        seen = [fact_id for fact_id, _ in call.seen]
        if call.operation == "read" and sorted(seen) != sorted(believed):
            yield f"{call} saw {sorted(seen)}, and at head {call.head} there was {sorted(believed)}"
        for fact_id, value in call.seen:
            if fact_id not in believed:
                yield f"{call} showed {fact_id}, which was not believed at head {call.head}"
            elif value != self._value(fact_id):
                yield f"{call} showed {value!r} for {fact_id}, which is {self._value(fact_id)!r}"
        if len(seen) != len(set(seen)):
            yield f"{call} showed one fact twice"

    def believed(self, head: int) -> set[str]:
        """Return what was believed at a head, as the reference model has it."""
        if not head:
            return set()
        facts, _ = Answers(self.model, FAR).as_of(valid_at=FAR, tx_at=self.events[head - 1].tx)
        return {fact.fact_id for fact in facts}

    def _value(self, fact_id: str) -> Any:
        """Return what was written, which a later erasure does not change."""
        receipts = {e.receipt for e in self.events if e.kind == "assert" and e.fact_id == fact_id}
        return next((call.asked["value"] for call in self.calls if call.receipt in receipts), None)


def _observations(calls: Iterable[Call]) -> Iterable[tuple[int, int]]:
    """Yield when somebody knew of which head."""
    for call in calls:
        yield call.began, call.low
        if call.looked is not None and call.high is not None:
            yield call.looked, call.high
        if call.ended is not None and call.head is not None:
            yield call.ended, call.head


def _draft(call: Call) -> Draft:
    """Return what a call would have had recorded."""
    act: dict[str, Any] = {"event_id": "asked", "fact_id": call.asked["fact_id"], "actor": call.client}
    if call.operation == "retract":
        return Retract(**act)
    if call.operation == "forget":
        return Forget(**act)
    if call.operation == "confirm":
        return Confirm(**act)
    hold = Hold if call.operation == "hold" else Release
    return hold(**act, hold_id=call.asked["hold_id"])
