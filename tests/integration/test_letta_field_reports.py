"""What people met with Letta, as tests that an adapter written from its documentation fails."""

from __future__ import annotations

import pytest
from fakes.letta_api import EMBEDDING, MODEL, LettaApi

from custody_sync.adapters._letta_walk import like
from custody_sync.adapters.letta import LettaStore
from custody_sync.errors import StoreRefused, StoreUnavailable
from custody_sync.testing import StoreHooks
from custody_sync.testing.contract import Case


@pytest.fixture
def api() -> LettaApi:
    """Return a fresh server."""
    return LettaApi()


@pytest.fixture
def store(api: LettaApi) -> LettaStore:
    """Return a store in one archive, through a client with its default retries."""
    return LettaStore(api.client(), archive="memories", model=MODEL, embedding=EMBEDDING)


@pytest.fixture
def case(store: LettaStore) -> Case:
    """Return what makes facts and puts them."""
    return Case("field report", store, StoreHooks())


async def test_a_put_is_sent_once(case: Case, api: LettaApi, store: LettaStore) -> None:
    """A put that was committed and answered with 500 leaves one passage, not the client's three.

    Letta keeps equal passages side by side: https://github.com/letta-ai/letta/issues/3116, and
    letta-client 1.12 sends a failed create up to three times.
    """
    await case.put()
    api.requests.clear()
    api.faults.fails_after = 1
    fact = case.fact()
    with pytest.raises(StoreUnavailable):
        await store.put(fact, case.label(fact))
    assert api.requests.count("create") == 1
    assert api.texts().count(fact.text or "") == 1
    assert len(await store.find(fact.fact_id)) == 1


async def test_a_404_of_the_embedder_is_no_lost_archive(case: Case, api: LettaApi, store: LettaStore) -> None:
    """A put answered with 404 while the archive is there is refused, and no second archive is made.

    https://github.com/letta-ai/letta/issues/2747: the embedding service's 404 arrives as the server's own.
    """
    await case.put()
    api.faults.answers["create"] = 404, {"detail": "model 'nomic-embed-text' not found"}
    fact = case.fact()
    with pytest.raises(StoreRefused):
        await store.put(fact, case.label(fact))
    assert len(api.archives) == 1
    await store.put(fact, case.label(fact))
    assert len(await store.find(fact.fact_id)) == 1


async def test_an_archive_outlives_its_agent(case: Case, api: LettaApi, store: LettaStore) -> None:
    """When somebody deletes the reading agent, entries are still listed and none is called gone.

    https://github.com/letta-ai/letta/pull/1632: passages stay when their agent goes. The list of an
    agent that is not there is 200 and empty (0.16.8), which looks like an empty store.
    """
    put = await case.put()
    for agent in list(api.agents):
        api.client().agents.delete(agent)
    assert await store.verify_deleted(put.blind[0]) is False
    assert await store.verify_deleted(put.entries[0]) is False
    assert [entry.external_id for entry in await case.listed()] == list(put.ids)


async def test_a_detached_agent_hides_nothing(case: Case, api: LettaApi, store: LettaStore) -> None:
    """When somebody detaches the archive from the reading agent, no entry is called gone."""
    put = await case.put()
    api.attached.clear()
    assert await store.verify_deleted(put.entries[0]) is False
    assert [entry.external_id for entry in await case.listed()] == list(put.ids)


async def test_an_embedding_model_is_pinned(case: Case, api: LettaApi) -> None:
    """The archive is made with the embedding model that was named, never with the server's default.

    https://github.com/letta-ai/letta/issues/3210: archival memory fell back to
    openai/text-embedding-3-small whatever the agent was made with.
    """
    await case.put()
    (archive,) = api.archives.values()
    assert archive["embedding_config"]["handle"] == EMBEDDING


async def test_tags_are_compared_after_the_cut(case: Case, api: LettaApi, store: LettaStore) -> None:
    """An entry that a search for its own tag does not show is found, and is not called gone.

    The filter follows the limit: "Currently using post-filtering", in
    https://github.com/letta-ai/letta/blob/0.16.8/letta/services/agent_manager.py.
    """
    first = await case.put()
    archive = next(iter(api.archives))
    for n in range(120):
        api.put(archive, f"older note {n}", created_at="2020-01-01T00:00:00Z")
    put = await case.put(case.fact("the newest note"))
    tag = f"fact_id:{put.fact.fact_id}"
    assert api.client().passages.search(archive_id=archive, tags=[tag], limit=100) == []
    assert [entry.external_id for entry in await store.find(put.fact.fact_id)] == list(put.ids)
    assert await store.verify_deleted(put.blind[0]) is False
    fresh = LettaStore(api.client(), archive="memories", model=MODEL, embedding=EMBEDDING)
    assert [entry.external_id for entry in await fresh.find(first.fact.fact_id)] == list(first.ids)
    assert await fresh.verify_deleted(put.blind[0]) is False


async def test_a_deleted_cursor_is_no_end(case: Case, api: LettaApi) -> None:
    """When another program deletes what a page ends with, the rest is listed all the same.

    The cursor's row is looked up, and without it the page is 200 and empty:
    https://github.com/letta-ai/letta/blob/0.16.8/letta/services/helpers/agent_manager_helper.py.
    """
    store = LettaStore(api.client(), archive="memories", model=MODEL, embedding=EMBEDDING, page_size=10)
    case = Case("cursor", store, StoreHooks())
    puts = [await case.put() for _ in range(45)]
    seen: list[str] = []
    async for entry in store.list_entries():
        seen.append(entry.external_id)
        if len(seen) % 10 == 0:
            for external_id in seen[-7:]:
                api.drop(external_id.partition("/")[2])
    assert sorted(seen) == sorted(put.ids[0] for put in puts)


@pytest.mark.parametrize("text", ["C:\\temp\\new is full", "100% of a_b", "ΟΔΟΣ, then İSTANBUL", "\\", "%"])
async def test_a_pattern_is_no_text(case: Case, api: LettaApi, store: LettaStore, text: str) -> None:
    """A held entry is not called gone although its text means something else as a pattern.

    A listing's `search` goes into LIKE as it is: seen on 0.16.8, a text with a backslash does not
    match itself.
    """
    await case.put(case.fact("something else"))
    put = await case.put(case.fact(text))
    assert await store.verify_deleted(put.entries[0]) is False
    (agent,) = api.agents
    shown = api.client().agents.passages.list(agent, search=like(text))
    assert put.ids[0].partition("/")[2] in [row.id for row in shown]
    await store.delete(put.entries[0])
    assert await store.verify_deleted(put.entries[0]) is True
