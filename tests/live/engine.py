"""What every engine is put through: the contract, a write with a forget and a sweep, and a stopwatch."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar, Literal

from custody_sync import AsyncCoordinator, Ledger
from custody_sync.model import Capability, Leftover
from custody_sync.testing.contract import Case, StoreHooks

ACTOR = "agent:live"
LATENCIES = "latencies"
NOTES = "notes"
VERSION = "version"
SWEEPS = "sweeps"
_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Engine:
    """What stands behind an adapter in one class of tests."""

    key: str
    """A short name for a column."""
    title: str
    adapter: str
    """The adapter's name in the registry, which is also that of its page."""
    kind: Literal["server", "library", "stand-in"]
    packages: tuple[str, ...] = ()
    """Distributions whose installed versions are written down."""


def address(name: str) -> str:
    """Return what `make live` says about a server it started, from the environment."""
    return os.environ[f"CUSTODY_SYNC_LIVE_{name}"]


class Live(StoreHooks):
    """Mix this in before a `StoreContract` class, and name the engine."""

    engine: ClassVar[Engine]
    rounds: ClassVar[int] = 20
    """How many single calls are timed."""
    forgets_as: ClassVar[str] = "verified"
    """How the removal of a forgotten fact ends; less than verified where the service keeps something."""
    entries: ClassVar[int] = 100
    """How many entries the timed listing has at least."""

    async def version(self) -> str:
        """Return what the server says of itself; empty where there is none to ask."""
        return ""

    async def test_a_write_a_forget_and_a_sweep(
        self, store: Any, tmp_path: Path, record_property: Callable[[str, object], None]
    ) -> None:
        """What was written is served, what is forgotten is proved gone, a sweep takes orphans and no more."""
        case = Case("live", store, self)
        async with await Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}", create=True) as ledger:
            custody = AsyncCoordinator(ledger, stores=[store])
            kept, doomed = [
                await custody.write(
                    value=f"{word} likes the harbour, token {case.token}", space=case.space, actor=ACTOR
                )
                for word in ("Ada", "Grace")
            ]
            forgotten = await custody.forget(doomed.fact.fact_id, actor=ACTOR, reason="asked to")
            assert {str(removal.outcome) for removal in forgotten.removals} == {self.forgets_as}, forgotten
            assert forgotten.complete is (self.forgets_as == "verified")
            record_property(NOTES, list(forgotten.notes))
            orphans = [case.fact(space=case.space) for _ in range(3)]
            for fact in orphans:
                then = datetime.now(UTC) - _HOUR
                put = await case.put(fact, case.label(fact, stored_at=then, ledger_id=ledger.ledger_id))
                if case.offers(Capability.SEARCH):
                    # As old as they say they are: a store may not prove anything of what it still indexes.
                    assert await case.served(put)
            swept = await custody.repair(actor="ops", reason="after an outage")
            taken = [found for found in swept.repaired if found.kind is Leftover.ORPHAN]
            assert {found.fact_id for found in taken} == {fact.fact_id for fact in orphans}
            assert {str(found.outcome) for found in taken} <= {"verified", "unverified"}, swept
            if not swept.complete and self.forgets_as == "verified":
                # A slow service may not have proved a removal in the time a sweep waits; it stays owed.
                record_property(SWEEPS, 2)
                assert (await custody.repair(actor="ops", reason="what was left owed")).complete
            assert await store.find(kept.fact.fact_id)
            assert (await custody.verify(actor="ops")).complete or self.forgets_as != "verified"

    async def test_how_long_calls_take(
        self, store: Any, record_property: Callable[[str, object], None]
    ) -> None:
        """Single calls and one listing are timed, one after the other; no time is a pass or a failure."""
        case = Case("live", store, self)
        watch = Stopwatch()
        facts = [case.fact(space=case.space) for _ in range(self.rounds)]
        puts = [await watch.time("put", lambda fact=fact: case.put(fact)) for fact in facts]
        for fact in facts if case.offers(Capability.SEARCH) else ():
            await watch.time("search", lambda fact=fact: case.search(fact.text or "", 10, [case.space]))
        await case.put_all([case.fact(space=case.space) for _ in range(self.entries - self.rounds)])
        listed = await watch.time("list", case.listed)
        assert len({entry.external_id for entry in listed}) >= self.entries
        for put in puts:
            await watch.time("delete", lambda put=put: case.delete(put))
        record_property(VERSION, await self.version())
        record_property(LATENCIES, watch.taken | {"listed": len(listed)})


class Stopwatch:
    """Seconds that calls took, by name."""

    def __init__(self) -> None:
        self.taken: dict[str, Any] = {}

    async def time(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        """Await a call and keep how long it took."""
        begun = time.perf_counter()
        answer = await call()
        self.taken.setdefault(name, []).append(time.perf_counter() - begun)
        return answer
