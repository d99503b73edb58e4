"""What a store served: what can be read of it, in its order, and several answers as one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TypeAlias

from custody_sync.model import Entry, Hit
from custody_sync.shown import Spoiled, read_entry

Served: TypeAlias = tuple[Entry, float | None]
"""An entry as the store served it, and its score; a plain pair, since every recall makes a dozen."""
_Key: TypeAlias = tuple[str, str | None, str | None, str | None]


def read_hits(hits: Sequence[object], store: str) -> list[Served]:
    """Return what can be read of an answer, in its order."""
    served: list[Served] = []
    for hit in hits:
        if isinstance(hit, Hit):
            entry = read_entry(hit.entry, store)
            if not isinstance(entry, Spoiled):
                served.append((entry, _number(hit.score)))
    return served


def joined(newer: list[Served], older: list[Served]) -> list[Served]:
    """Return two answers to one query as one, with everything that either has.

    What both have stands where the newer has it. What only the older has is put in by its score where the
    two score alike, and otherwise comes last: a store that ranks all alike would have put it there.
    """
    if not older:
        return newer
    scores = {_key(row): row[1] for row in newer}
    if not (rest := [row for row in older if _key(row) not in scores]):
        return newer
    is_alike = all(scores.get(_key(row), row[1]) == row[1] for row in older)
    rows = newer + rest
    if is_alike and _falls(newer) and _falls(rest):
        rows.sort(key=_score, reverse=True)
    return rows


def in_order(rows: list[Served]) -> list[Served]:
    """Return what was served in the store's order, and what it scored alike in order of id.

    Where it scored everything alike its scores rank nothing, so its order is all that says what is nearest.
    """
    if all(score == rows[0][1] for _, score in rows):
        return rows
    first = 0
    for end in range(1, len(rows) + 1):
        score = rows[first][1]
        if end < len(rows) and score is not None and rows[end][1] == score:
            continue
        if end - first > 1:
            rows[first:end] = sorted(rows[first:end], key=_by_id)
        first = end
    return rows


def _falls(rows: list[Served]) -> bool:
    """Tell whether every row has a score, and none a better one than the row before it."""
    return all(score is not None for _, score in rows) and all(
        _score(one) >= _score(after) for one, after in pairwise(rows)
    )


def _score(row: Served) -> float:
    return -math.inf if row[1] is None else row[1]


def _key(row: Served) -> _Key:
    entry, _ = row
    return entry.external_id, entry.scope, entry.fact_id, entry.ledger_id


def _by_id(row: Served) -> tuple[str, str, str]:
    entry, _ = row
    return entry.external_id, entry.scope or "", entry.fact_id or ""


def _number(score: object) -> float | None:
    """Return a score that can be compared; what a store says instead of one is no score."""
    if type(score) is float:
        return score if math.isfinite(score) else None
    if not isinstance(score, int | float) or isinstance(score, bool):
        return None
    try:
        return float(score) if math.isfinite(score) else None
    except OverflowError:
        return None


__all__ = ["Served", "in_order", "joined", "read_hits"]
