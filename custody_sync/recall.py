"""Recall: the store searches, the ledger decides.

The store's answer is joined to the ledger after it came, all of it in one question, so that what
is served is of one moment of the ledger, whatever the store's index still has.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from custody_sync.errors import InvalidInput, StoreError, UnlabelledEntries
from custody_sync.ledger import Ledger
from custody_sync.ledger.answers import NO_EVENT
from custody_sync.ledger.questions import Instants
from custody_sync.model import Capability, Entry, Fact, Hit, Provenance
from custody_sync.recalled import (
    Belief,
    Budget,
    Dropped,
    Followed,
    Link,
    Recalled,
    RecallResult,
    RecallStatus,
    recalled_of,
)
from custody_sync.served import Served, in_order, joined, read_hits
from custody_sync.stores import Gate, describe

Unlabelled = Literal["drop", "show", "refuse"]
Keep = Callable[[Fact], bool]

MOST = 10_000
"""A store is asked for no more than so many entries."""
GROWTH = 4
PAGE = 1000
ENDLESS = sys.maxsize
MARK = "…"
"""What a text ends with that was cut."""

_WHY = {
    Belief.UNKNOWN: Dropped.ORPHAN,
    Belief.REPAIRED: Dropped.ORPHAN,
    Belief.BELIEVED: Dropped.FORGOTTEN,
    **{belief: Dropped(belief.value) for belief in Belief if belief.value in set(Dropped)},
}
_CUT_SHORT = (RecallStatus.BUDGET_SPENT, RecallStatus.BUDGET_TOO_SMALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is recalled; see `AsyncCoordinator.recall`."""

    query: str
    k: int
    spaces: tuple[str, ...] | None = None
    valid_at: datetime | None = None
    tx_at: datetime | None = None
    include_claimed: bool = False
    with_history: bool = False
    unlabelled: Unlabelled = "drop"
    budget: Budget = field(default_factory=Budget)
    keep: Keep | None = None


@dataclass(slots=True)
class Sifted:
    """One answer of a store, joined to the ledger."""

    at: Instants
    seen: int = 0
    live: list[tuple[Served, Fact]] = field(default_factory=list)
    dropped: dict[Dropped, int] = field(default_factory=dict)
    filtered: set[str] = field(default_factory=set)
    """The facts that the caller's own filter leaves out."""
    unlabelled: list[Entry] = field(default_factory=list)

    def drop(self, why: Dropped, count: int = 1) -> None:
        """Count what is left out."""
        if count:
            self.dropped[why] = self.dropped.get(why, 0) + count

    def reasons(self) -> dict[Dropped, int]:
        """Return what is left out by reason, in one order; of most answers that is nothing."""
        counts = self.dropped
        return {why: counts[why] for why in Dropped if why in counts} if counts else {}


