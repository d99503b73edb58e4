"""The ledger: one append-only log with a total order, whatever engine keeps it."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

from custody_sync.canonical import (
    canonical,
    check_optional,
    check_text,
)
from custody_sync.errors import InvalidInput, LedgerBroken
from custody_sync.ledger.asking import Asking, check_limit, check_strings
from custody_sync.ledger.chain import Prepared, prepare
from custody_sync.ledger.checks import check_calendar, check_draft
from custody_sync.ledger.drafts import Digest, Draft
from custody_sync.ledger.replaying import Stored, read_stored
from custody_sync.ledger.storage import (
    Identity,
    Mark,
    Note,
    Storage,
    Way,
    open_storage,
)
from custody_sync.ledger.verifying import Verification, verify
from custody_sync.ledger.whereabouts import Whereabouts
from custody_sync.ledger.witness import Witness, has, witness_folder
from custody_sync.model import Erasure, Event, Head
from custody_sync.runtime import Runtime


class Ledger(Asking):
    """A ledger of facts. Open it with `Ledger.open`; it is an async context manager.

    Reads take effect at one committed head and say which; nothing is cached between calls, so
    what another process appends is seen at once.
    """

    def __init__(
        self, storage: Storage, runtime: Runtime, forget_key: bytes | None, witnesses: Path | None
    ) -> None:
        super().__init__(storage)
        self._runtime = runtime
        self._forget_key = forget_key
        self._witness = Witness(witnesses, storage, runtime)
        self._mark: Mark | None = None

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        create: bool = False,
        read_only: bool = False,
        runtime: Runtime | None = None,
        forget_key: bytes | None = None,
        witness: os.PathLike[str] | str | bool | None = None,
        identity: Identity | None = None,
    ) -> Self:
        """Open a ledger; never create one unless asked, so that a mistyped path is an error.

        Args:
            url: `sqlite:///relative.db` or `sqlite:////absolute/path.db`, with `jsonl` for a log of readable
                lines; the path is taken literally. `postgresql://user:password@host/database`, with
                `?schema=name` for another one than custody_sync and `?vacuum=false` where a forget must not
                rewrite tables; everything else is libpq's.
            create: make the ledger if it is missing; an existing one is opened as it is.
            read_only: open for reading even where writing is possible.
            runtime: clock, ids and threads; the real ones by default.
            forget_key: key of the digests that an erasure may leave; keep it outside the ledger.
            witness: the folder of the file that keeps the last head; False for none, else where
                CUSTODY_SYNC_WITNESS says or in the user's state folder.
            identity: whom a new ledger takes the place of; an existing one has to have its id. With the
                `identity` of an open ledger a new one takes events of its own only after a `move` from there.

        Raises:
            InvalidInput: the URL is of no known form, or the ledger there is another one.
            LedgerError: missing, damaged, too new, or not readable.
        """
        runtime = runtime or Runtime()
        if not isinstance(url, str):
            raise InvalidInput(field="ledger", problem="must be a URL such as sqlite:///custody.db")
        if forget_key is not None and (type(forget_key) is not bytes or len(forget_key) < 16):
            raise InvalidInput(field="forget_key", problem="must be at least 16 bytes")
        storage = await open_storage(
            url, create=create, read_only=read_only, runtime=runtime, identity=identity
        )
        opened = cls(storage, runtime, forget_key, witness_folder(witness))
        try:
            if identity is not None and identity.ledger_id != opened.ledger_id:
                raise InvalidInput(field="ledger", problem="is another ledger than the one to be moved there")
            if storage.writable:
                await opened.mark()
        except BaseException:
            await storage.close()
            raise
        return opened

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of files and threads; what was acknowledged stays."""
        try:
            await self._witness.settle()
        finally:
            try:
                await self._storage.close()
            finally:
                await self._witness.close()

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
    def identity(self) -> Identity:
        """What makes this ledger the one it is; whoever has the secret can tell the ids of keyed writes."""
        return Identity(self._storage.ledger_id, self._storage.secret, self.name)

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that it is in; none where a server keeps it."""
        return self._storage.files

    @property
    def witness(self) -> Witness:
        """The file that keeps the last head away from the ledger."""
        return self._witness

    @property
    def notices(self) -> tuple[str, ...]:
        """Say what was found and mended since it was opened, such as a line that a dead process left half."""
        said = [*self._storage.notices]
        if self._witness.problem is not None:
            said.append(self._witness.problem)
        if self._mark is not None:
            said.append(self._mark.notice)
        return tuple(said)

    @property
    def remains(self) -> tuple[str, ...]:
        """Say what an erasure does not reach, such as backups of a server; one sentence each."""
        return self._storage.remains

    async def whereabouts(self) -> Whereabouts:
        """Return where the ledger is, in words that a copy of it does not share, and its server's time."""
        return await self._storage.whereabouts()

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
            LedgerMoved: it goes on in another place.
            LedgerArriving: it is to go on here, and the move is not complete.
            OutcomeUnknown: the commit may or may not have happened.
            LedgerError: nothing was appended.
        """
        event = await self._storage.commit(self._prepare(draft))
        self._witness.saw(Head(event.seq, event.tx_time, event.hash))
        return event

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

    async def erase(self) -> Erasure:
        """Complete what forgets left: drive erased values out of the ledger's files.

        It does not wait for other readers: while one stands in the way the answer is `pending`.
        """
        return await self._storage.erase()

    # --- the whole log ----------------------------------------------------------------------

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
        if read:
            self._witness.saw(Head(read[-1].seq, read[-1].tx_time, read[-1].hash))

    async def verify(
        self, head: Head | Iterable[Head] | None = None, *, witness: bool = True, replay: bool = True
    ) -> Verification:
        """Check the whole ledger: its log, heads kept elsewhere, and whether its answers follow from the log.

        Args:
            head: what was seen of this ledger before, one head or several.
            witness: whether to ask this ledger's witness as well.
            replay: whether to replay the log and compare; it takes about as long as appending it did.
        """
        heads = [head] if isinstance(head, Head) else list(head or ())
        seen = await self._witness.read() if witness else None
        if seen is not None:
            heads.append(seen)
        unread: list[str] = []
        if witness and seen is None and self._witness.path is not None:
            none = "the witness: there is none of a ledger with this id"
            unread = [self._witness.problem or none] if heads or self._witness.problem else []
        return await verify(self._storage, self._runtime, heads, replay=replay, not_checked=unread)

    async def has(self, head: Head) -> bool:
        """Tell whether an event with this place and hash is in the log, whatever ledger the head is of."""
        return await has(self._storage, head)

    # --- being moved ------------------------------------------------------------------------

    async def mark(self) -> Mark | None:
        """Return what stops this ledger: that it was moved, or that a move to here is not complete."""
        self._mark = await self._storage.mark()
        return self._mark

    async def set_mark(self, was: Mark | None, way: Way, place: str) -> Mark | None:
        """Stop this ledger from now on; return the new mark, or None if another one stands than was expected.

        No two marks are the same, so whoever set one knows whether it is still their own.
        """
        mark = Mark(way, place, self._runtime.ids.fact_id(self.now()))
        if not await self._storage.set_mark(was, mark):
            return None
        self._mark = mark
        return mark

    async def drop_mark(self, was: Mark) -> bool:
        """Let this ledger take events again, if that mark is the one that stands."""
        if not await self._storage.set_mark(was, None):
            return False
        self._mark = None
        return True

    # --- notes beside the log ---------------------------------------------------------------

    async def acquire(self, topic: str, key: str, *, holder: str, value: str, ttl: timedelta | None) -> Note:
        """Take or renew a lease; the note returned says who holds it now and until when (None: for good)."""
        for field, text in (("topic", topic), ("key", key), ("value", value), ("holder", holder)):
            check_text(text, field)
        return await self._storage.acquire(topic, key, value, holder, ttl)

    async def put_notes(self, notes: Sequence[Note], *, arriving: bool = False) -> None:
        """Keep working notes (a sweep's spool) beside the log; `arriving` where a move brings them here."""
        for note in notes:
            for field, text in (("topic", note.topic), ("key", note.key), ("value", note.value)):
                check_text(text, field)
            check_optional(note.holder, "holder")
        await self._storage.put_notes(notes, arriving=arriving)

    async def notes(self, topic: str, *, limit: int = 1000, after: str = "") -> list[Note]:
        """Return working notes in order of key."""
        check_text(topic, "topic")
        return await self._storage.notes(topic, check_limit(limit), check_text(after, "after"))

    async def notes_at(self, topic: str, keys: Sequence[str]) -> dict[str, Note]:
        """Return working notes by key, of these keys; one that no note has is left out."""
        check_text(topic, "topic")
        check_strings(keys, "keys")
        return await self._storage.notes_at(topic, keys)

    async def drop_notes(
        self, topic: str, keys: Sequence[str] | None = None, *, holder: str | None = None
    ) -> None:
        """Remove working notes."""
        await self._storage.drop_notes(topic, keys, holder)


__all__ = ["Ledger"]
