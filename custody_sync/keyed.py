"""Idempotency keys: the same key and body is one fact, however often and wherever it is sent."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from datetime import timedelta

from custody_sync.errors import Forgotten, IdempotencyConflict, LedgerError, WriteInProgress
from custody_sync.ledger import Ledger
from custody_sync.ledger.storage import Note
from custody_sync.model import EventKind, Fact, Standing
from custody_sync.proposing import Request
from custody_sync.runtime import Runtime

TOPIC = "reservation"
RESERVED_FOR = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Reserved:
    """The id to write under, or the fact that an earlier write with this key became."""

    fact_id: str
    holder: str
    earlier: Fact | None = None


class Keys:
    """Reserves fact ids for keyed writes, in the ledger, so that it holds across processes."""

    def __init__(self, ledger: Ledger, runtime: Runtime) -> None:
        self._ledger = ledger
        self._runtime = runtime

    async def reserve(self, request: Request, key: str) -> Reserved:
        """Reserve the id of a key, or answer with what it already became.

        Raises:
            IdempotencyConflict: the key was used for another body.
            WriteInProgress: another write with this key is under way; reservations lapse after five minutes.
            Forgotten: the fact was erased; writing it again needs a new key.
        """
        holder = self._runtime.ids.event_id()
        attempt = 0
        while True:
            fact_id = self._ledger.keyed_id(request.space, key, attempt)
            standing = await self._standing(fact_id)
            if standing is Standing.REPAIRED:
                attempt += 1
                continue
            if standing is Standing.ASSERTED:
                earlier = await self._earlier(fact_id, request)
                if earlier is None:
                    attempt += 1
                    continue
                return Reserved(fact_id, holder, earlier)
            note = await self._acquire(Reserved(fact_id, holder))
            if note.holder != holder:
                raise WriteInProgress(fact_id=fact_id)
            # Whoever held it before may have recorded the fact between our two questions.
            if await self._standing(fact_id) is Standing.UNKNOWN:
                return Reserved(fact_id, holder)
            await self.release(Reserved(fact_id, holder))

    async def _acquire(self, reserved: Reserved) -> Note:
        try:
            return await self._ledger.acquire(
                TOPIC, reserved.fact_id, holder=reserved.holder, value='""', ttl=RESERVED_FOR
            )
        except LedgerError:
            # It may have been taken all the same, and would block the key for five minutes.
            with contextlib.suppress(LedgerError):
                await self.release(reserved)
            raise

    async def release(self, reserved: Reserved) -> None:
        """Let go of a reservation."""
        await self._ledger.drop_notes(TOPIC, [reserved.fact_id], holder=reserved.holder)

    async def _standing(self, fact_id: str) -> Standing:
        return (await self._ledger.known([fact_id]))[fact_id]

    async def _earlier(self, fact_id: str, request: Request) -> Fact | None:
        """Return what a key became; None where its write was never recorded, and a salvage took its id."""
        fact = await self._ledger.get(fact_id)
        if fact is None or fact.forgotten:
            raise Forgotten(fact_id=fact_id)
        page = await self._ledger.history(fact_id, limit=1)
        if page and page[0].kind is EventKind.ASSERT and page[0].data.get("adopted") is True:
            return None
        said = page[0].sealed.get("content", {}).get("request") if page else None
        if page and page[0].kind is EventKind.ASSERT and said == request.digest():
            return fact
        raise IdempotencyConflict(fact_id=fact_id)
