"""A Cognee client of another user or server: nothing is written, and nothing that it does not see is gone."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from fakes.cognee_api import BASE_URL, CogneeServer
from fix_cognee import CogneeBench

from custody_sync import AsyncCoordinator, Ledger
from custody_sync.adapters._scopes import LooseNotes
from custody_sync.adapters.cognee import CogneeStore
from custody_sync.errors import NoProof, StoreError, StoreRefused, StoreWriteFailed
from custody_sync.model import Capability, Entry
from custody_sync.runtime import Runtime

OTHER = {"username": "other@example.com", "password": "other-pass"}


async def no_sleep(seconds: float) -> None:
    """Wait for nothing."""


@pytest.fixture
def notes(cognee: CogneeBench) -> LooseNotes:
    """Return the notebook of a ledger, which the first user's store keeps; there is a second user."""
    found = LooseNotes()
    cognee.store.remember_in(found)
    cognee.server.new_user(OTHER["username"], OTHER["password"])
    return found


def of_the_other(cognee: CogneeBench, notes: LooseNotes) -> CogneeStore:
    """Return a store of the second user that has the first one's notebook."""
    store = cognee.adapter(**OTHER)
    store.remember_in(notes)
    return store


async def no_proof(store: CogneeStore, entry: Entry) -> bool:
    """Tell whether a store refuses to say that an entry is gone."""
    with suppress(NoProof):
        await store.verify_deleted(entry)
        return False
    return True


@pytest.mark.parametrize("place", ["user", "server"])
async def test_a_forget_from_elsewhere_is_not_verified(
    cognee: CogneeBench, tmp_path: Path, place: str
) -> None:
    """Another user or server under the same store name takes no write to the space and proves nothing."""
    cognee.server.new_user(OTHER["username"], OTHER["password"])
    server = cognee.server if place == "user" else CogneeServer()
    server.new_user(OTHER["username"], OTHER["password"])
    transport = httpx.MockTransport(server.answer)
    async with (
        await Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}", create=True) as ledger,
        httpx.AsyncClient(base_url=BASE_URL, transport=transport) as client,
    ):
        here = AsyncCoordinator(ledger, stores=[cognee.store], runtime=Runtime(sleep=no_sleep))
        fact = (await here.write(value="my secret is blue", space="user:1", actor="a")).fact
        store = CogneeStore(client, cognify="wait", **OTHER)
        away = AsyncCoordinator(ledger, stores=[store], runtime=Runtime(sleep=no_sleep))
        with pytest.raises(StoreWriteFailed):
            await away.write(value="something new", space="user:1", actor="a")
        forgotten = await away.forget(fact.fact_id, actor="a", reason="asked to")
        assert {str(removal.outcome) for removal in forgotten.removals} == {"unverified"}
        back = AsyncCoordinator(ledger, stores=[cognee.adapter()], runtime=Runtime(sleep=no_sleep))
        await back.repair(actor="a", reason="back")
        assert (await back.verify(actor="a")).complete
        assert not [item for dataset in cognee.server.datasets.values() for item in dataset.items]


async def test_a_put_elsewhere_is_refused(cognee: CogneeBench, notes: LooseNotes) -> None:
    """A space stays where it was put first; others may be begun anywhere."""
    await cognee.put("ours")
    away = of_the_other(cognee, notes)
    for _ in range(2):
        with pytest.raises(StoreRefused, match="DatasetOutOfSight"):
            await cognee.put("theirs", store=away)
    await cognee.put("elsewhere", "user:2", away)
    held = [item.text for dataset in cognee.server.datasets.values() for item in dataset.items.values()]
    assert len(held) == 2
    assert not [text for text in held if "theirs" in text]


async def test_what_is_out_of_sight_is_not_gone(cognee: CogneeBench, notes: LooseNotes) -> None:
    """With its scope, without, and in a scope that nobody noted: what is not shown proves no removal."""
    put = (await cognee.put("ours")).entries[0]
    away = of_the_other(cognee, notes)
    theirs = cognee.server.accounts[OTHER["username"], OTHER["password"]]
    for space in ("user:1", "user:3"):
        cognee.server.dataset(space, theirs)
    erased = Entry(store="cognee", external_id="erased~1", fact_id=put.fact_id)
    for entry in (put, replace(put, scope="user:3"), erased):
        assert await no_proof(away, entry)
    await away.delete(put)
    assert not await cognee.store.verify_deleted(put)


async def test_a_listing_without_what_was_noted_is_not_whole(cognee: CogneeBench, notes: LooseNotes) -> None:
    """What is shown is listed, then the listing fails; `find` and `search` answer nothing in its place."""
    await cognee.put("ours")
    away = of_the_other(cognee, notes)
    mine = await cognee.put("theirs", "user:2", away)
    listed: list[str] = []

    async def read() -> None:
        async for entry in away.list_entries():
            listed.append(entry.external_id)

    with pytest.raises(StoreRefused, match="DatasetOutOfSight"):
        await read()
    assert listed == list(mine.ids)
    for asked in (away.find("any"), away.search("ours", 3, None), away.search("ours", 3, ["user:1"])):
        with pytest.raises(StoreRefused, match="DatasetOutOfSight"):
            await asked
    assert [hit.entry.external_id for hit in await away.search("theirs", 3, ["user:2"])] == list(mine.ids)


async def test_a_dataset_that_is_only_shared_is_not_deleted_from(
    cognee: CogneeBench, notes: LooseNotes
) -> None:
    """A reader of the dataset may look, and is refused what only its owner may do."""
    put = (await cognee.put("ours")).entries[0]
    away = of_the_other(cognee, notes)
    readers = next(iter(cognee.server.datasets.values())).readers
    readers.update(cognee.server.accounts.values())
    with pytest.raises(StoreRefused, match="401"):
        await away.delete(put)
    assert not await away.verify_deleted(put)


async def test_a_deleted_dataset_keeps_its_id(cognee: CogneeBench, notes: LooseNotes) -> None:
    """Deleted by hand it proves nothing; made again by the next put it has the noted id, and does."""
    put = (await cognee.put("before")).entries[0]
    cognee.server.datasets.clear()
    again = cognee.adapter()
    again.remember_in(notes)
    assert await no_proof(again, put)
    await cognee.put("after", store=again)
    assert await again.verify_deleted(put)


async def test_what_is_held_back_by_an_indexing_is_asked_again(cognee: CogneeBench) -> None:
    """A search that waits for `cognify` until the client gives up is no answer; the next one is."""
    put, _ = await cognee.put("gone"), await cognee.put("living")
    await cognee.store.delete(put.entries[0])
    cognee.server.switches.held_searches = 1
    with pytest.raises(StoreError):
        await cognee.store.verify_deleted(put.entries[0])
    assert await cognee.store.verify_deleted(put.entries[0])
    assert Capability.SEARCH not in cognee.store.capabilities
