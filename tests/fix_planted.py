"""Ten bugs planted on purpose, each with the invariant that it breaks; the simulator has to find them."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from custody_sync import proposing, recording
from custody_sync.errors import AlreadyCovered, CustodyError
from custody_sync.ledger import Assert, rules, sqlite_notes, sqlite_rows
from custody_sync.ledger.embedded import Embedded
from custody_sync.model import Outcome
from custody_sync.placing import Placer
from custody_sync.recording import Recorder, Unrecorded
from custody_sync.removal import Remover
from custody_sync.repair.listing import Sorter
from custody_sync.repair.working import Working

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


def lost_lease(patch: pytest.MonkeyPatch) -> None:
    """A sweep's lease is given to whoever asks."""
    acquire = sqlite_notes.acquire

    def generous(conn: Any, topic: str, key: str, *rest: Any) -> Any:
        if topic == "lease":
            sqlite_notes.drop(conn, topic, [key], None)
        return acquire(conn, topic, key, *rest)

    patch.setattr(sqlite_notes, "acquire", generous)


def naive_time(patch: pytest.MonkeyPatch) -> None:
    """A time without a zone is taken for UTC."""
    check = proposing.check_instant

    def lenient(instant: Any, field: str) -> datetime:
        return check(instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant, field)

    patch.setattr(proposing, "check_instant", lenient)


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


@dataclass(frozen=True)
class Planted:
    """A bug, and the invariants by which it may be found."""

    plant: Plant
    invariants: tuple[str, ...]

    @property
    def name(self) -> str:
        """What it is called."""
        return self.plant.__name__


PLANTED = (
    Planted(skip_the_compensation, ("I5",)),
    Planted(settle_by_reading, ("I1", "I2")),
    Planted(verified_on_an_error, ("I5",)),
    Planted(cutoff_off_by_one, ("I3",)),
    Planted(event_after_the_delete, ("I3",)),
    Planted(check_outside_the_transaction, ("I4",)),
    Planted(lost_lease, ("I3",)),
    Planted(naive_time, ("I8",)),
    Planted(salt_kept, ("I6",)),
    Planted(hash_without_the_actor, ("I7",)),
)
