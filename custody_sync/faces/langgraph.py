"""LangGraph's `BaseStore` with custody: the line that makes the store changes, and nothing after it.

Every item is a fact. What was deleted, replaced, retracted or has expired is not served, even while
the store underneath still has it.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Self, TypeVar

from custody_sync.adapters._langgraph_backend import backend_of
from custody_sync.adapters._shared import vendor
from custody_sync.adapters.langgraph import LangGraphStore
from custody_sync.canonical import check_name, check_optional
from custody_sync.coordinator import AsyncCoordinator
from custody_sync.errors import InsideEventLoop, InvalidInput
from custody_sync.faces._blocking import blocking
from custody_sync.faces._bridge import Bridge
from custody_sync.faces._closing import AsyncClosing, Closing
from custody_sync.faces._langgraph_layout import Layout, SpaceOf, SpacesBelow
from custody_sync.faces._langgraph_questions import WHOLE, Question, Questions, check_lifetime
from custody_sync.faces._langgraph_reading import Found, Get, Names, Reading, Search
from custody_sync.faces._langgraph_writing import Pending, Put, Speaker, Writing
from custody_sync.faces._options import check_options
from custody_sync.ledger import Ledger
from custody_sync.ports import Store
from custody_sync.sync import Coordinator

if TYPE_CHECKING:
    from langgraph.store.base import BaseStore, Item, Op, Result, SearchItem
else:
    base = vendor("langgraph.store.base", feature="CustodyStore", extra="langgraph")
    BaseStore, Item, SearchItem = base.BaseStore, base.Item, base.SearchItem

T = TypeVar("T")

ROOT = "custody"
"""The first label of the namespaces in which `over` keeps its rows; what was there before has others."""
_AT_ONCE = 16


class CustodyStore(Closing, AsyncClosing, BaseStore):
    """A LangGraph store whose every item is a fact of a ledger.

    `over` makes one of a store and a ledger's URL; the constructor takes a coordinator that is there.
    With a `Coordinator` both `get` and `aget` work, and `get` blocks a running event loop as LangGraph's
    own stores do. With an `AsyncCoordinator` the loop in which this is made uses `aget` and its like, and
    `get` works in every other thread.

    Args:
        custody: the coordinator; it stays open when this is closed.
        actor: who says what is put and deleted.
        store: which of the coordinator's stores is searched; the first that can be by default.
        space: gives the space of a namespace; by default its labels joined by `/`, so that every
            namespace has a space of its own.
        below: with `space`: gives all spaces that namespaces with a given beginning have, so that a
            listing need not read the whole ledger.
        fields: the paths that are indexed of a value, as in an index configuration; None where the store
            has no index: a query then has no effect, nor has `index`.
        default_ttl: minutes that an item lives unless its put says otherwise.
        on_pending: is given every result with a removal that is not verified yet.

    Raises:
        InvalidInput: an argument.
    """

    supports_ttl = True

    def __init__(
        self,
        custody: Coordinator | AsyncCoordinator,
        *,
        actor: str = "app",
        store: str | None = None,
        space: SpaceOf | None = None,
        below: SpacesBelow | None = None,
        fields: Sequence[str] | None = (WHOLE,),
        default_ttl: float | None = None,
        on_pending: Pending | None = None,
    ) -> None:
        self._bridge = Bridge(custody, "CustodyStore")
        self._speaker = Speaker(actor=check_name(actor, "actor"))
        layout = Layout(space, below)
        self._questions = Questions(layout, fields)
        self._reading = Reading(layout, store=check_optional(store, "store"), indexed=fields is not None)
        self._writing = Writing(self._reading, on_pending)
        if default_ttl is not None:
            check_lifetime(default_ttl, "default_ttl")
        # Reading extends no lifetime: it would take a write to every store for each read.
        self.ttl_config = {"default_ttl": default_ttl, "refresh_on_read": False, "omit_expired": True}
        self._home = _running_loop() if isinstance(custody, AsyncCoordinator) else None
        self._owns = False
        self._opened: AsyncExitStack | None = None

    # --- made of a store ----------------------------------------------------------------------

    @classmethod
    def over(
        cls,
        original: BaseStore | Store,
        ledger: str = "sqlite:///custody.db",
        *,
        create: bool = True,
        actor: str = "app",
        space: SpaceOf | None = None,
        below: SpacesBelow | None = None,
        on_pending: Pending | None = None,
        **options: Any,
    ) -> Self:
        """Put a ledger under a store: `store = CustodyStore.over(InMemoryStore(), "sqlite:///custody.db")`.

        It opens the ledger and a coordinator, and closes them; the store stays the caller's. An index and
        a default lifetime that the store was made with stay in force.

        Args:
            original: a LangGraph store, or a store of custody-sync such as `PgVectorStore`.
            ledger: its URL.
            create: create the ledger if it is missing.
            actor: who says what is put and deleted.
            space: as for the constructor.
            below: as for the constructor.
            on_pending: as for the constructor.
            options: of the `Coordinator`.

        Raises:
            InvalidInput: `original` is no store, or one that lives in an event loop: `await aover(...)`; or
                the coordinator has no such option.
        """
        check_options(options)
        taken = _Taken(original)
        if taken.has_loop:
            problem = "lives in an event loop; use `await CustodyStore.aover(...)` in that loop"
            raise InvalidInput(field="original", problem=problem)
        custody = blocking(lambda: Coordinator(ledger, create=create, stores=[taken.adapter], **options))
        try:
            return cls._made(custody, taken, actor, space, below, on_pending)
        except BaseException:
            blocking(custody.close)
            raise

    @classmethod
    async def aover(
        cls,
        original: BaseStore | Store,
        ledger: str = "sqlite:///custody.db",
        *,
        create: bool = True,
        actor: str = "app",
        space: SpaceOf | None = None,
        below: SpacesBelow | None = None,
        on_pending: Pending | None = None,
        forget_key: bytes | None = None,
        **options: Any,
    ) -> Self:
        """Do what `over` does for code with a running loop, and for a store that lives in it.

        There `aget`, `aput` and so on are awaited, and `aclose`; other threads may call `get` and `put`.
        """
        check_options(options)
        taken = _Taken(original)
        async with AsyncExitStack() as stack:
            opened = await Ledger.open(
                ledger, create=create, runtime=options.get("runtime"), forget_key=forget_key
            )
            await stack.enter_async_context(opened)
            custody = AsyncCoordinator(opened, stores=[taken.adapter], **options)
            await stack.enter_async_context(custody)
            face = cls._made(custody, taken, actor, space, below, on_pending)
            face._opened = stack.pop_all()
        return face

    @classmethod
    def _made(
        cls,
        custody: Coordinator | AsyncCoordinator,
        taken: _Taken,
        actor: str,
        space: SpaceOf | None,
        below: SpacesBelow | None,
        on_pending: Pending | None,
    ) -> Self:
        face = cls(
            custody,
            actor=actor,
            space=space,
            below=below,
            fields=taken.fields,
            default_ttl=taken.default_ttl,
            on_pending=on_pending,
        )
        face._owns = True
        return face

    @property
    def custody(self) -> Coordinator | AsyncCoordinator:
        """The coordinator underneath: for `repair`, `verify`, `history`, and facts that are no items."""
        return self._bridge.custody

    def acting_as(self, actor: str, receipt_id: str | None = None) -> Self:
        """Return the same store speaking for somebody else; closing it closes nothing."""
        view = copy.copy(self)
        view._speaker = Speaker(
            actor=check_name(actor, "actor"), receipt_id=check_optional(receipt_id, "receipt_id")
        )
        view._owns, view._opened = False, None
        return view

    # --- LangGraph's own surface --------------------------------------------------------------

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry out a batch: all that is asked first, as things stood before, then the last put of each item.

        Everything is checked before anything is done. The puts of a batch are separate writes: where one
        fails the others stand, and its error is raised when all have ended.
        """
        work = self._work(ops)
        if self._home is not None and self._home.is_running() and _running_loop() is not self._home:
            # A synchronous node of an asynchronous graph runs in a thread beside the loop.
            return asyncio.run_coroutine_threadsafe(self._bridge.arun(work), self._home).result()
        instead = "aget, aput, asearch, adelete, alist_namespaces or abatch"
        return blocking(lambda: self._bridge.run(work, instead=instead))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry out a batch, as `batch` does."""
        return await self._bridge.arun(self._work(ops))

    def _work(self, ops: Iterable[Op]) -> Callable[[AsyncCoordinator], Coroutine[Any, Any, list[Result]]]:
        questions = self._questions.read(ops)

        async def work(custody: AsyncCoordinator) -> list[Result]:
            slots = asyncio.Semaphore(_AT_ONCE)
            puts = {question.address: question for question in questions if isinstance(question, Put)}
            answers = await together(slots, [self._answer(custody, question) for question in questions])
            await together(slots, [self._writing.put(custody, self._speaker, put) for put in puts.values()])
            return answers

        return work

    async def _answer(self, custody: AsyncCoordinator, question: Question) -> Result:
        if isinstance(question, Get):
            found = await self._reading.get(custody, question)
            return None if found is None else _item(found)
        if isinstance(question, Search):
            return [_search_item(found) for found in await self._reading.search(custody, question)]
        return await self._reading.names(custody, question) if isinstance(question, Names) else None

    # --- its end ------------------------------------------------------------------------------

    def close(self) -> None:
        """Close what `over` opened; the store underneath and a coordinator that was given stay open."""
        if isinstance(self.custody, AsyncCoordinator):
            raise InsideEventLoop(used="CustodyStore.close", instead="aclose")
        if self._owns:
            blocking(self.custody.close)

    async def aclose(self) -> None:
        """Close what `aover` or `over` opened."""
        if self._opened is not None:
            await self._opened.aclose()
        elif self._owns and isinstance(self.custody, Coordinator):
            await asyncio.to_thread(self.custody.close)


class _Taken:
    """A store that a face is put over: its adapter, and how it was made."""

    def __init__(self, original: object) -> None:
        self.adapter: Store
        self.has_loop = False
        self.fields: list[str] | None = [WHOLE]
        self.default_ttl: float | None = None
        if isinstance(original, CustodyStore):
            raise InvalidInput(field="original", problem="is a CustodyStore already")
        if isinstance(original, BaseStore):
            self.adapter = LangGraphStore(original, namespace=(ROOT, "{space}"))
            self.has_loop = backend_of(original, self.adapter.name).home is not None
            self.fields = _fields_of(original)
            self.default_ttl = (original.ttl_config or {}).get("default_ttl")
        elif isinstance(original, Store):
            self.adapter = original
        else:
            problem = f"must be a LangGraph store or a store of custody-sync, not {type(original).__name__}"
            raise InvalidInput(field="original", problem=problem)


def _fields_of(original: BaseStore) -> list[str] | None:
    """Return what a store indexes by default; None where it has no index."""
    config: Any = getattr(original, "index_config", None)
    if not config:
        return None
    return list(config.get("fields") or config.get("text_fields") or [WHOLE])


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def together(slots: asyncio.Semaphore, work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Run work side by side, so much at once; wait for all of it, then raise the first error."""

    async def run(one: Coroutine[Any, Any, T]) -> T:
        async with slots:
            return await one

    ended = await asyncio.gather(*map(run, work), return_exceptions=True)
    done: list[T] = []
    for answer in ended:
        if isinstance(answer, BaseException):
            raise answer
        done.append(answer)
    return done


def _item(found: Found) -> Item:
    return Item(
        value=copy.deepcopy(found.kept.value),
        key=found.kept.key,
        namespace=found.kept.namespace,
        created_at=found.created_at,
        updated_at=found.updated_at,
    )


def _search_item(found: Found) -> SearchItem:
    return SearchItem(
        namespace=found.kept.namespace,
        key=found.kept.key,
        value=copy.deepcopy(found.kept.value),
        created_at=found.created_at,
        updated_at=found.updated_at,
        score=found.score,
    )


__all__ = ["ROOT", "CustodyStore"]
