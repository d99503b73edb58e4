"""What was reported of Mem0's service and library: each fails an adapter written from its examples."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from fakes.mem0_api import Mem0Api

from custody_sync.adapters.mem0 import Mem0Store
from custody_sync.errors import CustodyError, StoreRefused, StoreUnavailable
from custody_sync.testing.contract_case import Case, StoreHooks


@pytest.fixture
def store(mem0_client: Any) -> Mem0Store:
    """Return the adapter on an empty project of the hosted service."""
    return Mem0Store(mem0_client, patience=20.0, poll=0.01)


@pytest.fixture
def local(mem0_memory: Any) -> Mem0Store:
    """Return the adapter on open source Mem0 with a local Qdrant."""
    return Mem0Store(mem0_memory)


def case_of(store: Mem0Store) -> Case:
    """Return the contract's toolbox for one store."""
    return Case("field", store, StoreHooks())


async def left_of(case: Case) -> list[str | None]:
    """Return the facts that a listing shows."""
    return [entry.fact_id for entry in await case.listed()]


# --- the hosted service: writes ------------------------------------------------------------


async def test_a_repeat_that_was_dropped_is_no_success(store: Mem0Store, mem0_api: Mem0Api) -> None:
    """SUCCEEDED with no results stored nothing: the write fails, and the memory that is there stays.

    https://github.com/thpoll83/qmk_firmware/pull/287
    """
    mem0_api.switches.collapse_ignores_run = True
    case = case_of(store)
    first = await case.put(case.fact("likes tea"))
    with pytest.raises(StoreRefused, match="EqualTextCollapsed"):
        await case.put(case.fact("likes tea"))
    assert await left_of(case) == [first.fact.fact_id]


async def test_a_repeat_under_a_shared_id_is_refused_and_not_deleted(
    store: Mem0Store, mem0_api: Mem0Api
) -> None:
    """An id that carries another fact's label is not ours: taking it back would take the other's memory.

    https://docs.mem0.ai/platform/features/direct-import (exact repeats in the same scope)
    """
    mem0_api.switches.collapse_ignores_run = mem0_api.switches.collapse_shares_id = True
    case = case_of(store)
    first, second = await case.put(case.fact("likes tea")), case.fact("likes tea")
    with pytest.raises(StoreRefused, match="IdOfAnotherFact"):
        await case.put(second)
    stolen = case.confirmed(second, case.label(second), first.ids)
    with pytest.raises(StoreRefused, match="IdOfAnotherFact"):
        await case.delete(stolen)
    assert await left_of(case) == [first.fact.fact_id]


async def test_equal_texts_of_one_user_are_two_memories(store: Mem0Store, mem0_api: Mem0Api) -> None:
    """Where the service looks for repeats in one scope, every entry is in a scope of its own.

    https://docs.mem0.ai/platform/features/direct-import (exact repeats in the same scope)
    """
    case = case_of(store)
    one, two = await case.put(case.fact("likes tea")), await case.put(case.fact("likes tea"))
    await case.delete(one)
    assert await left_of(case) == [two.fact.fact_id]
    assert {body["run_id"] for body in mem0_api.bodies if "run_id" in body} == {
        one.label.key,
        two.label.key,
    }


async def test_pending_is_not_stored(store: Mem0Store, mem0_api: Mem0Api, mem0_client: Any) -> None:
    """An event id and PENDING are no confirmation; a write that ends later is followed to its end.

    https://github.com/mem0ai/mem0/pull/7271
    """
    case = case_of(store)
    mem0_api.switches.polls = 3
    put = await case.put()
    assert put.ids == tuple(mem0_api.memories)
    mem0_api.switches.pending = True
    hasty = Mem0Store(mem0_client, patience=0.05, poll=0.01)
    with pytest.raises(StoreUnavailable, match="PENDING"):
        await hasty.put(fact := case.fact(), case.label(fact))


async def test_a_fact_is_said_by_a_user_and_not_inferred(store: Mem0Store, mem0_api: Mem0Api) -> None:
    """Direct import of an assistant's message stored nothing; a user's is stored as it is.

    https://github.com/mem0ai/mem0/issues/3215
    """
    await case_of(store).put()
    (sent,) = (body for body in mem0_api.bodies if "messages" in body)
    assert [message["role"] for message in sent["messages"]] == ["user"]
    assert sent["infer"] is False


# --- the hosted service: deletions ---------------------------------------------------------


