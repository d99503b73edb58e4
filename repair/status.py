"""How things stand, as the ledger has it: no store is asked, so it can be told while all of them are down."""

from __future__ import annotations

from collections.abc import Collection

from custody_sync.ledger import Ledger
from custody_sync.ledger.outstanding import Backlog
from custody_sync.ledger.storage import DUE, ERASURE
from custody_sync.model import Erasure
from custody_sync.repair.backoff import retries
from custody_sync.repair.last import last_reconcile, last_sweep
from custody_sync.repair.lease import holder
from custody_sync.results import Retry, Status, StoreStatus


async def status_of(ledger: Ledger, configured: Collection[str]) -> Status:
    """Return what is left to do in which store, and who is at it.

    Args:
        ledger: an open one; to read it is enough.
        configured: the names of the stores that there are.
    """
    backlog = {item.store: item for item in await ledger.backlog()}
    tried = await retries(ledger)
    sweeping = await holder(ledger)
    await ledger.mark()
    return Status(
        ledger_id=ledger.ledger_id,
        name=ledger.name,
        head=await ledger.head(),
        time=ledger.now(),
        stores=tuple(
            _store(backlog.get(name, Backlog(store=name)), name in configured, tried.get(name))
            for name in sorted({*configured, *backlog, *tried})
        ),
        erasure=await _erasure(ledger),
        last_sweep=await last_sweep(ledger),
        last_reconcile=await last_reconcile(ledger),
        sweeping=None if sweeping is None else sweeping.holder,
        notices=(*ledger.notices, *await _witnessed(ledger)),
    )


def _store(backlog: Backlog, configured: bool, retry: Retry | None) -> StoreStatus:
    return StoreStatus(
        store=backlog.store,
        configured=configured,
        pending=sum(backlog.by_outcome.values()),
        by_outcome=backlog.by_outcome,
        oldest_pending=backlog.oldest,
        owed=backlog.owed,
        waiting=backlog.waiting,
        next_waiting=backlog.next_waiting,
        retry=retry,
    )


async def _erasure(ledger: Ledger) -> Erasure:
    left = await ledger.notes(ERASURE, limit=1) or await ledger.notes(DUE, limit=1)
    return Erasure.PENDING if left else Erasure.DONE


async def _witnessed(ledger: Ledger) -> tuple[str, ...]:
    """Say where the witness has seen more than there is: a backup was put back, or the log was cut."""
    seen = await ledger.witness.read()
    if seen is None or await ledger.has(seen):
        return ()
    return (f"the witness has seen event {seen.seq}, which is not in this ledger; run ledger verify",)


__all__ = ["status_of"]
