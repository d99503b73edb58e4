"""What every storage answers that keeps its rows in SQLite: one question, one read transaction each."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from custody_sync.ledger import sqlite_notes as beside
from custody_sync.ledger import sqlite_outstanding as outstanding
from custody_sync.ledger import sqlite_reads as reads
from custody_sync.ledger.checks import check_calendar
from custody_sync.ledger.outstanding import About, Backlog, Removed, RemovedCount
from custody_sync.ledger.questions import Instants, Trail
from custody_sync.ledger.rows import Derived
from custody_sync.ledger.sqlite_asof import as_of
from custody_sync.ledger.sqlite_comparing import compare, held, lacking
from custody_sync.ledger.sqlite_derived import blocks, derived
from custody_sync.ledger.sqlite_structure import structure
from custody_sync.ledger.sqlite_trails import follow, links
from custody_sync.ledger.storage import Account, AsOf, Compared, Held, Mark, Note, Unaccounted, Waiting, Way
from custody_sync.model import Entry, Event, Fact, Head, Page, Placement, PlacementState, Standing
from custody_sync.recalled import Followed, Link
from custody_sync.runtime import Runtime

FEW = 100
"""Answers of so many rows take a moment."""


@dataclass(frozen=True, slots=True)
class NoteWork:
    """Work inside a write transaction that is no draft, and the marks that refuse it."""

    do: Callable[[sqlite3.Connection], Any]
    stops: tuple[Way, ...] = ()


class Answering(ABC):
    """The questions and the notes of `Storage`, over one way to read and one to write.

    Args:
        name: what errors call the ledger.
        runtime: the clock.
    """

    def __init__(self, name: str, runtime: Runtime) -> None:
        self.name = name
        self._runtime = runtime

    @property
    def notices(self) -> tuple[str, ...]:
        """What was found and mended since it was opened, in sentences."""
        return ()

    @property
    def remains(self) -> tuple[str, ...]:
        """What an erasure does not reach: nothing, where all files are ours."""
        return ()

    @abstractmethod
    async def _read(self, query: Callable[..., Any], *args: Any) -> Any:
        """Ask one question of the committed state."""

    @abstractmethod
    async def _read_briefly(self, query: Callable[..., Any], *args: Any) -> Any:
        """Ask one question that takes a moment."""

    @abstractmethod
    async def _write(self, work: NoteWork) -> Any:
        """Do work on notes in a write transaction."""

    def _now(self) -> datetime:
        return check_calendar(self._runtime.clock.now(), self.name, "its clock says")

    async def as_of(self, question: AsOf) -> Page[Fact]:
        """Answer an as-of question in one read transaction."""
        # A page of everything in the past looks at facts that were no longer believed: more than a moment.
        is_wide = question.tx_at is not None and question.space is None and question.subject is None
        ask = self._read if is_wide or question.limit > FEW else self._read_briefly
        page: Page[Fact] = await ask(as_of, question, self._runtime.clock.now())
        return page

    async def get(self, fact_id: str) -> Fact | None:
        """Return a fact whatever its state."""
        fact: Fact | None = await self._read_briefly(reads.get, fact_id)
        return fact

    async def facts(self, ids: Sequence[str]) -> dict[str, Fact | None]:
        """Return facts by id whatever their state."""
        found: dict[str, Fact | None] = await self._ask_about(ids, reads.facts)
        return found

    async def history(self, fact_id: str, limit: int, after: int) -> Page[Event]:
        """Return one fact's events in order."""
        page: Page[Event] = await self._read_briefly(reads.history, fact_id, limit, after)
        return page

    async def events(self, limit: int, after: int) -> list[dict[str, Any]]:
        """Return stored events, sections and salts included, in order."""
        ask = self._read_briefly if limit <= FEW else self._read
        rows: list[dict[str, Any]] = await ask(reads.events, limit, after)
        return rows

    async def spaces(self, limit: int, after: str) -> list[str]:
        """Return the spaces that have facts."""
        found: list[str] = await self._read_briefly(reads.spaces, limit, after)
        return found

    async def accounts(self, space: str | None, subject: str | None, limit: int, after: int) -> Page[Account]:
        """Return what there is on facts, a page at a time."""
        page: Page[Account] = await self._read(reads.accounts, space, subject, limit, after)
        return page

    async def known(self, ids: Sequence[str]) -> dict[str, Standing]:
        """Return the standing of every id."""
        found: dict[str, Standing] = await self._ask_about(ids, reads.known)
        return found

    async def _ask_about(self, ids: Sequence[str], query: Callable[..., Any]) -> Any:
        """Ask one question about many ids."""
        ask = self._read_briefly if len(ids) <= FEW else self._read
        return await ask(query, list(ids))

    async def placements(self, fact_id: str) -> list[Placement]:
        """Return a fact's placements."""
        found: list[Placement] = await self._read_briefly(reads.placements, fact_id)
        return found

    async def placements_of(self, ids: Sequence[str]) -> dict[str, list[Placement]]:
        """Return placements by fact id."""
        found: dict[str, list[Placement]] = await self._ask_about(ids, reads.placements_of)
        return found

    async def placements_in(
        self, states: Sequence[PlacementState], limit: int, after: int
    ) -> Page[Placement]:
        """Return placements by state, a page at a time."""
        page: Page[Placement] = await self._read(reads.placements_in, list(states), limit, after)
        return page

    async def ended(self, store: str, limit: int, after: int) -> Page[Placement]:
        """Return a store's placements whose facts have ended, a page at a time."""
        now = self._runtime.clock.now()
        page: Page[Placement] = await self._read(reads.ended, store, limit, after, now)
        return page

    async def owed(self, fact_id: str | None, limit: int, after: tuple[str, str]) -> list[tuple[str, str]]:
        """Return what is owed, of one fact or of all."""
        now = self._runtime.clock.now()
        found: list[tuple[str, str]] = await self._read(reads.owed, fact_id, limit, after, now)
        return found

    async def waiting(self, limit: int, after: int) -> Page[Waiting]:
        """Return what is owed once it begins, a page at a time."""
        page: Page[Waiting] = await self._read(reads.waiting, limit, after, self._runtime.clock.now())
        return page

    async def unaccounted(self, store: str, pairs: Mapping[str, str], keep: bool) -> list[Unaccounted]:
        """Return the listed entries that are not current placements."""
        now = self._runtime.clock.now()
        found: list[Unaccounted] = await self._read(reads.unaccounted, store, dict(pairs), keep, now)
        return found

    async def compare(self, store: str, listed: Mapping[str, str], keep: bool) -> list[Compared]:
        """Say of every listed entry what there is on it."""
        now = self._runtime.clock.now()
        found: list[Compared] = await self._read(compare, store, dict(listed), keep, now)
        return found

    async def held(self, store: str, limit: int, after: int) -> Page[Held]:
        """Return a store's current placements, a page at a time."""
        page: Page[Held] = await self._read(held, store, limit, after, self._runtime.clock.now())
        return page

    async def lacking(self, store: str, limit: int, after: int) -> Page[str]:
        """Return the facts that a store lacks, a page at a time."""
        page: Page[str] = await self._read(lacking, store, limit, after, self._runtime.clock.now())
        return page

    async def follow(self, entries: Sequence[Entry], trail: Trail) -> tuple[Instants, list[Followed]]:
        """Say of every entry where it leads."""
        ask = self._read_briefly if len(entries) <= FEW else self._read
        found: tuple[Instants, list[Followed]]
        found = await ask(follow, list(entries), trail, self._runtime.clock.now())
        return found

    async def links(self, fact_ids: Sequence[str], trail: Trail) -> tuple[Instants, list[tuple[Link, ...]]]:
        """Return the chains of facts."""
        ask = self._read_briefly if len(fact_ids) <= FEW else self._read
        found: tuple[Instants, list[tuple[Link, ...]]]
        found = await ask(links, list(fact_ids), trail, self._runtime.clock.now())
        return found

    async def removed_facts(self, about: About, limit: int, after: int) -> Page[Removed]:
        """Return facts of which something had to go, a page at a time."""
        page: Page[Removed] = await self._read(outstanding.removed_facts, about, limit, after)
        return page

    async def count_removed(self, about: About) -> RemovedCount:
        """Count the facts of which something had to go."""
        count: RemovedCount = await self._read(outstanding.count_removed, about)
        return count

    async def backlog(self) -> list[Backlog]:
        """Return what is still to do by store."""
        found: list[Backlog] = await self._read(outstanding.backlog, self._runtime.clock.now())
        return found

    async def head(self) -> Head:
        """Return the committed head."""
        head: Head = await self._read_briefly(reads.head)
        return head

    async def derived(self, limit: int, after: str) -> tuple[Head, list[Derived]]:
        """Return what is kept beside the log, by fact id."""
        found: tuple[Head, list[Derived]] = await self._read(derived, limit, after)
        return found

    async def blocks(self) -> tuple[Head, dict[int, int]]:
        """Return by block of the log the last event that changed one of its facts."""
        found: tuple[Head, dict[int, int]] = await self._read(blocks)
        return found

    async def structure(self) -> list[str]:
        """Return what of the database is not as this version makes it."""
        found: list[str] = await self._read(structure)
        return found

    async def notes(self, topic: str, limit: int, after: str = "") -> list[Note]:
        """Return a topic's notes in order of key."""
        ask = self._read_briefly if limit <= FEW else self._read
        found: list[Note] = await ask(beside.page, topic, limit, after)
        return found

    async def notes_at(self, topic: str, keys: Sequence[str]) -> dict[str, Note]:
        """Return a topic's notes by key."""
        ask = self._read_briefly if len(keys) <= FEW else self._read
        found: dict[str, Note] = await ask(beside.at, topic, list(keys))
        return found

    # --- notes ------------------------------------------------------------------------------

    async def acquire(self, topic: str, key: str, value: str, holder: str, ttl: timedelta | None) -> Note:
        """Set a note unless another holder's stands; return the one that stands now."""
        note: Note = await self._write(
            NoteWork(
                lambda conn: beside.acquire(conn, topic, key, value, holder, ttl, self._now()), tuple(Way)
            )
        )
        return note

    async def put_notes(self, notes: Sequence[Note], *, arriving: bool = False) -> None:
        """Set notes in one transaction."""
        stops = (Way.TO,) if arriving else tuple(Way)
        await self._write(NoteWork(lambda conn: beside.put(conn, notes), stops))

    async def drop_notes(
        self, topic: str, keys: Sequence[str] | None = None, holder: str | None = None
    ) -> None:
        """Remove notes of a topic, by key or holder where given."""
        await self._write(NoteWork(lambda conn: beside.drop(conn, topic, keys, holder)))

    async def mark(self) -> Mark | None:
        """Return what stops the ledger."""
        found: Mark | None = await self._read_briefly(beside.mark)
        return found

    async def set_mark(self, was: Mark | None, mark: Mark | None) -> bool:
        """Put a mark in another one's place."""
        done: bool = await self._write(NoteWork(lambda conn: beside.set_mark(conn, was, mark, self._now())))
        return done
