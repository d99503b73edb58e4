"""What the core asks of the outside: stores, validators, time, chance and threads.

A store needs a name and two verbs. Everything else is optional and is found by looking: a
method that is there and undeclared counts as fully supported; `capabilities` may say less,
with a reason.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, Protocol, TypeAlias, runtime_checkable

from custody_sync.errors import InvalidStore
from custody_sync.model import Capability, Entry, Fact, Hit, Json, Label, Level, Limits, Page, Support

ANOTHER_LEDGER: Final = "LabelOfAnotherLedger"
"""The cause of a `NoProof` about an entry whose label names another ledger."""
NO_LABEL: Final = "LabelGone"
"""The cause of a `NoProof` about an id whose entry has no label, and maybe a text that is not ours."""
NO_TEXT: Final = "TextNotGiven"
"""The cause of a `NoProof` of a store that has to search for the text: with it, it is asked again."""


class Whose(StrEnum):
    """Whose entry stands under an external id."""

    OURS = "ours"
    REPLACED = "replaced"
    """Another fact's, or one without a label and with another text: what is asked about is not there."""
    ANOTHER_LEDGER = ANOTHER_LEDGER
    UNKNOWN = NO_LABEL
    """It has no label, and the text that was adopted is not known, or not known any more."""


def whose(entry: Entry, found: Entry) -> Whose:
    """Compare the entry that is asked about with what its store has under that id, with its text.

    Ours is what has the label of the fact and ledger, or none and the very text.
    """
    if found.fact_id is None:
        if entry.text is None:
            return Whose.UNKNOWN
        return Whose.OURS if found.text == entry.text else Whose.REPLACED
    if entry.ledger_id not in (None, found.ledger_id):
        return Whose.ANOTHER_LEDGER
    return Whose.OURS if found.fact_id == entry.fact_id else Whose.REPLACED


@runtime_checkable
class Store(Protocol):
    """A system that serves recall. Optional methods are described by the protocols below."""

    @property
    def name(self) -> str:
        """The key of this store's placements; unique in a coordinator and never changed."""
        ...

    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        """Store text and label and return the external ids, at least one.

        Return only once the store has confirmed. The same fact and label again (a retry) must
        not add a second entry where the store lets us choose the key (`label.key`).
        """
        ...

    async def delete(self, entry: Entry) -> None:
        """Delete one entry by external id and scope; already gone is success.

        With a ledger id it goes only if it is `Whose.OURS` by `whose`: an application, or another
        ledger, may have written under that id since.
        """
        ...


class Finds(Protocol):
    """A store that can be asked for a fact's entries."""

    async def find(self, fact_id: str) -> list[Entry]:
        """Return every entry labelled with the fact id, whatever its generation."""
        ...


class Lists(Protocol):
    """A store that can enumerate what it holds."""

    def list_entries(self) -> AsyncIterator[Entry]:
        """Yield every entry, labelled or not, a page at a time, safe under inserts and deletes.

        A throttled page is waited for here: a generator that raised is over, so nobody else can ask
        for the rest of it.
        """
        ...


@dataclass(frozen=True, slots=True)
class Listed:
    """A page of a listing, and the store's own mark of where it ends."""

    entries: Sequence[Entry]
    cursor: str | None = None
    """What a listing that goes on after this page is given; None where the store cannot say."""


class ListsPages(Protocol):
    """A store whose listing can be taken up again, so that a sweep that was killed need not begin anew."""

    def list_pages(self, after: str | None = None, until: str | None = None) -> AsyncIterator[Listed]:
        """Yield what `list_entries` does, as safely, in pages that say where they end.

        With `after` it begins behind the page that had this cursor, whoever listed it and however long
        ago; what was deleted or added meanwhile must not lose it the place. With `until` it ends with
        the page's last entry that such a cursor stands for.
        """
        ...


