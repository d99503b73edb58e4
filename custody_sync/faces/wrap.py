"""Custody around any object: three callables in, three guarded ones out.

    memory = wrap(search=index.query, add=index.upsert, delete=index.remove)

What `memory` finds is what its ledger believes, whatever the index still has.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AsyncExitStack
from typing import Any, Generic, Self, TypedDict, TypeVar, Unpack, cast, overload

from custody_sync.adapters.calls import CallStore, Found, Id, Read
from custody_sync.canonical import check_name
from custody_sync.coordinator import AsyncCoordinator
from custody_sync.errors import InvalidInput
from custody_sync.faces._bridge import Bridge, Work, refuse_inside_loop
from custody_sync.faces._closing import AsyncClosing, Closing
from custody_sync.faces._options import check_options
from custody_sync.faces._wrapped import Given, Pending, Place, RecallOptions
from custody_sync.ledger import Ledger
from custody_sync.model import Json, Limits
from custody_sync.ports import Validator
from custody_sync.recall import Keep
from custody_sync.recalled import RecallResult
from custody_sync.removal import Patience
from custody_sync.results import RepairResult
from custody_sync.runtime import Runtime
from custody_sync.stores import Deadlines, Superseded
from custody_sync.sync import Coordinator
from custody_sync.throttling import Pace

R = TypeVar("R")
T = TypeVar("T")
C = TypeVar("C", bound=Coordinator | AsyncCoordinator)

_LEDGER = "sqlite:///custody.db"
_OF_STORE = ("get", "entries", "read", "ids", "name", "threads", "executor", "limits")
_OF_FACE = ("space", "actor", "on_pending")


class WrapOptions(TypedDict, total=False):
    """What `wrap` takes beside the three callables: of the store, of the face, and of the coordinator."""

    get: Callable[..., Any] | None
    """`(id)` gives one result, and None only if there is none; with it any removal can be verified."""
    entries: Callable[..., Any] | None
    """`()` gives every result; with it `repair` finds what nobody recorded."""
    read: Read | None
    """Makes a `Found` of one result, where it has a form of its own."""
    ids: Callable[[str], Id] | None
    """Makes an id of its text, where one callable gives numbers and another one texts."""
    name: str
    """The store's name in the ledger, which never changes; `memories` by default."""
    threads: int
    """How many plain calls may run at once; 1 by default, since few objects are made for threads."""
    executor: Executor | None
    limits: Limits | None
    ledger: str
    """The ledger's URL; `sqlite:///custody.db` by default."""
    create: bool
    """Whether to create the ledger if it is missing; True by default."""
    space: str
    """Where everything is remembered, searched and deleted; `memories` by default."""
    actor: str
    """Who remembers and deletes; `app` by default."""
    on_pending: Pending | None
    """Is given every result with a removal that is not verified yet."""
    validators: Sequence[Validator]
    runtime: Runtime | None
    deadlines: Deadlines | None
    patience: Patience | None
    superseded: Superseded | Mapping[str, Superseded]
    paces: Mapping[str, Pace] | None
    validator_deadline: float
    settle_tries: int
    forget_key: bytes | None


class _Face(Generic[R, C]):
    """What both faces have in common.

    Args:
        custody: a coordinator with the store; it stays open.
        store: the three callables.
        space: where everything is remembered, searched and deleted.
        actor: who remembers and deletes.
        show: makes what a search gives of a `Found`; by default it gives that.
        on_pending: is given every result with a removal that is not verified yet, in the loop that did it.

    Raises:
        InvalidInput: an argument.
    """

    def __init__(
        self,
        custody: C,
        store: CallStore,
        *,
        space: str = "memories",
        actor: str = "app",
        show: Callable[[Found], R] | None = None,
        on_pending: Pending | None = None,
    ) -> None:
        self._bridge = Bridge(custody, type(self).__name__)
        if not isinstance(store, CallStore):
            problem = f"must be a CallStore, which three callables make, not {type(store).__name__}"
            raise InvalidInput(field="store", problem=problem)
        self._custody = custody
        self._place: Place[R] = Place(
            store=store,
            space=check_name(space, "space"),
            actor=check_name(actor, "actor"),
            show=show or (lambda found: cast(R, found)),
            on_pending=on_pending,
        )
        self._owned: AsyncExitStack | None = None
        self._owns = False

    @property
    def custody(self) -> C:
        """The coordinator underneath, for all that is not here, such as `verify` and `history`."""
        return self._custody

    @property
    def space(self) -> str:
        """Where everything is remembered, searched and deleted."""
        return self._place.space

    def within(self, space: str) -> Self:
        """Return the same memory in another space, such as one user's; closing it closes nothing."""
        return self._view(self._place.within(space))

    def acting_as(self, actor: str, receipt_id: str | None = None) -> Self:
        """Return the same memory speaking for somebody else; closing it closes nothing."""
        return self._view(self._place.speaking(actor, receipt_id))

    def _view(self, place: Place[R]) -> Self:
        view = copy.copy(self)
        view._place, view._owned, view._owns = place, None, False
        return view


