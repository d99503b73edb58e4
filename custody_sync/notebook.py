"""Notebooks: what a store must know again in another process, kept beside the ledger's log.

A store claims where it keeps a space before it puts anything there; of several processes the first
one decides, in the ledger's transaction. Beside each claim stands which spaces need it, so that an
erasure of identity can take the claims that nobody needs any more: a key is often a person's name.
Rows are found by keyed hashes, and only a claim's own row says what it is about.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial

from custody_sync.canonical import canonical, check_name, check_text
from custody_sync.gathering import FEW, Gathering
from custody_sync.ledger import Ledger
from custody_sync.ledger.storage import CLAIMS, USED, USES, Note
from custody_sync.runtime import Runtime

PAGE = 1000
_NOTHING = '""'


@dataclass(slots=True)
class Need:
    """What one put asked its store's notebook for."""

    space: str
    claims: dict[tuple[str, str], str] = field(default_factory=dict)
    """Values by store and key."""


_NEED: ContextVar[Need | None] = ContextVar("custody_need", default=None)


@contextmanager
def needing(space: str) -> Iterator[Need]:
    """Collect what is asked for inside as what a space needs."""
    need = Need(space)
    token = _NEED.set(need)
    try:
        yield need
    finally:
        _NEED.reset(token)


class StoreNotebook:
    """One store's notebook; see `ports.Notebook`.

    Args:
        ledger: keeps it.
        store: the store's name.
        runtime: ids.
    """

    def __init__(self, ledger: Ledger, store: str, runtime: Runtime) -> None:
        self.store = store
        self.id = ledger.keyed_id("notebook", store)
        self._ledger = ledger
        self._runtime = runtime
        # Puts that are under way at the same time look up their notes together, and note together.
        self._claim_at = Gathering(partial(_look_up, ledger, CLAIMS), at_once=FEW)
        self._use_at = Gathering(partial(_look_up, ledger, USES), at_once=FEW)
        self._use = Gathering(self._note_uses, at_once=FEW)

    async def get(self, key: str) -> str | None:
        """Return what stands for a key, or None."""
        value = await self._standing(key)
        if value is not None and await self._needs(key, value):
            # Had it gone just before we noted that we need it, whoever let go of it did not see that.
            value = await self._standing(key)
        return value

    async def _standing(self, key: str) -> str | None:
        note = await self._claim_at(self._row(key))
        return None if note is None else claimed(note)[1]

    async def claim(self, key: str, value: str) -> str:
        """Set a value unless one stands; return the one that stands, whoever set it."""
        standing = await self.get(check_name(key, "key"))
        if standing is not None:
            return standing
        said = {"key": key, "store": self.store, "value": check_text(value, "value")}
        note = await self._ledger.acquire(
            CLAIMS,
            self._row(key),
            holder=self._runtime.ids.event_id(),
            value=canonical(said).decode(),
            ttl=None,
        )
        stands = claimed(note)[1]
        first = value if stands is None else stands
        await self._needs(key, first)
        return first

    async def read(self) -> Mapping[str, str]:
        """Return everything that was claimed for this store."""
        found: dict[str, str] = {}
        async for note in beginning(self._ledger, CLAIMS, f"{self.id}."):
            key, value = claimed(note)
            if key is not None and value is not None:
                found[key] = value
        return found

    async def drop(self, key: str, value: str | None = None) -> None:
        """Forget a key, so that it may be claimed anew; with a value, only while that is what stands."""
        row, holder = self._row(key), None
        if value is not None:
            note = await at(self._ledger, CLAIMS, row)
            if note is None or claimed(note)[1] != value:
                return
            # Every claim has a holder of its own, so a newer one is not taken, even of the same value.
            holder = note.holder
        await self._ledger.drop_notes(CLAIMS, [row], holder=holder)

    async def renew(self, key: str, value: str) -> None:
        """See that a key stands for the space that needs it, now that a fact of it is recorded.

        An erasure may have let go of it in between. It looks once more after it let go, and we look
        after we recorded, so one of the two sees the other.
        """
        need = _NEED.get()
        if need is None or not await self._is_needed(self._row(key), space_id(self._ledger, need.space)):
            await self.claim(key, value)

    def _row(self, key: str) -> str:
        return f"{self.id}.{self._ledger.keyed_id(self.id, key)}"

    async def _needs(self, key: str, value: str) -> bool:
        """Note that the space of the put under way needs a claim; tell whether that was new."""
        need = _NEED.get()
        if need is None:
            return False
        need.claims[self.store, key] = value
        row, space = self._row(key), space_id(self._ledger, need.space)
        if await self._is_needed(row, space):
            return False
        await self._use((row, space))
        return True

    async def _note_uses(self, uses: Sequence[tuple[str, str]]) -> dict[tuple[str, str], None]:
        """Note of claims that spaces need them, in one transaction."""
        now = self._ledger.now()
        notes: list[Note] = []
        for row, space in uses:
            notes.append(Note(topic=USES, key=f"{row}.{space}", value=_NOTHING, since=now))
            notes.append(Note(topic=USED, key=f"{space}.{row}", value=_NOTHING, since=now))
        await self._ledger.put_notes(notes)
        return dict.fromkeys(uses)

    async def _is_needed(self, row: str, space: str) -> bool:
        return await self._use_at(f"{row}.{space}") is not None


def space_id(ledger: Ledger, space: str) -> str:
    """Return what stands for a space in rows that must not say it."""
    return ledger.keyed_id("notebook space", space)


def claimed(note: Note) -> tuple[str | None, str | None]:
    """Return the key and the value of a claim; nothing of one that is being dropped."""
    said = json.loads(note.value)
    return (said["key"], said["value"]) if isinstance(said, dict) else (None, None)


async def at(ledger: Ledger, topic: str, key: str) -> Note | None:
    """Return the note under a key, or None."""
    return (await ledger.notes_at(topic, [key])).get(key)


async def _look_up(ledger: Ledger, topic: str, keys: Sequence[str]) -> dict[str, Note | None]:
    return dict[str, Note | None].fromkeys(keys) | await ledger.notes_at(topic, keys)


async def beginning(ledger: Ledger, topic: str, prefix: str, *, page: int = 0) -> AsyncIterator[Note]:
    """Yield the notes whose key begins in one way, in order."""
    after = prefix
    while notes := await ledger.notes(topic, limit=page or PAGE, after=after):
        for note in notes:
            if not note.key.startswith(prefix):
                return
            yield note
        after = notes[-1].key


__all__ = ["Need", "StoreNotebook", "at", "beginning", "claimed", "needing", "space_id"]
