"""The Cognee adapter's answers: batches, texts, hits, and what it takes for a proof."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import httpx
import pytest
from fakes.cognee_api import BASE_URL, PASSWORD, USER, CogneeServer
from fix_cognee import CogneeBench

from custody_sync.adapters.cognee import CogneeStore
from custody_sync.errors import (
    InvalidInput,
    NoProof,
    StoreError,
    StoreRefused,
    StoreThrottled,
    StoreUnavailable,
)
from custody_sync.model import Entry
from custody_sync.testing.contract_case import Case, StoreHooks

# --- single answers ------------------------------------------------------------------------


async def test_a_blank_text_and_a_blank_query_are_refused(cognee: CogneeBench) -> None:
    """Cognee would index nothing of the one and answer 500 to the other."""
    with pytest.raises(InvalidInput):
        await cognee.put(" \n")
    await cognee.put("something")
    with pytest.raises(InvalidInput):
        await cognee.store.search(" ", 5, None)
    assert await cognee.store.search("x", 0, None) == []


async def test_a_batch_says_nothing_was_done_only_if_nothing_was(cognee: CogneeBench) -> None:
    """One refused file among others makes a batch that may have taken effect; all refused, a refusal."""
    case = cognee.case()
    pairs = [(fact, case.label(fact)) for fact in (case.fact(), case.fact(" "), case.fact())]
    with pytest.raises(StoreUnavailable):
        await cognee.store.put_many(pairs)
    assert len([entry async for entry in cognee.store.list_entries()]) == 2
    with pytest.raises(InvalidInput):
        await cognee.store.put_many(pairs[1:2])
    await cognee.put("so that the version and the token are known")
    cognee.server.switches.throttled = 100
    with pytest.raises(StoreThrottled) as caught:
        await cognee.store.put_many(pairs[:1])
    assert caught.value.fields["retry_after"] == 1.0


async def test_a_batch_is_indexed_once_for_each_dataset(cognee: CogneeBench) -> None:
    """Fifty facts of two spaces take two indexing runs."""
    case = cognee.case()
    facts = [case.fact(space=f"user:{n % 2}") for n in range(50)]
    answers = await cognee.store.put_many([(fact, case.label(fact)) for fact in facts])
    assert cognee.server.requests.count(("POST", "/api/v1/cognify")) == 2
    assert len({ids[0] for ids in answers}) == 50


@pytest.mark.parametrize("text", ["one\r\ntwo\rthree\nfour", "\r", "x" * 1_000_000, "\ufeffbom", "\x00nul"])
async def test_a_text_is_found_as_it_was_put(cognee: CogneeBench, text: str) -> None:
    """Line breaks that Cognee changes, and a text of many chunks, come back to the byte."""
    put = await cognee.put(f"a {text}")
    assert [entry.text for entry in await cognee.store.find(put.fact.fact_id)] == [f"a {text}"]
    hits = await cognee.store.search("a", 3, ["user:1"])
    assert [hit.entry.external_id for hit in hits] == list(put.ids)


async def test_a_hit_of_many_chunks_is_one_entry(cognee: CogneeBench) -> None:
    """A long text takes one place among k, however many of its chunks are near."""
    long = await cognee.put("harbour " * 5_000)
    short = await cognee.put("harbour once")
    hits = await cognee.store.search("harbour", 2, None)
    assert {hit.entry.external_id for hit in hits} == {long.ids[0], short.ids[0]}
    assert [hit.score for hit in hits] == sorted((hit.score or 0 for hit in hits), reverse=True)


async def test_one_index_for_all_is_located_by_data_id() -> None:
    """Without access control a search answers for every dataset; what lies elsewhere is left out."""
    async with httpx.AsyncClient(base_url=BASE_URL) as client:
        with CogneeServer(access_control=False).running() as server:
            one = CogneeStore(client, dataset="one", cognify="wait")
            two = CogneeStore(client, dataset="two", cognify="wait")
            cognee = CogneeBench(server, client)
            mine = await cognee.put("harbour lights", store=one)
            for n in range(30):
                await cognee.put(f"harbour {n}", store=two)
            hits = await one.search("harbour", 1, None)
            assert [(hit.entry.scope, hit.entry.external_id) for hit in hits] == [("one", mine.ids[0])]


# --- proof ---------------------------------------------------------------------------------


async def test_a_row_without_its_tag_is_looked_for_in_the_whole_index(cognee: CogneeBench) -> None:
    """What this adapter did not put is found in the index as well, though no tag leads to it."""
    dataset = cognee.server.dataset("user:1")
    data_id = cognee.server.add(dataset, "notes.md", b"adopted")
    for n in range(150):
        await cognee.put(f"other {n}")
    cognee.server.cognify(dataset)
    entry = Entry(
        store="cognee", external_id=f"{data_id}~untagged", fact_id="fact-of-the-ledger", scope="user:1"
    )
    assert not await cognee.store.verify_deleted(entry)
    cognee.server.switches.lag = 2
    await cognee.store.delete(entry)
    assert not await cognee.store.verify_deleted(entry)
    assert await cognee.store.verify_deleted(entry)


async def test_an_index_that_leaves_out_what_it_has_is_no_proof(cognee: CogneeBench) -> None:
    """Where no tag leads, an answer without some that are indexed proves nothing of others."""
    put = await cognee.put("held")
    dataset = cognee.server.dataset("user:1")
    dataset.chunks = [chunk for chunk in dataset.chunks if chunk.item.data_id != put.ids[0]]
    gone = Entry(store="cognee", external_id="11111111-1111-4111-8111-111111111111~untagged", scope="user:1")
    with pytest.raises(NoProof):
        await cognee.store.verify_deleted(gone)


async def test_an_erased_id_is_asked_about_by_fact(cognee: CogneeBench) -> None:
    """After an erasure of identity every entry of the fact has to be gone, wherever it lies."""
    case = cognee.case()
    fact = case.fact(space="user:7")
    older = await case.put(fact)
    newer = await case.put(fact)
    erased = Entry(store="cognee", external_id="erased~1", fact_id=fact.fact_id)
    await cognee.store.delete(older.entries[0])
    assert not await cognee.store.verify_deleted(erased)
    await cognee.store.delete(newer.entries[0])
    assert await cognee.store.verify_deleted(erased)


async def test_an_entry_without_a_dataset_is_not_deleted(cognee: CogneeBench) -> None:
    """A data id alone addresses nothing."""
    put = await cognee.put("held")
    with pytest.raises(StoreRefused):
        await cognee.store.delete(replace(put.entries[0], scope=None))


async def test_a_file_that_is_left_is_not_gone(cognee: CogneeBench) -> None:
    """A row that a listing leaves out for ever is still found by its file."""
    put = await cognee.put("only a file")

    def hide(request: httpx.Request) -> None:
        if request.url.path.endswith("/data"):
            request.url = request.url.copy_merge_params({"offset": "500000"})

    cognee.server.before_answer = hide
    cognee.server.dataset("user:1").chunks = []
    assert not await cognee.store.find(put.fact.fact_id)
    assert not await cognee.store.verify_deleted(put.entries[0])


async def test_a_row_without_its_file_is_not_gone(cognee: CogneeBench) -> None:
    """A 404 for the file may mean that the disk lost it: the row, and with it the label, is still there."""
    put = await cognee.put("only a row")
    cognee.server.lost_files.update(put.ids)
    dataset = cognee.server.dataset("user:1")
    dataset.chunks, dataset.items[put.ids[0]].is_indexed = [], False
    assert not await cognee.store.verify_deleted(put.entries[0])
    assert [entry.text for entry in await cognee.store.find(put.fact.fact_id)] == [None]


@pytest.mark.parametrize("body", ["null", "[1]", "{}", "<html>", '[{"dataset_id": 1, "search_result": []}]'])
async def test_an_unreadable_answer_is_no_answer(cognee: CogneeBench, body: str) -> None:
    """What a proxy makes of an answer is an outage, never an empty store."""
    put = await cognee.put("held")

    def answer(request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path in ("/api/v1/search", "/api/v1/datasets") or path.endswith("/data"):
            return httpx.Response(200, text=body)
        return httpx.Response(200, json={"version": "1.6.5", "access_token": "t"})

    async with httpx.AsyncClient(base_url=BASE_URL, transport=httpx.MockTransport(answer)) as client:
        store = CogneeStore(client, username=USER, password=PASSWORD)
        with pytest.raises((StoreError, NoProof)):
            await store.verify_deleted(put.entries[0])
        if body != '[{"dataset_id": 1, "search_result": []}]':
            with pytest.raises(StoreUnavailable):
                await store.find(put.fact.fact_id)


async def test_a_listing_that_never_settles_ends(cognee: CogneeBench) -> None:
    """A server whose pages never join is an outage, not an endless listing."""
    pages = iter(range(10_000_000))

    def answer(request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path == "/api/v1/datasets":
            return httpx.Response(200, json=[{"id": "d", "name": "user:1"}])
        if path.endswith("/data"):
            first = request.url.params["offset"] == "0"
            return httpx.Response(200, json=[{"id": f"{n if first else next(pages)}"} for n in "ab"])
        return httpx.Response(200, json={"version": "1.6.5"})

    async with httpx.AsyncClient(base_url=BASE_URL, transport=httpx.MockTransport(answer)) as client:
        store = CogneeStore(client, page_size=2)
        with pytest.raises(StoreUnavailable, match="UnsettledListing"):
            await store.find("any")


def test_an_entry_is_dated_in_utc() -> None:
    """What the server dates is dated in UTC, so the sweep's ten minutes are ten minutes."""
    with httpx.Client(base_url=BASE_URL) as client, CogneeServer().running():
        store = CogneeStore(client, username=USER, password=PASSWORD, cognify="wait")
        case = Case("cognee", store, StoreHooks())
        put = asyncio.run(case.put())
        entry = asyncio.run(store.find(put.fact.fact_id))[0]
        assert entry.created_at is not None
        assert entry.created_at.utcoffset() == timedelta(0)


async def test_a_neighbour_that_goes_meanwhile_spoils_no_proof(cognee: CogneeBench) -> None:
    """In a sweep the row that was to show that the index looks may be gone when it is asked: ask again."""
    gone, _, neighbour = [await cognee.put(f"note {n}") for n in range(3)]
    await cognee.store.delete(gone.entries[0])
    other, searches = cognee.adapter(), 0

    async def delete_first(request: httpx.Request) -> None:
        nonlocal searches
        searches += request.url.path == "/api/v1/search"
        if searches == 1:
            searches += 1
            await other.delete(neighbour.entries[0])

    cognee.client.event_hooks = {"request": [delete_first]}
    assert await cognee.store.verify_deleted(gone.entries[0])
    assert searches > 1
