"""Which graph a fact gets: made once, known again, found after a crash, made anew when it was deleted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes.zep_api import ZepApi
from fix_zep import ACTOR, SPACE, case_of, graph_of, outcomes, store_of
from zep_cloud.client import AsyncZep

from custody_sync import AsyncCoordinator, Ledger
from custody_sync.adapters._scopes import LooseNotes
from custody_sync.adapters.zep import ZepStore
from custody_sync.errors import NoProof, StoreError, StoreRefused


class RacingNotes(LooseNotes):
    """A notebook of two processes that look for a graph, make one and claim it in step."""

    def __init__(self, before_claims: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self._both = asyncio.Barrier(2)
        self._before_claims = before_claims

    async def get(self, key: str) -> str | None:
        """Wait until both have looked, which is when they ask for the project."""
        if key == "project":
            await self._both.wait()
        return await super().get(key)

    async def claim(self, key: str, value: str) -> str:
        """Wait until both have a graph to claim."""
        if key.startswith("graph:") and await self._both.wait() == 0:
            self._before_claims()
        return await super().claim(key, value)


def racing(client: AsyncZep, notes: LooseNotes) -> list[ZepStore]:
    """Return the stores of two processes that share a ledger."""
    stores = [store_of(client), store_of(client)]
    for store in stores:
        store.remember_in(notes)
    return stores


def graphs_made(api: ZepApi) -> int:
    """Return how many graphs were made through the API."""
    return sum(method == "POST" and path == "graphs" for method, path, _, _ in api.sent)


class CrashingNotes(LooseNotes):
    """A notebook whose first claim of a graph ends the process."""

    crashed = False

    async def claim(self, key: str, value: str) -> str:
        """Crash once."""
        if key.startswith("graph:") and not self.crashed:
            self.crashed = True
            raise ConnectionError("the process ended here")
        return await super().claim(key, value)


async def test_two_processes_that_make_a_graph_at_once_put_into_one(
    zep_api: ZepApi, async_zep: AsyncZep
) -> None:
    """The first claim decides and both put into its graph; the other's stays, as it may be anybody's."""
    early: list[str] = []

    def write() -> None:
        early.extend(zep_api.add(graph, "by hand") for graph in zep_api.graphs)

    notes = RacingNotes(write)
    stores = racing(async_zep, notes)
    puts = await asyncio.gather(*(case_of(store).put() for store in stores))
    zep_api.pass_time()
    ids = [i for put in puts for i in put.ids]
    assert graphs_made(zep_api) == len(zep_api.graphs) == len(early) == 2
    assert sorted(len(graph.episodes) for graph in zep_api.graphs.values()) == [1, 3]
    stores[0].remember_in(LooseNotes())
    listed = [entry.external_id for entry in await case_of(stores[0]).listed()]
    assert sorted(listed) == sorted([*early, *ids])


async def test_two_processes_that_replace_a_deleted_graph_put_into_one(
    zep_api: ZepApi, async_zep: AsyncZep
) -> None:
    """The slower of two drops no claim: it finds the one that came after the deleted graph."""
    notes = LooseNotes()
    stores = racing(async_zep, notes)
    await case_of(stores[0]).put()
    gone = graph_of(zep_api).uuid
    await async_zep.graph.delete(gone)
    zep_api.pass_time()
    puts = await asyncio.gather(*(case_of(store).put() for store in stores))
    puts += [await case_of(store).put() for store in stores]
    full = [graph for graph in zep_api.graphs.values() if graph.episodes]
    assert [sorted(graph.episodes) for graph in full] == [sorted(i for put in puts for i in put.ids)]
    assert [await stores[0].find(put.fact.fact_id) != [] for put in puts] == [True] * 4


async def test_a_deleted_graph_that_comes_back_is_asked_too(zep_api: ZepApi, async_zep: AsyncZep) -> None:
    """What was in a graph is gone for as long as the graph is; a scope keeps the graphs that it had."""
    zep_api.keeps_summaries = False
    store = store_of(async_zep)
    case = case_of(store)
    old = await case.put()
    graph = zep_api.graphs.pop(graph_of(zep_api).uuid)
    new = await case.put()
    assert await store.verify_deleted(old.entries[0]) is True
    zep_api.graphs[graph.uuid] = graph
    assert await store.verify_deleted(old.entries[0]) is False
    assert [e.external_id for e in await store.find(old.fact.fact_id)] == list(old.ids)
    assert sorted(e.external_id for e in await case.listed()) == sorted([*old.ids, *new.ids])
    await case.delete(old)
    assert [e.external_id for e in await case.listed()] == list(new.ids)


async def test_a_graph_whose_maker_crashed_is_used_again(zep_api: ZepApi, async_zep: AsyncZep) -> None:
    """The mark in its description leads back to a graph that nobody claimed."""
    store = store_of(async_zep)
    store.remember_in(CrashingNotes())
    case = case_of(store)
    with pytest.raises(ConnectionError):
        await case.put()
    put = await case.put()
    assert list(graph_of(zep_api).episodes) == list(put.ids)


async def test_a_second_graph_of_a_scope_is_listed_and_cleared(zep_api: ZepApi, async_zep: AsyncZep) -> None:
    """Entries of a graph that lost its claim have a scope of their own, by which they are removed."""
    one, other = store_of(async_zep), store_of(async_zep)
    put = await case_of(one).put()
    first = graph_of(zep_api)
    second = zep_api.create(first.name, first.description)
    lost = zep_api.add(second.uuid, "lost", next(zep_api.episodes()).metadata)
    for store in (one, other):
        entries = {entry.external_id: entry for entry in await case_of(store).listed()}
        assert set(entries) == {lost, *put.ids}
        assert entries[put.ids[0]].scope == SPACE
        assert entries[lost].scope == f"=graph:{second.uuid}"
        assert entries[lost].fact_id == put.fact.fact_id
    await one.delete(entries[lost])
    assert await one.verify_deleted(entries[lost]) is True
    assert [entry.external_id for entry in await one.find(put.fact.fact_id)] == list(put.ids)


async def test_a_graph_of_another_store_is_not_this_ones(zep_api: ZepApi, async_zep: AsyncZep) -> None:
    """Two stores in one project keep apart, or each would sweep the other's entries as its strays."""
    here, there = store_of(async_zep, name="here"), store_of(async_zep, name="there")
    mine, _ = await case_of(here).put(), await case_of(there).put()
    assert len(zep_api.graphs) == 2
    assert [entry.external_id for entry in await case_of(here).listed()] == list(mine.ids)


