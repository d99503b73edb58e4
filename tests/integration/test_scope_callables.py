"""A function of the fact that does not answer alike twice: what is recorded is where the entry lies."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import httpx
import pytest
from fakes.cognee_api import BASE_URL, PASSWORD, USER, CogneeServer
from fakes.letta_api import EMBEDDING, MODEL, LettaApi
from fakes.mem0_api import KEY, Mem0Api
from fakes.pgvector_tables import APP
from fakes.zep_api import ZepApi
from fix_custody import ACTOR, open_desk
from fix_pgvector import Connect, ask

from custody_sync.model import Fact
from custody_sync.testing.embedding import WordEmbedder


class Turns:
    """Answers "a" and "b" in turn."""

    def __init__(self) -> None:
        self._turns = count()

    def __call__(self, fact: Fact) -> str:
        """Return the next answer."""
        return "ab"[next(self._turns) % 2]


def langgraph() -> tuple[Any, Callable[[], Sequence[str]]]:
    """LangGraph's store in memory."""
    from langgraph.store.memory import InMemoryStore

    from custody_sync.adapters.langgraph import LangGraphStore

    held, turns = InMemoryStore(), Turns()
    store = LangGraphStore(held, namespace=lambda fact: ("m", turns(fact)), name="s")
    return store, lambda: [item.value["text"] for item in held.search(("m",), limit=100)]


def letta() -> tuple[Any, Callable[[], Sequence[str]]]:
    """Letta's service."""
    from custody_sync.adapters.letta import LettaStore

    api = LettaApi()
    store = LettaStore(api.client(), archive=Turns(), model=MODEL, embedding=EMBEDDING, name="s")
    return store, api.texts


def cognee() -> tuple[Any, Callable[[], Sequence[str]]]:
    """Cognee's server."""
    from custody_sync.adapters.cognee import CogneeStore

    api = CogneeServer()
    client = httpx.Client(base_url=BASE_URL, transport=httpx.MockTransport(api.answer))
    store = CogneeStore(client, username=USER, password=PASSWORD, cognify="wait", dataset=Turns(), name="s")
    return store, lambda: [
        item.text.partition("\n")[0] for dataset in api.datasets.values() for item in dataset.items.values()
    ]


def zep() -> tuple[Any, Callable[[], Sequence[str]]]:
    """Zep's cloud."""
    from zep_cloud.client import Zep

    from custody_sync.adapters.zep import ZepStore

    api = ZepApi(keeps_summaries=False)
    client = Zep(api_key="k", httpx_client=httpx.Client(transport=api.transport()))
    return ZepStore(client, graph=Turns(), name="s"), lambda: [e.content for e in api.episodes()]


def hosted_mem0() -> tuple[Any, Callable[[], Sequence[str]]]:
    """Mem0's cloud."""
    from custody_sync.adapters.mem0 import Mem0Store

    api = Mem0Api()
    client = importlib.import_module("mem0").MemoryClient(
        api_key=KEY, client=httpx.Client(transport=httpx.MockTransport(api.respx_side_effect))
    )
    return Mem0Store(client, user_id=Turns(), name="s"), lambda: [m.text for m in api.memories.values()]


@pytest.mark.parametrize("make", [langgraph, letta, cognee, zep, hosted_mem0])
async def test_a_function_is_asked_once_for_a_put(make: Callable[[], Any], tmp_path: Any, mem0: Any) -> None:
    """Each placement names the scope its entry lies in, and what is forgotten is not held any more."""
    store, held = make()
    async with open_desk(tmp_path, stores=[store]) as desk:
        ids = [
            (await desk.custody.write(value=f"secret {n}", space="u", actor=ACTOR)).fact.fact_id
            for n in range(4)
        ]
        for fact_id in ids[:2]:
            (placement,) = await desk.ledger.placements(fact_id)
            (entry,) = await store.find(fact_id)
            assert entry.scope == placement.scope
            assert (await desk.forget(fact_id)).complete
        assert sorted(held()) == ["secret 2", "secret 3"]


async def test_a_function_for_an_existing_table_is_asked_once(
    connect: Connect, database_uri: str, tmp_path: Any
) -> None:
    """The scope column of a table that is there holds what the placement says."""
    from custody_sync.adapters.pgvector import PgVectorStore

    for statement in APP.ddl:
        await ask(database_uri, statement)
    existing = replace(APP.existing, scope=Turns())
    options: dict[str, Any] = {"existing": existing, "dimensions": 64, "embed": WordEmbedder(64)}
    store: Any = PgVectorStore(connect(), table=APP.table, name="s", **options)
    async with open_desk(tmp_path, stores=[store]) as desk:
        for n in range(3):
            fact_id = await desk.written(f"secret {n}")
            (placement,) = await desk.ledger.placements(fact_id)
            assert {entry.scope for entry in await store.find(fact_id)} == {placement.scope}
            assert (await desk.forget(fact_id)).complete
    assert await ask(database_uri, "select body from app.notes") == []
