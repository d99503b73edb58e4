"""Each misbehaviour of the memory store is exactly what it says, and ends when told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest
from fix_pairs import NOW, fact, label

from custody_sync.errors import InvalidInput, StoreRefused, StoreUnavailable
from custody_sync.model import Capability, Entry, Json, Level, Limits
from custody_sync.ports import Store, capabilities
from custody_sync.testing import FOREVER, Faults, ManualClock, MemoryStore, manual_sleep


async def put(store: MemoryStore, text: str = "black coffee", space: str = "org") -> Entry:
    """Put a fact and return its entry as held."""
    said = fact(text, space=space)
    [external_id] = await store.put(said, label(said))
    return store.snapshot()[external_id]


async def served(store: MemoryStore, query: str = "black coffee") -> list[str]:
    """Return the ids that the search serves."""
    return [hit.entry.external_id for hit in await store.search(query, 10, None)]


def test_it_is_a_whole_store() -> None:
    """It has every capability in full."""
    store = MemoryStore()
    assert isinstance(store, Store)
    assert {support.level for support in capabilities(store).values()} == {Level.FULL}


@pytest.mark.parametrize("missing", list(Capability))
def test_a_capability_it_is_built_without_is_honestly_gone(missing: Capability) -> None:
    """The method is not there and the declaration gives the reason."""
    support = capabilities(MemoryStore(without=[missing]))
    assert support[missing].level is Level.NONE
    assert support[missing].reason
    assert sum(s.level is Level.FULL for s in support.values()) == len(Capability) - 1


async def test_the_search_ranks_by_shared_words() -> None:
    """The exact text is first, then what shares more words; what shares none is not served."""
    store = MemoryStore()
    near, exact, _ = [
        (await put(store, text)).external_id for text in ("black tea", "I drink black coffee", "green sofa")
    ]
    assert await served(store, "I drink black coffee") == [exact, near]
    assert await served(store, "drink BLACK") == [exact, near]
    assert await store.search("black", 0, None) == []


async def test_a_deleted_entry_is_shown_for_as_many_questions_as_the_index_lags() -> None:
    """Search and verify count alike; a lookup by id knows at once."""
    store = MemoryStore(faults=Faults(index_lag=3))
    entry = await put(store)
    await store.delete(entry)
    assert await store.find(entry.fact_id or "") == []
    assert await served(store) == [entry.external_id]
    assert await store.verify_deleted(entry) is False
    assert await served(store) == [entry.external_id]
    assert await store.verify_deleted(entry) is True
    assert await served(store) == []


async def test_a_broken_index_shows_the_deleted_for_ever_until_it_is_mended() -> None:
    """`FOREVER` means until the test says otherwise."""
    store = MemoryStore(faults=Faults(index_lag=FOREVER))
    entry = await put(store)
    await store.delete(entry)
    assert [await store.verify_deleted(entry) for _ in range(30)] == [False] * 30
    store.faults.index_lag = 0
    assert await store.verify_deleted(entry) is True


async def test_a_put_becomes_searchable_after_as_many_questions() -> None:
    """Meanwhile a verify still knows that it is held."""
    store = MemoryStore(faults=Faults(put_lag=2))
    entry = await put(store)
    assert await served(store) == []
    assert await store.verify_deleted(entry) is False
    assert await served(store) == [entry.external_id]


CALLS: dict[str, Callable[[MemoryStore, Entry], object]] = {
    "put": lambda store, entry: put(store),
    "delete": lambda store, entry: store.delete(entry),
    "find": lambda store, entry: store.find("x"),
    "list_entries": lambda store, entry: anext(store.list_entries()),
    "verify_deleted": lambda store, entry: store.verify_deleted(entry),
    "search": lambda store, entry: store.search("x", 1, None),
    "put_many": lambda store, entry: store.put_many([]),
    "relabel": lambda store, entry: store.relabel(entry, label(fact("x"))),
}


@pytest.mark.parametrize("operation", list(CALLS))
async def test_refusals_end_after_as_many_calls(operation: str) -> None:
    """Each operation raises without effect as often as told, then works; every call is counted."""
    store = MemoryStore()
    entry = await put(store)
    held, before = store.snapshot(), store.calls[operation]
    store.faults.refuse(operation, times=2)  # type: ignore[arg-type]  # parametrized over all of them
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=operation):
            await CALLS[operation](store, entry)  # type: ignore[misc]  # each returns something to await
        assert store.snapshot() == held
    await CALLS[operation](store, entry)  # type: ignore[misc]  # as above
    assert store.calls[operation] == before + 3


async def test_a_refusal_for_ever_raises_the_error_given_until_allowed() -> None:
    """Any exception can be given, and `allow` ends it."""
    store = MemoryStore()
    store.faults.refuse("find", OSError("cable"))
    for _ in range(5):
        with pytest.raises(OSError, match="cable"):
            await store.find("x")
    store.faults.allow("find")
    assert await store.find("x") == []


async def test_a_failing_search_fails_the_proof() -> None:
    """`verify_deleted` asks by the search, so it cannot answer without it."""
    store = MemoryStore()
    entry = await put(store)
    await store.delete(entry)
    store.faults.refuse("search")
    with pytest.raises(StoreUnavailable):
        await store.verify_deleted(entry)


def test_a_misspelt_operation_is_refused() -> None:
    """A fault on an operation that does not exist would never happen."""
    with pytest.raises(InvalidInput, match="serach"):
        Faults().refuse("serach")  # type: ignore[arg-type]  # the misspelling is the point
    with pytest.raises(InvalidInput):
        Faults().lose_reply("serach")  # type: ignore[arg-type]  # the misspelling is the point


async def test_a_lost_reply_took_effect() -> None:
    """The put and the delete raise, and are done all the same."""
    store = MemoryStore()
    store.faults.lose_reply("put")
    with pytest.raises(StoreUnavailable, match="lost"):
        await put(store)
    [entry] = store.snapshot().values()
    store.faults.lose_reply("delete")
    with pytest.raises(StoreUnavailable):
        await store.delete(entry)
    assert store.snapshot() == {}
    await store.delete(entry)


async def test_a_slow_reply_waits_by_the_injected_sleep() -> None:
    """The effect is there before the reply, and time passes on the clock given."""
    clock = ManualClock(NOW)
    store = MemoryStore(clock=clock, sleep=manual_sleep(clock), faults=Faults(delays={"put": 40}))
    entry = await put(store)
    assert clock.now() - NOW == timedelta(seconds=40)
    assert entry.created_at == NOW


async def test_a_slow_put_that_is_given_up_is_held() -> None:
    """A caller's time-out ends the waiting, not the put."""
    store = MemoryStore(faults=Faults(delays={"put": 3600}))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.001):
            await put(store)
    assert len(store.snapshot()) == 1


