"""What the coordinator's operations answer: records that say what was seen and what was not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from custody_sync.model import Erasure, Fact, Head, Leftover, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """What became of one entry that had to go.

    `external_id` is empty where a store could not be asked what it holds.
    """

    store: str
    external_id: str
    outcome: Outcome
    detail: str = ""
    fact_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """A fact that became believed again and was owed to a store; no ids and a detail where the put failed."""

    fact_id: str
    store: str
    external_ids: tuple[str, ...] = ()
    detail: str = ""

    @property
    def placed(self) -> bool:
        """True when the store holds it and the ledger recorded it."""
        return bool(self.external_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Relabelled:
    """An entry whose label had to change with its fact: it did, or still says what was, and why."""

    store: str
    external_id: str
    detail: str = ""

    @property
    def done(self) -> bool:
        """True when the store took the new label."""
        return not self.detail


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    """A recorded fact (also of `confirm`): where it is held, and what had to go or come back for it."""

    fact: Fact
    placements: Mapping[str, tuple[str, ...]]
    removals: tuple[Removal, ...] = ()
    restored: tuple[Restored, ...] = ()
    complete: bool = True
    duplicate: bool = False
    """True when an idempotency key answered with an earlier write's result."""
    relabelled: tuple[Relabelled, ...] = ()
    """Entries that were there before a `confirm`. An old label is no reason for `complete` to be False:
    what may be believed is the ledger's to say."""
    waiting: tuple[str, ...] = ()
    """Stores that are to have it only once it begins; `repair` places it then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetractResult:
    """A recorded retraction; `complete` is False while any store may still hold it."""

    fact_id: str
    removals: tuple[Removal, ...]
    restored: tuple[Restored, ...]
    complete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetResult:
    """A recorded erasure; `complete` needs every removal verified and `erasure` done."""

    fact_id: str
    removals: tuple[Removal, ...]
    restored: tuple[Restored, ...]
    erasure: Erasure
    complete: bool
    notes: tuple[str, ...] = ()
    """What stores and ledger say they leave behind (pages until a VACUUM, backups), one sentence each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldResult:
    """A recorded hold, or the end of one, and which holds stand on the fact now."""

    fact_id: str
    hold_id: str
    holds: tuple[str, ...]


