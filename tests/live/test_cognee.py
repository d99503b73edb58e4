"""A real Cognee server, reached over a wire that can be bent; each test is a user of its own."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from custody_sync.adapters.cognee import CogneeStore
from custody_sync.testing import StoreContract, Trouble
from live.engine import Engine, Live, address
from live.wire import BentAsyncTransport, Wire

PASSWORD = "live-only"
DATASET = "memories"


def wire() -> Wire:
    """Return a wire that knows Cognee's requests."""
    return Wire(
        is_search=lambda request: request.method == "POST" and request.url.path == "/api/v1/search",
        is_delete=lambda request: request.method == "DELETE" and "/data/" in request.url.path,
        is_put=lambda request: request.url.path == "/api/v1/add",
        deleted=lambda: httpx.Response(200, json=None),
        is_aside=lambda request: request.url.path == "/api/v1/cognify",
    )


class TestCognee(Live, StoreContract):
    """An awaited client that logs in, all spaces in one dataset, indexing in the background.

    One dataset, because a server keeps processes of its own for each that is searched: a search
    over a dozen took minutes here.
    """

    engine = Engine("cognee", "Cognee server, one dataset", "cognee", "server", ("httpx",))
    # A put takes a quarter of a second and an indexing run some seconds, so everything is smaller.
    bulk, crowd, many, workers = 45, 61, 90, 4
    questions, pause, rule_timeout = 14, 0.5, 900.0
    wire: Wire
    client: httpx.AsyncClient
    user: str

    @pytest.fixture
    async def store(self) -> AsyncIterator[CogneeStore]:
        """Yield one for a fresh user."""
        self.wire, self.user = wire(), f"live-{uuid.uuid4().hex}@example.com"
        self.client = httpx.AsyncClient(
            base_url=address("COGNEE"), transport=BentAsyncTransport(self.wire), timeout=120
        )
        async with self.client:
            account = {"email": self.user, "password": PASSWORD}
            (await self.client.post("/api/v1/auth/register", json=account)).raise_for_status()
            store = self.adapter()
            yield store
            await store.aclose()

    def adapter(self) -> CogneeStore:
        """Return an adapter with small pages."""
        return CogneeStore(self.client, dataset=DATASET, username=self.user, password=PASSWORD, page_size=20)

    async def version(self) -> str:
        """Return what the server says of itself."""
        said = (await self.client.get("/health")).json()
        return f"cognee {said['version']}"

    async def break_delete(self, store: CogneeStore) -> None:
        """Say yes to deletes, and keep them from the server."""
        self.wire.bend(Trouble.LYING_DELETE)

    async def break_search(self, store: CogneeStore) -> None:
        """Answer every search with 500."""
        self.wire.bend(Trouble.SEARCH_FAILS, float("inf"))

    async def make_trouble(self, store: CogneeStore, trouble: Trouble, times: float = 1) -> None:
        """Bend the wire."""
        self.wire.bend(trouble, times)

    async def reopened(self, store: CogneeStore) -> CogneeStore:
        """Return another adapter of the same user."""
        return self.adapter()

    async def put_unlabelled(self, store: CogneeStore, text: str) -> str:
        """Upload a file as an agent does without custody."""
        login = {"username": self.user, "password": PASSWORD}
        async with httpx.AsyncClient(base_url=address("COGNEE"), timeout=120) as other:
            token = (await other.post("/api/v1/auth/login", data=login)).json()["access_token"]
            other.headers["Authorization"] = f"Bearer {token}"
            answer = await other.post(
                "/api/v1/add",
                files=[("data", ("notes.md", text.encode(), "text/plain"))],
                data={"datasetName": DATASET, "external_metadata": json.dumps([{"source": "agent"}])},
            )
            said: Any = answer.raise_for_status().json()
        return f"{said['data_ingestion_info'][0]['data_id']}~untagged"