async def test_a_space_cannot_name_another_ones_graph(zep_api: ZepApi, async_zep: AsyncZep) -> None:
    """Spaces come from users: one that looks like the name of a graph gets a graph of its own."""
    store = store_of(async_zep)
    case = case_of(store)
    await case.put()
    victim = graph_of(zep_api)
    await case.put(case.fact(space=f"=graph:{victim.uuid}"))
    assert len(zep_api.graphs) == 2
    assert len(victim.episodes) == 1


@pytest.mark.parametrize("space", ["s" * 1_000, "👩‍👩‍👧‍👦" * 140, '{"scope": "x"} = " \\', "=", "==x"])
async def test_any_space_fits(space: str, zep_api: ZepApi, async_zep: AsyncZep) -> None:
    """Long spaces and odd ones get a graph that another process finds again, with descriptions that fit."""
    store = store_of(async_zep)
    case = case_of(store)
    put = await case.put(case.fact(space=space))
    other = store_of(async_zep)
    (entry,) = await case_of(other).listed()
    assert (entry.external_id, entry.space, entry.scope) == (put.ids[0], space, put.entries[0].scope)
    assert len(graph_of(zep_api).description or "") < 400
    await other.delete(entry)
    assert not await case.held(put)


async def test_a_graph_that_is_there_already_is_used(zep_api: ZepApi, async_zep: AsyncZep) -> None:
    """Given graphs are neither made nor claimed; what others wrote there is listed as theirs."""
    mine = zep_api.create("Ann's graph")
    theirs = zep_api.add(mine.uuid, "said in a thread")
    store = store_of(async_zep, graphs={SPACE: mine.uuid})
    put = await case_of(store).put()
    entries = {entry.external_id: entry.fact_id for entry in await case_of(store).listed()}
    assert entries == {theirs: None, put.ids[0]: put.fact.fact_id}
    assert graphs_made(zep_api) == 0


