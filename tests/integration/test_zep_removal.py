"""Removals from Zep: tasks to their end, extractions that are not over, texts that outlive their episode."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from fakes.zep_api import ZepApi
from fix_zep import ACTOR, SPACE, case_of, graph_of, outcomes, store_of
from zep_cloud.client import AsyncZep

from custody_sync import AsyncCoordinator
from custody_sync.adapters._scopes import LooseNotes
from custody_sync.adapters.zep import ZepStore
from custody_sync.errors import NoProof, StoreUnavailable
from custody_sync.testing.contract_case import Put

# --- tasks ---------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["partial", "failed"])
async def test_a_delete_that_did_not_succeed_raises(
    end: str, zep_api: ZepApi, zep_custody: AsyncCoordinator
) -> None:
    """A task that ended in part or failed is no deletion, and the removal is owed until one succeeds."""
    written = await zep_custody.write(space=SPACE, value="coffee, black", actor=ACTOR)
    zep_api.troubles.deletes_end = end
    retracted = await zep_custody.retract(written.fact.fact_id, actor=ACTOR, reason="wrong")
    assert outcomes(list(retracted.removals)) == [("failed", f"delete failed (task_{end})")]
    zep_api.troubles.deletes_end = "succeeded"
    swept = await zep_custody.repair(actor=ACTOR, reason="again", max_removals=10)
    assert [entry.outcome.value for entry in swept.repaired] == ["verified"]


async def test_a_delete_that_does_not_end_raises_in_time(zep_api: ZepApi, async_zep: AsyncZep) -> None:
    """Waits grow and add up to the store's patience, whatever Zep does."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    store = store_of(async_zep, sleep=sleep, patience=7.0)
    put = await case_of(store).put()
    zep_api.pass_time()
    zep_api.troubles.pending = True
    with pytest.raises(StoreUnavailable, match="task_still_open"):
        await store.delete(put.entries[0])
    assert sum(slept) == pytest.approx(7.0)
    assert slept[:2] == [0.1, pytest.approx(0.16)]
    assert max(slept) <= 2.0


async def test_a_task_that_zep_no_longer_knows_is_judged_by_the_episode(
    zep_api: ZepApi, async_zep: AsyncZep
) -> None:
    """Without a task to follow, a delete is over when the episode cannot be read any more."""
    store = store_of(async_zep)
    case = case_of(store)
    put, other = await case.put(), await case.put()
    zep_api.pass_time()
    zep_api.deletion, zep_api.forgets_tasks = 4, True
    await store.delete(put.entries[0])
    assert [episode.uuid for episode in zep_api.episodes()] == list(other.ids)
    zep_api.troubles.lying_delete = True
    with pytest.raises(StoreUnavailable, match="still_there"):
        await store.delete(other.entries[0])


# --- deletions that come before their extraction has ended ---------------------------------


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.time = datetime(2026, 11, 30, tzinfo=UTC)

    def now(self) -> datetime:
        """Return the time."""
        return self.time


async def deleted_early(
    zep_api: ZepApi, client: AsyncZep, clock: Clock, notes: LooseNotes
) -> tuple[ZepStore, Put]:
    """Put a fact whose extraction takes very long, and delete it."""
    zep_api.extraction, zep_api.extracts_deleted = 1_000, True
    store = store_of(client, now=clock.now)
    store.remember_in(notes)
    case = case_of(store)
    put = await case.put()
    await case.delete(put)
    return store, put


async def test_a_deletion_before_the_extraction_ended_proves_nothing_yet(
    zep_api: ZepApi, async_zep: AsyncZep
) -> None:
    """The text goes at once, but "gone" is not said while something may still come of it, in any process."""
    clock, notes = Clock(), LooseNotes()
    store, put = await deleted_early(zep_api, async_zep, clock, notes)
    assert not list(zep_api.episodes())
    other = store_of(async_zep, now=clock.now)
    other.remember_in(notes)
    for asked in (store, other):
        with pytest.raises(NoProof, match="its_extraction_may_not_have_ended"):
            await asked.verify_deleted(put.blind[0])
    clock.time += timedelta(minutes=11)
    assert await other.verify_deleted(put.blind[0]) is True
    assert not [key for key in await notes.read() if key.startswith("early:")]


