"""What can be asked of a ledger: each question is checked, then answered by the storage at one head."""

from __future__ import annotations

import hmac
import json
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from custody_sync.canonical import (
    MAX_SAFE_INTEGER,
    canonical,
    check_instant,
    check_name,
    check_optional,
    check_text,
)
from custody_sync.errors import InvalidInput, LedgerBroken
from custody_sync.ledger.outstanding import Outstanding
from custody_sync.ledger.questions import NOW, Instants, Trail
from custody_sync.ledger.storage import Account, AsOf, Compared, Held, Storage, Unaccounted, Waiting
from custody_sync.model import Entry, Event, Fact, Head, Page, Placement, PlacementState, Standing
from custody_sync.recalled import Followed, Link

MAX_PAGE = 10_000
ADOPTIONS = 4
"""An adoption whose outcome stays unknown, or that a restored ledger lacks, costs an entry one of its ids."""


class Asking(Outstanding):
    """The questions of a ledger.

    Args:
        storage: what answers them.
    """

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage)
        self._storage = storage

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
        """Return what was believed of the world at `valid_at`, as the ledger knew it at `tx_at`.

        Facts come in the order they were written. `tx_at` defaults to the committed head and
        `valid_at` to the later of the clock and that head. A fact forgotten since is listed
        without its value when asked for a time before the forget.

        Args:
            space: only facts of this space.
            subject: only facts about this subject.
            predicate: only facts with this predicate.
            valid_at: aware instant in the world's time.
            tx_at: aware instant in the ledger's time.
            include_claimed: also facts that still wait for a confirmation.
            limit: at most so many facts, up to 10,000.
            after: the `next` of the page before; with `tx_at` that page's `head.tx_time`, all pages
                are of one moment.
        """
        question = AsOf(
            space=check_optional(space, "space"),
            subject=check_optional(subject, "subject"),
            predicate=check_optional(predicate, "predicate"),
            valid_at=None if valid_at is None else check_instant(valid_at, "valid_at"),
            tx_at=None if tx_at is None else check_instant(tx_at, "tx_at"),
            include_claimed=include_claimed,
            limit=check_limit(limit),
            after=_check_after(after),
        )
        return await self._storage.as_of(question)

    async def get(self, fact_id: str) -> Fact | None:
        """Return a fact whatever its state, or None."""
        return await self._storage.get(check_name(fact_id, "fact_id"))

    async def facts(self, ids: Sequence[str]) -> dict[str, Fact | None]:
        """Return for each id its fact whatever its state, or None; any string will do.

        One question of one moment, whatever their number.
        """
        check_strings(ids, "ids")
        return await self._storage.facts(ids)

    async def history(self, fact_id: str, *, limit: int = 1000, after: int | None = None) -> Page[Event]:
        """Return everything that happened to a fact id, oldest first; empty for an unknown id."""
        return await self._storage.history(
            check_name(fact_id, "fact_id"), check_limit(limit), _check_after(after)
        )

    async def spaces(self, *, limit: int | None = None, after: str = "") -> list[str]:
        """Return every space that has facts, sorted; with a `limit`, pass the last one as `after`."""
        return await self._storage.spaces(
            -1 if limit is None else check_limit(limit), check_text(after, "after")
        )

    async def accounts(
        self,
        *,
        space: str | None = None,
        subject: str | None = None,
        limit: int = 1000,
        after: int | None = None,
    ) -> Page[Account]:
        """Return what there is on facts, without their values, in the order they were learned.

        Whatever their state: claimed, retracted, superseded and forgotten ones as well. A fact whose
        identity was erased is in no space any more.
        """
        check_optional(space, "space")
        check_optional(subject, "subject")
        return await self._storage.accounts(space, subject, check_limit(limit), _check_after(after))

    async def known(self, ids: Sequence[str]) -> dict[str, Standing]:
        """Return for each fact id whether it was asserted, repaired, or is unknown; any string will do."""
        check_strings(ids, "ids")
        return await self._storage.known(ids)

    async def placements(self, fact_id: str) -> list[Placement]:
        """Return where a fact is or was held, in the order it was placed."""
        return await self._storage.placements(check_name(fact_id, "fact_id"))

    async def placements_of(self, ids: Sequence[str]) -> dict[str, list[Placement]]:
        """Return for each id what `placements` says of it, none of an unknown one; any string will do.

        One question of one moment, whatever their number.
        """
        check_strings(ids, "ids")
        return await self._storage.placements_of(ids)

    async def pending(self, *, limit: int = 1000, after: int | None = None) -> Page[Placement]:
        """Return placements that have to go and were not yet seen gone."""
        return await self._storage.placements_in(
            [PlacementState.DUE], check_limit(limit), _check_after(after)
        )

    async def removed(self, *, limit: int = 1000, after: int | None = None) -> Page[Placement]:
        """Return placements that had to go, gone or not."""
        states = [PlacementState.DUE, PlacementState.GONE]
        return await self._storage.placements_in(states, check_limit(limit), _check_after(after))

    async def ended(self, store: str, *, limit: int = 1000, after: int | None = None) -> Page[Placement]:
        """Return a store's current placements of facts whose validity is over."""
        check_name(store, "store")
        return await self._storage.ended(store, check_limit(limit), _check_after(after))

    async def owed(
        self, fact_id: str | None = None, *, limit: int = 1000, after: tuple[str, str] | None = None
    ) -> list[tuple[str, str]]:
        """Return (fact id, store) pairs where a believed fact is missing.

        It has begun since it was written, or its successor was retracted. The pairs come in order; pass the
        last one as `after` for the next page.
        """
        check_optional(fact_id, "fact_id")
        last = after or ("", "")
        for part in last:
            check_text(part, "after")
        return await self._storage.owed(fact_id, check_limit(limit), last)

    async def waiting(self, *, limit: int = 1000, after: int | None = None) -> Page[Waiting]:
        """Return which stores are owed what does not begin yet; `owed` gives them from then on.

        Facts come in the order they were written, and a page holds so many of them, each with all its
        stores.
        """
        return await self._storage.waiting(check_limit(limit), _check_after(after))

    async def unaccounted(
        self, store: str, pairs: Mapping[str, str], *, keep: bool = False
    ) -> list[Unaccounted]:
        """Of listed entries (external id → fact id), return those that are not current placements.

        Args:
            store: the store's name.
            pairs: a batch as the store listed it; ids that no ledger can hold are never accounted for.
            keep: whether the store's policy keeps entries of superseded facts.
        """
        check_name(store, "store")
        check_strings(pairs.keys(), "pairs")
        check_strings(pairs.values(), "pairs")
        return await self._storage.unaccounted(store, pairs, keep)

    async def compare(self, store: str, listed: Mapping[str, str], keep: bool = False) -> list[Compared]:
        """Say of every listed entry what there is on it; those that are current come with their facts.

        One answer an entry, in the order given.

        Args:
            store: the store's name.
            listed: external id → fact id, or "" of an entry without our label, as the store listed them.
            keep: whether the store's policy keeps entries of superseded facts.
        """
        check_name(store, "store")
        check_strings(listed.keys(), "listed")
        check_strings(listed.values(), "listed")
        return await self._storage.compare(store, listed, keep)

    async def held(self, store: str, *, limit: int = 1000, after: int | None = None) -> Page[Held]:
        """Return a store's current placements, kept ones included, of facts whose validity is not over.

        They come in the order in which they were put on record.
        """
        check_name(store, "store")
        return await self._storage.held(store, check_limit(limit), _check_after(after))

    async def lacking(self, store: str, *, limit: int = 1000, after: int | None = None) -> Page[str]:
        """Return the ids of facts that are believed now and that a store has no current placement of.

        Claims that nobody confirmed are not believed. Facts come in the order they were written.
        """
        check_name(store, "store")
        return await self._storage.lacking(store, check_limit(limit), _check_after(after))

    async def follow(
        self,
        entries: Sequence[Entry],
        *,
        valid_at: datetime | None = None,
        tx_at: datetime | None = None,
        include_claimed: bool = False,
    ) -> tuple[Instants, list[Followed]]:
        """Say where each entry that a store served leads: to the link of its chain believed at the instants.

        One question, whatever their number. An entry with a label belongs to the fact it names, one
        without to the fact that adopted it, also after that one's entry was seen gone: what came back is
        still its; only another text than the ledger has is somebody else's. The instants are those of
        `as_of`; with `include_claimed` a claim that waits leads to itself.

        Returns:
            the instants that were answered for, and one answer an entry, in the order given.
        """
        asked = _read_entries(entries)
        trail = _trail(valid_at, tx_at, include_claimed)
        if None in [entry.fact_id for entry in asked]:
            adopted = tuple(
                self.adopted_ids(entry.store, entry.external_id) if entry.fact_id is None else ()
                for entry in asked
            )
            trail = replace(trail, adopted=adopted)
        return await self._storage.follow(asked, trail)

    async def links(
        self, fact_ids: Sequence[str], *, valid_at: datetime | None = None, tx_at: datetime | None = None
    ) -> tuple[Instants, list[tuple[Link, ...]]]:
        """Return for each fact the whole chain of supersession it is in, oldest first, as known at `tx_at`.

        Retracted, claimed and forgotten links are in it, the latter without value and text; an unknown
        fact has none.
        """
        check_strings(fact_ids, "fact_ids")
        return await self._storage.links(list(fact_ids), _trail(valid_at, tx_at))

    def keyed_id(self, space: str, key: str, attempt: int = 0) -> str:
        """Return the fact id of an idempotency key: HMAC under this ledger's secret, as a UUIDv8."""
        return _id_of(self._storage.secret, canonical([space, key, attempt]))

    def adopted_ids(self, store: str, external_id: str) -> tuple[str, ...]:
        """Return the ids of which adopting gives an entry of a store the first that no repair has claimed."""
        # No write has an empty space, so that no idempotency key can come to the same id.
        key = canonical(["", json.dumps(["adopt", store, external_id])])[:-1]
        return tuple(_id_of(self._storage.secret, b"%b,%d]" % (key, number)) for number in range(ADOPTIONS))

    async def head(self) -> Head:
        """Return the last committed event's place, time and hash."""
        return await self._storage.head()

    async def export(self, *, page: int = 1000, after: int = 0) -> AsyncIterator[dict[str, Any]]:
        """Yield every event as stored: body, hash, and what is left of its sections with their salts.

        Args:
            page: how many are read at a time.
            after: the place in the log of the last one that is not wanted.

        Raises:
            LedgerBroken: the log does not go on after an event, so that reading it would never end.
        """
        after = _check_after(after)
        while rows := await self._storage.events(check_limit(page), after):
            for row in rows:
                yield row
            last = rows[-1]["event"]["seq"]
            if type(last) is not int or last <= after:
                problem = "it states another place in the log than its own"
                raise LedgerBroken(name=self._storage.name, seq=after + 1, problem=problem)
            after = last

    async def stored(self, seq: int) -> dict[str, Any] | None:
        """Return the event at a place in the log as `export` yields it, or None where there is none."""
        if type(seq) is not int:
            raise InvalidInput(field="seq", problem="must be a whole number")
        rows = await self._storage.events(1, seq - 1) if 1 <= seq <= MAX_SAFE_INTEGER else ()
        return rows[0] if rows and rows[0]["event"]["seq"] == seq else None


