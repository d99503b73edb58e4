"""Adding and deleting documents: an add is a write or a supersession, a delete a forget of every version.

Of several adds of one id at once each becomes a version of the same chain, and the last is what the
document is afterwards; that holds across processes.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from custody_sync.adapters.langchain import LangChainStore
from custody_sync.calling import Deadlines
from custody_sync.coordinator import AsyncCoordinator
from custody_sync.errors import (
    AlreadyRetracted,
    CustodyError,
    Forgotten,
    IdempotencyConflict,
    OnHold,
    StoreError,
    SupersedeConflict,
    WriteInProgress,
)
from custody_sync.faces._langchain_documents import PREDICATE, Said, is_document
from custody_sync.faces._pending import tell_pending
from custody_sync.faces._unfinished import unfinished
from custody_sync.ledger.questions import Account
from custody_sync.model import Fact
from custody_sync.results import Fate, ForgetManyResult, WriteResult

log = logging.getLogger("custody_sync.faces")

Pending: TypeAlias = Callable[[WriteResult | ForgetManyResult], object]

AT_ONCE = 16
_CONFLICTS = 100
_WAITS = tuple(min(0.02 * 2**n, 1.0) for n in range(12))
"""How long another process's first version of the same document is waited for."""
_QUESTION = Deadlines().question
_REASON = "deleted through the LangChain face"


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """For whom a face speaks, where its documents are, and what it searches."""

    space: str
    actor: str
    receipt_id: str | None = None
    store: str | None = None
    on_pending: Pending | None = None


# --- add ------------------------------------------------------------------------------------


async def add(custody: AsyncCoordinator, view: View, said: Sequence[Said], at_once: int) -> list[str]:
    """Write documents side by side, and return the id of each; of one id twice the last one counts.

    Raises:
        CustodyError: the first document that was not written; a note says how many were.
    """
    ids = [one.id or custody.runtime.ids.fact_id(custody.ledger.now()) for one in said]
    last = dict(zip(ids, said, strict=True))
    slots = asyncio.Semaphore(max(1, min(at_once, AT_ONCE)))

    async def write(document_id: str, document: Said) -> WriteResult:
        async with slots:
            return await _write(custody, view, document_id, document)

    ended = await asyncio.gather(*(write(*item) for item in last.items()), return_exceptions=True)
    done = [result for result in ended if isinstance(result, WriteResult)]
    tell_pending(view.on_pending, *done)
    for failure in ended:
        if isinstance(failure, BaseException):
            if isinstance(failure, CustodyError) and len(last) > 1:
                failure.add_note(f"{len(done)} of {len(last)} documents were written; add them again")
            raise failure
    return ids


async def _write(custody: AsyncCoordinator, view: View, document_id: str, said: Said) -> WriteResult:
    tried, spent, waits = set[str](), "", iter(_WAITS)
    for _ in range(_CONFLICTS):
        live = await current(custody, view.space, document_id)
        if live is not None:
            # Whoever was first is superseded in the next round.
            with suppress(SupersedeConflict, AlreadyRetracted, Forgotten):
                return await _state(custody, view, document_id, said, supersedes=live.fact_id)
            continue
        accounts = await accounts_of(custody, view.space, document_id)
        after = accounts[-1].fact_id if accounts else ""
        # An erasure of identity may have taken out of the account what came after it.
        after = spent if after in tried else after
        key = hashlib.sha256(f"{after} {view.space} {document_id}".encode()).hexdigest()
        try:
            result = await _state(custody, view, document_id, said, key=f"document {key}")
        except WriteInProgress:
            if (wait := next(waits, None)) is None:
                raise
            await custody.runtime.sleep(wait)
            continue
        except (IdempotencyConflict, Forgotten) as taken:
            tried.add(after)
            spent = str(taken.fields["fact_id"])
            continue
        if not result.duplicate or await _is_current(custody, view, document_id, result.fact):
            return result
        tried.add(after)
        spent = result.fact.fact_id
    raise SupersedeConflict(fact_id=spent)


async def _state(
    custody: AsyncCoordinator,
    view: View,
    document_id: str,
    said: Said,
    *,
    supersedes: str | None = None,
    key: str | None = None,
) -> WriteResult:
    return await custody.write(
        value=said.to_value(),
        space=view.space,
        subject=document_id,
        predicate=PREDICATE,
        text=said.content,
        actor=view.actor,
        receipt_id=view.receipt_id,
        supersedes=supersedes,
        idempotency_key=key,
    )


