"""Any story of operations and faults: at every step ledger, history and stores agree; one repair heals all.

A crash is a `BaseException` out of a fault point after which nothing more of that process runs.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

from fix_custody import ACTOR, Crash, Desk, Key, open_desk
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from custody_sync import errors
from custody_sync.coordinator import AsyncCoordinator
from custody_sync.faultpoints import FaultPoint
from custody_sync.ledger import Ledger
from custody_sync.model import Capability
from custody_sync.removal import Patience
from custody_sync.runtime import Runtime
from custody_sync.testing import Faults, ManualClock, MemoryStore, SteppingIds, manual_sleep
from custody_sync.testing.clock import InlineExecutor

BEFORE, AFTER = FaultPoint.BEFORE_COMMIT, FaultPoint.AFTER_COMMIT
POINTS = [point for point in FaultPoint if point not in (FaultPoint.BEFORE_ERASURE,)]
NAMES = ("keys", "own", "mute")
names = st.sampled_from(NAMES)
picks = st.integers(0, 30)


class Hook:
    """Fails at the n-th time that a point is reached from now, and after a crash everywhere."""

    def __init__(self) -> None:
        self.is_dead = False
        self._due: dict[str, tuple[int, int, BaseException]] = {}

    def arm(self, point: str, skip: int, times: int, error: BaseException) -> None:
        """Fail later."""
        self._due[point] = (skip, times, error)

    def disarm(self) -> None:
        """Fail no more."""
        self._due.clear()
        self.is_dead = False

    def __call__(self, point: str) -> None:
        """Reach a point."""
        if self.is_dead:
            raise Crash
        skip, times, error = self._due.get(point, (0, 0, Crash()))
        if skip > 0:
            self._due[point] = (skip - 1, times, error)
        elif times > 0:
            self._due[point] = (0, times - 1, error)
            self.is_dead = isinstance(error, Crash)
            raise error


def make_stores(clock: ManualClock) -> list[MemoryStore]:
    """One store takes our keys, one makes up its own, one cannot be asked by fact id."""
    return [
        MemoryStore("keys", clock=clock),
        MemoryStore("own", own_ids=True, clock=clock),
        MemoryStore("mute", own_ids=True, without=[Capability.FIND], clock=clock),
    ]


class Story(RuleBasedStateMachine):
    """The machine that makes the story up."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        self.hook = Hook()
        self.seed = 0
        self.acknowledged: set[str] = set()
        self.folder = tempfile.TemporaryDirectory()
        self.is_over = False

    def run(self, call: Awaitable[Any]) -> Any:
        """Run a call on the story's loop."""

        async def work() -> Any:
            return await call

        return self.runner.run(work())

    @initialize(policy=st.sampled_from(["remove", "keep"]))
    def open(self, policy: Any) -> None:
        """Open a desk whose hook is ours; one store may keep what is superseded."""
        self.policy = {"own": policy}
        # The ids of all stories' ledgers are the same, and none has seen what another one's witness has.
        os.environ["CUSTODY_SYNC_WITNESS"] = f"{self.folder.name}/witness"
        self.desk: Desk = self.run(self.stack.enter_async_context(open_desk(Path(self.folder.name))))
        self.stores = make_stores(self.desk.clock)
        self.desk.stores = {store.name: store for store in self.stores}
        self.run(self.desk.ledger.close())
        self.run(self._start())

    async def _start(self) -> None:
        """Start a process: a ledger handle and a coordinator of its own, and ids that nobody had before."""
        self.hook.disarm()
        self.seed += 1
        clock = self.desk.clock
        runtime = Runtime(
            clock=clock,
            ids=SteppingIds(self.seed),
            sleep=manual_sleep(clock),
            reach=self.hook,
            executor=InlineExecutor,
        )
        self.desk.runtime = runtime
        self.desk.ledger = await Ledger.open(self.desk.url, runtime=runtime)
        self.desk.custody = AsyncCoordinator(
            self.desk.ledger,
            stores=self.stores,
            runtime=runtime,
            patience=Patience(questions=3, deletes=2),
            settle_tries=2,
            superseded=self.policy,
        )

    async def _restart(self) -> None:
        """What a dead process had under way ends; another one starts."""
        self.hook.is_dead = True
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.hook.disarm()
        await self.desk.ledger.close()
        await self._start()

    # --- what happens -----------------------------------------------------------------------

    def act(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Do something; a failure names what it left, a crash ends the process."""
        before = set(self.desk.held())

        async def work() -> Any:
            try:
                return await call()
            except Crash:
                await self._restart()
            except errors.CustodyError as error:
                await self._check_named(error, before)
            return None

        return self.run(work())

    async def _check_named(self, error: errors.CustodyError, before: set[Key]) -> None:
        """Check that an error names every store in which it left something new."""
        named = set(error.fields.get("left", ()))
        named |= {entry["store"] for entry in error.fields.get("entries", ())}
        pending = {(p.store, p.external_id) for p in await self.desk.ledger.pending()}
        new = {store for store, _ in set(self.desk.held()) - before - pending}
        assert new <= named, f"{type(error).__name__} left something in {new} and named {named}"

    def pick(self, number: int) -> str:
        """Return one of the ids that the log knows, or one it does not."""
        known = sorted(self.run(self.desk.story()).asserted)
        return known[number % len(known)] if known else "nobody"

    @rule(n=st.integers(0, 3), key=st.sampled_from([None, None, "k1", "k2"]), claimed=st.booleans())
    def write(self, n: int, key: str | None, claimed: bool) -> None:
        """Write a fact of its own."""
        provenance = "claimed" if claimed else "attested"
        subject = f"s:{n}"
        result = self.act(
            lambda: self.desk.write(n, subject=subject, idempotency_key=key, provenance=provenance)
        )
        if result is not None and not claimed:
            self.acknowledged.add(result.fact.fact_id)

    @rule(number=picks, claimed=st.booleans())
    def supersede(self, number: int, claimed: bool) -> None:
        """Supersede something, whether it can be or not."""
        target = self.pick(number)
        fact = self.run(self.desk.ledger.get(target))
        subject = "s:0" if fact is None else fact.subject
        provenance = "claimed" if claimed else "attested"
        result = self.act(
            lambda: self.desk.write("next", subject=subject, supersedes=target, provenance=provenance)
        )
        if result is not None and not claimed:
            self.acknowledged.add(result.fact.fact_id)

    @rule(n=st.integers(0, 3), minutes=st.integers(-2, 20))
    def write_ending(self, n: int, minutes: int) -> None:
        """Write a fact that ends, or has ended."""
        now = self.desk.clock.now()
        start, end = now - timedelta(minutes=5), now + timedelta(minutes=minutes)
        self.act(lambda: self.desk.write(n, subject="ending", valid_from=start, valid_to=end))

    @rule(n=st.integers(0, 3), minutes=st.integers(1, 30), claimed=st.booleans())
    def write_later(self, n: int, minutes: int, claimed: bool) -> None:
        """Write a fact that does not begin yet."""
        begins = self.desk.clock.now() + timedelta(minutes=minutes)
        provenance = "claimed" if claimed else "attested"
        result = self.act(
            lambda: self.desk.write(n, subject="later", valid_from=begins, provenance=provenance)
        )
        if result is not None and not claimed:
            self.acknowledged.add(result.fact.fact_id)

    @rule(number=picks, minutes=st.sampled_from([0, 1, 3, 15, 30]), claimed=st.booleans())
    def supersede_later(self, number: int, minutes: int, claimed: bool) -> None:
        """Supersede something from later on, as late as that one begins or later."""
        target = self.pick(number)
        fact = self.run(self.desk.ledger.get(target))
        now = self.desk.clock.now()
        begins = max(now, now if fact is None else fact.valid_from) + timedelta(minutes=minutes)
        subject = "s:0" if fact is None else fact.subject
        provenance = "claimed" if claimed else "attested"
        result = self.act(
            lambda: self.desk.write(
                "next", subject=subject, supersedes=target, valid_from=begins, provenance=provenance
            )
        )
        if result is not None and not claimed:
            self.acknowledged.add(result.fact.fact_id)

    @rule(number=picks)
    def confirm(self, number: int) -> None:
        """Confirm something, claimed or not."""
        fact_id = self.pick(number)
        self.act(lambda: self.desk.confirm(fact_id))

    @rule(number=picks)
    def retract(self, number: int) -> None:
        """Retract something."""
        fact_id = self.pick(number)
        self.act(lambda: self.desk.retract(fact_id))

    @rule(number=picks, identity=st.booleans())
    def forget(self, number: int, identity: bool) -> None:
        """Forget something."""
        fact_id = self.pick(number)
        self.act(lambda: self.desk.forget(fact_id, identity=identity))

    @rule()
    def repair(self) -> None:
        """Sweep, and dry before it."""
        self.act(lambda: self.desk.repair(dry_run=True))
        self.act(lambda: self.desk.repair(max_removals=1000))

    @rule()
    def verify(self) -> None:
        """Ask again."""
        self.act(lambda: self.desk.verify())

    @rule(numbers=st.lists(picks, min_size=2, max_size=3))
    def at_once(self, numbers: list[int]) -> None:
        """Do several things at once."""
        ids = [self.pick(number) for number in numbers]
        acts = (self.desk.retract, self.desk.confirm, self.desk.forget)

        async def work() -> None:
            calls = [acts[n % 3](fact_id) for n, fact_id in zip(numbers, ids, strict=True)]
            answers = await asyncio.gather(
                *calls, self.desk.write("x", subject="s:9"), return_exceptions=True
            )
            if any(isinstance(a, Crash) for a in answers):
                raise Crash
            bad = [a for a in answers if isinstance(a, Exception) and not isinstance(a, errors.CustodyError)]
            assert not bad, bad

        self.act(work)

    @rule(seconds=st.sampled_from([1.0, 61.0, 301.0, 660.0]))
    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.desk.clock.advance(seconds)

    # --- what goes wrong --------------------------------------------------------------------

    @rule(
        name=names,
        operation=st.sampled_from(["put", "delete", "find", "verify_deleted", "list_entries", "search"]),
        times=st.integers(1, 4),
        kind=st.sampled_from(["down", "refused", "odd"]),
    )
    def store_fails(self, name: str, operation: Any, times: int, kind: str) -> None:
        """A store's next calls fail."""
        problems: dict[str, Exception] = {
            "down": errors.StoreUnavailable(store=name, operation=operation, cause="down"),
            "refused": errors.StoreRefused(store=name, operation=operation, cause="no"),
            "odd": RuntimeError("odd"),
        }
        self.desk.stores[name].faults.refuse(operation, problems[kind], times=times)

    @rule(name=names, operation=st.sampled_from(["put", "delete", "verify_deleted"]))
    def reply_is_lost(self, name: str, operation: Any) -> None:
        """A store does it and does not say so."""
        self.desk.stores[name].faults.lose_reply(operation)

    @rule(name=names, after=st.sampled_from([None, 5.0, 400.0]))
    def put_lands_late(self, name: str, after: float | None) -> None:
        """A store's next put fails and takes effect afterwards."""
        self.desk.stores[name].faults.land_later(after=after)

    @rule(name=names)
    def late_puts_land(self, name: str) -> None:
        """What was late is there."""
        self.desk.stores[name].land()

    @rule(name=names, lag=st.sampled_from([0, 1, 50]), silent=st.booleans())
    def store_lies(self, name: str, lag: int, silent: bool) -> None:
        """A store's index lags, or its deletes do nothing."""
        self.desk.stores[name].faults.index_lag = lag
        self.desk.stores[name].faults.silent_delete = silent

    @rule(name=names)
    def store_heals(self, name: str) -> None:
        """A store works again."""
        self.desk.stores[name].faults = Faults()

    @rule(
        point=st.sampled_from([BEFORE, AFTER]),
        skip=st.integers(0, 3),
        times=st.sampled_from([1, 3, 8]),
        error=st.sampled_from([errors.OutcomeUnknown, errors.LedgerFull, errors.LedgerBusy]),
    )
    def ledger_fails(self, point: FaultPoint, skip: int, times: int, error: type[Any]) -> None:
        """The ledger's answers are lost, or its disk is full for a while."""
        if point is AFTER:
            error = errors.OutcomeUnknown
        self.hook.arm(point, skip, times, error(name="ledger"))

    @rule()
    def ledger_heals(self) -> None:
        """The ledger works again."""
        self.hook.disarm()

    @rule(point=st.sampled_from(POINTS), skip=st.integers(0, 2))
    def crash_later(self, point: FaultPoint, skip: int) -> None:
        """The process will die at a fault point."""
        self.hook.arm(point, skip, 1, Crash())

    # --- what holds -------------------------------------------------------------------------

    @invariant()
    def agreement(self) -> None:
        """As-of equals the history, and every placement of a believed fact is held."""
        if hasattr(self, "desk") and not self.is_over:
            self.run(self.desk.judge(left=NAMES))

    def teardown(self) -> None:
        """Heal everything, let eleven minutes pass, sweep once: I1 and I2 hold."""
        try:
            if hasattr(self, "desk"):
                self.run(self._heal_and_judge())
        finally:
            if hasattr(self, "desk"):
                self.run(self.desk.ledger.close())
                self.run(self.stack.aclose())
            self.runner.close()
            self.folder.cleanup()

    async def _heal_and_judge(self) -> None:
        await self._restart()
        for store in self.stores:
            store.land()
            store.faults = Faults()
        # A while later, and once everything has begun that was to begin later.
        for minutes in (11, 300):
            self.desk.clock.advance(timedelta(minutes=minutes))
            result = await self.desk.repair(max_removals=10_000, actor=ACTOR)
            assert result.complete, result
            if result.resumed is not None:
                # What was stored since a dead sweep began is for the one after it.
                result = await self.desk.repair(max_removals=10_000, actor=ACTOR)
                assert (result.complete, result.resumed) == (True, None)
            believed = await self.desk.judge_clean()
            story, now = await self.desk.story(), f"{self.desk.clock.now().isoformat()[:26]}Z"
            later = {fact_id for fact_id, data in story.asserted.items() if data["valid_from"] > now}
            gone = story.retracted | story.forgotten | story.covered(now) | later
            assert not self.acknowledged - believed - gone, f"lost: {self.acknowledged - believed - gone}"
            again = await self.desk.repair(actor=ACTOR)
            assert (again.repaired, again.restored) == ((), ())
        assert await self.desk.ledger.waiting() == []


Story.TestCase.settings = settings(max_examples=40, stateful_step_count=25)
TestStory = Story.TestCase
TestStory.__doc__ = "Any story ends, after one repair, with what is believed and nothing else."


def test_what_came_while_a_dead_sweep_lay_is_for_the_repair_after_it() -> None:
    """A put lands after its write has failed, and a sweep dies: the next one only goes on with that one."""
    story = Story()
    story.open(policy="remove")
    story.put_lands_late(name="keys", after=None)
    story.crash_later(point=FaultPoint.SWEEP_SPOOLED, skip=0)
    story.write_ending(n=0, minutes=3)
    story.repair()
    story.teardown()
