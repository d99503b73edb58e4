"""One memory: every fact of its chain, and its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from custody_sync.coordinator import AsyncCoordinator
from custody_sync.errors import InvalidInput, NotForgotten, OnHold
from custody_sync.faces._mem0_scope import ids_in
from custody_sync.faces._mem0_shape import Shown, content_of, is_own
from custody_sync.faces._unfinished import unfinished
from custody_sync.ledger.storage import Account
from custody_sync.model import FREE_TEXT_PREDICATE, Event, EventKind, Fact
from custody_sync.recalled import Belief, Link
from custody_sync.results import Fate, ForgetManyResult

REASON = "deleted through the mem0 face"
"""What is on record as the reason of a deletion."""
_PAGE = 1000
_TOLD = {EventKind.ASSERT, EventKind.RETRACT, EventKind.FORGET}


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """A memory's facts, oldest first, whatever became of them."""

    memory_id: str
    links: tuple[Link, ...]
    holds: dict[str, tuple[str, ...]]
    """The holds that stand, by fact id."""

    def current(self, *, include_claimed: bool) -> Link | None:
        """Return the link that is shown: the one believed, or a claim if wanted, or the last that ended."""
        wanted = [Belief.BELIEVED, *([Belief.CLAIMED] if include_claimed else []), Belief.ENDED]
        for belief in wanted:
            found = [link for link in self.links if link.belief is belief]
            if found:
                return found[-1]
        return None

    @property
    def is_forgotten(self) -> bool:
        """True when nothing of it is left to forget."""
        return all(link.fact.forgotten for link in self.links)


async def chain_of(custody: AsyncCoordinator, memory_id: str) -> Chain | None:
    """Return a memory by its id; None where there is none.

    The id is the subject of its facts. A fact that was written as something else has its own id, or that
    of the first link that it corrects.
    """
    accounts = await _accounts(custody, memory_id)
    if not accounts:
        fact = await custody.ledger.get(memory_id)
        if fact is None or not ids_in(fact.space):
            return None
        if is_own(fact):
            accounts, memory_id = await _accounts(custody, fact.subject), fact.subject
    if accounts:
        ids = [account.fact_id for account in accounts]
        holds = {account.fact_id: account.holds for account in accounts if account.holds}
        return Chain(memory_id=memory_id, links=await _links(custody, ids), holds=holds)
    links = await _links(custody, [memory_id])
    return Chain(memory_id=links[0].fact.fact_id, links=links, holds=await _holds(custody, links))


async def _accounts(custody: AsyncCoordinator, memory_id: str) -> list[Account]:
    """Return what there is on a memory: the facts of one space, the first that had this id."""
    found: list[Account] = []
    after: int | None = None
    while True:
        page = await custody.ledger.accounts(subject=memory_id, limit=_PAGE, after=after)
        found += [
            account
            for account in page
            if account.predicate == FREE_TEXT_PREDICATE
            and account.space != memory_id
            and ids_in(account.space)
            and account.space == (found[0].space if found else account.space)
        ]
        if (after := page.next) is None:
            return [account for account in found if account.space == found[0].space]


async def _links(custody: AsyncCoordinator, fact_ids: list[str]) -> tuple[Link, ...]:
    _, chains = await custody.ledger.links(fact_ids)
    links = {link.fact.fact_id: link for chain in chains for link in chain}
    return tuple(sorted(links.values(), key=lambda link: link.fact.seq or 0))


async def _holds(custody: AsyncCoordinator, links: tuple[Link, ...]) -> dict[str, tuple[str, ...]]:
    holds: dict[str, tuple[str, ...]] = {}
    for link in links:
        page = await custody.ledger.accounts(limit=1, after=(link.fact.seq or 1) - 1)
        if page and page[0].holds:
            holds[link.fact.fact_id] = page[0].holds
    return holds


async def first_links(custody: AsyncCoordinator, facts: list[Fact]) -> dict[str, Fact]:
    """Return the first link of each fact that corrects another and does not name its memory itself."""
    ids = [fact.fact_id for fact in facts if fact.supersedes is not None and not is_own(fact)]
    if not ids:
        return {}
    _, chains = await custody.ledger.links(ids)
    return {fact_id: chain[0].fact for fact_id, chain in zip(ids, chains, strict=True) if chain}


