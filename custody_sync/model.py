"""The records of custody: what is stated, where it is held, and what came of asking.

Everything here is a frozen, slotted dataclass or a lower-case `StrEnum`; nothing does I/O.
Instants are aware UTC `datetime`s; values are JSON as RFC 8785 can carry it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any, Generic, TypeAlias, TypeVar

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

SOURCE = "custody-sync"
LABEL_VERSION = 1
REPAIR_MIN_AGE = timedelta(minutes=10)
"""An unrecorded entry younger than this is never touched: its write may still be under way."""
PLACEMENT_MAX_AGE = REPAIR_MIN_AGE / 2
"""An append refuses placements older than this, so that it can never race the sweep."""
MAX_SKEW = timedelta(minutes=2)
"""How far apart two clocks of one installation may be before a write is refused."""
FREE_TEXT_PREDICATE = "memory"
ERASED_ID = "erased~"
"""What an external id begins with once an erasure of identity has taken it."""


class Provenance(StrEnum):
    """How far a fact may be believed."""

    CLAIMED = "claimed"
    """Quarantined: not read by default and in no store until it is confirmed."""
    ATTESTED = "attested"
    """Stated by a caller this process trusts."""
    VERIFIED = "verified"
    """Compared with evidence that the caller fetched."""


class EventKind(StrEnum):
    """What one ledger record says happened."""

    ASSERT = "assert"
    RETRACT = "retract"
    CONFIRM = "confirm"
    HOLD = "hold"
    RELEASE = "release"
    FORGET = "forget"
    REPAIR = "repair"
    PLACE = "place"
    REMOVE = "remove"


class Standing(StrEnum):
    """Who claimed a fact id first."""

    ASSERTED = "asserted"
    REPAIRED = "repaired"
    UNKNOWN = "unknown"


class Outcome(StrEnum):
    """How the removal of one entry ended; only `verified` ends it."""

    PLANNED = "planned"
    """A dry run would remove it; never on an event."""
    STARTED = "started"
    """Recorded before the first delete, so that a crash leaves a trace; only on events."""
    VERIFIED = "verified"
    """The store was asked, could have answered, and did not find it."""
    STILL_INDEXED = "still_indexed"
    """Deleted, yet every question still found it."""
    UNVERIFIED = "unverified"
    """Deleted, but the store cannot be asked or its answer proves nothing."""
    FAILED = "failed"
    """The delete itself failed, or was not allowed."""


class Leftover(StrEnum):
    """Why an entry was due for removal."""

    ORPHAN = "orphan"
    STRAY = "stray"
    PENDING = "pending"


class Erasure(StrEnum):
    """Whether an erased value has left the ledger's own files."""

    DONE = "done"
    PENDING = "pending"


class PlacementState(StrEnum):
    """Where a placement is in its life."""

    HELD = "held"
    """The store holds it and the ledger stands behind it."""
    KEPT = "kept"
    """Its fact is superseded, and a store's policy keeps superseded entries."""
    DUE = "due"
    """It has to go, and nobody has yet seen it gone."""
    GONE = "gone"
    """Its removal was verified."""


