"""The Cognee adapter: who it is at the server, what it calls things there, and when a text is searchable."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import httpx
import pytest
from fakes.cognee_api import BASE_URL, PASSWORD, USER, CogneeServer
from fix_cognee import CogneeBench

from custody_sync.adapters.cognee import CogneeStore
from custody_sync.errors import CustodyError, InvalidInput, InvalidStore, StoreRefused, StoreUnavailable
from custody_sync.model import Capability, Fact, Level
from custody_sync.testing.contract_case import Case, StoreHooks

REFUSED: tuple[type[CustodyError], ...] = (InvalidInput, InvalidStore)


# --- who it is -----------------------------------------------------------------------------


async def test_a_token_is_renewed_when_it_is_no_longer_taken(cognee: CogneeBench) -> None:
    """An hour later, or after the server's restart, the next call logs in again, once for all."""
    await cognee.put("before")
    assert cognee.server.logins == 1
    cognee.server.tokens.clear()
    await asyncio.gather(*(cognee.put(f"after {n}") for n in range(8)))
    assert cognee.server.logins == 2


async def test_many_first_calls_log_in_once(cognee: CogneeBench) -> None:
    """Whoever comes first fetches the token that the others use."""
    await asyncio.gather(*(cognee.put(f"note {n}", f"user:{n}") for n in range(8)))
    assert cognee.server.logins == 1


async def test_a_wrong_password_is_refused_and_not_repeated(cognee: CogneeBench) -> None:
    """A login that Cognee refuses says so, without the password."""
    store = cognee.adapter(password="not-it")
    with pytest.raises(StoreRefused, match="LoginRefused 400") as caught:
        await cognee.put("nothing", store=store)
    assert "not-it" not in str(caught.value)
    assert "not-it" not in repr(store)
    assert not cognee.server.datasets


async def test_a_key_that_is_not_known_is_refused(cognee: CogneeBench) -> None:
    """401 without a login to renew is for good."""
    store = CogneeStore(cognee.client, api_key="0" * 64)
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
            await CogneeBench(server, client).put("lost")


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


async def test_an_asynchronous_client_stays_in_its_loop(cognee: CogneeBench) -> None:
    """A second event loop is refused before the client fails far from the cause."""
    await cognee.put("here")

    def elsewhere() -> None:
        with pytest.raises(InvalidStore, match="another event loop"):
            asyncio.run(cognee.store.find("any"))

    await asyncio.to_thread(elsewhere)


def test_a_blocking_client_serves_any_loop() -> None:
    """A plain client is called in threads, from as many event loops as there are."""
    with httpx.Client(base_url=BASE_URL) as client, CogneeServer().running() as server:
        store = CogneeStore(client, username=USER, password=PASSWORD, cognify="wait")
        case = Case("cognee", store, StoreHooks())
        put = asyncio.run(case.put())
        assert [entry.external_id for entry in asyncio.run(store.find(put.fact.fact_id))] == list(put.ids)
        assert server.logins == 1


async def test_no_logger_is_told_a_text(cognee: CogneeBench, caplog: pytest.LogCaptureFixture) -> None:
    """What httpx logs are methods and addresses with ids: no text, no query, no space, no secret."""
    with caplog.at_level(logging.DEBUG):
        put = await cognee.put("the secret", "anna.karenina")
        await cognee.store.search("what secret?", 3, None)
        cognee.server.switches.search_fails = 1
        with pytest.raises(StoreUnavailable):
            await cognee.store.search("which secret?", 3, None)
        await cognee.store.delete(put.entries[0])
        assert await cognee.store.verify_deleted(put.entries[0])
    assert put.ids[0] in caplog.text
    for said in ("secret", "karenina", PASSWORD):
        assert said not in caplog.text


# --- what things are called ----------------------------------------------------------------


async def test_a_fixed_dataset_lists_nothing_else(cognee: CogneeBench) -> None:
    """A store with one dataset shows what lies there, and no other dataset of the user."""
    one = cognee.adapter(dataset="team memory")
    put = await cognee.put("in it", store=one)
    await cognee.put("elsewhere")
    assert [entry.external_id async for entry in one.list_entries()] == list(put.ids)
    assert next(dataset.name for dataset in cognee.server.datasets.values()) == "team%20memory"


async def test_a_template_covers_the_datasets_of_its_form(cognee: CogneeBench) -> None:
    """What begins and ends as the template says is this store's, and nothing else."""
    store = cognee.adapter(dataset="custody-{space}-eu")
    mine = await cognee.put("mine", "user:1", store)
    for name in ("custody-", "custody--eu", "other-user:1-eu", "custody-user:1-us"):
        cognee.server.add(cognee.server.dataset(name), "x.txt", name.encode())
    assert {entry.external_id async for entry in store.list_entries()} == set(mine.ids)


