"""What `LettaStore` does beyond the contract: storing, searching and proving, and what it refuses."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest
from fakes.letta_api import EMBEDDING, MODEL, LettaApi
from fakes.letta_bench import case_of, ids, opened
from letta_client import Letta

from custody_sync.adapters.letta import LettaStore
from custody_sync.errors import (
    InvalidInput,
    InvalidStore,
    NoProof,
    StoreRefused,
    StoreThrottled,
    StoreUnavailable,
)
from custody_sync.model import Capability, Entry, Level


@pytest.fixture
def api() -> LettaApi:
    """Return a fresh server."""
    return LettaApi()


# --- what is stored ------------------------------------------------------------------------


async def test_a_passage_has_label_tags_and_instant(api: LettaApi) -> None:
    """Metadata is the label, the tags are ours and the caller's, and the passage is as old as its label."""
    case = case_of(opened(api, tags=["team"]))
    put = await case.put()
    (held,) = api.passages.values()
    assert held.metadata == put.label.to_metadata()
    ours = {"source:custody-sync", f"fact_id:{put.fact.fact_id}", f"ledger:{case.ledger_id}"}
    assert set(held.tags or ()) == {*ours, "team"}
    assert held.created_at == put.label.stored_at
    assert api.archives[held.archive]["name"] == put.fact.space


async def test_what_is_stored_altered_is_no_confirmation(api: LettaApi) -> None:
    """A put whose answer shows another text or another instant raises, and what was stored is found."""
    store = opened(api, archive="memories")
    case = case_of(store)
    await case.put()
    spoils: list[dict[str, Any]] = [
        {"text": "shortened"},
        {"created_at": "2026-01-01T00:00:00Z"},
        {"id": None},
        {"text": None},
        {"archive_id": f"archive-{uuid.uuid4()}"},
    ]
    for spoilt in spoils:
        fact = case.fact()
        label = case.label(fact)
        shown = {
            "id": f"passage-{uuid.uuid4()}",
            "text": fact.text,
            "created_at": str(label.stored_at),
            "metadata": label.to_metadata(),
        }
        api.faults.answers["create"] = 200, shown
        (archive,) = api.archives
        assert await store.put(fact, label) == (f"{archive}/{shown['id']}",)
        api.faults.answers["create"] = 200, {**shown, **spoilt}
        with pytest.raises(StoreUnavailable):
            await store.put(fact, label)


@pytest.mark.parametrize("text", ["", "  \n", "nul \x00 inside"])
async def test_a_text_that_letta_would_change_is_refused(api: LettaApi, text: str) -> None:
    """A blank text and one with a NUL, which Letta drops, are refused before the server is asked."""
    store = opened(api)
    case = case_of(store)
    with pytest.raises(InvalidInput):
        await store.put(case.fact(text), case.label(case.fact(text)))
    assert api.requests == []


async def test_many_go_into_their_own_archives(api: LettaApi) -> None:
    """`put_many` sends one batch for each archive, and returns the ids in the order given."""
    store = opened(api)
    case = case_of(store)
    facts = [case.fact(space=f"{case.space}:{n % 3}") for n in range(12)]
    answers = await store.put_many([(fact, case.label(fact)) for fact in facts])
    assert api.requests.count("create_many") == 3
    assert [api.held(one).text for (one,) in answers] == [fact.text for fact in facts]


async def test_a_batch_without_embeddings_goes_one_by_one(api: LettaApi) -> None:
    """An archive without an embedding model, into which a batch would fail, takes single passages."""
    agent = api.new_agent()
    api.archives[api.new_archive("plain", agent=agent)]["embedding_config"] = None
    store = opened(api, agent=agent)
    case = case_of(store)
    facts = [case.fact() for _ in range(3)]
    answers = await store.put_many([(fact, case.label(fact)) for fact in facts])
    assert [api.held(one).text for (one,) in answers] == [fact.text for fact in facts]


# --- search and proof ----------------------------------------------------------------------


async def test_a_search_over_archives_keeps_the_servers_order(api: LettaApi) -> None:
    """The nearest of many archives comes first, although Letta gives no scores."""
    store = opened(api)
    case = case_of(store)
    for n in range(6):
        await case.put(case.fact(f"a note about tea {'and more ' * n}", space=f"{case.space}:{n}"))
    best = await case.put(case.fact("green tea", space=f"{case.space}:last"))
    hits = await store.search("green tea", 3, None)
    assert len(hits) == 3
    assert hits[0].entry.external_id == best.ids[0]
    assert await store.search(" ", 3, None) == []


