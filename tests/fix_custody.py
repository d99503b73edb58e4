"""A desk to try the coordinator on: a ledger file, memory stores, a clock by hand, faults on demand, a judge.

The judge works out what is believed from the exported log alone, then holds it against the
ledger's own answers and against what the stores really hold.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fix_orphan import label_of, lost_fact

from custody_sync.coordinator import AsyncCoordinator
from custody_sync.errors import CustodyError
from custody_sync.faultpoints import FaultPoint
from custody_sync.ledger import Ledger
from custody_sync.model import (
    Capability,
    format_instant,
)
from custody_sync.removal import Patience
from custody_sync.results import (
    WriteResult,
)
from custody_sync.runtime import Runtime
from custody_sync.testing import FaultPlan, ManualClock, MemoryStore, testing_runtime

ACTOR = "agent:test"
LATER = timedelta(minutes=11)
Key = tuple[str, str]


@dataclass
class Story:
    """What the log says, worked out event by event."""

    asserted: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    effective: set[str] = field(default_factory=set)
    retracted: set[str] = field(default_factory=set)
    forgotten: set[str] = field(default_factory=set)
    repaired: set[str] = field(default_factory=set)
    placed: dict[Key, str] = field(default_factory=dict)
    removed: dict[Key, str] = field(default_factory=dict)
    kept: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By superseded fact: the stores whose policy keeps its entries."""

    def take(self, row: Mapping[str, Any]) -> None:
        """Go one event further."""
        event, sealed = row["event"], row["sealed"]
        kind, fact_id, data = event["kind"], event["fact_id"], event["data"]
        if kind == "assert":
            self.asserted[fact_id] = data
        if kind == "confirm" or (kind == "assert" and data["provenance"] != "claimed"):
            self.effective.add(fact_id)
            self.kept[self.asserted[fact_id]["supersedes"]] = tuple(data["kept"])
        for name, ids in (
            ("retract", self.retracted),
            ("forget", self.forgotten),
            ("repair", self.repaired),
        ):
            if kind == name:
                ids.add(fact_id)
        refs = sealed.get("refs", {}).get("body", {})
        for placement in refs.get("placements", ()):
            key = (placement["store"], placement["external_id"])
            self.placed[key] = fact_id
            self.removed.pop(key, None)
        if kind == "remove" and "external_id" in refs:
            self.removed[data["store"], refs["external_id"]] = data["outcome"]

    def covered(self, now: str) -> set[str]:
        """Return every link below one that is in effect and not retracted (L4)."""
        found: set[str] = set()
        for fact_id in self.effective - self.retracted:
            if self.asserted[fact_id]["valid_from"] <= now:
                below = self.asserted[fact_id]["supersedes"]
                while below is not None:
                    found.add(below)
                    below = self.asserted[below]["supersedes"]
        return found

    def believed(self, now: str) -> set[str]:
        """Return the facts believed at an instant."""
        return {
            fact_id
            for fact_id in self.effective - self.retracted - self.forgotten - self.covered(now)
            if self.asserted[fact_id]["valid_from"] <= now < (self.asserted[fact_id]["valid_to"] or "9")
        }

    def current(self, now: str) -> dict[Key, str]:
        """Return the placements that stores have to hold."""
        believed = self.believed(now)
        superseded = self.covered(now) - self.retracted - self.forgotten
        return {
            key: fact_id
            for key, fact_id in self.placed.items()
            if key not in self.removed
            and (fact_id in believed or (fact_id in superseded and key[0] in self.kept.get(fact_id, ())))
        }


