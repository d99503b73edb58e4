"""What `LettaStore` does beyond the contract: where archives come from, who reads them, what is refused."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from typing import Any

import pytest
from fakes.letta_api import EMBEDDING, MODEL, LettaApi
from letta_client import Letta

from custody_sync.adapters._scopes import LooseNotes
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
from custody_sync.ports import Notebook
from custody_sync.testing import StoreHooks
from custody_sync.testing.contract import Case


@pytest.fixture
def api() -> LettaApi:
    """Return a fresh server."""
    return LettaApi()


def opened(api: LettaApi, notes: Notebook | None = None, **options: Any) -> LettaStore:
    """Return a store as a new process has it, with a notebook if it is given one."""
    handles: dict[str, Any] = {} if "agent" in options else {"model": MODEL, "embedding": EMBEDDING}
    store = LettaStore(api.client(), **handles, **options)
    if notes is not None:
        store.remember_in(notes)
    return store


def case_of(store: LettaStore) -> Case:
    """Return what makes facts and puts them."""
    return Case("letta", store, StoreHooks())


def ids(entries: list[Entry]) -> list[str]:
    """Return the external ids in order."""
    return sorted(entry.external_id for entry in entries)


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
    for spoilt in ({"text": "shortened"}, {"created_at": "2026-01-01T00:00:00Z"}, {"id": None, "text": None}):
        fact = case.fact()
        label = case.label(fact)
        shown = {
            "id": f"passage-{uuid.uuid4()}",
            "text": fact.text,
            "created_at": str(label.stored_at),
            "metadata": label.to_metadata(),
        }
        api.faults.answers["create"] = 200, shown
        assert await store.put(fact, label) == (shown["id"],)
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
    assert [api.passages[one].text for (one,) in answers] == [fact.text for fact in facts]


async def test_a_batch_without_embeddings_goes_one_by_one(api: LettaApi) -> None:
    """An archive without an embedding model, into which a batch would fail, takes single passages."""
    agent = api.new_agent()
    api.archives[api.new_archive("plain", agent=agent)]["embedding_config"] = None
    store = opened(api, agent=agent)
    case = case_of(store)
    facts = [case.fact() for _ in range(3)]
    answers = await store.put_many([(fact, case.label(fact)) for fact in facts])
    assert [api.passages[one].text for (one,) in answers] == [fact.text for fact in facts]


# --- archives of our own -------------------------------------------------------------------


async def test_two_processes_share_one_archive(api: LettaApi) -> None:
    """Of two processes that make a scope's archive at once, the second to claim deletes its own."""
    notes = LooseNotes()
    cases = [case_of(opened(api, notes, archive="memories")) for _ in range(2)]
    puts = await asyncio.gather(*(case.put() for case in cases))
    assert len(api.archives) == 1
    for case in cases:
        assert ids(await case.listed()) == sorted(put.ids[0] for put in puts)


async def test_who_claims_second_deletes_what_it_made(api: LettaApi) -> None:
    """An archive that was claimed while ours was being made is used, and ours goes."""
    notes = LooseNotes()
    mine, theirs = case_of(opened(api, notes, archive="memories")), case_of(opened(api, archive="memories"))
    first = await theirs.put()
    (claimed,) = api.archives

    def claim() -> None:
        asyncio.run(notes.claim("archive memories", claimed))

    api.archives[claimed]["description"] = "nobody's"
    api.faults.before["create_archive"] = claim
    put = await mine.put()
    assert api.requests.count("create_archive") == 2
    assert list(api.archives) == [claimed]
    assert ids(await mine.listed()) == sorted((*first.ids, *put.ids))


async def test_a_claim_made_meanwhile_is_not_taken_for_a_deleted_archive(api: LettaApi) -> None:
    """An archive that another process makes and claims while we look for one is used, its claim kept."""

    class Shared(LooseNotes):
        reads = 0

        async def read(self) -> Mapping[str, str]:
            self.reads += 1
            if self.reads == 2:
                await self.claim("archive memories", api.new_archive("memories"))
            return await super().read()

    notes = Shared()
    case = case_of(opened(api, notes, archive="memories"))
    put = await case.put()
    assert list(api.archives) == [(await notes.read())["archive memories"]]
    assert ids(await case.listed()) == list(put.ids)


