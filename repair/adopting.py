"""Entries that were in a store before custody become facts; not a byte of their texts changes.

The ledger first, the label second. A label that the ledger knows nothing of would be an orphan, which
the next sweep removes; an entry that the ledger places and that has no label yet is touched by no
sweep, and the next run labels it. The fact id follows from the store's name and the entry's id alone,
so that neither a second run, nor one at the same time, nor another mapping makes a second fact.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain
from typing import Any, TypeVar

from custody_sync.errors import (
    ClosedError,
    CustodyError,
    DuplicateFact,
    InvalidInput,
    LedgerError,
    Refused,
    SharedEntry,
    StoreError,
)
from custody_sync.faultpoints import FaultPoint
from custody_sync.finishing import together
from custody_sync.ledger import Assert, Ledger
from custody_sync.mended import AdoptResult
from custody_sync.model import (
    MAX_SKEW,
    Entry,
    Fact,
    Placement,
    PlacementState,
    Provenance,
    Standing,
)
from custody_sync.placing import Placer
from custody_sync.ports import Watch
from custody_sync.proposing import Proposals, read_request
from custody_sync.recording import Recorder, Unrecorded
from custody_sync.removal import Mandate
from custody_sync.repair.adopted import AdoptCount
from custody_sync.repair.adoption import Adoption, Mapping, NotMapped
from custody_sync.repair.given import is_seen, read_given
from custody_sync.repair.labelling import Labeller
from custody_sync.repair.tally import reason_of
from custody_sync.runtime import Runtime
from custody_sync.shown import Circle, Spoiled, read_texts
from custody_sync.stores import Gate, describe

S = TypeVar("S")
T = TypeVar("T")

PAGE = 500
"""Entries that are held with their texts at once."""
CONCURRENCY = 64

NO_TEXT = "the store shows no text of it"
SHARED = "its id is on record as another entry's: a ledger knows an entry by its id, in whatever scope"
REMOVED = "an entry with its id was removed before, and a ledger gives no id a second life"
ENDED = "its fact does not hold any more; repair removes it"
PAST = "it was a fact before, which was retracted or forgotten since"
REWRITTEN = "a validator rewrites its text, which adopting leaves as it is"
LATER = "it would only be valid from later, and the store serves it now"
CHANGED = (
    "its text is not the one that was adopted: write that as a fact which supersedes the adopted one, and "
    "delete the entry in the store"
)
CLAIMED = "repairs took every id that adopting gives it, as those of facts that the ledger never had"
ABSENT = "the store does not hold it with this text"
CIRCLES = "the listing comes back to the same entries again and again"


@dataclass(frozen=True, slots=True)
class Proposed:
    """An entry, the fact that it is to become, and since when the store has it."""

    entry: Entry
    fact: Fact
    since: datetime


class Adopting:
    """One run over one store.

    Args:
        ledger: where the facts are recorded.
        gate: the store.
        mapping: what an entry becomes.
        proposals: validates each fact as a write is.
        placer: makes labels.
        recorder: appends, and settles unknown outcomes.
        runtime: clock, ids and fault points.
        mandate: on whose behalf.
        provenance: `claimed` waits to be confirmed; `attested` is believed at once.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        gate: Gate,
        mapping: Mapping,
        proposals: Proposals,
        placer: Placer,
        recorder: Recorder,
        runtime: Runtime,
        mandate: Mandate,
        provenance: Provenance,
    ) -> None:
        self._ledger = ledger
        self._gate = gate
        self._mapping = mapping
        self._proposals = proposals
        self._recorder = recorder
        self._runtime = runtime
        self._mandate = mandate
        self._provenance = provenance
        self._labeller = Labeller(ledger, gate, placer, runtime)
        self._limiter = asyncio.Semaphore(CONCURRENCY)
        self._count = AdoptCount()
        self._is_given = False

    async def run(
        self, *, dry_run: bool, limit: int | None, watch: Watch, entries: Iterable[Entry] | None = None
    ) -> AdoptResult:
        """Read the store from end to end, a page at a time; what stops it leaves a result as well.

        Args:
            dry_run: only say what would become of it.
            limit: the most entries to adopt.
            watch: told after each page.
            entries: only these, as the store showed them; it is then not listed.
        """
        count, circle = self._count, Circle()
        self._is_given = entries is not None
        given = None if entries is None else self._take_given(entries)
        try:
            async with aclosing(self._pages(given)) as pages:
                async for page in pages:
                    if circle.length_in(page) is not None:
                        count.stopped = CIRCLES
                        break
                    bare = self._without_label(page)
                    await self._take_page(bare, dry_run, limit)
                    watch("adopting", count.scanned, None)
                    if count.more:
                        break
        except StoreError as error:
            count.stopped = f"{self._gate.name}: cannot list: {describe(error)}"
        except (LedgerError, ClosedError) as error:
            count.stopped = error.code
        except Unrecorded as settled:
            count.stopped = settled.error.code
        return count.result(self._gate.name, no_labels=self._labeller.unable, dry_run=dry_run)

    async def _pages(self, entries: Sequence[Entry] | None) -> AsyncGenerator[list[Entry | Spoiled]]:
        if entries is None:
            async with aclosing(self._gate.pages(PAGE, texts=True)) as pages:
                async for page in pages:
                    yield page
            return
        for first in range(0, len(entries), PAGE):
            yield read_texts(entries[first : first + PAGE], self._gate.name)

    def _take_given(self, entries: Iterable[Entry]) -> list[Entry]:
        given, refused = read_given(entries, self._gate.name)
        for row, reason in refused:
            self._count.scanned += 1
            self._refuse(row, reason)
        return given

    def _without_label(self, page: Iterable[Entry | Spoiled]) -> list[Entry]:
        """Count a page and return what has nobody's label."""
        bare: list[Entry] = []
        for row in page:
            self._count.scanned += 1
            if isinstance(row, Spoiled):
                if row.ledger_id is None:
                    self._count.refused.add(f"it cannot be used: {row.problem}", external_id=row.external_id)
            elif row.fact_id is None and row.ledger_id is None:
                bare.append(row)
            elif row.ledger_id == self._ledger.ledger_id:
                self._count.ours += 1
            else:
                self._count.foreign += 1
        return bare

    async def _take_page(self, bare: list[Entry], dry_run: bool, limit: int | None) -> None:
        now = self._proposals.check_clock()
        ids = {entry.external_id: "" for entry in bare}
        answers = await self._ledger.compare(self._gate.name, ids, self._gate.keeps)
        compared = {answer.external_id: answer for answer in answers}
        new: list[Entry] = []
        labelling: list[tuple[Entry, Fact]] = []
        for entry in bare:
            found = compared[entry.external_id]
            if found.owner is None:
                new.append(entry)
            elif found.state is PlacementState.GONE:
                self._refuse(entry, REMOVED)
            elif found.state is PlacementState.DUE:
                self._refuse(entry, ENDED)
            elif found.fact is None:
                self._count.adopted_before += 1
            else:
                labelling.append((entry, found.fact))
        proposed = await self._gather(new, lambda entry: self._propose(entry, now))
        ready = await self._unclaimed([one for one in proposed if one is not None])
        if limit is not None:
            room = limit - self._count.adopted
            self._count.more = len(ready) > room
            ready = ready[:room]
        await self._gather(ready, lambda one: self._adopt(one, dry_run))
        await self._gather(labelling, lambda pair: self._label_again(*pair, dry_run))

    async def _gather(self, items: Iterable[S], work: Callable[[S], Coroutine[Any, Any, T]]) -> list[T]:
        async def limited(item: S) -> T:
            async with self._limiter:
                return await work(item)

        return await together(limited(item) for item in items)

    def _refuse(self, entry: Entry | Spoiled, reason: str) -> None:
        self._count.refused.add(reason, external_id=entry.external_id)

    # --- what an entry is to become ---------------------------------------------------------

    async def _propose(self, entry: Entry, now: datetime) -> Proposed | None:
        """Return the fact an entry is to become, validated as a write is; None if it cannot or need not."""
        try:
            adoption = await self._mapping.of(entry)
            if adoption is None:
                self._count.skipped += 1
                return None
            return await self._proposed(entry, adoption, now)
        except NotMapped as problem:
            self._refuse(entry, str(problem))
            return None

    async def _proposed(self, entry: Entry, adoption: Adoption, now: datetime) -> Proposed:
        if entry.text is None:
            raise NotMapped(NO_TEXT)
        listed = entry.stored_at or entry.created_at
        since = now if listed is None or listed > now else listed
        problem = ""
        try:
            request = read_request(
                value=entry.text if adoption.value is None else adoption.value,
                space=adoption.space,
                actor=self._mandate.actor,
                subject=adoption.subject,
                predicate=adoption.predicate,
                text=entry.text,
                supersedes=None,
                valid_from=adoption.valid_from or since,
                valid_to=None,
                receipt_id=self._mandate.receipt_id,
                idempotency_key=None,
                provenance=self._provenance,
            )
        except InvalidInput as error:
            raise NotMapped(f"its {error.fields['field']} {error.fields['problem']}") from None
        try:
            fact = await self._proposals.validate(request.to_fact(self._ids_of(entry)[0], now))
        except LedgerError:
            raise
        except CustodyError as error:
            problem = reason_of(error)
        else:
            if fact.valid_from > now + MAX_SKEW:
                problem = LATER
            elif fact.text == entry.text:
                return Proposed(entry, fact, since)
        # Outside the handler: what a validator raised may quote the text.
        raise NotMapped(problem or REWRITTEN)

    async def _unclaimed(self, proposed: list[Proposed]) -> list[Proposed]:
        """Leave out what became a fact before, and give what a repair has claimed its next id."""
        ready: list[Proposed] = []
        ids = [self._ids_of(one.entry) for one in proposed]
        standings = await self._ledger.known(list(chain.from_iterable(ids)))
        for one, own in zip(proposed, ids, strict=True):
            fact_id = next((each for each in own if standings[each] is not Standing.REPAIRED), None)
            if fact_id is None:
                # Under any other id it would not be known again, once its identity was erased.
                self._refuse(one.entry, CLAIMED)
                continue
            named = replace(one, fact=replace(one.fact, fact_id=fact_id))
            if standings[fact_id] is Standing.UNKNOWN:
                ready.append(named)
            else:
                await self._was_adopted(named)
        return ready

    def _ids_of(self, entry: Entry) -> tuple[str, ...]:
        return self._ledger.adopted_ids(self._gate.name, entry.external_id)

    async def _was_adopted(self, one: Proposed) -> None:
        """Count an entry whose fact id is asserted: by a run at the same time, or by one long ago."""
        rows = await self._ledger.placements(one.fact.fact_id)
        held = [row for row in rows if row.state is PlacementState.HELD]
        if not held:
            self._refuse(one.entry, PAST)
        elif all(row.scope != one.entry.scope for row in held):
            self._refuse(one.entry, SHARED)
        else:
            self._count.adopted_before += 1

    # --- the ledger, then the label ---------------------------------------------------------

    async def _adopt(self, one: Proposed, dry_run: bool) -> None:
        entry, fact = one.entry, one.fact
        # What was listed was seen, and what gets a label is seen then.
        must_ask = self._is_given and self._labeller.unable
        seen = not must_ask or await is_seen(self._gate, entry, fact.fact_id, self._ledger.ledger_id)
        if seen is False:
            self._refuse(entry, ABSENT)
            return
        if not dry_run and not await self._record(one):
            return
        self._count.take(entry, fact)
        self._count.unseen += seen is None
        self._count.elsewhere += self._lies_elsewhere(entry, fact)
        if self._labeller.unable:
            return
        if dry_run:
            self._count.labelled += 1
            return
        self._runtime.reach(FaultPoint.RECORDED)
        await self._label(entry, fact, one.since)

    async def _record(self, one: Proposed) -> bool:
        placement = Placement(
            store=self._gate.name,
            external_id=one.entry.external_id,
            fact_id=one.fact.fact_id,
            scope=one.entry.scope,
            stored_at=one.since,
        )
        draft = Assert(
            event_id=self._runtime.ids.event_id(),
            fact=one.fact,
            placements=(placement,),
            adopted=True,
        )
        try:
            await self._recorder.append(draft, draft.placements)
        except DuplicateFact:
            await self._was_adopted(one)
            return False
        except SharedEntry:
            self._refuse(one.entry, SHARED)
            return False
        except (Refused, InvalidInput) as error:
            self._refuse(one.entry, reason_of(error))
            return False
        return True

    def _lies_elsewhere(self, entry: Entry, fact: Fact) -> bool:
        try:
            scope = self._gate.scope_of(fact)
        except CustodyError:
            return False
        return scope is not None and scope != entry.scope

    async def _label_again(self, entry: Entry, fact: Fact, dry_run: bool) -> None:
        """Label what an earlier run has put on record; what is not what it was any more is named."""
        self._count.adopted_before += 1
        if self._labeller.unable and entry.text in (None, fact.text):
            return
        rows = await self._ledger.placements(fact.fact_id)
        (row,) = [row for row in rows if (row.store, row.external_id) == (self._gate.name, entry.external_id)]
        if row.scope != entry.scope:
            self._count.adopted_before -= 1
            self._refuse(entry, SHARED)
        elif entry.text != fact.text:
            self._count.unlabelled.add(CHANGED, external_id=entry.external_id, fact_id=fact.fact_id)
        elif dry_run:
            self._count.labelled += 1
        else:
            await self._label(entry, fact, row.stored_at or self._runtime.clock.now())

    async def _label(self, entry: Entry, fact: Fact, stored_at: datetime) -> None:
        problem = await self._labeller.write(entry, fact, stored_at)
        if problem is None:
            self._count.labelled += 1
        else:
            self._count.unlabelled.add(problem, external_id=entry.external_id, fact_id=fact.fact_id)


__all__ = ["Adopting"]
