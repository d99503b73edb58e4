"""Putting and deleting items: a put is a write or a supersession, a delete a forget of every version.

Of several puts to one item at once, each becomes a version of the same chain, and the last one is
what it is afterwards; that holds across processes.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

from custody_sync.coordinator import AsyncCoordinator
from custody_sync.errors import (
    AlreadyRetracted,
    Forgotten,
    IdempotencyConflict,
    OnHold,
    SupersedeConflict,
    WriteInProgress,
)
from custody_sync.faces._langgraph_layout import PREDICATE, Address
from custody_sync.faces._langgraph_reading import Reading
from custody_sync.faces._pending import tell_pending
from custody_sync.faces._unfinished import unfinished
from custody_sync.ledger.storage import Account
from custody_sync.model import Fact, Json
from custody_sync.results import ForgetResult, WriteResult

Pending: TypeAlias = Callable[[WriteResult | ForgetResult], object]

_CONFLICTS = 100
_WAITS = tuple(min(0.02 * 2**n, 1.0) for n in range(12))
"""How long another process's first put of the same item is waited for, each time it is asked after."""
_REASON = "deleted through the LangGraph store"


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """A checked put; without a value it is a delete."""

    address: Address
    value: dict[str, Json] | None
    text: str | None = None
    lasts: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Speaker:
    """For whom a face speaks."""

    actor: str
    receipt_id: str | None = None


class Writing:
    """Makes facts of puts, and forgets what is deleted.

    Args:
        reading: says what an item is now.
        on_pending: is given every result whose removals are not all verified yet.
    """

    def __init__(self, reading: Reading, on_pending: Pending | None) -> None:
        self._reading = reading
        self._on_pending = on_pending
        # Only saves conflicts: it is the ledger that keeps puts of one item apart.
        self._locks: WeakValueDictionary[Address, asyncio.Lock] = WeakValueDictionary()

    async def put(self, custody: AsyncCoordinator, speaker: Speaker, put: Put) -> None:
        """Put or delete one item, one after another within this process."""
        lock = self._locks.get(put.address)
        if lock is None:
            lock = self._locks[put.address] = asyncio.Lock()
        async with lock:
            if put.value is None:
                await self._delete(custody, speaker, put.address)
            else:
                await self._write(custody, speaker, put)

    async def _write(self, custody: AsyncCoordinator, speaker: Speaker, put: Put) -> None:
        live, spent, tried, waits = None, "", set[str](), iter(_WAITS)
        for _ in range(_CONFLICTS):
            live = await self._reading.current(custody, put.address)
            if live is not None:
                # Whoever was first is superseded in the next round.
                with suppress(SupersedeConflict, AlreadyRetracted, Forgotten):
                    await self._supersede(custody, speaker, put, live)
                    return
                continue
            after = await _last(custody, put.address)
            # An erasure of identity may have taken out of the account what came after it.
            after = spent if after in tried else after
            try:
                taken = await self._begin(custody, speaker, put, after)
            except WriteInProgress:
                if (wait := next(waits, None)) is None:
                    raise
                await custody.runtime.sleep(wait)
                continue
            if taken is None:
                return
            tried.add(after)
            spent = taken
        raise SupersedeConflict(fact_id=spent if live is None else live.fact_id)

    async def _supersede(self, custody: AsyncCoordinator, speaker: Speaker, put: Put, live: Fact) -> None:
        result = await custody.write(**_said(custody, speaker, put), supersedes=live.fact_id)
        self._reading.follow(live, result.fact)
        tell_pending(self._on_pending, result)

    async def _begin(self, custody: AsyncCoordinator, speaker: Speaker, put: Put, after: str) -> str | None:
        """Write the first version of a life, under a key that no other process can write another under.

        Returns:
            the fact that had this key before and is not believed any more; None when it is written.
        """
        key = hashlib.sha256(f"{after} {put.address.subject}".encode()).hexdigest()
        try:
            result = await custody.write(**_said(custody, speaker, put), idempotency_key=f"item {key}")
        except (IdempotencyConflict, Forgotten) as taken:
            return str(taken.fields["fact_id"])
        tell_pending(self._on_pending, result)
        return None

    async def _delete(self, custody: AsyncCoordinator, speaker: Speaker, address: Address) -> None:
        """Forget every version that is not forgotten, or is forgotten and not seen gone, the oldest first.

        So whoever is interrupted finds the item still there, and deletes the rest by deleting it again;
        where a store was out of reach the same call finishes the removal.
        """
        accounts = await _accounts(custody, address)
        for account in accounts:
            if account.holds and not account.forgotten:
                raise OnHold(fact_id=account.fact_id, holds=list(account.holds))
        left = await unfinished(custody, [account.fact_id for account in accounts if account.forgotten])
        for account in accounts:
            if account.forgotten and account.fact_id not in left:
                continue
            result = await custody.forget(
                account.fact_id, actor=speaker.actor, reason=_REASON, receipt_id=speaker.receipt_id
            )
            tell_pending(self._on_pending, result)


def _said(custody: AsyncCoordinator, speaker: Speaker, put: Put) -> dict[str, Any]:
    """Return what a write is told of a put; a lifetime begins when it is written."""
    return {
        "value": put.value,
        "space": put.address.space,
        "subject": put.address.subject,
        "predicate": PREDICATE,
        "text": put.text,
        "actor": speaker.actor,
        "receipt_id": speaker.receipt_id,
        "valid_to": None if put.lasts is None else custody.ledger.now() + put.lasts,
    }


async def _accounts(custody: AsyncCoordinator, address: Address) -> list[Account]:
    """Return what there is on every version of an item, the oldest first."""
    found: list[Account] = []
    after: int | None = None
    while True:
        page = await custody.ledger.accounts(space=address.space, subject=address.subject, after=after)
        found += [account for account in page if account.predicate == PREDICATE]
        if (after := page.next) is None:
            return found


async def _last(custody: AsyncCoordinator, address: Address) -> str:
    """Return the last version there was, whatever became of it; empty where there was none."""
    accounts = await _accounts(custody, address)
    return accounts[-1].fact_id if accounts else ""


__all__ = ["Pending", "Put", "Speaker", "Writing"]
