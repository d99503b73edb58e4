"""The end of a run: all is healed, time passes, one repair has to do; then the past is asked again."""

from __future__ import annotations

import asyncio
from collections.abc import Set
from datetime import datetime, timedelta

from custody_sync.errors import CustodyError
from custody_sync.mended import Mended
from custody_sync.model import Capability, Erasure, Head, Json, Outcome, format_instant
from custody_sync.repair.readback import KEEPS
from custody_sync.results import RepairResult
from custody_sync.testing.sim.disk import LEDGER_ID
from custody_sync.testing.sim.log import Key
from custody_sync.testing.sim.surroundings import Surroundings

ACTOR = "operator:end"
AGED = timedelta(minutes=12).total_seconds()
"""Past the repair age by the slowest clock of a run."""
MUCH_LATER = timedelta(hours=2).total_seconds()
"""By then everything has begun that was to begin later."""
PATIENCE = 3600.0
"""Seconds after which what has not ended never will."""


class Ending:
    """Asks and judges what only somebody can who sees the whole run.

    Args:
        around: the run's surroundings.
    """

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self.judge, self.clock, self.stores = around.judge, around.clock, around.stores
        self.disk, self.observer = around.disk, around.observer
        self._past: list[tuple[datetime, Head, dict[str, Json]]] = []
        self._named: set[Key] = set()
        """What the last reconciliation may leave, and named."""

    async def look(self) -> None:
        """I8: hold what the ledger believes against the log, and keep the answer."""
        now = self.clock.now()
        page = await self.observer.ledger.as_of(valid_at=now, limit=1000)
        said = {fact.fact_id: fact.value for fact in page}
        known = self.judge.log.believed(format_instant(now))
        if page.head.seq == len(self.judge.log.events):
            self.judge.expect(
                said.keys() == known, "I8", f"the ledger believes {sorted(said)}, the log {sorted(known)}"
            )
        if page.head.seq:
            self._past.append((now, page.head, said))

    async def look_back(self) -> None:
        """I8: ask about the past again; the answer is the same, but for what was forgotten since."""
        for valid_at, head, said in self._past:
            page = await self.observer.ledger.as_of(valid_at=valid_at, tx_at=head.tx_time, limit=1000)
            forgotten = self.judge.log.forgotten
            still = {fact.fact_id: fact.value for fact in page}
            expected = {fact_id: value for fact_id, value in said.items() if fact_id not in forgotten}
            kept = {fact_id: value for fact_id, value in still.items() if fact_id not in forgotten}
            self.judge.expect(kept == expected, "I8", f"as of event {head.seq}: then {expected}, now {kept}")
            quoted = [one for one, value in still.items() if one in forgotten and value is not None]
            self.judge.expect(not quoted, "I6", f"the past still says the value of {quoted}")

    # --- healed -----------------------------------------------------------------------------

    async def converge(self) -> None:
        """Heal everything, pass the repair age, sweep once, and judge; then once more when all has begun."""
        around = self._around
        around.heal()
        around.network.calm = True
        around.network.flush()
        around.heal()
        for waited in (AGED, MUCH_LATER):
            await asyncio.sleep(waited)
            await self._sweep()
            if self.judge.violations:
                return
            self._judge_end(lost=self.judge.lost)
            await self._judge_debts()
            if not self._has_later():
                break
        if (self.judge.lost or self.judge.edited) and not self.judge.violations:
            await self._put_again()

    def _has_later(self) -> bool:
        now = format_instant(self.clock.now())
        data = self.judge.log.asserted.values()
        return any(one["valid_from"] > now or (one["valid_to"] or "") > now for one in data)

    async def _sweep(self) -> None:
        """Sweep once; a sweep that was killed is first gone on with, up to its own cutoff (I2)."""
        result = await self._sweep_once()
        if result is not None and result.resumed is not None:
            result = await self._sweep_once()
        if result is None:
            self.judge.fail("I2", "the sweep did not end")
            return
        left = {
            (one.store, one.external_id) for one in result.repaired if one.outcome is not Outcome.VERIFIED
        }
        is_done = result.complete or bool(left and left <= self._unknowable())
        self.judge.expect(is_done, "I2", f"all is healed, and one repair is not complete: {result}")
        if result.erasure is Erasure.DONE:
            self.judge.erased |= self.judge.log.forgotten
            self.judge.check_erased(self.disk)

    def _unknowable(self) -> set[Key]:
        """Return adopted entries without a label whose text is forgotten: they are named, and stay."""
        adopted = [key for key, fact_id in self.judge.adopted.items() if fact_id in self.judge.log.forgotten]
        held = {key: self.judge.stores[key[0]].entry(key[1]) for key in adopted}
        return {key for key, entry in held.items() if entry is not None and entry.ledger_id is None}

    async def _put_again(self) -> None:
        """I2: what stores lost, and what was edited in them, one reconciliation puts again."""
        call = self.judge.begin("reconcile", self.observer, ACTOR)
        task = self.observer.start(self._reconcile(), call.number)
        await asyncio.wait([task], timeout=PATIENCE)
        self.judge.expect(task.done(), "I2", "the reconciliation did not end")
        self._judge_end(lost=frozenset())
        changed = self.judge.changed(self.judge.log.current(format_instant(self.clock.now())).keys())
        unnamed = sorted(changed - self._named)
        self.judge.expect(not unnamed, "I2", f"all is healed, and unnamed {unnamed} have other texts")

    async def _reconcile(self) -> None:
        try:
            result = await self.observer.custody.reconcile(
                actor=ACTOR, fix="all", max_removals=10_000, max_puts=10_000
            )
        except CustodyError as error:
            self.judge.fail("I2", f"with everything healed, reconcile raised {error.code}: {error}")
            return
        # What was put where nobody can ask about one fact, only the next listing shows.
        blind = {store.name for store in self.stores if Capability.FIND in store.capabilities}
        lefts = {
            (one.store, one.external_id): one for one in result.differences if one.outcome is Mended.LEFT
        }
        # Edited once more before anybody saw it put rightly, it looks like a store's own doing.
        twice = {key for key in self.judge.edited if key in lefts and lefts[key].detail == KEEPS}
        left = [str(one) for key, one in lefts.items() if key[0] not in blind and key not in twice]
        self.judge.expect(not left, "I2", f"all is healed, and one reconciliation left {left}")
        self._named = twice | {key for key in lefts if key[0] in blind}

    async def _sweep_once(self) -> RepairResult | None:
        call = self.judge.begin("repair", self.observer, ACTOR)
        results: list[RepairResult] = []
        task = self.observer.start(self._mend(results), call.number)
        await asyncio.wait([task], timeout=PATIENCE)
        return results[0] if results else None

    async def _mend(self, results: list[RepairResult]) -> None:
        try:
            results.append(await self.observer.custody.repair(actor=ACTOR, reason="sim", max_removals=10_000))
        except CustodyError as error:
            self.judge.fail("I2", f"with everything healed, repair raised {error.code}: {error}")

    async def _judge_debts(self) -> None:
        """I2: the ledger has nothing left to do."""
        rows, owed = await self.observer.ledger.pending(), await self.observer.ledger.owed()
        pending = [row for row in rows if (row.store, row.external_id) not in self._unknowable()]
        self.judge.expect(not pending, "I2", f"after the repair there is still to be removed: {pending}")
        self.judge.expect(not owed, "I2", f"after the repair there is still to be placed: {owed}")

    def _judge_end(self, lost: Set[Key]) -> None:
        """I1 to I4: what is believed is held and nothing else, and nothing acknowledged is lost.

        Args:
            lost: entries that their stores lost by themselves, which no repair puts again.
        """
        log, now = self.judge.log, format_instant(self.clock.now())
        held = {
            (store.name, key)
            for store in self.stores
            for key, entry in store.snapshot().items()
            if entry.ledger_id == LEDGER_ID or (store.name, key) in self.judge.adopted
        }
        current = log.current(now).keys()
        lacking = current - held - log.doubtful - lost
        expect = self.judge.expect
        loose = held - current - log.quarantined() - self._unknowable()
        expect(not loose, "I2", f"held and not placed: {sorted(loose)}")
        expect(not lacking, "I2", f"placed and not held: {sorted(lacking)}")
        believed = log.believed(now)
        for fact_id in believed:
            there = {key[0] for key in held | (current & lost) if log.placed.get(key) == fact_id}
            wanted = {key[0] for key, one in self.judge.adopted.items() if one == fact_id}
            all_there = there >= (wanted or self.judge.stores.keys())
            expect(all_there, "I2", f"{fact_id} is believed, and only {sorted(there)} have it")
        for fact_id in self.judge.acknowledged:
            known = fact_id in believed or log.explained(fact_id, now)
            expect(known, "I1", f"{fact_id} was acknowledged and is lost")
        two = log.split(now)
        expect(two is None, "I4", f"{two} are links of one chain, and both believed")
        for name, key in self.judge.strangers:
            stays = self.judge.stores[name].holds(key) or (name, key) in self.judge.adopted
            expect(stays, "I3", f"{name} lost what is somebody else's")


__all__ = ["PATIENCE", "Ending"]