class Relabels(Protocol):
    """A store that can change a label and nothing else."""

    async def relabel(self, entry: Entry, label: Label) -> None:
        """Write the label in one step, if the entry is still the one that is meant; else raise.

        With `entry.fact_id` it is the one under that label. Without, it is what has no label of anybody;
        while `entry.text` is given, only as long as that is its text.
        """
        ...


class ListsTexts(Protocol):
    """A store that can enumerate its texts too, where `list_entries` leaves them out to be quick."""

    def list_with_text(self) -> AsyncIterator[Entry]:
        """Yield what `list_entries` does, as safely, each with its text."""
        ...


class Verifies(Protocol):
    """A store that can prove an absence."""

    async def verify_deleted(self, entry: Entry) -> bool:
        """Return True only if the store was asked, could have answered, and does not have it.

        `entry.text` is set while the text is known. Raise `NoProof` when the answer decides
        nothing; any error counts as unverified, never as gone.
        """
        ...


class Searches(Protocol):
    """A store whose own search can be called."""

    async def search(self, query: str, k: int, spaces: Sequence[str] | None) -> list[Hit]:
        """Return the store's own best hits; `spaces` None means all."""
        ...


@runtime_checkable
class MixesIds(Protocol):
    """A store that may show an entry under its id in another type, as "7" where `put` gave 7.

    What is live would look like a stray then, so a sweep takes nothing that this may be true of.
    """

    def is_same_id(self, one: str, other: str) -> bool:
        """Tell whether two external ids are one id in two types."""
        ...

    def mixed_ids(self, placed: str) -> InvalidStore:
        """Say what to do where an entry is not shown under the id that it was placed under."""
        ...


class Scopes(Protocol):
    """A store that keeps facts apart by namespace, user, agent or dataset."""

    def scope_of(self, fact: Fact) -> str | None:
        """Return where `put` would store this fact, in the form `Entry.scope` has."""
        ...


class Leaves(Protocol):
    """A store whose deletion leaves something on disk."""

    async def after_forget(self, entries: Sequence[Entry]) -> Sequence[str]:
        """Clean up what a deletion leaves if configured to, and say in sentences what remains until when."""
        ...


class Notebook(Protocol):
    """What a store must know again in another process, kept beside the ledger's log.

    A key may name a person, so an erasure of identity takes it: once no fact and no entry of a space
    is left, the keys that only its puts asked for are dropped. A store therefore keeps no copy of what
    it read, and asks before every put: one question to the ledger costs less than a request.
    """

    async def get(self, key: str) -> str | None:
        """Return what stands for a key, or None."""
        ...

    async def claim(self, key: str, value: str) -> str:
        """Set a value unless one stands; return the one that stands, whoever set it."""
        ...

    async def read(self) -> Mapping[str, str]:
        """Return everything that was claimed for this store."""
        ...

    async def drop(self, key: str, value: str | None = None) -> None:
        """Forget a key, so that it may be claimed anew; with a value, only while that is what stands.

        Whoever drops a claim because of what it says names that: meanwhile it may have been claimed anew.
        """
        ...


class Remembers(Protocol):
    """A store that has to know again which scopes it used, or what the vendor calls them.

    A scope is claimed in every put, before anything is sent: a crash right after the put must not leave
    an entry in a place that no listing covers, and what the put asked for is what its space needs.
    """

    def remember_in(self, notebook: Notebook) -> None:
        """Take the notebook that the coordinator's ledger keeps for this store; of several, the last one."""
        ...


