"""A store as the core reaches it: behind a limiter and a deadline, its errors stripped of text.

What a vendor's exception says may quote the memory it failed on, so only type and status leave
this module.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal, TypeVar
from weakref import WeakKeyDictionary

from custody_sync.canonical import check_text
from custody_sync.errors import (
    CustodyError,
    InvalidInput,
    InvalidStore,
    NoProof,
    StoreError,
    StoreRefused,
    StoreThrottled,
    StoreUnavailable,
    Terminal,
    TextTooLong,
    Transient,
)
from custody_sync.errors.base import throw
from custody_sync.faultpoints import FaultPoint
from custody_sync.model import ERASED_ID, Capability, Entry, Fact, Hit, Label, Level, Limits
from custody_sync.ports import capabilities
from custody_sync.runtime import Runtime
from custody_sync.shown import Spoiled, read_entry, read_page, read_texts
from custody_sync.throttling import Budget, seconds_of

T = TypeVar("T")
Superseded = Literal["remove", "keep"]

PAGE_SECONDS = 15.0
"""A page of a listing ends here even if it is not full, so that a slow store costs no sweep its lease."""
_CODE = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,79}( [A-Z0-9_]{1,24})?", re.ASCII)
"""All that an adapter may say of a failure: a type or a code, and a status; a sentence may quote."""
_NOT_A_STORES = (KeyboardInterrupt, SystemExit, GeneratorExit)
"""Raised by the interpreter, through a store's code, and never an answer of the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """Seconds that one call to a store may take, and how many run at once.

    A call that is throttled spends them waiting as well.
    """

    put: float = 30.0
    delete: float = 30.0
    question: float = 10.0
    listing: float = 40.0
    """For one page of a listing; a sweep's lease, 60 s, has to outlast it."""
    concurrency: int = 16


