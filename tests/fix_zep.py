"""The stand-in for Zep behind the real clients, and what tests say to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fakes.zep_api import BASE, ZepApi
from fakes.zep_graph import Graph
from zep_cloud.client import AsyncZep, Zep

from custody_sync import AsyncCoordinator, Ledger
from custody_sync.adapters.zep import ZepStore
from custody_sync.removal import Patience
from custody_sync.results import Removal
from custody_sync.testing.contract_case import Case, StoreHooks

ACTOR = "agent:zep"
SPACE = "user:42"
AT_ONCE = Patience(first_wait=0.0)


async def nap(_: float) -> None:
    """Wait for nothing, and let others run."""
    await asyncio.sleep(0)


def store_of(client: Any, **options: Any) -> ZepStore:
    """Return an adapter that does not really wait."""
    return ZepStore(client, **{"sleep": nap, **options})


def case_of(store: ZepStore) -> Case:
    """Return the contract's toolbox for one store."""
    case = Case("integration", store, StoreHooks())
    case.space = SPACE
    return case


def graph_of(api: ZepApi) -> Graph:
    """Return the only graph there is."""
    (graph,) = api.graphs.values()
    return graph


def outcomes(removals: list[Removal]) -> list[tuple[str, str]]:
    """Return how removals ended, and why."""
    return [(removal.outcome.value, removal.detail) for removal in removals]


@pytest.fixture
def zep_api() -> ZepApi:
    """Return a fresh project."""
    return ZepApi()


@pytest.fixture
def zep(zep_api: ZepApi) -> Iterator[Zep]:
    """Yield the synchronous client."""
    with httpx.Client(transport=zep_api.transport()) as http:
        yield Zep(api_key="z_test", base_url=BASE, httpx_client=http)


@pytest.fixture
async def async_zep(zep_api: ZepApi) -> AsyncIterator[AsyncZep]:
    """Yield the asynchronous client."""
    async with httpx.AsyncClient(transport=zep_api.async_transport()) as http:
        yield AsyncZep(api_key="z_test", base_url=BASE, httpx_client=http)


@pytest.fixture
async def zep_custody(tmp_path: Path, async_zep: AsyncZep) -> AsyncIterator[AsyncCoordinator]:
    """Yield a coordinator over Zep alone."""
    async with (
        await Ledger.open(f"sqlite:///{tmp_path / 'custody.db'}", create=True) as ledger,
        AsyncCoordinator(ledger, stores=[store_of(async_zep)], patience=AT_ONCE) as custody,
    ):
        yield custody
