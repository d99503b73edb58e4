"""Where `LettaStore` keeps facts: archives of its own and who reads them, and archives of agents."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

import pytest
from fakes.letta_api import EMBEDDING, LettaApi
from fakes.letta_bench import case_of, ids, opened

from custody_sync.adapters._scopes import LooseNotes
from custody_sync.adapters.letta import LettaStore
from custody_sync.errors import NoProof, StoreRefused, StoreUnavailable
from custody_sync.model import Entry
from custody_sync.testing.contract_case import Put


@pytest.fixture
def api() -> LettaApi:
    """Return a fresh server."""
    return LettaApi()


# --- archives of our own -------------------------------------------------------------------


async def test_two_processes_share_one_archive(api: LettaApi) -> None:
    """Of two processes that make a scope's archive at once, the second to claim deletes its own."""
    notes = LooseNotes()
    cases = [case_of(opened(api, notes, archive="memories")) for _ in range(2)]
    puts = await asyncio.gather(*(case.put() for case in cases))
    assert len(api.archives) == 1
    for case in cases:
        assert ids(await case.listed()) == sorted(put.ids[0] for put in puts)


class Meanwhile(LooseNotes):
    """A notebook in which something happens just before the first claim, or the first look at everything."""

    def __init__(self, on: str, act: Callable[[], Awaitable[object]]) -> None:
        super().__init__()
        self._on = on
        self._act = act

    async def claim(self, key: str, value: str) -> str:
        """Set a value unless one stands."""
        await self._happen("claim")
        return await super().claim(key, value)

    async def read(self) -> Mapping[str, str]:
        """Return everything."""
        await self._happen("read")
        return await super().read()

    async def _happen(self, on: str) -> None:
        if on == self._on:
            self._on = ""
            await self._act()


async def test_who_claims_second_takes_nothing_along(api: LettaApi) -> None:
    """What another process put while ours made an archive and had not claimed it stays, whoever wins."""

    async def put() -> None:
        puts.append(await case_of(opened(api, notes, archive="memories")).put())
        puts.append(await case_of(opened(api, LooseNotes(), archive="memories")).put())

    puts: list[Put] = []
    notes = Meanwhile("claim", put)
    mine = case_of(opened(api, notes, archive="memories"))
    puts.append(await mine.put())
    assert api.requests.count("create_archive") == 2
    assert [row["name"] for row in api.archives.values()] == ["memories"]
    assert ids(await mine.listed()) == sorted(put.ids[0] for put in puts)
    assert len(api.texts()) == 3


async def test_an_archive_with_passages_is_never_deleted(api: LettaApi) -> None:
    """Who claims second leaves its archive where somebody has put a passage into it already."""

    async def claim() -> None:
        (unclaimed,) = api.archives
        api.put(unclaimed, "a stranger's")
        await LooseNotes.claim(notes, "archive memories", api.new_archive("memories"))

    notes = Meanwhile("claim", claim)
    await case_of(opened(api, notes, archive="memories")).put()
    assert len(api.archives) == 2
    assert "a stranger's" in api.texts()


@pytest.mark.parametrize("stale", [True, False])
async def test_a_claim_made_meanwhile_is_kept(api: LettaApi, stale: bool) -> None:
    """An archive that another process claims while we look is used, also in a deleted one's place."""

    async def claim() -> None:
        await notes.drop("archive memories")
        await notes.claim("archive memories", api.new_archive("memories"))

    notes = Meanwhile("read", claim)
    if stale:
        await notes.claim("archive memories", f"archive-{uuid.uuid4()}")
    case = case_of(opened(api, notes, archive="memories"))
    put = await case.put()
    assert list(api.archives) == [await notes.get("archive memories")]
    assert ids(await case.listed()) == list(put.ids)


@pytest.mark.parametrize("stale", [True, False])
async def test_processes_at_once_leave_one_archive_and_one_reader(api: LettaApi, stale: bool) -> None:
    """Eight first writes at once, also after a deleted archive, end in one place with all eight facts."""
    notes = LooseNotes()
    if stale:
        await case_of(opened(api, notes)).put()
        api.client().archives.delete(next(iter(api.archives)))
        api.agents.clear()
    cases = [case_of(opened(api, notes, archive="memories")) for _ in range(8)]
    puts = await asyncio.gather(*(case.put() for case in cases))
    assert (len(api.archives), len(api.agents)) == (1, 1)
    assert ids(await cases[0].listed()) == sorted(put.ids[0] for put in puts)