class Wrapped(Closing, _Face[R, Coordinator]):
    """A guarded memory for code that does not await; `wrap` makes one."""

    def add(
        self,
        text: str,
        metadata: Mapping[str, Json] | None = None,
        *,
        supersedes: Given | None = None,
        idempotency_key: str | None = None,
    ) -> Id | list[Id]:
        """Remember a text: in the store first, then in the ledger.

        Args:
            text: what is remembered and found.
            metadata: JSON that comes back with it.
            supersedes: the id of what it replaces, or its ids; that is removed.
            idempotency_key: the same key and text is remembered once, whoever sends it.

        Returns:
            the id that the store gave, or a list of several.

        Raises:
            InvalidInput: an argument; nothing was called.
            StoreWriteFailed: `add` failed; nothing is remembered, and whether something is left is said.
        """
        return self._run(self._place.adding(text, metadata, supersedes, idempotency_key))

    def search(self, query: str, k: int = 10, *, keep: Keep | None = None) -> list[R]:
        """Return up to `k` memories of this space that are believed, best first, each once.

        Args:
            query: what the store searches for.
            k: at most so many.
            keep: leaves out facts for which it returns False.

        Raises:
            InvalidStore: the search gave something that is no list of results; says what to do.
            StoreError: it failed.
        """
        return [self._place.show(found) for found in self._run(self._place.searching(query, k, keep))]

    def recall(self, query: str, **options: Unpack[RecallOptions]) -> RecallResult:
        """Search as `AsyncCoordinator.recall` does, in this space unless `spaces` names others."""
        return self._run(self._place.recalling(query, options))

    def delete(self, id: Given) -> bool:
        """Forget what stands under an id, or several, and what it replaced: in the ledger, then in the store.

        Returns:
            True once the store was seen not to have it. False while that is pending, and where nothing of
            this space is known under an id: for that one nothing was done.

        Raises:
            OnHold: it is kept; nothing of it was touched.
        """
        return self._run(self._place.deleting(id))

    def repair(self, *, dry_run: bool = False, reason: str | None = None) -> RepairResult:
        """Finish what is pending and, where `entries` lists the store, remove what nobody recorded."""
        return self._run(self._place.repairing(dry_run, reason))

    def _run(self, work: Work[T]) -> T:
        return self._bridge.run(work, instead="AsyncWrapped, which `await awrap(...)` makes")

    def close(self) -> None:
        """Close what `wrap` opened; a coordinator that was given stays open."""
        if self._owns:
            self._custody.close()


class AsyncWrapped(AsyncClosing, _Face[R, Coordinator | AsyncCoordinator]):
    """A guarded memory for code that awaits; `await awrap(...)` makes one."""

    async def add(
        self,
        text: str,
        metadata: Mapping[str, Json] | None = None,
        *,
        supersedes: Given | None = None,
        idempotency_key: str | None = None,
    ) -> Id | list[Id]:
        """Remember a text, as `Wrapped.add` does."""
        return await self._bridge.arun(self._place.adding(text, metadata, supersedes, idempotency_key))

    async def search(self, query: str, k: int = 10, *, keep: Keep | None = None) -> list[R]:
        """Return memories that are believed, as `Wrapped.search` does."""
        found = await self._bridge.arun(self._place.searching(query, k, keep))
        return [self._place.show(one) for one in found]

    async def recall(self, query: str, **options: Unpack[RecallOptions]) -> RecallResult:
        """Recall as `AsyncCoordinator.recall` does, in this space unless `spaces` names others."""
        return await self._bridge.arun(self._place.recalling(query, options))

    async def delete(self, id: Given) -> bool:
        """Forget what stands under an id, as `Wrapped.delete` does."""
        return await self._bridge.arun(self._place.deleting(id))

    async def repair(self, *, dry_run: bool = False, reason: str | None = None) -> RepairResult:
        """Finish what is pending, as `Wrapped.repair` does."""
        return await self._bridge.arun(self._place.repairing(dry_run, reason))

    async def aclose(self) -> None:
        """Close what `awrap` opened; a coordinator that was given stays open."""
        if self._owned is not None:
            await self._owned.aclose()


