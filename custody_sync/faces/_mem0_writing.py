"""Adding, updating and deleting memories: a write, a supersession, an erasure."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from custody_sync.coordinator import AsyncCoordinator
from custody_sync.errors import (
    AlreadyRetracted,
    CustodyError,
    Forgotten,
    InvalidInput,
    OnHold,
    SupersedeConflict,
)
from custody_sync.faces._mem0_asked import Adding, Said, Updating, check_day
from custody_sync.faces._mem0_chain import Chain, chain_of, forget_facts, forget_memory, not_found
from custody_sync.faces._mem0_scope import Scope, ids_in, space_of
from custody_sync.faces._mem0_shape import Content, Shown, content_of, end_of, is_own, read_start, row_of
from custody_sync.faces._mem0_view import View
from custody_sync.faces._unfinished import unfinished
from custody_sync.ledger.questions import Account
from custody_sync.model import FREE_TEXT_PREDICATE, Entry, Fact
from custody_sync.recalled import Belief, Link
from custody_sync.repair import Adoption
from custody_sync.results import Fate, ForgetManyResult, WriteResult

log = logging.getLogger("custody_sync.faces")

_CONFLICTS = 100
"""How often an update begins anew because another one was first."""
_PAGE = 1000


# --- add ------------------------------------------------------------------------------------


async def add(custody: AsyncCoordinator, view: View, asked: Adding) -> Shown:
    """Write each message as a memory of its own, in order; the id is one that Mem0 could have made."""
    if asked.infer:
        return await _infer(custody, view, asked)
    now = custody.runtime.clock.now()
    check_day(asked.expiration_date, now)
    metadata = dict(asked.metadata)
    start = read_start(metadata, now)
    results: list[Shown] = []
    for said in asked.said:
        memory_id = custody.runtime.ids.fact_id(now)
        content = _content(said, replace(asked, metadata=metadata))
        try:
            await custody.write(
                value=content.to_value(),
                space=space_of(asked.scope.given),
                actor=view.actor,
                subject=memory_id,
                predicate=FREE_TEXT_PREDICATE,
                text=said.text,
                valid_from=start,
                valid_to=content.valid_to,
                receipt_id=view.receipt_id,
            )
        except CustodyError as error:
            if results:
                ids = ", ".join(one["id"] for one in results)
                error.add_note(f"{len(results)} of {len(asked.said)} messages were written before: {ids}")
            raise
        results.append(
            {
                "id": memory_id,
                "memory": said.text,
                "event": "ADD",
                "actor_id": said.actor_id,
                "role": said.role,
            }
        )
    return {"results": results}


def _content(said: Said, asked: Adding) -> Content:
    return Content(
        memory=said.text,
        ids=asked.scope.given,
        metadata=asked.metadata,
        role=said.role,
        actor_id=said.actor_id,
        expiration_date=asked.expiration_date,
    )


async def _infer(custody: AsyncCoordinator, view: View, asked: Adding) -> Shown:
    """Let Mem0's model write, then put on record as claims what it wrote, under Mem0's own ids."""
    store, user_id = view.inferring, asked.scope.user_id
    if store is None or user_id is None:
        raise InvalidInput(
            field="user_id", problem="has to be given where infer='adopt': Mem0's rows are a user's"
        )
    check_day(asked.expiration_date, custody.runtime.clock.now())
    options: dict[str, Any] = {**asked.scope.given, **asked.options, "metadata": asked.metadata}
    if asked.expiration_date is not None:
        options["expiration_date"] = asked.expiration_date
    entries = await store.infer(asked.messages, **{k: v for k, v in options.items() if v})

    def becomes(entry: Entry) -> Adoption:
        content = Content(
            memory=entry.text or "",
            ids=asked.scope.given,
            metadata=asked.metadata,
            expiration_date=asked.expiration_date,
        )
        return Adoption(
            space=space_of(asked.scope.given),
            subject=entry.external_id,
            predicate=FREE_TEXT_PREDICATE,
            value=content.to_value(),
        )

    done = await custody.adopt(
        store.name,
        actor=view.actor,
        space=becomes,
        entries=entries,
        dry_run=False,
        receipt_id=view.receipt_id,
    )
    if done.adopted < len(entries):
        log.warning(
            "%d memories that Mem0 inferred are not on record: run adopt", len(entries) - done.adopted
        )
    known = [entry for entry in entries if await chain_of(custody, entry.external_id) is not None]
    return {"results": [{"id": one.external_id, "memory": one.text, "event": "ADD"} for one in known]}


# --- update ---------------------------------------------------------------------------------


async def update(custody: AsyncCoordinator, view: View, asked: Updating) -> Shown:
    """Supersede the memory as it is by then; of several updates at once each becomes a link, in turn.

    Raises:
        InvalidInput: there is no such memory, or it is a claim that waits.
    """
    tries = 0
    while True:
        tries += 1
        chain, link = await _to_update(custody, asked)
        try:
            result = await _supersede(custody, view, asked, chain, link)
        except SupersedeConflict:
            if tries == _CONFLICTS:
                raise
        except (Forgotten, AlreadyRetracted):
            raise not_found() from None
        else:
            view.tell([result])
            return {"message": "Memory updated successfully!"}


async def _to_update(custody: AsyncCoordinator, asked: Updating) -> tuple[Chain, Link]:
    chain = await chain_of(custody, asked.memory_id)
    link = None if chain is None else chain.current(include_claimed=True)
    if chain is None or link is None:
        raise not_found()
    if link.belief is Belief.CLAIMED:
        problem = "is a claim that nobody confirmed: confirm it first, or delete it"
        raise InvalidInput(field="memory_id", problem=problem)
    fact = link.fact
    if not is_own(fact) and (
        fact.predicate != FREE_TEXT_PREDICATE or asked.metadata is not None or asked.expires
    ):
        problem = "was written as a fact of its own: only the text of free text can be updated here"
        raise InvalidInput(field="memory_id", problem=problem)
    return chain, link


async def _supersede(
    custody: AsyncCoordinator, view: View, asked: Updating, chain: Chain, link: Link
) -> WriteResult:
    fact, old = link.fact, content_of(link.fact)
    text = old.memory if asked.text is None else asked.text
    now = custody.runtime.clock.now()
    content = replace(
        old,
        memory=text,
        metadata={**old.metadata, **(asked.metadata or {})},
        expiration_date=asked.expiration_date if asked.expires else old.expiration_date,
        created_at=old.created_at or chain.links[0].fact.valid_from.isoformat(),
    )
    check_day(content.expiration_date, now)
    return await custody.write(
        value=content.to_value() if is_own(fact) else text,
        space=fact.space,
        actor=view.actor,
        subject=fact.subject,
        predicate=fact.predicate,
        text=text,
        supersedes=fact.fact_id,
        # Another process's clock may be a little ahead of this one's.
        valid_from=fact.valid_from if fact.valid_from > now else None,
        valid_to=None if content.expiration_date is None else end_of(content.expiration_date),
        receipt_id=view.receipt_id,
    )


async def confirm(custody: AsyncCoordinator, view: View, memory_id: str, reason: str | None) -> Shown:
    """Believe what Mem0's model made of messages."""
    chain = await chain_of(custody, memory_id)
    claims = [] if chain is None else [link for link in chain.links if link.belief is Belief.CLAIMED]
    if chain is None or not claims:
        raise InvalidInput(field="memory_id", problem="is no claim that waits for a confirmation")
    result = await custody.confirm(
        claims[-1].fact.fact_id, actor=view.actor, reason=reason, receipt_id=view.receipt_id
    )
    view.tell([result])
    return {"message": "Memory confirmed successfully!"}


