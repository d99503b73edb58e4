"""The differences that are to be mended, kept beside the log until they are: so memory stays flat.

The breaker sees all of them before the first is mended. A killed run leaves its pile, which the
next one drops: what it listed is listed and judged anew.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence

from custody_sync.ledger import Ledger
from custody_sync.ledger.storage import Note
from custody_sync.mended import Drift
from custody_sync.model import Entry, format_instant, read_instant
from custody_sync.repair.differing import Drifted

TOPIC = "reconcile-pile"
PAGE = 500


class Pile:
    """Differences of one run, in the ledger's notes.

    Args:
        ledger: where they are kept.
        run: names this run; one whose lease lapsed while it slept must not meddle with the next.
    """

    def __init__(self, ledger: Ledger, run: str) -> None:
        self._ledger = ledger
        self._run = run
        self.count = 0
        """How many differences this run has put there."""
        self._unwritten: list[Note] = []

    async def close(self) -> None:
        """Drop what this run has put there: ids of entries have no business beside the log after it."""
        await self._ledger.drop_notes(TOPIC, holder=self._run)

    async def add(self, found: Sequence[Drifted]) -> None:
        """Append differences; they are written a page at a time, since each write is a commit."""
        for one in found:
            self.count += 1
            self._unwritten.append(
                Note(
                    topic=TOPIC,
                    key=f"{self._run}-{self.count:012d}",
                    value=_encode(one),
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

    async def pages(self) -> AsyncIterator[list[Drifted]]:
        """Yield differences in order, and drop each page once it was worked off."""
        while True:
            found = await self._ledger.notes(TOPIC, limit=PAGE, after=f"{self._run}-")
            notes = [note for note in found if note.holder == self._run]
            if not notes:
                return
            yield [_decode(note.value) for note in notes]
            await self._ledger.drop_notes(TOPIC, [note.key for note in notes])


async def drop_left(ledger: Ledger) -> None:
    """Drop what killed runs left: an erasure waits for it. Who calls holds the lease: nobody works on it."""
    if await ledger.notes(TOPIC, limit=1):
        await ledger.drop_notes(TOPIC)


def _encode(one: Drifted) -> str:
    entry = one.entry
    stored_at = entry.stored_at or read_instant(entry.created_at)
    said = {
        "kind": one.kind.value,
        "fact_id": one.fact_id,
        "detail": one.detail,
        "recorded": one.recorded,
        "store": entry.store,
        "external_id": entry.external_id,
        "shown_as": entry.fact_id,
        "ledger_id": entry.ledger_id,
        "scope": entry.scope,
        "stored_at": None if stored_at is None else format_instant(stored_at),
        "generation": entry.generation,
    }
    return json.dumps(said)


def _decode(value: str) -> Drifted:
    said = json.loads(value)
    entry = Entry(
        store=said["store"],
        external_id=said["external_id"],
        fact_id=said["shown_as"],
        ledger_id=said["ledger_id"],
        scope=said["scope"],
        stored_at=read_instant(said["stored_at"]),
        generation=said["generation"],
    )
    return Drifted(Drift(said["kind"]), entry, said["fact_id"], said["detail"], said["recorded"])


__all__ = ["Pile", "drop_left"]
