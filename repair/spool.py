"""The sweep's spool: candidates kept beside the log until they are worked off.

Spooling first lets the breaker see the whole before anything is touched, keeps memory flat, and
leaves a killed sweep's candidates where the next one can see that it is not the first.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence

from custody_sync.ledger import Ledger
from custody_sync.ledger.storage import Note
from custody_sync.model import Entry, Leftover, format_instant, read_instant
from custody_sync.repair.listing import Candidate

PAGE = 500


class Spool:
    """Candidates of one sweep, in the ledger's notes."""

    def __init__(self, ledger: Ledger, topic: str = "sweep-spool") -> None:
        self._ledger = ledger
        self._topic = topic
        self._count = 0

    async def clear(self) -> None:
        """Drop what an interrupted sweep left; its entries are listed and judged anew."""
        await self._ledger.drop_notes(self._topic)

    async def add(self, candidates: Sequence[Candidate]) -> None:
        """Append candidates."""
        notes = []
        for candidate in candidates:
            self._count += 1
            notes.append(
                Note(
                    topic=self._topic,
                    key=f"{self._count:012d}",
                    value=_encode(candidate),
                    since=self._ledger.now(),
                )
            )
        if notes:
            await self._ledger.put_notes(notes)

    async def pages(self) -> AsyncIterator[list[Candidate]]:
        """Yield candidates in order, and drop each page once it was worked off."""
        while notes := await self._ledger.notes(self._topic, limit=PAGE):
            yield [_decode(note.value) for note in notes]
            await self._ledger.drop_notes(self._topic, [note.key for note in notes])


def _encode(candidate: Candidate) -> str:
    entry = candidate.entry
    age_from = entry.stored_at or read_instant(entry.created_at)
    return json.dumps(
        {
            "store": entry.store,
            "external_id": entry.external_id,
            "fact_id": entry.fact_id,
            "scope": entry.scope,
            "stored_at": None if age_from is None else format_instant(age_from),
            "kind": candidate.kind.value,
            "recorded": candidate.recorded,
        }
    )


def _decode(value: str) -> Candidate:
    doc = json.loads(value)
    entry = Entry(
        store=doc["store"],
        external_id=doc["external_id"],
        fact_id=doc["fact_id"],
        scope=doc["scope"],
        stored_at=read_instant(doc["stored_at"]),
    )
    return Candidate(entry, Leftover(doc["kind"]), doc["recorded"])