async def _is_current(custody: AsyncCoordinator, view: View, document_id: str, fact: Fact) -> bool:
    live = await current(custody, view.space, document_id)
    return live is not None and live.fact_id == fact.fact_id


# --- delete ---------------------------------------------------------------------------------


async def delete(
    custody: AsyncCoordinator, view: View, ids: Sequence[str], wrapped: LangChainStore | None
) -> bool:
    """Forget every version of some documents; True only when each is seen gone from every store.

    What stands under an id in the wrapped store and is not the ledger's is left there: then it is not True.

    Raises:
        OnHold: a hold keeps one of them; all others are forgotten.
    """
    todo: list[str] = []
    for document_id in ids:
        todo += await _to_forget(custody, view.space, document_id)
    done = await _forget(custody, view, todo) if todo else None
    gone = wrapped is None or await _none_is_left(custody, view, ids, wrapped)
    if done is None:
        return gone
    for fact in done.facts:
        if fact.fate is Fate.HELD:
            raise OnHold(fact_id=fact.fact_id, holds=list(fact.holds))
    return gone and done.complete and all(fact.complete for fact in done.facts)


async def _forget(custody: AsyncCoordinator, view: View, fact_ids: Sequence[str]) -> ForgetManyResult:
    result = await custody.forget_many(fact_ids, actor=view.actor, reason=_REASON, receipt_id=view.receipt_id)
    tell_pending(view.on_pending, result, said=True)
    return result


async def _none_is_left(
    custody: AsyncCoordinator, view: View, ids: Sequence[str], wrapped: LangChainStore
) -> bool:
    """Ask the store for ids that the ledger has nothing more to do about, and say what it still has."""
    slots = asyncio.Semaphore(AT_ONCE)
    left, silent = 0, 0

    async def ask(document_id: str) -> None:
        nonlocal left, silent
        async with slots:
            if silent:
                # A store that hangs is waited for once.
                silent += 1
                return
            try:
                async with asyncio.timeout(_QUESTION):
                    found = await wrapped.has(document_id)
            except (StoreError, TimeoutError):
                silent += 1
                return
            # What is held, or not seen gone yet, is the ledger's to delete.
            if found and not await _to_forget(custody, view.space, document_id):
                left += 1

    await asyncio.gather(*map(ask, ids))
    if left:
        log.warning(
            "the store has %d of these ids and the ledger does not; left as they are: run adopt", left
        )
    if silent:
        log.warning("the store did not say whether it has %d of these ids: delete them again", silent)
    return not left and not silent


async def _to_forget(custody: AsyncCoordinator, space: str, document_id: str) -> list[str]:
    """Return every version that is not forgotten, or is forgotten and not seen gone, oldest first.

    Whoever is interrupted deletes the rest by deleting it again.
    """
    accounts = await accounts_of(custody, space, document_id)
    states = {account.fact_id: account.forgotten for account in accounts}
    if not accounts:
        other = await custody.ledger.get(document_id)
        if other is not None and other.space == space and not is_document(other):
            states = {document_id: other.forgotten}
    left = await unfinished(custody, [fact_id for fact_id, forgotten in states.items() if forgotten])
    return [fact_id for fact_id, forgotten in states.items() if not forgotten or fact_id in left]


# --- what the ledger has of a document ------------------------------------------------------


async def current(custody: AsyncCoordinator, space: str, document_id: str) -> Fact | None:
    """Return what is believed of a document; of several that were written apart the newest."""
    newest: Fact | None = None
    after: int | None = None
    while True:
        page = await custody.ledger.as_of(
            space=space, subject=document_id, predicate=PREDICATE, limit=1000, after=after
        )
        for fact in page:
            if not fact.forgotten and is_document(fact):
                newest = fact
        if (after := page.next) is None:
            return newest


async def accounts_of(custody: AsyncCoordinator, space: str, document_id: str) -> list[Account]:
    """Return what there is on every version of a document, the oldest first."""
    found: list[Account] = []
    after: int | None = None
    while True:
        page = await custody.ledger.accounts(space=space, subject=document_id, after=after)
        found += [account for account in page if account.predicate == PREDICATE]
        if (after := page.next) is None:
            return found


__all__ = ["AT_ONCE", "Pending", "View", "add", "current", "delete"]
