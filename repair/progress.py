"""How far a verification came, kept beside the log, so that one that was stopped can be gone on with.

What is kept are places in the log, counts, and of answers that prove nothing the fact's id, the store
and the outcome. No external id, scope or space is among it: an erasure of identity has nothing to find.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from custody_sync.canonical import canonical
from custody_sync.ledger import Ledger
from custody_sync.ledger.storage import Note
from custody_sync.model import MAX_SKEW, Outcome, format_instant, read_instant
from custody_sync.results import Asked, Removal

TOPIC = "verify"
UNPROVEN = "verify-unproven"
KEPT = timedelta(days=7)
"""After so long an answer says little about now: a run is not gone on with, and its notes are dropped.
So is one from ahead: the clock has gone back since."""
NAMED = 1000
"""More answers that prove nothing are only counted."""


@dataclass(slots=True)
class Course:
    """How far one store was asked."""

    store: str
    after: int = 0
    facts: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    done: bool = False
    ended: bool = False
    """Whether it was asked about entries whose facts have ended."""


@dataclass(slots=True)
class Progress:
    """How far one run came."""

    run: str
    started: datetime
    courses: dict[str, Course] = field(default_factory=dict)
    parts: list[Asked] = field(default_factory=list)
    """What was asked before this part."""
    unproven: list[Removal] = field(default_factory=list)
    """What of it proves nothing, as far as it is named."""

    @property
    def asked(self) -> int:
        """How many answers there are in all."""
        return sum(sum(course.outcomes.values()) for course in self.courses.values())

    @property
    def facts(self) -> int:
        """How many facts were asked about, counted once a store."""
        return sum(course.facts for course in self.courses.values())


class Record:
    """The notes of one question's runs.

    Args:
        ledger: keeps them.
        question: what is asked about; two runs over the same have the same.
    """

    def __init__(self, ledger: Ledger, question: dict[str, Any]) -> None:
        self._ledger = ledger
        # A space may name a person, so the question itself is not kept.
        self._prefix = hashlib.sha256(canonical(question)).hexdigest()[:32]
        self._named = 0

    async def last(self) -> Progress | None:
        """Return how far the last run came that was not finished; drop what is too old to go on with."""
        found: list[tuple[datetime, Progress]] = []
        stale: list[str] = []
        for note in await self._ledger.notes(TOPIC, limit=1000):
            if not -MAX_SKEW <= self._ledger.now() - note.since <= KEPT:
                stale.append(note.key)
            elif note.key.startswith(f"{self._prefix}.") and (progress := _read(note)) is not None:
                found.append((note.since, progress))
        if stale and self._ledger.writable:
            await self._ledger.drop_notes(TOPIC, stale)
            for key in stale:
                await self._ledger.drop_notes(UNPROVEN, holder=key.partition(".")[2])
        return max(found, key=lambda pair: pair[0])[1] if found else None

    async def take_up(self, progress: Progress) -> None:
        """Read what an earlier part could not prove."""
        notes = await self._ledger.notes(UNPROVEN, limit=NAMED, after=f"{progress.run}.")
        progress.unproven = [_read_removal(note) for note in notes if note.holder == progress.run]
        self._named = len(progress.unproven)

    async def save(self, progress: Progress, part: Asked, unproven: Sequence[Removal]) -> None:
        """Keep how far it came, and what proves nothing of what was asked since it was kept last."""
        now = self._ledger.now()
        notes = [
            Note(
                topic=TOPIC,
                key=f"{self._prefix}.{progress.run}",
                value=_written(progress, part),
                holder=progress.run,
                since=now,
            )
        ]
        for removal in unproven[: max(NAMED - self._named, 0)]:
            self._named += 1
            key = f"{progress.run}.{self._named:06d}"
            value = json.dumps([removal.fact_id, removal.store, removal.outcome.value, removal.detail])
            notes.append(Note(topic=UNPROVEN, key=key, value=value, holder=progress.run, since=now))
        await self._ledger.put_notes(notes)

    async def finish(self) -> None:
        """Drop what is kept of all runs over this question: this one answers it."""
        notes = await self._ledger.notes(TOPIC, limit=1000, after=f"{self._prefix}.")
        keys = [note.key for note in notes if note.key.startswith(f"{self._prefix}.")]
        if keys:
            await self._ledger.drop_notes(TOPIC, keys)
        for key in keys:
            await self._ledger.drop_notes(UNPROVEN, holder=key.partition(".")[2])


def _written(progress: Progress, part: Asked) -> str:
    return json.dumps(
        {
            "started": format_instant(progress.started),
            "parts": [
                [format_instant(one.since), format_instant(one.until), one.asked]
                for one in (*progress.parts, part)
            ],
            "stores": {
                course.store: [course.after, course.facts, dict(course.outcomes), course.done, course.ended]
                for course in progress.courses.values()
            },
        }
    )


def _read(note: Note) -> Progress | None:
    """Return what a note says; None where it is of a version that said it in another way."""
    try:
        document = json.loads(note.value)
        started = read_instant(document["started"])
        parts = [
            Asked(since=_instant(since), until=_instant(until), asked=asked)
            for since, until, asked in document["parts"]
        ]
        courses = {
            store: Course(store, after, facts, Counter(outcomes), done, ended)
            for store, (after, facts, outcomes, done, ended) in document["stores"].items()
        }
    except (ValueError, KeyError, TypeError):
        return None
    if started is None:
        return None
    return Progress(note.key.partition(".")[2], started, courses, parts)


def _instant(raw: object) -> datetime:
    read = read_instant(raw)
    if read is None:
        raise ValueError
    return read


def _read_removal(note: Note) -> Removal:
    fact_id, store, outcome, detail = json.loads(note.value)
    return Removal(store=store, external_id="", outcome=Outcome(outcome), detail=detail, fact_id=fact_id)


__all__ = ["NAMED", "Course", "Progress", "Record"]