async def test_an_archive_made_without_a_reply_is_taken_up(api: LettaApi) -> None:
    """An archive whose creation was answered with 500 is used by the next put, not made again."""
    api.faults.setup_fails_after = 1
    store = opened(api, archive="memories")
    case = case_of(store)
    fact = case.fact()
    with pytest.raises(StoreUnavailable):
        await store.put(fact, case.label(fact))
    # The server closed the connection after its 500; the first of these finds out.
    await store.find(fact.fact_id)
    await store.put(fact, case.label(fact))
    assert len(api.archives) == 1
    assert len(await store.find(fact.fact_id)) == 1


async def test_a_process_without_notes_lists_what_others_wrote(api: LettaApi) -> None:
    """Archives are found by their mark: every scope is listed by a process that claimed none."""
    case = case_of(opened(api))
    puts = [await case.put(case.fact(space=f"{case.space}:{n}")) for n in range(5)]
    fresh = opened(api)
    assert ids([entry async for entry in fresh.list_entries()]) == sorted(put.ids[0] for put in puts)
    assert await fresh.verify_deleted(puts[0].blind[0]) is False
    assert len(api.agents) == 5


async def test_two_archives_of_one_name_are_both_read(api: LettaApi) -> None:
    """Entries in a second archive of the scope, made by a process with another notebook, are all reached."""
    one, two = (case_of(opened(api, LooseNotes(), archive="memories")) for _ in range(2))
    first = await one.put()
    hidden = api.archives.pop(next(iter(api.archives)))
    second = await two.put()
    api.archives[hidden["id"]] = hidden
    for case in (one, two):
        assert ids(await case.listed()) == sorted((*first.ids, *second.ids))
        for put in (first, second):
            assert await case.store.verify_deleted(put.entries[0]) is False
    await two.store.delete(first.entries[0])
    assert await two.store.verify_deleted(first.entries[0]) is True
    assert ids(await one.listed()) == list(second.ids)


async def test_strangers_archives_are_left_alone(api: LettaApi) -> None:
    """An archive of somebody else, or of a store of another name, is neither used nor listed."""
    api.put(api.new_archive("memories", "mine"), "a stranger's")
    other = await case_of(opened(api, archive="memories", name="other")).put()
    case = case_of(opened(api, archive="memories"))
    put = await case.put()
    assert len(api.archives) == 3
    assert ids(await case.listed()) == list(put.ids)
    assert other.ids[0] not in ids(await case.listed())


async def test_a_deleted_archive_is_made_anew_and_proves_nothing(api: LettaApi) -> None:
    """After somebody deleted an archive, puts go into a new one; what was in the old is not called gone."""
    store = opened(api, LooseNotes(), archive="memories")
    case = case_of(store)
    put = await case.put()
    api.client().archives.delete(next(iter(api.archives)))
    with pytest.raises(NoProof):
        await store.verify_deleted(put.blind[0])
    with pytest.raises(NoProof):
        await store.verify_deleted(put.entries[0])
    assert await case.listed() == []
    await store.delete(put.entries[0])
    again = await case.put()
    assert ids(await case.listed()) == list(again.ids)


async def test_a_handle_nobody_knows_shows_at_the_first_put(api: LettaApi) -> None:
    """A wrong model handle refuses the first put, before anything is stored that could not be listed."""
    store = LettaStore(api.client(), model="openai/none", embedding=EMBEDDING)
    case = case_of(store)
    fact = case.fact()
    with pytest.raises(StoreRefused):
        await store.put(fact, case.label(fact))
    assert api.texts() == []


