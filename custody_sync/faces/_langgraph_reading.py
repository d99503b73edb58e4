"""What a LangGraph store is asked for: one item from the ledger, a search through the store, namespaces.

Search by a query is a recall. Without a query everything is read from the ledger, so nothing that
a store still has or has lost changes a listing.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from typing import NamedTuple

from custody_sync.coordinator import AsyncCoordinator
from custody_sync.errors import InvalidInput
from custody_sync.faces._langgraph_filters import matches
from custody_sync.faces._langgraph_layout import PREDICATE, Address, Kept, Layout, Namespace, joined
from custody_sync.faces._partial import tell_partial
from custody_sync.model import Fact, Json
from custody_sync.recalled import Recalled, RecallResult, RecallStatus
from custody_sync.serving import LARGEST_K

log = logging.getLogger("custody_sync.faces")

_PAGE = 1000
_SPACES = 64
"""With more spaces than this a store is asked about all of its own, since it may be asked once for each.
Only where that leads to too little is it asked about so many at a time."""
_REMEMBERED = 10_000


class Found(NamedTuple):
    """An item as it is shown: when it was first put, and how near it is."""

    kept: Kept
    created_at: datetime
    updated_at: datetime
    score: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Get:
    """A checked question for one item."""

    address: Address
    refresh: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """A checked search; without a query it is a listing."""

    prefix: Namespace
    condition: dict[str, Json]
    limit: int
    offset: int
    query: str | None = None
    refresh: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """One condition on a namespace, from its beginning or from its end; `*` is any label."""

    path: Namespace
    from_end: bool

    def holds(self, namespace: Namespace) -> bool:
        """Tell whether a namespace meets it."""
        if len(namespace) < len(self.path):
            return False
        part = namespace[len(namespace) - len(self.path) :] if self.from_end else namespace
        return all(wanted in ("*", label) for label, wanted in zip(part, self.path, strict=False))


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """A checked question for namespaces."""

    matches: tuple[Match, ...]
    depth: int | None
    limit: int
    offset: int


class Reading:
    """Answers from the ledger, and of a store what the ledger stands behind.

    Args:
        layout: where items stand.
        store: which store is searched; the first that can be by default.
        indexed: whether a query means anything to that store.
    """

    def __init__(self, layout: Layout, *, store: str | None, indexed: bool) -> None:
        self.layout = layout
        self._store = store
        self._indexed = indexed
        # A chain never gets another first link, so what was read once stays true, for every process.
        self._first: OrderedDict[str, datetime] = OrderedDict()
        self._warned = False

    async def current(self, custody: AsyncCoordinator, address: Address) -> Fact | None:
        """Return the fact that an item is now; the last one, should somebody else have written several."""
        page = await custody.ledger.as_of(space=address.space, subject=address.subject, predicate=PREDICATE)
        return page[-1] if page else None

    async def get(self, custody: AsyncCoordinator, question: Get) -> Found | None:
        """Return one item."""
        fact = await self.current(custody, question.address)
        kept = None if fact is None else self.layout.read(fact)
        if kept is None:
            return None
        return (await self._dated(custody, [kept], question.refresh))[0]

    async def search(self, custody: AsyncCoordinator, question: Search) -> list[Found]:
        """Return items, nearest first where a query says what is near."""
        if question.limit == 0:
            return []
        if question.query is None or not question.query.strip() or not self._indexed:
            return await self._dated(custody, await self._listed(custody, question), question.refresh)
        return await self._recalled(custody, question, question.query)

    async def names(self, custody: AsyncCoordinator, question: Names) -> list[Namespace]:
        """Return namespaces that have an item now, in order, each once after it was cut to the depth."""
        found: list[Namespace] = []
        end = question.offset + question.limit
        async for namespace in self._alive(custody, question.matches):
            cut = namespace[: question.depth]
            if not found or found[-1] != cut:
                if len(found) == end:
                    break
                found.append(cut)
        return found[question.offset : end]

    def follow(self, before: Fact, after: Fact) -> None:
        """Note that a fact supersedes another, whose item was first put when that one's was."""
        if (first := self._first.get(before.fact_id)) is not None:
            self._remember(after.fact_id, first)

    def _remember(self, fact_id: str, first: datetime) -> None:
        self._first[fact_id] = first
        self._first.move_to_end(fact_id)
        if len(self._first) > _REMEMBERED:
            self._first.popitem(last=False)

    # --- listing ----------------------------------------------------------------------------

    async def _listed(self, custody: AsyncCoordinator, question: Search) -> list[Kept]:
        end = question.offset + question.limit
        page = _PAGE if question.condition else min(_PAGE, end)
        seen, found = 0, list[Kept]()
        async for kept in self._items(custody, question.prefix, page):
            if not matches(kept.value, question.condition):
                continue
            if (seen := seen + 1) > question.offset:
                found.append(kept)
            if seen == end:
                break
        return found

    async def _items(
        self, custody: AsyncCoordinator, prefix: Namespace, page: int = _PAGE
    ) -> AsyncIterator[Kept]:
        """Yield every item below a prefix, space by space, in the order in which they were last put."""
        spaces = await self.layout.spaces(custody.ledger, prefix)
        for space in [None] if spaces is None else spaces:
            async for kept in self._items_in(custody, space, page):
                if kept.namespace[: len(prefix)] == prefix:
                    yield kept

    async def _items_in(self, custody: AsyncCoordinator, space: str | None, page: int) -> AsyncIterator[Kept]:
        after: int | None = None
        moment: datetime | None = None
        while True:
            facts = await custody.ledger.as_of(space=space, limit=page, after=after, tx_at=moment)
            for kept in map(self.layout.read, facts):
                if kept is not None:
                    yield kept
            if (after := facts.next) is None:
                return
            # Later pages are of the moment of the first, so that what is put meanwhile moves nothing.
            moment = moment or facts.head.tx_time

    async def _alive(
        self, custody: AsyncCoordinator, conditions: Sequence[Match]
    ) -> AsyncIterator[Namespace]:
        if not self.layout.is_default:
            held = {kept.namespace async for kept in self._items(custody, ())}
            for namespace in sorted(held):
                if all(one.holds(namespace) for one in conditions):
                    yield namespace
            return
        for namespace in await self.layout.namespaces(custody.ledger, _beginning(conditions)):
            if not all(one.holds(namespace) for one in conditions):
                continue
            async for _ in self._items_in(custody, joined(namespace), 1):
                yield namespace
                break

    # --- searching --------------------------------------------------------------------------

    async def _recalled(self, custody: AsyncCoordinator, question: Search, query: str) -> list[Found]:
        end = question.offset + question.limit
        if end > LARGEST_K:
            problem = f"and offset must together be at most {LARGEST_K} with a query"
            raise InvalidInput(field="limit", problem=problem)
        spaces = await self.layout.spaces(custody.ledger, question.prefix, _SPACES)
        if spaces is not None and not spaces:
            return []

        def keep(fact: Fact) -> bool:
            kept = self.layout.read(fact)
            return (
                kept is not None
                and fact.text != fact.subject  # it was put with index=False
                and kept.namespace[: len(question.prefix)] == question.prefix
                and matches(kept.value, question.condition)
            )

        async def ask(spaces: Sequence[str] | None) -> RecallResult:
            return await custody.recall(query, k=end, spaces=spaces, store=self._store, keep=keep)

        answers = [await ask(spaces)]
        if spaces is None and answers[0].status is RecallStatus.SHORT:
            # Nearer entries of other spaces crowd the store's answer: it is asked for these spaces alone.
            below = await self.layout.spaces(custody.ledger, question.prefix) or []
            groups = [below[first : first + _SPACES] for first in range(0, len(below), _SPACES)]
            answers = [await ask(group) for group in groups] or answers
        best = _best([hit for answer in answers for hit in answer.hits])[:end]
        if len(best) < end:
            tell_partial(min(answers, key=lambda answer: answer.complete))
        hits = best[question.offset :]
        kept = [item for hit in hits if (item := self.layout.read(hit.fact)) is not None]
        dated = await self._dated(custody, kept, question.refresh)
        return [found._replace(score=hit.score) for found, hit in zip(dated, hits, strict=True)]

    # --- dates ------------------------------------------------------------------------------

    async def _dated(self, custody: AsyncCoordinator, items: Sequence[Kept], refresh: bool) -> list[Found]:
        """Add when each item was first put, which is when the first link of its chain was recorded."""
        if refresh and not self._warned and any(kept.fact.valid_to is not None for kept in items):
            self._warned = True
            log.warning("refresh_ttl has no effect: a lifetime runs from the last put")
        asked = [
            kept.fact.fact_id
            for kept in items
            if kept.fact.supersedes is not None and kept.fact.fact_id not in self._first
        ]
        first: dict[str, datetime] = {}
        if asked:
            _, chains = await custody.ledger.links(asked)
            for fact_id, chain in zip(asked, chains, strict=True):
                if chain and chain[0].fact.tx_time is not None:
                    first[fact_id] = chain[0].fact.tx_time
        dated: list[Found] = []
        for kept in items:
            fact = kept.fact
            updated = fact.tx_time or fact.valid_from
            created = first.get(fact.fact_id) or self._first.get(fact.fact_id) or updated
            self._remember(fact.fact_id, created)
            dated.append(Found(kept, created, updated))
        return dated


def _beginning(conditions: Sequence[Match]) -> Namespace:
    """Return the labels that every namespace begins with that meets the conditions."""
    paths = (one.path for one in conditions if not one.from_end)
    return max((tuple(takewhile(lambda label: label != "*", path)) for path in paths), key=len, default=())


def _best(hits: list[Recalled]) -> list[Recalled]:
    """Return hits of several answers, the nearest first; where a store scores nothing, as they came."""
    if any(hit.score is None for hit in hits):
        return hits
    return sorted(hits, key=lambda hit: hit.score or 0.0, reverse=True)


__all__ = ["Found", "Get", "Match", "Names", "Reading", "Search", "log"]
