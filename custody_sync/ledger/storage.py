"""The storage port: what a ledger asks of SQLite today and of other engines later.

A storage answers queries and commits groups of drafts under `rules.Group`; it knows no rule
itself. `Note`s are rows beside the log (leases, reservations, spools) that carry no facts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from custody_sync.errors import InvalidInput, LedgerArriving, LedgerError, LedgerMoved, MissingExtra
from custody_sync.ledger.chain import Prepared
from custody_sync.ledger.outstanding import OutstandingStorage
from custody_sync.ledger.questions import Account, AsOf, Compared, Held, Instants, Trail, Unaccounted, Waiting
from custody_sync.ledger.replaying import Stored
from custody_sync.ledger.rows import Derived
from custody_sync.ledger.whereabouts import Whereabouts
from custody_sync.model import Entry, Erasure, Event, Fact, Head, Page, Placement, PlacementState, Standing
from custody_sync.recalled import Followed, Link
from custody_sync.runtime import Runtime


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A row beside the log: `value` is JSON text, `holder` who set it, `expires_at` when it lapses."""

    topic: str
    key: str
    value: str
    holder: str | None = None
    since: datetime
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """What makes a ledger this one: its id in labels, and the secret behind ids of keyed writes."""

    ledger_id: str
    secret: bytes = field(repr=False)
    arrives_from: str | None = field(default=None, compare=False)
    """Where one that is made with it is moved from; until that is complete it takes nothing of its own."""

    @classmethod
    def new(cls, runtime: Runtime) -> Identity:
        """Make an identity that no other ledger has."""
        return cls(runtime.ids.fact_id(runtime.clock.now()), runtime.ids.secret(32))


class Way(StrEnum):
    """Which end of a move a ledger is; the value is the key of its note."""

    TO = "to"
    """It was moved to another place."""
    FROM = "from"
    """The move from another place to here is not complete."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What stops a ledger that is moved: where the other end is, and which run of the move set it."""

    way: Way
    place: str
    run: str | None = None

    def refusal(self, name: str) -> LedgerError:
        """Return what to say to whoever wants to append."""
        if self.way is Way.TO:
            return LedgerMoved(name=name, to=self.place)
        return LedgerArriving(name=name, origin=self.place)

    @property
    def notice(self) -> str:
        """What it says of its ledger."""
        if self.way is Way.TO:
            return f"it was moved to {self.place}"
        return f"the move from {self.place} to here is not complete; run it again"


