"""In another project or collection everything looks gone: Mem0's store knows where its entries are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fakes.mem0_api import KEY, Mem0Api
from fix_custody import open_desk
from fix_mem0 import close_memory, open_memory

from custody_sync.adapters._mem0_place import collection_of
from custody_sync.adapters._scopes import LooseNotes
from custody_sync.adapters.mem0 import Mem0Store
from custody_sync.errors import InvalidInput, InvalidStore, NoProof, StoreRefused
from custody_sync.model import Outcome
from custody_sync.testing.contract_case import Case, StoreHooks


def case_of(store: Mem0Store) -> Case:
    """Return the contract's toolbox for one store."""
    return Case("place", store, StoreHooks())


Open = Callable[..., Mem0Store]


@pytest.fixture
def open_project(mem0: Any) -> Open:
    """Return what makes a store for a project's key, in another process of the ledger or the same."""

    def opened(api: Mem0Api, notes: LooseNotes | None = None, **words: Any) -> Mem0Store:
        wire = httpx.Client(transport=httpx.MockTransport(api.respx_side_effect))
        store = Mem0Store(mem0.MemoryClient(api_key=KEY, client=wire), patience=20.0, poll=0.01, **words)
        if notes is not None:
            store.remember_in(notes)
        return store

    return opened


async def test_a_forget_with_the_key_of_another_project_is_not_verified(
    mem0_api: Mem0Api, open_project: Open, tmp_path: Path
) -> None:
    """There the service answers 404 to everything: the memory is in the first project all the same."""
    store: Any = open_project(mem0_api)
    async with open_desk(tmp_path, stores=[store]) as desk:
        fact_id = await desk.written()
        lost = desk.coordinator(stores=[open_project(Mem0Api())])
        told = await lost.forget(fact_id, actor="dpo", reason="asked")
        assert not told.complete
        assert Outcome.VERIFIED not in {removal.outcome for removal in told.removals}
        assert "AnotherPlace" in told.removals[0].detail
        assert not (await lost.verify(actor="ops")).complete
        assert len(mem0_api.memories) == 1
        back = desk.coordinator(stores=[open_project(mem0_api)])
        assert (await back.forget(fact_id, actor="dpo", reason="asked")).complete
        assert not mem0_api.memories


async def test_with_the_key_of_another_project_nothing_is_done(mem0_api: Mem0Api, open_project: Open) -> None:
    """Puts and listings are refused in one sentence that names both projects, the rest with a cause."""
    notes, other = LooseNotes(), Mem0Api()
    case = case_of(open_project(mem0_api, notes))
    put = await case.put()
    wrong = open_project(other, notes)
    both = rf"it is org/{other.project_id}, and the ledger's entries are in org/{mem0_api.project_id}; use a"
    with pytest.raises(InvalidStore, match=both):
        await wrong.put(put.fact, put.label)
    with pytest.raises(InvalidStore, match=both):
        await anext(wrong.list_entries())
    asked: list[Awaitable[Any]] = [
        wrong.find(put.fact.fact_id),
        wrong.delete(put.entries[0]),
        wrong.relabel(put.entries[0], put.label),
    ]
    for question in asked:
        with pytest.raises(StoreRefused, match="AnotherPlace"):
            await question
    with pytest.raises(NoProof, match="AnotherPlace"):
        await wrong.verify_deleted(put.entries[0])
    assert {path for _, path in other.requests} == {"/v1/ping/"}


async def test_a_new_key_of_the_project_is_the_same_place(mem0_api: Mem0Api, mem0: Any) -> None:
    """A key that was changed opens the same project, and what is gone there is gone."""
    notes = LooseNotes()
    for key in (KEY, "m0-rotated"):
        mem0_api.key = key
        wire = httpx.Client(transport=httpx.MockTransport(mem0_api.respx_side_effect))
        store = Mem0Store(mem0.MemoryClient(api_key=key, client=wire), patience=20.0, poll=0.01)
        store.remember_in(notes)
        case = case_of(store)
        put = await case.put()
        await case.delete(put)
        assert await store.verify_deleted(put.entries[0])


async def test_moved_entries_are_reached_under_the_old_name(mem0_api: Mem0Api, open_project: Open) -> None:
    """After a move the caller says what the ledger calls the place; it is then the caller's to keep right."""
    notes, moved = LooseNotes(), Mem0Api()
    put = await case_of(open_project(mem0_api, notes)).put()
    moved.memories = dict(mem0_api.memories)
    store = open_project(moved, notes, place=f"org/{mem0_api.project_id}")
    assert not await store.verify_deleted(put.entries[0])
    await store.delete(put.entries[0])
    assert await store.verify_deleted(put.entries[0])


async def test_an_imported_ledger_learns_the_place_by_what_it_sees(
    mem0_api: Mem0Api, open_project: Open
) -> None:
    """Without a note a miss proves nothing; an entry of the ledger that is seen shows the place."""
    put = await case_of(open_project(mem0_api)).put()
    elsewhere = open_project(Mem0Api(), LooseNotes())
    await elsewhere.delete(put.entries[0])
    assert await elsewhere.find(put.fact.fact_id) == []
    with pytest.raises(NoProof, match="PlaceUnknown"):
        await elsewhere.verify_deleted(put.entries[0])
    here = open_project(mem0_api, LooseNotes())
    await here.delete(put.entries[0])
    assert await here.verify_deleted(put.entries[0])


