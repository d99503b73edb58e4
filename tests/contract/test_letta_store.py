"""A Letta server keeps the contract behind the adapter, through both clients and both ways to lay it out."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fakes.letta_api import EMBEDDING, MODEL, LettaApi

from custody_sync.adapters.letta import LettaStore
from custody_sync.testing import NotApplicable, StoreContract, StoreHooks, Trouble
from custody_sync.testing.contract import Case

_COUNTED = {
    Trouble.LAG: "lag",
    Trouble.SEARCH_FAILS: "search_fails",
    Trouble.THROTTLED: "throttled",
    Trouble.FAILS_AFTER: "fails_after",
    Trouble.LOST_REPLY: "lost_reply",
    Trouble.RESET: "reset",
    Trouble.SKIPS: "skips",
    Trouble.EMPTY_BODY: "empty_body",
}
_LASTING = {Trouble.REPEATS: "repeats", Trouble.LYING_DELETE: "lying_delete"}


class LettaHooks(StoreHooks):
    """Sabotage of the service, and a stranger's passage."""

    own_keys = False
    pause = 0.0
    api: LettaApi
    opened: Callable[..., LettaStore]
    """Makes a store over the service; a class's own."""

    @pytest.fixture
    def store(self) -> LettaStore:
        """Return a store over a fresh service."""
        self.api = LettaApi()
        return self.opened()

    async def reopened(self, store: LettaStore) -> LettaStore:
        """Return what a later process makes."""
        return self.opened()

    async def break_delete(self, store: LettaStore) -> None:
        """Let the service say 204 and keep the passage."""
        self.api.faults.lying_delete = True

    async def break_search(self, store: LettaStore) -> None:
        """Let every search end in a 500, as it does while the embedding model is away."""
        self.api.faults.search_fails = float("inf")

    async def put_unlabelled(self, store: LettaStore, text: str) -> str:
        """Put a passage into an archive of the store, as an agent's own tool does."""
        await Case("stranger", store, self).put()
        archive = next(iter(self.api.archives))
        passage = self.api.put(archive, text, metadata={"source": "agent"}, tags=["note"])
        return f"{archive}/{passage}"

    async def make_trouble(self, store: LettaStore, trouble: Trouble, times: float = 1) -> None:
        """Turn one of the service's switches."""
        if trouble in _COUNTED:
            setattr(self.api.faults, _COUNTED[trouble], times)
        elif trouble in _LASTING:
            setattr(self.api.faults, _LASTING[trouble], True)
        else:
            raise NotApplicable("Letta answers a write once it is committed; nothing is ever pending")


class TestLettaArchives(LettaHooks, StoreContract):
    """The synchronous client, an archive of its own for each space."""

    def opened(self) -> LettaStore:
        """Return a store over the service."""
        return LettaStore(self.api.client(), model=MODEL, embedding=EMBEDDING)


class TestAsyncLettaArchives(LettaHooks, StoreContract):
    """The asynchronous client, an archive of its own for each space."""

    many, crowd = 330, 121

    def opened(self) -> LettaStore:
        """Return a store over the service."""
        return LettaStore(self.api.async_client(), model=MODEL, embedding=EMBEDDING)


class TestLettaOneArchive(LettaHooks, StoreContract):
    """All spaces in one archive of ours."""

    many, crowd = 330, 121

    def opened(self) -> LettaStore:
        """Return a store over the service."""
        return LettaStore(self.api.async_client(), archive="memories", model=MODEL, embedding=EMBEDDING)


class TestLettaAgent(LettaHooks, StoreContract):
    """The archive of an agent that was there before, and keeps memories of its own."""

    many, crowd = 330, 121

    def opened(self) -> LettaStore:
        """Return a store over the service."""
        if not self.api.agents:
            agent = self.api.new_agent()
            self.api.put(self.api.new_archive("assistant's Archive", agent=agent), "I am an assistant")
        return LettaStore(self.api.client(), agent=next(iter(self.api.agents)))