# --- graphs that go ------------------------------------------------------------------------


async def test_what_was_in_a_deleted_graph_is_gone(
    zep_api: ZepApi, zep_custody: AsyncCoordinator, async_zep: AsyncZep
) -> None:
    """To delete the graph is the thorough way to forget, and a removal by it is verified."""
    written = await zep_custody.write(space=SPACE, value="to be forgotten", actor=ACTOR)
    await async_zep.graph.delete(graph_of(zep_api).uuid)
    zep_api.pass_time()
    forgotten = await zep_custody.forget(written.fact.fact_id, actor=ACTOR, reason="asked to")
    assert outcomes(forgotten.removals) == [("verified", "")]


async def test_a_deleted_graph_is_made_anew(zep_api: ZepApi, async_zep: AsyncZep) -> None:
    """A put into a graph that somebody deleted gets a new one, which then stands for the scope."""
    store = store_of(async_zep)
    case = case_of(store)
    await case.put()
    gone = graph_of(zep_api).uuid
    await async_zep.graph.delete(gone)
    zep_api.pass_time()
    puts = [await case.put(), await case.put()]
    assert graph_of(zep_api).uuid != gone
    assert sorted(e.external_id for e in await case.listed()) == sorted(put.ids[0] for put in puts)


async def test_another_projects_key_proves_nothing(zep_api: ZepApi, async_zep: AsyncZep) -> None:
    """To a key of another project every graph is unknown; that is no absence, and nothing is put there."""
    notes = LooseNotes()
    store = store_of(async_zep)
    store.remember_in(notes)
    put = await case_of(store).put()
    elsewhere = ZepApi()
    zep_api.graphs, zep_api.project = elsewhere.graphs, elsewhere.project
    for entry in (*put.entries, *put.blind):
        with pytest.raises(NoProof, match="graph_out_of_sight"):
            await store.verify_deleted(entry)
    with pytest.raises(StoreError):
        await case_of(store).listed()
    for space in (SPACE, "another"):
        with pytest.raises(StoreRefused):
            await case_of(store).put(case_of(store).fact(space=space))
    assert not elsewhere.graphs
    assert json.dumps(dict(await notes.read())).count(put.entries[0].scope or "") == 1


async def test_an_unknown_scope_proves_nothing(async_zep: AsyncZep) -> None:
    """Where no graph can be named nobody could have looked."""
    put = await case_of(store_of(async_zep, name="there")).put()
    store = store_of(async_zep, name="here")
    with pytest.raises(NoProof, match="graph_unknown"):
        await store.verify_deleted(put.entries[0])
    await store.delete(put.entries[0])
    assert (await case_of(store_of(async_zep, name="there")).held(put)) != []


async def test_the_ledger_knows_the_graphs_in_the_next_process(
    zep_api: ZepApi, zep_custody: AsyncCoordinator, async_zep: AsyncZep, tmp_path: Path
) -> None:
    """Claims stand in the ledger: a graph whose mark somebody edited is found all the same."""
    written = await zep_custody.write(space=SPACE, value="kept", actor=ACTOR)
    graph_of(zep_api).description = "edited"
    url = f"sqlite:///{tmp_path / 'custody.db'}"
    async with await Ledger.open(url) as ledger:
        store = store_of(async_zep)
        async with AsyncCoordinator(ledger, stores=[store]):
            listed = await case_of(store).listed()
    assert [entry.external_id for entry in listed] == list(written.placements["zep"])
