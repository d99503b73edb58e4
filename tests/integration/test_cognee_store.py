"""The Cognee adapter: who it is at the server, what it calls things there, and when a text is searchable."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest
from fakes.cognee_api import BASE_URL, PASSWORD, USER, CogneeServer

from custody_sync.adapters.cognee import CogneeStore
from custody_sync.errors import (
    CustodyError,
    InvalidInput,
    InvalidStore,
    NoProof,
    StoreError,
    StoreRefused,
    StoreThrottled,
    StoreUnavailable,
)
from custody_sync.model import Capability, Entry, Fact, Level
from custody_sync.testing.contract_case import Case, Put, StoreHooks

REFUSED: tuple[type[CustodyError], ...] = (InvalidInput, InvalidStore)


class Bench:
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
async def bench() -> AsyncIterator[Bench]:
    """Yield a fresh server with an adapter."""
    async with httpx.AsyncClient(base_url=BASE_URL) as client:
        with CogneeServer().running() as server:
            yield Bench(server, client)


# --- who it is -----------------------------------------------------------------------------


async def test_a_token_is_renewed_when_it_is_no_longer_taken(bench: Bench) -> None:
    """An hour later, or after the server's restart, the next call logs in again, once for all."""
    await bench.put("before")
    assert bench.server.logins == 1
    bench.server.tokens.clear()
    await asyncio.gather(*(bench.put(f"after {n}") for n in range(8)))
    assert bench.server.logins == 2


async def test_many_first_calls_log_in_once(bench: Bench) -> None:
    """Whoever comes first fetches the token that the others use."""
    await asyncio.gather(*(bench.put(f"note {n}", f"user:{n}") for n in range(8)))
    assert bench.server.logins == 1


async def test_a_wrong_password_is_refused_and_not_repeated(bench: Bench) -> None:
    """A login that Cognee refuses says so, without the password."""
    store = bench.adapter(password="not-it")
    with pytest.raises(StoreRefused, match="LoginRefused 400") as caught:
        await bench.put("nothing", store=store)
    assert "not-it" not in str(caught.value)
    assert "not-it" not in repr(store)
    assert not bench.server.datasets


async def test_a_key_that_is_not_known_is_refused(bench: Bench) -> None:
    """401 without a login to renew is for good."""
    store = CogneeStore(bench.client, api_key="0" * 64)
    with pytest.raises(StoreRefused, match="401"):
        await store.find("any")


def test_a_client_without_an_address_is_refused() -> None:
    """The server's address is the client's base_url, and there is no default to fall back to."""
    with httpx.Client() as client, pytest.raises(InvalidInput, match="base_url"):
        CogneeStore(client)
    with pytest.raises(InvalidStore, match=r"neither an httpx\.AsyncClient nor an httpx\.Client"):
        CogneeStore("http://cognee.test")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options",
    [
        {"username": USER},
        {"password": PASSWORD},
        {"username": USER, "password": PASSWORD, "api_key": "k"},
        {"cognify": "sometimes"},
        {"cognify_timeout": 0},
        {"page_size": 1},
        {"page_size": 1_001},
        {"threads": 0},
        {"dataset": ""},
        {"dataset": "{user}"},
    ],
)
def test_arguments_that_cannot_work_are_refused_when_it_is_made(options: dict[str, Any]) -> None:
    """A bad argument is named before any request."""
    with httpx.Client(base_url=BASE_URL) as client, pytest.raises(REFUSED):
        CogneeStore(client, **options)


@pytest.mark.parametrize("version", ["", "unknown", "cognee"])
async def test_what_is_no_cognee_server_is_refused(version: str) -> None:
    """A server that names no version is not written to."""
    async with httpx.AsyncClient(base_url=BASE_URL) as client:
        with (
            CogneeServer(version=version).running() as server,
            pytest.raises(InvalidStore, match="no version"),
        ):
            await Bench(server, client).put("lost")


async def test_a_path_in_the_address_is_kept() -> None:
    """A server behind a path of a gateway is asked below that path."""
    paths: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        paths.append(request.url.path)
        return httpx.Response(200, json={"version": "1.6.5"} if "health" in request.url.path else [])

    transport = httpx.MockTransport(answer)
    async with httpx.AsyncClient(base_url="https://gate.test/cognee/", transport=transport) as client:
        assert await CogneeStore(client).find("any") == []
    assert paths == ["/cognee/health", "/cognee/api/v1/datasets"]


async def test_an_asynchronous_client_stays_in_its_loop(bench: Bench) -> None:
    """A second event loop is refused before the client fails far from the cause."""
    await bench.put("here")

    def elsewhere() -> None:
        with pytest.raises(InvalidStore, match="another event loop"):
            asyncio.run(bench.store.find("any"))

    await asyncio.to_thread(elsewhere)