async def test_a_deletion_that_search_still_answers_is_not_proved(
    store: Mem0Store, mem0_api: Mem0Api
) -> None:
    """Gone from the dashboard, still served by search: not gone until the search does not serve it.

    https://github.com/mem0ai/mem0/issues/3695
    """
    case = case_of(store)
    put = await case.put()
    mem0_api.switches.lag = 4
    await case.delete(put)
    answers = [await store.verify_deleted(put.entries[0]) for _ in range(4)]
    assert answers == [False, False, True, True]


async def test_nothing_is_deleted_by_filter(store: Mem0Store, mem0_api: Mem0Api) -> None:
    """Deleting all of a user left 48 of 148, and once wiped a whole store: only single ids are deleted.

    https://github.com/mem0ai/mem0/issues/4957, https://github.com/mem0ai/mem0/issues/3746
    """
    case = case_of(store)
    puts = await case.put_all([case.fact() for _ in range(148)])
    await case.delete(*puts)
    paths = {path for method, path in mem0_api.requests if method == "DELETE"}
    assert len(paths) == 148
    assert all(path.removeprefix("/v1/memories/").strip("/") for path in paths)
    assert await left_of(case) == []


async def test_an_empty_answer_to_a_deletion_decides_nothing(store: Mem0Store, mem0_api: Mem0Api) -> None:
    """204 without a body, which the client cannot read, is success that proves nothing.

    https://github.com/QwenLM/qwen-code/pull/11397
    """
    case = case_of(store)
    put = await case.put()
    mem0_api.switches.empty_body, mem0_api.switches.lying_delete = 1, True
    await case.delete(put)
    assert not await store.verify_deleted(put.entries[0])


async def test_a_merged_memory_is_found_and_not_called_gone(store: Mem0Store, mem0_api: Mem0Api) -> None:
    """What the service merged is hidden from default reads and kept: it is listed, found and searched for.

    https://docs.mem0.ai/platform/features/dream
    """
    case = case_of(store)
    put = await case.put()
    mem0_api.memories[put.ids[0]].is_merged = mem0_api.switches.merged_hidden_by_id = True
    assert len(await store.find(put.fact.fact_id)) == 1
    assert await left_of(case) == [put.fact.fact_id]
    for entry in (*put.entries, *put.blind, replace(put.entries[0], fact_id=None)):
        assert not await store.verify_deleted(entry)


async def test_an_expired_memory_is_found_and_not_called_gone(store: Mem0Store, mem0_api: Mem0Api) -> None:
    """What has expired is hidden from default reads and kept, so every reading asks for it.

    https://docs.mem0.ai/platform/features/expiration-date
    """
    case = case_of(store)
    put = await case.put()
    mem0_api.memories[put.ids[0]].expiration_date = "2020-01-01"
    assert len(await store.find(put.fact.fact_id)) == 1
    assert await left_of(case) == [put.fact.fact_id]
    assert not await store.verify_deleted(put.entries[0])


# --- the hosted service: readings ----------------------------------------------------------


async def test_a_listing_goes_past_the_first_page(store: Mem0Store) -> None:
    """A list ends after 100 rows unless it is paged: 148 are listed, each once.

    https://github.com/mem0ai/mem0/issues/4957
    """
    case = case_of(store)
    puts = await case.put_all([case.fact() for _ in range(148)])
    assert sorted(str(fact) for fact in await left_of(case)) == sorted(put.fact.fact_id for put in puts)


async def test_times_with_any_offset_are_one_instant(store: Mem0Store) -> None:
    """List and search write one instant differently, with offsets: both are read as the same UTC instant.

    https://github.com/mem0ai/mem0/issues/4402, https://github.com/mem0ai/mem0/pull/4463
    """
    case = case_of(store)
    put = await case.put()
    (listed,), (hit,) = await case.listed(), await case.search(put.fact.text or "")
    assert listed.created_at is not None
    assert listed.created_at == hit.entry.created_at
    assert listed.created_at.utcoffset() == timedelta(0)


async def test_filters_are_plain_equalities(store: Mem0Store, mem0_api: Mem0Api) -> None:
    """Operators in filters fail or match nothing, depending on the store: none is sent.

    https://github.com/mem0ai/mem0/issues/3975, https://github.com/mem0ai/mem0/issues/3284
    """
    case = case_of(store)
    put = await case.put()
    await case.search("anything", 5, [case.space])
    await store.find(put.fact.fact_id)
    await store.verify_deleted(put.entries[0])
    filters = [body["filters"] for body in mem0_api.bodies if "filters" in body]
    assert filters
    for only in filters:
        assert only.keys() <= {"user_id", "metadata", "memory_ids"}
        assert all(isinstance(value, str) for value in only.get("metadata", {}).values())


