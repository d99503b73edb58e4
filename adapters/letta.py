"""Custody for the archival memory of a Letta V1 server (0.16.8, letta-client 1.12).

A fact is one passage: text, label as metadata, our ids as tags, created at the instant we stored
it. The server has no lookup by id and filters tags after its cut, so what proves something here is
its listing: by substring while the text is known, whole afterwards. It is in maintenance, its
repository archived: https://github.com/letta-ai/letta.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import aclosing
from itertools import zip_longest
from typing import TYPE_CHECKING

from custody_sync.adapters._letta_api import AT_MOST, Address, LettaCalls, NewPassage, Passage
from custody_sync.adapters._letta_places import AgentPlaces, ArchivePlaces, Place, Places
from custody_sync.adapters._letta_proof import Proof
from custody_sync.adapters._letta_turns import InTurn
from custody_sync.adapters._letta_walk import Walks
from custody_sync.adapters._scopes import Scope, Scoping
from custody_sync.errors import InvalidInput, NoProof, StoreRefused, StoreUnavailable
from custody_sync.model import SOURCE, Capability, Entry, Fact, Hit, Label, Level, Limits, Support
from custody_sync.ports import Notebook, Whose

if TYPE_CHECKING:
    from letta_client import AsyncLetta, Letta

_OURS = ("source:", "fact_id:", "ledger:")
_BATCH = 50
_SIDE_BY_SIDE = 8
_REMEMBERED = 10_000


class LettaStore:
    """Keep facts in Letta's archives.

    Two ways. With `archive`, every scope has an archive of our own and an agent of our own through
    which it is listed; the handles of a model and an embedding model are needed to make them. With
    `agent`, facts go into the archive that an agent of yours has, and the agent recalls them.

    Args:
        client: A `Letta` or an `AsyncLetta`, made with a `base_url`; its retries are not used.
        name: The store's name in a coordinator.
        archive: What archives are called: fixed, a template, by default `"{space}"`, or a function of
            the fact.
        agent: The id of the agent that a fact belongs to: fixed, or a function of the fact.
        model: The handle of a model, as in `client.models.list()`; nobody talks to our agents.
        embedding: The handle of an embedding model, as in `client.models.embeddings.list()`.
        tags: More tags for each passage, for your agents to filter by.
        cloud: Allow the vendor's own service, which a client without a `base_url` talks to.
        limits: The largest text the embedding model takes, if that is known; Letta states none.
        page_size: How many passages a page of a listing has, about 17 KB each.
        threads: How many calls of a `Letta` may run at once.
        executor: Runs these calls instead of own threads.
    """

    def __init__(
        self,
        client: Letta | AsyncLetta,
        *,
        name: str = "letta",
        archive: Scoping | None = None,
        agent: Scoping | None = None,
        model: str | None = None,
        embedding: str | None = None,
        tags: Sequence[str] = (),
        cloud: bool = False,
        limits: Limits | None = None,
        page_size: int = 100,
        threads: int = 16,
        executor: Executor | None = None,
    ) -> None:
        self.name = name
        self.limits = limits or Limits()
        if page_size < 2:
            raise InvalidInput(field="page_size", problem=f"{page_size} is not at least 2")
        self._tags = _checked_tags(tags)
        self._calls = LettaCalls(name, client, cloud=cloud, threads=threads, executor=executor)
        self._places: Places
        self._names_scopes = agent is None
        if agent is not None:
            if archive is not None or model is not None or embedding is not None:
                problem = (
                    "an agent has an archive and models of its own; leave out archive, model and embedding"
                )
                raise InvalidInput(field="agent", problem=problem)
            self._scope = Scope("agent", agent)
            self._places = AgentPlaces(name, self._calls, self._scope)
        else:
            self._scope = Scope("archive", "{space}" if archive is None else archive)
            if not model or not embedding:
                problem = (
                    "Letta lists an archive only through an agent: name the handles of a model and an "
                    "embedding model, as client.models.list() and client.models.embeddings.list() show them, "
                    "or an agent= of yours"
                )
                raise InvalidInput(field="model" if not model else "embedding", problem=problem)
            self._places = ArchivePlaces(name, self._calls, self._scope, model=model, embedding=embedding)
        self._walks = Walks(name, self._calls, self._places, page_size)
        self._proof = Proof(name, self._calls, self._places, self._walks, page_size)
        self._found = InTurn(self._find_all)
        self._recent: OrderedDict[str, str] = OrderedDict()
        self.capabilities = _capabilities(self._scope, cloud)

    def remember_in(self, notebook: Notebook) -> None:
        """Keep the ids of archives and agents in this notebook."""
        self._places.remember_in(notebook)

    # --- the two verbs ---------------------------------------------------------------------

    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        """Store one passage in the archive of the fact's scope."""
        new = self._passage(fact, label)
        scope = self._noted(fact)
        place = await self._places.home(scope)
        place, (made,) = await self._stored("put", scope, place, [new])
        return (self._confirmed("put", place, new, made),)

    async def put_many(self, items: Sequence[tuple[Fact, Label]]) -> Sequence[Sequence[str]]:
        """Store many passages, those of one scope in transactions of fifty."""
        by_scope: dict[str, list[int]] = {}
        made: dict[int, str] = {}
        new = [self._passage(fact, label) for fact, label in items]
        for n, (fact, _) in enumerate(items):
            by_scope.setdefault(self._noted(fact), []).append(n)
        for scope, numbers in by_scope.items():
            place = await self._places.home(scope)
            # Letta fails a batch into an archive without an embedding model, and stores single ones.
            size = _BATCH if place.archive.embeds else 1
            for start in range(0, len(numbers), size):
                some = numbers[start : start + size]
                place, rows = await self._stored("put_many", scope, place, [new[n] for n in some])
                for n, row in zip(some, rows, strict=True):
                    made[n] = self._confirmed("put_many", place, new[n], row)
        return [(made[n],) for n in range(len(items))]

    async def delete(self, entry: Entry) -> None:
        """Delete a passage through its archive, which reaches the vector database too.

        An entry whose scope has no such archive is left alone, and so is one that is not ours.
        """
        address = Address.of(entry.external_id)
        if address is None:
            raise StoreRefused(store=self.name, operation="delete", cause="NoArchiveInId")
        scope = entry.scope
        if scope is not None and not await self._places.belongs("delete", address.archive, scope):
            return
        is_ours = entry.ledger_id is None or await self._proof.whose("delete", address, entry) is Whose.OURS
        if not is_ours:
            return
        if not await self._calls.delete(address.archive, address.passage):
            raise StoreRefused(store=self.name, operation="delete", cause="InAnotherArchive")

    # --- what it can be asked --------------------------------------------------------------

    async def find(self, fact_id: str) -> list[Entry]:
        """Return every entry of a fact by reading the archives it may be in; Letta cannot look it up.

        A fact that this process put is looked for in its own scope, any other everywhere. Questions
        that come together share one reading.
        """
        return await self._found(fact_id)

    async def list_entries(self) -> AsyncIterator[Entry]:
        """Yield every passage of every archive of ours, without its text, a page at a time."""
        async with aclosing(self._passages()) as passages:
            async for place, passage in passages:
                yield self._walks.entry(place, passage, with_text=False)

    async def list_with_text(self) -> AsyncIterator[Entry]:
        """Yield every passage as `list_entries` does, with its text."""
        async with aclosing(self._passages()) as passages:
            async for place, passage in passages:
                yield self._walks.entry(place, passage)

    async def _passages(self) -> AsyncGenerator[tuple[Place, Passage]]:
        for place in await self._places.everywhere("list_entries"):
            async with aclosing(self._walks.walk("list_entries", place)) as passages:
                async for passage in passages:
                    yield place, passage

    async def verify_deleted(self, entry: Entry) -> bool:
        """Ask the listing and, while the text is known, the search too; True only if all miss the entry.

        Only the archive it was put into is asked: another of the same name, made when that one was
        deleted or on another server, would truly say that it has no such passage.
        """
        address = Address.of(entry.external_id)
        if address is None:
            raise NoProof(store=self.name, operation="verify_deleted", cause="NoArchiveInId")
        place = await self._places.at("verify_deleted", address.archive, entry.scope)
        is_there = await self._proof.is_there(place, address.passage, entry)
        if is_there and entry.ledger_id is not None:
            found = await self._proof.whose("verify_deleted", address, entry)
            if found is Whose.ANOTHER_LEDGER or found is Whose.UNKNOWN:
                raise NoProof(store=self.name, operation="verify_deleted", cause=found.value)
        return not is_there

    async def search(self, query: str, k: int, spaces: Sequence[str] | None) -> list[Hit]:
        """Return the nearest passages; over several archives in the order of a search over everything."""
        if k < 1 or not query.strip() or (spaces is not None and not spaces):
            return []
        scopes = self._scope.among(spaces)
        if scopes is None:
            places = list(await self._places.everywhere("search"))
        else:
            found = await asyncio.gather(*(self._places.of_scope("search", scope) for scope in scopes))
            places = [place for some in found for place in some]
        wanted = None if spaces is None else frozenset(spaces)
        hits: dict[str, Hit] = {}
        for place, passage in await self._ranked(query, k if wanted is None else AT_MOST, places):
            entry = self._walks.entry(place, passage)
            is_ours = wanted is None or entry.space in wanted
            if is_ours or (entry.space is None and self._scope.is_per_space):
                hits.setdefault(passage.id, Hit(entry=entry))
        return list(hits.values())[:k]

    def scope_of(self, fact: Fact) -> str:
        """Return the name of the fact's archive, or the id of its agent."""
        return self._scope.of_fact(fact)

    async def after_forget(self, entries: Sequence[Entry]) -> Sequence[str]:
        """Say what a deletion leaves outside the archive."""
        if not entries:
            return ()
        named = (
            (
                "A Letta archive stays when it is empty, under the name of its scope: where that says who "
                "somebody is, delete the archive with client.archives.delete().",
            )
            if self._names_scopes
            else ()
        )
        return (
            *named,
            "Letta's Postgres keeps deleted passages on disk until VACUUM, and in its log and backups by "
            "their own retention.",
            "What an agent has recalled stands in its message history, which a deletion of the passage does "
            "not reach.",
        )

    # --- inside ----------------------------------------------------------------------------

    def _passage(self, fact: Fact, label: Label) -> NewPassage:
        text = fact.text or ""
        if not text.strip() or "\x00" in text:
            raise InvalidInput(field="text", problem="Letta takes no empty text and drops NUL characters")
        metadata = label.to_metadata()
        ours = [f"source:{SOURCE}", f"fact_id:{label.fact_id}", f"ledger:{label.ledger_id}"]
        return NewPassage(
            text=text,
            metadata=dict(metadata),
            tags=[*ours, *self._tags],
            created_at=str(metadata["stored_at"]),
        )

    async def _stored(
        self, operation: str, scope: str, place: Place, new: Sequence[NewPassage]
    ) -> tuple[Place, list[Passage]]:
        """Store passages, in another archive if this one turns out to be deleted."""
        try:
            return place, await self._store_batch(place, new)
        except StoreRefused:
            if not await self._places.is_lost(operation, place):
                raise
        place = await self._places.home(scope)
        return place, await self._store_batch(place, new)

    async def _store_batch(self, place: Place, new: Sequence[NewPassage]) -> list[Passage]:
        if len(new) == 1:
            return [await self._calls.create(place.archive.id, new[0])]
        return await self._calls.create_many(place.archive.id, new)

    def _confirmed(self, operation: str, place: Place, new: NewPassage, made: Passage) -> str:
        """Return the external id of what was stored, if it is what was sent, at the instant named."""
        is_there = made.archive in (None, place.archive.id) and made.text == new.text
        if not is_there or not self._proof.saw(place, self._walks.entry(place, made)):
            raise StoreUnavailable(store=self.name, operation=operation, cause="StoredAltered")
        return str(Address(place.archive.id, made.id))

    def _noted(self, fact: Fact) -> str:
        scope = self._scope.of_fact(fact)
        self._recent[fact.fact_id] = scope
        while len(self._recent) > _REMEMBERED:
            self._recent.popitem(last=False)
        return scope

    async def _find_all(self, fact_ids: Sequence[str]) -> list[list[Entry]]:
        scopes = {self._recent.get(fact_id) for fact_id in fact_ids}
        places: list[Place] = []
        if None in scopes:
            places += await self._places.everywhere("find")
        else:
            for scope in scopes:
                places += await self._places.of_scope("find", scope or "")
        found: dict[str, list[Entry]] = {fact_id: [] for fact_id in fact_ids}
        limit = asyncio.Semaphore(_SIDE_BY_SIDE)

        async def read(place: Place) -> None:
            async with limit, aclosing(self._walks.walk("find", place)) as passages:
                async for passage in passages:
                    entry = self._walks.entry(place, passage)
                    if entry.fact_id in found:
                        found[entry.fact_id].append(entry)

        await asyncio.gather(*map(read, places))
        return [found[fact_id] for fact_id in fact_ids]

    async def _ranked(self, query: str, k: int, places: Sequence[Place]) -> Iterable[tuple[Place, Passage]]:
        """Return the nearest passages of these archives, best first as far as the server can tell."""
        of = {place.archive.id: place for place in places}
        best: list[tuple[Place, Passage]] = []
        if len(of) > 1:
            # Letta gives no scores, so only one question over all archives puts their hits in order.
            everything = await self._calls.nearest("search", query)
            best = [(of[hit.archive], hit) for hit in everything if hit.archive in of]
            if len(best) >= k:
                return best
        limit = asyncio.Semaphore(_SIDE_BY_SIDE)

        async def ask(place: Place) -> list[tuple[Place, Passage]]:
            async with limit:
                rows = await self._calls.nearest("search", query, archive=place.archive.id, limit=k)
            return [(place, row) for row in rows]

        answers = await asyncio.gather(*map(ask, of.values()))
        return best + [hit for rank in zip_longest(*answers) for hit in rank if hit is not None]