async def test_a_function_chooses_the_dataset_and_the_notebook_knows_it(cognee: CogneeBench) -> None:
    """A function of the fact may name any dataset; name and id are claimed before anything is stored."""
    claimed: dict[str, str] = {}

    class Notes:
        async def get(self, key: str) -> str | None:
            return claimed.get(key)

        async def claim(self, key: str, value: str) -> str:
            assert ("POST", "/api/v1/add") not in cognee.server.requests
            return claimed.setdefault(key, value)

        async def read(self) -> dict[str, str]:
            return dict(claimed)

        async def drop(self, key: str, value: str | None = None) -> None:
            del claimed[key]

    def chosen(fact: Fact) -> str:
        return f"of {fact.actor}"

    store = cognee.adapter(dataset=chosen)
    store.remember_in(Notes())
    put = await cognee.put("chosen", store=store)
    assert list(claimed) == ["of%20agent:contract"] == [put.entries[0].scope]
    assert claimed["of%20agent:contract"] in cognee.server.datasets
    fixed = cognee.adapter(dataset="other")
    fixed.remember_in(Notes())
    assert [entry.external_id for entry in await fixed.find(put.fact.fact_id)] == list(put.ids)


async def test_a_dataset_of_the_same_name_that_was_shared_is_not_ours(cognee: CogneeBench) -> None:
    """A name means the dataset of whoever asks, also beside another user's of that name."""
    theirs = cognee.server.dataset("user:1", owner_id="somebody-else")
    theirs.readers.add(cognee.server.user_id)
    stranger = cognee.server.add(theirs, "x.txt", b"theirs")
    put = await cognee.put("ours")
    fresh = cognee.adapter()
    listed = [entry.external_id async for entry in fresh.list_entries()]
    assert listed == list(put.ids)
    await fresh.delete(put.entries[0])
    assert await fresh.verify_deleted(put.entries[0])
    assert stranger in theirs.items


async def test_a_dataset_that_was_deleted_by_hand_is_made_again(cognee: CogneeBench) -> None:
    """A put after somebody deleted the dataset makes it again, under the same id."""
    await cognee.put("before")
    cognee.server.datasets.clear()
    put = await cognee.put("after")
    assert [entry.external_id for entry in await cognee.store.find(put.fact.fact_id)] == list(put.ids)


async def test_a_dataset_that_may_not_be_written_to_is_refused(cognee: CogneeBench) -> None:
    """A name that leads to a dataset of another user after all is not written to for ever."""
    await cognee.put("before")
    for dataset in cognee.server.datasets.values():
        dataset.owner_id = "somebody-else"
    with pytest.raises(StoreRefused, match="DatasetNotWritable"):
        await cognee.put("after")


# --- when a text is searchable -------------------------------------------------------------


async def test_waiting_puts_share_an_indexing_run(cognee: CogneeBench) -> None:
    """Forty puts at once are indexed by a few runs, and each is served when its put returns."""
    puts = await asyncio.gather(*(cognee.put(f"note {n} of forty") for n in range(40)))
    runs = cognee.server.requests.count(("POST", "/api/v1/cognify"))
    assert runs < 40
    hits = await cognee.store.search("note of forty", 50, None)
    assert {hit.entry.external_id for hit in hits} == {put.ids[0] for put in puts}


async def test_in_the_background_a_put_does_not_wait(cognee: CogneeBench) -> None:
    """A put returns before its text is indexed, and `aclose` waits for that."""
    store = cognee.adapter(cognify="background")
    assert store.capabilities[Capability.SEARCH].level is Level.PARTIAL
    cognee.server.switches.cognify_fails = 1
    await cognee.put("first", store=store)
    assert await store.search("first", 5, None) == []
    await store.aclose()
    assert store.cognify_failure == "HTTPStatusError 500"
    with pytest.raises(StoreUnavailable, match="NotCognified"):
        await store.search("first", 5, None)
    before = cognee.server.requests.count(("POST", "/api/v1/cognify"))
    put = await cognee.put("soon", store=store)
    assert cognee.server.requests.count(("POST", "/api/v1/cognify")) == before
    await store.aclose()
    # Which of the two is nearer says little: the label's ids are words of an indexed text as well.
    assert put.ids[0] in [hit.entry.external_id for hit in await store.search("soon", 5, None)]
    assert store.cognify_failure is None


async def test_never_leaves_it_to_the_caller(cognee: CogneeBench) -> None:
    """Until somebody indexes, a search says that it cannot answer; then it answers."""
    store = cognee.adapter(cognify="never")
    put = await cognee.put("later", store=store)
    with pytest.raises(StoreUnavailable, match="NotCognified"):
        await store.search("later", 5, None)
    await store.cognify()
    assert [hit.entry.external_id for hit in await store.search("later", 5, None)] == list(put.ids)


async def test_what_was_never_indexed_is_proved_gone(cognee: CogneeBench) -> None:
    """Where nothing was ever indexed, list and file decide; a search there is an answer: nothing."""
    store = cognee.adapter(cognify="never")
    put = await cognee.put("unindexed", store=store)
    assert not await store.verify_deleted(put.entries[0])
    await store.delete(put.entries[0])
    assert await store.verify_deleted(put.entries[0])
    assert await store.search("unindexed", 5, None) == []


async def test_an_indexing_that_does_not_complete_is_no_success(cognee: CogneeBench) -> None:
    """A run that answers anything but completed fails a put that waits for it."""

    def start_only(request: httpx.Request) -> None:
        if request.url.path == "/api/v1/cognify":
            request._content = request.content.replace(b"false", b"true")

    cognee.server.before_answer = start_only
    with pytest.raises(StoreUnavailable, match="CognifyNotCompleted"):
        await cognee.put("half done")