@dataclass
class Desk:
    """One ledger, its stores and a coordinator, and what a test does with them."""

    path: Path
    clock: ManualClock
    plan: FaultPlan
    runtime: Runtime
    ledger: Ledger
    stores: dict[str, MemoryStore]
    custody: AsyncCoordinator

    @property
    def url(self) -> str:
        """The ledger's URL."""
        return f"sqlite:///{self.path}"

    # --- acting -----------------------------------------------------------------------------

    async def write(self, value: Any = "pro", **more: Any) -> WriteResult:
        """Write a fact about acct:42's plan in org, unless told otherwise."""
        told = {"subject": "acct:42", "predicate": "plan", "space": "org", "actor": ACTOR} | more
        return await self.custody.write(value=value, **told)

    async def written(self, value: Any = "pro", **more: Any) -> str:
        """Write and return the fact id."""
        return (await self.write(value, **more)).fact.fact_id

    async def retract(self, fact_id: str, **more: Any) -> Any:
        """Retract a fact."""
        return await self.custody.retract(fact_id, **({"actor": ACTOR, "reason": "wrong"} | more))

    async def forget(self, fact_id: str, **more: Any) -> Any:
        """Forget a fact."""
        return await self.custody.forget(fact_id, **({"actor": ACTOR, "reason": "asked to"} | more))

    async def confirm(self, fact_id: str, **more: Any) -> WriteResult:
        """Confirm a claimed fact."""
        return await self.custody.confirm(fact_id, **({"actor": ACTOR} | more))

    async def repair(self, **more: Any) -> Any:
        """Sweep."""
        return await self.custody.repair(**({"actor": "ops", "reason": "after an outage"} | more))

    async def verify(self, **more: Any) -> Any:
        """Ask every store again."""
        return await self.custody.verify(**({"actor": "ops"} | more))

    def fail_next(self, point: str, error: BaseException, *, skip: int = 0, times: int = 1) -> None:
        """Fail at a fault point the next time it is reached, or after some."""
        self.plan.fail(point, error, at=self.plan.reached[FaultPoint(point)] + 1 + skip, times=times)

    def call_next(self, point: str, action: Callable[[], object], *, skip: int = 0) -> None:
        """Call back the next time a fault point is reached."""
        self.plan.call(point, action, at=self.plan.reached[FaultPoint(point)] + 1 + skip)

    def coordinator(self, **more: Any) -> AsyncCoordinator:
        """Return another coordinator over the same ledger and stores."""
        told = {"stores": self.stores.values(), "runtime": self.runtime} | more
        return AsyncCoordinator(self.ledger, **told)

    async def orphan(self, store: str, *, fact_id: str | None = None, age: timedelta = LATER) -> str:
        """Leave an entry in a store that no event stands behind; return its external id."""
        now = self.clock.now() - age
        fact_id = fact_id or self.runtime.ids.fact_id(now)
        fact = replace(lost_fact(fact_id, "lost", ACTOR, now), text=f"acct:lost plan: lost {fact_id}")
        label = label_of(fact, self.ledger.ledger_id, self.runtime.ids.generation())
        (external_id,) = await self.stores[store].put(fact, label)
        return external_id

    # --- looking ----------------------------------------------------------------------------

    def held(self) -> dict[Key, str]:
        """Return every entry with this ledger's label that a store really holds."""
        return {
            (name, key): entry.fact_id
            for name, store in self.stores.items()
            for key, entry in store.snapshot().items()
            if entry.fact_id is not None and entry.ledger_id == self.ledger.ledger_id
        }

    def held_of(self, fact_id: str) -> dict[str, list[str]]:
        """Return where entries of a fact really are."""
        found: dict[str, list[str]] = {}
        for (store, key), held in self.held().items():
            if held == fact_id:
                found.setdefault(store, []).append(key)
        return found

    async def kinds(self, fact_id: str) -> list[str]:
        """Return the kinds of a fact's events."""
        return [event.kind.value for event in await self.ledger.history(fact_id)]

    async def outcomes(self, fact_id: str) -> list[tuple[str, str]]:
        """Return (store, outcome) of a fact's `remove` events."""
        return [
            (str(event.data["store"]), str(event.data["outcome"]))
            for event in await self.ledger.history(fact_id)
            if event.kind == "remove"
        ]

    async def current(self) -> list[str]:
        """Return the ids of the facts that as_of(now) answers with, sorted."""
        return sorted(fact.fact_id for fact in await self.ledger.as_of(limit=10_000))

    async def untouched(self) -> bool:
        """Tell that no store was ever called and no event appended."""
        return not any(s.calls for s in self.stores.values()) and (await self.ledger.head()).seq == 0

    async def story(self) -> Story:
        """Return what the log says."""
        story = Story()
        async for row in self.ledger.export():
            story.take(row)
        return story

    # --- judging ----------------------------------------------------------------------------

    async def judge(self, *, left: Iterable[str] = ()) -> set[str]:
        """Check that ledger, history and stores agree, but for entries in the stores that were named as left.

        What the ledger itself names as pending or owed may also still be there or missing.
        """
        story, now = await self.story(), format_instant(self.clock.now())
        believed = story.believed(now)
        assert set(await self.current()) == believed, "as_of(now) is not what the history says"
        assert not believed & story.repaired, "a repaired id is believed"
        assert not story.asserted.keys() & story.repaired, "an id is both asserted and repaired"
        expected, held = story.current(now), self.held()
        missing = {key for key, fact_id in expected.items() if held.get(key) != fact_id}
        assert not missing, f"the ledger places what no store holds: {missing}"
        proved = {key for key, outcome in story.removed.items() if outcome == "verified"}
        assert not proved & held.keys(), f"verified as gone and still there: {proved & held.keys()}"
        pending = {(p.store, p.external_id) for p in await self.ledger.pending(limit=10_000)}
        extra = held.keys() - expected.keys() - pending
        assert {store for store, _ in extra} <= set(left), f"nobody named these as left: {extra}"
        return believed

    async def judge_clean(self) -> set[str]:
        """Check I2: the stores hold exactly the placements of believed facts, each in every store."""
        believed = await self.judge()
        story, now = await self.story(), format_instant(self.clock.now())
        assert self.held() == story.current(now), "the stores hold something else than what is believed"
        for fact_id in believed:
            assert set(self.held_of(fact_id)) == set(self.stores), f"{fact_id} is not in every store"
        assert await self.ledger.pending() == [], "removals are left"
        assert await self.ledger.owed() == [], "placements are owed"
        return believed


