"""Asking every store again about every removed fact.

A removal that was verified once can be undone by a store's own restore, a late put or a
re-index; asking again is the only way to know. Nothing is deleted here.

Each store is asked in a stream of its own: a page of facts, asked about together, then the next. A slow
store holds up nobody else, and one that does not answer is given up until it does.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from custody_sync.canonical import check_name
from custody_sync.errors import ClosedError, InvalidInput, LedgerError, NotRemoved, UnknownFact
from custody_sync.finishing import together
from custody_sync.ledger import Ledger
from custody_sync.ledger.outstanding import About, Removed
from custody_sync.model import Outcome, Page, Placement, PlacementState, Standing
from custody_sync.ports import Watch
from custody_sync.removal import NOT_CONFIGURED
from custody_sync.repair.asking import Asker, ended_unasked, is_believed, not_asked, without_a_store
from custody_sync.repair.progress import NAMED, Course, Progress, Record
from custody_sync.repair.selection import Selection
from custody_sync.results import Asked, Removal, VerifyResult
from custody_sync.runtime import Runtime
from custody_sync.stores import Gate

CONCURRENCY = 32
"""Facts of one store in work at once; the store's own limit stands behind it."""
PAGE = 500
SILENT = 5
"""A store that left so many calls in a row without an answer is given up."""
TRIED_AGAIN = timedelta(seconds=30)
"""How long a store stays given up before one fact is asked about to see whether it is back."""