def _id_of(secret: bytes, message: bytes) -> str:
    raw = bytearray(hmac.digest(secret, message, "sha256")[:16])
    raw[6] = raw[6] & 0x0F | 0x80
    raw[8] = raw[8] & 0x3F | 0x80
    # By hand in half the time that `uuid` takes: following thousands of entries makes four ids of each.
    digits = raw.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _trail(valid_at: datetime | None, tx_at: datetime | None, include_claimed: bool = False) -> Trail:
    if valid_at is None and tx_at is None and not include_claimed:
        return NOW
    return Trail(
        valid_at=None if valid_at is None else check_instant(valid_at, "valid_at"),
        tx_at=None if tx_at is None else check_instant(tx_at, "tx_at"),
        include_claimed=include_claimed,
    )


def _read_entries(entries: object) -> list[Entry]:
    if isinstance(entries, Iterable) and not isinstance(entries, str):
        asked = list(entries)
        if all(isinstance(entry, Entry) for entry in asked):
            return asked
    raise InvalidInput(field="entries", problem="must be entries as a store shows them")


def check_limit(limit: int) -> int:
    """Return the size of a page, or refuse it."""
    if type(limit) is not int or not 1 <= limit <= MAX_PAGE:
        raise InvalidInput(field="limit", problem=f"must be a whole number from 1 to {MAX_PAGE}")
    return limit


def check_strings(texts: object, field: str) -> None:
    """Refuse what is no list of strings."""
    # One string would be read as an id a character.
    if isinstance(texts, str) or not isinstance(texts, Collection):
        raise InvalidInput(field=field, problem="must be a list of strings")
    # Looking at the types first is several times faster for a large batch of plain strings.
    if set(map(type, texts)) <= {str}:
        return
    if not all(isinstance(text, str) for text in texts):
        raise InvalidInput(field=field, problem="must be strings")


def _check_after(after: int | None) -> int:
    if after is None:
        return 0
    if type(after) is not int or not 0 <= after <= MAX_SAFE_INTEGER:
        raise InvalidInput(field="after", problem="must be the `next` of the page before")
    return after


__all__ = ["ADOPTIONS", "MAX_PAGE", "Asking", "check_limit", "check_strings"]
