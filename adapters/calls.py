"""Custody for anything that can be searched, added to and deleted from: a store of three callables.

The callables know nothing of facts. What they cannot show cannot be proved, so each capability says
what it stands on: a search that shows ids proves a removal while the text is known, `get` also later,
`entries` lets a sweep find what nobody recorded.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any
from uuid import UUID

from custody_sync.adapters._call_results import Found, Id, Ids, Read, Results, metadata_of, value_of
from custody_sync.adapters._call_running import Running
from custody_sync.adapters._failures import status_of
from custody_sync.adapters._shared import WorkerThreads, has_same_label
from custody_sync.errors import InvalidInput, InvalidStore, NoProof, StoreUnavailable
from custody_sync.model import ERASED_ID, Capability, Entry, Fact, Hit, Label, Level, Limits, Support
from custody_sync.ports import NO_TEXT, Whose, whose

_PROBE, _GROWTH, _MOST = 100, 10, 10_000
_TAKES = {
    "search": ("query", "k"),
    "add": ("text", "metadata"),
    "delete": ("id",),
    "get": ("id",),
    "entries": (),
    "read": ("result",),
}
"""What each callable is called with, by position."""
_GONE = 404
_TIE = 1e-6
_NO_GET = "only while its text is known, by a search that shows ids with texts or scores; give get= for more"
_NO_SPACES = (
    f"its search takes no spaces=, so of a small space only what is among the {_MOST:,} nearest is served"
)


class CallStore:
    """Keep facts in whatever three callables reach; each is plain or asynchronous.

    Args:
        search: `(query, k)` gives the best results, nearest first, each in a form that `Found` names. If it
            has a parameter `spaces` it is given the spaces that are asked for, None for all.
        add: `(text, metadata)` stores a text and gives its id, or the ids of its parts. The metadata is what
            was remembered with it and seven keys of custody, all in a dict of its own.
        delete: `(id)` deletes; an id that is not there any more may raise `LookupError` or a 404.
        get: `(id)` gives the one result, and None only if there is none: that is taken for a proof.
        entries: `()` gives every result there is, in any order, while others come and go.
        read: makes a `Found` of one result, where it has another form.
        ids: makes an id of its text, where one callable gives numbers and another one texts.
        name: the store's name in a coordinator.
        threads: how many plain calls may run at once; more than one if what they reach is made for threads.
        executor: runs the plain calls instead of own threads.
        limits: the largest text that it takes, if that is known.
    """

    def __init__(
        self,
        *,
        search: Callable[..., Any],
        add: Callable[..., Any],
        delete: Callable[..., Any],
        get: Callable[..., Any] | None = None,
        entries: Callable[..., Any] | None = None,
        read: Read | None = None,
        ids: Callable[[str], Id] | None = None,
        name: str = "calls",
        threads: int = 1,
        executor: Executor | None = None,
        limits: Limits | None = None,
    ) -> None:
        _check_calls({"search": search, "add": add, "delete": delete})
        optional = {"get": get, "entries": entries, "read": read}
        _check_calls({name: given for name, given in optional.items() if given is not None})
        self.name = name
        self.limits = limits or Limits()
        self.ids = Ids(name, ids)
        self._add, self._delete, self._get = add, delete, get
        self._search, self._entries = search, entries
        self._takes_spaces = _takes(search, "spaces")
        self._results = Results(name, self.ids, read)
        self._running = Running(name, WorkerThreads(name, limit=threads, executor=executor))
        self.capabilities = {
            Capability.FIND: Support(Level.NONE, "its callables cannot be asked for a fact's id"),
            Capability.LIST_ENTRIES: Support(Level.NONE, "give entries= to let it be listed"),
            Capability.SEARCH: Support(Level.PARTIAL, _NO_SPACES),
            Capability.VERIFY_DELETED: Support(Level.PARTIAL, _NO_GET),
        }
        if self._takes_spaces:
            del self.capabilities[Capability.SEARCH]
        if get is not None:
            del self.capabilities[Capability.VERIFY_DELETED]
        if entries is not None:
            del self.capabilities[Capability.LIST_ENTRIES]

    # --- the two verbs ---------------------------------------------------------------------

    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        """Add the text with a dict of its own that has what was remembered with it, and the label."""
        metadata = {**metadata_of(fact), **label.to_metadata()}
        call = partial(self._add, fact.text or "", metadata)
        return await self._running.run("put", call, self._added)

    def _added(self, given: Any) -> list[str]:
        parts = given if isinstance(given, list | tuple) else [given]
        # It holds something by now, so whatever is wrong with the answer must not say that it holds nothing.
        problem = "add_gave_no_id"
        if parts and not any(part is None or part == "" for part in parts):
            try:
                return [self.ids.write(part) for part in parts]
            except InvalidStore:
                odd = next((one for one in parts if not isinstance(one, str | int | UUID)), None)
                named = "that_ids_cannot_read" if odd is None else f"of_type_{type(odd).__name__}"
                problem = f"add_gave_an_id_{named}"
        raise StoreUnavailable(store=self.name, operation="put", cause=problem)

    async def delete(self, entry: Entry) -> None:
        """Delete by id; what `get` shows to be somebody else's by now stays."""
        is_looked_up = entry.ledger_id is not None and self._get is not None
        if is_looked_up and await self._held("delete", entry) is not Whose.OURS:
            return
        call = partial(self._delete, self.ids.read(entry.external_id))
        await self._running.run("delete", call, lambda _: None, nothing=_is_gone)

    # --- what it can be asked --------------------------------------------------------------

    async def search(self, query: str, k: int, spaces: Sequence[str] | None) -> list[Hit]:
        """Return what the search serves; where it shows labels, wider until `k` are of the spaces."""
        size = k
        while True:
            found = await self._asked("search", query, size, spaces)
            hits = [Hit(entry=self._results.entry(one), score=one.score) for one in found]
            if spaces is not None:
                hits = [hit for hit in hits if hit.entry.fact_id is None or hit.entry.space in spaces]
            if len(hits) >= k or len(found) < size or size >= _MOST:
                return hits[:k]
            size = min(size * _GROWTH, _MOST)

    async def list_entries(self) -> AsyncIterator[Entry]:
        """Yield every entry that `entries` gives."""
        if self._entries is None:
            raise StoreUnavailable(store=self.name, operation="list_entries", cause="not_listed")
        async for page in self._running.pages("list_entries", self._entries, self._results.found):
            for one in page:
                yield self._results.entry(one)

    async def verify_deleted(self, entry: Entry) -> bool:
        """Ask by id where that can be, and search for the text while it is known; True if all miss it."""
        is_looked_up = self._get is not None
        if entry.external_id.startswith(ERASED_ID):
            raise self._no_proof("its_id_is_erased")
        if is_looked_up:
            held = await self._held("verify_deleted", entry)
            if held is Whose.ANOTHER_LEDGER or held is Whose.UNKNOWN:
                raise self._no_proof(held.value)
            if held is not None:
                return held is Whose.REPLACED
        elif not entry.text:
            raise self._no_proof(NO_TEXT)
        return await self._is_missed(entry, is_looked_up)

    def is_same_id(self, one: str, other: str) -> bool:
        """Tell whether two external ids are one id in two types, as 7 and "7" are."""
        return self.ids.is_alike(one, other)

    def mixed_ids(self, placed: str) -> InvalidStore:
        """Say what to do where an entry is shown under such an id, and not under the one it was given."""
        return self.ids.alike(placed)

    # --- inside ----------------------------------------------------------------------------

    async def _asked(
        self, operation: str, query: str, k: int, spaces: Sequence[str] | None = None
    ) -> list[Found]:
        call = partial(self._search, query, k)
        if self._takes_spaces:
            call = partial(self._search, query, k, spaces=None if spaces is None else list(spaces))

        def read(given: Any) -> list[Found]:
            return [self._results.found(one) for one in self._running.some(given, k)]

        return await self._running.run(operation, call, read, most=k)

    async def _held(self, operation: str, entry: Entry) -> Whose | None:
        """Look an entry up by its id; None if there is none."""

        def read(given: Any) -> Found | None:
            return None if given is None else self._results.found(given)

        get: Any = self._get
        call = partial(get, self.ids.read(entry.external_id))
        found = await self._running.run(operation, call, read)
        return None if found is None else self._whose(entry, found)

    def _whose(self, entry: Entry, found: Found) -> Whose:
        # Where no label is ever shown, the id alone says whose it is.
        if entry.ledger_id is None or found.metadata is None:
            return Whose.OURS
        return whose(entry, self._results.entry(found))

    async def _is_missed(self, entry: Entry, is_looked_up: bool) -> bool:
        """Search for the very text, wider while nothing but that comes back.

        Its entry would be among the nearest, so it is missed once something farther is shown; without a
        lookup a full answer says that only where its scores show that it is in order. A search may have a
        limit of its own: fewer results than were asked for are an end only if a lookup missed it, too.
        """
        probe, size = entry.text or entry.fact_id or entry.external_id, _PROBE
        while True:
            found = await self._asked("verify_deleted", probe, size)
            for one in found:
                if self.ids.write(one.id) == entry.external_id:
                    held = self._whose(entry, one)
                    if held is Whose.ANOTHER_LEDGER or held is Whose.UNKNOWN:
                        raise self._no_proof(held.value)
                    return held is Whose.REPLACED
                if has_same_label(entry, self._results.entry(one)):
                    return False
                if one.metadata is None and self.is_same_id(self.ids.write(one.id), entry.external_id):
                    raise self.mixed_ids(entry.external_id)
            if not found or not entry.text:
                return True
            is_ranked = is_looked_up or len(found) < size or _is_sorted(found)
            if is_ranked and _falls_off(found, entry.text):
                return True
            if len(found) < size and is_looked_up:
                return True
            if len(found) < size or size >= _MOST:
                raise self._no_proof("nothing_farther_was_shown")
            size *= _GROWTH

    def _no_proof(self, cause: str) -> NoProof:
        return NoProof(store=self.name, operation="verify_deleted", cause=cause)