async def test_an_entry_without_scope_is_looked_for_everywhere(api: LettaApi) -> None:
    """An entry whose scope was erased is deleted and verified wherever it lies."""
    store = opened(api)
    case = case_of(store)
    puts = [await case.put(case.fact(space=f"{case.space}:{n}")) for n in range(3)]
    lost = Entry(store=store.name, external_id=puts[1].ids[0])
    assert await store.verify_deleted(lost) is False
    await store.delete(lost)
    assert await store.verify_deleted(lost) is True
    assert ids(await case.listed()) == sorted((puts[0].ids[0], puts[2].ids[0]))


async def test_a_delete_in_another_archive_is_refused(api: LettaApi) -> None:
    """An entry addressed in the archive of another space stays, and the delete says so."""
    store = opened(api)
    case = case_of(store)
    put, other = await case.put(), await case.put(case.fact(space=f"{case.space}:other"))
    moved = Entry(store=store.name, external_id=put.ids[0], scope=other.entries[0].scope)
    with pytest.raises(StoreRefused):
        await store.delete(moved)
    assert await store.verify_deleted(put.entries[0]) is False


# --- an agent of the caller's --------------------------------------------------------------


async def test_an_agent_recalls_what_was_put(api: LettaApi) -> None:
    """With `agent`, a fact lies in that agent's archive, beside what it remembered by itself."""
    agent = api.new_agent()
    own = api.put(api.new_archive("assistant's Archive", agent=agent), "I remembered this")
    case = case_of(opened(api, agent=agent))
    put = await case.put()
    found = api.client().agents.passages.search(agent, query=put.fact.text or "", top_k=1)
    assert [row.id for row in found.results] == list(put.ids)
    assert ids(await case.listed()) == sorted((own, *put.ids))
    assert len(api.archives) == len(api.agents) == 1


async def test_an_agent_without_an_archive_gets_one(api: LettaApi) -> None:
    """An agent that never remembered anything gets an archive as its own would be; a listing makes none."""
    agent = api.new_agent()
    case = case_of(opened(api, agent=agent))
    assert await case.listed() == []
    assert api.archives == {}
    await case.put()
    (archive,) = api.archives.values()
    assert api.attached == {agent: archive["id"]}
    assert archive["embedding_config"]["handle"] == EMBEDDING


async def test_an_agent_for_each_fact(api: LettaApi) -> None:
    """A function of the fact names its agent; the agents written to are all listed by another process."""
    agents = [api.new_agent(f"assistant {n}") for n in range(2)]
    notes = LooseNotes()
    options = {"agent": lambda fact: agents[int(fact.space[-1])]}
    case = case_of(opened(api, notes, **options))
    puts = [await case.put(case.fact(space=f"{case.space}:{n}")) for n in (0, 1, 1)]
    assert [put.entries[0].scope for put in puts] == [agents[0], agents[1], agents[1]]
    fresh = opened(api, notes, **options)
    assert ids([entry async for entry in fresh.list_entries()]) == sorted(put.ids[0] for put in puts)


async def test_an_agent_with_another_archive_is_refused(api: LettaApi) -> None:
    """When the agent was given another archive, nothing is put, listed or called gone."""
    agent = api.new_agent()
    store = opened(api, agent=agent)
    case = case_of(store)
    put = await case.put()
    api.attached[agent] = api.new_archive("another")
    for call in (case.listed, lambda: store.verify_deleted(put.blind[0]), lambda: store.find("x")):
        with pytest.raises(StoreRefused):
            await call()
    fresh = opened(api, agent=agent)
    assert ids([entry async for entry in fresh.list_entries()]) == []


async def test_an_agent_nobody_knows_is_refused(api: LettaApi) -> None:
    """A put for an agent that is not there is refused, and makes no archive."""
    store = opened(api, agent=f"agent-{uuid.uuid4()}")
    case = case_of(store)
    fact = case.fact()
    with pytest.raises(StoreRefused):
        await store.put(fact, case.label(fact))
    assert api.archives == {}


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
    api.passages[other.ids[0]].created_at = api.passages[put.ids[0]].created_at.replace(year=2020)
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