@runtime_checkable
class View(Protocol):
    """What a validator may ask the ledger."""

    async def as_of(
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
        """Return the facts believed at the two instants."""
        ...


Validator: TypeAlias = Callable[[Fact, View], Awaitable[Fact]]
"""Takes the proposed fact and a view of the ledger; returns the fact, perhaps rewritten, or raises."""

Sleep: TypeAlias = Callable[[float], Awaitable[None]]

Watch: TypeAlias = Callable[[str, int, int | None], None]
"""Told how far long work is: what is being done (no ids, no texts), how many pieces are done, of how many."""

SearchFn: TypeAlias = Callable[[str, int], Awaitable[list[Hit]]]


class Clock(Protocol):
    """Where time comes from."""

    def now(self) -> datetime:
        """Return the current instant, aware and in UTC."""
        ...


class Ids(Protocol):
    """Where ids and salts come from."""

    def fact_id(self, now: datetime) -> str:
        """Return a new UUIDv7."""
        ...

    def event_id(self) -> str:
        """Return a new unique event id."""
        ...

    def generation(self) -> str:
        """Return a short token that no other placement of the fact has."""
        ...

    def secret(self, size: int) -> bytes:
        """Return unpredictable bytes."""
        ...


class FaultHook(Protocol):
    """Called at every named fault point; may raise, block or end the process."""

    def __call__(self, point: str) -> None:
        """Reach a point of `custody_sync.faultpoints`."""
        ...


def lists_pages(store: object) -> bool:
    """Tell whether a store's listing can be taken up again.

    A class that has a `list_entries` of its own, and inherits `list_pages` from one that knows nothing of
    that, is listed by what it has.
    """
    if not callable(getattr(store, "list_pages", None)):
        return False
    for name in ("list_pages", "list_entries"):
        if name in getattr(store, "__dict__", {}):
            return name == "list_pages"
    for kind in type(store).__mro__:
        if "list_pages" in vars(kind) or "list_entries" in vars(kind):
            return "list_pages" in vars(kind)
    return True


class Span(Protocol):
    """One operation under way, as a tracer sees it."""

    def done(
        self, *, fact_id: str | None = None, count: int | None = None, complete: bool | None = None
    ) -> None:
        """Say how it ended: about which fact it was, about how many, and whether nothing is left to do."""
        ...


class Tracer(Protocol):
    """Is told of operations and calls to stores; of a text, a value, a space or a reason it is told nothing.

    What either context raises goes through it, and says by its type alone how the operation failed.
    """

    def operation(
        self, verb: str, *, ledger_id: str, fact_id: str | None = None, dry_run: bool = False
    ) -> AbstractContextManager[Span]:
        """Surround one operation of a coordinator."""
        ...

    def store_call(
        self, verb: str, *, store: str, fact_id: str | None = None, count: int | None = None
    ) -> AbstractContextManager[object]:
        """Surround one call to a store, with its attempts and waits."""
        ...


_METHODS: Mapping[Capability, str] = {c: c.value for c in Capability}


def capabilities(store: object) -> dict[Capability, Support]:
    """Return what a store can do: declared levels first, else full where the method is there."""
    declared: Mapping[Capability, Support] = getattr(store, "capabilities", None) or {}
    found: dict[Capability, Support] = {}
    for capability, method in _METHODS.items():
        if not callable(getattr(store, method, None)):
            stated = declared.get(capability)
            reason = stated.reason if stated is not None else f"the adapter has no {method}()"
            found[capability] = Support(Level.NONE, reason)
        else:
            found[capability] = declared.get(capability, Support(Level.FULL))
    return found


__all__ = [
    "ANOTHER_LEDGER",
    "NO_LABEL",
    "NO_TEXT",
    "Clock",
    "Executor",
    "FaultHook",
    "Finds",
    "Ids",
    "Json",
    "Leaves",
    "Limits",
    "Listed",
    "Lists",
    "ListsPages",
    "ListsTexts",
    "MixesIds",
    "Notebook",
    "Relabels",
    "Remembers",
    "Scopes",
    "SearchFn",
    "Searches",
    "Sleep",
    "Span",
    "Store",
    "Tracer",
    "Validator",
    "Verifies",
    "View",
    "Watch",
    "Whose",
    "capabilities",
    "lists_pages",
    "whose",
]
