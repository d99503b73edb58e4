"""Bugs planted on purpose, each with the invariant that it breaks; the simulator has to find them."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fix_planted_recall import (
    recall_always_exhausted,
    recall_of_any_space,
    recall_reversed,
    recall_serves_nothing,
    recall_serves_twice,
    recall_trusts_the_store,
    recall_withholds,
)

from custody_sync import coordinator, forgetting, proposing, recording, subjects
from custody_sync.errors import AlreadyCovered, CustodyError
from custody_sync.ledger import Assert, Forget, Ledger, rules, sqlite_notes, sqlite_rows
from custody_sync.ledger.embedded import Embedded
from custody_sync.mended import Mended
from custody_sync.mending import AsyncMending
from custody_sync.model import Outcome
from custody_sync.placing import Placer
from custody_sync.recording import Recorder, Unrecorded
from custody_sync.removal import Remover, all_gone
from custody_sync.repair.adopting import Adopting
from custody_sync.repair.amending import Amending, difference_of
from custody_sync.repair.backfilling import Backfilling
from custody_sync.repair.draining import Draining
from custody_sync.repair.listing import Sorter
from custody_sync.repair.working import Working
from custody_sync.testing.sim import Fault, Plan, Step

Plant = Callable[[pytest.MonkeyPatch], None]


def skip_the_compensation(patch: pytest.MonkeyPatch) -> None:
    """What a failed write left is not taken back, and is called nothing."""

    async def nothing(self: Placer, fact: Any, puts: Any) -> tuple[list[str], list[str]]:
        return [], []

    patch.setattr(Placer, "take_back", nothing)


def settle_by_reading(patch: pytest.MonkeyPatch) -> None:
    """An append without an answer counts as lost if the ledger does not show it."""
    append = Recorder.append

    async def read(self: Recorder, draft: Any, placements: Any = ()) -> Any:
        if not isinstance(draft, Assert):
            return await append(self, draft, placements)
        try:
            return await self._ledger.append(draft)
        except (*recording.DECIDED, *recording.NOT_COMMITTED):
            raise
        except Exception as error:
            cause = error
        events = await self._ledger.history(draft.fact_id, limit=1)
        if events:
            return events[0]
        raise Unrecorded(self._unavailable(draft, placements, cause))

    patch.setattr(Recorder, "append", read)


def verified_on_an_error(patch: pytest.MonkeyPatch) -> None:
    """A store that cannot be asked counts as one that does not find it."""
    question = Remover._question

    async def optimistic(self: Remover, gate: Any, entry: Any) -> tuple[Outcome, str]:
        outcome, detail = await question(self, gate, entry)
        return (Outcome.VERIFIED, "") if detail.startswith("cannot be asked") else (outcome, detail)

    patch.setattr(Remover, "_question", optimistic)


def cutoff_off_by_one(patch: pytest.MonkeyPatch) -> None:
    """A sweep takes what is a microsecond too young."""
    judge = Sorter._judge

    def late(self: Sorter, entry: Any, found: Any, batch: Any) -> None:
        judge(replace(self, cutoff=self.cutoff + timedelta(microseconds=1)), entry, found, batch)

    patch.setattr(Sorter, "_judge", late)


def sweep_judges_nothing(patch: pytest.MonkeyPatch) -> None:
    """A sweep looks at entries and thinks nothing of any."""

    def blind(self: Sorter, entry: Any, found: Any, batch: Any) -> None:
        return

    patch.setattr(Sorter, "_judge", blind)


def drain_does_nothing(patch: pytest.MonkeyPatch) -> None:
    """A repair leaves what the ledger knows is owed."""

    async def idle(self: Draining, findings: Any) -> None:
        findings.erasure = await self._ledger.erase()

    patch.setattr(Draining, "drain", idle)


def event_after_the_delete(patch: pytest.MonkeyPatch) -> None:
    """A sweep deletes first and records afterwards."""
    record = Working._record

    async def hasty(self: Working, candidate: Any) -> Any:
        with contextlib.suppress(CustodyError):
            await self._remover.take_away(self._gates[candidate.entry.store], candidate.entry)
        return await record(self, candidate)

    patch.setattr(Working, "_record", hasty)


def check_outside_the_transaction(patch: pytest.MonkeyPatch) -> None:
    """Whether something else superseded a fact is only looked at before its replacement is put."""
    check, replacement = Embedded._check, rules.Group._check_replacement
    looking: list[bool] = []

    def looked(self: Embedded, conn: Any, prepared: Any) -> None:
        looking.append(True)
        try:
            check(self, conn, prepared)
        finally:
            looking.pop()

    def lax(self: rules.Group, row: Any, target: Any) -> None:
        try:
            replacement(self, row, target)
        except AlreadyCovered:
            if looking:
                raise

    patch.setattr(Embedded, "_check", looked)
    patch.setattr(rules.Group, "_check_replacement", lax)


def forget_despite_a_hold(patch: pytest.MonkeyPatch) -> None:
    """The ledger takes a forget, whatever holds there are."""
    forget = rules.RULES[Forget]

    def ruthless(self: rules.Group, prepared: Any, draft: Forget, seq: int) -> None:
        holds = self.state.holds.pop(draft.fact_id, None)
        forget(self, prepared, draft, seq)
        if holds:
            self.state.holds[draft.fact_id] = holds

    patch.setitem(rules.RULES, Forget, ruthless)


def give_to_whoever_asks(patch: pytest.MonkeyPatch, wanted: str) -> None:
    """Let a note that only one may have be taken from whoever has it."""
    acquire = sqlite_notes.acquire

    def generous(conn: Any, topic: str, key: str, *rest: Any) -> Any:
        if topic == wanted:
            sqlite_notes.drop(conn, topic, [key], None)
        return acquire(conn, topic, key, *rest)

    patch.setattr(sqlite_notes, "acquire", generous)


def lost_lease(patch: pytest.MonkeyPatch) -> None:
    """A sweep's lease is given to whoever asks."""
    give_to_whoever_asks(patch, "lease")