class Gate:
    """One configured store.

    Args:
        store: the adapter.
        runtime: clock and fault points.
        deadlines: per call.
        keeps: whether entries of superseded facts stay in this store.
    """

    def __init__(self, store: Any, runtime: Runtime, deadlines: Deadlines, keeps: bool) -> None:
        self.store = store
        self.name: str = store.name
        self.keeps = keeps
        self.supports = capabilities(store)
        self.limits: Limits = getattr(store, "limits", None) or Limits()
        self._runtime = runtime
        self._deadlines = deadlines
        self._limiters: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    @property
    def _limiter(self) -> asyncio.Semaphore:
        """The limiter of the running loop; one of another loop would raise as soon as somebody waits."""
        limiter = self._limiters.get(loop := asyncio.get_running_loop())
        if limiter is None:
            limiter = self._limiters[loop] = asyncio.Semaphore(self._deadlines.concurrency)
        return limiter

    def can(self, capability: Capability) -> bool:
        """Tell whether the store offers a capability at all."""
        return self.supports[capability].level is not Level.NONE

    def check_text(self, text: str) -> None:
        """Refuse a text that this store would refuse, before any store is touched."""
        if self.limits.text_chars is not None and len(text) > self.limits.text_chars:
            raise TextTooLong(
                store=self.name, size=len(text), unit="characters", limit=self.limits.text_chars
            )
        if self.limits.text_bytes is not None and (size := len(text.encode())) > self.limits.text_bytes:
            raise TextTooLong(store=self.name, size=size, unit="bytes", limit=self.limits.text_bytes)

    def scope_of(self, fact: Fact) -> str | None:
        """Return where the store keeps a fact, where it tells facts apart by scope.

        Raises:
            InvalidInput, StoreRefused: it cannot be told; the store was not called.
        """
        named = getattr(self.store, "scope_of", None)
        if named is None:
            return None
        try:
            scope = named(fact)
        except _NOT_A_STORES:
            raise
        except InvalidInput as error:
            error.__cause__ = None
            throw(error)
        except BaseException as error:  # a caller's template or callable may raise anything
            problem = _code(error)
        else:
            if scope is None or isinstance(scope, str):
                return scope
            problem = f"it is {type(scope).__name__}, not text"
        raise StoreRefused(store=self.name, operation="scope_of", cause=problem)

    async def put(self, fact: Fact, label: Callable[[datetime], Label]) -> tuple[Label, tuple[str, ...]]:
        """Put a private copy of a fact; the label is stamped once the limiter has let it through.

        Raises:
            InvalidInput: the adapter refuses the fact by name; it holds nothing of it.
            InvalidStore: the store cannot be used as it was set up; it holds nothing of it.
            StoreRefused: the store refuses it; it holds nothing of it.
            StoreThrottled: it had no time for it before the deadline; it holds nothing of it.
            StoreUnavailable: it may or may not have arrived.
        """
        stamps: list[Label] = []

        def stamp() -> None:
            # Anew for each attempt: a put that waited out a refusal begins only now.
            stamps.append(label(self._runtime.clock.now()))
            self._runtime.reach(FaultPoint.BEFORE_PUT)

        plain = fact.value is None or isinstance(fact.value, str | int | float)

        async def call() -> tuple[str, ...]:
            private = fact if plain else replace(fact, value=copy.deepcopy(fact.value))
            answer = await self.store.put(private, stamps[-1])
            return () if isinstance(answer, str | bytes) else tuple(dict.fromkeys(answer or ()))

        ids = await self._ask("put", self._deadlines.put, call, before=stamp)
        self._check_ids(ids)
        self._runtime.reach(FaultPoint.AFTER_PUT)
        return stamps[-1], ids

    def _check_ids(self, ids: tuple[str, ...]) -> None:
        """Refuse ids that cannot be recorded: then the put is no confirmation."""
        problem = "" if ids and all(ids) else "it returned no external id"
        for external_id in ids:
            try:
                reserved = check_text(external_id, "external_id").startswith(ERASED_ID)
            except InvalidInput:
                reserved = True
            problem = "it returned an id that cannot be recorded" if reserved else problem
        if problem:
            # It holds something, and only `find` can say what.
            raise StoreUnavailable(store=self.name, operation="put", cause=problem)

    async def put_many(self, facts: Sequence[Fact], labels: Sequence[Label]) -> list[tuple[str, ...]]:
        """Put many facts with one call; what is raised says nothing about a single one of them.

        Raises:
            StoreError: any of them may or may not have arrived, where it is not StoreRefused or throttled.
        """

        async def call() -> list[tuple[str, ...]]:
            private = [replace(fact, value=copy.deepcopy(fact.value)) for fact in facts]
            answers = await self.store.put_many(list(zip(private, labels, strict=True)))
            return [tuple(dict.fromkeys(ids or ())) for ids in answers]

        answers = await self._ask("put_many", self._deadlines.put, call)
        if len(answers) != len(facts):
            raise StoreUnavailable(store=self.name, operation="put_many", cause="it lost count")
        for ids in answers:
            self._check_ids(ids)
        return answers

    async def relabel(self, entry: Entry, label: Label) -> None:
        """Change an entry's label and leave its text alone."""
        await self._ask("relabel", self._deadlines.put, lambda: self.store.relabel(entry, label))

    async def delete(self, entry: Entry) -> None:
        """Delete one entry."""
        await self._ask(
            "delete",
            self._deadlines.delete,
            lambda: self.store.delete(entry),
            before=lambda: self._runtime.reach(FaultPoint.BEFORE_DELETE),
        )
        self._runtime.reach(FaultPoint.AFTER_DELETE)

    async def is_gone(self, entry: Entry) -> bool:
        """Ask the store's own search whether an entry is gone."""
        gone = await self._ask(
            "verify_deleted", self._deadlines.question, lambda: self.store.verify_deleted(entry)
        )
        self._runtime.reach(FaultPoint.AFTER_QUESTION)
        return gone is True

    async def find(self, fact_id: str) -> list[Entry]:
        """Return every entry of a fact.

        Raises:
            StoreError: it did not answer, or showed something of this fact that cannot be used.
        """

        async def call() -> list[Any]:
            return list(await self.store.find(fact_id))

        rows = await self._ask("find", self._deadlines.question, call)
        found: list[Entry] = []
        for row in rows:
            if isinstance(row, Entry) and row.fact_id != fact_id:
                continue
            read = read_entry(row, self.name)
            if isinstance(read, Spoiled):
                raise StoreUnavailable(store=self.name, operation="find", cause=f"a row: {read.problem}")
            found.append(read)
        return found

    async def search(self, query: str, k: int, spaces: Sequence[str] | None = None) -> list[Hit]:
        """Return the store's own best hits."""

        async def call() -> list[Hit]:
            return list(await self.store.search(query, k, spaces))

        return await self._ask("search", self._deadlines.question, call)

    async def pages(self, size: int, *, texts: bool = False) -> AsyncGenerator[list[Entry | Spoiled]]:
        """Yield what the store lists, in pages; what came before an error is yielded before it is raised.

        With `texts` what has no label comes with its text, where the store shows it, and is checked as
        strictly as what has one.
        """
        rows: AsyncIterator[Any] | None = None
        page: list[Any] = []
        listed = getattr(self.store, "list_with_text", None) if texts else None
        listed, read = listed or self.store.list_entries, read_texts if texts else read_page

        async def fill() -> bool:
            nonlocal rows
            now = asyncio.get_running_loop().time
            until = now() + PAGE_SECONDS
            rows = aiter(listed()) if rows is None else rows
            async for row in rows:
                page.append(row)
                if len(page) >= size or now() >= until:
                    return True
            return False

        more = True
        try:
            while more:
                page = []
                try:
                    more = await self._call("list", self._deadlines.listing, fill)
                except StoreError:
                    if page:
                        yield read(page, self.name)
                    raise
                if page:
                    yield read(page, self.name)
        finally:
            if isinstance(rows, AsyncGenerator):
                with contextlib.suppress(StoreError):
                    await self._call("list", self._deadlines.question, rows.aclose)

    async def after_forget(self, entries: Sequence[Entry]) -> tuple[str, ...]:
        """Let the store clean up and say what a deletion leaves behind."""
        clean = getattr(self.store, "after_forget", None)
        if clean is None:
            return ()

        async def call() -> tuple[str, ...]:
            return tuple(str(note) for note in await clean(entries))

        return await self._ask("after_forget", self._deadlines.delete, call)

    async def _ask(
        self,
        operation: str,
        seconds: float,
        call: Callable[[], Awaitable[T]],
        *,
        before: Callable[[], None] = lambda: None,
    ) -> T:
        """Call the store through the limiter; turned away, wait as it says while the deadline lasts.

        The slot is given back for the wait. Whoever takes it meanwhile may ask what a vendor counts
        separately, a delete or a lookup, and is told by the store itself where not; with the slot
        kept, sixteen waiting puts would hold up every question to it for half a minute.
        """
        budget = Budget(seconds)
        while True:
            try:
                async with self._limiter:
                    before()
                    began = asyncio.get_running_loop().time()
                    try:
                        return await self._call(operation, budget.left, call)
                    finally:
                        budget.spend(asyncio.get_running_loop().time() - began)
            except StoreThrottled as throttled:
                wait = budget.wait_after(throttled)
                if wait is None:
                    raise
            await self._runtime.sleep(wait)

    async def _call(self, operation: str, seconds: float, call: Callable[[], Awaitable[T]]) -> T:
        """Call the store; whatever it raises becomes one of our errors, without its text.

        That includes what is no `Exception`: a panic in a vendor's Rust code, or a cancellation that
        nobody asked for.
        """
        try:
            async with asyncio.timeout(seconds):
                return await call()
        except _NOT_A_STORES:
            raise
        except asyncio.CancelledError as error:
            if (task := asyncio.current_task()) is None or task.cancelling():
                raise
            problem = self._ours(operation, error)
        except BaseException as error:
            problem = self._ours(operation, error)
        # Outside the handler, so that the vendor's exception does not travel along as the context.
        raise problem

    def _ours(self, operation: str, error: BaseException) -> CustodyError:
        if operation == "put" and isinstance(error, InvalidInput | InvalidStore):
            error.__cause__ = error.__context__ = None
            return error.with_traceback(None)
        if operation == "list" and isinstance(error, InvalidStore):
            # Nothing was sent, and only the adapter's own words say what to do.
            return StoreRefused(store=self.name, operation=operation, cause=str(error.fields["problem"]))
        if isinstance(error, StoreThrottled):
            wait = seconds_of(error)
            return StoreThrottled(store=self.name, operation=operation, cause=_code(error), retry_after=wait)
        kind: type[StoreError] = StoreUnavailable
        if isinstance(error, NoProof):
            kind = NoProof
        elif isinstance(error, Terminal):
            kind = StoreRefused
        elif isinstance(error, StoreError) and not isinstance(error, Transient):
            kind = StoreError
        return kind(store=self.name, operation=operation, cause=_code(error))


def _code(error: BaseException) -> str:
    """Return what may be kept of an error that was raised in a store's code."""
    said = describe(error)
    return said if _CODE.fullmatch(said) else type(error).__name__


def describe(error: BaseException) -> str:
    """Return an error's type and, where it has one, its numeric status; never its text."""
    if isinstance(error, StoreError):
        return str(error.fields.get("cause", type(error).__name__))
    if isinstance(error, CustodyError):
        return error.code
    for name in ("status_code", "status", "code"):
        status = None
        with contextlib.suppress(Exception):  # a vendor's property may compute it, and fail
            status = getattr(error, name, None)
        if isinstance(status, int) and not isinstance(status, bool):
            return f"{type(error).__name__} {status}"
    return type(error).__name__
