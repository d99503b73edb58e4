"""Forgetting: from the ledger first, then from every store; one fact, or many in batches.

Of many, each fact ends by itself: a hold keeps one, a store that is down leaves one pending, and
the others go on. Only a ledger that cannot be used stops a run, which then says how far it came.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from custody_sync.errors import ClosedError, CustodyError, Forgotten, LedgerError, OnHold
from custody_sync.faultpoints import FaultPoint
from custody_sync.finishing import Finishing, together
from custody_sync.following import FollowUp
from custody_sync.ledger import Forget, Ledger
from custody_sync.ledger.storage import Account
from custody_sync.model import Erasure, Fact, Placement
from custody_sync.recording import Recorder
from custody_sync.releasing import settled
from custody_sync.removal import Mandate, all_gone
from custody_sync.results import FactFate, Fate, ForgetManyResult, ForgetResult, Removal
from custody_sync.runtime import Runtime

CONCURRENCY = 16
"""Facts of one batch that are forgotten at once."""

Progress: TypeAlias = Callable[[FactFate], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """On whose behalf facts are forgotten, why, and how thoroughly."""

    mandate: Mandate
    reason: str | None
    digest: str | None
    identity: bool


class Forgetter:
    """Erases facts.

    Args:
        ledger: what is asked, and whose files are cleared.
        recorder: appends the event.
        following: removes from the stores.
        finishing: sees a fact through once it was taken up.
        runtime: ids and fault points.
    """

    def __init__(
        self, ledger: Ledger, recorder: Recorder, following: FollowUp, finishing: Finishing, runtime: Runtime
    ) -> None:
        self.ledger = ledger
        self.following = following
        self.finishing = finishing
        self._recorder = recorder
        self._runtime = runtime

    async def record(self, fact: Fact, order: Order) -> None:
        """Record that a fact is forgotten; what was forgotten before is left to the files and the stores."""
        if order.identity and fact.space:
            # Before the fact loses its space: after a crash nobody could tell whose notes have to go.
            await self.following.notebooks.owe(fact.space)
        draft = Forget(
            event_id=self._runtime.ids.event_id(),
            fact_id=fact.fact_id,
            actor=order.mandate.actor,
            receipt_id=order.mandate.receipt_id,
            reason=order.reason,
            digest=None if fact.forgotten else self.ledger.digest(fact.value, order.digest),
            identity=order.identity,
        )
        with contextlib.suppress(Forgotten):
            await self._recorder.append(draft)
        self._runtime.reach(FaultPoint.RECORDED)

    async def clear(self, fact: Fact, mandate: Mandate) -> tuple[list[Placement], tuple[Removal, ...]]:
        """Remove a forgotten fact from every store, probing with its text, which lives on in memory only."""
        rows = await self.following.placements(fact.fact_id)
        return rows, await self.following.remove(fact.fact_id, mandate, text=fact.text, ask_again=True)

    async def forget(self, fact: Fact, order: Order) -> ForgetResult:
        """Erase one fact everywhere."""
        await self.record(fact, order)
        await self.following.erase()
        rows, removals = await self.clear(fact, order.mandate)
        notes = await self.following.earlier_links(fact) + await self.following.notes(rows)
        notes += await settled(self.following.notebooks)
        # Once more: only now that every removal is verified may external ids have gone too.
        erasure = await self.following.erase()
        return ForgetResult(
            fact_id=fact.fact_id,
            removals=removals,
            restored=(),
            erasure=erasure,
            complete=all_gone(removals) and erasure is Erasure.DONE,
            notes=notes,
        )


class Run:
    """One erasure of many facts, and what came of it so far.

    Args:
        forgetter: erases each.
        order: how.
        dry_run: only say what would be done.
        progress: told of every fact as soon as its fate is known, so that whoever cancels a run has
            the report up to there.
    """

    def __init__(
        self, forgetter: Forgetter, order: Order, *, dry_run: bool, progress: Progress | None
    ) -> None:
        self.facts: list[FactFate] = []
        self.erasure: Erasure | None = None
        self._notes: dict[str, None] = {}
        self._stays: tuple[str, ...] = ()
        self.stopped: CustodyError | None = None
        self.dry_run = dry_run
        self._forgetter = forgetter
        self._order = order
        self._progress = progress
        self._rows: list[Placement] = []
        self._erased = False

    @property
    def forgotten_all(self) -> bool:
        """True when nothing is left to do for any fact that no hold keeps."""
        done = all(fact.complete or fact.fate is Fate.HELD for fact in self.facts)
        return done and self.erasure is not Erasure.PENDING and self.stopped is None and not self.dry_run

    async def take(self, accounts: Sequence[Account]) -> list[FactFate]:
        """Forget one batch, then clear the ledger's files and let the stores clean up, once for all of it."""
        free = [account for account in accounts if not account.holds]
        first = len(self.facts)
        for held in accounts:
            if held.holds:
                self._tell(held, Fate.HELD, holds=held.holds)
        if self.dry_run:
            for account in free:
                self._tell(account, Fate.PLANNED)
            return self.facts[first:]
        limiter = asyncio.Semaphore(CONCURRENCY)
        await together(self._limited(account, limiter) for account in free)
        following, rows = self._forgetter.following, self._rows
        self._rows = []
        if free:
            self._notes |= dict.fromkeys(await following.notes(rows))
            await self._clear_files()
        return self.facts[first:]

    async def let_go(self, *, empty: str | None = None) -> None:
        """At the end of a run let go of what stores noted of erased spaces, and clear the files of that.

        Args:
            empty: a space of which every store that lists was just seen to hold nothing.
        """
        if not self.dry_run and self.stopped is None:
            self._stays = await settled(self._forgetter.following.notebooks, empty=empty)
            await self._clear_files()

    async def _clear_files(self) -> None:
        erasure = await self._forgetter.following.erase()
        if self._erased:
            self.erasure = erasure

    @property
    def notes(self) -> tuple[str, ...]:
        """What stores and ledger say they leave behind, one sentence each."""
        return (*self._notes, *self._stays)

    async def _limited(self, account: Account, limiter: asyncio.Semaphore) -> None:
        async with limiter:
            if self.stopped is None:
                # A fact is seen through even if the run is cancelled: what was recorded is reported.
                await self._forgetter.finishing.see_through(self._forget(account))

    async def _forget(self, account: Account) -> None:
        try:
            fact = await self._forgetter.ledger.get(account.fact_id)
            assert fact is not None  # noqa: S101  # the ledger has an account of it
            await self._forgetter.record(fact, self._order)
            self._erased = True
            rows, removals = await self._forgetter.clear(fact, self._order.mandate)
        except OnHold as error:
            self._tell(account, Fate.HELD, holds=tuple(error.holds))
        except CustodyError as error:
            if isinstance(error, LedgerError | ClosedError):
                self.stopped = error
            self._tell(account, Fate.FAILED, detail=error.code)
        else:
            self._rows += rows
            self._tell(account, Fate.FORGOTTEN, removals=removals)

    def _tell(
        self,
        account: Account,
        fate: Fate,
        *,
        holds: tuple[str, ...] = (),
        removals: tuple[Removal, ...] = (),
        detail: str = "",
    ) -> None:
        fact = FactFate(
            fact_id=account.fact_id,
            space=account.space,
            fate=fate,
            holds=holds,
            removals=removals,
            detail=detail,
        )
        self.facts.append(fact)
        if self._progress is not None:
            self._progress(fact)


__all__ = ["ForgetManyResult", "Forgetter", "Order", "Progress", "Run"]