@pytest.mark.parametrize("labelled", [True, False])
async def test_what_is_seen_is_there_before_a_place_is_noted(
    mem0_api: Mem0Api, open_project: Open, labelled: bool
) -> None:
    """An adopted row that was never labelled shows the place too; only a miss needs one."""
    put = await case_of(open_project(mem0_api)).put()
    (entry,) = put.entries
    if not labelled:
        mem0_api.memories[entry.external_id].metadata = {}
        entry = replace(entry, fact_id=None, ledger_id=None)
    here = open_project(mem0_api, LooseNotes())
    assert await here.verify_deleted(entry) is False
    await here.delete(entry)
    assert await here.verify_deleted(entry)


async def test_a_client_that_names_no_project_needs_a_name(mem0_client: Any) -> None:
    """Nothing is stored where it could never be proved gone: the refusal says what to pass."""
    mem0_client.org_id = mem0_client.project_id = None
    case = case_of(Mem0Store(mem0_client))
    with pytest.raises(InvalidStore, match="pass place="):
        await case.put()
    with pytest.raises(NoProof, match="PlaceUnknown"):
        await case.store.verify_deleted(
            case.confirmed(case.fact(), case.label(case.fact()), ("a",)).entries[0]
        )
    named = case_of(Mem0Store(mem0_client, place="ours", patience=20.0, poll=0.01))
    assert (await named.put()).ids
    with pytest.raises(InvalidInput, match="place"):
        Mem0Store(mem0_client, place=" ")


async def test_another_folder_of_the_library_proves_nothing(mem0: Any, tmp_path: Path) -> None:
    """An empty Qdrant under the same store name has nothing, and says nothing of the one that has."""
    notes = LooseNotes()
    settings = {"collection_name": "custody", "embedding_model_dims": 64, "on_disk": True}
    memories = [
        open_memory(
            mem0.Memory,
            tmp_path,
            vector_store={"provider": "qdrant", "config": {**settings, "path": str(tmp_path / name)}},
        )
        for name in ("first", "second")
    ]
    stores = [Mem0Store(memory) for memory in memories]
    for store in stores:
        store.remember_in(notes)
    put = await case_of(stores[0]).put()
    with pytest.raises(NoProof, match="AnotherPlace"):
        await stores[1].verify_deleted(put.entries[0])
    with pytest.raises(
        InvalidStore, match=r"first custody; use a client of that one, or pass place='qdrant "
    ):
        await stores[1].put(put.fact, put.label)
    for memory in memories:
        close_memory(memory)


def memory_on(kind: str, store: dict[str, Any], **settings: Any) -> Any:
    """Return what has the shape of a `Memory` on a vector store."""
    found = type("Store", (), {"__module__": f"mem0.vector_stores.{kind}"})()
    vars(found).update(store)
    config = SimpleNamespace(vector_store=SimpleNamespace(config=SimpleNamespace(**settings)))
    return SimpleNamespace(vector_store=found, config=config)


@pytest.mark.parametrize(
    ("memory", "name"),
    [
        (
            memory_on(
                "qdrant",
                {"client": SimpleNamespace(_client=SimpleNamespace(rest_uri="http://u:pw@q:6333/x"))},
                collection_name="c",
            ),
            "qdrant q:6333/x c",
        ),
        (
            memory_on(
                "qdrant",
                {
                    "client": SimpleNamespace(_client=SimpleNamespace(location=":memory:")),
                    "collection_name": "c",
                },
            ),
            "qdrant :memory: c",
        ),
        (
            memory_on(
                "pgvector",
                {
                    "connection_pool": SimpleNamespace(
                        conninfo="postgresql://u:pw@db:5432/app?sslmode=require"
                    )
                },
                collection_name="c",
                dbname="postgres",
            ),
            "pgvector db:5432/app c",
        ),
        (
            memory_on("pgvector", {}, connection_string="host=db dbname=app password=pw user=u"),
            "pgvector db app",
        ),
        (
            memory_on("pgvector", {}, host="db", port=5432, dbname="app", user="u", password="pw"),
            "pgvector db 5432 app",
        ),
        (memory_on("chroma", {"collection_name": "c"}, path="/data/chroma"), "chroma /data/chroma c"),
        (memory_on("faiss", {"path": "/data/faiss", "collection_name": "c"}), "faiss /data/faiss c"),
        (memory_on("redis", {}, redis_url="redis://:pw@r:6379", collection_name="c"), "redis r:6379 c"),
        (SimpleNamespace(vector_store=SimpleNamespace()), "types"),
    ],
)
def test_a_collection_is_named_without_what_it_logs_in_with(memory: Any, name: str) -> None:
    """Kind, address and collection stand in the notebook; users, passwords and options do not."""
    assert collection_of(memory) == name