async def test_a_crowd_beyond_every_bound_proves_nothing(
    api: LettaApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a search has shown only equal texts and not all there is, a deletion is not proved."""
    monkeypatch.setattr("custody_sync.adapters._letta_proof._WIDER", (110, 120))
    store = opened(api, archive="memories")
    case = case_of(store)
    put = await case.put(case.fact("said by everybody"))
    for _ in range(130):
        api.put(next(iter(api.archives)), "said by everybody")
    await store.delete(put.entries[0])
    with pytest.raises(NoProof):
        await store.verify_deleted(put.entries[0])
    assert await store.verify_deleted(put.blind[0]) is True


async def test_a_deletion_in_turbopuffer_is_proved_by_its_text_alone(api: LettaApi) -> None:
    """Where the search reads another database, an entry without its text cannot be called gone."""
    store = opened(api, archive="memories")
    case = case_of(store)
    put = await case.put()
    next(iter(api.archives.values()))["vector_db_provider"] = "tpuf"
    await store.delete(put.entries[0])
    assert await store.verify_deleted(put.entries[0]) is True
    with pytest.raises(NoProof):
        await store.verify_deleted(put.blind[0])


async def test_where_instants_are_not_kept_the_archive_is_read(api: LettaApi) -> None:
    """An archive that dates a labelled passage otherwise is read whole, and instants prove nothing there."""
    case = case_of(opened(api, archive="memories"))
    put, other = await case.put(), await case.put()
    api.held(other.ids[0]).created_at = api.held(put.ids[0]).created_at.replace(year=2020)
    fresh = opened(api, archive="memories")
    for held in (put, other):
        assert await fresh.verify_deleted(held.blind[0]) is False
    await fresh.delete(put.entries[0])
    assert await fresh.verify_deleted(put.blind[0]) is True


async def test_a_hundred_of_one_instant_are_all_told_apart(api: LettaApi) -> None:
    """More passages of one instant than an answer holds make the store read the archive."""
    store = opened(api, archive="memories")
    case = case_of(store)
    fact = case.fact()
    label = case.label(fact)
    answers = await store.put_many([(fact, label)] * 130)
    entries = [
        Entry(store=store.name, external_id=one, scope="memories", stored_at=label.stored_at)
        for (one,) in answers
    ]
    await store.delete(entries[0])
    said = await asyncio.gather(*map(store.verify_deleted, entries[:40]))
    assert said == [True] + [False] * 39


async def test_questions_share_a_reading(api: LettaApi) -> None:
    """Many questions for facts of other processes cost two readings, not one each."""
    case = case_of(opened(api, archive="memories"))
    puts = [await case.put() for _ in range(30)]
    fresh = opened(api, archive="memories")
    api.requests.clear()
    found = await asyncio.gather(*(fresh.find(put.fact.fact_id) for put in puts))
    assert [ids(entries) for entries in found] == [list(put.ids) for put in puts]
    assert api.requests.count("list") <= 4


async def test_pages_that_do_not_move_end_in_an_error(api: LettaApi) -> None:
    """A server that answers every cursor with the first page is an error, not an endless listing."""
    store = opened(api, archive="memories", page_size=5)
    case = case_of(store)
    for _ in range(12):
        await case.put()
    api.faults.ignores_cursors = True
    with pytest.raises(StoreUnavailable):
        await case.listed()


# --- what is refused -----------------------------------------------------------------------


def test_the_vendors_own_service_has_to_be_meant() -> None:
    """A client that was given no URL talks to Letta Cloud, and is refused unless the store allows it."""
    client = Letta(api_key="none")
    with pytest.raises(InvalidInput, match="base_url"):
        LettaStore(client, model=MODEL, embedding=EMBEDDING)
    store = LettaStore(client, model=MODEL, embedding=EMBEDDING, cloud=True)
    assert store.capabilities[Capability.VERIFY_DELETED].level is Level.PARTIAL


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({}, "model"),
        ({"model": MODEL}, "embedding"),
        ({"agent": "agent-1", "archive": "memories"}, "agent"),
        ({"agent": "agent-1", "model": MODEL}, "agent"),
        ({"agent": "agent-1", "tags": ["fact_id:mine"]}, "tags"),
        ({"agent": "agent-1", "tags": ["source:crm"]}, "tags"),
        ({"agent": "agent-1", "tags": "team"}, "tags"),
        ({"agent": "agent-1", "tags": [" "]}, "tags"),
        ({"agent": "agent-1", "page_size": 1}, "page_size"),
        ({"model": MODEL, "embedding": EMBEDDING, "archive": "{team}"}, "archive"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused(
    api: LettaApi, options: dict[str, Any], field: str
) -> None:
    """A missing handle, two ways at once, a tag like ours, a page of one: refused when the store is made."""
    with pytest.raises(InvalidInput) as refused:
        LettaStore(api.client(), **options)
    assert refused.value.fields["field"] == field


def test_what_is_no_client_is_refused() -> None:
    """Something else than a client of letta-client is refused by name."""
    nothing: Any = object()
    with pytest.raises(InvalidStore, match="object is not a Letta"):
        LettaStore(nothing, agent="agent-1")


async def test_an_unusable_answer_is_an_error(api: LettaApi) -> None:
    """An answer of another shape, from a proxy perhaps, is an error and never an empty list."""
    store = opened(api, archive="memories")
    case = case_of(store)
    put = await case.put()
    for operation in ("list", "list_archives", "search"):
        api.faults.answers[operation] = 200, {"error": "sign in first"}
        with pytest.raises(StoreUnavailable):
            await (store.search("note", 3, None) if operation == "search" else store.find("unknown"))
    api.faults.answers["delete"] = 429, {"detail": "slow down"}
    with pytest.raises(StoreThrottled):
        await store.delete(put.entries[0])


@pytest.mark.parametrize("body", [{}, None, "sign in", {"items": []}, {"results": {}}, [None], [{}]])
@pytest.mark.parametrize("operation", ["retrieve_archive", "list", "search"])
async def test_an_unusable_answer_is_no_absence(api: LettaApi, operation: str, body: object) -> None:
    """A 200 of another shape than the server's, such as a gateway's `{}`, never makes an entry gone."""
    store = opened(api, archive="memories")
    case = case_of(store)
    put = await case.put()
    entry = put.blind[0] if operation == "search" else put.entries[0]
    api.faults.answers[operation] = 200, body
    with pytest.raises(StoreUnavailable):
        await store.verify_deleted(entry)
    assert api.faults.answers == {}
    assert await store.verify_deleted(entry) is False


@pytest.mark.parametrize("body", [{}, {"results": None}, {"results": {}}, {"results": [{}]}, []])
async def test_an_unusable_answer_of_the_agents_search_is_no_absence(api: LettaApi, body: object) -> None:
    """Among a hundred equal texts, where the agent's own search decides, it has to answer with a list."""
    store = opened(api, archive="memories")
    case = case_of(store)
    put = await case.put(case.fact("said by everybody"))
    for _ in range(100):
        api.put(next(iter(api.archives)), "said by everybody")
    await store.delete(put.entries[0])
    api.faults.answers["agent_search"] = 200, body
    with pytest.raises(StoreUnavailable):
        await store.verify_deleted(put.entries[0])
    assert await store.verify_deleted(put.entries[0]) is True


async def test_an_id_without_an_archive_proves_nothing(api: LettaApi) -> None:
    """An id that says not where the passage lies is neither deleted nor called gone."""
    store = opened(api, archive="memories")
    put = await case_of(store).put()
    bare = Entry(store=store.name, external_id=put.ids[0].partition("/")[2], scope="memories")
    with pytest.raises(StoreRefused):
        await store.delete(bare)
    with pytest.raises(NoProof):
        await store.verify_deleted(bare)
    assert len(api.texts()) == 1


async def test_a_forget_says_that_archives_keep_their_names(api: LettaApi) -> None:
    """Notes say that an archive named after its space outlives its facts; an agent's own is not ours."""
    for store, says in ((opened(api), True), (opened(api, agent=api.new_agent()), False)):
        put = await case_of(store).put()
        notes = await store.after_forget(put.entries)
        assert any("archives.delete" in note for note in notes) is says
        assert await store.after_forget(()) == ()


def test_an_asynchronous_client_stays_in_its_loop(api: LettaApi) -> None:
    """A store over an `AsyncLetta` is refused in a second event loop; over a `Letta` it works in any."""
    for client, may in ((api.async_client(), False), (api.client(), True)):
        store = LettaStore(client, archive="memories", model=MODEL, embedding=EMBEDDING)
        put = asyncio.run(case_of(store).put())
        if may:
            assert len(asyncio.run(store.find(put.fact.fact_id))) == 1
        else:
            with pytest.raises(InvalidStore):
                asyncio.run(store.find(put.fact.fact_id))
