"""A real Letta V1 server, reached over a wire that can be bent; each test is a store of its own."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
from letta_client import AsyncLetta, Letta

from custody_sync.adapters.letta import LettaStore
from custody_sync.testing import StoreContract, Trouble
from custody_sync.testing.contract import Case
from live.engine import Engine, Live, address
from live.wire import BentAsyncTransport, BentTransport, Wire

HANDLES = {"model": "openai-proxy/gpt-4o-mini", "embedding": "openai/text-embedding-3-small"}


def wire() -> Wire:
    """Return a wire that knows Letta's requests."""
    return Wire(
        is_search=lambda request: request.url.path.rstrip("/").endswith("/search"),
        is_delete=lambda request: request.method == "DELETE" and "/passages/" in request.url.path,
        is_put=lambda request: (
            request.method == "POST" and request.url.path.endswith(("/passages", "/passages/batch"))
        ),
    )


class LettaLive(Live):
    """What both clients share."""

    own_keys = False
    workers = 8
    rule_timeout = 900.0
    wire: Wire
    name: str

    async def version(self) -> str:
        """Return what the server says of itself."""
        async with httpx.AsyncClient(base_url=address("LETTA")) as asking:
            said = (await asking.get("/v1/health/")).json()
        return f"letta {said['version']}"

    async def break_delete(self, store: LettaStore) -> None:
        """Say yes to deletes, and keep them from the server."""
        self.wire.bend(Trouble.LYING_DELETE)

    async def break_search(self, store: LettaStore) -> None:
        """Answer every search with 500, as the server does while the embedding model is away."""
        self.wire.bend(Trouble.SEARCH_FAILS, float("inf"))

    async def make_trouble(self, store: LettaStore, trouble: Trouble, times: float = 1) -> None:
        """Bend the wire."""
        self.wire.bend(trouble, times)

    async def put_unlabelled(self, store: LettaStore, text: str) -> str:
        """Put a passage into an archive of the store, as an agent's own tool does."""
        case = Case("stranger", store, self)
        await case.put()
        with Letta(base_url=address("LETTA"), max_retries=0) as other:
            archive = next(iter(other.archives.list(name=case.space)))
            passage = other.archives.passages.create(archive.id, text=text, tags=["note"])
        return f"{archive.id}/{passage.id}"


class TestLetta(LettaLive, StoreContract):
    """The synchronous client, an archive of its own for each space."""

    engine = Engine("letta", "Letta server, Letta client", "letta", "server", ("letta-client",))

    @pytest.fixture
    def store(self) -> Iterator[LettaStore]:
        """Yield one that no other test's archives belong to."""
        self.wire, self.name = wire(), f"letta-{uuid.uuid4().hex}"
        with httpx.Client(transport=BentTransport(self.wire), timeout=120) as self.client:
            yield self.adapter()

    def adapter(self) -> LettaStore:
        """Return an adapter."""
        client = Letta(base_url=address("LETTA"), http_client=self.client, max_retries=0)
        return LettaStore(client, name=self.name, **HANDLES)

    async def reopened(self, store: LettaStore) -> LettaStore:
        """Return another adapter."""
        return self.adapter()


class TestAsyncLetta(LettaLive, StoreContract):
    """The asynchronous client, all spaces in one archive."""

    engine = Engine(
        "letta-one", "Letta server, AsyncLetta, one archive", "letta", "server", ("letta-client",)
    )

    @pytest.fixture
    async def store(self) -> AsyncIterator[LettaStore]:
        """Yield one that no other test's archives belong to."""
        self.wire, self.name = wire(), f"letta-{uuid.uuid4().hex}"
        async with httpx.AsyncClient(transport=BentAsyncTransport(self.wire), timeout=120) as self.client:
            yield self.adapter()

    def adapter(self) -> LettaStore:
        """Return an adapter."""
        client = AsyncLetta(base_url=address("LETTA"), http_client=self.client, max_retries=0)
        return LettaStore(client, name=self.name, archive=self.name, **HANDLES)

    async def reopened(self, store: LettaStore) -> LettaStore:
        """Return another adapter."""
        return self.adapter()

    async def put_unlabelled(self, store: LettaStore, text: str) -> str:
        """Put a passage into the archive of the store, as an agent's own tool does."""
        await Case("stranger", store, self).put()
        with Letta(base_url=address("LETTA"), max_retries=0) as other:
            archive = next(iter(other.archives.list(name=self.name)))
            passage = other.archives.passages.create(archive.id, text=text, tags=["note"])
        return f"{archive.id}/{passage.id}"
