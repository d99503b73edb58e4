"""The coordinator for synchronous code: the same surface over one loop thread."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar

from custody_sync.coordinator import AsyncCoordinator
from custody_sync.errors import InvalidInput
from custody_sync.forgetting import Progress
from custody_sync.keeping import BATCH
from custody_sync.ledger import Ledger
from custody_sync.loop_thread import LoopThread
from custody_sync.model import Event, Fact, Json, Observation, Page, Placement, Provenance
from custody_sync.ports import Store, Validator
from custody_sync.removal import Patience
from custody_sync.results import (
    ExpireResult,
    ForgetManyResult,
    ForgetResult,
    ForgetWhereResult,
    HoldResult,
    RetractResult,
    WriteResult,
)
from custody_sync.retention import AgeFrom
from custody_sync.runtime import Runtime
from custody_sync.stores import Deadlines, Superseded
from custody_sync.sync_mending import Mending
from custody_sync.throttling import Pace

T = TypeVar("T")


class Coordinator(Mending):
    """`AsyncCoordinator` for synchronous code; every method does the same and takes the same.

    The stores' async clients are used from the coordinator's own loop thread, so they must have
    been made for no other loop. Inside a running event loop use `AsyncCoordinator`.

    Args:
        ledger: an open `Ledger`, which stays open, or a URL, which is opened and closed with this.
        create: create the ledger that a URL names if it is missing.
        stores: adapters.
        validators: as for `AsyncCoordinator`, as are the others.
        forget_key: key of the digests that an erasure may leave, for a ledger that a URL names.

    Raises:
        InsideEventLoop: called from inside a running event loop.
    """

    def __init__(
        self,
        ledger: Ledger | str,
        *,
        create: bool = False,
        stores: Iterable[Store] = (),
        validators: Sequence[Validator] = (),
        runtime: Runtime | None = None,
        deadlines: Deadlines | None = None,
        patience: Patience | None = None,
        superseded: Superseded | Mapping[str, Superseded] = "remove",
        paces: Mapping[str, Pace] | None = None,
        validator_deadline: float = 5.0,
        settle_tries: int = 6,
        forget_key: bytes | None = None,
    ) -> None:
        self._thread = LoopThread("Coordinator", "AsyncCoordinator")
        self._own: Ledger | None = None
        self._stores: tuple[Any, ...] = ()

        async def build() -> AsyncCoordinator:
            opened = ledger
            if isinstance(opened, str):
                opened = self._own = await Ledger.open(
                    opened, create=create, runtime=runtime, forget_key=forget_key
                )
            self._stores = tuple(stores)
            return AsyncCoordinator(
                opened,
                stores=self._stores,
                validators=validators,
                runtime=runtime,
                deadlines=deadlines,
                patience=patience,
                superseded=superseded,
                paces=paces,
                validator_deadline=validator_deadline,
                settle_tries=settle_tries,
            )

        try:
            self._custody = self._thread.run(build())
        except BaseException:
            self._thread.stop(self._close_own)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Refuse further work, let other threads' calls finish, close the ledger if it was opened here.

        Closing again does nothing, nor does closing in a forked child what is its parent's.
        """
        self._thread.refuse_inside_loop()
        self._thread.stop(self._close_all)

    async def _close_all(self) -> None:
        try:
            await self._close()
        finally:
            await self._close_own()

    async def _close_own(self) -> None:
        if self._own is not None:
            await self._own.close()

    async def _close(self) -> None:
        """End what belongs to this loop: what a store opened by itself can be used by no other."""
        await self._custody.close()
        for store in self._stores:
            closing = getattr(store, "aclose", None)
            if closing is not None:
                with contextlib.suppress(Exception):
                    await closing()

    @property
    def ledger(self) -> Ledger:
        """The ledger underneath; its methods are async, and `call` runs them."""
        return self._custody.ledger

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the coordinator's loop and return its result: `call(custody.ledger.verify())`.

        An open ledger may belong to its loop, so `asyncio.run` would not do.

        Raises:
            InvalidInput: it is no coroutine.
            InsideEventLoop: called from inside a running event loop.
        """
        if not asyncio.iscoroutine(coroutine):
            problem = f"must be what a call of an async method returns, not {type(coroutine).__name__}"
            raise InvalidInput(field="coroutine", problem=problem)
        return self._thread.run(coroutine)

    def do(self, work: Callable[[AsyncCoordinator], Coroutine[Any, Any, T]]) -> T:
        """Run work with the asynchronous coordinator underneath, in its loop, and return its result."""
        return self._thread.run(work(self._custody))

    def start(self, work: Callable[[AsyncCoordinator], Coroutine[Any, Any, T]]) -> Future[T]:
        """Start such work and return at once; a running event loop may wait for it with `wrap_future`."""
        return self._thread.submit(work(self._custody))

    def write(
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
        """Write a fact through to every store, then record it; see `AsyncCoordinator.write`."""
        return self._thread.run(
            self._custody.write(
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
        )

    def confirm(
        self, fact_id: str, *, actor: str, reason: str | None = None, receipt_id: str | None = None
    ) -> WriteResult:
        """Take over a claimed fact; see `AsyncCoordinator.confirm`."""
        return self._thread.run(
            self._custody.confirm(fact_id, actor=actor, reason=reason, receipt_id=receipt_id)
        )

    def retract(
        self, fact_id: str, *, actor: str, reason: str, receipt_id: str | None = None
    ) -> RetractResult:
        """Retract a fact everywhere; see `AsyncCoordinator.retract`."""
        return self._thread.run(
            self._custody.retract(fact_id, actor=actor, reason=reason, receipt_id=receipt_id)
        )

    def forget(
        self,
        fact_id: str,
        *,
        actor: str,
        reason: str,
        digest: str | None = None,
        identity: bool = False,
        receipt_id: str | None = None,
    ) -> ForgetResult:
        """Erase a fact everywhere; see `AsyncCoordinator.forget`."""
        return self._thread.run(
            self._custody.forget(
                fact_id, actor=actor, reason=reason, digest=digest, identity=identity, receipt_id=receipt_id
            )
        )

    def forget_many(
        self,
        fact_ids: Sequence[str],
        *,
        actor: str,
        reason: str,
        digest: str | None = None,
        identity: bool = False,
        batch: int = BATCH,
        receipt_id: str | None = None,
    ) -> ForgetManyResult:
        """Forget facts as `forget` does each; see `AsyncCoordinator.forget_many`."""
        said: dict[str, Any] = {"digest": digest, "identity": identity, "receipt_id": receipt_id}
        work = self._custody.forget_many(fact_ids, actor=actor, reason=reason, batch=batch, **said)
        return self._thread.run(work)

    def forget_where(
        self,
        *,
        space: str,
        subject: str | None = None,
        actor: str,
        reason: str | None = None,
        identity: bool = False,
        digest: str | None = None,
        dry_run: bool = False,
        batch: int = BATCH,
        progress: Progress | None = None,
        receipt_id: str | None = None,
    ) -> ForgetWhereResult:
        """Forget a space, or one subject of it, and certify it; see `AsyncCoordinator.forget_where`.

        `progress` is called in the coordinator's own thread.
        """
        return self._thread.run(
            self._custody.forget_where(
                space=space,
                subject=subject,
                actor=actor,
                reason=reason,
                identity=identity,
                digest=digest,
                dry_run=dry_run,
                batch=batch,
                progress=progress,
                receipt_id=receipt_id,
            )
        )

    def expire(
        self,
        *,
        actor: str,
        reason: str | None = None,
        before: datetime | None = None,
        windows: Mapping[str, str] | None = None,
        space: str | None = None,
        all_spaces: bool = False,
        age_from: AgeFrom = "learned",
        identity: bool = False,
        digest: str | None = None,
        dry_run: bool = False,
        batch: int = BATCH,
        progress: Progress | None = None,
        receipt_id: str | None = None,
    ) -> ExpireResult:
        """Forget what is older than its space keeps it; see `AsyncCoordinator.expire`.

        `progress` is called in the coordinator's own thread.
        """
        return self._thread.run(
            self._custody.expire(
                actor=actor,
                reason=reason,
                before=before,
                windows=windows,
                space=space,
                all_spaces=all_spaces,
                age_from=age_from,
                identity=identity,
                digest=digest,
                dry_run=dry_run,
                batch=batch,
                progress=progress,
                receipt_id=receipt_id,
            )
        )

    def hold(
        self,
        fact_id: str,
        *,
        actor: str,
        reason: str | None = None,
        hold_id: str | None = None,
        receipt_id: str | None = None,
    ) -> HoldResult:
        """Keep a fact from being forgotten; see `AsyncCoordinator.hold`."""
        return self._thread.run(
            self._custody.hold(fact_id, actor=actor, reason=reason, hold_id=hold_id, receipt_id=receipt_id)
        )

    def release(
        self,
        fact_id: str,
        *,
        hold_id: str,
        actor: str,
        reason: str | None = None,
        receipt_id: str | None = None,
    ) -> HoldResult:
        """End one hold; see `AsyncCoordinator.release`."""
        return self._thread.run(
            self._custody.release(fact_id, hold_id=hold_id, actor=actor, reason=reason, receipt_id=receipt_id)
        )

    def as_of(
        self,
        *,
        space: str | None = None,
        subject: str | None = None,
        predicate: str | None = None,
        valid_at: datetime | None = None,
        tx_at: datetime | None = None,
        include_claimed: bool = False,
        limit: int = 100,
        after: int | None = None,
    ) -> Page[Fact]:
        """Return what was believed; see `Ledger.as_of`."""
        return self._thread.run(
            self.ledger.as_of(
                space=space,
                subject=subject,
                predicate=predicate,
                valid_at=valid_at,
                tx_at=tx_at,
                include_claimed=include_claimed,
                limit=limit,
                after=after,
            )
        )

    def history(self, fact_id: str, *, limit: int = 1000, after: int | None = None) -> Page[Event]:
        """Return a fact's events; see `Ledger.history`."""
        return self._thread.run(self.ledger.history(fact_id, limit=limit, after=after))

    def get(self, fact_id: str) -> Fact | None:
        """Return a fact whatever its state; see `Ledger.get`."""
        return self._thread.run(self.ledger.get(fact_id))

    def spaces(self) -> list[str]:
        """Return every space that has facts; see `Ledger.spaces`."""
        return self._thread.run(self.ledger.spaces())

    def placements(self, fact_id: str) -> list[Placement]:
        """Return where a fact is or was held; see `Ledger.placements`."""
        return self._thread.run(self.ledger.placements(fact_id))

    def pending(self, *, limit: int = 1000, after: int | None = None) -> Page[Placement]:
        """Return what has to go and was not yet seen gone; see `Ledger.pending`."""
        return self._thread.run(self.ledger.pending(limit=limit, after=after))
