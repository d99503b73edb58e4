"""The sweep's spool: what it found, kept beside the log until it is worked off.

Spooling first lets the breaker see the whole before anything is touched, keeps memory flat, and
leaves a killed sweep's candidates where the next one goes on with them. What a batch of a listing
came to and how far the listing had come are written together, so that neither is ever ahead of
the other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from custody_sync.ledger import Ledger
from custody_sync.ledger.storage import Note
from custody_sync.model import Entry, Leftover, format_instant, read_instant
from custody_sync.repair.listing import Batch, Candidate
from custody_sync.results import Seen

TOPIC = "sweep-spool"
SEEN = "sweep-seen"
"""The topic of what was seen and left alone."""
PAGE = 500
_AFTER_ALL = "~"
"""Comes after every key of a store: these end in hex digits."""


@dataclass(frozen=True, slots=True)
class Spooled:
    """A page of the spool, and under which keys it stands."""

    keys: tuple[str, ...]
    candidates: tuple[Candidate, ...]


class Spool:
    """What a sweep found, in the ledger's notes.

    An entry has one row however often it is listed, so that a page that was listed again adds nothing.
    Rows carry the id of the run that they are of, and those of another run are neither read nor dropped.

    Args:
        ledger: where it is kept.
        run: the id.
    """

    def __init__(self, ledger: Ledger, run: str) -> None:
        self._ledger = ledger
        self.run = run

    async def put(self, batch: Batch, progress: Note) -> None:
        """Keep a batch and how far the sweep has come, in one commit."""
        now = self._ledger.now()
        rows = [
            self._row(TOPIC, c.entry.store, c.entry.external_id, _encode(c), now) for c in batch.candidates
        ]
        for kind in ("young", "undated", "contested"):
            rows += [
                self._row(SEEN, s.store, s.external_id, _encode_seen(kind, s), now)
                for s in getattr(batch, kind)
            ]
        await self._ledger.put_notes([*rows, progress])

    def _row(self, topic: str, store: str, external_id: str, value: str, now: datetime) -> Note:
        return Note(topic=topic, key=_key(store, external_id), value=value, holder=self.run, since=now)

    async def pages(self, *, without: set[str]) -> AsyncGenerator[Spooled]:
        """Yield candidates, store by store, but those of some stores, which may become more meanwhile."""
        after = ""
        while notes := await self._ledger.notes(TOPIC, limit=PAGE, after=after):
            candidates = [_decode(note.value) for note in notes]
            gone = {c.entry.store for c in candidates} & without
            kept = [
                (note.key, candidate)
                for note, candidate in zip(notes, candidates, strict=True)
                if candidate.entry.store not in gone and note.holder == self.run
            ]
            if kept:
                yield Spooled(tuple(key for key, _ in kept), tuple(c for _, c in kept))
            last = candidates[-1].entry.store
            after = _prefix(last) + _AFTER_ALL if last in without else notes[-1].key

    async def drop(self, keys: Sequence[str]) -> None:
        """Drop what was worked off."""
        await self._ledger.drop_notes(TOPIC, keys, holder=self.run)

    async def count(self) -> int:
        """Return how many candidates there are."""
        counted, after = 0, ""
        while notes := await self._ledger.notes(TOPIC, limit=1000, after=after):
            counted += sum(note.holder == self.run for note in notes)
            after = notes[-1].key
        return counted

    async def seen(self) -> AsyncIterator[tuple[str, Seen]]:
        """Yield what was left alone, and why."""
        after = ""
        while notes := await self._ledger.notes(SEEN, limit=1000, after=after):
            for note in notes:
                if note.holder == self.run:
                    yield _decode_seen(note.value)
            after = notes[-1].key

    async def drop_store(self, store: str) -> None:
        """Drop what was found in one store, which is listed from its beginning."""
        prefix = _prefix(store)
        for topic in (TOPIC, SEEN):
            after = prefix
            while notes := await self._ledger.notes(topic, limit=1000, after=after):
                keys = [note.key for note in notes if note.key.startswith(prefix)]
                if not keys:
                    break
                await self._ledger.drop_notes(topic, keys, holder=self.run)
                after = keys[-1]

    async def clear(self, *, others: bool = False) -> None:
        """Drop everything: ids of entries have no business beside the log once a sweep is over.

        Args:
            others: also what other runs left.
        """
        for topic in (TOPIC, SEEN):
            await self._ledger.drop_notes(topic, holder=None if others else self.run)


def _prefix(store: str) -> str:
    return f"{_digest(store)[:16]}."


def _key(store: str, external_id: str) -> str:
    return _prefix(store) + _digest(external_id)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:40]


def _encode(candidate: Candidate) -> str:
    return json.dumps(to_json(candidate))


def to_json(candidate: Candidate) -> dict[str, object]:
    """Return a candidate as JSON; an erasure of an identity finds it by its `fact_id`."""
    entry = candidate.entry
    age_from = entry.stored_at or read_instant(entry.created_at)
    return {
        "store": entry.store,
        "external_id": entry.external_id,
        "fact_id": entry.fact_id,
        "scope": entry.scope,
        "stored_at": None if age_from is None else format_instant(age_from),
        "kind": candidate.kind.value,
        "recorded": candidate.recorded,
    }


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


def _encode_seen(kind: str, seen: Seen) -> str:
    since = None if seen.since is None else format_instant(seen.since)
    said = {"store": seen.store, "external_id": seen.external_id, "fact_id": seen.fact_id}
    return json.dumps({**said, "since": since, "seen": kind})


def _decode_seen(value: str) -> tuple[str, Seen]:
    doc = json.loads(value)
    since = read_instant(doc["since"])
    return doc["seen"], Seen(
        store=doc["store"], external_id=doc["external_id"], fact_id=doc["fact_id"], since=since
    )


__all__ = ["SEEN", "TOPIC", "Spool", "Spooled", "to_json"]
