"""What is special to Mem0: its four clients, versions, telemetry; writes in doubt; proof in a crowd."""

from __future__ import annotations

import asyncio
import importlib.metadata
import sys
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from fakes.mem0_api import Mem0Api

from custody_sync.adapters.mem0 import Mem0Store
from custody_sync.errors import InvalidInput, InvalidStore, NoProof, StoreRefused, StoreUnavailable
from custody_sync.model import ERASED_ID, Limits
from custody_sync.testing.contract_case import Case, StoreHooks


@pytest.fixture
def store(mem0_client: Any) -> Mem0Store:
    """Return the adapter on an empty project of the hosted service."""
    return Mem0Store(mem0_client, patience=20.0, poll=0.01)


def case_of(store: Mem0Store) -> Case:
    """Return the contract's toolbox for one store."""
    return Case("mem0", store, StoreHooks())


# --- what it is made with ------------------------------------------------------------------


@pytest.mark.parametrize("found", ["2.0.14", "1.0.6", "0.1.118"])
def test_an_old_mem0_is_refused_by_name(
    mem0_client: Any, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below 2.0.15 the refusal names the version that is there and the line that replaces it."""
    monkeypatch.setattr(importlib.metadata, "version", lambda name: found)
    with pytest.raises(InvalidStore, match=rf"mem0ai {found} is too old; pip install 'mem0ai>=2.0.15"):
        Mem0Store(mem0_client)


@pytest.mark.parametrize("found", ["2.0.15", "2.0.15.post1", "2.2", "2.10.0rc1"])
def test_a_new_mem0_is_taken(mem0_client: Any, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """2.0.15 and everything after it is taken, however its version is written."""
    monkeypatch.setattr(importlib.metadata, "version", lambda name: found)
    assert Mem0Store(mem0_client).name == "mem0"


@pytest.mark.parametrize("client", [None, "m0-key", SimpleNamespace(add=print), dict])
def test_what_is_no_client_is_refused(client: Any) -> None:
    """An API key, a class or anything else without the verbs is refused in one sentence."""
    with pytest.raises(InvalidStore, match="is no MemoryClient, AsyncMemoryClient, Memory or AsyncMemory"):
        Mem0Store(client)


@pytest.mark.parametrize(
    "words",
    [
        {"page_size": 0},
        {"page_size": 201},
        {"user_id": ""},
        {"user_id": "{team}"},
        {"agent_id": "my agent"},
        {"agent_id": "*"},
        {"threads": 0},
    ],
)
def test_bad_words_are_refused(mem0_client: Any, words: dict[str, Any]) -> None:
    """Each argument that cannot work is named when the store is made."""
    with pytest.raises(InvalidInput, match=next(iter(words))):
        Mem0Store(mem0_client, **words)


def test_telemetry_is_named_with_what_to_set(mem0_memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Telemetry can only be switched off before the import, so the warning says that.

    https://github.com/mem0ai/mem0/issues/2062
    """
    assert Mem0Store(mem0_memory)
    monkeypatch.setattr(sys.modules["mem0.memory.telemetry"], "MEM0_TELEMETRY", True)
    with pytest.warns(UserWarning, match="MEM0_TELEMETRY=False in the environment before mem0 is imported"):
        Mem0Store(mem0_memory)


def test_stated_limits_are_kept(mem0_client: Any) -> None:
    """Mem0 states no limit on a text, so none is assumed; the caller's is kept."""
    assert Mem0Store(mem0_client).limits == Limits()
    assert Mem0Store(mem0_client, limits=Limits(text_chars=9)).limits.text_chars == 9


async def test_an_awaited_client_stays_in_its_loop(mem0_async_client: Any) -> None:
    """An `AsyncMemoryClient` that another loop uses would hang: it is refused with the way out."""
    store = Mem0Store(mem0_async_client)
    await store.find("nothing")
    caught: list[BaseException] = []

    def elsewhere() -> None:
        try:
            asyncio.run(store.find("nothing"))
        except InvalidStore as refused:
            caught.append(refused)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    await asyncio.to_thread(thread.join)
    assert "another event loop" in str(caught[0])


async def test_a_blank_text_is_refused(store: Mem0Store, mem0_api: Mem0Api) -> None:
    """Mem0 stores a blank text that no search can ask for: it is refused and nothing is sent."""
    case = case_of(store)
    sent = len(mem0_api.requests)
    with pytest.raises(InvalidInput, match="text"):
        await case.put(case.fact(" \n\t"))
    assert len(mem0_api.requests) == sent


# --- what a write came to ------------------------------------------------------------------


async def test_a_question_turned_away_does_not_fail_the_write(
    store: Mem0Store, mem0_api: Mem0Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the service took the write, 429 and 500 to the questions after it are waited out."""
    works = mem0_api._add

    def then_busy(body: dict[str, Any]) -> dict[str, Any]:
        mem0_api.switches.throttled = 2
        return works(body)

    monkeypatch.setattr(mem0_api, "_add", then_busy)
    case = case_of(store)
    put = await case.put()
    assert put.ids == tuple(mem0_api.memories)


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        ({"status": "SUCCEEDED", "event_id": "e"}, "NoResult"),
        ({"results": [{"id": "a"}, {"id": "b"}], "status": "SUCCEEDED"}, "SeveralResults"),
        ({"results": [{"data": {"memory": "x"}}], "status": "SUCCEEDED"}, "SeveralResults"),
        ({"status": "FAILED", "results": []}, "NoResult"),
        ([], "NoResult"),
        ("stored", "NoResult"),
    ],
)
async def test_an_answer_that_names_no_row_is_no_confirmation(
    store: Mem0Store, mem0_client: Any, monkeypatch: pytest.MonkeyPatch, answer: Any, cause: str
) -> None:
    """Whatever the status says: without exactly one row the write is in doubt, and says so."""
    monkeypatch.setattr(mem0_client, "add", lambda *args, **options: answer)
    case = case_of(store)
    with pytest.raises(StoreUnavailable, match=cause):
        await case.put()


async def test_a_row_whose_words_were_changed_is_no_confirmation(
    store: Mem0Store, mem0_api: Mem0Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text that came to be another is not the fact's: the write fails and the row is found."""
    works = mem0_api._made
    monkeypatch.setattr(mem0_api, "_made", lambda text, *rest: works(f"User said: {text}", *rest))
    case = case_of(store)
    fact = case.fact()
    with pytest.raises(StoreUnavailable, match="TextAltered"):
        await store.put(fact, case.label(fact))
    assert len(await store.find(fact.fact_id)) == 1


async def test_a_row_that_lost_its_label_is_no_confirmation(
    store: Mem0Store, mem0_api: Mem0Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A memory without the label could never be found again: the write is in doubt."""
    works = mem0_api._made
    monkeypatch.setattr(mem0_api, "_made", lambda text, scope, metadata: works(text, scope, {}))
    case = case_of(store)
    with pytest.raises(StoreUnavailable, match="LabelLost"):
        await case.put()


async def test_a_row_that_no_filter_leads_to_is_no_confirmation(
    mem0_client: Any, store: Mem0Store, mem0_api: Mem0Api
) -> None:
    """Were ids that a filter leaves open to be empty, no fact could be found again: the first write says so.

    https://docs.mem0.ai/platform/features/v2-memory-filters
    """
    mem0_api.switches.null_scoping = True
    with pytest.raises(StoreUnavailable, match="NotFoundByLabel"):
        await case_of(Mem0Store(mem0_client, patience=0.2, poll=0.01)).put()
    mem0_api.switches.null_scoping = False
    assert await case_of(store).put()


async def test_a_label_that_did_not_change_is_said(
    store: Mem0Store, mem0_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relabel that the service answered and did not carry out fails."""
    case = case_of(store)
    put = await case.put()
    monkeypatch.setattr(mem0_client, "update", lambda *args, **options: {"id": args[0]})
    with pytest.raises(StoreUnavailable, match="LabelNotChanged"):
        await store.relabel(put.entries[0], replace(put.label, ledger_id="moved"))


# --- proof and listing ---------------------------------------------------------------------


async def crowded(store: Mem0Store, api: Mem0Api) -> Any:
    """Delete a fact among more equal texts of its user than a search returns, and return its entry."""
    case = case_of(store)
    put = await case.put(case.fact("the same words"))
    for _ in range(1_050):
        api.put_raw("the same words", user_id=str(put.entries[0].scope))
    await case.delete(put)
    return put.entries[0]


async def test_beyond_what_a_search_returns_the_filter_has_to_show_itself(
    store: Mem0Store, mem0_api: Mem0Api
) -> None:
    """With 1,050 equal texts a search is full; that its filter finds a row left out of it is the proof."""
    entry = await crowded(store, mem0_api)
    assert await store.verify_deleted(entry)


async def test_a_filter_after_the_cut_proves_nothing(store: Mem0Store, mem0_api: Mem0Api) -> None:
    """If the service filtered what it had cut already, a miss in a crowd would decide nothing."""
    mem0_api.switches.filters_last = True
    entry = await crowded(store, mem0_api)
    with pytest.raises(NoProof, match="CrowdedSearch"):
        await store.verify_deleted(entry)


async def test_an_erased_id_is_asked_about_by_fact(store: Mem0Store) -> None:
    """Once an erasure took the id, any row of the fact is what is left of it, and none means gone."""
    case = case_of(store)
    put = await case.put()
    erased = replace(put.blind[0], external_id=f"{ERASED_ID}1")
    assert not await store.verify_deleted(erased)
    await store.delete(erased)
    assert not await store.verify_deleted(erased)
    await case.delete(put)
    assert await store.verify_deleted(erased)
    with pytest.raises(NoProof, match="Unaddressed"):
        await store.verify_deleted(replace(erased, fact_id=None))


async def test_a_listing_that_never_becomes_whole_is_an_error(mem0_client: Any, mem0_api: Mem0Api) -> None:
    """A service that skips a row in every listing is not believed to have shown everything."""
    case = case_of(Mem0Store(mem0_client, page_size=10))
    await case.put_all([case.fact() for _ in range(25)])
    mem0_api.switches.skips = float("inf")
    with pytest.raises(StoreUnavailable, match="UnsettledListing"):
        await case.listed()


async def test_a_wrong_key_is_a_refusal(store: Mem0Store, mem0_client: Any) -> None:
    """401 is a refusal for good, with the status and without the service's words."""
    mem0_client.client.headers["Authorization"] = "Token wrong"
    with pytest.raises(StoreRefused, match="AuthenticationError 401"):
        await store.find("nothing")
