"""Texts that outlive their episode in Zep: none hides behind a crowd, a cut list or a look that broke off."""

from __future__ import annotations

import pytest
from fakes.zep_api import ZepApi
from fix_zep import ACTOR, SPACE, case_of, graph_of, outcomes, store_of
from zep_cloud.client import AsyncZep

from custody_sync import AsyncCoordinator
from custody_sync.adapters import _zep_residue
from custody_sync.adapters._scopes import LooseNotes
from custody_sync.errors import NoProof, StoreUnavailable

TEXT = "alpha beta gamma delta"
SAME_WORDS = "alpha gamma beta delta"
WHEN = "2026-11-30T00:00:00Z"


async def test_a_crowd_of_the_same_words_hides_no_summary(
    zep_api: ZepApi, zep_custody: AsyncCoordinator
) -> None:
    """A search ranks by likeness, so a shared node that still says the text comes after all of these."""
    written = await zep_custody.write(space=SPACE, value=TEXT, actor=ACTOR)
    graph = graph_of(zep_api)
    for _ in range(250):
        zep_api.add(graph.uuid, SAME_WORDS)
    zep_api.pass_time()
    forgotten = await zep_custody.forget(written.fact.fact_id, actor=ACTOR, reason="asked to")
    assert TEXT in graph.nodes[graph.hub].shown()["summary"]
    assert outcomes(forgotten.removals) == [
        ("unverified", "its answer proves nothing (text_left_in_a_node_summary)")
    ]
    assert f"A forgotten text still stands in node {graph.hub}." in forgotten.notes


@pytest.mark.parametrize("kind", ["edge", "node", "observation"])
@pytest.mark.parametrize("equal_first", [True, False])
async def test_no_kind_of_row_hides_behind_a_ranking(
    kind: str, equal_first: bool, zep_api: ZepApi, async_zep: AsyncZep
) -> None:
    """Whatever else is ranked before it, a row that says the text among other words is found."""
    zep_api.ranked, zep_api.equal_first, zep_api.keeps_summaries = 3, equal_first, False
    store = store_of(async_zep)
    case = case_of(store)
    gone, lives = await case.put(case.fact(TEXT)), await case.put(case.fact(SAME_WORDS))
    zep_api.pass_time()
    await case.delete(gone)
    graph = graph_of(zep_api)
    for _ in range(4):
        graph.observe(SAME_WORDS, lives.ids, WHEN)
        zep_api.add(graph.uuid, SAME_WORDS)
    zep_api.pass_time()
    assert await store.verify_deleted(gone.entries[0]) is True
    said = f"It was said, long ago and by somebody else, that {TEXT}."
    if kind == "edge":
        next(iter(graph.edges.values())).fact = said
    else:
        row = graph.observe(said, lives.ids, WHEN)
        graph.nodes[row].is_observation = kind == "observation"
    with pytest.raises(NoProof, match=f"text_left_in_an?_{kind}"):
        await store.verify_deleted(gone.entries[0])