async def forget_memory(
    custody: AsyncCoordinator, memory_id: str, actor: str, receipt_id: str | None
) -> list[ForgetManyResult]:
    """Forget every link of a memory, until nobody adds another; killed in between, the same call goes on.

    Raises:
        InvalidInput: there is no such memory, or nothing of it is left to do.
        OnHold: a link is under a hold; nothing was done.
        NotForgotten: something stopped it.
    """
    results: list[ForgetManyResult] = []
    done: set[str] = set()
    while True:
        chain = await chain_of(custody, memory_id)
        todo = [] if chain is None else await _todo(custody, chain, done)
        if chain is None or not todo:
            if results:
                return results
            raise not_found()
        if chain.holds:
            fact_id, holds = next(iter(chain.holds.items()))
            raise OnHold(fact_id=fact_id, holds=holds)
        results.append(await forget_facts(custody, todo, actor, receipt_id))
        done |= set(todo)


async def forget_facts(
    custody: AsyncCoordinator, fact_ids: list[str], actor: str, receipt_id: str | None
) -> ForgetManyResult:
    """Forget facts, or raise what stopped it; what a hold keeps is in the result."""
    result = await custody.forget_many(fact_ids, actor=actor, reason=REASON, receipt_id=receipt_id)
    failed = [fact.detail for fact in result.facts if fact.fate is Fate.FAILED]
    if result.stopped is not None or failed:
        left = len(fact_ids) - sum(fact.fate is Fate.FORGOTTEN for fact in result.facts)
        raise NotForgotten(left=left, found=len(fact_ids), cause=result.stopped or failed[0])
    return result


async def _todo(custody: AsyncCoordinator, chain: Chain, done: set[str]) -> list[str]:
    """Return what has to be forgotten, or was and is still in a store, newest first."""
    facts = [link.fact for link in reversed(chain.links) if link.fact.fact_id not in done]
    # What an earlier call left is seen through once; after that there is only what was added meanwhile.
    left = set() if done else await unfinished(custody, [fact.fact_id for fact in facts if fact.forgotten])
    return [fact.fact_id for fact in facts if not fact.forgotten or fact.fact_id in left]


def not_found() -> InvalidInput:
    """Return what Mem0 raises as a `ValueError` too."""
    return InvalidInput(field="memory_id", problem="not found: no memory has this id, or it was deleted")


# --- its history ----------------------------------------------------------------------------


async def history_of(custody: AsyncCoordinator, memory_id: str) -> list[Shown]:
    """Return what happened to a memory as Mem0 words it, oldest first; nothing forgotten shows a text."""
    chain = await chain_of(custody, memory_id)
    if chain is None:
        return []
    facts = {link.fact.fact_id: link.fact for link in chain.links}
    events: list[Event] = []
    for fact_id in facts:
        after: int | None = None
        while True:
            page = await custody.ledger.history(fact_id, limit=_PAGE, after=after)
            events += [event for event in page if event.kind in _TOLD]
            if (after := page.next) is None:
                break
    rows, gone = list[Shown](), set[str]()
    last = chain.links[-1].fact.fact_id
    for event in sorted(events, key=lambda one: one.seq):
        fact = facts[event.fact_id]
        if event.kind is EventKind.ASSERT:
            before = facts.get(fact.supersedes or "")
            was = None if before is None else before.text
            rows.append(_told(chain, event, fact, "UPDATE" if rows else "ADD", was, fact.text))
        elif event.kind is EventKind.RETRACT:
            gone.add(fact.fact_id)
            back = facts.get(fact.supersedes or "")
            while back is not None and back.fact_id in gone:
                back = facts.get(back.supersedes or "")
            kind, text = ("DELETE", None) if back is None else ("UPDATE", back.text)
            rows.append(_told(chain, event, fact, kind, fact.text, text))
        elif fact.fact_id == last:
            rows.append(_told(chain, event, fact, "DELETE", None, None))
    return rows


def _told(chain: Chain, event: Event, fact: Fact, kind: str, was: str | None, text: str | None) -> Shown:
    content: Any = content_of(fact)
    return {
        "id": event.event_id,
        "memory_id": chain.memory_id,
        "old_memory": was,
        "new_memory": text,
        "event": kind,
        "created_at": chain.links[0].fact.valid_from.isoformat(),
        "updated_at": event.tx_time.isoformat(),
        "is_deleted": kind == "DELETE",
        "actor_id": content.actor_id,
        "role": content.role,
    }


__all__ = [
    "REASON",
    "Chain",
    "chain_of",
    "first_links",
    "forget_facts",
    "forget_memory",
    "history_of",
    "not_found",
]
