"""Zep behind either client keeps the contract, and so does sabotage of the service."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import httpx
import pytest
from fakes.zep_api import BASE, ZepApi
from fakes.zep_troubles import Troubles
from zep_cloud.client import AsyncZep, Zep

from custody_sync.adapters.zep import ZepStore
from custody_sync.testing import StoreContract, StoreHooks, Trouble


async def nap(_: float) -> None:
    """Wait for nothing, and let others run."""
    await asyncio.sleep(0)


class ZepHooks(StoreHooks):
    """Sabotage of the stand-in."""

    api: ZepApi
    client: Zep | AsyncZep
    graph = "{space}"
    pause = 0.0

    def adapter(self) -> ZepStore:
        """Return an adapter over the fixture's client."""
        return ZepStore(self.client, graph=self.graph, sleep=nap)

    async def reopened(self, store: ZepStore) -> ZepStore:
        """Return an adapter that knows nothing yet."""
        return self.adapter()

    async def break_delete(self, store: ZepStore) -> None:
        """Let deletions say yes and do nothing."""
        self.api.troubles.lying_delete = True

    async def break_search(self, store: ZepStore) -> None:
        """Let every search fail."""
        self.api.troubles.search_fails = math.inf

    async def put_unlabelled(self, store: ZepStore, text: str) -> str:
        """Add an episode to a graph as an agent does."""
        graph = await store._graphs.make("put", "a stranger's")
        return self.api.add(graph, text, {"source": "agent"})

    async def make_trouble(self, store: ZepStore, trouble: Trouble, times: float = 1) -> None:
        """Let the service misbehave."""
        lasting = {Trouble.REPEATS, Trouble.LYING_DELETE, Trouble.PENDING}
        self.api.troubles = replace(Troubles(), **{trouble.value: True if trouble in lasting else times})


class TestZep(ZepHooks, StoreContract):
    """`Zep`, called in worker threads, a graph for each space."""

    @pytest.fixture
    def store(self) -> Iterator[ZepStore]:
        """Yield one on a fresh project whose summaries are made anew."""
        self.api = ZepApi(keeps_summaries=False)
        with httpx.Client(transport=self.api.transport()) as http:
            self.client = Zep(api_key="z_test", base_url=BASE, httpx_client=http)
            yield self.adapter()


class AsyncZepHooks(ZepHooks):
    """A fixture of `AsyncZep`."""

    def fresh(self) -> ZepApi:
        """Return a fresh project whose summaries are made anew."""
        return ZepApi(keeps_summaries=False)

    @pytest.fixture
    async def store(self) -> AsyncIterator[ZepStore]:
        """Yield one on a fresh project."""
        self.api = self.fresh()
        async with httpx.AsyncClient(transport=self.api.async_transport()) as http:
            self.client = AsyncZep(api_key="z_test", base_url=BASE, httpx_client=http)
            yield self.adapter()


class TestAsyncZep(AsyncZepHooks, StoreContract):
    """`AsyncZep`, awaited, all spaces in one graph: the filter has to keep them apart."""

    many, crowd = 330, 121

    graph = "memories"


class TestZepAsItIs(AsyncZepHooks, StoreContract):
    """`AsyncZep` on a service that keeps summaries, merges equal facts and forgets idempotency keys."""

    many, crowd = 330, 121

    own_keys = False

    def fresh(self) -> ZepApi:
        """Return a project that does what Zep's pages say, and no more."""
        return ZepApi(merges_edges=True, remembers_keys=False)