async def test_a_late_put_lands_when_told() -> None:
    """It raises now and takes effect at `land()`, once."""
    store = MemoryStore()
    store.faults.land_later()
    with pytest.raises(StoreUnavailable, match="may still land"):
        await put(store, "late")
    assert store.snapshot() == {}
    await put(store, "on time")
    assert store.land() == 1
    assert sorted(entry.text or "" for entry in store.snapshot().values()) == ["late", "on time"]
    assert store.land() == 0


async def test_a_late_put_lands_by_the_clock() -> None:
    """With a duration it lands by itself once the clock is past it."""
    clock = ManualClock(NOW)
    store = MemoryStore(clock=clock)
    store.faults.land_later(after=60)
    said = fact("late")
    with pytest.raises(StoreUnavailable):
        await store.put(said, label(said))
    clock.advance(59)
    assert await store.find(said.fact_id) == []
    clock.advance(1)
    assert len(await store.find(said.fact_id)) == 1


async def test_a_silent_delete_says_yes_and_does_nothing() -> None:
    """The entry is still held and still served, and a verify says so."""
    store = MemoryStore(faults=Faults(silent_delete=True))
    entry = await put(store)
    await store.delete(entry)
    assert store.snapshot() == {entry.external_id: entry}
    assert await store.verify_deleted(entry) is False


async def test_shared_ids_collapse_equal_texts() -> None:
    """The second fact gets the first one's id and leaves its label as it is."""
    store = MemoryStore(faults=Faults(shared_ids=True))
    one, two = fact("same"), fact("same")
    assert await store.put(one, label(one)) == await store.put(two, label(two))
    [entry] = store.snapshot().values()
    assert entry.fact_id == one.fact_id