class Storage(OutstandingStorage, Protocol):
    """One ledger's rows. A storage that belongs to one event loop says so when another one calls it."""

    ledger_id: str
    secret: bytes
    name: str
    writable: bool

    @property
    def notices(self) -> tuple[str, ...]:
        """What was found and mended since it was opened, in sentences."""
        ...

    @property
    def remains(self) -> tuple[str, ...]:
        """What an erasure does not reach, one sentence each."""
        ...

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that it is in; none where a server keeps it."""
        ...

    async def commit(self, prepared: Prepared) -> Event:
        """Append one prepared draft, grouped with whatever else waits; a mark refuses it."""
        ...

    async def check(self, prepared: Prepared) -> None:
        """Raise what `commit` would raise now, without writing."""
        ...

    async def as_of(self, question: AsOf) -> Page[Fact]:
        """Answer an as-of question at one committed head."""
        ...

    async def get(self, fact_id: str) -> Fact | None:
        """Return a fact whatever its state, or None."""
        ...

    async def facts(self, ids: Sequence[str]) -> dict[str, Fact | None]:
        """Return for every id asked for what `get` returns, all of one moment."""
        ...

    async def history(self, fact_id: str, limit: int, after: int) -> Page[Event]:
        """Return one fact's events in order."""
        ...

    async def events(self, limit: int, after: int) -> list[dict[str, Any]]:
        """Return stored events (`event`, `hash`, `sealed` with salts in hex) in order of seq."""
        ...

    async def spaces(self, limit: int, after: str) -> list[str]:
        """Return the spaces that have facts, sorted, those after a given one; -1 is no limit."""
        ...

    async def accounts(self, space: str | None, subject: str | None, limit: int, after: int) -> Page[Account]:
        """Return what there is on facts of a space and subject, whatever their state; None is any."""
        ...

    async def restore(self, events: Sequence[Stored]) -> None:
        """Append events of another ledger as they are, all or none, right after this one's head.

        Raises:
            LedgerBroken: an event does not follow, is not what its hash says, or breaks a rule.
            LedgerMoved: it was moved; a ledger that a move has not completed takes them.
        """
        ...

    async def known(self, ids: Sequence[str]) -> dict[str, Standing]:
        """Return the standing of every id asked for."""
        ...

    async def placements(self, fact_id: str) -> list[Placement]:
        """Return a fact's placements, past ones included."""
        ...

    async def placements_of(self, ids: Sequence[str]) -> dict[str, list[Placement]]:
        """Return for every id asked for what `placements` returns, all of one moment."""
        ...

    async def placements_in(
        self, states: Sequence[PlacementState], limit: int, after: int
    ) -> Page[Placement]:
        """Return placements in given states; `next` goes on after the last row."""
        ...

    async def ended(self, store: str, limit: int, after: int) -> Page[Placement]:
        """Return a store's current placements of facts whose validity is over."""
        ...

    async def owed(self, fact_id: str | None, limit: int, after: tuple[str, str]) -> list[tuple[str, str]]:
        """Return (fact id, store) pairs that lack a placement now, in order, those after a given pair."""
        ...

    async def waiting(self, limit: int, after: int) -> Page[Waiting]:
        """Return what lacks a placement once it begins: so many facts in the order of the log."""
        ...

    async def unaccounted(self, store: str, pairs: Mapping[str, str], keep: bool) -> list[Unaccounted]:
        """Of listed entries (external id → fact id) return those that are not current placements."""
        ...

    async def compare(self, store: str, listed: Mapping[str, str], keep: bool) -> list[Compared]:
        """Say of every listed entry (external id → fact id) what there is on it, in the order given."""
        ...

    async def held(self, store: str, limit: int, after: int) -> Page[Held]:
        """Return a store's current placements in order of place."""
        ...

    async def lacking(self, store: str, limit: int, after: int) -> Page[str]:
        """Return the facts believed now of which a store holds no placement, in the order of the log."""
        ...

    async def follow(self, entries: Sequence[Entry], trail: Trail) -> tuple[Instants, list[Followed]]:
        """Say of every entry where it leads at two instants, in the order given, of one moment."""
        ...

    async def links(self, fact_ids: Sequence[str], trail: Trail) -> tuple[Instants, list[tuple[Link, ...]]]:
        """Return the chain of every fact at two instants, in the order given; none of an unknown one."""
        ...

    async def whereabouts(self) -> Whereabouts:
        """Return where it is, in words that a copy of it at another place does not share."""
        ...

    async def head(self) -> Head:
        """Return the committed head."""
        ...

    async def derived(self, limit: int, after: str) -> tuple[Head, list[Derived]]:
        """Return what is kept beside the log, by fact id in order of code points, those after a given one.

        Rows that belong to no event are listed too: the answer is held against a replay of the log.
        The head is that of the same moment.
        """
        ...

    async def blocks(self) -> tuple[Head, dict[int, int]]:
        """Return by block of the log the last event that changed one of its facts, and the head then."""
        ...

    async def structure(self) -> list[str]:
        """Return what of tables and indexes is not as this version makes it, one sentence each."""
        ...

    async def acquire(self, topic: str, key: str, value: str, holder: str, ttl: timedelta | None) -> Note:
        """Set a note unless another holder's has not lapsed; return the one that stands; not under a mark.

        Without a `ttl` it never lapses.
        """
        ...

    async def put_notes(self, notes: Sequence[Note], *, arriving: bool = False) -> None:
        """Set notes in one transaction; a mark refuses it, but for what arrives with a move to here."""
        ...

    async def notes(self, topic: str, limit: int, after: str = "") -> list[Note]:
        """Return a topic's notes in order of key."""
        ...

    async def notes_at(self, topic: str, keys: Sequence[str]) -> dict[str, Note]:
        """Return a topic's notes by key, of these keys; one that no note has is left out."""
        ...

    async def drop_notes(
        self, topic: str, keys: Sequence[str] | None = None, holder: str | None = None
    ) -> None:
        """Remove notes of a topic: all, some, or those of one holder."""
        ...

    async def mark(self) -> Mark | None:
        """Return what stops it."""
        ...

    async def set_mark(self, was: Mark | None, mark: Mark | None) -> bool:
        """Put a mark in another one's place, in one transaction that also orders it among appends.

        Returns whether: not where something else stands than what was expected.
        """
        ...

    async def erase(self) -> Erasure:
        """Drive erased values out of the files; pending where a reader stands in the way."""
        ...

    async def close(self) -> None:
        """Let go of files and threads."""
        ...


