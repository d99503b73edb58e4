"""What the coordinator's operations answer: records that say what was seen and what was not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from custody_sync.model import Erasure, Fact, Leftover, Outcome


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
class WriteResult:
    """A recorded fact (also of `confirm`): where it is held, and what had to go or come back for it."""

    fact: Fact
    placements: Mapping[str, tuple[str, ...]]
    removals: tuple[Removal, ...] = ()
    restored: tuple[Restored, ...] = ()
    complete: bool = True
    duplicate: bool = False
    """True when an idempotency key answered with an earlier write's result."""


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
    """What the stores say a deletion leaves behind (pages until a VACUUM, backups), one sentence each."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairResult:
    """What one sweep found and did.

    `young` and `undated` are entries the ledger does not stand behind but may not touch yet;
    `unlisted` names stores that cannot list; `still_held` and `unrecorded` are one sentence each.
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
    erasure: Erasure = Erasure.DONE
    dry_run: bool = False
    complete: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyResult:
    """What the stores answered about every removed fact; nothing asked is never complete."""

    asked: int
    removals: tuple[Removal, ...]
    complete: bool