def _checked_tags(given: Sequence[object]) -> tuple[str, ...]:
    tags = [] if isinstance(given, str) else [tag for tag in given if isinstance(tag, str) and tag.strip()]
    if len(tags) != len(given):
        raise InvalidInput(field="tags", problem="must be a list of texts that are not empty")
    for tag in tags:
        if tag.startswith(_OURS):
            problem = (
                f"{tag!r} begins like a tag of custody-sync ({', '.join(_OURS)}); call it something else"
            )
            raise InvalidInput(field="tags", problem=problem)
    return tuple(tags)


def _capabilities(scope: Scope, cloud: bool) -> Mapping[Capability, Support]:
    reason = f"Letta serves at most {AT_MOST} hits, and without scores"
    if not scope.is_per_space:
        reason += "; it cannot filter by space, so spaces in one archive are told apart after that cut"
    found = {
        Capability.SEARCH: Support(Level.PARTIAL, reason),
        Capability.RELABEL: Support(Level.NONE, "Letta cannot change a passage; put the fact again"),
    }
    if cloud:
        turbopuffer = "an archive that Turbopuffer searches can only be asked while the text is known"
        found[Capability.VERIFY_DELETED] = Support(Level.PARTIAL, turbopuffer)
    return found


__all__ = ["LettaStore"]
