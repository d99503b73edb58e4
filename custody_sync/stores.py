"""A store as the core reaches it: behind a limiter and a deadline, its errors stripped of text.

What a vendor's exception says may quote the memory it failed on, so only type and status leave
this module.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any, Literal, TypeVar

from custody_sync.calling import NOT_A_STORES, Caller, Deadlines, code_of, describe
from custody_sync.canonical import check_text
from custody_sync.errors import (
    InvalidInput,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    TextTooLong,
)
from custody_sync.errors.base import throw
from custody_sync.faultpoints import FaultPoint
from custody_sync.model import ERASED_ID, Capability, Entry, Fact, Hit, Label, Level, Limits
from custody_sync.ports import Listed, capabilities, lists_pages
from custody_sync.runtime import Runtime
from custody_sync.shown import Spoiled, read_entry, read_page, read_texts
from custody_sync.signals.operations import store_call
from custody_sync.throttling import Pace

T = TypeVar("T")
Superseded = Literal["remove", "keep"]

PAGE_SECONDS = 15.0
"""A page of a listing ends here even if it is not full, so that a slow store costs no sweep its lease."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What a store showed on a page of its listing, and where that ends, if it says so."""

    rows: list[Entry | Spoiled]
    cursor: str | None = None


class Gate(Caller):
    """One configured store.

    Args:
        store: the adapter.
        runtime: clock and fault points.
        deadlines: per call.
        keeps: whether entries of superseded facts stay in this store.
        pace: how many calls at once and in a second.
    """

    def __init__(
        self, store: Any, runtime: Runtime, deadlines: Deadlines, keeps: bool, pace: Pace | None = None
    ) -> None:
        super().__init__(store.name, runtime, deadlines, pace)
        self.store = store
        self.keeps = keeps
        self.supports = capabilities(store)
        self.limits: Limits = getattr(store, "limits", None) or Limits()

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
        except NOT_A_STORES:
            raise
        except InvalidInput as error:
            error.__cause__ = None
            throw(error)
        except BaseException as error:  # a caller's template or callable may raise anything
            problem = code_of(error)
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

        ids = await self._ask("put", self._deadlines.put, call, before=stamp, fact_id=fact.fact_id)
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

    async def put_many(
        self, facts: Sequence[Fact], labels: Callable[[datetime], Sequence[Label]]
    ) -> tuple[Sequence[Label], list[tuple[str, ...]]]:
        """Put private copies of many facts with one call; what is raised says nothing of a single one.

        Raises:
            CustodyError: as `put` does.
        """
        stamps: list[Sequence[Label]] = []

        async def call() -> list[tuple[str, ...]]:
            private = [replace(fact, value=copy.deepcopy(fact.value)) for fact in facts]
            answers = await self.store.put_many(list(zip(private, stamps[-1], strict=True)))
            return [() if isinstance(ids, str) else tuple(dict.fromkeys(ids or ())) for ids in answers]

        answers = await self._ask(
            "put_many",
            self._deadlines.put,
            call,
            before=lambda: stamps.append(labels(self._runtime.clock.now())),
            count=len(facts),
        )
        if len(answers) != len(facts):
            raise StoreUnavailable(store=self.name, operation="put_many", cause="it lost count")
        for ids in answers:
            self._check_ids(ids)
        return stamps[-1], answers

    async def relabel(self, entry: Entry, label: Label) -> None:
        """Change an entry's label and leave its text alone."""
        await self._ask(
            "relabel",
            self._deadlines.put,
            lambda: self.store.relabel(entry, label),
            fact_id=label.fact_id,
        )

    async def delete(self, entry: Entry) -> None:
        """Delete one entry."""
        await self._ask(
            "delete",
            self._deadlines.delete,
            lambda: self.store.delete(entry),
            before=lambda: self._runtime.reach(FaultPoint.BEFORE_DELETE),
            fact_id=entry.fact_id,
        )
        self._runtime.reach(FaultPoint.AFTER_DELETE)

    async def is_gone(self, entry: Entry) -> bool:
        """Ask the store's own search whether an entry is gone."""
        gone = await self._ask(
            "verify_deleted",
            self._deadlines.question,
            lambda: self.store.verify_deleted(entry),
            fact_id=entry.fact_id,
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

        rows = await self._ask("find", self._deadlines.question, call, fact_id=fact_id)
        found: list[Entry] = []
        for row in rows:
            if isinstance(row, Entry) and row.fact_id != fact_id:
                continue
            read = read_entry(row, self.name)
            if isinstance(read, Spoiled):
                raise StoreUnavailable(store=self.name, operation="find", cause=f"a row: {read.problem}")
            found.append(read)
        return found

    async def holds(self, entry: Entry) -> bool | None:
        """Ask by fact id and by the entry; only where all that can be asked miss it, it is not there.

        Returns:
            None where the store cannot be asked at all.

        Raises:
            StoreError: it did not answer.
        """
        if self.can(Capability.FIND) and entry.fact_id is not None:
            found = await self.find(entry.fact_id)
            if any(shown.external_id == entry.external_id for shown in found):
                return True
        if self.can(Capability.VERIFY_DELETED):
            return not await self.is_gone(entry)
        return False if self.can(Capability.FIND) else None

    async def search(self, query: str, k: int, spaces: Sequence[str] | None = None) -> list[Hit]:
        """Return the store's own best hits, as many as were asked for at most."""

        async def call() -> list[Hit]:
            return list(islice(await self.store.search(query, k, spaces), k))

        return await self._ask("search", self._deadlines.question, call)

    async def pages(
        self, size: int, *, texts: bool = False, strict: bool = True
    ) -> AsyncGenerator[list[Entry | Spoiled]]:
        """Yield what the store lists, in pages; what came before an error is yielded before it is raised.

        With `texts` what has no label comes with its text, where the store shows it, and unless it is not
        to be `strict` is checked as what has one.
        """
        with_text = getattr(self.store, "list_with_text", None) if texts else None
        read = read_texts if texts and strict else read_page
        async with aclosing(self._listed(with_text or self.store.list_entries, size)) as listed:
            async for page in listed:
                yield read(page.entries, self.name)

    async def listing(
        self, size: int, *, after: str | None = None, until: str | None = None
    ) -> AsyncGenerator[Shown]:
        """Yield what the store lists, as `pages` does, with cursors where its listing can be taken up again.

        Any other store is listed from its beginning, whatever `after` says.
        """
        paged = lists_pages(self.store)
        start = partial(self.store.list_pages, after, until) if paged else self.store.list_entries
        async with aclosing(self._listed(start, size, paged=paged)) as listed:
            async for page in listed:
                yield Shown(read_page(page.entries, self.name), page.cursor)

    async def _listed(
        self, start: Callable[[], AsyncIterator[Any]], size: int, *, paged: bool = False
    ) -> AsyncGenerator[Listed]:
        rows: AsyncIterator[Any] | None = None
        page: list[Any] = []
        cursor: str | None = None

        async def fill() -> bool:
            nonlocal rows, cursor
            now = asyncio.get_running_loop().time
            until = now() + PAGE_SECONDS
            rows = aiter(start()) if rows is None else rows
            async for row in rows:
                if paged and isinstance(row, Listed):
                    page.extend(row.entries)
                    cursor = _usable(row.cursor)
                else:
                    page.append(row)
                # Each page of the store's own is a call to it, and has to wait for its turn.
                if len(page) >= size or now() >= until or (paged and self._bucket is not None):
                    return True
            return False

        more = True
        try:
            while more:
                page = []
                await self._turn()
                try:
                    with store_call(self._runtime.tracer, "list", store=self.name):
                        more = await self._call("list", self._deadlines.listing, fill)
                except StoreError:
                    if page:
                        # Where it broke off need not be where the last whole page ended.
                        yield Listed(page, cursor)
                    raise
                if page:
                    yield Listed(page, cursor)
        finally:
            if isinstance(rows, AsyncGenerator):
                unanswered = self.unanswered
                with contextlib.suppress(StoreError):
                    await self._call("list", self._deadlines.question, rows.aclose)
                # To end a listing asks the store nothing.
                self.unanswered = unanswered

    async def after_forget(self, entries: Sequence[Entry]) -> tuple[str, ...]:
        """Let the store clean up and say what a deletion leaves behind."""
        clean = getattr(self.store, "after_forget", None)
        if clean is None:
            return ()

        async def call() -> tuple[str, ...]:
            return tuple(str(note) for note in await clean(entries))

        return await self._ask("after_forget", self._deadlines.delete, call)


def _usable(cursor: object) -> str | None:
    """Return a cursor that can be kept; with any other the listing cannot be taken up again."""
    try:
        return None if cursor is None else check_text(cursor, "cursor")
    except InvalidInput:
        return None


__all__ = ["Deadlines", "Gate", "Shown", "Superseded", "describe"]
