"""Many claims are believed at once: those of a space, or those that are named."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from custody_sync.errors import AlreadyConfirmed, ClosedError, CustodyError, LedgerError
from custody_sync.finishing import together
from custody_sync.ledger import Ledger
from custody_sync.mended import ConfirmManyResult
from custody_sync.model import Fact, Provenance
from custody_sync.ports import Watch
from custody_sync.repair.tally import Tally, reason_of
from custody_sync.results import WriteResult

PAGE = 500
SIDE_BY_SIDE = 16


@dataclass(slots=True)
class _Count:
    claimed: int = 0
    confirmed: int = 0
    unfinished: int = 0
    refused: Tally = field(default_factory=Tally)
    stopped: str | None = None


class Confirming:
    """One run over claims.

    Args:
        ledger: knows which claims wait.
        confirm: confirms one fact, as the coordinator does.
    """

    def __init__(self, ledger: Ledger, confirm: Callable[[Fact], Awaitable[WriteResult]]) -> None:
        self._ledger = ledger
        self._confirm = confirm
        self._count = _Count()
        self._limiter = asyncio.Semaphore(SIDE_BY_SIDE)

    async def run(
        self,
        *,
        fact_ids: Sequence[str] | None,
        space: str | None,
        fits: Callable[[str], bool],
        dry_run: bool,
        watch: Watch,
    ) -> ConfirmManyResult:
        """Confirm a page at a time; a claim that is refused does not keep the others.

        Args:
            fact_ids: the claims, or None for all that wait in the spaces.
            space: the one space there is to look in, or None where `fits` has to tell.
            fits: of which spaces.
            dry_run: only count.
            watch: told after each page.
        """
        count = self._count
        pages = self._named(fact_ids) if fact_ids is not None else self._waiting(space, fits)
        try:
            async for page in pages:
                count.claimed += len(page)
                if dry_run:
                    count.confirmed += len(page)
                else:
                    await together(self._confirm_one(fact) for fact in page)
                watch("confirming", count.claimed, None if fact_ids is None else len(fact_ids))
        except (LedgerError, ClosedError) as error:
            count.stopped = error.code
        return ConfirmManyResult(
            claimed=count.claimed,
            confirmed=count.confirmed,
            unfinished=count.unfinished,
            refused=dict(count.refused.reasons),
            refusals=tuple(count.refused.named),
            stopped=count.stopped,
            dry_run=dry_run,
            complete=not (count.stopped or count.refused.count or count.unfinished),
        )

    async def _waiting(self, space: str | None, fits: Callable[[str], bool]) -> AsyncIterator[list[Fact]]:
        after: int | None = None
        while True:
            page = await self._ledger.as_of(space=space, include_claimed=True, limit=PAGE, after=after)
            yield [fact for fact in page if _waits(fact) and fits(fact.space)]
            after = page.next
            if after is None:
                return

    async def _named(self, fact_ids: Sequence[str]) -> AsyncIterator[list[Fact]]:
        for start in range(0, len(fact_ids), PAGE):
            some: list[Fact] = []
            for fact_id in fact_ids[start : start + PAGE]:
                fact = await self._ledger.get(fact_id)
                if fact is None:
                    self._count.refused.add("unknown_fact", fact_id=fact_id)
                elif _waits(fact):
                    some.append(fact)
                elif not fact.confirmed:
                    self._count.refused.add("it is no claim that waits", fact_id=fact_id)
            yield some

    async def _confirm_one(self, fact: Fact) -> None:
        async with self._limiter:
            try:
                result = await self._confirm(fact)
            except AlreadyConfirmed:
                # By somebody at the same time: it is what was asked for.
                self._count.confirmed += 1
            except (LedgerError, ClosedError):
                raise
            except CustodyError as error:
                self._count.refused.add(reason_of(error), fact_id=fact.fact_id)
            else:
                self._count.confirmed += 1
                self._count.unfinished += not result.complete


def _waits(fact: Fact) -> bool:
    return fact.provenance is Provenance.CLAIMED and not fact.confirmed and not fact.forgotten


__all__ = ["Confirming"]