class Recall:
    """One recall from one store.

    Args:
        ledger: what decides.
        gate: the store that is searched.
        question: what is asked.
    """

    def __init__(self, ledger: Ledger, gate: Gate, question: Question) -> None:
        self._ledger = ledger
        self._gate = gate
        self._question = question
        # Before the first answer nothing of the ledger was read.
        self._sifted: Sifted | None = None
        self._rows: list[Served] = []
        self._unreadable = 0
        self._most = 0
        self._hits: list[Recalled] = []
        self._status = RecallStatus.SHORT
        self._notes: list[str] = []

    async def run(self) -> RecallResult:
        """Ask for more and more until there are enough facts, the store has no more, or time is over.

        Raises:
            StoreError: the store did not answer.
            UnlabelledEntries: it served what nobody stands behind, and that is to be refused.
        """
        seconds = self._question.budget.seconds
        if seconds is None:
            await self._ask()
        else:
            await self._ask_within(seconds)
        return self._result()

    async def _ask_within(self, seconds: float) -> None:
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                await self._ask()
        except TimeoutError:
            if not limit.expired():
                raise
            # A ledger that was not read must not look like one that is empty.
            missed = "everything was asked" if self._sifted else "anything of the ledger was read"
            self._notes.append(f"the time was over before {missed}")
            if self._status not in _CUT_SHORT:
                self._status = RecallStatus.TIMED_OUT

    async def _ask(self) -> None:
        sifted = await self._search()
        if self._question.with_history and self._hits:
            await self._add_history(sifted.at)

    async def _search(self) -> Sifted:
        size, spaces = self._first_size(), self._question.spaces
        while True:
            served = await self._serve(size, spaces)
            if served is not None:
                self._sifted = await self._sift(served)
            assert self._sifted is not None  # noqa: S101  # the first answer is there, or was raised
            if self._is_settled(self._sifted):
                break
            is_all = served is None or len(served) < size
            if not is_all and size < MOST:
                size = min(size * GROWTH, MOST)
            elif is_all and not await self._has_more(self._sifted):
                self._status = RecallStatus.EXHAUSTED
                break
            elif is_all and served is not None and spaces is not None and self._may_be_elsewhere():
                spaces, size = None, self._first_size()
            else:
                break
        return self._sifted

    async def _serve(self, size: int, spaces: tuple[str, ...] | None) -> list[Hit] | None:
        """Return the store's best hits; None where it does not serve so many, but did serve some before."""
        try:
            return await self._gate.search(self._question.query, size, spaces)
        except StoreError as error:
            if self._sifted is None:
                raise
            problem = f"{self._gate.name} did not answer when it was asked for {size} entries"
            self._notes.append(f"{problem} ({describe(error)})")
            return None

    def _may_be_elsewhere(self) -> bool:
        """Tell whether facts of these spaces may be in entries that the store knows no space of.

        What was adopted in a store that takes no labels is. Then all of them are looked through, and nobody
        is shown what has no fact.
        """
        return not self._gate.can(Capability.RELABEL) and self._question.unlabelled == "drop"

    def _first_size(self) -> int:
        """Return how many entries are enough for `k` facts, as a rule.

        A store that keeps superseded entries serves about as many of them; any other is clean as a rule.
        What it served before may not matter: the same question has the same answer.
        """
        return self._question.k * (2 if self._gate.keeps else 1)

    def _is_settled(self, sifted: Sifted) -> bool:
        """Choose what is served of an answer, and tell whether a larger one could add nothing to it."""
        over = self._choose(sifted)
        if over is not None:
            self._status = over
        elif len(self._hits) == self._question.k:
            self._status = RecallStatus.FULL
        return self._status is not RecallStatus.SHORT

    async def _has_more(self, sifted: Sifted) -> bool:
        """Tell whether the ledger believes more facts here than the store led to, for whatever reason."""
        question, at = self._question, sifted.at
        if at.head.tx_time is None:
            return False
        # By id: what went since the store's answer must not stand for what the store lacks.
        known = {fact.fact_id for _, fact in sifted.live} | sifted.filtered
        for space in question.spaces or (None,):
            after: int | None = None
            while True:
                page = await self._ledger.as_of(
                    space=space,
                    valid_at=at.valid_at,
                    tx_at=at.head.tx_time,
                    include_claimed=question.include_claimed,
                    limit=min(len(known) + 1, PAGE),
                    after=after,
                )
                if any(not fact.forgotten and fact.fact_id not in known for fact in page):
                    return True
                if (after := page.next) is None:
                    break
        return False

    # --- what an answer leads to ------------------------------------------------------------

    async def _sift(self, hits: Sequence[object]) -> Sifted:
        """Join what a store served to the ledger, in one question.

        What it served before is joined once more: an answer that is larger, or of all spaces, may lack some
        of it.
        """
        question = self._question
        read = read_hits(hits, self._gate.name)
        rows = self._rows = in_order(joined(read, self._rows))
        self._unreadable = max(self._unreadable, len(hits) - len(read))
        self._most = max(self._most, len(hits))
        ledger_id = self._ledger.ledger_id
        ours = [row for row in rows if row[0].ledger_id == ledger_id or row[0].fact_id is None]
        at, led = await self._ledger.follow(
            [entry for entry, _ in ours],
            valid_at=question.valid_at,
            tx_at=question.tx_at,
            include_claimed=question.include_claimed,
        )
        sifted = Sifted(at, len(rows) + self._unreadable)
        sifted.drop(Dropped.UNREADABLE, self._unreadable)
        sifted.drop(Dropped.OTHER_LEDGER, len(rows) - len(ours))
        facts: set[str] = set()
        for row, followed in zip(ours, led, strict=True):
            why = self._judge(row[0], followed, facts, sifted.filtered)
            if why is not None:
                sifted.drop(why)
                if why is Dropped.UNLABELLED:
                    sifted.unlabelled.append(row[0])
            elif followed.fact is not None:
                facts.add(followed.fact.fact_id)
                sifted.live.append((row, followed.fact))
        return sifted

    def _judge(self, entry: Entry, followed: Followed, facts: set[str], filtered: set[str]) -> Dropped | None:
        """Say why an entry is left out; None where its fact is served."""
        question, fact = self._question, followed.fact
        if entry.fact_id is None and followed.owner is None:
            return Dropped.UNLABELLED
        if fact is None:
            return _WHY[followed.belief]
        if fact.forgotten:
            return Dropped.FORGOTTEN
        if question.spaces is not None and fact.space not in question.spaces:
            return Dropped.OTHER_SPACE
        if fact.fact_id in facts or fact.fact_id in filtered:
            return Dropped.REPEATED
        if question.keep is not None and not _is_kept(question.keep, fact):
            filtered.add(fact.fact_id)
            return Dropped.FILTERED
        return None

    # --- what is served of it ---------------------------------------------------------------

    def _choose(self, sifted: Sifted) -> RecallStatus | None:
        """Take the best facts while there is room; say which limit of the budget ended that, if one did."""
        budget, store = self._question.budget, self._gate.name
        left, best = budget.characters or ENDLESS, sifted.live[: self._question.k]
        hits: list[Recalled] = []
        self._hits = hits
        for (entry, score), fact in best:
            text, cut = fact.text or "", False
            is_correction = fact.supersedes is not None
            room = left if is_correction else min(left, budget.per_fact or ENDLESS)
            if len(text) > room:
                if is_correction or room <= len(MARK):
                    sifted.drop(Dropped.BUDGET, len(best) - len(hits))
                    return RecallStatus.BUDGET_TOO_SMALL if is_correction else RecallStatus.BUDGET_SPENT
                text, cut = text[: room - len(MARK)] + MARK, True
            left -= len(text)
            hits.append(recalled_of(fact, text, store, entry.external_id, score, cut))
        return None

    async def _add_history(self, at: Instants) -> None:
        ids = [hit.fact_id for hit in self._hits]
        _, chains = await self._ledger.links(ids, valid_at=at.valid_at, tx_at=at.head.tx_time)
        self._hits = [
            replace(hit, history=tuple(link for link in chain if self._may_show(link)))
            for hit, chain in zip(self._hits, chains, strict=True)
        ]

    def _may_show(self, link: Link) -> bool:
        """Tell whether a link may be in a history; what nobody ever confirmed is only there on demand."""
        was_confirmed = link.fact.provenance is not Provenance.CLAIMED or link.fact.confirmed
        return self._question.include_claimed or (was_confirmed and link.belief is not Belief.CLAIMED)

    def _result(self) -> RecallResult:
        question = self._question
        was_read = self._sifted is not None
        sifted = self._sifted or Sifted(Instants(NO_EVENT, question.valid_at or self._ledger.now()))
        if question.unlabelled == "refuse" and sifted.unlabelled:
            raise UnlabelledEntries(store=self._gate.name, count=len(sifted.unlabelled))
        return RecallResult(
            hits=tuple(self._hits),
            status=self._status,
            store=self._gate.name,
            seen=sifted.seen,
            valid_at=sifted.at.valid_at,
            head=sifted.at.head if was_read else None,
            dropped=sifted.reasons(),
            unlabelled=tuple(sifted.unlabelled) if question.unlabelled == "show" else (),
            notes=(*self._notes, *self._remarks(sifted)),
        )

    def _remarks(self, sifted: Sifted) -> list[str]:
        remarks = []
        count = len(sifted.unlabelled)
        if count and self._question.unlabelled == "drop":
            entries = "1 entry without a label was" if count == 1 else f"{count} entries without a label were"
            remarks.append(f"{entries} left out: run adopt")
        if self._status is RecallStatus.SHORT:
            remarks.append(
                f"only the first {MOST} entries were looked at"
                if self._most >= MOST
                else "the ledger has more facts here than the store served for this query; reconcile tells "
                "whether it lacks some, backfill puts them there"
            )
        return remarks


def _is_kept(keep: Keep, fact: Fact) -> bool:
    """Ask the caller's filter; a promise of an answer is none, though it would count as a yes."""
    said = keep(fact)
    if inspect.isawaitable(said):
        if inspect.iscoroutine(said):
            said.close()
        raise InvalidInput(field="keep", problem="must answer at once, not with something to await")
    return bool(said)


__all__ = ["GROWTH", "MARK", "MOST", "Keep", "Question", "Recall", "Unlabelled"]
