"""Mem0's hosted service keeps the contract behind both of its clients, and so does every trouble it has."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.mem0_api import Mem0Api

from custody_sync.adapters.mem0 import Mem0Store
from custody_sync.testing import StoreContract, StoreHooks, Trouble

SWITCHES = {
    Trouble.LAG: "lag",
    Trouble.SEARCH_FAILS: "search_fails",
    Trouble.THROTTLED: "throttled",
    Trouble.FAILS_AFTER: "fails_after",
    Trouble.LOST_REPLY: "lost_reply",
    Trouble.RESET: "reset",
    Trouble.REPEATS: "repeats",
    Trouble.SKIPS: "skips",
    Trouble.LYING_DELETE: "lying_delete",
    Trouble.PENDING: "pending",
    Trouble.EMPTY_BODY: "empty_body",
}


class HostedHooks(StoreHooks):
    """The switches of the stand-in, and a stranger's memory."""

    api: Mem0Api
    client: Any

    def adapter(self, api: Mem0Api, client: Any) -> Mem0Store:
        """Wrap a client, with small pages."""
        self.api, self.client = api, client
        return Mem0Store(client, page_size=20, patience=20.0, poll=0.01)

    async def break_delete(self, store: Mem0Store) -> None:
        """Let deletes say yes and do nothing."""
        self.api.switches.lying_delete = True

    async def break_search(self, store: Mem0Store) -> None:
        """Let every search fail, quoting what was asked."""
        await self.make_trouble(store, Trouble.SEARCH_FAILS, float("inf"))

    async def put_unlabelled(self, store: Mem0Store, text: str) -> str:
        """Store a memory as an agent does without custody."""
        return self.api.put_raw(text, user_id="a stranger", metadata={"source": "agent"})

    async def make_trouble(self, store: Mem0Store, trouble: Trouble, times: float = 1) -> None:
        """Turn a switch of the service."""
        name = SWITCHES[trouble]
        if trouble is Trouble.PENDING:
            # A busy machine needs patience with what is done; what never will be is not worth it.
            backend: Any = store._mem0
            backend._patience = 0.3
        is_flag = isinstance(getattr(self.api.switches, name), bool)
        setattr(self.api.switches, name, True if is_flag else times)

    async def reopened(self, store: Mem0Store) -> Mem0Store:
        """Wrap the same client once more."""
        return self.adapter(self.api, self.client)


class TestMemoryClient(HostedHooks, StoreContract):
    """The blocking client, in worker threads; its httpx is answered by the stand-in."""

    @pytest.fixture
    def store(self, mem0_api: Mem0Api, mem0_client: Any) -> Mem0Store:
        """Return one on an empty project."""
        return self.adapter(mem0_api, mem0_client)


class TestAsyncMemoryClient(HostedHooks, StoreContract):
    """The awaited client, over loopback; the full store is listed and swept over the blocking one."""

    many, crowd = 330, 121

    @pytest.fixture
    async def store(self, mem0_api: Mem0Api, mem0_async_client: Any) -> Mem0Store:
        """Return one on an empty project."""
        return self.adapter(mem0_api, mem0_async_client)


class TestOneUserForAllSpaces(HostedHooks, StoreContract):
    """All spaces in one user's memory: the label has to keep them apart."""

    many, crowd = 330, 121

    def adapter(self, api: Mem0Api, client: Any) -> Mem0Store:
        """Wrap a client with a fixed user."""
        self.api, self.client = api, client
        return Mem0Store(client, user_id="everybody", page_size=20, patience=20.0, poll=0.01)

    @pytest.fixture
    def store(self, mem0_api: Mem0Api, mem0_client: Any) -> Mem0Store:
        """Return one on an empty project."""
        return self.adapter(mem0_api, mem0_client)