def test_a_blocking_client_serves_any_loop() -> None:
    """A plain client is called in threads, from as many event loops as there are."""
    with httpx.Client(base_url=BASE_URL) as client, CogneeServer().running() as server:
        store = CogneeStore(client, username=USER, password=PASSWORD, cognify="wait")
        case = Case("cognee", store, StoreHooks())
        put = asyncio.run(case.put())
        assert [entry.external_id for entry in asyncio.run(store.find(put.fact.fact_id))] == list(put.ids)
        assert server.logins == 1


# --- what things are called ----------------------------------------------------------------


async def test_a_fixed_dataset_lists_nothing_else(bench: Bench) -> None:
    """A store with one dataset shows what lies there, and no other dataset of the user."""
    one = bench.adapter(dataset="team memory")
    put = await bench.put("in it", store=one)
    await bench.put("elsewhere")
    assert [entry.external_id async for entry in one.list_entries()] == list(put.ids)
    assert next(dataset.name for dataset in bench.server.datasets.values()) == "team%20memory"


async def test_a_template_covers_the_datasets_of_its_form(bench: Bench) -> None:
    """What begins and ends as the template says is this store's, and nothing else."""
    store = bench.adapter(dataset="custody-{space}-eu")
    mine = await bench.put("mine", "user:1", store)
    for name in ("custody-", "custody--eu", "other-user:1-eu", "custody-user:1-us"):
        bench.server.add(bench.server.dataset(name), "x.txt", name.encode())
    assert {entry.external_id async for entry in store.list_entries()} == set(mine.ids)


async def test_a_function_chooses_the_dataset_and_the_notebook_knows_it(bench: Bench) -> None:
    """A function of the fact may name any dataset; its name is claimed before anything is sent."""
    claimed: list[str] = []

    class Notes:
        async def get(self, key: str) -> str | None:
            return key if key in claimed else None

        async def claim(self, key: str, value: str) -> str:
            assert ("POST", "/api/v1/datasets") not in bench.server.requests
            claimed.append(key)
            return value

        async def read(self) -> dict[str, str]:
            return dict.fromkeys(claimed, "")

        async def drop(self, key: str) -> None:
            claimed.remove(key)

    def chosen(fact: Fact) -> str:
        return f"of {fact.actor}"

    store = bench.adapter(dataset=chosen)
    store.remember_in(Notes())
    put = await bench.put("chosen", store=store)
    assert claimed == ["of%20agent:contract"] == [put.entries[0].scope]
    fixed = bench.adapter(dataset="other")
    fixed.remember_in(Notes())
    assert [entry.external_id for entry in await fixed.find(put.fact.fact_id)] == list(put.ids)


async def test_a_dataset_of_the_same_name_that_was_shared_is_not_ours(bench: Bench) -> None:
    """A name means the dataset of whoever asks, also beside another user's of that name."""
    theirs = bench.server.dataset("user:1", owner_id="somebody-else")
    stranger = bench.server.add(theirs, "x.txt", b"theirs")
    put = await bench.put("ours")
    fresh = bench.adapter()
    listed = [entry.external_id async for entry in fresh.list_entries()]
    assert listed == list(put.ids)
    await fresh.delete(put.entries[0])
    assert await fresh.verify_deleted(put.entries[0])
    assert stranger in theirs.items


async def test_a_dataset_that_was_deleted_by_hand_is_made_again(bench: Bench) -> None:
    """A put after somebody deleted the dataset makes it again, under the same id."""
    await bench.put("before")
    bench.server.datasets.clear()
    put = await bench.put("after")
    assert [entry.external_id for entry in await bench.store.find(put.fact.fact_id)] == list(put.ids)


async def test_a_dataset_that_may_not_be_written_to_is_refused(bench: Bench) -> None:
    """A name that leads to a dataset of another user after all is not written to for ever."""
    await bench.put("before")
    for dataset in bench.server.datasets.values():
        dataset.owner_id = "somebody-else"
    with pytest.raises(StoreRefused, match="DatasetNotWritable"):
        await bench.put("after")


# --- when a text is searchable -------------------------------------------------------------


async def test_waiting_puts_share_an_indexing_run(bench: Bench) -> None:
    """Forty puts at once are indexed by a few runs, and each is served when its put returns."""
    puts = await asyncio.gather(*(bench.put(f"note {n} of forty") for n in range(40)))
    runs = bench.server.requests.count(("POST", "/api/v1/cognify"))
    assert runs < 40
    hits = await bench.store.search("note of forty", 50, None)
    assert {hit.entry.external_id for hit in hits} == {put.ids[0] for put in puts}