async def test_an_archive_made_without_a_reply_holds_nothing(api: LettaApi) -> None:
    """An archive whose creation was answered with 500 stays without name and mark, and is not looked into."""
    api.faults.setup_fails_after = 1
    store = opened(api, archive="memories")
    case = case_of(store)
    fact = case.fact()
    with pytest.raises(StoreUnavailable):
        await store.put(fact, case.label(fact))
    # The server closed the connection after its 500; the first of these finds out.
    await store.find(fact.fact_id)
    await store.put(fact, case.label(fact))
    assert [row["name"] for row in api.archives.values()] == ["custody-sync, not in use", "memories"]
    assert len(await store.find(fact.fact_id)) == 1
    assert len(api.agents) == 1


async def test_an_archive_that_was_claimed_and_not_named_is_taken_up(api: LettaApi) -> None:
    """After a crash between the claim and the naming, the next put names the archive and uses it."""
    notes = LooseNotes()
    case = case_of(opened(api, notes, archive="memories"))
    fact = case.fact()
    api.faults.answers["update_archive"] = 500, {"detail": "An unknown error occurred"}
    with pytest.raises(StoreUnavailable):
        await case.store.put(fact, case.label(fact))
    assert api.texts() == []
    put = await case_of(opened(api, notes, archive="memories")).put()
    assert [row["name"] for row in api.archives.values()] == ["memories"]
    assert ids([entry async for entry in opened(api).list_entries()]) == list(put.ids)


async def test_a_put_asks_the_notebook_each_time(api: LettaApi) -> None:
    """A claim that an erasure dropped is claimed again by the next put of the same process."""
    for options in ({"archive": "memories"}, {"agent": api.new_agent()}):
        notes = LooseNotes()
        case = case_of(opened(api, notes, **options))
        await case.put()
        claims = dict(await notes.read())
        for key in claims:
            await notes.drop(key)
        await case.put()
        assert claims.items() & (await notes.read()).items()
    assert len(api.archives) == 2


async def test_another_server_proves_nothing(api: LettaApi) -> None:
    """With a client of another server under the same name, a new archive there never makes an entry gone."""
    elsewhere, agent = LettaApi(), api.new_agent()
    elsewhere.agents[agent] = api.agents[agent]
    for options in ({}, {"archive": "memories"}, {"agent": agent}):
        notes = LooseNotes()
        put = await case_of(opened(api, notes, **options)).put()
        moved = opened(elsewhere, notes, **options)
        lost = replace(put.blind[0], scope=None)
        for n in range(2):
            for entry in (*put.entries, *put.blind, lost):
                await moved.delete(entry)
                with pytest.raises(NoProof):
                    await moved.verify_deleted(entry)
            if n == 0:
                await case_of(moved).put()
        assert await opened(api, notes, **options).verify_deleted(put.entries[0]) is False


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
    fact = case.fact()
    ((again,),) = await store.put_many([(fact, case.label(fact))])
    assert ids(await case.listed()) == [again]
    for entry in (*put.entries, *put.blind):
        with pytest.raises(NoProof):
            await store.verify_deleted(entry)


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


async def test_a_delete_elsewhere_leaves_the_entry(api: LettaApi) -> None:
    """An entry addressed in another archive is refused, one addressed in another scope is left alone."""
    store = opened(api)
    case = case_of(store)
    put, other = await case.put(), await case.put(case.fact(space=f"{case.space}:other"))
    passage, archive = put.ids[0].partition("/")[2], other.ids[0].partition("/")[0]
    with pytest.raises(StoreRefused):
        await store.delete(replace(other.entries[0], external_id=f"{archive}/{passage}"))
    await store.delete(replace(put.entries[0], scope=other.entries[0].scope))
    assert await store.verify_deleted(put.entries[0]) is False
    assert len(api.texts()) == 2


async def test_a_renamed_archive_is_still_deleted_from(api: LettaApi) -> None:
    """An archive that its owner renamed and described anew is read and deleted from by its id."""
    notes = LooseNotes()
    case = case_of(opened(api, notes, archive="memories"))
    put = await case.put()
    (archive,) = api.archives.values()
    archive |= {"name": "team notes", "description": "ours"}
    later = opened(api, notes, archive="memories")
    again = await case_of(later).put()
    assert ids(await case.listed()) == sorted((*put.ids, *again.ids))
    await later.delete(put.entries[0])
    assert await later.verify_deleted(put.entries[0]) is True
    assert archive["name"] == "team notes"


# --- an agent of the caller's --------------------------------------------------------------


async def test_an_agent_recalls_what_was_put(api: LettaApi) -> None:
    """With `agent`, a fact lies in that agent's archive, beside what it remembered by itself."""
    agent = api.new_agent()
    own = api.put(api.new_archive("assistant's Archive", agent=agent), "I remembered this")
    case = case_of(opened(api, agent=agent))
    put = await case.put()
    found = api.client().agents.passages.search(agent, query=put.fact.text or "", top_k=1)
    (archive,) = api.archives
    assert [f"{archive}/{row.id}" for row in found.results] == list(put.ids)
    assert ids(await case.listed()) == sorted((f"{archive}/{own}", *put.ids))
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