async def test_a_deletion_that_did_not_take_effect_starts_no_clock(
    zep_api: ZepApi, async_zep: AsyncZep
) -> None:
    """The time runs from the deletion that worked, or an old failure would vouch for a young extraction."""
    clock = Clock()
    zep_api.extraction, zep_api.extracts_deleted, zep_api.troubles.deletes_end = 1_000, True, "failed"
    store = store_of(async_zep, now=clock.now)
    put = await case_of(store).put()
    with pytest.raises(StoreUnavailable, match="task_failed"):
        await store.delete(put.entries[0])
    clock.time += timedelta(minutes=11)
    zep_api.troubles.deletes_end = "succeeded"
    await store.delete(put.entries[0])
    with pytest.raises(NoProof, match="its_extraction_may_not_have_ended"):
        await store.verify_deleted(put.blind[0])
    clock.time += timedelta(minutes=11)
    assert await store.verify_deleted(put.blind[0]) is True


async def test_what_comes_of_a_deleted_episode_is_found_and_cleared(
    zep_api: ZepApi, async_zep: AsyncZep
) -> None:
    """An extraction that ended after the deletion leaves an edge, which the next delete takes."""
    clock = Clock()
    store, put = await deleted_early(zep_api, async_zep, clock, LooseNotes())
    zep_api.pass_time(1_000)
    clock.time += timedelta(minutes=11)
    assert await store.verify_deleted(put.blind[0]) is False
    await store.delete(put.blind[0])
    assert not graph_of(zep_api).edges
    # The nodes that came of it name an episode that is no more.
    assert await store.verify_deleted(put.blind[0]) is False


async def test_an_extraction_that_zep_gave_up_is_not_waited_for(zep_api: ZepApi, async_zep: AsyncZep) -> None:
    """`expired_at` ends an extraction as well as `processed` does."""
    zep_api.extraction = 1_000
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        zep_api.pass_time()

    store = store_of(async_zep, sleep=sleep)
    put = await case_of(store).put()
    (episode,) = zep_api.episodes()
    episode.expired_at = "2026-11-08T00:00:00Z"
    await store.delete(put.entries[0])
    assert len(slept) <= 1
    assert await store.verify_deleted(put.blind[0]) is True


# --- what is derived -----------------------------------------------------------------------


async def test_an_equal_text_that_lives_accounts_for_what_says_it(
    zep_api: ZepApi, async_zep: AsyncZep
) -> None:
    """Edges and summaries that another fact with the same text stands behind are that fact's."""
    zep_api.merges_edges, zep_api.keeps_summaries = True, False
    store = store_of(async_zep)
    case = case_of(store)
    gone, lives = await case.put(case.fact("said twice")), await case.put(case.fact("said twice"))
    zep_api.pass_time()
    await case.delete(gone)
    assert [edge.episodes for edge in graph_of(zep_api).edges.values()] == [list(lives.ids)]
    assert await store.verify_deleted(gone.entries[0]) is True


async def test_an_edge_shared_with_another_text_is_no_proof(zep_api: ZepApi, async_zep: AsyncZep) -> None:
    """An edge that now only an episode with another text stands behind still says what was forgotten."""
    zep_api.keeps_summaries = False
    store = store_of(async_zep)
    case = case_of(store)
    gone, lives = await case.put(case.fact("Ann likes tea")), await case.put(case.fact("Ann is fond of tea"))
    zep_api.pass_time()
    (edge, _) = graph_of(zep_api).edges.values()
    edge.episodes += lives.ids
    await case.delete(gone)
    with pytest.raises(NoProof, match="text_left_in_an_edge"):
        await store.verify_deleted(gone.entries[0])


