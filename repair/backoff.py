"""When a store that did not answer is tried again: after a minute, then after twice as long, up to six hours.

How often it failed and when its turn is stands beside the log, so that it holds from one run to the next
and for every process. A store that answers is as good as new.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from custody_sync.ledger import Ledger
from custody_sync.ledger.storage import Note
from custody_sync.model import format_instant, read_instant
from custody_sync.repair.selection import Selection
from custody_sync.results import Retry
from custody_sync.runtime import Runtime

TOPIC = "backoff"
FIRST = timedelta(minutes=1)
LONGEST = timedelta(hours=6)
JITTER = 0.25
"""So much longer or shorter, so that not everything comes back to a store in one moment."""


class Backoff:
    """Which stores did not answer, and when each is tried again.

    Args:
        ledger: keeps it, on its own clock.
        runtime: chance.
    """

    def __init__(self, ledger: Ledger, runtime: Runtime) -> None:
        self._ledger = ledger
        self._runtime = runtime

    async def failed(self, store: str) -> Retry:
        """Take down that a store did not answer in a run; return when it is tried again."""
        now = self._ledger.now()
        before = (await retries(self._ledger)).get(store)
        failures = 1 if before is None else before.failures + 1
        # Few enough doublings that no number grows without bound.
        wait = min(FIRST * 2 ** min(failures - 1, 16), LONGEST)
        wait *= 1 + JITTER * (2 * self._runtime.random.random() - 1)
        since = now if before is None else before.since
        retry = Retry(failures=failures, since=since, next_at=now + min(wait, LONGEST))
        value = json.dumps([retry.failures, format_instant(retry.next_at)])
        await self._ledger.put_notes([Note(topic=TOPIC, key=store, value=value, since=since)])
        return retry

    async def answered(self, store: str) -> None:
        """Take down that a store answered."""
        if store in await retries(self._ledger):
            await self._ledger.drop_notes(TOPIC, [store])


async def retries(ledger: Ledger) -> Mapping[str, Retry]:
    """Return by store when it is tried again; a store that answered the last time is not among them.

    One whose turn would come later than after the longest wait is none: the clock has gone back since.
    """
    latest = ledger.now() + LONGEST
    found: dict[str, Retry] = {}
    for note in await ledger.notes(TOPIC):
        retry = _read(note.value, note.since)
        if retry is not None and retry.next_at <= latest:
            found[note.key] = retry
    return found


async def leave_resting(
    ledger: Ledger, configured: Collection[str], selection: Selection
) -> tuple[Selection, tuple[str, ...]]:
    """Leave out of a selection the stores whose turn has not come, and say so of each."""
    now = ledger.now()
    tried = await retries(ledger)
    chosen = {name for name in configured if selection.has_store(name)}
    resting = sorted(name for name in chosen if name in tried and tried[name].next_at > now)
    if not resting:
        return selection, ()
    said = tuple(
        f"{name}: was left alone; it did not answer and is tried again from "
        f"{format_instant(tried[name].next_at)}"
        for name in resting
    )
    return replace(selection, stores=frozenset(chosen.difference(resting))), said


def _read(value: str, since: datetime) -> Retry | None:
    try:
        failures, next_at = json.loads(value)
    except (ValueError, TypeError):
        return None
    read = read_instant(next_at)
    if read is None or type(failures) is not int:
        return None
    return Retry(failures=failures, since=since, next_at=read)


__all__ = ["TOPIC", "Backoff", "leave_resting", "retries"]
