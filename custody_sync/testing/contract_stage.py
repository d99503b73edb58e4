"""Where the contract's stories play: the store under test behind a real coordinator and a ledger."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from custody_sync.coordinator import AsyncCoordinator
from custody_sync.ledger import Ledger
from custody_sync.model import Capability, Entry, Level, Outcome
from custody_sync.removal import Patience
from custody_sync.results import ForgetResult, Removal, Repaired, RepairResult, WriteResult
from custody_sync.runtime import Runtime, SystemClock
from custody_sync.testing.contract_case import Case, Put

ACTOR = "agent:contract"
LATER = timedelta(hours=1)
"""Further than the sweep's ten minutes, however long a slow store took to be filled."""

UNASKED = 1_000
"""Removals that a sweep may start: in a store with six entries, two orphans would be too many."""


class MovedClock(SystemClock):
    """The machine's clock, moved ahead so that no rule waits ten minutes for an orphan to be old."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def now(self) -> datetime:
        """Return the current instant, moved."""
        return super().now() + self.ahead


@dataclass(slots=True)
class Stage:
    """One ledger, one coordinator and the store under test."""

    case: Case
    ledger: Ledger
    custody: AsyncCoordinator
    clock: MovedClock

    @property
    def name(self) -> str:
        """The store's name: the key of its placements."""
        return str(self.case.store.name)

    # --- acting ----------------------------------------------------------------------------

    async def write(self, text: str | None = None, *, space: str | None = None, **more: Any) -> WriteResult:
        """Write a free text, by default one nobody else has, in the case's own space."""
        said = text if text is not None else (self.case.fact().text or "")
        where = self.case.space if space is None else space
        return await self.custody.write(value=said, space=where, actor=ACTOR, **more)

    async def write_many(self, count: int, **more: Any) -> list[WriteResult]:
        """Write so many texts, some at a time."""
        return await self.case.some_at_a_time([partial(self.write, **more)] * count)

    async def forget(self, written: WriteResult) -> ForgetResult:
        """Forget a fact."""
        return await self.custody.forget(written.fact.fact_id, actor=ACTOR, reason="asked to")

    async def repair(
        self, custody: AsyncCoordinator | None = None, *, max_removals: int = UNASKED
    ) -> RepairResult:
        """Sweep, an hour later than the last time; the breaker is not what these stories are about."""
        self.clock.ahead += LATER
        sweeper = self.custody if custody is None else custody
        return await sweeper.repair(actor="ops:contract", reason="an outage", max_removals=max_removals)

    async def orphans(self, count: int, *, space: str | None = None, ledger_id: str = "") -> list[Put]:
        """Put so many facts past the ledger, as a crash before the append does, or as another ledger's."""
        facts = [self.case.fact(space=space) for _ in range(count)]
        owner, at = ledger_id or self.ledger.ledger_id, self.clock.now()
        labels = [self.case.label(fact, stored_at=at, ledger_id=owner) for fact in facts]
        pairs = zip(facts, labels, strict=True)
        return await self.case.some_at_a_time([partial(self.case.put, fact, label) for fact, label in pairs])

    # --- judging ---------------------------------------------------------------------------

    def ids(self, written: Iterable[WriteResult]) -> list[str]:
        """Return where the ledger says the store holds these facts."""
        return sorted(i for result in written for i in result.placements[self.name])

    async def held(self, facts: Sequence[WriteResult]) -> list[str]:
        """Return what the store shows of this ledger: all of it where it lists, else of these facts."""
        if self.case.offers(Capability.LIST_ENTRIES):
            entries: list[Entry] = await self.case.listed()
        else:
            self.case.needs(Capability.FIND)
            found = [await self.case.store.find(written.fact.fact_id) for written in facts]
            entries = [entry for entries in found for entry in entries]
        return sorted(entry.external_id for entry in entries if entry.ledger_id == self.ledger.ledger_id)

    async def ends_with(self, believed: Sequence[WriteResult], gone: Sequence[WriteResult] = ()) -> None:
        """Raise a violation unless the store holds exactly the placements of what is believed."""
        got, wanted = await self.held([*believed, *gone]), self.ids(believed)
        self.case.expect(
            got == wanted, f"exactly the {len(wanted)} entries of what is believed", _diff(got, wanted)
        )

    def removed(self, removals: Iterable[Removal | Repaired], what: str) -> bool:
        """Raise a violation unless each was verified, or is openly unverified in a store that says why.

        Returns:
            True when all of them were verified.
        """
        support, outcomes = self.case.supports[Capability.VERIFY_DELETED], [r.outcome for r in removals]
        self.case.expect(bool(outcomes), f"removals of {what}", "none")
        allowed = (
            {Outcome.VERIFIED} if support.level is Level.FULL else {Outcome.VERIFIED, Outcome.UNVERIFIED}
        )
        self.case.expect(
            set(outcomes) <= allowed, f"{what} to end as {sorted(allowed)}", sorted(set(outcomes))
        )
        unproved = outcomes.count(Outcome.UNVERIFIED)
        if unproved:
            self.case.note(f"{unproved} removals unverified: {support.reason}")
        return not unproved

    def ended(self, removals: Iterable[Removal], wanted: Outcome, why: str) -> None:
        """Raise a violation unless each removal ended like that; a partial proof may be unverified."""
        outcomes = [removal.outcome for removal in removals]
        unproved = Outcome.UNVERIFIED in outcomes and wanted is not Outcome.UNVERIFIED
        with self.case.partly(Capability.VERIFY_DELETED) if unproved else nullcontext():
            self.case.expect(set(outcomes) == {wanted}, f"{wanted.value} {why}", [o.value for o in outcomes])


def _diff(got: Sequence[str], wanted: Sequence[str]) -> str:
    more, missing = set(got) - set(wanted), set(wanted) - set(got)
    twice = len(got) - len(set(got))
    return f"{len(more)} too many, {len(missing)} missing, {twice} twice"


@asynccontextmanager
async def staged(case: Case) -> AsyncIterator[Stage]:
    """Open a ledger in a folder that goes afterwards, and a coordinator over it and the store."""
    clock = MovedClock()
    runtime = Runtime(clock=clock)
    with tempfile.TemporaryDirectory(prefix="custody-contract-") as folder:
        url = f"sqlite:///{Path(folder) / 'ledger.db'}"
        async with (
            await Ledger.open(url, create=True, runtime=runtime, witness=False) as ledger,
            coordinator(case, ledger, clock, case.store) as custody,
        ):
            yield Stage(case, ledger, custody, clock)


def coordinator(case: Case, ledger: Ledger, clock: MovedClock, store: Any) -> AsyncCoordinator:
    """Return a coordinator that asks as often as the default one does, and waits as the fixture says."""
    patience = Patience(first_wait=case.hooks.pause, factor=1.5, total=60.0)
    return AsyncCoordinator(ledger, stores=[store], runtime=Runtime(clock=clock), patience=patience)


__all__ = ["ACTOR", "LATER", "MovedClock", "Stage", "coordinator", "staged"]
