"""The operations of a run: what each step of a plan asks of a coordinator, and what its answer has to be."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from custody_sync.errors import InvalidInput
from custody_sync.model import REPAIR_MIN_AGE, Provenance, format_instant
from custody_sync.testing.sim.claims import begin_claim, begin_whole
from custody_sync.testing.sim.judge import OWN, Call, Judge
from custody_sync.testing.sim.log import Log
from custody_sync.testing.sim.plan import Step
from custody_sync.testing.sim.process import Process
from custody_sync.testing.sim.recalling import check_recall

KEYED = "agent:keyed"
"""Says the same again and again, and so it is always the same."""
TICK = timedelta(microseconds=1)


class Operations:
    """Carries out the steps of a plan.

    Args:
        judge: knows what there is to pick from, and checks the answers.
        seed: makes every value one that no other run has.
    """

    def __init__(self, judge: Judge, seed: int) -> None:
        self._judge = judge
        self._seed = seed

    async def perform(self, step: Step, process: Process, call: Call) -> object:
        """Do what a step says."""
        return await getattr(self, f"_{step.operation}")(step, process, call)

    # --- what is picked ---------------------------------------------------------------------

    @property
    def _log(self) -> Log:
        return self._judge.log

    def _pick(self, step: Step) -> str:
        known = list(self._log.asserted)
        return known[-1 - step.pick % len(known)] if known else "nobody"

    def _claimed(self, step: Step) -> str:
        waiting = [one for one in self._log.asserted if one not in self._log.effective]
        return waiting[-1 - step.pick % len(waiting)] if waiting else self._pick(step)

    def _words(self, step: Step) -> str:
        return f"canary-{self._seed}-{step.number}-x"

    def _named(self, kind: str, step: Step) -> str:
        return f"{kind}:{OWN}{self._seed}-{step.number}-x"

    async def _writing(self, step: Step, process: Process, **more: Any) -> object:
        told: dict[str, Any] = {
            "value": self._words(step),
            "space": self._named("user", step) if step.pick % 2 else "org",
            "subject": self._named("acct", step),
            "predicate": "plan",
            "actor": actor_of(step),
        } | more
        return await process.custody.write(**told)

    # --- stores first -----------------------------------------------------------------------

    async def _write(self, step: Step, process: Process, call: Call) -> object:
        return await self._writing(step, process)

    async def _write_keyed(self, step: Step, process: Process, call: Call) -> object:
        key = f"key-{step.pick % 2}"
        result = await process.custody.write(
            value=f"canary-{self._seed}-{key}-x", space="org", actor=KEYED, idempotency_key=key
        )
        told = self._judge.by_key.setdefault(key, set())
        told.add(result.fact.fact_id)
        alive = told - self._log.forgotten
        self._judge.expect(len(alive) <= 1, "I1", f"{key} was answered with {sorted(alive)}")
        return result

    async def _write_claimed(self, step: Step, process: Process, call: Call) -> object:
        return await self._writing(step, process, provenance=Provenance.CLAIMED)

    async def _write_later(self, step: Step, process: Process, call: Call) -> object:
        begins = process.clock.now() + timedelta(minutes=3 + 5 * step.pick)
        return await self._writing(step, process, valid_from=begins)

    async def _write_ending(self, step: Step, process: Process, call: Call) -> object:
        now = process.clock.now()
        ends = now + timedelta(minutes=5 * step.pick + 1)
        return await self._writing(step, process, valid_from=now - timedelta(minutes=5), valid_to=ends)

    async def _write_naive(self, step: Step, process: Process, call: Call) -> object:
        naive = process.clock.now().replace(tzinfo=None)
        try:
            await self._writing(step, process, valid_from=naive)
        except InvalidInput:
            return None
        self._judge.fail("I8", "a time without a time zone was taken")
        return None

    async def _supersede(self, step: Step, process: Process, call: Call, **more: Any) -> object:
        target = self._pick(step)
        fact = await process.ledger.get(target)
        same: Mapping[str, Any] = (
            {} if fact is None else {name: getattr(fact, name) for name in ("space", "subject", "predicate")}
        )
        return await self._writing(step, process, supersedes=target, **{**same, **more})

    async def _supersede_claimed(self, step: Step, process: Process, call: Call) -> object:
        return await self._supersede(step, process, call, provenance=Provenance.CLAIMED)

    async def _confirm(self, step: Step, process: Process, call: Call) -> object:
        return await process.custody.confirm(self._claimed(step), actor=actor_of(step))

    # --- ledger first -----------------------------------------------------------------------

    async def _retract(self, step: Step, process: Process, call: Call) -> object:
        return await process.custody.retract(self._pick(step), actor=actor_of(step), reason="wrong")

    async def _forget(self, step: Step, process: Process, call: Call) -> object:
        identity = call.identity = step.pick % 3 == 0
        return await process.custody.forget(
            self._pick(step), actor=actor_of(step), reason="asked", identity=identity
        )

    async def _hold(self, step: Step, process: Process, call: Call) -> object:
        return await process.custody.hold(
            self._pick(step), actor=actor_of(step), hold_id=f"case-{step.pick % 2}"
        )

    async def _release(self, step: Step, process: Process, call: Call) -> object:
        held = [(one, hold) for one, holds in self._log.holds.items() for hold in sorted(holds)]
        fact_id, hold_id = held[step.pick % len(held)] if held else (self._pick(step), "case-0")
        return await process.custody.release(fact_id, hold_id=hold_id, actor=actor_of(step))

    async def _expire(self, step: Step, process: Process, call: Call) -> object:
        minutes = (1, 10, 30)[step.pick % 3]
        return await process.custody.expire(actor=actor_of(step), windows={"org": f"PT{minutes}M"})

    # --- mending ----------------------------------------------------------------------------

    async def _repair(self, step: Step, process: Process, call: Call) -> object:
        return await process.custody.repair(actor=actor_of(step), reason="sim", max_removals=1000)

    async def _repair_before(self, step: Step, process: Process, call: Call) -> object:
        """Sweep up to the very instant before an entry that the ledger does not stand behind."""
        since = self._leftovers(process)
        call.before = since[step.pick % len(since)] - TICK if since else process.clock.now()
        return await process.custody.repair(
            actor=actor_of(step), reason="sim", max_removals=1000, before=call.before, fresh=True
        )

    def _leftovers(self, process: Process) -> list[datetime]:
        old, log = process.clock.now() - REPAIR_MIN_AGE, self._log
        return [
            entry.stored_at
            for name, store in self._judge.stores.items()
            for external_id, entry in store.snapshot().items()
            if (name, external_id) not in log.placed
            and entry.stored_at is not None
            and entry.stored_at <= old
        ]

    async def _verify(self, step: Step, process: Process, call: Call) -> object:
        begin_claim(self._judge, call)
        return await process.custody.verify(actor=actor_of(step))

    async def _reconcile(self, step: Step, process: Process, call: Call) -> object:
        call.due = frozenset(self._log.current(format_instant(process.clock.now())))
        call.lost = frozenset(self._judge.lost)
        call.edited = frozenset(self._judge.edited)
        return await process.custody.reconcile(
            actor=actor_of(step),
            fix="all" if step.pick % 3 else (),
            max_removals=1000,
            max_puts=1000,
        )

    async def _backfill(self, step: Step, process: Process, call: Call) -> object:
        begin_whole(self._judge, call)
        return await process.custody.backfill(self._store(step), actor=actor_of(step), dry_run=False)

    # --- whole spaces and stores ------------------------------------------------------------

    async def _adopt(self, step: Step, process: Process, call: Call) -> object:
        return await process.custody.adopt(
            self._store(step),
            actor=actor_of(step),
            space=self._named("user", step) if step.pick % 3 == 0 else "org",
            provenance=Provenance.ATTESTED if step.pick % 2 else Provenance.CLAIMED,
            dry_run=False,
        )

    async def _forget_where(self, step: Step, process: Process, call: Call) -> object:
        known = sorted({"org", *self._judge.spaces.values()})
        space = known[-1 - step.pick % len(known)]
        begin_whole(self._judge, call, space)
        identity = call.identity = step.pick % 3 == 0
        return await process.custody.forget_where(
            space=space, actor=actor_of(step), reason="asked", identity=identity
        )

    def _store(self, step: Step) -> str:
        names = sorted(self._judge.stores)
        return names[step.pick % len(names)]

    # --- reading ----------------------------------------------------------------------------

    async def _recall(self, step: Step, process: Process, call: Call) -> object:
        known = sorted({"org", *self._judge.spaces.values()})
        spaces = [known[-1 - step.pick % len(known)]] if step.pick % 3 else None
        names, before = sorted(self._judge.stores), len(self._log.events)
        k = 1 + 3 * (step.pick % 2)
        result = await process.custody.recall(
            "acct plan canary", k=k, spaces=spaces, store=names[step.pick % len(names)]
        )
        seq = -1 if result.head is None else result.head.seq
        self._judge.expect(seq >= before, "I1", f"recall began at event {before} and answered as of {seq}")
        check_recall(self._judge, call, result, k, spaces)
        return result


def actor_of(step: Step) -> str:
    """Return on whose behalf a step is done: every step's actor is its own, but for what a key repeats."""
    return KEYED if step.operation == "write_keyed" else f"agent:sim-{step.number}"


__all__ = ["Operations", "actor_of"]