async def test_pages_can_repeat_their_last_entry() -> None:
    """Each page after the first begins with the last entry of the one before."""
    store = MemoryStore(page_size=2, faults=Faults(repeat_pages=True))
    ids = [(await put(store, f"text {n}")).external_id for n in range(5)]
    listed = [entry.external_id async for entry in store.list_entries()]
    assert listed == [*ids[:2], ids[1], *ids[2:4], ids[3], ids[4]]


async def test_a_listing_can_break_off() -> None:
    """It yields so many entries and raises."""
    store = MemoryStore(faults=Faults(list_breaks_after=2))
    for n in range(4):
        await put(store, f"text {n}")
    seen: list[Entry] = []

    async def read() -> None:
        async for entry in store.list_entries():
            seen.append(entry)

    with pytest.raises(StoreUnavailable, match="broke off"):
        await read()
    assert len(seen) == 2


async def test_own_ids_make_a_retry_a_second_entry() -> None:
    """As in stores that do not let us choose the key."""
    store, said = MemoryStore(own_ids=True), fact("twice")
    tag = label(said)
    assert await store.put(said, tag) != await store.put(said, tag)
    assert len(await store.find(said.fact_id)) == 2


async def test_a_put_can_become_several_entries() -> None:
    """Every part is an entry with the same label."""
    store, said = MemoryStore(parts=3), fact("long")
    ids = await store.put(said, label(said))
    assert len(set(ids)) == 3
    assert {entry.fact_id for entry in store.snapshot().values()} == {said.fact_id}


async def test_a_scope_is_part_of_the_address() -> None:
    """A delete in another scope does nothing and proves nothing of the entry in its own."""
    store = MemoryStore(scope="ns/{space}")
    entry = await put(store, space="user:1")
    assert entry.scope == "ns/user:1"
    await store.delete(Entry(store="memory", external_id=entry.external_id, scope="ns/user:2"))
    assert entry.external_id in store.snapshot()


@pytest.mark.parametrize(("limits", "fits"), [(Limits(text_chars=4), "ééáá"), (Limits(text_bytes=4), "éé")])
async def test_a_text_over_the_limit_is_refused(limits: Limits, fits: str) -> None:
    """At the limit is held, one more is refused for good, and nothing of it is kept."""
    store = MemoryStore(limits=limits)
    await put(store, fits)
    with pytest.raises(StoreRefused):
        await put(store, fits + "x")
    assert len(store.snapshot()) == 1


async def test_nothing_outside_can_change_what_is_held() -> None:
    """Values and metadata are copies on the way in and on the way out."""
    store = MemoryStore()
    value: dict[str, Json] = {"seats": [1]}
    said = fact("seats", value=value)
    [key] = await store.put(said, label(said))
    value["seats"] = []
    got = store.value(key)
    assert got == {"seats": [1]}
    assert isinstance(got, dict)
    got["seats"] = "changed"
    store.metadata(key)["space"] = "changed"
    assert store.value(key) == {"seats": [1]}
    assert store.metadata(key)["space"] == "org"


async def test_what_others_wrote_and_lost_is_seen() -> None:
    """A raw text is listed without a label, and a dropped entry is gone without a delete."""
    store = MemoryStore()
    raw, entry = store.put_raw("past custody"), await put(store)
    listed = {e.external_id: e.fact_id async for e in store.list_entries()}
    assert listed == {raw: None, entry.external_id: entry.fact_id}
    store.drop(entry.external_id)
    assert set(store.snapshot()) == {raw}
    assert store.calls["delete"] == 0


async def test_a_relabel_needs_its_entry() -> None:
    """Relabelling what is not there is refused; what is there keeps its text."""
    store, entry = MemoryStore(), Entry(store="memory", external_id="nothing")
    with pytest.raises(StoreRefused):
        await store.relabel(entry, label(fact("x")))
    held, other = await put(store), fact("other", space="team")
    await store.relabel(held, label(other))
    [now] = store.snapshot().values()
    assert (now.text, now.fact_id, now.space) == (held.text, other.fact_id, "team")
