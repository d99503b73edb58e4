"""The ledger: one append-only log with a total order, whatever engine keeps it."""

from __future__ import annotations

import hashlib
import hmac
import uuid
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self

from custody_sync.canonical import (
    MAX_SAFE_INTEGER,
    canonical,
    check_instant,
    check_name,
    check_optional,
    check_text,
)
from custody_sync.errors import InvalidInput, LedgerBroken
from custody_sync.ledger.chain import Prepared, prepare
from custody_sync.ledger.checks import check_calendar, check_draft
from custody_sync.ledger.drafts import Digest, Draft
from custody_sync.ledger.replaying import Stored, read_stored
from custody_sync.ledger.storage import Account, AsOf, Note, Storage, Unaccounted, open_storage
from custody_sync.model import Erasure, Event, Fact, Head, Page, Placement, PlacementState, Standing
from custody_sync.runtime import Runtime

MAX_PAGE = 10_000


class Ledger:
    """A ledger of facts. Open it with `Ledger.open`; it is an async context manager.

    Reads take effect at one committed head and say which; nothing is cached between calls, so
    what another process appends is seen at once.
    """

    def __init__(self, storage: Storage, runtime: Runtime, forget_key: bytes | None) -> None:
        self._storage = storage
        self._runtime = runtime
        self._forget_key = forget_key

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        create: bool = False,
        read_only: bool = False,
        runtime: Runtime | None = None,
        forget_key: bytes | None = None,
    ) -> Self:
        """Open a ledger; never create one unless asked, so that a mistyped path is an error.

        Args:
            url: `sqlite:///relative.db` or `sqlite:////absolute/path.db`, with `jsonl` for a log of readable
                lines; the path is taken literally.
            create: make the ledger if it is missing; an existing one is opened as it is.
            read_only: open for reading even where writing is possible.
            runtime: clock, ids and threads; the real ones by default.
            forget_key: key of the digests that an erasure may leave; keep it outside the ledger.

        Raises:
            InvalidInput: the URL is of no known form.
            LedgerError: missing, damaged, too new, or not readable.
        """
        runtime = runtime or Runtime()
        if not isinstance(url, str):
            raise InvalidInput(field="ledger", problem="must be a URL such as sqlite:///custody.db")
        if forget_key is not None and (type(forget_key) is not bytes or len(forget_key) < 16):
            raise InvalidInput(field="forget_key", problem="must be at least 16 bytes")
        storage = await open_storage(url, create=create, read_only=read_only, runtime=runtime)
        return cls(storage, runtime, forget_key)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of files and threads; what was acknowledged stays."""
        await self._storage.close()

    @property
    def ledger_id(self) -> str:
        """Identify this ledger in the labels of entries."""
        return self._storage.ledger_id

    @property
    def name(self) -> str:
        """Say where the ledger is, without secrets."""
        return self._storage.name

    @property
    def writable(self) -> bool:
        """Tell whether this handle may append."""
        return self._storage.writable

    @property
    def notices(self) -> tuple[str, ...]:
        """Say what was found and mended since it was opened, such as a line that a dead process left half."""
        return self._storage.notices

    def now(self) -> datetime:
        """Return the ledger's own clock.

        Raises:
            LedgerError: it stands at an end of the calendar, where nothing can be dated any more.
        """
        return check_calendar(self._runtime.clock.now(), self.name, "its clock says")

    # --- appending --------------------------------------------------------------------------

    async def append(self, draft: Draft) -> Event:
        """Append one event and return it once it is durable.

        The same draft again returns the event it became: that is how an unknown outcome is settled.

        Raises:
            Refused: a subclass names the rule; nothing was appended.
            OutcomeUnknown: the commit may or may not have happened.
            LedgerError: nothing was appended.
        """
        return await self._storage.commit(self._prepare(draft))

    async def check(self, draft: Draft) -> None:
        """Raise what `append` would raise now, without appending."""
        await self._storage.check(self._prepare(draft))

    def _prepare(self, draft: Draft) -> Prepared:
        check_draft(draft)
        return prepare(draft, self._runtime.ids)

    def digest(self, value: object, alg: str | None) -> Digest | None:
        """Return the digest that an erasure of a value may leave.

        `alg` None means `hmac-sha256` where a key was given and nothing where not; a plain
        `sha256` of a short value can be guessed, so it has to be asked for.
        """
        chosen = alg or ("hmac-sha256" if self._forget_key is not None else "none")
        if chosen == "none":
            return None
        body = canonical(value)
        if chosen == "sha256":
            return Digest(chosen, hashlib.sha256(body).hexdigest())
        if chosen != "hmac-sha256":
            raise InvalidInput(field="digest", problem="must be hmac-sha256, sha256 or none")
        if self._forget_key is None:
            raise InvalidInput(
                field="digest", problem="hmac-sha256 needs the ledger opened with a forget_key"
            )
        return Digest(chosen, hmac.new(self._forget_key, body, hashlib.sha256).hexdigest())

    def keyed_id(self, space: str, key: str, attempt: int = 0) -> str:
        """Return the fact id of an idempotency key: HMAC under this ledger's secret, as a UUIDv8."""
        message = canonical([space, key, attempt])
        raw = bytearray(hmac.new(self._storage.secret, message, hashlib.sha256).digest()[:16])
        raw[6] = raw[6] & 0x0F | 0x80
        raw[8] = raw[8] & 0x3F | 0x80
        return str(uuid.UUID(bytes=bytes(raw)))

    async def erase(self) -> Erasure:
        """Complete what forgets left: drive erased values out of the ledger's files.

        It does not wait for other readers: while one stands in the way the answer is `pending`.
        """
        return await self._storage.erase()

    # --- reading ----------------------------------------------------------------------------

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
            limit=_check_limit(limit),
            after=_check_after(after),
        )
        return await self._storage.as_of(question)

    async def get(self, fact_id: str) -> Fact | None:
        """Return a fact whatever its state, or None."""
        return await self._storage.get(check_name(fact_id, "fact_id"))

    async def history(self, fact_id: str, *, limit: int = 1000, after: int | None = None) -> Page[Event]:
        """Return everything that happened to a fact id, oldest first; empty for an unknown id."""
        return await self._storage.history(
            check_name(fact_id, "fact_id"), _check_limit(limit), _check_after(after)
        )

    async def spaces(self, *, limit: int | None = None, after: str = "") -> list[str]:
        """Return every space that has facts, sorted; with a `limit`, pass the last one as `after`."""
        return await self._storage.spaces(
            -1 if limit is None else _check_limit(limit), check_text(after, "after")
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
        return await self._storage.accounts(space, subject, _check_limit(limit), _check_after(after))

    async def known(self, ids: Sequence[str]) -> dict[str, Standing]:
        """Return for each fact id whether it was asserted, repaired, or is unknown; any string will do."""
        _check_strings(ids, "ids")
        return await self._storage.known(ids)

    async def placements(self, fact_id: str) -> list[Placement]:
        """Return where a fact is or was held, in the order it was placed."""
        return await self._storage.placements(check_name(fact_id, "fact_id"))

    async def pending(self, *, limit: int = 1000, after: int | None = None) -> Page[Placement]:
        """Return placements that have to go and were not yet seen gone."""
        return await self._storage.placements_in(
            [PlacementState.DUE], _check_limit(limit), _check_after(after)
        )

    async def removed(self, *, limit: int = 1000, after: int | None = None) -> Page[Placement]:
        """Return placements that had to go, gone or not."""
        states = [PlacementState.DUE, PlacementState.GONE]
        return await self._storage.placements_in(states, _check_limit(limit), _check_after(after))

    async def ended(self, store: str, *, limit: int = 1000, after: int | None = None) -> Page[Placement]:
        """Return a store's current placements of facts whose validity is over."""
        check_name(store, "store")
        return await self._storage.ended(store, _check_limit(limit), _check_after(after))

    async def owed(
        self, fact_id: str | None = None, *, limit: int = 1000, after: tuple[str, str] | None = None
    ) -> list[tuple[str, str]]:
        """Return (fact id, store) pairs where a believed fact is missing since its successor was retracted.

        The pairs come in order; pass the last one as `after` for the next page.
        """
        check_optional(fact_id, "fact_id")
        last = after or ("", "")
        for part in last:
            check_text(part, "after")
        return await self._storage.owed(fact_id, _check_limit(limit), last)

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
        _check_strings(pairs.keys(), "pairs")
        _check_strings(pairs.values(), "pairs")
        return await self._storage.unaccounted(store, pairs, keep)

    async def head(self) -> Head:
        """Return the last committed event's place, time and hash."""
        return await self._storage.head()

    async def export(self, *, page: int = 1000) -> AsyncIterator[dict[str, Any]]:
        """Yield every event as stored: body, hash, and what is left of its sections with their salts."""
        after = 0
        while rows := await self._storage.events(_check_limit(page), after):
            for row in rows:
                yield row
            after = rows[-1]["event"]["seq"]

    async def restore(self, events: Iterable[object]) -> None:
        """Append events that another ledger exported, as they are, right after this one's head.

        All or none: each must follow the one before, be what its hash says, and obey the rules.

        Args:
            events: a page of what `export` yields, up to 10,000.

        Raises:
            LedgerBroken: says of which event what is wrong.
        """
        read: list[Stored] = []
        for row in events:
            try:
                read.append(read_stored(row))
            except ValueError as error:
                seq = (await self.head()).seq + len(read) + 1
                raise LedgerBroken(name=self.name, seq=seq, problem=str(error)) from None
        await self._storage.restore(read)

    # --- notes beside the log ---------------------------------------------------------------

    async def acquire(self, topic: str, key: str, *, holder: str, value: str, ttl: timedelta) -> Note:
        """Take or renew a lease; the note returned says who holds it now and until when."""
        for field, text in (("topic", topic), ("key", key), ("value", value), ("holder", holder)):
            check_text(text, field)
        return await self._storage.acquire(topic, key, value, holder, ttl)

    async def put_notes(self, notes: Sequence[Note]) -> None:
        """Keep working notes (a sweep's spool) beside the log."""
        for note in notes:
            for field, text in (("topic", note.topic), ("key", note.key), ("value", note.value)):
                check_text(text, field)
            check_optional(note.holder, "holder")
        await self._storage.put_notes(notes)

    async def notes(self, topic: str, *, limit: int = 1000, after: str = "") -> list[Note]:
        """Return working notes in order of key."""
        check_text(topic, "topic")
        return await self._storage.notes(topic, _check_limit(limit), check_text(after, "after"))

    async def drop_notes(
        self, topic: str, keys: Sequence[str] | None = None, *, holder: str | None = None
    ) -> None:
        """Remove working notes."""
        await self._storage.drop_notes(topic, keys, holder)


def _check_limit(limit: int) -> int:
    if type(limit) is not int or not 1 <= limit <= MAX_PAGE:
        raise InvalidInput(field="limit", problem=f"must be a whole number from 1 to {MAX_PAGE}")
    return limit


def _check_strings(texts: Collection[object], field: str) -> None:
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


__all__ = ["Ledger"]
