"""Searching and listing memories: the store finds, the ledger has the last word and the words."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

from custody_sync.coordinator import AsyncCoordinator
from custody_sync.faces._mem0_asked import Listing, Searching
from custody_sync.faces._mem0_chain import chain_of, first_links
from custody_sync.faces._mem0_filters import Matches
from custody_sync.faces._mem0_shape import Shown, roots, row_of, shown
from custody_sync.faces._mem0_view import View
from custody_sync.model import Fact
from custody_sync.recalled import Belief

log = logging.getLogger("custody_sync.faces")
_PAGE = 1000


async def search(custody: AsyncCoordinator, view: View, asked: Searching) -> Shown:
    """Recall, filter by the ledger's facts, cut by the store's score, and show it as Mem0 does.

    An answer that may not be all there is says so under `status`, which Mem0's own has not.
    """
    if not asked.top_k:
        return {"results": []}
    space = asked.filter.scope.space
    recalled = await custody.recall(
        asked.query,
        k=asked.top_k,
        spaces=None if space is None else [space],
        include_claimed=view.include_claimed,
        store=view.store,
        keep=_kept(asked.filter.matches),
    )
    near = [hit for hit in recalled.hits if hit.score is None or hit.score >= asked.threshold]
    facts = [hit.fact for hit in near]
    first = await first_links(custody, facts)
    paired = zip(near, roots(facts, first), strict=True)
    results = [shown(fact, one, first=root, score=hit.score) for hit, (fact, one, root) in paired]
    if asked.rerank and view.reranker is not None:
        results = await _reranked(view.reranker, asked, results)
    # What was cut off is followed by nothing nearer: then the rest does not matter.
    if recalled.complete or len(near) < len(recalled.hits):
        return {"results": results}
    return {"results": results, "status": recalled.status.value}


async def get_all(custody: AsyncCoordinator, view: View, asked: Listing) -> Shown:
    """List what the ledger believes, in the order it was written; the store is not asked."""
    matches, results = asked.filter.matches, list[Shown]()
    if not asked.top_k:
        return {"results": results}
    listed = _whatever_ended if asked.show_expired else _believed
    async for page in listed(custody, view, asked.filter.scope.space, asked.top_k):
        facts = [fact for fact in page if matches(row_of(fact))][: asked.top_k - len(results)]
        first = await first_links(custody, facts)
        results += [shown(fact, one, first=root) for fact, one, root in roots(facts, first)]
        if len(results) >= asked.top_k:
            break
    return {"results": results}


async def get(custody: AsyncCoordinator, view: View, memory_id: str) -> Shown | None:
    """Return a memory, expired ones too, as Mem0 does; None once it is deleted, or was never there."""
    chain = await chain_of(custody, memory_id)
    link = None if chain is None else chain.current(include_claimed=view.include_claimed)
    if chain is None or link is None:
        return None
    return shown(link.fact, chain.memory_id, first=chain.links[0].fact, score=None)


async def _believed(
    custody: AsyncCoordinator, view: View, space: str | None, first: int
) -> AsyncIterator[list[Fact]]:
    after: int | None = None
    moment: datetime | None = None
    limit = min(first, _PAGE)
    while True:
        page = await custody.ledger.as_of(
            space=space, tx_at=moment, include_claimed=view.include_claimed, limit=limit, after=after
        )
        yield [fact for fact in page if not fact.forgotten]
        # All pages are of one moment, so that an update in between shows a memory once.
        moment, limit = moment or page.head.tx_time, _PAGE
        if (after := page.next) is None:
            return


async def _whatever_ended(
    custody: AsyncCoordinator, view: View, space: str | None, first: int
) -> AsyncIterator[list[Fact]]:
    """Yield what is believed and what was until it ended, unless something came after it."""
    after: int | None = None
    limit = min(first, _PAGE)
    wanted = {Belief.BELIEVED, Belief.ENDED, *([Belief.CLAIMED] if view.include_claimed else [])}
    while True:
        page = await custody.ledger.accounts(space=space, limit=limit, after=after)
        limit = _PAGE
        ids = [one.fact_id for one in page if not (one.forgotten or one.retracted or one.superseded_at)]
        _, chains = await custody.ledger.links(ids)
        facts = {link.fact.fact_id: link.fact for chain in chains for link in chain if link.belief in wanted}
        yield [facts[fact_id] for fact_id in ids if fact_id in facts]
        if (after := page.next) is None:
            return


def _kept(matches: Matches) -> Any:
    return lambda fact: matches(row_of(fact))


async def _reranked(reranker: Any, asked: Searching, results: list[Shown]) -> list[Shown]:
    """Let Mem0's reranker order the results; what it returns decides the order and nothing else."""
    by_id = {one["id"]: one for one in results}
    try:
        given = [dict(one) for one in results]
        ordered = await asyncio.to_thread(reranker.rerank, asked.query, given, asked.top_k)
        scores = {one["id"]: one.get("rerank_score") for one in ordered if one["id"] in by_id}
    except Exception as error:
        log.warning("the reranker raised %s; the store's order stands", type(error).__name__)
        return results
    return [
        by_id[one] if score is None else {**by_id[one], "rerank_score": score}
        for one, score in scores.items()
    ]


__all__ = ["get", "get_all", "search"]
