"""What had to go and what is still to do: the questions of whoever verifies, and of whoever looks on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from custody_sync.canonical import MAX_SAFE_INTEGER, check_instant, check_name
from custody_sync.errors import InvalidInput
from custody_sync.model import Page, Placement

MAX_PAGE = 10_000
UNTRIED = "untried"
"""What stands in place of an outcome where a removal was ordered and nothing came of it yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """Which removals a question is about; None is any."""

    space: str | None = None
    """A space, or its beginning and a `*`."""
    since: datetime | None = None
    """Only facts whose removal, or anything about it, was recorded then or later."""

    def checked(self) -> About:
        """Refuse what no ledger can be asked."""
        if self.space is not None:
            check_name(self.space, "space")
        if self.since is not None:
            check_instant(self.since, "since")
        return self


@dataclass(frozen=True, slots=True)
class Removed:
    """A fact id of which something had to go, with all that is on record of where it is or was."""

    place: int
    """The place in the log of the first of them that had to go, which is also the order of a page."""
    fact_id: str
    placements: tuple[Placement, ...]


@dataclass(frozen=True, slots=True)
class RemovedCount:
    """How many facts had to go, and which stores the ledger has entries of them on record for."""

    facts: int
    stores: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What is still to do in one store."""

    store: str
    by_outcome: Mapping[str, int] = field(default_factory=dict)
    """Removals that were not verified, by what came of them last; entries of facts that ended among them."""
    oldest: datetime | None = None
    """When the first of them was ordered, or its fact ended."""
    owed: int = 0
    """Facts that are to be placed there."""
    waiting: int = 0
    """Facts whose time to be placed there has not come."""
    next_waiting: datetime | None = None


class OutstandingStorage(Protocol):
    """The part of a storage that answers these questions."""

    async def removed_facts(self, about: About, limit: int, after: int) -> Page[Removed]:
        """Return facts of which something had to go, in order of place."""
        ...

    async def count_removed(self, about: About) -> RemovedCount:
        """Count the same."""
        ...

    async def backlog(self) -> list[Backlog]:
        """Return what is still to do by store, in order of name; a store without anything is left out."""
        ...


class Outstanding:
    """The questions themselves; a ledger is one.

    Args:
        storage: what answers them.
    """

    def __init__(self, storage: OutstandingStorage) -> None:
        self._outstanding = storage

    async def removed_facts(
        self, about: About | None = None, *, limit: int = 500, after: int | None = None
    ) -> Page[Removed]:
        """Return facts of which an entry had to go, gone or not, each with all its placements.

        Repaired ids are among them, and facts that are believed again.
        """
        about = (about or About()).checked()
        if type(limit) is not int or not 1 <= limit <= MAX_PAGE:
            raise InvalidInput(field="limit", problem=f"must be a whole number from 1 to {MAX_PAGE}")
        if after is not None and (type(after) is not int or not 0 <= after <= MAX_SAFE_INTEGER):
            raise InvalidInput(field="after", problem="must be the `next` of the page before")
        return await self._outstanding.removed_facts(about, limit, after or 0)

    async def count_removed(self, about: About | None = None) -> RemovedCount:
        """Count the facts that `removed_facts` gives, and name the stores that they were in."""
        return await self._outstanding.count_removed((about or About()).checked())

    async def backlog(self) -> list[Backlog]:
        """Return what is still to do, by store; a store where nothing is left is not named.

        It costs what there is to do, however much was done before.
        """
        return await self._outstanding.backlog()


__all__ = [
    "UNTRIED",
    "About",
    "Backlog",
    "Outstanding",
    "OutstandingStorage",
    "Removed",
    "RemovedCount",
]
