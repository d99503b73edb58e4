"""The coordinator: validate, then stores, then ledger; and for removals ledger first, then stores.

A write is recorded only after every store has confirmed it, so a crash in between leaves an
orphan that the sweep can name, never a fact that no store holds. A removal is recorded first,
so that custody never depends on a store being up.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self

from custody_sync.canonical import check_name, check_reason
from custody_sync.errors import (
    AlreadyRetracted,
    ClosedError,
    DuplicateFact,
    InvalidInput,
    LedgerError,
    RepairedId,
)
from custody_sync.faultpoints import FaultPoint
from custody_sync.finishing import Finishing
from custody_sync.following import FollowUp
from custody_sync.gates import open_gates
from custody_sync.keyed import Keys, Reserved
from custody_sync.ledger import Ledger, Retract
from custody_sync.mending import AsyncMending
from custody_sync.model import Json, Observation, Provenance
from custody_sync.placing import Placer
from custody_sync.ports import Store, Validator
from custody_sync.proposing import Proposals, Request, read_request
from custody_sync.recording import Recorder, check_place
from custody_sync.releasing import Notebooks
from custody_sync.removal import Patience, Remover, all_gone
from custody_sync.results import RetractResult, WriteResult
from custody_sync.runtime import Runtime
from custody_sync.signals.operations import traced
from custody_sync.stores import Deadlines, Superseded
from custody_sync.throttling import Pace
from custody_sync.writing import Writer


class AsyncCoordinator(AsyncMending):
    """Writes facts through to every store and keeps the ledger's word about them.

    Args:
        ledger: an open ledger; it stays open when the coordinator closes.
        stores: adapters; each with a name of its own.
        validators: `async (fact, view of the ledger) -> fact`, or raise.
        runtime: clock, ids, sleep and threads; the real ones by default.
        deadlines: per call to a store.
        patience: how long stores are asked whether an entry is gone.
        superseded: what happens to entries of superseded facts, for all stores or by store name.
        paces: how many calls a store may get at once and in a second, by store name.
        validator_deadline: seconds each validator may take.
        settle_tries: how often an append without an answer is repeated.

    Raises:
        InvalidStore: a store without a name, with a name twice, or without a verb.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        stores: Iterable[Store] = (),
        validators: Sequence[Validator] = (),
        runtime: Runtime | None = None,
        deadlines: Deadlines | None = None,
        patience: Patience | None = None,
        superseded: Superseded | Mapping[str, Superseded] = "remove",
        paces: Mapping[str, Pace] | None = None,
        validator_deadline: float = 5.0,
        settle_tries: int = 6,
    ) -> None:
        if not isinstance(ledger, Ledger):
            problem = f"must be an open Ledger, not {type(ledger).__name__}; await Ledger.open(url) first"
            raise InvalidInput(field="ledger", problem=problem)
        self.ledger = ledger
        self._runtime = runtime or Runtime()
        deadlines = deadlines or Deadlines()
        self._gates = open_gates(stores, self._runtime, deadlines, superseded, paces)
        self._lasts = timedelta(seconds=deadlines.lease)
        self._remover = Remover(ledger, self._gates, self._runtime, patience or Patience())
        self._finishing = Finishing()
        self._notebooks = Notebooks(ledger, self._gates, self._runtime)
        self._placer = Placer(
            ledger, self._gates, self._remover, self._runtime, self._finishing, self._notebooks
        )
        self._recorder = Recorder(ledger, self._runtime, settle_tries)
        self._following = FollowUp(ledger, self._gates, self._remover, self._placer, self._notebooks)
        gates = self._gates.values()
        self._proposals = Proposals(ledger, validators, gates, self._runtime, validator_deadline)
        self._writer = Writer(
            ledger=ledger,
            gates=self._gates,
            proposals=self._proposals,
            placer=self._placer,
            recorder=self._recorder,
            following=self._following,
            finishing=self._finishing,
            runtime=self._runtime,
        )
        self._keys = Keys(ledger, self._runtime)
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Refuse further work and see clean-up through; the ledger and the stores' clients stay open."""
        self._closed = True
        await self._finishing.wait()

    @property
    def runtime(self) -> Runtime:
        """Where its time, ids, chance and sleep come from."""
        return self._runtime

    # --- stores first -----------------------------------------------------------------------

    @traced("write")
    async def write(
        self,
        *,
        value: Json,
        space: str,
        actor: str,
        subject: str | None = None,
        predicate: str | None = None,
        text: str | None = None,
        supersedes: str | None = None,
        valid_from: datetime | None = None,
        valid_to: datetime | None = None,
        receipt_id: str | None = None,
        idempotency_key: str | None = None,
        provenance: Provenance | str = Provenance.ATTESTED,
        evidence: Observation | None = None,
    ) -> WriteResult:
        """Write a fact through to every store, then record it; all of it, or an error that says what is left.

        Without subject and predicate the value is free text. A claimed fact is recorded and put
        into no store until `confirm`. A superseded predecessor is removed from the stores afterwards.

        Args:
            value: JSON; the caller's object is copied.
            space: who or what it belongs to, such as `org` or `user:42`.
            actor: who says so.
            subject: what it is about; with `predicate`, or neither.
            predicate: which property of the subject.
            text: what the stores index; `subject predicate: value` by default.
            supersedes: the fact id this one replaces.
            valid_from: since when it is true; now by default. What begins later is put into the stores
                by `repair`, once it has begun, and what it supersedes is removed then.
            valid_to: until when, exclusive.
            receipt_id: the caller's reference to where it came from.
            idempotency_key: the same key and body is written once, whoever sends it.
            provenance: `attested` or `claimed`.
            evidence: what the caller fetched itself to check the value; equal makes the fact `verified`.

        Raises:
            InvalidInput: an argument; no store was touched.
            EvidenceDiffers: the value is not what was observed; no store was touched.
            Refused: the ledger's rule by name; no store holds anything of it.
            LedgerMoved: the ledger goes on in another place; no store holds anything of it.
            StoreWriteFailed: a store did not take it; names what was removed and what may be left.
            LedgerUnavailable: it was not recorded; names the entries that the sweep will find.
        """
        self._check_open()
        request = read_request(
            value=value,
            space=space,
            actor=actor,
            subject=subject,
            predicate=predicate,
            text=text,
            supersedes=supersedes,
            valid_from=valid_from,
            valid_to=valid_to,
            receipt_id=receipt_id,
            idempotency_key=idempotency_key,
            provenance=provenance,
            evidence=evidence,
        )
        self._proposals.check_writable()
        now = self._proposals.check_clock()
        if request.idempotency_key is None:
            return await self._writer.write(request, self._runtime.ids.fact_id(now), now)
        return await self._write_once(request, request.idempotency_key, now)

    async def _write_once(self, request: Request, key: str, now: datetime) -> WriteResult:
        reserved = await self._keys.reserve(request, key)
        if reserved.earlier is not None:
            return await self._writer.as_written(reserved.earlier)
        try:
            return await self._writer.write(request, reserved.fact_id, now)
        except DuplicateFact as duplicate:
            # An append that was thought lost has landed after all: its fact is the answer.
            again = await self._keys.reserve(request, key)
            if again.earlier is None:
                raise
            return await self._writer.as_written(again.earlier, left=duplicate.fields.get("left", ()))
        except RepairedId as repaired:
            if repaired.fields["fact_id"] != reserved.fact_id or repaired.fields.get("left"):
                raise
            # A sweep took what an earlier try had left, and the id with it: the key has another one.
            return await self._write_once(request, key, now)
        finally:
            await self._finishing.see_through(self._release(reserved))

    async def _release(self, reserved: Reserved) -> None:
        try:
            await self._keys.release(reserved)
        except (LedgerError, ClosedError):
            # It lapses by itself; the write's own outcome is what the caller must hear.
            return

    @traced("confirm")
    async def confirm(
        self, fact_id: str, *, actor: str, reason: str | None = None, receipt_id: str | None = None
    ) -> WriteResult:
        """Take over a claimed fact: put it into every store, then record that it is believed.

        What its supersession needs is checked again now. Raises as `write` does.
        """
        self._check_open()
        mandate, reason = self._mandate(actor, receipt_id), check_reason(reason)
        self._proposals.check_writable()
        self._proposals.check_clock()
        return await self._writer.confirm(await self._known_fact(fact_id), mandate, reason)

    # --- ledger first -----------------------------------------------------------------------

    @traced("retract")
    async def retract(
        self, fact_id: str, *, actor: str, reason: str, receipt_id: str | None = None
    ) -> RetractResult:
        """Record that a fact was never so, then remove it from every store; what it covered comes back.

        Calling it again goes on with what is still pending.

        Raises:
            Refused: an unknown, repaired or forgotten fact.
            LedgerUnavailable: it was not recorded; the stores were not touched.
        """
        self._check_open()
        mandate = self._mandate(actor, receipt_id)
        draft = Retract(
            event_id=self._runtime.ids.event_id(),
            fact_id=check_name(fact_id, "fact_id"),
            actor=mandate.actor,
            receipt_id=mandate.receipt_id,
            reason=check_name(reason, "reason"),
        )
        await check_place(self.ledger)
        fact = await self._known_fact(fact_id)
        # Retracted before: what is left to do is in the stores.
        with contextlib.suppress(AlreadyRetracted):
            await self._recorder.append(draft)
        self._runtime.reach(FaultPoint.RECORDED)
        removals = await self._following.remove(fact_id, mandate)
        restored = await self._following.restore(fact, mandate)
        complete = all_gone(removals) and all(item.placed for item in restored)
        return RetractResult(fact_id=fact_id, removals=removals, restored=restored, complete=complete)


__all__ = ["AsyncCoordinator"]
