"""Typed drafts: what a caller asks the ledger to append.

A draft carries an event id that its caller made. Appending the same draft again is therefore
harmless, and is how an unknown outcome is settled: the second append answers with the event
that the first one committed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from custody_sync.model import Fact, Outcome, Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class Assert:
    """A fact is stated, and `placements` are the entries that stores already hold of it."""

    event_id: str
    fact: Fact
    placements: tuple[Placement, ...] = ()
    kept: tuple[str, ...] = ()
    """Stores whose policy keeps the entries of a superseded predecessor."""
    request: str | None = None
    """Digest of the request behind an idempotency key."""
    owes: tuple[str, ...] = ()
    """Stores that are owed the fact once it begins; none of `placements` is in one of them."""
    adopted: bool = False
    """Whether the stores held these entries before anybody knew of the fact, so that they may be old."""

    @property
    def fact_id(self) -> str:
        """The asserted fact's id."""
        return self.fact.fact_id

    @property
    def actor(self) -> str:
        """Who states it."""
        return self.fact.actor

    @property
    def receipt_id(self) -> str | None:
        """The fact's receipt."""
        return self.fact.receipt_id


@dataclass(frozen=True, slots=True, kw_only=True)
class _Act:
    event_id: str
    fact_id: str
    actor: str
    receipt_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retract(_Act):
    """A fact was never so; what it covered is believed again."""

    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirm(_Act):
    """A claimed fact is taken over as believed."""

    reason: str | None = None
    placements: tuple[Placement, ...] = ()
    kept: tuple[str, ...] = ()
    owes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold(_Act):
    """A fact must not be forgotten while the hold stands; holds stack."""

    hold_id: str
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Release(_Act):
    """One hold ends."""

    hold_id: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Digest:
    """What may remain of an erased value: the algorithm's name and the digest in hex."""

    alg: str
    hex: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Forget(_Act):
    """A fact's value and text are erased, with `identity` also what it was about."""

    reason: str | None = None
    digest: Digest | None = None
    identity: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair(_Act):
    """A fact id that nobody asserted is claimed for ever; without store it only claims the id."""

    reason: str | None = None
    store: str | None = None
    external_id: str | None = None
    scope: str | None = None
    stored_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Place(_Act):
    """A believed fact was put into a store again."""

    placements: tuple[Placement, ...]
    replaces: tuple[tuple[str, str], ...] = ()
    """(Store, external id) of entries of the fact that have to go, since these came in their place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remove(_Act):
    """The outcome of removing one entry changed."""

    store: str
    external_id: str
    outcome: Outcome
    scope: str | None = None
    stored_at: datetime | None = None
    detail: str = ""


Draft: TypeAlias = Assert | Retract | Confirm | Hold | Release | Forget | Repair | Place | Remove