async def test_more_rows_than_are_looked_through_are_no_proof(
    zep_api: ZepApi, async_zep: AsyncZep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list that does not end within the bound may keep the text further on, for every process."""
    monkeypatch.setattr(_zep_residue, "_PAGE", 2)
    monkeypatch.setattr(_zep_residue, "_LISTED", 3)
    zep_api.keeps_summaries, notes = False, LooseNotes()
    store = store_of(async_zep)
    store.remember_in(notes)
    case = case_of(store)
    gone, lives = await case.put(case.fact(TEXT)), await case.put()
    zep_api.pass_time()
    await case.delete(gone)
    graph = graph_of(zep_api)
    for n in range(6):
        graph.observe(f"number {n}", lives.ids, WHEN)
    assert await store.verify_deleted(gone.entries[0]) is True
    graph.observe("one more", lives.ids, WHEN)
    other = store_of(async_zep)
    other.remember_in(notes)
    for asked, entry in ((store, gone.entries[0]), (store, gone.blind[0]), (other, gone.blind[0])):
        with pytest.raises(NoProof, match="too_many_rows_to_look_through"):
            await asked.verify_deleted(entry)
    said = await store.after_forget(gone.entries)
    assert said[0] == "A forgotten text still stands in one of very many observations."


async def test_a_row_that_a_deletion_moved_past_the_cursor_is_found(
    zep_api: ZepApi, async_zep: AsyncZep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cursors are opaque: a list of more than a page is read from its other end as well."""
    monkeypatch.setattr(_zep_residue, "_PAGE", 2)
    zep_api.keeps_summaries, zep_api.ranked = False, 0
    store = store_of(async_zep)
    case = case_of(store)
    gone, lives = await case.put(case.fact(TEXT)), await case.put()
    zep_api.pass_time()
    await case.delete(gone)
    graph = graph_of(zep_api)
    rows = sorted(graph.observe("something else", lives.ids, WHEN) for _ in range(5))
    graph.nodes[rows[2]].said["observed"] = TEXT
    zep_api.troubles.skips = 1
    with pytest.raises(NoProof, match="text_left_in_an_observation"):
        await store.verify_deleted(gone.entries[0])


async def test_a_list_that_lags_hides_nothing(zep_api: ZepApi, async_zep: AsyncZep) -> None:
    """What lists have not seen yet a search may show, and either is enough."""
    zep_api.leaves_edges, zep_api.leaves_nodes = True, True
    store = store_of(async_zep)
    case = case_of(store)
    zep_api.lists_lag = 1_000
    gone = await case.put(case.fact(TEXT))
    zep_api.pass_time()
    await case.delete(gone)
    assert [edge.fact for edge in graph_of(zep_api).edges.values()] == [TEXT]
    with pytest.raises(NoProof, match="text_left_in_an_edge"):
        await store.verify_deleted(gone.entries[0])


async def test_a_list_that_still_shows_what_was_deleted_is_waited_for(
    zep_api: ZepApi, async_zep: AsyncZep
) -> None:
    """While a list names the episode it is not gone; once the list has caught up, it is."""
    zep_api.keeps_summaries = False
    store = store_of(async_zep)
    case = case_of(store)
    gone, _ = await case.put(case.fact(TEXT)), await case.put()
    zep_api.pass_time()
    zep_api.lists_lag = 4
    await case.delete(gone)
    answers = [await store.verify_deleted(gone.entries[0]) for _ in range(6)]
    assert answers[0] is False
    assert answers[-1] is True
    assert answers == sorted(answers)


async def test_a_node_of_many_episodes_may_be_any_ones(zep_api: ZepApi, async_zep: AsyncZep) -> None:
    """Zep shows the newest hundred of a node's episodes, so one it does not show is not proved away."""
    zep_api.keeps_summaries = False
    store = store_of(async_zep)
    case = case_of(store)
    gone, _ = await case.put(), await case.put()
    zep_api.pass_time()
    await case.delete(gone)
    assert await store.verify_deleted(gone.blind[0]) is True
    graph = graph_of(zep_api)
    graph.nodes[graph.hub].episodes[:0] = [*gone.ids, *(f"e-{n}" for n in range(100))]
    assert gone.ids[0] not in graph.nodes[graph.hub].shown()["episode_uuids"]
    for entry in (*gone.entries, *gone.blind):
        assert await store.verify_deleted(entry) is False


async def test_a_look_that_broke_off_is_none(zep_api: ZepApi, zep_custody: AsyncCoordinator) -> None:
    """The forget could not look for its text, and nobody else knows it: no later sweep calls it gone."""
    written = await zep_custody.write(space=SPACE, value=TEXT, actor=ACTOR)
    await zep_custody.write(space=SPACE, value="another", actor=ACTOR)
    zep_api.pass_time()
    zep_api.troubles.search_fails = float("inf")
    forgotten = await zep_custody.forget(written.fact.fact_id, actor=ACTOR, reason="asked to")
    assert not forgotten.complete
    zep_api.troubles.search_fails = 0
    later = await zep_custody.repair(actor=ACTOR, reason="again", max_removals=10)
    assert [(entry.outcome.value, entry.detail) for entry in later.repaired] == [
        ("unverified", "its answer proves nothing (its_text_was_not_looked_for_to_the_end)")
    ]
    zep_api.graphs.clear()
    at_last = await zep_custody.repair(actor=ACTOR, reason="the graph was deleted", max_removals=10)
    assert [entry.outcome.value for entry in at_last.repaired] == ["verified"]


async def test_a_look_that_ended_makes_up_for_one_that_broke_off(
    zep_api: ZepApi, async_zep: AsyncZep
) -> None:
    """While the text is known it is looked for again, and what that look saw is what counts."""
    zep_api.keeps_summaries = False
    store = store_of(async_zep)
    case = case_of(store)
    gone, _ = await case.put(), await case.put()
    zep_api.pass_time()
    await case.delete(gone)
    zep_api.troubles.search_fails = 1
    with pytest.raises(StoreUnavailable):
        await store.verify_deleted(gone.entries[0])
    with pytest.raises(NoProof, match="its_text_was_not_looked_for_to_the_end"):
        await store.verify_deleted(gone.blind[0])
    assert len(await store.after_forget(gone.entries)) == 4
    assert [await store.verify_deleted(entry) for entry in (*gone.entries, *gone.blind)] == [True, True]
