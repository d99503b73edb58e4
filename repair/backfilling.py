"""All that is believed goes into a store that was added later.

What a store lacks is the ledger's to say, a page at a time, so that a run that was stopped goes on
where the store ends, and what writers put meanwhile is not put twice: whoever is second to record
that a fact is in a store takes its own entry back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from custody_sync.errors import (
    AlreadyPlaced,
    AlreadyRetracted,
    ClosedError,
    Forgotten,
    InvalidInput,
    LedgerError,
    NotBelieved,
    Refused,
    StoreError,
)
from custody_sync.faultpoints import FaultPoint
from custody_sync.finishing import together
from custody_sync.ledger import Ledger, Place
from custody_sync.mended import BackfillResult
from custody_sync.model import Capability, Fact
from custody_sync.placing import Placer, Put
from custody_sync.ports import Watch
from custody_sync.removal import Mandate
from custody_sync.repair.tally import Tally, reason_of
from custody_sync.runtime import Runtime
from custody_sync.stores import Gate, describe

PAGE = 500
TOGETHER = 100
"""Facts in one batch of a store that takes batches."""
SIDE_BY_SIDE = 4
"""Batches at once; the store's own pace bounds the calls."""
OVERTAKEN = (AlreadyPlaced, NotBelieved, AlreadyRetracted, Forgotten)
"""Somebody else placed or ended it since the ledger was asked: nothing is lacking any more."""


@dataclass(slots=True)
class _Count:
    lacking: int = 0
    placed: int = 0
    elsewhere: int = 0
    more: bool = False
    refused: Tally = field(default_factory=Tally)
    left: Tally = field(default_factory=Tally)
    stopped: str | None = None


class Backfilling:
    """One run into one store.

    Args:
        ledger: says what is lacking, and records what was placed.
        gate: the store.
        placer: puts, and takes back.
        runtime: ids and fault points.
        mandate: on whose behalf.
    """

    def __init__(
        self, *, ledger: Ledger, gate: Gate, placer: Placer, runtime: Runtime, mandate: Mandate
    ) -> None:
        self._ledger = ledger
        self._gate = gate
        self._placer = placer
        self._runtime = runtime
        self._mandate = mandate
        self._count = _Count()
        self._batches = gate.can(Capability.PUT_MANY)

    async def run(
        self, *, fits: Callable[[str], bool], dry_run: bool, limit: int | None, watch: Watch
    ) -> BackfillResult:
        """Go through what the store lacks, in the order it was written.

        Args:
            fits: of which spaces.
            dry_run: only count it.
            limit: the most facts to put.
            watch: told after each page.
        """
        count = self._count
        after: int | None = None
        try:
            while True:
                page = await self._ledger.lacking(self._gate.name, limit=PAGE, after=after)
                after = page.next
                facts = await self._facts(page, fits)
                if limit is not None:
                    # Past the limit it is only seen whether anything is left.
                    room = limit - count.lacking
                    count.more = len(facts) > room
                    facts = facts[:room]
                count.lacking += len(facts)
                if dry_run:
                    self._check(facts)
                else:
                    await self._fill(self._check(facts))
                watch("filling", count.lacking, None)
                if after is None or count.more:
                    break
        except (LedgerError, ClosedError) as error:
            count.stopped = error.code
        return self._result(dry_run)

    async def _facts(self, fact_ids: Sequence[str], fits: Callable[[str], bool]) -> list[Fact]:
        facts = (await self._ledger.facts(fact_ids)).values()
        return [fact for fact in facts if fact is not None and not fact.forgotten and fits(fact.space)]

    def _check(self, facts: Iterable[Fact]) -> list[Fact]:
        """Leave out what the store would refuse for its length, and count it."""
        good: list[Fact] = []
        for fact in facts:
            try:
                self._gate.check_text(fact.text or "")
            except InvalidInput as error:
                self._count.refused.add(reason_of(error), fact_id=fact.fact_id)
            else:
                good.append(fact)
        return good

    # --- putting ----------------------------------------------------------------------------

    async def _fill(self, facts: Iterable[Fact]) -> None:
        # A batch is of one space, since what a store has to note for it is noted for that space.
        spaces: dict[str, list[Fact]] = {}
        for fact in facts:
            spaces.setdefault(fact.space, []).append(fact)
        batches = [
            some[start : start + TOGETHER]
            for some in spaces.values()
            for start in range(0, len(some), TOGETHER)
        ]
        for start in range(0, len(batches), SIDE_BY_SIDE):
            await together(map(self._fill_batch, batches[start : start + SIDE_BY_SIDE]))

    async def _fill_batch(self, facts: list[Fact]) -> None:
        puts = await self._put(facts)
        self._runtime.reach(FaultPoint.RESTORED)
        await together(self._place(fact, put) for fact, put in zip(facts, puts, strict=True))

    async def _put(self, facts: list[Fact]) -> list[Put]:
        """Put facts in one call where the store takes batches; what is wrong with one, each says alone."""
        if self._batches and len(facts) > 1:
            puts = await self._placer.put_many(self._gate, facts)
            if all(put.error is None for put in puts):
                return puts
            # It may have taken some of them: those are taken back before any is put again.
            pairs = zip(facts, puts, strict=True)
            await together(self._take_back(fact, put) for fact, put in pairs)
        return await together(self._placer.put(self._gate, fact) for fact in facts)

    async def _place(self, fact: Fact, put: Put) -> None:
        count = self._count
        if put.error is not None:
            said = describe(put.error) if isinstance(put.error, StoreError) else reason_of(put.error)
            count.refused.add(f"put failed ({said})", fact_id=fact.fact_id)
            await self._take_back(fact, put)
            return
        place = Place(
            event_id=self._runtime.ids.event_id(),
            fact_id=fact.fact_id,
            actor=self._mandate.actor,
            receipt_id=self._mandate.receipt_id,
            placements=put.placements,
        )
        try:
            await self._ledger.append(place)
        except OVERTAKEN:
            count.elsewhere += 1
            await self._take_back(fact, put)
        except Refused as refusal:
            count.refused.add(f"not recorded ({refusal.code})", fact_id=fact.fact_id)
            await self._take_back(fact, put)
        else:
            count.placed += 1
            await self._placer.stand_by([put])

    async def _take_back(self, fact: Fact, put: Put) -> None:
        _, left = await self._placer.take_back(fact, [put])
        if left:
            self._count.left.add("an entry may be left", fact_id=fact.fact_id)

    def _result(self, dry_run: bool) -> BackfillResult:
        count = self._count
        would = count.lacking - count.refused.count
        return BackfillResult(
            store=self._gate.name,
            lacking=count.lacking,
            placed=would if dry_run else count.placed,
            placed_elsewhere=count.elsewhere,
            refused=dict(count.refused.reasons),
            refusals=tuple(count.refused.named),
            left=count.left.count,
            leftovers=tuple(one.fact_id for one in count.left.named),
            more=count.more,
            stopped=count.stopped,
            dry_run=dry_run,
            complete=not (count.stopped or count.more or count.refused.count or count.left.count),
        )


__all__ = ["Backfilling"]
