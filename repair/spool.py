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

TOPIC = "sweep-spool"
PAGE = 500


class Spool:
    """Candidates of one sweep, in the ledger's notes.

    Args:
        ledger: where they are kept.
        run: names this sweep; one whose lease lapsed while it slept must not meddle with the next.
    """

    def __init__(self, ledger: Ledger, run: str) -> None:
        self._ledger = ledger
        self._run = run
        self.count = 0
        """How many candidates this run has spooled."""
        self._unwritten: list[Note] = []

    async def clear(self) -> None:
        """Drop what interrupted sweeps left; their entries are listed and judged anew."""
        await self._ledger.drop_notes(TOPIC)

    async def close(self) -> None:
        """Drop what this sweep has spooled."""
        await self._ledger.drop_notes(TOPIC, holder=self._run)

    async def add(self, candidates: Sequence[Candidate]) -> None:
        """Append candidates; they are written a page at a time, since each write is a commit."""
        for candidate in candidates:
            self.count += 1
            self._unwritten.append(
                Note(
                    topic=TOPIC,
                    key=f"{self._run}-{self.count:012d}",
                    value=_encode(candidate),
                    holder=self._run,
                    since=self._ledger.now(),
                )
            )
        if len(self._unwritten) >= PAGE:
            await self.flush()

    async def flush(self) -> None:
        """Write what was appended last."""
        notes, self._unwritten = self._unwritten, []
        if notes:
            await self._ledger.put_notes(notes)

    async def pages(self) -> AsyncIterator[list[Candidate]]:
        """Yield candidates in order, and drop each page once it was worked off."""
        while True:
            found = await self._ledger.notes(TOPIC, limit=PAGE, after=f"{self._run}-")
            notes = [note for note in found if note.holder == self._run]
            if not notes:
                return
            yield [_decode(note.value) for note in notes]
            await self._ledger.drop_notes(TOPIC, [note.key for note in notes])


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
