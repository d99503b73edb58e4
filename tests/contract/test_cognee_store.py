"""A Cognee server keeps the contract behind the adapter, with either client and either kind of index."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from types import MappingProxyType
from typing import Any

import httpx
import pytest
from fakes.cognee_api import BASE_URL, PASSWORD, USER, CogneeServer

from custody_sync.adapters.cognee import CogneeStore
from custody_sync.testing import StoreContract, StoreHooks, Trouble

DATASET = "memories"


class CogneeHooks(StoreHooks):
    """Sabotage of the server, and a stranger's file."""

    pause = 0.0
    own_keys = True
    versions = MappingProxyType({"cognee": "1.6.5", "httpx": httpx.__version__})
    server: CogneeServer
    client: Any

    def adapter(self, **options: Any) -> CogneeStore:
        """Return an adapter over the server; its listing has small pages."""
        return CogneeStore(self.client, **{"cognify": "wait", "page_size": 100, **options})

    async def break_delete(self, store: CogneeStore) -> None:
        """Say yes to deletes and keep everything."""
        self.server.switches.lying_delete = True

    async def break_search(self, store: CogneeStore) -> None:
        """Answer every search with 500."""
        self.server.switches.search_fails = float("inf")

    async def put_unlabelled(self, store: CogneeStore, text: str) -> str:
        """Upload a file as an agent does without custody."""
        dataset = self.server.dataset(DATASET)
        data_id = self.server.add(dataset, "notes.md", text.encode(), {"source": "agent"})
        self.server.cognify(dataset)
        return f"{data_id}~untagged"

    async def make_trouble(self, store: CogneeStore, trouble: Trouble, times: float = 1) -> None:
        """Set the server's switch of that name."""
        lasting = {Trouble.REPEATS, Trouble.LYING_DELETE, Trouble.PENDING}
        setattr(self.server.switches, trouble.value, True if trouble in lasting else times)


class TestCogneeStore(CogneeHooks, StoreContract):
    """An awaited client that logs in; a dataset for each space."""

    @pytest.fixture
    async def store(self) -> AsyncIterator[CogneeStore]:
        """Yield one over a fresh server."""
        async with httpx.AsyncClient(base_url=BASE_URL) as self.client:
            with CogneeServer().running() as self.server:
                yield self.adapter(username=USER, password=PASSWORD)

    async def reopened(self, store: CogneeStore) -> CogneeStore:
        """Return another adapter."""
        return self.adapter(username=USER, password=PASSWORD)


class TestCogneeStoreInOneDataset(CogneeHooks, StoreContract):
    """A blocking client with an API key; all spaces in one dataset, kept apart by a tag."""

    many, crowd = 330, 121

    @pytest.fixture
    def store(self) -> Iterator[CogneeStore]:
        """Yield one over a fresh server."""
        with httpx.Client(base_url=BASE_URL) as self.client, CogneeServer().running() as self.server:
            self.key = self.server.new_key()
            yield self.adapter(api_key=self.key, dataset=DATASET)

    async def reopened(self, store: CogneeStore) -> CogneeStore:
        """Return another adapter."""
        return self.adapter(api_key=self.key, dataset=DATASET)


class TestCogneeStoreWithoutAccessControl(CogneeHooks, StoreContract):
    """A server on which nobody logs in and one index answers for all datasets."""

    many, crowd = 330, 121

    @pytest.fixture
    async def store(self) -> AsyncIterator[CogneeStore]:
        """Yield one over a fresh server."""
        async with httpx.AsyncClient(base_url=BASE_URL) as self.client:
            with CogneeServer(access_control=False).running() as self.server:
                yield self.adapter(dataset="{space}")

    async def reopened(self, store: CogneeStore) -> CogneeStore:
        """Return another adapter."""
        return self.adapter(dataset="{space}")
