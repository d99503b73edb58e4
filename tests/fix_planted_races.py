"""Bugs that one operation alone never shows, planted on purpose; schedules of two have to find them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from fix_planted import check_outside_the_transaction, give_to_whoever_asks, lost_lease

from custody_sync import forgetting
from custody_sync.errors import OnHold
from custody_sync.ledger import Confirm, Forget, Repair, grouping, rules
from custody_sync.ledger.embedded import Embedded
from custody_sync.model import Standing
from custody_sync.testing.sim import Pair, Schedule, Setting

Plant = Callable[[pytest.MonkeyPatch], None]


def _lax_at_commit(patch: pytest.MonkeyPatch, kind: type, admit: Callable[..., None]) -> None:
    """Let a rule hold where a draft is only looked at, and another one where it is committed."""
    check, rule = Embedded._check, rules.RULES[kind]
    looking: list[bool] = []

    def looked(self: Embedded, conn: Any, prepared: Any) -> None:
        looking.append(True)
        try:
            check(self, conn, prepared)
        finally:
            looking.pop()

    patch.setattr(Embedded, "_check", looked)
    patch.setitem(rules.RULES, kind, lambda *told: (rule if looking else admit)(*told))


def hold_looked_for_before(patch: pytest.MonkeyPatch) -> None:
    """A forget asks for holds, and records whatever there is by then."""
    record, forget = forgetting.Forgetter.record, rules.RULES[Forget]

    async def asking(self: forgetting.Forgetter, fact: Any, order: Any) -> None:
        known = await self.ledger.accounts()
        holds = [hold for one in known if one.fact_id == fact.fact_id for hold in one.holds]
        if holds:
            raise OnHold(fact_id=fact.fact_id, holds=holds)
        await record(self, fact, order)

    def blind(self: rules.Group, prepared: Any, draft: Forget, seq: int) -> None:
        holds = self.state.holds.pop(draft.fact_id, None)
        forget(self, prepared, draft, seq)
        if holds:
            self.state.holds[draft.fact_id] = holds

    patch.setattr(forgetting.Forgetter, "record", asking)
    patch.setitem(rules.RULES, Forget, blind)


def confirmed_as_it_was(patch: pytest.MonkeyPatch) -> None:
    """A claim is confirmed as it was when the stores took it, whatever became of it since."""
    confirm = rules.RULES[Confirm]

    def stale(self: rules.Group, prepared: Any, draft: Confirm, seq: int) -> None:
        row = self.state.facts[draft.fact_id]
        ended, row.retract_seq = row.retract_seq, None
        forgotten, row.forget_seq = row.forget_seq, None
        confirm(self, prepared, draft, seq)
        row.retract_seq, row.forget_seq = ended, forgotten

    _lax_at_commit(patch, Confirm, stale)


def sweep_trusts_its_listing(patch: pytest.MonkeyPatch) -> None:
    """What was an orphan when it was listed is taken for one when that is recorded."""
    repair = rules.RULES[Repair]

    def stale(self: rules.Group, prepared: Any, draft: Repair, seq: int) -> None:
        if self.state.claims.get(draft.fact_id) is not Standing.ASSERTED:
            repair(self, prepared, draft, seq)

    patch.setitem(rules.RULES, Repair, stale)


def key_for_everybody(patch: pytest.MonkeyPatch) -> None:
    """Whoever asks gets an idempotency key, also one that another write has."""
    give_to_whoever_asks(patch, "reservation")


def answers_mixed_up(patch: pytest.MonkeyPatch) -> None:
    """Of what is committed together each caller gets the other's result."""
    deliver = grouping.GroupWriter._deliver

    def crossed(self: Any, group: Any, results: Any) -> None:
        deliver(self, group, list(results)[::-1])

    patch.setattr(grouping.GroupWriter, "_deliver", crossed)


@dataclass(frozen=True)
class Race:
    """A bug, by which invariants it may be found, and the first schedule of the share that finds it."""

    plant: Plant
    invariants: tuple[str, ...]
    pair: str
    setting: str
    order: str

    @property
    def name(self) -> str:
        """What it is called."""
        return self.plant.__name__

    @property
    def case(self) -> tuple[Pair, Setting, int]:
        """The case of the share that finds it."""
        return Pair.read(self.pair), Setting.read(self.setting), 1

    @property
    def schedule(self) -> Schedule:
        """The schedule of that case that finds it first."""
        return Schedule.read(self.order)


RACES = (
    Race(check_outside_the_transaction, ("I4",), "supersede:supersede", "2p1s-owing", "a,3"),
    Race(lost_lease, ("I3",), "repair:repair", "2p1s-owing", "a,2"),
    Race(hold_looked_for_before, ("I4",), "forget:hold", "2p1s-owing", "a,3"),
    Race(confirmed_as_it_was, ("I2",), "retract:confirm", "2p1s-owing-claim", "b,2"),
    Race(sweep_trusts_its_listing, ("I4",), "write_keyed:repair", "2p1s-owing", "b,26"),
    Race(key_for_everybody, ("I3",), "write_keyed:write_keyed", "2p1s-owing", "a,2"),
    Race(answers_mixed_up, ("I1",), "supersede:forget", "1p1s", "b,4"),
)