BEYOND = timedelta(hours=1)
"""A note that lapses so much later than its whole term from now is void: the clock that set it has gone back
since. It is more than the clocks of two machines, or the terms that they are told, are apart."""
LEASED = 2 * BEYOND
"""The same of a sweep's lease, where nobody knows its term; that is an hour at most."""
MOVED = "moved"
"""The topic of the one note that is a ledger's mark."""
SWEEP = ("sweep-run", "sweep-spool", "sweep-seen")
"""The topics of what a sweep notes, which an erasure of an identity takes when nobody sweeps."""
ERASURE = "erasure"
"""The topic of what has to be driven out of the files."""
CLAIMS = "notebook"
"""What stores noted for other processes; by hashes of store and key."""
USES = "notebook use"
"""Which spaces need a claim; by claim and hash of the space."""
USED = "notebook used"
"""The same by space."""
DUE = "notebook due"
"""Spaces of which an erasure may have left nothing; by hash of the space."""
NOTEBOOK = (CLAIMS, USES, USED, DUE)
"""What goes along when a ledger goes on in another place."""


FORMS = (
    "a ledger URL is sqlite:///custody.db, jsonl:///custody.jsonl or postgresql://user@host/database "
    "(a file's absolute path has four slashes)"
)


async def open_storage(
    url: str, *, create: bool, read_only: bool, runtime: Runtime, identity: Identity | None = None
) -> Storage:
    """Open the storage that a URL names, without ever creating one unless asked.

    A new ledger is given `identity` where it takes the place of another one, else one of its own.

    Raises:
        InvalidInput: the URL is of no known form; it is not repeated, since it may hold a password.
        LedgerError: the file is missing, damaged, too new or not readable.
    """
    scheme, separator, rest = url.partition("://")
    scheme = scheme.lower()
    if not separator or not scheme:
        raise InvalidInput(field="ledger", problem=FORMS)
    if scheme == "sqlite":
        if not rest.startswith("/") or len(rest) < 2:
            raise InvalidInput(
                field="ledger",
                problem="a SQLite ledger URL is sqlite:///relative.db or sqlite:////absolute/path.db",
            )
        from custody_sync.ledger.sqlite import open_sqlite  # noqa: PLC0415  # one engine is loaded at a time

        return await open_sqlite(
            rest[1:], create=create, read_only=read_only, runtime=runtime, identity=identity
        )
    if scheme == "jsonl":
        if not rest.startswith("/") or len(rest) < 2:
            raise InvalidInput(
                field="ledger",
                problem="a JSONL ledger URL is jsonl:///relative.jsonl or jsonl:////absolute/path.jsonl",
            )
        from custody_sync.ledger.jsonl import open_jsonl  # noqa: PLC0415  # as above

        return await open_jsonl(
            rest[1:], create=create, read_only=read_only, runtime=runtime, identity=identity
        )
    if scheme in ("postgresql", "postgres"):
        try:
            from custody_sync.ledger.postgres import open_postgres  # noqa: PLC0415  # as above
        except ImportError:
            raise MissingExtra(feature="a Postgres ledger", extra="postgres") from None
        return await open_postgres(
            f"{scheme}://{rest}", create=create, read_only=read_only, runtime=runtime, identity=identity
        )
    raise InvalidInput(field="ledger", problem=f"no ledger storage is called {_safe(scheme)!r}; {FORMS}")


def _safe(scheme: str) -> str:
    return scheme[:20] if scheme.isalnum() else "?"


__all__ = [
    "CLAIMS",
    "DUE",
    "ERASURE",
    "MOVED",
    "NOTEBOOK",
    "USED",
    "USES",
    "Account",
    "AsOf",
    "Compared",
    "Held",
    "Identity",
    "Mark",
    "Note",
    "Storage",
    "Unaccounted",
    "Waiting",
    "Way",
    "open_storage",
]
