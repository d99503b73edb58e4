"""Rows whose label is gone and answers that cannot be read: Mem0's store calls nothing gone for them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.mem0_api import Mem0Api
from fix_custody import open_desk

from custody_sync.adapters.mem0 import Mem0Store
from custody_sync.errors import NoProof, StoreRefused, StoreUnavailable
from custody_sync.model import Outcome
from custody_sync.testing.contract_case import Case, StoreHooks


@pytest.fixture
def store(mem0_client: Any) -> Mem0Store:
    """Return the adapter on an empty project of the hosted service."""
    return Mem0Store(mem0_client, patience=20.0, poll=0.01)


def case_of(store: Mem0Store) -> Case:
    """Return the contract's toolbox for one store."""
    return Case("answers", store, StoreHooks())


# --- a row that is not labelled as ours any more -------------------------------------------


async def test_a_row_of_the_library_that_lost_its_label_is_neither_deleted_nor_called_gone(
    mem0_memory: Any, tmp_path: Path
) -> None:
    """Somebody wrote over our row: it is theirs now, or ours without its label, and nobody can tell."""
    store: Any = Mem0Store(mem0_memory)
    vectors = mem0_memory.vector_store
    async with open_desk(tmp_path, stores=[store]) as desk:
        fact_id = await desk.written()
        (entry,) = await store.find(fact_id)
        payload = {"data": "the application's own", "user_id": entry.scope, "hash": "h"}
        vectors.client.overwrite_payload(vectors.collection_name, payload, points=[entry.external_id])
        told = await desk.coordinator(stores=[store]).forget(fact_id, actor="dpo", reason="asked")
        assert [(each.outcome, each.detail) for each in told.removals] == [
            (
                Outcome.FAILED,
                "what its id holds has no label and is not known to be ours; look in the store itself",
            )
        ]
        assert mem0_memory.get(entry.external_id)["memory"] == "the application's own"
        # Later nobody knows the text any more, and still it is not gone.
        for address in (replace(entry, text="the words"), replace(entry, text=None)):
            with pytest.raises(NoProof, match="LabelGone"):
                await store.verify_deleted(address)
        mem0_memory.delete(entry.external_id)
        assert await store.verify_deleted(entry)


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"fact_id": "another"}, "IdOfAnotherFact"),
        ({"ledger_id": "another"}, "LabelOfAnotherLedger"),
        ({"source": "agent"}, "LabelGone"),
        ({"fact_id": 7}, "LabelGone"),
        ({"ledger_id": None}, "LabelGone"),
    ],
)
async def test_a_row_under_our_id_with_another_label_is_left_alone(
    store: Mem0Store, mem0_api: Mem0Api, change: dict[str, Any], cause: str
) -> None:
    """The service made the id up for us: what stands there is refused to us, and it may have our words."""
    case = case_of(store)
    put = await case.put()
    (found,) = await store.find(put.fact.fact_id)
    mem0_api.memories[put.ids[0]].metadata |= change
    with pytest.raises(StoreRefused, match=cause):
        await store.delete(found)
    with pytest.raises(StoreRefused, match=cause):
        await store.relabel(found, put.label)
    with pytest.raises(NoProof, match=cause):
        await store.verify_deleted(found)
    assert list(mem0_api.memories) == list(put.ids)


# --- what lags -----------------------------------------------------------------------------


@pytest.mark.parametrize("reading", ["get", "list", "search"])
async def test_what_one_reading_still_shows_is_not_gone(
    store: Mem0Store, mem0_api: Mem0Api, reading: str
) -> None:
    """Lookup, listing and search are asked each for itself, and each may be the last to know."""
    case = case_of(store)
    put = await case.put()
    mem0_api.switches.lag, mem0_api.switches.lag_reaches = float("inf"), frozenset({reading})
    await case.delete(put)
    assert not await store.verify_deleted(put.entries[0])
    mem0_api.switches.lag_reaches = frozenset()
    assert await store.verify_deleted(put.entries[0])


# --- answers that cannot be read -----------------------------------------------------------


@pytest.mark.parametrize(
    "odd",
    [
        {"bare_list": True},
        {"renames": {"id": "memory_id"}},
        {"renames": {"id": ""}},
        {"renames": {"id": "memory_id"}, "envelope_omits": frozenset({"count", "next"})},
        {"metadata_as_text": True},
        {"envelope_omits": frozenset({"count", "next"})},
        {"envelope_omits": frozenset({"results"})},
    ],
)
async def test_an_answer_that_cannot_be_read_is_no_absence(
    store: Mem0Store, mem0_api: Mem0Api, odd: dict[str, Any]
) -> None:
    """Only the listing still shows the memory, in a form that nobody promised: that is not nothing."""
    case = case_of(store)
    put = await case.put()
    mem0_api.switches.lag, mem0_api.switches.lag_reaches = float("inf"), frozenset({"list"})
    await case.delete(put)
    for name, value in odd.items():
        setattr(mem0_api.switches, name, value)
    for question in (store.verify_deleted(put.entries[0]), store.find(put.fact.fact_id), case.listed()):
        with pytest.raises(StoreUnavailable, match="UnreadableAnswer"):
            await question


@pytest.mark.parametrize("missing", ["count", "next"])
async def test_a_listing_goes_by_what_its_envelope_says(
    mem0_client: Any, mem0_api: Mem0Api, missing: str
) -> None:
    """Either of `count` and `next` is enough to know the last page."""
    case = case_of(Mem0Store(mem0_client, page_size=10, patience=20.0, poll=0.01))
    mem0_api.switches.envelope_omits = frozenset({missing})
    await case.put_all([case.fact() for _ in range(25)])
    assert len({entry.external_id for entry in await case.listed()}) == 25


async def test_a_search_that_shows_rows_without_ids_is_no_miss(store: Mem0Store, mem0_api: Mem0Api) -> None:
    """The last reading of a proof is as strict as the first."""
    case = case_of(store)
    put = await case.put()
    mem0_api.switches.lag = float("inf")
    await case.delete(put)
    mem0_api.switches.renames = {"id": "memory_id"}
    with pytest.raises(StoreUnavailable, match="UnreadableAnswer"):
        await store.verify_deleted(put.entries[0])


async def test_the_row_of_another_id_is_no_answer(
    store: Mem0Store, mem0_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lookup that comes back with some other memory was not answered."""
    case = case_of(store)
    put, other = await case.put(), await case.put()
    works = mem0_client.get
    monkeypatch.setattr(mem0_client, "get", lambda memory_id: works(other.ids[0]))
    with pytest.raises(StoreUnavailable, match="UnreadableAnswer"):
        await store.verify_deleted(put.entries[0])
