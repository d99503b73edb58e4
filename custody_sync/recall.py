"""Recall: the store searches, the ledger decides.

The store's answer is joined to the ledger after it came, all of it in one question, so that what
is served is of one moment of the ledger, whatever the store's index still has.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import groupby
from typing import Literal, NamedTuple

from custody_sync.errors import UnlabelledEntries
from custody_sync.ledger import Ledger
from custody_sync.ledger.questions import Instants
from custody_sync.model import Entry, Fact, Hit
from custody_sync.recalled import (
    Belief,
    Budget,
    Dropped,
    Followed,
    Recalled,
    RecallResult,
    RecallStatus,
)
from custody_sync.shown import Spoiled, read_entry
from custody_sync.stores import Gate

Unlabelled = Literal["drop", "show", "refuse"]
Keep = Callable[[Fact], bool]

MOST = 10_000
"""A store is asked for no more than so many entries."""
GROWTH = 4
MARK = "…"
"""What a text ends with that was cut."""

_WHY = {
    Belief.UNKNOWN: Dropped.ORPHAN,
    Belief.REPAIRED: Dropped.ORPHAN,
    Belief.BELIEVED: Dropped.FORGOTTEN,
    **{belief: Dropped(belief.value) for belief in Belief if belief.value in set(Dropped)},
}


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


class Served(NamedTuple):
    """An entry as the store served it, and its score."""

    entry: Entry
    score: float | None


@dataclass(slots=True)
class Sifted:
    """One answer of a store, joined to the ledger."""

    at: Instants
    seen: int = 0
    live: list[tuple[Served, Fact]] = field(default_factory=list)
    dropped: Counter[Dropped] = field(default_factory=Counter)
    unlabelled: list[Entry] = field(default_factory=list)


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

    async def run(self) -> RecallResult:
        """Ask for more and more until there are enough facts, the store has no more, or time is over.

        Raises:
            StoreError: the store did not answer.
            UnlabelledEntries: it served what nobody stands behind, and that is to be refused.
        """
        sifted, status = await self._search()
        if self._question.unlabelled == "refuse" and sifted.unlabelled:
            raise UnlabelledEntries(store=self._gate.name, count=len(sifted.unlabelled))
        hits, status = self._within_budget(sifted, status)
        return RecallResult(
            hits=tuple(await self._with_history(hits, sifted.at)),
            status=status,
            store=self._gate.name,
            seen=sifted.seen,
            valid_at=sifted.at.valid_at,
            head=sifted.at.head,
            dropped={reason: sifted.dropped[reason] for reason in Dropped if sifted.dropped[reason]},
            unlabelled=tuple(sifted.unlabelled) if self._question.unlabelled == "show" else (),
            notes=self._notes(sifted, status),
        )

    async def _search(self) -> tuple[Sifted, RecallStatus]:
        question, size = self._question, self._question.k + min(self._question.k, 32)
        seconds = question.budget.seconds
        ends = None if seconds is None else asyncio.get_running_loop().time() + seconds
        sifted: Sifted | None = None
        try:
            async with asyncio.timeout_at(ends):
                while True:
                    hits = await self._gate.search(question.query, size, question.spaces)
                    before = -1 if sifted is None else sifted.seen
                    sifted = await self._sift(hits)
                    if len(sifted.live) >= question.k:
                        return sifted, RecallStatus.FULL
                    if len(hits) < size or len(hits) <= before or size >= MOST:
                        return sifted, await self._ended(sifted)
                    size = min(size * GROWTH, MOST)
        except TimeoutError:
            return sifted or await self._sift([]), RecallStatus.TIMED_OUT

    async def _ended(self, sifted: Sifted) -> RecallStatus:
        """Tell whether the ledger has more than the store served, for whatever reason."""
        question, at = self._question, sifted.at
        enough = len(sifted.live) + sifted.dropped[Dropped.FILTERED]
        believed = 0
        for space in question.spaces or (None,):
            page = await self._ledger.as_of(
                space=space,
                valid_at=at.valid_at,
                tx_at=at.head.tx_time,
                include_claimed=question.include_claimed,
                limit=min(enough + 1 - believed, MOST),
            )
            believed += len(page)
            if believed > enough:
                return RecallStatus.SHORT
        return RecallStatus.EXHAUSTED

    async def _sift(self, hits: Sequence[object]) -> Sifted:
        """Join what a store served to the ledger, in one question."""
        question = self._question
        rows = [self._read(hit) for hit in hits]
        ours = [row for row in rows if row is not None and self._may_be_ours(row.entry)]
        at, led = await self._ledger.follow(
            [row.entry for row in ours],
            valid_at=question.valid_at,
            tx_at=question.tx_at,
            include_claimed=question.include_claimed,
        )
        sifted = Sifted(at, len(rows))
        sifted.dropped[Dropped.UNREADABLE] = sum(row is None for row in rows)
        sifted.dropped[Dropped.OTHER_LEDGER] = len(rows) - len(ours) - sifted.dropped[Dropped.UNREADABLE]
        facts: set[str] = set()
        for row, followed in in_order(ours, led):
            why = self._judge(row.entry, followed, facts)
            if why is not None:
                sifted.dropped[why] += 1
                if why is Dropped.UNLABELLED:
                    sifted.unlabelled.append(row.entry)
            elif followed.fact is not None:
                facts.add(followed.fact.fact_id)
                sifted.live.append((row, followed.fact))
        return sifted

    def _read(self, hit: object) -> Served | None:
        if not isinstance(hit, Hit):
            return None
        entry = read_entry(hit.entry, self._gate.name)
        if isinstance(entry, Spoiled):
            return None
        is_number = isinstance(hit.score, int | float) and math.isfinite(hit.score)
        return Served(entry, float(hit.score) if is_number and hit.score is not None else None)

    def _may_be_ours(self, entry: Entry) -> bool:
        return entry.fact_id is None or entry.ledger_id == self._ledger.ledger_id

    def _judge(self, entry: Entry, followed: Followed, facts: set[str]) -> Dropped | None:
        """Say why an entry is left out; None where its fact is served."""
        question, fact = self._question, followed.fact
        if entry.fact_id is None and (followed.owner is None or _was_rewritten(entry, followed)):
            return Dropped.UNLABELLED
        if fact is None or fact.forgotten:
            return _WHY[followed.belief]
        if question.spaces is not None and fact.space not in question.spaces:
            return Dropped.OTHER_SPACE
        if fact.fact_id in facts:
            return Dropped.REPEATED
        return Dropped.FILTERED if question.keep is not None and not question.keep(fact) else None

    # --- what is left of it -----------------------------------------------------------------

    def _within_budget(self, sifted: Sifted, status: RecallStatus) -> tuple[list[Recalled], RecallStatus]:
        budget, hits = self._question.budget, list[Recalled]()
        left = budget.characters
        for row, fact in sifted.live[: self._question.k]:
            text = fact.text or ""
            room = min((size for size in (left, budget.per_fact) if size is not None), default=len(text))
            if len(text) > room and (fact.supersedes is not None or room <= len(MARK)):
                over = RecallStatus.BUDGET_TOO_SMALL if fact.supersedes else RecallStatus.BUDGET_SPENT
                sifted.dropped[Dropped.BUDGET] += min(len(sifted.live), self._question.k) - len(hits)
                return hits, over
            cut = len(text) > room
            shown = text[: room - len(MARK)] + MARK if cut else text
            left = None if left is None else left - len(shown)
            hits.append(
                Recalled(
                    fact=fact,
                    text=shown,
                    store=self._gate.name,
                    external_id=row.entry.external_id,
                    score=row.score,
                    cut=cut,
                )
            )
        return hits, status

    async def _with_history(self, hits: list[Recalled], at: Instants) -> list[Recalled]:
        if not self._question.with_history or not hits:
            return hits
        _, chains = await self._ledger.links(
            [hit.fact_id for hit in hits], valid_at=at.valid_at, tx_at=at.head.tx_time
        )
        return [replace(hit, history=chain) for hit, chain in zip(hits, chains, strict=True)]

    def _notes(self, sifted: Sifted, status: RecallStatus) -> tuple[str, ...]:
        notes = []
        if count := sifted.dropped[Dropped.UNLABELLED]:
            entries = "1 entry" if count == 1 else f"{count} entries"
            notes.append(f"{entries} without a label were left out: run adopt")
        if status is RecallStatus.SHORT:
            notes.append("the ledger has more facts here than the store served for this query")
        return tuple(notes)


def in_order(rows: Sequence[Served], led: Sequence[Followed]) -> list[tuple[Served, Followed]]:
    """Return what was served in the store's order, and what it scored alike in order of id."""
    pairs = list(zip(rows, led, strict=True))
    ordered: list[tuple[Served, Followed]] = []
    for score, alike in groupby(pairs, key=lambda pair: pair[0].score):
        group = list(alike)
        if score is not None:
            group.sort(key=lambda pair: pair[0].entry.external_id)
        ordered += group
    return ordered


def _was_rewritten(entry: Entry, followed: Followed) -> bool:
    """Tell whether an application wrote another text under an id that was adopted."""
    fact = followed.fact
    return (
        entry.text is not None
        and fact is not None
        and fact.fact_id == followed.owner
        and (fact.text != entry.text)
    )


__all__ = ["GROWTH", "MARK", "MOST", "Keep", "Question", "Recall", "Unlabelled"]
