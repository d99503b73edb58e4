"""The checker of histories accepts what one log explains, and names what none does."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fix_history import Call, Outcome, check
from fix_history_log import Logged

START = datetime(2026, 9, 1, tzinfo=UTC)
BEGAN = "2026-08-01T00:00:00.000000Z"
ACKNOWLEDGED, FAILED = Outcome.ACKNOWLEDGED, Outcome.FAILED


def event(seq: int, kind: str, fact_id: str, receipt: str, **more: Any) -> Logged:
    """Return an event of a log."""
    data: dict[str, Any] = {}
    sealed: dict[str, Any] = {}
    if kind == "assert":
        data = {"kept": [], "provenance": "attested", "valid_from": BEGAN, "valid_to": None}
        data |= {"supersedes": more.pop("supersedes", None)}
        sealed = {
            "identity": {"space": "org", "subject": "s", "predicate": "p"},
            "content": {"value": fact_id, "text": fact_id},
        }
    elif kind == "forget":
        data = {"identity": False, "digest": None}
    elif kind in ("hold", "release"):
        data = {"hold_id": "h"}
    return Logged(
        seq=seq,
        event_id=more.pop("event_id", f"e{seq}"),
        kind=kind,
        fact_id=fact_id,
        tx=START + timedelta(seconds=seq),
        receipt=receipt,
        data=data,
        sealed=sealed,
    )


def call(operation: str, receipt: str, fact_id: str, at: tuple[int, int], **more: Any) -> Call:
    """Return an acknowledged call between two heads, a moment of its own after the one before."""
    asked = {"fact_id": fact_id, "value": fact_id, "hold_id": "h"}
    told: dict[str, Any] = {
        "client": more.pop("client", "c"),
        "began": 100 * at[0] + 10,
        "ended": 100 * at[1] + 20,
        "looked": 100 * at[1] + 30,
        "low": at[0],
        "high": at[1],
        "outcome": ACKNOWLEDGED,
        "asked": asked,
        "fact_id": fact_id,
    }
    return Call(operation=operation, receipt=receipt, **told | more)


def read(at: tuple[int, int], head: int, *seen: str, operation: str = "read", **more: Any) -> Call:
    """Return what a reader was shown."""
    shown = tuple((fact_id, fact_id) for fact_id in seen)
    return call(operation, f"read-{at}-{head}", "", at, head=head, seen=shown, **more)


LOG = [
    event(1, "assert", "a", "w1"),
    event(2, "assert", "b", "w2", supersedes="a"),
    event(3, "retract", "b", "w3"),
    event(4, "hold", "a", "w4"),
    event(5, "release", "a", "w5"),
    event(6, "forget", "a", "w6"),
]
CALLS = [
    call("write", "w1", "a", (0, 1)),
    call("supersede", "w2", "b", (1, 2), asked={"fact_id": "a", "value": "b"}),
    call("retract", "w3", "b", (2, 3)),
    call("hold", "w4", "a", (3, 4)),
    call("release", "w5", "a", (4, 5)),
    call("forget", "w6", "a", (5, 6)),
]


def test_what_one_log_explains_is_accepted() -> None:
    """Writes, their ends, and readers of every head, alone or beside others."""
    readers = [
        read((0, 1), 0),
        read((0, 2), 1, "a"),
        read((2, 2), 2, "b"),
        read((2, 3), 3, "a", operation="recall"),
        read((6, 6), 6),
    ]
    assert check([*CALLS, *readers], LOG) == []


def test_what_is_unknown_may_have_happened_or_not() -> None:
    """A client that was killed was told nothing, and a late effect is one all the same."""
    unknown = {"outcome": Outcome.UNKNOWN, "ended": None, "looked": None, "high": None}
    assert check([*CALLS[:5], replace(CALLS[5], **unknown)], LOG) == []
    assert check([*CALLS, call("retract", "lost", "a", (1, 1), **unknown)], LOG) == []


def test_a_refusal_that_a_head_explains_is_accepted() -> None:
    """The rule was broken at one of the heads between the call and its answer."""
    late = call("supersede", "late", "a", (1, 3), outcome=FAILED, code="supersede_conflict")
    held = call("forget", "held", "a", (3, 5), outcome=FAILED, code="on_hold")
    again = call("retract", "again", "b", (3, 3))
    assert check([*CALLS, late, held, again], LOG) == []


def test_a_keyed_write_is_one_event_however_often_it_is_acknowledged() -> None:
    """All of its calls have one receipt."""
    twice = [
        call("write_keyed", "w1", "a", (0, 1)),
        call("write_keyed", "w1", "a", (1, 2), client="d"),
    ]
    assert check([*twice, *CALLS[1:]], LOG) == []
    other = [*twice, call("write_keyed", "w1", "b", (2, 2)), *CALLS[1:]]
    assert "its key is a" in check(other, LOG)[0]


REFUSED: list[tuple[str, list[Call], list[Logged], str]] = [
    ("a lost acknowledged write", [*CALLS, call("write", "w7", "z", (6, 6))], LOG, "is not in the log"),
    (
        "an effect of a failed call",
        [*CALLS[:3], replace(CALLS[3], outcome=FAILED, code="on_hold"), *CALLS[4:]],
        LOG,
        "failed (on_hold) and is in the log as event 4",
    ),
    ("a stale read", [*CALLS, read((3, 4), 2, "b")], LOG, "is stale"),
    (
        "a read that is stale by what another client had seen",
        [*CALLS, replace(read((1, 6), 1, "a"), began=590)],
        LOG,
        "is stale",
    ),
    ("a read of what nobody has committed", [*CALLS, read((1, 2), 3, "a")], LOG, "is early"),
    ("a read that lacks something", [*CALLS, read((1, 1), 1)], LOG, "at head 1 there was ['a']"),
    ("a read that has too much", [*CALLS, read((2, 2), 2, "a", "b")], LOG, "at head 2 there was ['b']"),
    (
        "a recall of what had ended",
        [*CALLS, read((2, 2), 2, "a", operation="recall")],
        LOG,
        "showed a, which was not believed at head 2",
    ),
    (
        "another value",
        [*CALLS, replace(read((1, 1), 1), seen=(("a", "another"),))],
        LOG,
        "showed 'another' for a, which is 'a'",
    ),
    (
        "one fact twice in a recall",
        [*CALLS, read((1, 1), 1, "a", "a", operation="recall")],
        LOG,
        "showed one fact twice",
    ),
    (
        "two winners of one supersede",
        [*CALLS[:2], call("supersede", "w3", "c", (2, 3), asked={"fact_id": "a", "value": "c"})],
        [*LOG[:2], event(3, "assert", "c", "w3", supersedes="a")],
        "event 3 breaks a rule: already_covered",
    ),
    (
        "an event twice",
        CALLS,
        [*LOG, replace(LOG[2], seq=7, tx=START + timedelta(seconds=7))],
        "event 7 is in the log twice",
    ),
    (
        "an effect twice",
        [*CALLS[:3], replace(CALLS[3], high=5), call("release", "w5", "a", (5, 6))],
        [*LOG[:4], event(5, "hold", "b", "w4"), event(6, "release", "a", "w5")],
        "has 2 effects: events 4, 5",
    ),
    (
        "an effect before its call",
        [*CALLS[:2], replace(CALLS[2], low=3, began=320), *CALLS[3:]],
        LOG,
        "took effect as event 3, outside of 4 to 3",
    ),
    (
        "an effect after its answer",
        [*CALLS[:4], replace(CALLS[4], high=4, looked=430), CALLS[5]],
        LOG,
        "took effect as event 5, outside of 5 to 4",
    ),
    (
        "an answer of another fact",
        [replace(CALLS[0], fact_id="b"), *CALLS[1:]],
        LOG,
        "was answered with b and recorded for a",
    ),
    (
        "a refusal that nothing explains",
        [*CALLS, call("forget", "no", "a", (1, 2), outcome=FAILED, code="on_hold")],
        LOG,
        "was refused as on_hold, which no head from 1 to 2 explains",
    ),
    ("an event of nobody", CALLS[:5], LOG, "event 6 is of a call that nobody made (w6)"),
    (
        "an end that nobody recorded",
        [*CALLS, call("retract", "no", "a", (6, 6))],
        LOG,
        "a has no such event before its answer",
    ),
    ("a gap", CALLS, [*LOG[:4], LOG[5]], "event 6 stands at place 5"),
    (
        "times that do not grow",
        CALLS,
        [*LOG[:5], replace(LOG[5], tx=START)],
        "event 6 is not later than the one before",
    ),
    (
        "a forget despite a hold",
        [*CALLS[:4], call("forget", "w5", "a", (4, 5))],
        [*LOG[:4], event(5, "forget", "a", "w5")],
        "event 5 breaks a rule: on_hold",
    ),
    (
        "an unknown effect before its call",
        [*CALLS[:2], replace(CALLS[2], outcome=Outcome.UNKNOWN, low=3, began=320), *CALLS[3:]],
        LOG,
        "took effect as event 3, before it began",
    ),
    (
        "a log that is shorter than what was seen of it",
        [*CALLS[:5], read((6, 6), 6)],
        LOG[:5],
        "the log had 6 events before it, 6 after it, and has 5",
    ),
]


@pytest.mark.parametrize(
    ("calls", "log", "said"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_what_no_log_explains_is_named(calls: list[Call], log: list[Logged], said: str) -> None:
    """By the call or the event, and by what is wrong with it."""
    problems = check(calls, log)
    assert any(said in problem for problem in problems), problems