# --- delete ---------------------------------------------------------------------------------


async def delete(custody: AsyncCoordinator, view: View, memory_id: str) -> Shown:
    """Erase a memory with every version of it; the ledger keeps that there was one, and who deleted it."""
    view.tell(await forget_memory(custody, memory_id, view.actor, view.receipt_id))
    return {"message": "Memory deleted successfully!"}


async def delete_all(custody: AsyncCoordinator, view: View, scope: Scope) -> Shown:
    """Erase every memory that has all of these ids, whatever its state, and then say what a hold kept.

    Raises:
        OnHold: the first of those that a hold keeps; everything else is erased.
        NotForgotten: something stopped it.
    """
    results: list[ForgetManyResult] = []
    after: int | None = None
    try:
        while True:
            page = await custody.ledger.accounts(space=scope.space, limit=_PAGE, after=after)
            if ids := await _to_forget(custody, page, scope):
                results.append(await forget_facts(custody, ids, view.actor, view.receipt_id))
            if (after := page.next) is None:
                break
    finally:
        view.tell(results)
    for result in results:
        for fact in result.facts:
            if fact.fate is Fate.HELD:
                raise OnHold(fact_id=fact.fact_id, holds=fact.holds)
    return {"message": "Memories deleted successfully!"}


async def _to_forget(custody: AsyncCoordinator, accounts: Sequence[Account], scope: Scope) -> list[str]:
    """Return what is in a scope and has to be forgotten, or was and is still in a store.

    Of what is forgotten only its space says whose it was, so it is seen through wherever it may be in scope.
    """
    gone = [one.fact_id for one in accounts if one.forgotten and _may_have(one.space, scope)]
    left = await unfinished(custody, gone)
    # Whatever its state: superseded, retracted and claimed ones have their texts as well.
    _, chains = await custody.ledger.links([one.fact_id for one in accounts if not one.forgotten])
    facts = {link.fact.fact_id: link.fact for chain in chains for link in chain}
    left.update(fact_id for fact_id, fact in facts.items() if _is_in(fact, scope))
    return [one.fact_id for one in accounts if one.fact_id in left]


def _may_have(space: str, scope: Scope) -> bool:
    ids = ids_in(space)
    return bool(ids) and all(scope.given.get(name, value) == value for name, value in ids.items())


def _is_in(fact: Fact, scope: Scope) -> bool:
    row: Mapping[str, Any] = row_of(fact)
    return not fact.forgotten and all(row.get(name) == value for name, value in scope.given.items())


__all__ = ["add", "confirm", "delete", "delete_all", "update"]
