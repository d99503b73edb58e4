"""Where facts lie in Letta: an archive for each scope, and an agent through which it can be read.

Letta lists an archive only through an agent it is attached to, and takes one archive per agent.
Archive names are not unique, and a create whose reply was lost has made one: so the id is claimed
in the ledger's notebook and the first claim stands. Until then an archive has neither name nor mark,
so that nobody else can have put anything into what the loser of a race deletes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from custody_sync.adapters._letta_api import Archive, LettaCalls
from custody_sync.adapters._scopes import LooseNotes, Scope
from custody_sync.errors import NoProof, StoreRefused
from custody_sync.ports import Notebook

_HOME, _READER = "archive ", "reader "
_UNCLAIMED = "custody-sync, not in use"


@dataclass(frozen=True, slots=True)
class Place:
    """One archive that holds the facts of a scope."""

    scope: str
    archive: Archive


class Places(Protocol):
    """How a store finds its archives and reads them."""

    def remember_in(self, notebook: Notebook) -> None:
        """Claim and look up in this notebook from now on."""
        ...

    async def home(self, scope: str) -> Place:
        """Return where a put into this scope goes, made and claimed if it is not there yet."""
        ...

    async def of_scope(self, operation: str, scope: str) -> Sequence[Place]:
        """Return every archive that may hold facts of a scope; makes none."""
        ...

    async def everywhere(self, operation: str) -> Sequence[Place]:
        """Return every archive that may hold facts of this store; makes none."""
        ...

    async def at(self, operation: str, archive: str, scope: str | None) -> Place:
        """Return one archive where an entry was put; raise unless it is there and can be read."""
        ...

    async def belongs(self, operation: str, archive: str, scope: str) -> bool:
        """Tell whether an archive is there and is one of a scope's."""
        ...

    async def reader(self, operation: str, place: Place) -> str:
        """Return an agent to which the archive is attached."""
        ...

    async def reads(self, operation: str, place: Place) -> bool:
        """Tell whether that agent reads the archive; if not, another is found for the next call."""
        ...

    async def is_lost(self, operation: str, place: Place) -> bool:
        """Tell whether the archive was deleted; the next put into its scope then gets another."""
        ...