def naive_time(patch: pytest.MonkeyPatch) -> None:
    """A time without a zone is taken for UTC."""
    check = proposing.check_instant

    def lenient(instant: Any, field: str) -> datetime:
        return check(instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant, field)

    patch.setattr(proposing, "check_instant", lenient)


def past_not_asked(patch: pytest.MonkeyPatch) -> None:
    """What was known at an instant is answered with what is known now."""
    as_of = Ledger.as_of

    async def present(self: Ledger, **asked: Any) -> Any:
        return await as_of(self, **{**asked, "tx_at": None})

    patch.setattr(Ledger, "as_of", present)


def salt_kept(patch: pytest.MonkeyPatch) -> None:
    """A forget takes the value and leaves the salt of its commitment, so that it can be guessed."""
    erase = sqlite_rows._erase_forgotten

    def careless(conn: Any, group: Any) -> Any:
        salts = conn.execute("SELECT content_salt, seq FROM sealed WHERE content_salt IS NOT NULL").fetchall()
        erased = erase(conn, group)
        conn.executemany("UPDATE sealed SET content_salt = ? WHERE seq = ?", salts)
        return erased

    patch.setattr(sqlite_rows, "_erase_forgotten", careless)


def hash_without_the_actor(patch: pytest.MonkeyPatch) -> None:
    """An event's hash says nothing of who did it."""
    seal = rules.seal

    def anonymous(prepared: Any, **place: Any) -> tuple[str, str]:
        body, _ = seal(prepared, **place)
        return body, hashlib.sha256(re.sub(r'"actor":"[^"]*",', "", body).encode()).hexdigest()

    patch.setattr(rules, "seal", anonymous)


def forget_asks_nobody(patch: pytest.MonkeyPatch) -> None:
    """A forget leaves the stores alone."""

    async def nothing(self: forgetting.Forgetter, fact: Any, mandate: Any) -> tuple[list[Any], tuple[()]]:
        return [], ()

    patch.setattr(forgetting.Forgetter, "clear", nothing)


def forget_always_complete(patch: pytest.MonkeyPatch) -> None:
    """Whatever the stores say, a forget says that all is gone."""
    patch.setattr(forgetting, "all_gone", lambda removals: True)


def retract_always_complete(patch: pytest.MonkeyPatch) -> None:
    """Whatever the stores say, a retraction says that all is gone."""
    patch.setattr(coordinator, "all_gone", lambda removals: True)


def retract_owes_nothing(patch: pytest.MonkeyPatch) -> None:
    """A retraction is complete although what it brings back has no place yet."""
    made = coordinator.RetractResult

    def content(**told: Any) -> Any:
        return made(**{**told, "complete": all_gone(told["removals"])})

    patch.setattr(coordinator, "RetractResult", content)


def verify_always_complete(patch: pytest.MonkeyPatch) -> None:
    """A verification is complete whatever was answered."""
    verify = AsyncMending.verify

    async def content(self: AsyncMending, **told: Any) -> Any:
        return replace(await verify(self, **told), complete=True, removals=())

    patch.setattr(AsyncMending, "verify", content)


def identity_kept(patch: pytest.MonkeyPatch) -> None:
    """A forget leaves the identity, although it was told to take it."""
    record = forgetting.Forgetter.record

    async def partly(self: forgetting.Forgetter, fact: Any, order: Any) -> None:
        await record(self, fact, replace(order, identity=False))

    patch.setattr(forgetting.Forgetter, "record", partly)


def another_actor(patch: pytest.MonkeyPatch) -> None:
    """Events name somebody who was given to no operation."""
    append = Recorder.append

    async def renamed(self: Recorder, draft: Any, *rest: Any) -> Any:
        if isinstance(draft, Assert):
            return await append(self, draft, *rest)
        return await append(self, replace(draft, actor="somebody:else"), *rest)

    patch.setattr(Recorder, "append", renamed)