async def test_an_edge_of_other_episodes_is_never_deleted(zep_api: ZepApi, async_zep: AsyncZep) -> None:
    """What another episode stands behind as well is not ours to take, only to report."""
    zep_api.leaves_edges = True
    store = store_of(async_zep)
    case = case_of(store)
    gone, lives = await case.put(), await case.put()
    zep_api.pass_time()
    (shared, _) = graph_of(zep_api).edges.values()
    shared.episodes += lives.ids
    await case.delete(gone)
    assert shared.uuid in graph_of(zep_api).edges
    assert [await store.verify_deleted(entry) for entry in (*gone.entries, *gone.blind)] == [False, False]


async def test_an_observation_is_looked_into(zep_api: ZepApi, async_zep: AsyncZep) -> None:
    """Observations are derived too; case and white space do not hide a text in one."""
    zep_api.keeps_summaries = False
    store = store_of(async_zep)
    case = case_of(store)
    gone, lives = await case.put(case.fact("Ann likes  tea")), await case.put()
    zep_api.pass_time()
    await case.delete(gone)
    assert await store.verify_deleted(gone.entries[0]) is True
    row = graph_of(zep_api).observe(
        "It seems that ANN likes\ntea in the evening.", lives.ids, "2026-11-30T00:00:00Z"
    )
    with pytest.raises(NoProof, match="text_left_in_an_observation"):
        await store.verify_deleted(gone.entries[0])
    notes = await store.after_forget(gone.entries)
    assert notes[0] == f"A forgotten text still stands in observation {row}."


async def test_a_summary_behind_a_crowd_is_found(zep_api: ZepApi, async_zep: AsyncZep) -> None:
    """Where all that a search ranked carries the text, the cut may have hidden more, so all is read."""
    zep_api.ranked = 3
    store = store_of(async_zep)
    case = case_of(store)
    crowd = [await case.put(case.fact("what everybody says")) for _ in range(5)]
    gone = await case.put(case.fact("what everybody says"))
    zep_api.pass_time()
    await case.delete(gone)
    graph = graph_of(zep_api)
    orphan = graph.observe("x " * 50 + "what everybody says", (), "2026-11-30T00:00:00Z")
    graph.nodes[orphan].is_observation = False
    for _ in crowd:
        graph.observe("what everybody says", crowd[0].ids, "2026-11-30T00:00:00Z")
    with pytest.raises(NoProof, match="text_left_in_a_node_summary"):
        await store.verify_deleted(gone.entries[0])
    assert await store.after_forget(gone.entries) != await store.after_forget(crowd[0].entries)


async def test_a_cleared_summary_no_longer_stands_in_the_way(zep_api: ZepApi, async_zep: AsyncZep) -> None:
    """Once what kept the text is empty or gone, a question without the text is answered again."""
    store = store_of(async_zep)
    case = case_of(store)
    gone, _ = await case.put(), await case.put()
    zep_api.pass_time()
    await case.delete(gone)
    for entry in (*gone.entries, *gone.blind):
        with pytest.raises(NoProof, match="text_left_in_a_node_summary"):
            await store.verify_deleted(entry)
    graph = graph_of(zep_api)
    graph.nodes[graph.hub].said.clear()
    assert await store.verify_deleted(gone.blind[0]) is True
    assert len(await store.after_forget(gone.blind)) == len(await store.after_forget(gone.blind)) == 4


async def test_a_content_policy_that_hides_episodes_is_no_absence(
    zep_api: ZepApi, async_zep: AsyncZep
) -> None:
    """What violated a policy is left out of every read, unless the project includes it."""
    zep_api.policy, zep_api.keeps_summaries = True, False
    store = store_of(async_zep)
    case = case_of(store)
    put, neighbour = await case.put(), await case.put()
    zep_api.pass_time()
    await case.delete(put)
    with pytest.raises(NoProof, match="content_policy_hides_episodes"):
        await store.verify_deleted(put.entries[0])
    zep_api.includes_violating = True
    assert await store.verify_deleted(put.entries[0]) is True
    assert await store.verify_deleted(neighbour.entries[0]) is False