class ArchivePlaces:
    """An archive of our own for each scope, named like it, and an agent of our own for each archive.

    Args:
        store: The store's name; it is part of what marks an archive as this store's.
        calls: The server.
        scope: How archives are named.
        model: The handle of the agents' model; nobody talks to them, but Letta makes none without.
        embedding: The handle of the embedding model.
    """

    def __init__(self, store: str, calls: LettaCalls, scope: Scope, *, model: str, embedding: str) -> None:
        self._notes: Notebook = LooseNotes()
        self._store = store
        self._calls = calls
        self._scope = scope
        self._model = model
        self._embedding = embedding
        self._mark = f"Facts kept by custody-sync, store {store}"
        self._known: dict[str, Archive] = {}
        self._readers: dict[str, str] = {}
        self._opening = asyncio.Lock()

    def remember_in(self, notebook: Notebook) -> None:
        """Claim and look up in this notebook from now on."""
        self._notes = notebook
        self._known.clear()
        self._readers.clear()

    async def home(self, scope: str) -> Place:
        """Return the claimed archive of a scope; claim the oldest of ours, or a new one.

        The notebook is asked each time: an erasure may have dropped the claim, or another process
        found the archive deleted.
        """
        known = await self._claimed(scope)
        if known is None:
            async with self._opening:
                known = await self._claimed(scope) or await self._open(scope)
        return Place(scope, known)

    async def of_scope(self, operation: str, scope: str) -> Sequence[Place]:
        """Return the archive that was claimed, and others of the name that carry our mark."""
        claimed = (await self._notes.read()).get(_HOME + scope)
        named = await self._calls.list_archives(operation, name=scope)
        same = (one for one in named if one.name == scope)
        found = [Place(scope, one) for one in same if one.description == self._mark or one.id == claimed]
        if claimed is not None and all(place.archive.id != claimed for place in found):
            # Renamed, or deleted: only the id tells.
            row = await self._calls.retrieve_archive(operation, claimed)
            found += [] if row is None else [Place(scope, row)]
        return found

    async def everywhere(self, operation: str) -> Sequence[Place]:
        """Return what was claimed, and every archive that carries our mark."""
        notes = await self._notes.read()
        scopes = {value: key.removeprefix(_HOME) for key, value in notes.items() if key.startswith(_HOME)}
        only = {} if self._scope.fixed is None else {"name": self._scope.fixed}
        rows = {one.id: one for one in await self._calls.list_archives(operation, **only)}
        for archive in scopes.keys() - rows.keys():
            row = await self._calls.retrieve_archive(operation, archive)
            rows |= {} if row is None else {archive: row}
        ours = (one for one in rows.values() if one.id in scopes or one.description == self._mark)
        return [Place(scopes.get(one.id, one.name), one) for one in ours]

    async def at(self, operation: str, archive: str, scope: str | None) -> Place:
        """Ask for the archive by its id: what another of the scope holds says nothing about this one."""
        row = await self._calls.retrieve_archive(operation, archive)
        if row is None:
            raise NoProof(store=self._store, operation=operation, cause="ArchiveDeleted")
        return Place(row.name if scope is None else scope, row)

    async def belongs(self, operation: str, archive: str, scope: str) -> bool:
        """Compare with the claim first: whatever an archive is called by now, it is the scope's."""
        if await self._notes.get(_HOME + scope) == archive:
            return True
        row = await self._calls.retrieve_archive(operation, archive)
        return row is not None and row.name == scope

    async def reader(self, operation: str, place: Place) -> str:
        """Return the agent noted for an archive, else the one named after it, else a new one."""
        archive = place.archive.id
        known = self._readers.get(archive)
        if known is None:
            async with self._opening:
                known = self._readers.get(archive) or await self._hire(operation, archive)
        return known

    async def reads(self, operation: str, place: Place) -> bool:
        """Ask which archive the agent has: of a deleted agent Letta lists nothing, without an error."""
        archive = place.archive.id
        agent = await self.reader(operation, place)
        if any(one.id == archive for one in await self._calls.archives_of(operation, agent)):
            return True
        if await self.is_lost(operation, place):
            raise NoProof(store=self._store, operation=operation, cause="ArchiveDeleted")
        self._readers.pop(archive, None)
        await self._notes.drop(_READER + archive, agent)
        return False

    async def is_lost(self, operation: str, place: Place) -> bool:
        """Ask for the archive by its id."""
        if await self._calls.retrieve_archive(operation, place.archive.id) is not None:
            return False
        self._known.pop(place.archive.id, None)
        return True

    # --- making ----------------------------------------------------------------------------

    async def _claimed(self, scope: str) -> Archive | None:
        return self._known.get(await self._notes.get(_HOME + scope) or "")

    async def _open(self, scope: str) -> Archive:
        # Read before the listing: a claim made after it names an archive that the listing lacks.
        claimed = await self._notes.get(_HOME + scope)
        found = [place.archive for place in await self.of_scope("put", scope)]
        mine = next((one for one in found if one.id == claimed), None)
        if claimed is not None and mine is None:
            # Somebody deleted it, and what it held with it.
            await self._notes.drop(_HOME + scope, claimed)
        made = None if found else await self._make()
        if mine is None:
            mine = made or found[0]
        stands = await self._notes.claim(_HOME + scope, mine.id)
        if stands != mine.id:
            mine = await self._yield_to(stands, made)
        if mine.name == _UNCLAIMED:
            mine = await self._calls.name_archive("put", mine.id, name=scope, description=self._mark)
        if mine.id not in self._readers:
            # What could not be listed must not be put: a wrong handle shows at the first put.
            await self._hire("put", mine.id)
        self._known[mine.id] = mine
        return mine

    async def _make(self) -> Archive:
        return await self._calls.create_archive(
            "put", name=_UNCLAIMED, description=None, embedding=self._embedding
        )

    async def _yield_to(self, stands: str, made: Archive | None) -> Archive:
        if made is not None:
            await self._calls.discard_archive("put", made.id)
        row = await self._calls.retrieve_archive("put", stands)
        if row is None:
            raise StoreRefused(store=self._store, operation="put", cause="ArchiveDeleted")
        return row

    async def _hire(self, operation: str, archive: str) -> str:
        noted = await self._notes.get(_READER + archive)
        # Agents' names take letters, digits, spaces, hyphens, underscores and apostrophes only.
        name = f"custody-{archive.removeprefix('archive-')}"
        agents = [noted] if noted is not None else await self._calls.agents_named(operation, name)
        for agent in agents:
            if await self._calls.attach(operation, archive, agent):
                return await self._noted(archive, agent)
        if noted is not None:
            await self._notes.drop(_READER + archive, noted)
        agent = await self._calls.create_agent(
            operation,
            name=name,
            model=self._model,
            embedding=self._embedding,
            description="Reads an archive for custody-sync; nobody talks to it. Do not delete.",
            tags=["source:custody-sync"],
        )
        if not await self._calls.attach(operation, archive, agent):
            await self._calls.discard_agent(operation, agent)
            raise StoreRefused(store=self._store, operation=operation, cause="ArchiveDeleted")
        stands = await self._noted(archive, agent)
        if stands != agent:
            await self._calls.discard_agent(operation, agent)
        return stands

    async def _noted(self, archive: str, agent: str) -> str:
        self._readers[archive] = await self._notes.claim(_READER + archive, agent)
        return self._readers[archive]