@asynccontextmanager
async def open_desk(
    folder: Path,
    *,
    stores: Sequence[MemoryStore] | Callable[[ManualClock], Sequence[MemoryStore]] | None = None,
    validators: Sequence[Any] = (),
    clock: ManualClock | None = None,
    **more: Any,
) -> AsyncIterator[Desk]:
    """Open a desk with two memory stores, unless told otherwise."""
    clock, plan = clock or ManualClock(), FaultPlan()
    runtime = testing_runtime(clock=clock, reach=plan)
    made = stores(clock) if callable(stores) else stores
    if made is None:
        made = [MemoryStore("memories", clock=clock), MemoryStore("agent", own_ids=True, clock=clock)]
    path = folder / "custody.db"
    async with AsyncExitStack() as stack:
        ledger = await stack.enter_async_context(
            await Ledger.open(f"sqlite:///{path}", create=True, runtime=runtime)
        )
        custody = await stack.enter_async_context(
            AsyncCoordinator(ledger, stores=made, validators=validators, runtime=runtime, **more)
        )
        by_name = {store.name: store for store in made}
        yield Desk(path, clock, plan, runtime, ledger, by_name, custody)


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    """A desk with two memory stores: one takes our keys and one makes up its own."""
    async with open_desk(tmp_path) as opened:
        yield opened


class Crash(BaseException):
    """The process ends here; nothing is there to catch it."""


class HttpError(Exception):
    """A vendor's error: it quotes a memory, and has a status."""

    def __init__(self) -> None:
        super().__init__("canary: I drink my coffee black")
        self.status_code = 503


def kinds_of(result: Any) -> list[tuple[str, str, str]]:
    """Return (store, kind, outcome) of what a sweep repaired, sorted."""
    return sorted((r.store, r.kind.value, r.outcome.value) for r in result.repaired)


def left_running() -> set[asyncio.Task[Any]]:
    """Return the tasks beside this one; the witness follows in its own time, and closing waits for it."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    return {task for task in tasks if "Witness." not in repr(task.get_coro())}


async def error_of(call: Awaitable[Any], kind: type[CustodyError] = CustodyError) -> Any:
    """Return the error of ours that a call raises."""
    with pytest.raises(kind) as caught:
        await call
    return caught.value


BRIEF = Patience(questions=2, first_wait=0.01, total=1.0, deletes=1)
WITHOUT_LIST = (Capability.LIST_ENTRIES,)
