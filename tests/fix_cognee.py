"""A Cognee server in memory, a client, and adapters over them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from fakes.cognee_api import BASE_URL, PASSWORD, USER, CogneeServer

from custody_sync.adapters.cognee import CogneeStore
from custody_sync.testing.contract_case import Case, Put, StoreHooks


class CogneeBench:
    """A server, a client, and adapters over them."""

    def __init__(self, server: CogneeServer, client: httpx.AsyncClient) -> None:
        self.server, self.client = server, client
        self.store = self.adapter()

    def adapter(self, **options: Any) -> CogneeStore:
        """Return an adapter that logs in."""
        login = {"username": USER, "password": PASSWORD, "cognify": "wait"}
        return CogneeStore(self.client, **{**login, **options})

    def case(self, store: CogneeStore | None = None) -> Case:
        """Return what makes facts."""
        return Case("cognee", store or self.store, StoreHooks())

    async def put(self, text: str, space: str = "user:1", store: CogneeStore | None = None) -> Put:
        """Put a fact."""
        case = self.case(store)
        return await case.put(case.fact(text, space=space))


@pytest.fixture
async def cognee() -> AsyncIterator[CogneeBench]:
    """Yield a fresh server with an adapter."""
    async with httpx.AsyncClient(base_url=BASE_URL) as client:
        with CogneeServer().running() as server:
            yield CogneeBench(server, client)