Tell = Callable[[Removal], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a verification is about.

    `fact_ids` None is every removed fact of the selection.
    """

    selection: Selection
    since: datetime | None = None
    fact_ids: tuple[str, ...] | None = None

    @property
    def about(self) -> About:
        """The same as the ledger is asked."""
        return About(space=self.selection.space, since=self.since)


def read_fact_ids(fact_ids: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return ids as a caller gave them, each once, or say why they are none."""
    if fact_ids is None:
        return None
    if isinstance(fact_ids, str) or not isinstance(fact_ids, Iterable):
        raise InvalidInput(field="fact_ids", problem="must be a list of ids, not one string")
    return tuple(dict.fromkeys(check_name(fact_id, "fact_id") for fact_id in fact_ids))


class Verifying:
    """One verification.

    Args:
        ledger: what was removed.
        gates: the configured stores by name.
        asker: asks one store about one fact.
        runtime: ids.
        question: what it is about.
        watch: told how far it is.
        tell: given every answer as it comes; the result then names only what proves nothing.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        gates: Mapping[str, Gate],
        asker: Asker,
        runtime: Runtime,
        question: Question,
        watch: Watch | None = None,
        tell: Tell | None = None,
    ) -> None:
        self._ledger = ledger
        self._gates = gates
        self._asker = asker
        self._question = question
        self._watch = watch
        self._tell = tell
        self._began = ledger.now()
        self._progress = Progress(runtime.ids.generation(), self._began)
        self._before = 0
        self._total = 0
        self._removals: list[Removal] = []
        self._given_up: Counter[str] = Counter()
        self._saving = asyncio.Lock()
        document = {**question.selection.to_json(), "since": question.since and question.since.isoformat()}
        self._record = Record(ledger, document)

    async def run(self, *, resume: bool) -> VerifyResult:
        """Ask about all of it.

        Args:
            resume: go on with the last run over the same that was stopped, if there is one.

        Raises:
            UnknownFact: a given id was never in this ledger.
            NotRemoved: a given fact is believed.
        """
        listed = await self._listed()
        unfinished: datetime | None = None
        if listed is None and (last := await self._record.last()) is not None:
            if resume:
                await self._record.take_up(last)
                self._progress, self._before = last, last.asked
                if self._tell is not None:
                    for removal in last.unproven:
                        self._tell(removal)
            else:
                unfinished = last.started
        await self._set_out(listed)
        await together(self._stream(course, listed) for course in self._courses())
        result = self._result(unfinished)
        if listed is None:
            with contextlib.suppress(LedgerError, ClosedError):
                await self._record.finish()
        return result

    def _courses(self) -> list[Course]:
        return [course for course in self._progress.courses.values() if not course.done]

    async def _set_out(self, listed: Sequence[Removed] | None) -> None:
        """See which stores there are to ask, and how much there is to ask them."""
        if listed is None:
            count = await self._ledger.count_removed(self._question.about)
            facts, known = count.facts, set(count.stores)
            known.update([backlog.store for backlog in await self._ledger.backlog() if backlog.by_outcome])
        else:
            facts, known = len(listed), {row.store for removed in listed for row in removed.placements}
        names = [name for name in sorted({*self._gates, *known}) if self._question.selection.has_store(name)]
        for name in names:
            self._progress.courses.setdefault(name, Course(name))
        self._total = facts * len(self._progress.courses)

    async def _listed(self) -> list[Removed] | None:
        """Return the facts that were named, with what is on record of them."""
        ids = self._question.fact_ids
        if ids is None:
            return None
        for fact_id, standing in (await self._ledger.known(ids)).items():
            if standing is Standing.UNKNOWN:
                raise UnknownFact(fact_id=fact_id)
        listed: list[Removed] = []
        for place, fact_id in enumerate(ids, start=1):
            rows = await self._ledger.placements(fact_id)
            if is_believed(rows) and not any(row.state is PlacementState.DUE for row in rows):
                stores = {row.store for row in rows}
                if not [one for store in stores async for one in self._ended(store, {fact_id})]:
                    raise NotRemoved(fact_id=fact_id)
            listed.append(Removed(place, fact_id, tuple(rows)))
        return listed

    # --- one store --------------------------------------------------------------------------

    async def _stream(self, course: Course, listed: Sequence[Removed] | None) -> None:
        stream = _Stream(self._gates.get(course.store), course.store, self._asker, self._ledger)
        if not course.ended:
            await self._stream_ended(course, stream, listed)
        while not course.done:
            page = await self._page(listed, course.after)
            removals = await stream.ask(page)
            for removal in removals:
                course.outcomes[removal.outcome.value] += 1
                self._keep(removal)
            course.facts += len(page)
            course.after, course.done = page.next or course.after, page.next is None
            self._given_up[course.store] = stream.given_up
            if listed is None:
                await self._save([r for r in removals if r.outcome is not Outcome.VERIFIED])
            if self._watch is not None:
                self._watch("asking the stores", self._progress.facts, max(self._total, self._progress.facts))

    async def _stream_ended(self, course: Course, stream: _Stream, listed: Sequence[Removed] | None) -> None:
        """Ask about what nobody ordered out, since its fact ended by itself; kept once all of it is asked."""
        only = None if listed is None else {removed.fact_id for removed in listed}
        unproven: list[Removal] = []
        async for row in self._ended(course.store, only):
            removal = await stream.ask_ended(row)
            course.outcomes[removal.outcome.value] += 1
            self._keep(removal)
            if removal.outcome is not Outcome.VERIFIED and len(unproven) < NAMED:
                unproven.append(removal)
        course.ended = True
        if listed is None and course.outcomes:
            await self._save(unproven)

    async def _ended(self, store: str, only: Collection[str] | None) -> AsyncGenerator[Placement]:
        """Yield a store's entries whose facts have ended, as far as they are asked about."""
        about, after = self._question, None
        while True:
            page = await self._ledger.ended(store, limit=PAGE, after=after)
            for row in page:
                if only is not None:
                    asked = row.fact_id in only
                elif about.selection.space is None and about.since is None:
                    asked = True
                else:
                    asked = await self._is_about(row.fact_id)
                if asked:
                    yield row
            if (after := page.next) is None:
                return

    async def _is_about(self, fact_id: str) -> bool:
        fact, since = await self._ledger.get(fact_id), self._question.since
        if not self._question.selection.has_space(None if fact is None else fact.space):
            return False
        return since is None or fact is None or fact.valid_to is None or fact.valid_to >= since

    async def _page(self, listed: Sequence[Removed] | None, after: int) -> Page[Removed]:
        if listed is None:
            return await self._ledger.removed_facts(self._question.about, limit=PAGE, after=after)
        end = after + PAGE
        more = end if end < len(listed) else None
        return Page(list(listed[after:end]), head=await self._ledger.head(), next=more)

    def _keep(self, removal: Removal) -> None:
        if self._tell is not None:
            self._tell(removal)
            if removal.outcome is Outcome.VERIFIED or len(self._removals) >= NAMED:
                return
        self._removals.append(removal)

    async def _save(self, unproven: Sequence[Removal]) -> None:
        async with self._saving:
            # A ledger that takes no notes is still asked; such a run only cannot be gone on with.
            with contextlib.suppress(LedgerError, ClosedError):
                await self._record.save(self._progress, self._part(), unproven)

    # --- the result -------------------------------------------------------------------------

    def _part(self) -> Asked:
        return Asked(since=self._began, until=self._ledger.now(), asked=self._progress.asked - self._before)

    def _result(self, unfinished: datetime | None) -> VerifyResult:
        outcomes = {
            course.store: dict(sorted(course.outcomes.items()))
            for course in sorted(self._progress.courses.values(), key=lambda course: course.store)
        }
        asked = self._progress.asked
        proven = sum(counts.get(Outcome.VERIFIED.value, 0) for counts in outcomes.values())
        removals = (*self._progress.unproven, *self._removals)
        named = sum(removal.outcome is not Outcome.VERIFIED for removal in removals)
        return VerifyResult(
            asked=asked,
            removals=removals,
            complete=asked > 0 and proven == asked,
            outcomes=outcomes,
            parts=(*self._progress.parts, self._part()),
            unnamed=asked - proven - named,
            unfinished=unfinished,
            notes=tuple(
                f"{store}: did not answer {SILENT} calls in a row; {count} facts were not asked about there"
                for store, count in sorted(self._given_up.items())
                if count
            ),
        )


class _Stream:
    """Asks one store, page by page, and gives it up while it does not answer."""

    def __init__(self, gate: Gate | None, store: str, asker: Asker, ledger: Ledger) -> None:
        self._gate = gate
        self._store = store
        self._asker = asker
        self._ledger = ledger
        self._limiter = asyncio.Semaphore(CONCURRENCY)
        self._tried: datetime | None = None
        self.given_up = 0
        """How many facts were not asked about."""

    async def ask(self, page: Sequence[Removed]) -> list[Removal]:
        """Ask about a page of facts; the answers in the order of the facts."""
        gate = self._gate
        if gate is None:
            return [removal for removed in page for removal in without_a_store(removed, self._store)]
        if page and gate.unanswered >= SILENT and self._may_try():
            await self._asker.look(gate, page[0])
        answers = await together(self._one(gate, removed) for removed in page)
        return [removal for some in answers for removal in some]

    async def ask_ended(self, row: Placement) -> Removal:
        """Ask about an entry whose fact has ended."""
        gate = self._gate
        if gate is None:
            return ended_unasked(row, Outcome.FAILED, NOT_CONFIGURED)
        if gate.unanswered < SILENT or self._may_try():
            return await self._asker.ask_ended(gate, row)
        self.given_up += 1
        return ended_unasked(row, Outcome.UNVERIFIED, "not asked: the store does not answer")

    def _may_try(self) -> bool:
        now = self._ledger.now()
        if self._tried is not None and now - self._tried < TRIED_AGAIN:
            return False
        self._tried = now
        return True

    async def _one(self, gate: Gate, removed: Removed) -> list[Removal]:
        async with self._limiter:
            if gate.unanswered < SILENT:
                return await self._asker.ask(gate, removed)
            self._tried = self._tried or self._ledger.now()
            said = not_asked(removed, gate, "not asked: the store does not answer")
            self.given_up += bool(said)
            return said


__all__ = ["Question", "Tell", "Verifying", "read_fact_ids"]
