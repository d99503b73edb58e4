"""Rows of a storage as the answers to what had to go and what is still to do; the same for every engine."""

from __future__ import annotations

from collections.abc import Sequence

from custody_sync.ledger.answers import Row, placement_of
from custody_sync.ledger.outstanding import About, Backlog, Removed
from custody_sync.model import read_instant


def group(rows: Sequence[Row]) -> list[Removed]:
    """Gather the rows of (place, then the columns of a placement), in order, by fact."""
    facts: dict[int, list[Row]] = {}
    for place, *row in rows:
        facts.setdefault(place, []).append(row)
    return [
        Removed(place, of_one[0][2], tuple(placement_of(row) for row in of_one))
        for place, of_one in facts.items()
    ]


_NONE = 0, 0, None


def gather(pending: Sequence[Row], owed: Sequence[Row]) -> list[Backlog]:
    """Put (store, outcome, count, oldest) and (store, due, waiting, next) together by store."""
    outcomes: dict[str, dict[str, int]] = {}
    oldest: dict[str, str] = {}
    for store, outcome, count, since in pending:
        of_store = outcomes.setdefault(store, {})
        of_store[outcome] = of_store.get(outcome, 0) + count
        if since is not None:
            oldest[store] = min(oldest.get(store, since), since)
    counts = {store: (due, waits, next_at) for store, due, waits, next_at in owed if due or waits}
    return [
        Backlog(
            store=store,
            by_outcome=dict(sorted(outcomes.get(store, {}).items())),
            oldest=read_instant(oldest.get(store)),
            owed=counts.get(store, _NONE)[0],
            waiting=counts.get(store, _NONE)[1],
            next_waiting=read_instant(counts.get(store, _NONE)[2]),
        )
        for store in sorted({*outcomes, *counts})
    ]


def is_pattern(about: About) -> bool:
    """Tell whether a question is about all spaces with one beginning."""
    return about.space is not None and about.space.endswith("*")


def beginning(about: About) -> str | None:
    """Return the space asked about, or the beginning of those that are."""
    return about.space[:-1] if about.space is not None and is_pattern(about) else about.space


__all__ = ["beginning", "gather", "group", "is_pattern"]