class Level(StrEnum):
    """How well a store supports a capability."""

    FULL = "full"
    PARTIAL = "partial"
    """Works within the limit that the reason names."""
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What the caller fetched to check a fact; `path` is a JSON pointer, a column, a page of the source."""

    source: str
    """A document, URL or system, as the caller names it."""
    path: str
    value: Json


@dataclass(frozen=True, slots=True)
class Support:
    """A support level and, unless it is full, the reason in one sentence."""

    level: Level
    reason: str = ""


class Capability(StrEnum):
    """What a store may offer beyond `put` and `delete`."""

    FIND = "find"
    LIST_ENTRIES = "list_entries"
    PUT_MANY = "put_many"
    RELABEL = "relabel"
    SEARCH = "search"
    VERIFY_DELETED = "verify_deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The largest text a store takes; None where it states no limit."""

    text_chars: int | None = None
    text_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One immutable statement, as proposed (`tx_time` None) or as the ledger reads it.

    A forgotten fact keeps its identity but has `value` and `text` None and `forgotten` True;
    forgotten with `identity=True`, its space, subject and predicate are empty strings too.
    """

    fact_id: str
    space: str
    subject: str
    predicate: str
    value: Json
    text: str | None
    actor: str
    provenance: Provenance
    valid_from: datetime
    valid_to: datetime | None = None
    supersedes: str | None = None
    receipt_id: str | None = None
    tx_time: datetime | None = None
    seq: int | None = None
    confirmed: bool = False
    forgotten: bool = False
    evidence: Observation | None = None
    """What the value was compared with and is equal to; erased with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """The custody metadata written beside the text: flat scalar keys, since vendors cap and flatten."""

    ledger_id: str
    fact_id: str
    space: str
    stored_at: datetime
    generation: str
    actor: str
    provenance: Provenance
    valid_from: datetime
    receipt_id: str | None = None

    @property
    def key(self) -> str:
        """The store key of this placement where we may choose it; a generation is never reused."""
        return f"{self.fact_id}.{self.generation}"

    def to_metadata(self) -> dict[str, str | int]:
        """Encode as seven flat scalars; what only we read stands in one JSON string, `custody`."""
        custody = {
            "actor": self.actor,
            "generation": self.generation,
            "provenance": self.provenance.value,
            "receipt_id": self.receipt_id,
            "valid_from": format_instant(self.valid_from),
        }
        return {
            "source": SOURCE,
            "v": LABEL_VERSION,
            "ledger_id": self.ledger_id,
            "fact_id": self.fact_id,
            "space": self.space,
            "stored_at": format_instant(self.stored_at),
            "custody": json.dumps(custody, separators=(",", ":"), sort_keys=True),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One thing a store holds: ours when `fact_id` and `ledger_id` are set, unlabelled when they are None."""

    store: str
    external_id: str
    fact_id: str | None = None
    scope: str | None = None
    stored_at: datetime | None = None
    text: str | None = None
    ledger_id: str | None = None
    space: str | None = None
    created_at: datetime | None = None
    generation: str | None = None
    custody: str | None = None
    """The label's `custody` as it stands there, empty where that is no text; None where nobody read it."""

    @classmethod
    def from_metadata(
        cls,
        metadata: Mapping[str, Any] | None,
        *,
        store: str,
        external_id: str,
        scope: str | None = None,
        text: str | None = None,
        created_at: datetime | None = None,
    ) -> Entry:
        """Read a label back from a store's metadata; what is not our label gives an unlabelled entry.

        An unreadable `stored_at` becomes None: the sweep then goes by the store's `created_at`.
        """
        meta: Mapping[str, Any] = metadata if isinstance(metadata, Mapping) else {}
        fact_id, ledger_id, space, custody = map(meta.get, ("fact_id", "ledger_id", "space", "custody"))
        ours = meta.get("source") == SOURCE and isinstance(fact_id, str) and isinstance(ledger_id, str)
        return cls(
            store=store,
            external_id=external_id,
            scope=scope,
            text=text,
            created_at=created_at,
            fact_id=fact_id if ours else None,
            ledger_id=ledger_id if ours else None,
            space=space if ours and isinstance(space, str) else None,
            stored_at=read_instant(meta.get("stored_at")) if ours else None,
            generation=_read_generation(custody) if ours else None,
            custody=(custody if isinstance(custody, str) else "") if ours else None,
        )


def _read_generation(custody: object) -> str | None:
    try:
        read = json.loads(custody) if isinstance(custody, str) else None
    except (ValueError, RecursionError):
        return None
    generation = read.get("generation") if isinstance(read, dict) else None
    return generation if isinstance(generation, str) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """An entry that a store's own search served, with the store's own score (higher is nearer)."""

    entry: Entry
    score: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The ledger's record that a store holds, or held, an entry of a fact."""

    store: str
    external_id: str
    fact_id: str
    scope: str | None
    stored_at: datetime | None
    state: PlacementState = PlacementState.HELD
    outcome: Outcome | None = None

    @property
    def erased(self) -> bool:
        """True once an erasure took the external id; the store can then only be asked by fact id."""
        return self.external_id.startswith(ERASED_ID)

    def to_entry(self, text: str | None = None) -> Entry:
        """Address the entry; with `text` while it is known, so that a store can be probed with it."""
        return Entry(
            store=self.store,
            external_id=self.external_id,
            fact_id=self.fact_id,
            scope=self.scope,
            stored_at=self.stored_at,
            text=text,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One append-only ledger record.

    `data` holds what can never be erased; `sealed` holds the erasable sections that are still
    there, by name (`content`, `identity`, `refs`). The hash covers a salted commitment of each.
    """

    seq: int
    event_id: str
    kind: EventKind
    tx_time: datetime
    actor: str
    receipt_id: str | None
    fact_id: str
    data: Mapping[str, Json]
    sealed: Mapping[str, Mapping[str, Json]]
    prev: str
    hash: str
    erased: tuple[str, ...] = ()
    """The sections that an erasure took; the hash still covers the commitments to them."""

    @property
    def reason(self) -> str | None:
        """Why the actor did it; None once an erasure took it."""
        reason = self.sealed.get("identity", {}).get("reason")
        return reason if isinstance(reason, str) else None


@dataclass(frozen=True, slots=True)
class Head:
    """The last committed event: its place, its time and its hash."""

    seq: int
    tx_time: datetime | None
    hash: str


T = TypeVar("T")


class Page(list[T], Generic[T]):
    """A list that says up to which ledger head it was read and where the next page starts.

    `next` is None on the last page; otherwise pass it as `after`.
    """

    __slots__ = ("head", "next")

    def __init__(self, items: list[T], *, head: Head, next: int | None) -> None:
        super().__init__(items)
        self.head = head
        self.next = next


def format_instant(instant: datetime) -> str:
    """Write an aware instant as UTC with microseconds, fixed width, so that text order is time order."""
    # Only in UTC are equal instants the same text, whatever their fold.
    return _format_utc(instant if instant.tzinfo is UTC else instant.astimezone(UTC))


@lru_cache(maxsize=1024)
def _format_utc(instant: datetime) -> str:
    return f"{instant.isoformat(timespec='microseconds')[:26]}Z"


def read_instant(raw: object) -> datetime | None:
    """Read an aware ISO 8601 instant; None for anything else, a naive one included."""
    if isinstance(raw, str):
        try:
            raw = datetime.fromisoformat(raw)
        except ValueError:
            return None
    if not isinstance(raw, datetime):
        return None
    if type(raw) is datetime and raw.tzinfo is UTC:
        return raw
    try:
        # A time zone is somebody's code: it may overflow, know no offset here, or fail.
        return raw.astimezone(UTC) if raw.utcoffset() is not None else None
    except Exception:
        return None
