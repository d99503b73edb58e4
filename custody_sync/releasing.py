"""Letting go of what stores noted of a space, once an erasure of identity has left nothing of it.

A claim must not go while an entry may lie where only it makes a listing look. So the stores are
looked at first; where that cannot be decided now, the space stays due until `repair` has seen it.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing

from custody_sync.canonical import canonical
from custody_sync.errors import CustodyError, InvalidStore, StoreError
from custody_sync.ledger import Ledger
from custody_sync.ledger.storage import CLAIMS, DUE, ERASURE, USED, USES, Note
from custody_sync.model import REPAIR_MIN_AGE, Capability
from custody_sync.notebook import Need, StoreNotebook, at, beginning, claimed, needing, space_id
from custody_sync.runtime import Runtime
from custody_sync.shown import Circle, Spoiled
from custody_sync.stores import Gate, describe

LOOK = 1000
"""Entries of a store that a forget looks through; one with more is left to `repair`, which lists it all."""
_NOTHING = '""'
_UNKNOWN = "a store that is not configured here"


async def nobody() -> None:
    """Tell nobody."""


class Notebooks:
    """The notebooks of a coordinator's stores.

    Args:
        ledger: keeps them.
        gates: the configured stores by name; those that can take a notebook are given theirs.
        runtime: ids.
    """

    def __init__(self, ledger: Ledger, gates: Mapping[str, Gate], runtime: Runtime) -> None:
        self._ledger = ledger
        self._gates = gates
        self._runtime = runtime
        self._books: dict[str, StoreNotebook] = {}
        for name, gate in gates.items():
            remember = getattr(gate.store, "remember_in", None)
            if inspect.iscoroutinefunction(remember):
                raise InvalidStore(
                    store=name, problem="has an async remember_in(); it must be a plain method"
                )
            if callable(remember):
                self._books[name] = StoreNotebook(ledger, name, runtime)
                remember(self._books[name])

    async def renew(self, need: Need) -> None:
        """See that what a put relied on stands, now that its fact is recorded."""
        with needing(need.space):
            for (store, key), value in need.claims.items():
                await self._books[store].renew(key, value)

    async def owe(self, space: str) -> None:
        """Note, before a fact loses its space, that the space's claims may have to go."""
        space_hash = space_id(self._ledger, space)
        async for _ in beginning(self._ledger, USED, f"{space_hash}.", page=1):
            said = canonical({"space": space}).decode()
            await self._ledger.put_notes(
                [Note(topic=DUE, key=space_hash, value=said, since=self._ledger.now())]
            )
            return

    async def are_due(self) -> bool:
        """Tell whether anything of an erased space may still be noted."""
        return bool(await self._ledger.notes(DUE, limit=1))

    async def settle(
        self,
        *,
        most: int | None = LOOK,
        empty: str | None = None,
        tell: Callable[[], Awaitable[None]] = nobody,
    ) -> tuple[str, ...]:
        """Let go of what is due, and say in sentences what has to stay for now and why.

        Args:
            most: how many entries of a store to look through; None for all.
            empty: a space of which every store that lists was just seen to hold nothing.
            tell: called with each page that was looked at.
        """
        due = await self._due()
        needed: dict[str, set[str]] = {}
        for space, rows in due.items():
            for row in rows:
                needed.setdefault(_store_of(row), set()).add(space)
        kept = {store: await self._needed_by(store, due, most, empty, tell) for store in needed}
        for space, rows in due.items():
            free = [row for row in rows if space not in kept[_store_of(row)]]
            if free or not rows:
                await self._release(space, free, whole=len(free) == len(rows))
        said = [why for by_space in kept.values() for why in by_space.values()]
        return tuple(dict.fromkeys(said))

    async def _due(self) -> dict[str, list[str]]:
        """Return the claims by space of the spaces that have no fact any more; the others are not due."""
        due: dict[str, list[str]] = {}
        async for note in beginning(self._ledger, DUE, ""):
            said = json.loads(note.value)
            space = said["space"] if isinstance(said, dict) else None
            if space is None or await self._is_live(space):
                await self._ledger.drop_notes(DUE, [note.key])
                continue
            prefix = f"{note.key}."
            due[space] = [
                used.key.removeprefix(prefix) async for used in beginning(self._ledger, USED, prefix)
            ]
        return due

    async def _is_live(self, space: str) -> bool:
        return bool(await self._ledger.accounts(space=space, limit=1))

    # --- whether a store may still hold something of a space --------------------------------

    async def _needed_by(
        self,
        store_id: str,
        due: Mapping[str, list[str]],
        most: int | None,
        empty: str | None,
        tell: Callable[[], Awaitable[None]],
    ) -> dict[str, str]:
        """Return why each space's claims in a store have to stay, of those that do."""
        spaces = {space for space, rows in due.items() if any(_store_of(row) == store_id for row in rows)}
        gate = self._gate(store_id)
        if gate is None:
            return dict.fromkeys(spaces, _stays(_UNKNOWN, "it cannot be asked"))
        if await self._has_pending(gate.name):
            return dict.fromkeys(spaces, _stays(gate.name, "removals are pending"))
        unseen = spaces - {empty}
        if not unseen or not gate.can(Capability.LIST_ENTRIES):
            return {}
        return await self._look(gate, unseen, most, tell)

    def _gate(self, store_id: str) -> Gate | None:
        names = {self._ledger.keyed_id("notebook", name): gate for name, gate in self._gates.items()}
        return names.get(store_id)

    async def _has_pending(self, store: str) -> bool:
        after: int | None = None
        while True:
            page = await self._ledger.pending(limit=LOOK, after=after)
            if any(row.store == store for row in page):
                return True
            after = page.next
            if after is None:
                return False

    async def _look(
        self, gate: Gate, spaces: set[str], most: int | None, tell: Callable[[], Awaitable[None]]
    ) -> dict[str, str]:
        """Return of which spaces a store lists entries; of all, where its listing does not tell."""
        found: dict[str, str] = {}
        circle, seen = Circle(), 0
        problem = ""
        try:
            async with aclosing(gate.pages(LOOK)) as pages:
                async for page in pages:
                    seen += len(page)
                    rows = [row for row in page if not isinstance(row, Spoiled)]
                    ours = {row.space for row in rows if row.ledger_id == self._ledger.ledger_id}
                    found |= dict.fromkeys(spaces & ours, _stays(gate.name, "it lists entries"))
                    if len(rows) < len(page) or None in ours:
                        problem = "it lists entries that cannot be told apart"
                    elif circle.length_in(page) is not None:
                        problem = "its listing runs in a circle"
                    elif most is not None and seen >= most:
                        problem = "it holds too much to look through now"
                    if problem:
                        break
                    await tell()
        except StoreError as error:
            problem = f"it cannot list: {describe(error)}"
        return found if not problem else dict.fromkeys(spaces, _stays(gate.name, problem))

    # --- letting go -------------------------------------------------------------------------

    async def _release(self, space: str, rows: list[str], *, whole: bool) -> None:
        """Drop what only this space needed, and have the ledger's files cleared of it.

        Blanked in the transaction that makes the erasure due, so that no crash leaves a value that
        nobody is after; and only what we blanked is dropped, since it may be claimed anew at once.
        """
        ledger, token, hashed = self._ledger, self._runtime.ids.event_id(), space_id(self._ledger, space)
        now, alone = ledger.now(), [row for row in rows if not await self._is_used(row, but=hashed)]
        lapsed = now - REPAIR_MIN_AGE
        values = {row: note for row in alone if (note := await at(ledger, CLAIMS, row)) is not None}
        blank = [
            Note(topic=CLAIMS, key=row, value=_NOTHING, holder=token, since=now, expires_at=lapsed)
            for row in values
        ]
        if whole:
            blank.append(Note(topic=DUE, key=hashed, value=_NOTHING, since=now))
        erasure = Note(topic=ERASURE, key=f"notebook {token}", value="identity", holder=token, since=now)
        await ledger.put_notes([*blank, erasure])
        await ledger.drop_notes(CLAIMS, list(values), holder=token)
        await ledger.drop_notes(USES, [f"{row}.{hashed}" for row in rows])
        await ledger.drop_notes(USED, [f"{hashed}.{row}" for row in rows])
        if whole:
            await ledger.drop_notes(DUE, [hashed])
        for row, note in values.items():
            if await self._is_live(space) or await self._is_used(row, but=hashed):
                await self._put_back(space, row, note)

    async def _is_used(self, row: str, *, but: str) -> bool:
        async for note in beginning(self._ledger, USES, f"{row}.", page=2):
            if note.key != f"{row}.{but}":
                return True
        return False

    async def _put_back(self, space: str, row: str, note: Note) -> None:
        """Claim anew what somebody began to need while it was let go of."""
        key, value = claimed(note)
        gate = self._gate(_store_of(row))
        if key is None or value is None or gate is None:
            return
        book = StoreNotebook(self._ledger, gate.name, self._runtime)
        if not await self._is_live(space):
            await book.claim(key, value)
            return
        with needing(space):
            await book.claim(key, value)


def _store_of(row: str) -> str:
    return row.partition(".")[0]


def _stays(store: str, why: str) -> str:
    return f"{store}: where it keeps the erased space stays noted until `custody-sync repair` ({why})"


async def settled(notebooks: Notebooks, *, empty: str | None = None) -> tuple[str, ...]:
    """Let go of what is due, after a forget; where the ledger fails, say so."""
    try:
        return await notebooks.settle(empty=empty)
    except CustodyError as error:
        return (f"what stores noted of the erased space was not looked at ({error.code})",)


__all__ = ["Notebooks", "settled"]
