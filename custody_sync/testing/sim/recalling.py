"""What a recall's answer has to be: worked out from what its store served and from the log alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from custody_sync.model import Hit, format_instant
from custody_sync.recalled import RecallResult, RecallStatus
from custody_sync.testing.sim.disk import LEDGER_ID
from custody_sync.testing.sim.judge import Call, Judge
from custody_sync.testing.sim.log import Key, Log

Pair = tuple[str, str]
"""A fact, and the entry that led to it."""


def check_recall(judge: Judge, call: Call, result: RecallResult, k: int, spaces: list[str] | None) -> None:
    """I1: what the store served and is believed is the answer: all of it, once, in order, in its spaces."""
    log = _as_of(judge.log, 0 if result.head is None else result.head.seq)
    believed = {
        fact_id
        for fact_id in log.believed(format_instant(result.valid_at))
        if spaces is None or judge.spaces[fact_id] in spaces
    }
    answers = [rows for rows in _joined(judge.served.get(call.number, [])) if len(rows) == result.seen]
    expected = [_led_to(log, judge.adopted, believed, rows) for rows in answers]
    said = [(hit.fact_id, hit.external_id) for hit in result.hits]
    led = next((pairs for pairs in expected if pairs[:k] == said), None)
    judge.expect(
        led is not None, "I1", f"recall of {result.seen} entries served {said}, and not one of {expected}"
    )
    for hit in result.hits:
        words = judge.words.get(hit.fact_id)
        right = words is None or (hit.fact.value == words and words in hit.text and hit.text == hit.fact.text)
        judge.expect(right, "I1", f"recall served other words as {hit.fact_id}")
    if led is not None:
        _check_status(judge, result.status, len(led) >= k, sorted(believed - {pair[0] for pair in led}))


def _check_status(judge: Judge, status: RecallStatus, full: bool, lacking: list[str]) -> None:
    """Hold what a recall says of its answer against what is believed and was not served."""
    rest = RecallStatus.SHORT if lacking else RecallStatus.EXHAUSTED
    right = RecallStatus.FULL if full else rest
    judge.expect(status is right, "I1", f"recall says {status.value}, and is {right.value}: {lacking} lack")


def _as_of(log: Log, seq: int) -> Log:
    if seq == len(log.events):
        return log
    then = Log()
    for event in log.events[:seq]:
        then.follow(event, {})
    return then


def _joined(answers: Sequence[Sequence[Hit]]) -> Iterator[list[Hit]]:
    """Yield what answers that follow each other come to, in order; the reply of any of them may be lost.

    Where all is scored alike the newest answer's order holds, and otherwise what is scored alike is in
    order of id.
    """
    for first, last in combinations(range(len(answers) + 1), 2):
        rows: dict[object, Hit] = {}
        for served in reversed(answers[first:last]):
            for hit in served:
                # One that got its label between two answers is another row.
                rows.setdefault((hit.entry.external_id, hit.entry.fact_id, hit.entry.ledger_id), hit)
        joined = list(rows.values())
        if len({hit.score for hit in joined}) > 1:
            joined.sort(key=lambda hit: (-(hit.score or 0.0), hit.entry.external_id))
        yield joined


def _led_to(log: Log, adopted: Mapping[Key, str], believed: set[str], rows: Sequence[Hit]) -> list[Pair]:
    """Return the believed link of the chain of every entry of ours, in order, each once.

    An entry that was adopted is ours with or without a label.
    """
    by_root = {log.root(fact_id): fact_id for fact_id in believed}
    found: dict[str, str] = {}
    for entry in (hit.entry for hit in rows):
        leads_to = entry.fact_id if entry.ledger_id == LEDGER_ID else None
        if entry.ledger_id is None:
            leads_to = adopted.get((entry.store, entry.external_id))
        if leads_to in log.asserted:
            fact_id = by_root.get(log.root(leads_to))
            if fact_id is not None:
                found.setdefault(fact_id, entry.external_id)
    return list(found.items())


__all__ = ["check_recall"]
