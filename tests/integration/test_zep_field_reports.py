"""What others met with Zep and the engine under it, as tests that an adapter which trusts answers fails."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from fakes.zep_api import ZepApi
from fix_zep import ACTOR, SPACE, case_of, graph_of, outcomes, store_of
from zep_cloud.client import AsyncZep, Zep

from custody_sync import AsyncCoordinator
from custody_sync.errors import NoProof, StoreThrottled, StoreUnavailable

MARKER = "Summary Subject has marker VIEWGUARD_OLD_MARKER_8M3Z."


async def test_a_summary_that_keeps_the_forgotten_text_is_no_proof(
    zep_api: ZepApi, zep_custody: AsyncCoordinator
) -> None:
    """The episode is gone and its fact with it, the shared node's summary still says it.

    https://github.com/getzep/graphiti/issues/1837
    """
    written = await zep_custody.write(space=SPACE, value=MARKER, actor=ACTOR)
    await zep_custody.write(space=SPACE, value="Summary Subject works on the pilot project.", actor=ACTOR)
    zep_api.pass_time()
    forgotten = await zep_custody.forget(written.fact.fact_id, actor=ACTOR, reason="asked to")
    (hub,) = [node for node in graph_of(zep_api).nodes.values() if MARKER in " ".join(node.said.values())]
    assert outcomes(forgotten.removals) == [
        ("unverified", "its answer proves nothing (text_left_in_a_node_summary)")
    ]
    assert not forgotten.complete
    assert f"A forgotten text still stands in node {hub.uuid}." in forgotten.notes
    assert MARKER not in " ".join(forgotten.notes)


async def test_a_summary_is_not_proof_later_either_until_the_node_is_gone(
    zep_api: ZepApi, zep_custody: AsyncCoordinator
) -> None:
    """Without the text nobody can look into the summary again, so the node has to go first.

    https://github.com/getzep/graphiti/issues/1837
    """
    written = await zep_custody.write(space=SPACE, value=MARKER, actor=ACTOR)
    await zep_custody.write(space=SPACE, value="Summary Subject works on the pilot project.", actor=ACTOR)
    zep_api.pass_time()
    await zep_custody.forget(written.fact.fact_id, actor=ACTOR, reason="asked to")
    later = await zep_custody.repair(actor=ACTOR, reason="again", max_removals=10)
    assert [entry.outcome.value for entry in later.repaired] == ["unverified"]
    graph = graph_of(zep_api)
    del graph.nodes[graph.hub]
    at_last = await zep_custody.repair(actor=ACTOR, reason="the node was deleted", max_removals=10)
    assert [entry.outcome.value for entry in at_last.repaired] == ["verified"]


async def test_edges_that_a_deletion_left_are_deleted(zep_api: ZepApi, async_zep: AsyncZep) -> None:
    """A deletion that drops only the episode leaves its facts; those that are nobody else's go too.

    https://github.com/getzep/graphiti/pull/1491 (issue 1489)
    """
    zep_api.leaves_edges, zep_api.keeps_summaries = True, False
    store = store_of(async_zep)
    case = case_of(store)
    put, neighbour = await case.put(), await case.put()
    zep_api.pass_time()
    await case.delete(put)
    left = [edge.episodes for edge in graph_of(zep_api).edges.values()]
    assert left == [list(neighbour.ids)]
    assert [await store.verify_deleted(entry) for entry in (*put.entries, *put.blind)] == [True, True]


async def test_an_edge_that_cannot_be_deleted_is_no_proof(zep_api: ZepApi, async_zep: AsyncZep) -> None:
    """While an edge still names the deleted episode, the episode's text is not gone.

    https://github.com/getzep/graphiti/pull/1491 (issue 1489)
    """
    zep_api.leaves_edges = True
    store = store_of(async_zep)
    put = await case_of(store).put()
    zep_api.pass_time()
    await async_zep.graph.episode.delete(graph_of(zep_api).uuid, put.ids[0])
    zep_api.pass_time()
    assert not list(zep_api.episodes())
    assert [await store.verify_deleted(entry) for entry in (*put.entries, *put.blind)] == [False, False]


async def test_an_entity_that_no_episode_mentions_is_looked_into(
    zep_api: ZepApi, async_zep: AsyncZep
) -> None:
    """Entities without a mention are never cleaned up, and no question about the episode shows them.

    https://github.com/getzep/graphiti/issues/1083
    """
    zep_api.leaves_nodes = True
    store = store_of(async_zep)
    case = case_of(store)
    put = await case.put()
    await case.put()
    zep_api.pass_time()
    await case.delete(put)
    with pytest.raises(NoProof, match="text_left_in_a_node_summary"):
        await store.verify_deleted(put.entries[0])


async def test_an_acknowledged_episode_that_is_never_saved_is_no_put(
    zep_api: ZepApi, async_zep: AsyncZep
) -> None:
    """An answer that something is queued is no confirmation: it failed in silence afterwards.

    https://github.com/getzep/graphiti/issues/1164
    """
    store = store_of(async_zep)
    case = case_of(store)
    await case.put()
    zep_api.troubles.pending = True
    with pytest.raises(StoreUnavailable, match="episode_not_readable"):
        await case.put(case.fact("the attributes of a thing"))


async def test_a_delete_waits_for_its_own_episode_to_be_processed(
    zep_api: ZepApi, async_zep: AsyncZep
) -> None:
    """That others were processed says nothing: what comes of an episode after its deletion is nobody's.

    https://github.com/getzep/zep/pull/607
    """
    zep_api.extraction, zep_api.extracts_deleted, zep_api.keeps_summaries = 9, True, False
    store = store_of(async_zep)
    case = case_of(store)
    earlier = await case.put()
    zep_api.pass_time()
    assert next(zep_api.episodes()).processed
    put = await case.put()
    await case.delete(put)
    zep_api.pass_time(100)
    assert [edge.episodes for edge in graph_of(zep_api).edges.values()] == [list(earlier.ids)]


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_throttled_call_is_sent_once_and_says_how_long_to_wait(
    kind: str, zep_api: ZepApi, zep: Zep, async_zep: AsyncZep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The free plan answers 429 in plain text and asks for a minute; the client alone would sleep it, twice.

    https://github.com/666ghj/MiroFish/issues/60 and https://github.com/666ghj/MiroFish/issues/27
    """
    store = store_of(zep if kind == "sync" else async_zep)
    put = await case_of(store).put()
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    zep_api.troubles = replace(zep_api.troubles, throttled=float("inf"), retry_after="60")
    before = len(zep_api.sent)
    with pytest.raises(StoreThrottled) as told:
        await store.verify_deleted(put.entries[0])
    assert told.value.retry_after == 60
    assert "FREE plan" not in str(told.value)
    assert len(zep_api.sent) == before + 1
    assert not slept
