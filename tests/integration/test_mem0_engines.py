"""What depends on the vector store under open source Mem0: proof, embedding, and what a deletion leaves."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from fakes.faiss import Faiss
from fix_mem0 import DIMENSIONS, close_memory, open_memory

from custody_sync.adapters.mem0 import Mem0Store
from custody_sync.errors import NoProof, StoreThrottled, StoreUnavailable
from custody_sync.model import Capability, Entry, Level
from custody_sync.testing.contract_case import Case, StoreHooks

SECRET = "the vault opens with 7734"  # a text to look for on disk


def case_of(store: Mem0Store) -> Case:
    """Return the contract's toolbox for one store."""
    return Case("engines", store, StoreHooks())


@pytest.fixture
def faiss(mem0_memory: Any) -> Faiss:
    """Put a store that cuts before it filters under Mem0's library."""
    mem0_memory.vector_store.client.close()
    found = Faiss(DIMENSIONS)
    mem0_memory.vector_store = found
    return found


# --- a filter after the cut ----------------------------------------------------------------


async def test_a_crowd_elsewhere_proves_no_absence(mem0_memory: Any, faiss: Faiss) -> None:
    """301 equal texts of others fill the cut, and the filter leaves nothing: that is no proof by itself.

    Seen on FAISS with mem0ai 2.2.1: the text's own row was there, and search with a filter found none.
    """
    store = Mem0Store(mem0_memory)
    case = case_of(store)
    await case.put_all([case.fact("the same words", space="others") for _ in range(301)])
    put = await case.put(case.fact("the same words"))
    naive = mem0_memory.search("the same words", filters={"user_id": put.entries[0].scope}, threshold=0.0)
    assert naive["results"] == []
    # Only the search is left to tell: a row that neither id nor label leads to.
    faiss.get, works = lambda vector_id: None, faiss.list  # type: ignore[method-assign]
    faiss.list = lambda filters=None, top_k=100: [[]]  # type: ignore[method-assign]
    assert not await store.verify_deleted(put.entries[0])
    faiss.list = works  # type: ignore[method-assign]
    faiss.delete(put.ids[0])
    assert await store.verify_deleted(put.entries[0])


async def test_an_index_that_never_shows_all_proves_nothing(mem0_memory: Any, faiss: Faiss) -> None:
    """Where nobody can tell how far a search looked, equal texts of others leave it undecided."""
    store = Mem0Store(mem0_memory)
    case = case_of(store)
    await case.put_all([case.fact("the same words", space="others") for _ in range(5)])
    put = await case.put(case.fact("the same words"))
    await case.delete(put)
    faiss.col_info = lambda: {}  # type: ignore[method-assign]
    with pytest.raises(NoProof, match="CrowdedSearch"):
        await store.verify_deleted(put.entries[0])
    # A row that is less near shows that every row as near as the text was looked at.
    await case.put(case.fact("the same words"))
    await case.put(case.fact("other words altogether"))
    assert await store.verify_deleted(put.entries[0])


def test_what_a_vector_store_cannot_is_said(mem0_memory: Any, faiss: Faiss) -> None:
    """Support is partial, with its reason, where filters come late or a wildcard matches nothing."""
    supports = Mem0Store(mem0_memory).capabilities
    partly = {c for c, support in supports.items() if support.level is Level.PARTIAL and support.reason}
    assert partly == {Capability.SEARCH, Capability.VERIFY_DELETED, Capability.LIST_ENTRIES}


@pytest.mark.parametrize("indexed", [True, False])
def test_pgvector_with_an_index_filters_late(mem0_memory: Any, indexed: bool) -> None:
    """Mem0's pgvector has HNSW unless told otherwise, and that picks candidates before it filters them."""
    kind = type("PGVector", (), {"__module__": "mem0.vector_stores.pgvector", "use_hnsw": indexed})
    mem0_memory.vector_store.client.close()
    mem0_memory.vector_store = kind()
    store = Mem0Store(mem0_memory)
    assert (Capability.VERIFY_DELETED in store.capabilities) is indexed