class AgentPlaces:
    """The archive that an agent of the caller's has, so that the agent itself recalls what is kept.

    Args:
        store: The store's name, for errors.
        calls: The server.
        scope: Which agent a fact belongs to.
    """

    def __init__(self, store: str, calls: LettaCalls, scope: Scope) -> None:
        self._notes: Notebook = LooseNotes()
        self._store = store
        self._calls = calls
        self._scope = scope
        self._known: dict[str, Archive] = {}
        self._opening = asyncio.Lock()

    def remember_in(self, notebook: Notebook) -> None:
        """Claim and look up in this notebook from now on."""
        self._notes = notebook
        self._known.clear()

    async def home(self, scope: str) -> Place:
        """Return the agent's archive; one that never kept anything gets one, as Letta itself does."""
        key = _HOME + scope
        known = self._known.get(await self._notes.get(key) or "")
        if known is not None:
            return Place(scope, known)
        async with self._opening:
            claimed = await self._notes.get(key)
            found = await self._current("put", scope)
            if claimed is not None and all(one.id != claimed for one in found):
                await self._notes.drop(key, claimed)
            if not found:
                await self._give(scope)
                found = await self._current("put", scope)
            if not found:
                raise StoreRefused(store=self._store, operation="put", cause="NoArchive")
            stands = await self._notes.claim(key, found[0].id)
            if stands != found[0].id:
                raise self._elsewhere("put")
            self._known[stands] = found[0]
            return Place(scope, found[0])

    async def of_scope(self, operation: str, scope: str) -> Sequence[Place]:
        """Return the agent's archive if it has one."""
        return [Place(scope, one) for one in await self._current(operation, scope)]

    async def everywhere(self, operation: str) -> Sequence[Place]:
        """Return the archives of the fixed agent, or of every agent that was ever written to."""
        if self._scope.fixed is not None:
            return await self.of_scope(operation, self._scope.fixed)
        keys = [key for key in await self._notes.read() if key.startswith(_HOME)]
        found = [await self.of_scope(operation, key.removeprefix(_HOME)) for key in keys]
        return [place for places in found for place in places]

    async def at(self, operation: str, archive: str, scope: str | None) -> Place:
        """Return the archive if the agent, or any that was ever written to, still reads it."""
        if scope is None:
            places = await self.everywhere(operation)
        else:
            places = [Place(scope, one) for one in await self._calls.archives_of(operation, scope)]
        for place in places:
            if place.archive.id == archive:
                return place
        if await self._calls.retrieve_archive(operation, archive) is None:
            raise NoProof(store=self._store, operation=operation, cause="ArchiveDeleted")
        raise self._elsewhere(operation)

    async def belongs(self, operation: str, archive: str, scope: str) -> bool:
        """Compare with the claim first: detached or not, that archive is where the agent's facts lie."""
        if await self._notes.get(_HOME + scope) == archive:
            return True
        return any(one.id == archive for one in await self._calls.archives_of(operation, scope))

    async def reader(self, operation: str, place: Place) -> str:
        """Return the caller's agent."""
        return place.scope

    async def reads(self, operation: str, place: Place) -> bool:
        """Raise unless the agent still has the archive."""
        found = await self._calls.archives_of(operation, place.scope)
        if any(one.id == place.archive.id for one in found):
            return True
        if await self.is_lost(operation, place):
            raise NoProof(store=self._store, operation=operation, cause="ArchiveDeleted")
        raise self._elsewhere(operation)

    async def is_lost(self, operation: str, place: Place) -> bool:
        """Ask for the archive by its id."""
        if await self._calls.retrieve_archive(operation, place.archive.id) is not None:
            return False
        self._known.pop(place.archive.id, None)
        return True

    async def _current(self, operation: str, scope: str) -> list[Archive]:
        """Return the agent's archive; refuse if what was written lies in one that it cannot read any more."""
        claimed = (await self._notes.read()).get(_HOME + scope)
        found = await self._calls.archives_of(operation, scope)
        if claimed is None or any(one.id == claimed for one in found):
            return found
        if await self._calls.retrieve_archive(operation, claimed) is not None:
            raise self._elsewhere(operation)
        return found

    def _elsewhere(self, operation: str) -> StoreRefused:
        return StoreRefused(store=self._store, operation=operation, cause="AgentHasAnotherArchive")

    async def _give(self, agent: str) -> None:
        state: Any = await self._calls.retrieve_agent("put", agent)
        embedding = state.embedding_config
        given = {} if embedding is None else {"embedding_config": embedding.model_dump(exclude_none=True)}
        made = await self._calls.create_archive(
            "put", name=f"{state.name}'s Archive", description="Made by custody-sync", **given
        )
        if not await self._calls.attach("put", made.id, agent):
            await self._calls.discard_archive("put", made.id)


__all__ = ["AgentPlaces", "ArchivePlaces", "Place", "Places"]
