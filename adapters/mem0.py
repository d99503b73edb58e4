"""Custody for Mem0: its hosted service, and the open source library on a vector store of one's own.

A fact is one memory, stored verbatim (`infer=False`): its words are the text, its metadata the label.
Mem0 makes up the ids, so an entry is known by the label, and every answer is read row by row; neither a
status nor a sentence of success counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any

from custody_sync.adapters._mem0_clients import Client, Kind, kind_of
from custody_sync.adapters._mem0_hosted import Hosted
from custody_sync.adapters._mem0_local import Local
from custody_sync.adapters._mem0_place import Place
from custody_sync.adapters._mem0_rows import Backend, Holder, Row, encoded, holder_of, is_id, metadata_of
from custody_sync.adapters._scopes import PerSpace, Scope, Scoping
from custody_sync.adapters._shared import WorkerThreads
from custody_sync.errors import InvalidInput, NoProof, StoreRefused
from custody_sync.model import Capability, Entry, Fact, Hit, Label, Limits, Support
from custody_sync.ports import Notebook

_MOST_ON_A_PAGE = 200


class Mem0Store:
    """Keep facts in Mem0.

    The client is the caller's. `MemoryClient` and `Memory` are called in worker threads,
    `AsyncMemoryClient` and `AsyncMemory` are awaited. Where the vector store runs inside this process
    (Qdrant's local mode, FAISS), one call at a time reaches it, whoever makes it through an adapter.

    Args:
        client: A `MemoryClient`, `AsyncMemoryClient`, `Memory` or `AsyncMemory` of mem0ai 2.0.15 or newer.
        name: The store's name in a coordinator.
        user_id: Whose memory a fact is: a fixed value, a template, a function of the fact, or `PerSpace` with
            one of the space. What Mem0 refuses in an id is escaped, so every space has one.
        agent_id: Open source only: written on every row, so that one question reaches all users.
        place: What the ledger calls the project or collection, instead of the name it has by itself: where
            one collection has several addresses, or its rows were moved. Then nobody else checks it.
        limits: The largest text the embedding model takes, if that is known.
        page_size: Rows on a page of a listing; the service allows 200.
        patience: Seconds that a write which the service accepted may stay pending.
        poll: Seconds before a pending write is asked about again; doubles up to two.
        threads: How many blocking calls may run at once.
        executor: Runs the blocking calls instead of own threads.
    """

    def __init__(
        self,
        client: Client,
        *,
        name: str = "mem0",
        user_id: Scoping = "{space}",
        agent_id: str = "custody-sync",
        place: str | None = None,
        limits: Limits | None = None,
        page_size: int = _MOST_ON_A_PAGE,
        patience: float = 20.0,
        poll: float = 0.25,
        threads: int = 16,
        executor: Executor | None = None,
    ) -> None:
        self.name = name
        self.limits = limits or Limits()
        if not 1 <= page_size <= _MOST_ON_A_PAGE:
            raise InvalidInput(field="page_size", problem=f"{page_size} is not from 1 to {_MOST_ON_A_PAGE}")
        if not agent_id or encoded(agent_id) != agent_id:
            raise InvalidInput(field="agent_id", problem="must be a text without white space, % or *")
        if place is not None and not place.strip():
            raise InvalidInput(field="place", problem="must be a text that is not blank")
        self._users = Scope("user_id", user_id, encoded)
        workers = WorkerThreads(name, limit=threads, executor=executor)
        if kind_of(client, name) is Kind.HOSTED:
            self._mem0: Backend = Hosted(
                client, name, threads=workers, page_size=page_size, patience=patience, poll=poll
            )
        else:
            self._mem0 = Local(client, name, agent_id=agent_id, threads=workers, page_size=page_size)
        self._place = Place(name, place or self._mem0.place)
        self.capabilities: Mapping[Capability, Support] = self._mem0.capabilities

    def remember_in(self, notebook: Notebook) -> None:
        """Take the notebook in which the project or collection stands."""
        self._place.remember_in(notebook)

    # --- the two verbs ---------------------------------------------------------------------

    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        """Store the text verbatim, and return its id once the row under it is certain."""
        text = fact.text or ""
        if not text.strip():
            raise InvalidInput(field="text", problem="Mem0 stores a blank text and can never find it again")
        await self._place.enter()
        return (await self._mem0.add(text, self._users.of_fact(fact), label),)

    async def delete(self, entry: Entry) -> None:
        """Delete the row of the entry's id, if it is still that entry's.

        Mem0 addresses by id alone, so the row is read first: one of another user is left alone, and one
        whose label is gone, or another fact's, is refused. One that never had a label goes only with the
        text that is known of it.
        """
        row = await self._at("delete", entry)
        if row is None:
            return
        if entry.fact_id is None and (entry.text is None or entry.text != row.text):
            raise StoreRefused(store=self.name, operation="delete", cause="TextChanged")
        await self._mem0.delete(entry.external_id)

    async def relabel(self, entry: Entry, label: Label) -> None:
        """Replace the label of a row; its text is not sent.

        A row without a label gets one where its metadata has none of the label's keys.
        """
        row, written = await self._at("relabel", entry), metadata_of(label)
        cause = ""
        if row is None:
            cause = "NoSuchEntry"
        elif entry.fact_id is None and entry.text not in (None, row.text):
            cause = "TextChanged"
        elif entry.fact_id is None and written.keys() & row.metadata.keys():
            cause = "LabelKeysTaken"
        if row is None or cause:
            raise StoreRefused(store=self.name, operation="relabel", cause=cause)
        await self._mem0.relabel(row, written)

    async def infer(self, messages: Sequence[Any], *, user_id: str, **options: Any) -> list[Entry]:
        """Let Mem0's model make memories of messages, and return them as entries without a label.

        Mem0 writes them before anybody has them on record: whoever calls this adopts what it returns, and
        after a crash `adopt` finds the rest.
        """
        found = await self._mem0.infer(messages, user_id=user_id, **options)
        rows = [await self._mem0.get("infer", external_id) for external_id in found]
        return [row.to_entry(self.name) for row in rows if row is not None]

    # --- what it can be asked --------------------------------------------------------------

    async def find(self, fact_id: str) -> list[Entry]:
        """Return every entry of the fact, of all users."""
        await self._place.check("find")
        entries = [row.to_entry(self.name) for row in await self._mem0.of_fact("find", fact_id)]
        found = [entry for entry in entries if entry.fact_id == fact_id]
        if found:
            await self._place.saw_ours()
        return found

    async def list_entries(self) -> AsyncIterator[Entry]:
        """Yield every row that has a user, without its text, each once."""
        await self._place.check_listing()
        async for row in self._mem0.everything():
            yield row.to_entry(self.name, with_text=False)

    async def list_with_text(self) -> AsyncIterator[Entry]:
        """Yield every row as `list_entries` does, with its text."""
        await self._place.check_listing()
        async for row in self._mem0.everything():
            yield row.to_entry(self.name)

    async def verify_deleted(self, entry: Entry) -> bool:
        """Ask by id, by listing and, while the text is known, by search; True only if all miss it.

        Mem0 makes an id up and gives it to nobody else. So a row under it that does not carry our label
        any more may still have our words: that is neither ours to delete nor gone.
        """
        known = is_id(entry.external_id)
        if not known and entry.fact_id is None:
            raise NoProof(store=self.name, operation="verify_deleted", cause="Unaddressed")
        # Elsewhere nobody is asked; where nothing was put yet, only what is not seen is in doubt.
        await self._place.prove(seen=True)
        row = await self._mem0.get("verify_deleted", entry.external_id) if known else None
        if row is not None and (holder := holder_of(row, entry)) is not Holder.OURS:
            raise NoProof(store=self.name, operation="verify_deleted", cause=holder.value)
        if row is not None:
            await self._place.saw_ours()
            return False
        await self._place.prove()
        if entry.fact_id is not None:
            rows = await self._mem0.of_fact("verify_deleted", entry.fact_id)
            # An erasure took the id of an entry: then no row of the fact may be left.
            if any(not known or row.external_id == entry.external_id for row in rows):
                return False
        if known and await self._mem0.is_listed(entry.external_id):
            return False
        if not entry.text or not entry.text.strip():
            return True
        return not await self._mem0.serves(entry, entry.text)

    async def search(self, query: str, k: int, spaces: Sequence[str] | None) -> list[Hit]:
        """Return what Mem0's own search serves, asked once per user and space and merged by score."""
        if k < 1 or (spaces is not None and not spaces):
            return []
        asked = [self._mem0.nearest(query, k, user_id, space) for user_id, space in self._places(spaces)]
        found = {row.external_id: row for rows in await asyncio.gather(*asked) for row in rows}
        hits = [Hit(entry=row.to_entry(self.name), score=row.score) for row in found.values()]
        if spaces is not None and not self._users.is_per_space:
            hits = [hit for hit in hits if hit.entry.space in spaces]
        hits.sort(key=lambda hit: (hit.score is None, -(hit.score or 0.0)))
        return hits[:k]

    def scope_of(self, fact: Fact) -> str:
        """Return the user id as Mem0 gets it."""
        return self._users.of_fact(fact)

    async def after_forget(self, entries: Sequence[Entry]) -> Sequence[str]:
        """Say what a deletion in this Mem0 leaves."""
        return self._mem0.leaves if entries else ()

    # --- inside ----------------------------------------------------------------------------

    async def _at(self, operation: str, entry: Entry) -> Row | None:
        """Return the row of an entry's id, if it is in the entry's scope.

        Raises:
            StoreRefused: the row is not the entry's, or the ledger's entries are elsewhere.
        """
        await self._place.check(operation)
        if not is_id(entry.external_id):
            return None
        row = await self._mem0.get(operation, entry.external_id)
        if row is None or (entry.scope is not None and row.user_id != entry.scope):
            return None
        if (holder := holder_of(row, entry)) is not Holder.OURS:
            raise StoreRefused(store=self.name, operation=operation, cause=holder.value)
        # Its id is a UUID that only this place gave out, whether it has our label yet or not.
        await self._place.saw_ours()
        return row

    def _places(self, spaces: Sequence[str] | None) -> list[tuple[str | None, str | None]]:
        """Return the users and spaces that a search has to ask about."""
        users: Sequence[str | None] = self._users.among(spaces) or [None]
        if spaces is None or self._users.is_per_space:
            return [(user, None) for user in users]
        return [(user, space) for user in users for space in dict.fromkeys(spaces)]


__all__ = ["Mem0Store", "PerSpace"]
