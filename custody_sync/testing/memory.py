"""A store in a dictionary that can be made to misbehave in every way real stores do.

It is a whole store (find, list, search, verify, relabel) with a search index that can lag
behind, so that a removal can be still indexed without any network.
"""

from __future__ import annotations

import asyncio
import copy
import re
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import count

from custody_sync.errors import CustodyError, NoProof, StoreRefused, StoreUnavailable
from custody_sync.model import Capability, Entry, Fact, Hit, Json, Label, Level, Limits, Support
from custody_sync.ports import Clock, Listed, Sleep, Whose, whose
from custody_sync.runtime import SystemClock
from custody_sync.testing.misbehaviour import FOREVER, Faults, Operation

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    external_id: str
    scope: str | None
    text: str
    value: Json
    metadata: Mapping[str, str | int]
    created_at: datetime
    place: int
    """Where it stands in a listing; no other entry has, or had, the same."""
    asked: int
    """How many questions had been asked when it was put, or, for a ghost, deleted."""


@dataclass(frozen=True, slots=True)
class _LatePut:
    fact: Fact
    label: Label
    due: datetime | None


class MemoryStore:
    """An in-process store for tests, examples and dry runs.

    Everything is copied on the way in and out, so nothing outside can change what it holds.

    Args:
        name: The store's name in a coordinator.
        faults: How it misbehaves; `store.faults` may be changed at any time.
        without: Capabilities it honestly does not have: the method is gone and declared so.
        own_ids: The store makes up its ids, as most hosted ones do, so that a retried put adds an entry.
        parts: How many entries one put becomes, as in stores that split a text.
        scope: A fixed scope or a template such as `"{space}"`; None keeps everything together.
        limits: The largest text it takes.
        page_size: How many entries a page of a listing has.
        clock: Dates the entries, and decides when late puts land.
        sleep: What a slow reply waits with.
    """

    def __init__(
        self,
        name: str = "memory",
        *,
        faults: Faults | None = None,
        without: Iterable[Capability | str] = (),
        own_ids: bool = False,
        parts: int = 1,
        scope: str | None = None,
        limits: Limits | None = None,
        page_size: int = 100,
        clock: Clock | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.name = name
        self.faults = faults if faults is not None else Faults()
        self.limits = limits if limits is not None else Limits()
        self.calls: Counter[str] = Counter()
        """How often each method was called, refused calls included."""
        self.capabilities: dict[Capability, Support] = {}
        self._own_ids = own_ids
        self._parts = parts
        self._scope = scope
        self._page_size = page_size
        self._clock = clock if clock is not None else SystemClock()
        self._sleep = sleep
        self._ids = count(1)
        self._places = count(1)
        self._held: dict[str, _Held] = {}
        self._ghosts: dict[str, _Held] = {}
        self._late: list[_LatePut] = []
        self._asked = 0
        for capability in map(Capability, without):
            self.capabilities[capability] = Support(Level.NONE, "this memory store was built without it")
            setattr(self, capability.value, None)

    # --- the two verbs ---------------------------------------------------------------------

    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        """Hold the text under the label; the same label again replaces, unless ids are the store's own."""
        self._begin("put")
        late = self.faults.take_late_put()
        if late is not None:
            due = self._clock.now() + timedelta(seconds=late.after) if late.after is not None else None
            self._late.append(_LatePut(copy.deepcopy(fact), label, due))
            await self._wait("put")
            raise self._unavailable("put", "it may still land")
        self._check_carried_out("put")
        ids = self._take(fact, label)
        await self._reply("put")
        self._check_named("put")
        return ids

    async def put_many(self, items: Sequence[tuple[Fact, Label]]) -> Sequence[Sequence[str]]:
        """Hold several facts with one call, and return the ids of each in the same order."""
        self._begin("put_many")
        self._check_carried_out("put_many")
        ids = [self._take(fact, label) for fact, label in items]
        await self._reply("put_many")
        self._check_named("put_many")
        return ids

    async def delete(self, entry: Entry) -> None:
        """Drop one entry; already gone is success."""
        self._begin("delete")
        self._check_carried_out("delete")
        held = self._at(entry)
        is_ours = held is not None and self._whose(entry, held) is Whose.OURS
        if held is not None and is_ours and not self.faults.silent_delete:
            del self._held[held.external_id]
            if self.faults.index_lag:
                self._ghosts[held.external_id] = replace(held, asked=self._asked)
        await self._reply("delete")

    # --- what it can be asked --------------------------------------------------------------

    async def find(self, fact_id: str) -> list[Entry]:
        """Return every entry of the fact; a lookup by id never lags."""
        self._begin("find")
        found = [e for e in map(self._entry, self._held.values()) if e.fact_id == fact_id]
        await self._reply("find")
        return found

    async def list_entries(self) -> AsyncIterator[Entry]:
        """Yield every entry once, in pages over the keys that were held when the listing began."""
        async with aclosing(self.list_pages()) as pages:
            async for page in pages:
                for entry in page.entries:
                    yield entry

    async def list_pages(self, after: str | None = None, until: str | None = None) -> AsyncGenerator[Listed]:
        """Yield the same in pages; a cursor is the place of a page's last entry among all ever held."""
        self._begin("list_entries")
        await self._reply("list_entries")
        first, last = int(after or 0), None if until is None else int(until)
        keys = [
            key
            for key, held in self._held.items()
            if held.place > first and (last is None or held.place <= last)
        ]
        short = self.faults.take_short_listing()
        for start in range(0, len(keys), self._page_size):
            page = self._page(keys, start, short)
            if not self.faults.repeat_pages:
                page = [place for place in page if place >= start]
            if len(page) < min(self._page_size, len(keys) - start):
                raise self._unavailable("list_entries", "a page came back short")
            breaks = self.faults.list_breaks_after
            shown = [place for place in page if breaks is None or place < breaks]
            held = [self._held[keys[place]] for place in shown if keys[place] in self._held]
            if held:
                yield Listed([self._entry(one) for one in held], str(held[-1].place))
            if len(shown) < len(page):
                raise self._unavailable("list_entries", "the listing broke off")

    async def verify_deleted(self, entry: Entry) -> bool:
        """Return True only when neither the store nor its search index has the entry."""
        self._begin("verify_deleted")
        self.faults.check("search", self.name)
        indexed = self._question()
        held = self._at(entry)
        found = Whose.OURS if held is None else self._whose(entry, held)
        if found in (Whose.ANOTHER_LEDGER, Whose.UNKNOWN):
            raise NoProof(store=self.name, operation="verify_deleted", cause=found.value)
        if found is Whose.REPLACED:
            indexed = [one for one in indexed if one is not held]
            held = None
        gone = held is None and entry.external_id not in {held.external_id for held in indexed}
        await self._reply("verify_deleted")
        return gone

    async def search(self, query: str, k: int, spaces: Sequence[str] | None) -> list[Hit]:
        """Return the best hits by shared words; what a lagging index still has is served too."""
        self._begin("search")
        wanted = None if spaces is None else frozenset(spaces)
        hits = [
            Hit(entry=self._entry(held), score=score)
            for held in self._question()
            if (wanted is None or held.metadata.get("space") in wanted)
            and (score := _score(query, held.text)) > 0
        ]
        hits.sort(key=lambda hit: hit.score or 0.0, reverse=True)
        await self._reply("search")
        return hits[: max(k, 0)]

    async def relabel(self, entry: Entry, label: Label) -> None:
        """Replace the label of an entry, or give it its first one, and leave its text alone."""
        self._begin("relabel")
        held = self._at(entry)
        if held is None:
            raise StoreRefused(store=self.name, operation="relabel", cause="no such entry")
        metadata = label.to_metadata()
        if entry.fact_id is None:
            if entry.text not in (None, held.text):
                raise StoreRefused(store=self.name, operation="relabel", cause="text_changed")
            if metadata.keys() & held.metadata.keys():
                raise StoreRefused(store=self.name, operation="relabel", cause="keys_of_the_label_are_taken")
            metadata = {**held.metadata, **metadata}
        self._held[held.external_id] = replace(held, metadata=metadata)
        await self._reply("relabel")

    def scope_of(self, fact: Fact) -> str | None:
        """Return the scope that a put of this fact would use."""
        return None if self._scope is None else self._scope.replace("{space}", fact.space)

    # --- for the test ----------------------------------------------------------------------

    def snapshot(self) -> dict[str, Entry]:
        """Return what is really held, by external id; asks no question and counts no call."""
        self._land_due()
        return {key: self._entry(held) for key, held in self._held.items()}

    def metadata(self, external_id: str) -> dict[str, str | int]:
        """Return a copy of the metadata really held beside a text."""
        return dict(self._held[external_id].metadata)

    def value(self, external_id: str) -> Json:
        """Return a copy of the fact's value as it was put."""
        return copy.deepcopy(self._held[external_id].value)

    def put_raw(
        self, text: str, metadata: Mapping[str, str | int] | None = None, *, scope: str | None = None
    ) -> str:
        """Hold a text that somebody else wrote, past custody: without a label unless `metadata` has one."""
        external_id = f"raw-{next(self._ids)}"
        self._held[external_id] = _Held(
            external_id=external_id,
            scope=scope,
            text=text,
            value=text,
            metadata=dict(metadata or {}),
            created_at=self._clock.now(),
            place=next(self._places),
            asked=self._asked,
        )
        return external_id

    def drop(self, external_id: str) -> None:
        """Lose an entry behind custody's back."""
        del self._held[external_id]

    def land(self) -> int:
        """Let every late put take effect now, and return how many there were."""
        waiting, self._late = self._late, []
        for late in waiting:
            self._take(late.fact, late.label)
        return len(waiting)

    # --- inside ----------------------------------------------------------------------------

    def _begin(self, operation: Operation) -> None:
        self.calls[operation] += 1
        self._land_due()
        self.faults.check(operation, self.name)

    async def _wait(self, operation: Operation) -> None:
        seconds = self.faults.delays.get(operation, 0.0)
        if seconds > 0:
            await self._sleep(seconds)

    async def _reply(self, operation: Operation) -> None:
        await self._wait(operation)
        if self.faults.take_lost_reply(operation):
            raise self._unavailable(operation, "the reply was lost")

    def _page(self, keys: Sequence[str], start: int, short: bool) -> list[int]:
        """Return the places of the page that the service behind a listing answers with."""
        overlap = 1 if (self.faults.repeat_pages or self.faults.rough_pages) and start else 0
        lost = start if short and start == self._page_size else None
        places = range(start - overlap, min(start + self._page_size, len(keys)))
        return [place for place in places if place != lost]

    def _check_carried_out(self, operation: Operation) -> None:
        if self.faults.pending:
            raise self._unavailable(operation, "pending")

    def _check_named(self, operation: Operation) -> None:
        if self.faults.take_empty_reply() and self._own_ids:
            raise self._unavailable(operation, "the reply names no ids")

    def _unavailable(self, operation: Operation, cause: str) -> CustodyError:
        return StoreUnavailable(store=self.name, operation=operation, cause=cause)

    def _land_due(self) -> None:
        now = self._clock.now()
        due = [late for late in self._late if late.due is not None and late.due <= now]
        self._late = [late for late in self._late if late not in due]
        for late in due:
            self._take(late.fact, late.label)

    def _take(self, fact: Fact, label: Label) -> tuple[str, ...]:
        text = fact.text or ""
        self._check_limits(text)
        scope = self.scope_of(fact)
        if self.faults.shared_ids:
            shared = tuple(
                key for key, held in self._held.items() if held.text == text and held.scope == scope
            )
            if shared:
                return shared
        key = f"m-{next(self._ids)}" if self._own_ids else label.key
        ids = tuple(key if part == 0 else f"{key}/{part}" for part in range(self._parts))
        for external_id in ids:
            before = self._held.get(external_id)
            self._ghosts.pop(external_id, None)
            self._held[external_id] = _Held(
                external_id=external_id,
                scope=scope,
                text=text,
                value=copy.deepcopy(fact.value),
                metadata=label.to_metadata(),
                created_at=before.created_at if before is not None else self._clock.now(),
                place=before.place if before is not None else next(self._places),
                asked=self._asked,
            )
        return ids

    def _check_limits(self, text: str) -> None:
        chars, size = self.limits.text_chars, self.limits.text_bytes
        too_long = chars is not None and len(text) > chars
        if too_long or (size is not None and len(text.encode()) > size):
            raise StoreRefused(store=self.name, operation="put", cause="the text is over the limit")

    def _at(self, entry: Entry) -> _Held | None:
        held = self._held.get(entry.external_id)
        return held if held is not None and held.scope == entry.scope else None

    def _whose(self, entry: Entry, held: _Held) -> Whose:
        # Who names no ledger goes by the id alone.
        return Whose.OURS if entry.ledger_id is None else whose(entry, self._entry(held))

    def _question(self) -> list[_Held]:
        """Count a question and return what the search index has at this moment."""
        put_lag, index_lag = self.faults.put_lag, self.faults.index_lag
        shown = [held for held in self._held.values() if self._asked - held.asked >= put_lag]
        lagging = [ghost for ghost in self._ghosts.values() if self._asked - ghost.asked < index_lag]
        self._asked += 1
        return shown + lagging

    def _entry(self, held: _Held) -> Entry:
        return Entry.from_metadata(
            held.metadata,
            store=self.name,
            external_id=held.external_id,
            scope=held.scope,
            text=held.text,
            created_at=held.created_at,
        )


def _score(query: str, text: str) -> float:
    if query == text:
        return 1.0
    asked = {word.casefold() for word in _WORD.findall(query)}
    there = {word.casefold() for word in _WORD.findall(text)}
    overlap = len(asked & there) / len(asked | there) if asked and there else 0.0
    inside = bool(query) and query.casefold() in text.casefold()
    return max(overlap, 0.5) * 0.99 if inside else overlap * 0.99


__all__ = ["FOREVER", "Faults", "MemoryStore", "Operation"]
