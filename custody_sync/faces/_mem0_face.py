"""What both of Mem0's faces are made of: how one is constructed, over what, and for whom it speaks."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any, Literal, Self

from custody_sync.adapters.mem0 import Mem0Store, PerSpace
from custody_sync.canonical import check_name, check_optional
from custody_sync.coordinator import AsyncCoordinator
from custody_sync.errors import InsideEventLoop, InvalidInput, NotOffered
from custody_sync.faces._bridge import Bridge
from custody_sync.faces._mem0_scope import user_of_space
from custody_sync.faces._mem0_view import Pending, View
from custody_sync.faces._options import check_options
from custody_sync.ports import Store
from custody_sync.runtime import Runtime
from custody_sync.sync import Coordinator

LEDGER = "sqlite:///custody.db"


def store_over(original: Any, **options: Any) -> Mem0Store:
    """Return the adapter that suits the faces: a memory of a user lies in Mem0 under that user's own id.

    Args:
        original: a `Memory`, `AsyncMemory`, `MemoryClient` or `AsyncMemoryClient` of mem0ai.
        options: as for `Mem0Store`.
    """
    return Mem0Store(original, **{"user_id": PerSpace(user_of_space), **options})


class Face:
    """What both faces are made of."""

    def __init__(
        self,
        custody: Coordinator | AsyncCoordinator,
        *,
        actor: str = "app",
        receipt_id: str | None = None,
        store: str | None = None,
        infer: Literal["refuse", "adopt"] = "refuse",
        wrapped: Mem0Store | None = None,
        include_claimed: bool = False,
        reranker: Any = None,
        on_pending: Pending | None = None,
    ) -> None:
        """Serve memories from a coordinator that the caller made and closes.

        Args:
            custody: the coordinator; with a `Coordinator` calls work with and without await.
            actor: who speaks through this face.
            receipt_id: the caller's reference, recorded with everything.
            store: which store is searched; the first that can be by default.
            infer: whether `add(infer=True)` is refused, or lets Mem0's model write and adopts the result.
            wrapped: the adapter through which it writes then; one of the coordinator's stores.
            include_claimed: also serve adopted memories that nobody confirmed.
            reranker: what `search(rerank=True)` asks; Mem0's own is taken by `over`.
            on_pending: is given every result whose removals are not all verified yet.
        """
        self._bridge = Bridge(custody, type(self).__name__)
        if infer not in ("refuse", "adopt"):
            raise InvalidInput(field="infer", problem="must be 'refuse' or 'adopt'")
        if infer == "adopt" and not isinstance(wrapped, Mem0Store):
            raise InvalidInput(field="wrapped", problem="must be the Mem0Store through which Mem0 may write")
        self._view = View(
            actor=check_name(actor, "actor"),
            receipt_id=check_optional(receipt_id, "receipt_id"),
            store=check_optional(store, "store"),
            include_claimed=include_claimed,
            inferring=wrapped if infer == "adopt" else None,
            reranker=reranker,
            on_pending=on_pending,
        )
        self._closing: tuple[Callable[[], Any], ...] = ()
        """What `over` opened, in the order in which it is closed."""
        self._awaited: tuple[Callable[[], Awaitable[object]], ...] = ()

    @classmethod
    def over(
        cls,
        original: Any,
        ledger: str = LEDGER,
        *,
        create: bool = True,
        actor: str = "app",
        receipt_id: str | None = None,
        infer: Literal["refuse", "adopt"] = "refuse",
        include_claimed: bool = False,
        on_pending: Pending | None = None,
        stores: Iterable[Store] = (),
        runtime: Runtime | None = None,
        **options: Any,
    ) -> Self:
        """Put a ledger under a Mem0 that you have; closing the face closes what it opened, and not yours.

        Args:
            original: a `Memory`, `AsyncMemory`, `MemoryClient` or `AsyncMemoryClient` of mem0ai.
            ledger: the ledger's URL.
            create: make the ledger if it is missing.
            actor: who speaks through this face.
            receipt_id: the caller's reference, recorded with everything.
            infer: as for the constructor.
            include_claimed: as for the constructor.
            on_pending: as for the constructor.
            stores: further stores that hold the same memories.
            runtime: clock, ids and threads; the real ones by default.
            options: as for `Coordinator`.

        Raises:
            InsideEventLoop: a loop runs here; await `AsyncMemory.aover` there.
        """
        check_options(options)
        store = store_over(original)
        try:
            custody = Coordinator(ledger, create=create, stores=[store, *stores], runtime=runtime, **options)
        except InsideEventLoop:
            custody = None
        if custody is None:
            # Named after what was called, not after the coordinator inside.
            raise InsideEventLoop(used=f"{cls.__name__}.over", instead="AsyncMemory.aover")
        try:
            face = cls(
                custody,
                actor=actor,
                receipt_id=receipt_id,
                store=store.name,
                infer=infer,
                wrapped=store,
                include_claimed=include_claimed,
                reranker=getattr(original, "reranker", None),
                on_pending=on_pending,
            )
        except BaseException:
            custody.close()
            raise
        face._closing = (custody.close,)
        return face

    @property
    def custody(self) -> Coordinator | AsyncCoordinator:
        """The coordinator underneath: for `adopt`, `repair`, and what else Mem0 has no word for."""
        return self._bridge.custody

    def acting_as(self, actor: str, receipt_id: str | None = None) -> Self:
        """Return this face speaking for somebody else; it shares everything and closes nothing."""
        other = copy.copy(self)
        other._view = replace(
            self._view,
            actor=check_name(actor, "actor"),
            receipt_id=check_optional(receipt_id, "receipt_id"),
        )
        other._closing = other._awaited = ()
        return other

    def _close_all(self) -> None:
        closing, self._closing = self._closing, ()
        for close in closing:
            close()

    def reset(self) -> None:
        """Refuse: it would drop everybody's memories, and the store's, behind the ledger.

        Raises:
            NotOffered: always; it says what to call instead.
        """
        problem = "is refused: delete_all(user_id=...) forgets a user, `custody-sync forget --space` a space"
        raise NotOffered(what="reset", problem=problem)


__all__ = ["LEDGER", "Face", "store_over"]
