"""Cognee's answers that cannot be read are no answers: they prove nothing, and serve nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from fakes.cognee_api import BASE_URL, CogneeServer
from fix_cognee import CogneeBench

from custody_sync.adapters.cognee import CogneeStore
from custody_sync.errors import NoProof, StoreError, StoreUnavailable
from custody_sync.model import Entry

Bend = Callable[[Any], Any]
NO_ANSWER = (NoProof, StoreError)


def bent(cognee: CogneeBench, end: str, bend: Bend, method: str = "GET") -> CogneeStore:
    """Return a store to which some answers of 200 come as a proxy or another version might have made them."""

    def answer(request: httpx.Request) -> httpx.Response:
        found = cognee.server.answer(request)
        if found.status_code != 200 or request.method != method or not request.url.path.endswith(end):
            return found
        return httpx.Response(200, json=bend(found.json()))

    client = httpx.AsyncClient(base_url=BASE_URL, transport=httpx.MockTransport(answer))
    return CogneeStore(client, api_key=cognee.server.new_key(), cognify="wait")


async def left_in_index(cognee: CogneeBench, *, alone: bool) -> Entry:
    """Delete a fact of which the index keeps the chunk; alone, or beside a living one."""
    put = await cognee.put("the secret")
    if not alone:
        await cognee.put("living")
    cognee.server.switches.lag = float("inf")
    await cognee.store.delete(put.entries[0])
    return put.entries[0]


def _by_chunk(change: Callable[[dict[str, Any]], object]) -> Bend:
    def bend(rows: Any) -> Any:
        for chunk in (chunk for row in rows for chunk in row["search_result"]):
            if "the secret" in chunk["text"]:
                change(chunk)
        return rows

    return bend


SEARCHES: dict[str, Bend] = {
    "nothing": lambda rows: [],
    "another dataset": lambda rows: [{**row, "dataset_id": "d", "search_result": []} for row in rows],
    "failed": lambda rows: [{**row, "search_result": [], "error": "LanceDB: timeout"} for row in rows],
    "no index": lambda rows: [{**row, "search_result": [], "error": "run cognify"} for row in rows],
    "no row": _by_chunk(lambda chunk: chunk.pop("document_id")),
    "row is a number": _by_chunk(lambda chunk: chunk.update(document_id=7)),
    "metadata broken": _by_chunk(lambda chunk: chunk.update(external_metadata="[1")),
}


@pytest.mark.parametrize("alone", [True, False], ids=["the last fact", "one of two"])
@pytest.mark.parametrize("kind", SEARCHES)
async def test_an_unreadable_search_proves_nothing(cognee: CogneeBench, kind: str, alone: bool) -> None:
    """What a search does not say of the dataset, or of a chunk's row, is not taken for absence."""
    entry = await left_in_index(cognee, alone=alone)
    store = bent(cognee, "/search", SEARCHES[kind], "POST")
    with pytest.raises(NO_ANSWER):
        await store.verify_deleted(entry)
    assert not await cognee.store.verify_deleted(entry)


@pytest.mark.parametrize("kind", ["nothing", "another dataset", "failed", "no row"])
async def test_an_unreadable_search_serves_nothing(cognee: CogneeBench, kind: str) -> None:
    """Recall says that it cannot answer, instead of answering less."""
    await cognee.put("the secret")
    store = bent(cognee, "/search", SEARCHES[kind], "POST")
    with pytest.raises(StoreUnavailable):
        await store.search("the secret", 3, ["user:1"])


async def test_a_dataset_that_failed_among_others_is_told(cognee: CogneeBench) -> None:
    """One of several without an index is nothing to find there; one that failed is no answer."""
    put = await cognee.put("the secret")
    cognee.server.dataset("user:2")
    assert [hit.entry.external_id for hit in await cognee.store.search("secret", 3, None)] == list(put.ids)
    store = bent(cognee, "/search", lambda rows: [{**row, "error": "timeout"} for row in rows], "POST")
    with pytest.raises(StoreUnavailable, match="SearchFailed"):
        await store.search("secret", 3, None)


async def test_a_chunk_that_names_no_fact_leaves_an_erased_entry_open(cognee: CogneeBench) -> None:
    """Once only the fact is known, a left chunk without metadata may be of it."""
    put = await left_in_index(cognee, alone=True)
    erased = Entry(store="cognee", external_id="erased~1", fact_id=put.fact_id)
    store = bent(cognee, "/search", _by_chunk(lambda chunk: chunk.pop("external_metadata")), "POST")
    with pytest.raises(NoProof):
        await store.verify_deleted(erased)


ROWS: dict[str, tuple[str, Bend]] = {
    "a row without id": ("/data", lambda rows: [{**row, "id": None} for row in rows]),
    "a row's metadata": ("/data", lambda rows: [{**row, "externalMetadata": "[1"} for row in rows]),
    "a dataset without id": ("/datasets", lambda rows: [{**row, "id": None} for row in rows]),
    "a dataset without name": ("/datasets", lambda rows: [{"id": row["id"]} for row in rows]),
    "a status without ids": ("/processing-status", lambda said: {"total": 1, "items": [{"completed": True}]}),
    "a status of some": ("/processing-status", lambda said: {**said, "items": []}),
    "a status of no kind": (
        "/processing-status",
        lambda said: {**said, "items": [{**item, "completed": "yes"} for item in said["items"]]},
    ),
}


@pytest.mark.parametrize("kind", ROWS)
async def test_a_listing_with_a_row_that_cannot_be_read_is_none(cognee: CogneeBench, kind: str) -> None:
    """A row without its id or metadata may be the one that was asked for."""
    put = await cognee.put("held")
    await cognee.put("living")
    await cognee.store.delete(put.entries[0])
    assert await cognee.store.verify_deleted(put.entries[0])
    end, bend = ROWS[kind]
    store = bent(cognee, end, bend)
    with pytest.raises(StoreUnavailable, match="UnreadableReply"):
        await store.verify_deleted(put.entries[0])
    if end != "/processing-status":
        with pytest.raises(StoreUnavailable, match="UnreadableReply"):
            await store.find(put.fact.fact_id)


async def test_a_404_of_somebody_else_is_not_the_file_s(cognee: CogneeBench) -> None:
    """Only Cognee's own words say that a file is not there; a proxy's or another dataset's 404 do not."""
    put = await cognee.put("held")
    await cognee.put("living")
    await cognee.store.delete(put.entries[0])

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/raw"):
            return httpx.Response(404, content=json.dumps({"message": "Dataset not found."}))
        return cognee.server.answer(request)

    transport = httpx.MockTransport(answer)
    async with httpx.AsyncClient(base_url=BASE_URL, transport=transport) as client:
        store = CogneeStore(client, api_key=cognee.server.new_key())
        with pytest.raises(NoProof):
            await store.verify_deleted(put.entries[0])


async def test_an_empty_list_of_one_index_for_all_is_an_answer() -> None:
    """Without access control an empty list is all that there is to say, and the last fact is proved gone."""
    async with httpx.AsyncClient(base_url=BASE_URL) as client:
        with CogneeServer(access_control=False).running() as server:
            store = CogneeStore(client, cognify="wait")
            put = await CogneeBench(server, client).put("alone", store=store)
            await store.delete(put.entries[0])
            assert await store.verify_deleted(put.entries[0])
            assert await store.search("alone", 3, None) == []