@overload
def wrap(
    *,
    search: Callable[..., Any],
    add: Callable[..., Any],
    delete: Callable[..., Any],
    show: None = None,
    **options: Unpack[WrapOptions],
) -> Wrapped[Found]: ...


@overload
def wrap(
    *,
    search: Callable[..., Any],
    add: Callable[..., Any],
    delete: Callable[..., Any],
    show: Callable[[Found], R],
    **options: Unpack[WrapOptions],
) -> Wrapped[R]: ...


def wrap(
    *,
    search: Callable[..., Any],
    add: Callable[..., Any],
    delete: Callable[..., Any],
    show: Callable[[Found], Any] | None = None,
    **options: Unpack[WrapOptions],
) -> Wrapped[Any]:
    """Put a ledger under whatever three callables reach, and return it guarded.

    It opens the ledger and a coordinator, and `close` closes them. The callables may be plain or
    asynchronous; asynchronous ones run in the coordinator's own loop, so their client must be of no other.

    Args:
        search: `(query, k)` gives results, nearest first: `Found`, a tuple (id, text, score, metadata) or the
            beginning of one, a mapping or an object with these names. With a parameter `spaces` it is given
            the spaces that are asked for.
        add: `(text, metadata)` stores a text and gives its id, or the ids of its parts: texts, ints or UUIDs.
        delete: `(id)` deletes it; that it is gone already may raise `LookupError` or a 404.
        show: makes what the guarded search gives of a `Found`, in the form that callers know.
        options: see `WrapOptions`.

    Raises:
        InvalidInput: an argument; no ledger was made.
        LedgerError: the ledger cannot be opened.
        InsideEventLoop: called from inside a running event loop: `await awrap(...)`.
    """
    refuse_inside_loop("wrap", "`await awrap(...)`")
    store, face, url, more = _sorted(search, add, delete, options)
    custody = Coordinator(url, stores=[store], **more)
    try:
        memory: Wrapped[Any] = Wrapped(custody, store, show=show, **face)
    except BaseException:
        custody.close()
        raise
    memory._owns = True
    return memory


@overload
async def awrap(
    *,
    search: Callable[..., Any],
    add: Callable[..., Any],
    delete: Callable[..., Any],
    show: None = None,
    **options: Unpack[WrapOptions],
) -> AsyncWrapped[Found]: ...


@overload
async def awrap(
    *,
    search: Callable[..., Any],
    add: Callable[..., Any],
    delete: Callable[..., Any],
    show: Callable[[Found], R],
    **options: Unpack[WrapOptions],
) -> AsyncWrapped[R]: ...


async def awrap(
    *,
    search: Callable[..., Any],
    add: Callable[..., Any],
    delete: Callable[..., Any],
    show: Callable[[Found], Any] | None = None,
    **options: Unpack[WrapOptions],
) -> AsyncWrapped[Any]:
    """Do what `wrap` does for code with a running loop; asynchronous callables run in that loop."""
    store, face, url, more = _sorted(search, add, delete, options)
    opening = {name: more.pop(name) for name in ("create", "forget_key") if name in more}
    async with AsyncExitStack() as stack:
        ledger = await Ledger.open(url, runtime=more.get("runtime"), **opening)
        await stack.enter_async_context(ledger)
        custody = AsyncCoordinator(ledger, stores=[store], **more)
        await stack.enter_async_context(custody)
        memory: AsyncWrapped[Any] = AsyncWrapped(custody, store, show=show, **face)
        memory._owned = stack.pop_all()
    return memory


def _sorted(
    search: object, add: object, delete: object, options: Mapping[str, Any]
) -> tuple[CallStore, dict[str, Any], str, dict[str, Any]]:
    """Return the store, the arguments of the face, the ledger's URL and the options of the coordinator."""
    more: dict[str, Any] = {"name": "memories", "create": True, **options}
    calls: dict[str, Any] = {"search": search, "add": add, "delete": delete}
    store = CallStore(**calls, **{key: more.pop(key) for key in _OF_STORE if key in more})
    face = {key: more.pop(key) for key in _OF_FACE if key in more}
    for key in ("space", "actor"):
        check_name(face.get(key, key), key)
    check_options(name for name in more if name not in ("ledger", "create"))
    return store, face, more.pop("ledger", _LEDGER), more


__all__ = [
    "AsyncWrapped",
    "CallStore",
    "Found",
    "Id",
    "RecallOptions",
    "WrapOptions",
    "Wrapped",
    "awrap",
    "wrap",
]
