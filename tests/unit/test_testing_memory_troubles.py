"""Each trouble of the memory store is what a service does, for as many calls as told, and ends when told."""

from __future__ import annotations

import pytest
from fix_pairs import fact, label

from custody_sync.errors import StoreThrottled, StoreUnavailable
from custody_sync.model import Fact, Label
from custody_sync.testing import FOREVER, MemoryHooks, MemoryStore, Trouble


def pair(text: str = "black coffee") -> tuple[Fact, Label]:
    """Return a new fact and a label for it."""
    said = fact(text)
    return said, label(said)


async def filled(count: int, page_size: int) -> MemoryStore:
    """Return a store with so many entries."""
    store = MemoryStore(page_size=page_size)
    for _ in range(count):
        await store.put(*pair())
    return store


async def listed(store: MemoryStore, got: list[str] | None = None) -> list[str]:
    """Return the ids of one listing, and leave in `got` what came before it broke off."""
    ids = [] if got is None else got
    async for entry in store.list_entries():
        ids.append(entry.external_id)
    return ids


async def test_calls_are_turned_away_without_effect() -> None:
    """Whatever they are, the next so many calls raise and do nothing; then all is well."""
    store = MemoryStore()
    store.faults.turn_away(times=3)
    with pytest.raises(StoreUnavailable, match="reset"):
        await store.put(*pair())
    with pytest.raises(StoreUnavailable):
        await store.find("nothing")
    with pytest.raises(StoreUnavailable):
        await store.search("coffee", 10, None)
    assert store.snapshot() == {}
    assert await store.put(*pair())


async def test_a_throttled_call_names_the_wait() -> None:
    """Throttling has an error of its own, which says after how many seconds to ask again."""
    store = MemoryStore()
    store.faults.turn_away(throttled=True)
    with pytest.raises(StoreThrottled) as turned_away:
        await store.put(*pair())
    assert turned_away.value.retry_after == 0.0
    store.faults.turn_away()
    with pytest.raises(StoreUnavailable) as reset:
        await store.put(*pair())
    assert not isinstance(reset.value, StoreThrottled)


async def test_lost_writes_are_those_of_any_verb() -> None:
    """They take effect and raise; reading is not touched by it."""
    store = MemoryStore()
    store.faults.lost_writes = 2
    fact, label = pair()
    with pytest.raises(StoreUnavailable, match="reply was lost"):
        await store.put(fact, label)
    [entry] = await store.find(fact.fact_id)
    with pytest.raises(StoreUnavailable, match="reply was lost"):
        await store.delete(entry)
    assert store.snapshot() == {}
    assert await store.put(*pair())


@pytest.mark.parametrize("own_ids", [False, True])
async def test_an_empty_reply_names_no_ids(own_ids: bool) -> None:
    """Where the keys are ours they are known all the same; where they are the store's, nobody knows them."""
    store = MemoryStore(own_ids=own_ids)
    store.faults.empty_replies = 2
    fact, label = pair()
    if own_ids:
        with pytest.raises(StoreUnavailable, match="names no ids"):
            await store.put(fact, label)
    else:
        assert await store.put(fact, label) == (label.key,)
    [entry] = await store.find(fact.fact_id)
    await store.delete(entry)
    assert store.snapshot() == {}


async def test_a_pending_write_is_never_carried_out() -> None:
    """Neither a put nor a batch nor a delete takes effect, and each says so."""
    store = await filled(1, 10)
    [entry] = store.snapshot().values()
    store.faults.pending = True
    with pytest.raises(StoreUnavailable, match="pending"):
        await store.put(*pair())
    with pytest.raises(StoreUnavailable, match="pending"):
        await store.put_many([pair()])
    with pytest.raises(StoreUnavailable, match="pending"):
        await store.delete(entry)
    assert list(store.snapshot()) == [entry.external_id]


async def test_rough_pages_are_smoothed() -> None:
    """The pages behind the listing overlap, the listing does not."""
    store = await filled(25, 10)
    store.faults.rough_pages = True
    assert await listed(store) == list(store.snapshot())


async def test_a_short_page_is_noticed_as_often_as_told() -> None:
    """A listing whose second page lacks a row raises after the first; the next is whole."""
    store = await filled(25, 10)
    store.faults.short_listings = 1
    got: list[str] = []
    with pytest.raises(StoreUnavailable, match="page came back short"):
        await listed(store, got)
    assert len(got) == 10
    assert len(await listed(store)) == 25


async def test_a_store_of_one_page_cannot_be_short() -> None:
    """Without a second page nothing is left out."""
    store = await filled(5, 10)
    store.faults.short_listings = 1
    assert len(await listed(store)) == 5


@pytest.mark.parametrize(
    "trouble",
    [
        Trouble.THROTTLED,
        Trouble.RESET,
        Trouble.FAILS_AFTER,
        Trouble.LOST_REPLY,
        Trouble.PENDING,
        Trouble.EMPTY_BODY,
    ],
)
async def test_allow_ends_whatever_stops_a_write(trouble: Trouble) -> None:
    """After trouble for ever a test may go on with the same store."""
    store = MemoryStore(own_ids=True)
    await MemoryHooks().make_trouble(store, trouble, FOREVER)
    with pytest.raises(StoreUnavailable):
        await store.put(*pair())
    store.faults.allow()
    assert await store.put(*pair())


async def test_another_handle_has_what_the_first_holds() -> None:
    """A reopened store serves and deletes the same entries."""
    store = await filled(2, 10)
    other = await MemoryHooks().reopened(store)
    assert other is not store
    [first, second] = store.snapshot().values()
    await other.delete(first)
    assert list(store.snapshot()) == [second.external_id]