# --- what a deletion leaves ----------------------------------------------------------------


async def told_and_left(memory: Any, folder: Path) -> tuple[list[str], list[str]]:
    """Forget a text, and return what the store says is left and in which files the text is."""
    store = Mem0Store(memory)
    case = case_of(store)
    put = await case.put(case.fact(SECRET))
    await case.delete(put)
    assert await store.verify_deleted(put.entries[0])
    told = list(await store.after_forget(put.entries))
    close_memory(memory)
    return told, await asyncio.to_thread(files_with_the_text, folder)


def files_with_the_text(folder: Path) -> list[str]:
    """Return the names of the files below a folder that have the text in their bytes."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path.name for path in files if SECRET.encode() in path.read_bytes()]


async def test_the_history_keeps_the_text_and_is_named(mem0: Any, tmp_path: Path) -> None:
    """With Mem0's own default, a history on disk, a deleted text stays in it; the forget says so.

    https://github.com/Significant-Gravitas/AutoGPT/pull/12720 is the same case elsewhere.
    """
    memory = open_memory(mem0.Memory, tmp_path, history_db_path=str(tmp_path / "history.db"))
    told, left = await told_and_left(memory, tmp_path)
    assert left == ["history.db"]
    assert any("history_db_path=':memory:'" in sentence for sentence in told)


async def test_a_history_in_memory_leaves_nothing_on_disk(mem0: Any, tmp_path: Path) -> None:
    """With history_db_path=":memory:" no file has the text after its deletion, and none is named."""
    told, left = await told_and_left(open_memory(mem0.Memory, tmp_path), tmp_path)
    assert left == []
    assert not any("history" in sentence for sentence in told)


@pytest.mark.parametrize(
    ("kind", "said"),
    [("chroma", "Chroma's own file"), ("pgvector", "VACUUM"), ("milvus", "vector store milvus")],
)
async def test_what_a_vector_store_leaves_is_named(mem0_memory: Any, kind: str, said: str) -> None:
    """Every vector store has its sentence, one that is not known here too."""
    store_type = type("Store", (), {"__module__": f"mem0.vector_stores.{kind}"})
    mem0_memory.vector_store.client.close()
    mem0_memory.vector_store = store_type()
    store = Mem0Store(mem0_memory)
    entry = Entry(store=store.name, external_id="gone")
    assert any(said in sentence for sentence in await store.after_forget([entry]))
    assert await store.after_forget([]) == ()


# --- the embedding model -------------------------------------------------------------------


async def test_an_embedding_service_that_turns_away_is_waited_for(mem0_memory: Any) -> None:
    """429 from the embedding model comes before anything is stored: throttled, with its Retry-After."""
    store = Mem0Store(mem0_memory)
    case = case_of(store)

    class RateLimitError(Exception):
        status_code = 429
        response = httpx.Response(429, headers={"Retry-After": "7"})

    mem0_memory.embedding_model.errors.append(RateLimitError("too much of: the text"))
    fact = case.fact()
    with pytest.raises(StoreThrottled) as throttled:
        await store.put(fact, case.label(fact))
    assert throttled.value.fields["retry_after"] == 7.0
    assert await store.find(fact.fact_id) == []
    assert await store.put(fact, case.label(fact))


async def test_an_embedding_service_that_is_away_is_not_taken_for_an_answer(mem0_memory: Any) -> None:
    """A connection reset while embedding fails put, search and a proof with the text, and quotes nothing."""
    store = Mem0Store(mem0_memory)
    case = case_of(store)
    put = await case.put()
    await case.delete(put)
    mem0_memory.embedding_model.always = ConnectionResetError(f"while embedding {put.fact.text}")
    for call in (
        store.put(put.fact, put.label),
        store.search("x", 5, None),
        store.verify_deleted(put.entries[0]),
    ):
        with pytest.raises(StoreUnavailable) as failed:
            await call
        assert str(put.fact.text) not in str(failed.value)
    assert await store.verify_deleted(put.blind[0])