class Fate(StrEnum):
    """What became of one of many facts that were to be forgotten."""

    PLANNED = "planned"
    """A dry run would forget it."""
    FORGOTTEN = "forgotten"
    """The ledger erased it; whether the stores did is in the removals."""
    HELD = "held"
    """A hold stands, so nothing was done to it."""
    FAILED = "failed"
    """It is not recorded as forgotten, or nobody can say; the detail names the error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactFate:
    """One fact of an expiry or of an erasure of many: what became of it, in the ledger and in each store."""

    fact_id: str
    space: str
    fate: Fate
    holds: tuple[str, ...] = ()
    removals: tuple[Removal, ...] = ()
    detail: str = ""

    @property
    def complete(self) -> bool:
        """True when it is forgotten and every store was seen not to have it."""
        gone = all(removal.outcome is Outcome.VERIFIED for removal in self.removals)
        return self.fate is Fate.FORGOTTEN and gone


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetManyResult:
    """What became of facts that were named to be forgotten; `stopped` is the code of what ended it early."""

    facts: tuple[FactFate, ...]
    erasure: Erasure | None
    """What is left of the values in the ledger's files; None where nothing was erased."""
    notes: tuple[str, ...]
    stopped: str | None
    complete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireResult:
    """What one expiry did. A hold keeps its fact, is named, and leaves nothing incomplete.

    `cutoffs` says by pattern of spaces before which instant a fact had to be learned, or superseded;
    `stopped` is the code of the error that ended the run early: running it again goes on.
    """

    age_from: str
    cutoffs: Mapping[str, datetime]
    facts: tuple[FactFate, ...]
    erasure: Erasure | None = None
    """What is left of the values in the ledger's files; None where nothing was erased."""
    notes: tuple[str, ...] = ()
    stopped: str | None = None
    dry_run: bool = False
    complete: bool = True

    def with_fate(self, fate: Fate) -> tuple[FactFate, ...]:
        """Return the facts that ended in one way."""
        return tuple(fact for fact in self.facts if fact.fate is fate)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetWhereResult:
    """The certificate of an erasure over a space, or over one subject of it.

    It stands on `head` and `time` of the ledger. `complete` is true only when there was something to
    forget, all of it is forgotten, each store was seen not to have it, and nothing is named in
    `young`, `leftovers`, `later` and `not_reached`. `beyond` is what no such run can reach.
    """

    ledger_id: str
    space: str
    subject: str | None
    head: Head
    time: datetime
    facts: tuple[FactFate, ...]
    scanned: Mapping[str, int] = field(default_factory=dict)
    young: tuple[Seen, ...] = ()
    """Entries in these spaces that no event stands behind, too young to be told from a write under way."""
    leftovers: tuple[Seen, ...] = ()
    """Entries that should not be there and are old enough: run repair."""
    later: tuple[str, ...] = ()
    """Facts that were stated while this ran: run it again."""
    not_reached: tuple[str, ...] = ()
    beyond: tuple[str, ...] = ()
    erasure: Erasure | None = None
    """What is left of the values in the ledger's files; None where nothing was erased."""
    notes: tuple[str, ...] = ()
    stopped: str | None = None
    dry_run: bool = False
    complete: bool = True

    def with_fate(self, fate: Fate) -> tuple[FactFate, ...]:
        """Return the facts that ended in one way."""
        return tuple(fact for fact in self.facts if fact.fate is fate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """One entry that a repair took up."""

    store: str
    external_id: str
    fact_id: str
    kind: Leftover
    outcome: Outcome
    event_id: str | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """An entry that a repair saw and left alone."""

    store: str
    external_id: str
    fact_id: str
    since: datetime | None = None
    """When it was stored, if that is known: what is too young is old enough ten minutes later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A line of a plan that was not carried out, and why; settled if there is nothing left to do about it."""

    store: str
    external_id: str
    fact_id: str
    reason: str
    settled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Salvaged:
    """An orphan that became a claim instead of being removed; `entries` are external ids by store."""

    fact_id: str
    space: str
    entries: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairResult:
    """What one sweep found and did.

    `young` and `undated` are entries the ledger does not stand behind but may not touch yet;
    `unlisted` names stores that cannot list; `still_held` and `unrecorded` are one sentence each.
    Of a sweep that was resumed `scanned` counts all of it, and `repaired` what was still to do.
    """

    before: datetime
    scanned: Mapping[str, int] = field(default_factory=dict)
    repaired: tuple[Repaired, ...] = ()
    restored: tuple[Restored, ...] = ()
    young: tuple[Seen, ...] = ()
    undated: tuple[Seen, ...] = ()
    unlisted: tuple[str, ...] = ()
    still_held: tuple[str, ...] = ()
    unrecorded: tuple[str, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    """Lines of a plan that was applied and that did not hold any more."""
    salvaged: tuple[Salvaged, ...] = ()
    """Claims that wait for somebody to confirm or to retract them."""
    erasure: Erasure = Erasure.DONE
    dry_run: bool = False
    resumed: datetime | None = None
    """When the sweep began that an earlier call did not bring to its end and this one went on with."""
    left_over: int = 0
    """How many removals a limit left for the next time."""
    notices: tuple[str, ...] = ()
    """What a dry run has to say of a sweep that would be refused."""
    complete: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LastSweep:
    """What the last finished sweep of all stores and spaces came to, as the ledger's notes keep it.

    A sweep of some stores, of one space, of part of a listing, or up to an earlier instant is none.

    `scanned`, `orphans` and `strays` count by store what was listed and what had to go, `removed` what
    of that went and was seen gone.
    """

    finished_at: datetime
    complete: bool
    scanned: Mapping[str, int]
    orphans: Mapping[str, int]
    strays: Mapping[str, int]
    still_held: tuple[str, ...] = ()
    removed: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastReconcile:
    """What the last finished comparison of a ledger with its stores came to, as the ledger's notes keep it.

    `missing` and `altered` count by store what the ledger has and the store has not, or has otherwise.
    """

    finished_at: datetime
    complete: bool
    missing: Mapping[str, int]
    altered: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A part of a verification that was done in one go: when, and how many answers it brought."""

    since: datetime
    until: datetime
    asked: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyResult:
    """What the stores answered about every removed fact; nothing asked is never complete.

    `removals` are all answers of this run, or only those that prove nothing, where the caller was
    told the others one by one; of what an earlier part of a resumed run could not prove, the ledger
    keeps no external ids. `outcomes` counts everything, by store.
    """

    asked: int
    removals: tuple[Removal, ...]
    complete: bool
    outcomes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    parts: tuple[Asked, ...] = ()
    """Of a resumed run several: what was asked long ago may have changed since."""
    unnamed: int = 0
    """How many answers that prove nothing are counted and not among `removals`."""
    unfinished: datetime | None = None
    """When an earlier run over the same began that did not come to its end and was not resumed."""
    notes: tuple[str, ...] = ()
    """Which stores were given up on the way, one sentence each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How a store that did not answer is tried again: since when it has not, and when it is its turn."""

    failures: int
    since: datetime
    next_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStatus:
    """What the ledger knows of one store's pending work; the store itself was not asked."""

    store: str
    configured: bool
    pending: int = 0
    """Removals that nobody saw verified, and entries whose facts have ended."""
    by_outcome: Mapping[str, int] = field(default_factory=dict)
    """The same by what came of them last; `untried` where nothing did."""
    oldest_pending: datetime | None = None
    """When the first of them was ordered."""
    owed: int = 0
    """Facts that are to be placed there."""
    waiting: int = 0
    """Facts that are to be placed there when their time comes."""
    next_waiting: datetime | None = None
    retry: Retry | None = None
    """When the next try of a store is due that did not answer the last time; None where it did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What there is to do, as the ledger has it; it is answered with every store down."""

    ledger_id: str
    name: str
    head: Head
    time: datetime
    stores: tuple[StoreStatus, ...]
    erasure: Erasure
    """What is left of erased values in the ledger's files."""
    last_sweep: LastSweep | None
    sweeping: str | None
    """Who sweeps now, or None."""
    notices: tuple[str, ...] = ()
    last_reconcile: LastReconcile | None = None

    @property
    def pending(self) -> bool:
        """True when something is left to do; what waits for its time is not."""
        return self.erasure is Erasure.PENDING or any(store.pending or store.owed for store in self.stores)