def backfill_puts_nothing(patch: pytest.MonkeyPatch) -> None:
    """A backfill counts what a store lacks, and says that it is done."""

    async def idle(self: Backfilling, facts: Any) -> None:
        return

    patch.setattr(Backfilling, "_fill", idle)


def adopt_records_nothing(patch: pytest.MonkeyPatch) -> None:
    """An entry counts as adopted, and the ledger hears nothing of it."""

    async def said(self: Adopting, one: Any) -> bool:
        return True

    patch.setattr(Adopting, "_record", said)


def reconcile_puts_nothing(patch: pytest.MonkeyPatch) -> None:
    """What a store lost counts as settled, and nobody puts it again."""

    async def settled(self: Amending, some: Any, held: Any) -> list[Any]:
        return [difference_of(one, Mended.SETTLED) for one in some]

    patch.setattr(Amending, "_replace", settled)


def space_not_listed(patch: pytest.MonkeyPatch) -> None:
    """The erasure of a space goes by the ledger alone, whatever stores show of it."""

    async def blind(self: subjects.SubjectErasure, listed: Any) -> None:
        return

    patch.setattr(subjects.SubjectErasure, "_list_all", blind)


def space_forgets_the_nameless(patch: pytest.MonkeyPatch) -> None:
    """The erasure of a space takes no notice of facts whose identity went before."""

    async def never(self: subjects.SubjectErasure, fact_id: str) -> bool:
        return False

    patch.setattr(subjects.SubjectErasure, "_lost_its_space", never)


@dataclass(frozen=True)
class Planted:
    """A bug, and the invariants by which it may be found."""

    plant: Plant
    invariants: tuple[str, ...]
    first: int
    """The first seed that finds it; where that moves, a later one still has to."""

    @property
    def name(self) -> str:
        """What it is called."""
        return self.plant.__name__


PLANTED = (
    Planted(skip_the_compensation, ("I5",), 5),
    Planted(settle_by_reading, ("I1", "I2"), 20),
    Planted(verified_on_an_error, ("I5",), 0),
    Planted(cutoff_off_by_one, ("I3",), 30),
    Planted(sweep_judges_nothing, ("I2",), 5),
    Planted(drain_does_nothing, ("I2",), 3),
    Planted(event_after_the_delete, ("I3",), 5),
    Planted(check_outside_the_transaction, ("I4",), 491),
    Planted(forget_despite_a_hold, ("I4",), 107),
    Planted(lost_lease, ("I3",), 48),
    Planted(naive_time, ("I8",), 61),
    Planted(past_not_asked, ("I8",), 0),
    Planted(salt_kept, ("I6",), 5),
    Planted(hash_without_the_actor, ("I7",), 0),
    Planted(forget_asks_nobody, ("I5",), 14),
    Planted(forget_always_complete, ("I5",), 32),
    Planted(retract_always_complete, ("I5",), 239),
    Planted(verify_always_complete, ("I5",), 62),
    Planted(identity_kept, ("I6",), 63),
    Planted(another_actor, ("I7",), 0),
    Planted(recall_withholds, ("I1",), 19),
    Planted(recall_reversed, ("I1",), 19),
    Planted(recall_trusts_the_store, ("I1",), 45),
    Planted(recall_serves_nothing, ("I1",), 3),
    Planted(recall_always_exhausted, ("I1",), 595),
    Planted(recall_serves_twice, ("I1",), 19),
    Planted(recall_of_any_space, ("I1",), 9),
    Planted(adopt_records_nothing, ("I3",), 0),
    Planted(reconcile_puts_nothing, ("I2",), 10),
    Planted(space_not_listed, ("I6",), 146),
)


@dataclass(frozen=True)
class Seldom:
    """A bug that seeds come to too seldom for a run of the tests, and a plan that comes to it."""

    plant: Plant
    invariant: str
    steps: tuple[Step, ...]

    @property
    def plan(self) -> Plan:
        """What finds it: one process over two stores."""
        return Plan(
            seed=0, stores=("keys", "own"), keeps=(False, False), skews=(0.0,), slow=0.0, steps=self.steps
        )


REFUSED = Fault("net", "refused", 0, "delete", 5)
UNPUT = Fault("net", "refused", 0, "put", 5)
SELDOM = (
    Seldom(
        retract_owes_nothing,
        "I5",
        (
            Step(0, 0, "write", 0),
            Step(1, 0, "supersede", 0),
            Step(2, 0, "retract", 0, faults=(UNPUT,)),
        ),
    ),
    Seldom(
        backfill_puts_nothing,
        "I2",
        (Step(0, 0, "write", 0), Step(1, 0, "adopt", 1), Step(2, 0, "backfill", 0)),
    ),
    Seldom(
        space_forgets_the_nameless,
        "I6",
        (
            Step(0, 0, "write", 0),
            Step(1, 0, "write", 2),
            Step(2, 0, "forget", 0, faults=(REFUSED,)),
            Step(3, 0, "forget_where", 5, heals=True),
        ),
    ),
)