async def test_in_the_background_a_put_does_not_wait(bench: Bench) -> None:
    """A put returns before its text is indexed, and `aclose` waits for that."""
    store = bench.adapter(cognify="background")
    assert store.capabilities[Capability.SEARCH].level is Level.PARTIAL
    bench.server.switches.cognify_fails = 1
    await bench.put("first", store=store)
    assert await store.search("first", 5, None) == []
    await store.aclose()
    assert store.cognify_failure == "HTTPStatusError 500"
    with pytest.raises(StoreUnavailable, match="NotCognified"):
        await store.search("first", 5, None)
    before = bench.server.requests.count(("POST", "/api/v1/cognify"))
    put = await bench.put("soon", store=store)
    assert bench.server.requests.count(("POST", "/api/v1/cognify")) == before
    await store.aclose()
    assert [hit.entry.external_id for hit in await store.search("soon", 1, None)] == list(put.ids)
    assert store.cognify_failure is None


async def test_never_leaves_it_to_the_caller(bench: Bench) -> None:
    """Until somebody indexes, a search says that it cannot answer; then it answers."""
    store = bench.adapter(cognify="never")
    put = await bench.put("later", store=store)
    with pytest.raises(StoreUnavailable, match="NotCognified"):
        await store.search("later", 5, None)
    await store.cognify()
    assert [hit.entry.external_id for hit in await store.search("later", 5, None)] == list(put.ids)


async def test_what_was_never_indexed_is_proved_gone(bench: Bench) -> None:
    """Where nothing was ever indexed, list and file decide; a search there is an answer: nothing."""
    store = bench.adapter(cognify="never")
    put = await bench.put("unindexed", store=store)
    assert not await store.verify_deleted(put.entries[0])
    await store.delete(put.entries[0])
    assert await store.verify_deleted(put.entries[0])
    assert await store.search("unindexed", 5, None) == []


async def test_an_indexing_that_does_not_complete_is_no_success(bench: Bench) -> None:
    """A run that answers anything but completed fails a put that waits for it."""

    def start_only(request: httpx.Request) -> None:
        if request.url.path == "/api/v1/cognify":
            request._content = request.content.replace(b"false", b"true")

    bench.server.before_answer = start_only
    with pytest.raises(StoreUnavailable, match="CognifyNotCompleted"):
        await bench.put("half done")


# --- single answers ------------------------------------------------------------------------


async def test_a_blank_text_and_a_blank_query_are_refused(bench: Bench) -> None:
    """Cognee would index nothing of the one and answer 500 to the other."""
    with pytest.raises(InvalidInput):
        await bench.put(" \n")
    await bench.put("something")
    with pytest.raises(InvalidInput):
        await bench.store.search(" ", 5, None)
    assert await bench.store.search("x", 0, None) == []


async def test_a_batch_says_nothing_was_done_only_if_nothing_was(bench: Bench) -> None:
    """One refused file among others makes a batch that may have taken effect; all refused, a refusal."""
    case = bench.case()
    pairs = [(fact, case.label(fact)) for fact in (case.fact(), case.fact(" "), case.fact())]
    with pytest.raises(StoreUnavailable):
        await bench.store.put_many(pairs)
    assert len([entry async for entry in bench.store.list_entries()]) == 2
    with pytest.raises(InvalidInput):
        await bench.store.put_many(pairs[1:2])
    await bench.put("so that the version and the token are known")
    bench.server.switches.throttled = 100
    with pytest.raises(StoreThrottled) as caught:
        await bench.store.put_many(pairs[:1])
    assert caught.value.fields["retry_after"] == 1.0


async def test_a_batch_is_indexed_once_for_each_dataset(bench: Bench) -> None:
    """Fifty facts of two spaces take two indexing runs."""
    case = bench.case()
    facts = [case.fact(space=f"user:{n % 2}") for n in range(50)]
    answers = await bench.store.put_many([(fact, case.label(fact)) for fact in facts])
    assert bench.server.requests.count(("POST", "/api/v1/cognify")) == 2
    assert len({ids[0] for ids in answers}) == 50


@pytest.mark.parametrize("text", ["one\r\ntwo\rthree\nfour", "\r", "x" * 1_000_000, "\ufeffbom", "\x00nul"])
async def test_a_text_is_found_as_it_was_put(bench: Bench, text: str) -> None:
    """Line breaks that Cognee changes, and a text of many chunks, come back to the byte."""
    put = await bench.put(f"a {text}")
    assert [entry.text for entry in await bench.store.find(put.fact.fact_id)] == [f"a {text}"]
    hits = await bench.store.search("a", 3, ["user:1"])
    assert [hit.entry.external_id for hit in hits] == list(put.ids)