def _falls_off(found: Sequence[Found], text: str) -> bool:
    """Tell whether a search shows something less near than the very text."""
    if any(one.text is not None and not _is_alike(one.text, text) for one in found):
        return True
    scores = [one.score for one in found if one.score is not None]
    return bool(scores) and max(scores) - min(scores) > _TIE * max(1.0, *map(abs, scores))


def _is_sorted(found: Sequence[Found]) -> bool:
    """Tell whether a search scores everything, from best to worst, and not all alike."""
    scores = [one.score for one in found if one.score is not None]
    in_order = scores in (sorted(scores), sorted(scores, reverse=True))
    return in_order and len(scores) == len(found) and scores[0] != scores[-1]


def _is_alike(shown: str, text: str) -> bool:
    """Tell whether a store may show a text so: trimmed, in other case, or a part of it."""
    one, other = (" ".join(said.split()).casefold() for said in (shown, text))
    return one in other or other in one


def _is_gone(error: Exception) -> bool:
    return isinstance(error, LookupError) or status_of(error) == _GONE


def _check_calls(given: Mapping[str, object]) -> None:
    for name, function in given.items():
        if not callable(function):
            raise InvalidInput(field=name, problem=f"must be callable, not {type(function).__name__}")
        words = _TAKES[name]
        try:
            spaces = {"spaces": None} if name == "search" and _takes(function, "spaces") else {}
            inspect.signature(function).bind(*words, **spaces)
        except ValueError:  # of some built-in functions nobody can tell
            continue
        except TypeError:
            problem = f"must take ({', '.join(words)}); a lambda may sort its arguments"
            raise InvalidInput(field=name, problem=problem) from None


def _takes(function: Callable[..., Any], name: str) -> bool:
    try:
        return name in inspect.signature(function).parameters
    except (TypeError, ValueError):  # of some built-in functions nobody can tell
        return False


__all__ = ["CallStore", "Found", "Id", "Read", "metadata_of", "value_of"]