# --- the library ---------------------------------------------------------------------------


async def test_more_than_the_default_of_20_are_read(local: Mem0Store) -> None:
    """`get_all` stops at 20 without a word: 47 are found and listed.

    https://github.com/NousResearch/hermes-agent/pull/58323
    """
    case = case_of(local)
    fact = case.fact()
    await case.put_all([fact] * 47)
    assert len(await local.find(fact.fact_id)) == 47
    assert len(await case.listed()) == 47


async def test_rows_that_a_dropped_filter_lets_through_are_not_taken(
    local: Mem0Store, mem0_memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A vector store that drops unknown filters shows everybody's rows: none is taken for the fact's.

    https://github.com/mem0ai/mem0/issues/6423, https://github.com/mem0ai/mem0/issues/7113
    """
    case = case_of(local)
    put, other = await case.put(), await case.put()
    works = mem0_memory.vector_store.list
    monkeypatch.setattr(mem0_memory.vector_store, "list", lambda filters, top_k: works({}, top_k))
    assert [entry.external_id for entry in await local.find(put.fact.fact_id)] == list(put.ids)
    await case.delete(put)
    assert await local.verify_deleted(put.entries[0])
    assert not await local.verify_deleted(other.entries[0])


async def test_an_add_that_failed_after_its_insert_is_found(local: Mem0Store, mem0_memory: Any) -> None:
    """The row is written before its history: an add that raises may have stored, and is found by its label.

    https://github.com/mem0ai/mem0/issues/7196
    """
    case = case_of(local)
    mem0_memory.close()
    fact = case.fact()
    with pytest.raises(StoreUnavailable):
        await local.put(fact, case.label(fact))
    assert [entry.fact_id for entry in await local.find(fact.fact_id)] == [fact.fact_id]


async def test_a_label_is_flat_text_without_reserved_keys(local: Mem0Store, mem0_memory: Any) -> None:
    """Nested values and None are refused by some vector stores, and some keys are overwritten.

    https://github.com/chroma-core/chroma/issues/1975
    """
    case = case_of(local)
    put = await case.put()
    metadata = mem0_memory.get(put.ids[0])["metadata"]
    reserved = {"data", "hash", "text_lemmatized", "updated_at", "created_at", "role", "id", "actor_id"}
    assert all(isinstance(value, str) for value in metadata.values())
    assert not metadata.keys() & reserved


async def test_a_label_is_never_changed_in_place(local: Mem0Store) -> None:
    """An update writes a row whole, and before 2.0.7 without its metadata: it is not used.

    https://github.com/mem0ai/mem0/issues/5160
    """
    case = case_of(local)
    put = await case.put()
    with pytest.raises(CustodyError):
        await local.relabel(put.entries[0], put.label)


async def test_a_threshold_hides_nothing_and_scores_decide_nothing(
    local: Mem0Store, mem0_memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a store that returns distances the best hit has the lowest score: a held row is never called gone.

    https://github.com/mem0ai/mem0/issues/4453
    """
    case = case_of(local)
    put = await case.put()
    works = mem0_memory.vector_store.search

    def distances(**options: Any) -> list[Any]:
        return [hit.model_copy(update={"score": abs(1.0 - hit.score)}) for hit in works(**options)]

    monkeypatch.setattr(mem0_memory.vector_store, "search", distances)
    monkeypatch.setattr(mem0_memory, "get", lambda memory_id: None)
    monkeypatch.setattr(mem0_memory.vector_store, "list", lambda filters, top_k: [[]])
    assert not await local.verify_deleted(put.entries[0])


async def test_names_with_white_space_have_a_user_of_their_own(local: Mem0Store) -> None:
    """Mem0 refuses white space inside a user id and trims it outside: it is escaped, and spaces stay apart.

    mem0ai 2.2.1, `_validate_and_trim_entity_id`; `*` as a user id would be everybody.
    """
    case = case_of(local)
    spaces = ["my team", " my team", "my%20team", "*", "my\u00a0team", "my\tteam"]
    puts = await asyncio.gather(*(case.put(case.fact("the same", space=space)) for space in spaces))
    assert len({put.entries[0].scope for put in puts}) == len(spaces)
    for put, space in zip(puts, spaces, strict=True):
        hits = await case.search("the same", 20, [space])
        assert [hit.entry.external_id for hit in hits] == list(put.ids)