async def test_a_hit_of_many_chunks_is_one_entry(bench: Bench) -> None:
    """A long text takes one place among k, however many of its chunks are near."""
    long = await bench.put("harbour " * 5_000)
    short = await bench.put("harbour once")
    hits = await bench.store.search("harbour", 2, None)
    assert {hit.entry.external_id for hit in hits} == {long.ids[0], short.ids[0]}
    assert [hit.score for hit in hits] == sorted((hit.score or 0 for hit in hits), reverse=True)


async def test_one_index_for_all_is_located_by_data_id() -> None:
    """Without access control a search answers for every dataset; what lies elsewhere is left out."""
    async with httpx.AsyncClient(base_url=BASE_URL) as client:
        with CogneeServer(access_control=False).running() as server:
            one = CogneeStore(client, dataset="one", cognify="wait")
            two = CogneeStore(client, dataset="two", cognify="wait")
            bench = Bench(server, client)
            mine = await bench.put("harbour lights", store=one)
            for n in range(30):
                await bench.put(f"harbour {n}", store=two)
            hits = await one.search("harbour", 1, None)
            assert [(hit.entry.scope, hit.entry.external_id) for hit in hits] == [("one", mine.ids[0])]


# --- proof ---------------------------------------------------------------------------------


async def test_a_row_without_its_tag_is_looked_for_in_the_whole_index(bench: Bench) -> None:
    """What this adapter did not put is found in the index as well, though no tag leads to it."""
    dataset = bench.server.dataset("user:1")
    data_id = bench.server.add(dataset, "notes.md", b"adopted")
    for n in range(150):
        await bench.put(f"other {n}")
    bench.server.cognify(dataset)
    entry = Entry(
        store="cognee", external_id=f"{data_id}~untagged", fact_id="fact-of-the-ledger", scope="user:1"
    )
    assert not await bench.store.verify_deleted(entry)
    bench.server.switches.lag = 2
    await bench.store.delete(entry)
    assert not await bench.store.verify_deleted(entry)
    assert await bench.store.verify_deleted(entry)


async def test_an_index_that_leaves_out_what_it_has_is_no_proof(bench: Bench) -> None:
    """Where no tag leads, an answer without some that are indexed proves nothing of others."""
    put = await bench.put("held")
    dataset = bench.server.dataset("user:1")
    dataset.chunks = [chunk for chunk in dataset.chunks if chunk.item.data_id != put.ids[0]]
    gone = Entry(store="cognee", external_id="11111111-1111-4111-8111-111111111111~untagged", scope="user:1")
    with pytest.raises(NoProof):
        await bench.store.verify_deleted(gone)


async def test_an_erased_id_is_asked_about_by_fact(bench: Bench) -> None:
    """After an erasure of identity every entry of the fact has to be gone, wherever it lies."""
    case = bench.case()
    fact = case.fact(space="user:7")
    older = await case.put(fact)
    newer = await case.put(fact)
    erased = Entry(store="cognee", external_id="erased~1", fact_id=fact.fact_id)
    await bench.store.delete(older.entries[0])
    assert not await bench.store.verify_deleted(erased)
    await bench.store.delete(newer.entries[0])
    assert await bench.store.verify_deleted(erased)


async def test_an_entry_without_a_dataset_is_not_deleted(bench: Bench) -> None:
    """A data id alone addresses nothing."""
    put = await bench.put("held")
    with pytest.raises(StoreRefused):
        await bench.store.delete(replace(put.entries[0], scope=None))


async def test_a_file_that_is_left_is_not_gone(bench: Bench) -> None:
    """A row that a listing leaves out for ever is still found by its file."""
    put = await bench.put("only a file")

    def hide(request: httpx.Request) -> None:
        if request.url.path.endswith("/data"):
            request.url = request.url.copy_merge_params({"offset": "500000"})

    bench.server.before_answer = hide
    bench.server.dataset("user:1").chunks = []
    assert not await bench.store.find(put.fact.fact_id)
    assert not await bench.store.verify_deleted(put.entries[0])


async def test_a_row_without_its_file_is_not_gone(bench: Bench) -> None:
    """A 404 for the file may mean that the disk lost it: the row, and with it the label, is still there."""
    put = await bench.put("only a row")
    bench.server.lost_files.update(put.ids)
    dataset = bench.server.dataset("user:1")
    dataset.chunks, dataset.items[put.ids[0]].is_indexed = [], False
    assert not await bench.store.verify_deleted(put.entries[0])
    assert [entry.text for entry in await bench.store.find(put.fact.fact_id)] == [None]


@pytest.mark.parametrize("body", ["null", "[1]", "{}", "<html>", '[{"dataset_id": 1, "search_result": []}]'])
async def test_an_unreadable_answer_is_no_answer(bench: Bench, body: str) -> None:
    """What a proxy makes of an answer is an outage, never an empty store."""
    put = await bench.put("held")

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


async def test_a_listing_that_never_settles_ends(bench: Bench) -> None:
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
