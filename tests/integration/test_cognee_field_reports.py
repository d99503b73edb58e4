"""What others reported of Cognee, each as a test that an adapter without the precaution fails."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Any

import httpx
import pytest
from fakes.cognee_api import BASE_URL, CogneeServer

from custody_sync import AsyncCoordinator, Ledger
from custody_sync.adapters.cognee import CogneeStore
from custody_sync.errors import InvalidStore, NoProof, StoreError, StoreUnavailable, StoreWriteFailed
from custody_sync.model import Entry
from custody_sync.runtime import Runtime
from custody_sync.testing.contract_case import Case, Put, StoreHooks

ACTOR = "agent:1"


async def no_sleep(seconds: float) -> None:
    """Wait for nothing."""


class Bench:
    """A server, an adapter over it, and facts to put."""

    def __init__(self, server: CogneeServer, client: httpx.AsyncClient) -> None:
        self.server, self.client = server, client
        self.key = server.new_key()
        self.store = self.adapter()
        self.case = Case("field", self.store, StoreHooks())

    def adapter(self, **options: Any) -> CogneeStore:
        """Return an adapter."""
        return CogneeStore(self.client, **{"api_key": self.key, "cognify": "wait", **options})

    async def put(self, text: str, space: str = "user:1") -> Put:
        """Put a fact."""
        return await self.case.put(self.case.fact(text, space=space))


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """Yield a fresh server with an adapter."""
    async with httpx.AsyncClient(base_url=BASE_URL) as client:
        with CogneeServer().running() as server:
            yield Bench(server, client)


async def test_equal_texts_are_items_of_their_own(bench: Bench) -> None:
    """Deleting 18 of 19 facts with one text leaves the 19th (https://github.com/Hal0ai/hal0/issues/449)."""
    puts = [await bench.put("I am Hermes, the admin agent") for _ in range(19)]
    assert len({put.ids for put in puts}) == 19
    for put in puts[:18]:
        await bench.store.delete(put.entries[0])
        assert await bench.store.verify_deleted(put.entries[0])
    hits = await bench.store.search("I am Hermes, the admin agent", 50, None)
    assert [hit.entry.external_id for hit in hits] == list(puts[18].ids)


async def test_a_delete_in_one_dataset_leaves_the_other(bench: Bench) -> None:
    """The same text in two datasets is two items (https://github.com/topoteretes/cognee/issues/2732)."""
    alfa, beta = await bench.put("shared", "alfa"), await bench.put("shared", "beta")
    await bench.store.delete(alfa.entries[0])
    assert await bench.store.verify_deleted(alfa.entries[0])
    hits = await bench.store.search("shared", 5, ["beta"])
    assert [hit.entry.external_id for hit in hits] == list(beta.ids)


async def test_a_clean_list_is_no_proof(bench: Bench, tmp_path: Path) -> None:
    """List and file are gone and recall still serves it (https://github.com/topoteretes/cognee/issues/3526)."""
    async with await Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}", create=True) as ledger:
        custody = AsyncCoordinator(ledger, stores=[bench.store], runtime=Runtime(sleep=no_sleep))
        written = await custody.write(value="My name is Pahwa", space="user:1", actor=ACTOR)
        await custody.write(value="I prefer Python", space="user:1", actor=ACTOR)
        bench.server.switches.lag = inf
        forgotten = await custody.forget(written.fact.fact_id, actor=ACTOR, reason="asked to")
        assert [str(removal.outcome) for removal in forgotten.removals] == ["still_indexed"]
        for dataset in bench.server.datasets.values():
            dataset.chunks = [chunk for chunk in dataset.chunks if chunk.left is None]
        repaired = await custody.repair(actor=ACTOR, reason="later")
        assert [str(found.outcome) for found in repaired.repaired] == ["verified"]


async def test_an_entry_is_in_one_node_set_only(bench: Bench) -> None:
    """A chunk that a delete left behind is not hidden by losing one of two node sets.

    1.6.5 takes the node sets that a delete ended from what is left in the index, and deletes what
    is in no other (`remove_belongs_to_set_tags`). Cause of https://github.com/topoteretes/cognee/issues/2732.
    """
    put, _ = await bench.put("the left one"), await bench.put("the living one")
    bench.server.switches.lag, bench.server.switches.detags = inf, True
    await bench.store.delete(put.entries[0])
    proved = await bench.store.verify_deleted(put.entries[0])
    served = [hit.entry.external_id for hit in await bench.store.search("the left one", 50, None)]
    assert proved is (put.ids[0] not in served)


async def test_verifying_plants_no_text_in_the_query_history(bench: Bench) -> None:
    """No query has the text, nor a chunk of it an answer, once it is deleted.

    `GET /api/v1/search` of 1.6.5 returned a deleted text seven times: as query and within answers.
    Only searches for chunks are sent: completions read a session cache that asserts what was deleted
    (https://github.com/topoteretes/cognee/issues/4030).
    """
    text = "the secret of the harbour"
    put, _ = await bench.put(text), await bench.put("something else")
    await bench.store.delete(put.entries[0])
    assert put.entries[0].text == text
    assert await bench.store.verify_deleted(put.entries[0])
    assert bench.server.history
    assert not [row for row in bench.server.history if text in row["text"]]


async def test_a_forget_says_that_the_history_keeps_texts(bench: Bench) -> None:
    """What a delete leaves at the server is told with every forget, with the switch that avoids it."""
    put = await bench.put("known")
    notes = " ".join(await bench.store.after_forget(put.entries))
    assert "COGNEE_LOG_SEARCH_HISTORY=false" in notes
    assert "LanceDB" in notes
    assert "An empty dataset keeps its name" in notes
    assert "user:1" not in notes
    assert await bench.store.after_forget([]) == ()
    fixed = " ".join(await bench.adapter(dataset="memories").after_forget(put.entries))
    assert "An empty dataset" not in fixed


async def test_a_yes_of_a_delete_is_no_proof(bench: Bench) -> None:
    """A delete answers 200 and null for any id (https://github.com/topoteretes/cognee/pull/2146)."""
    put = await bench.put("still here")
    wrong = replace(put.entries[0], external_id="00000000-0000-4000-8000-000000000000")
    await bench.store.delete(wrong)
    assert not await bench.store.verify_deleted(put.entries[0])
    assert await bench.store.find(put.fact.fact_id)


async def test_a_large_dataset_is_listed_in_pages(bench: Bench) -> None:
    """Neither the default page of 100 nor changes between pages hide a row.

    https://github.com/topoteretes/cognee/pull/5002: 171,828 rows in one answer, limit and offset ignored.
    """
    dataset = bench.server.dataset("user:1")
    ids = [bench.server.add(dataset, f"{n}.txt", str(n).encode()) for n in range(1_234)]

    def change(request: httpx.Request) -> None:
        if request.url.path.endswith("/data") and request.url.params.get("offset") not in (None, "0"):
            dataset.items.pop(ids.pop(), None)
            bench.server.add(dataset, f"new-{len(ids)}.txt", f"new {len(ids)}".encode())

    store = bench.adapter(page_size=150)
    bench.server.before_answer = change
    listed = [entry.external_id.removesuffix("~untagged") async for entry in store.list_entries()]
    assert len(set(listed)) == len(listed)
    assert not set(ids) - set(listed)


@pytest.mark.parametrize("version", ["1.4.2", "1.5.4", "1.6.0", "0.5.9-local"])
async def test_a_server_without_metadata_or_pages_is_refused_by_name(version: str) -> None:
    """Labels reach REST with 1.5 and pages with 1.6.1 (https://github.com/topoteretes/cognee/pull/4444)."""
    async with httpx.AsyncClient(base_url=BASE_URL) as client:
        with CogneeServer(version=version).running() as server:
            bench = Bench(server, client)
            with pytest.raises(InvalidStore, match=f"Cognee {version.split('-')[0]}; 1.6.1 is the oldest"):
                await bench.put("lost")
            assert not server.datasets


async def test_no_access_is_not_gone(bench: Bench) -> None:
    """401, 403 and a dataset that is not shown prove nothing (https://github.com/topoteretes/cognee/issues/4162)."""
    put = await bench.put("not ours any more")
    bench.server.api_keys.clear()
    with pytest.raises(StoreError):
        await bench.store.verify_deleted(put.entries[0])
    bench.key = bench.server.new_key()
    bench.server.datasets.clear()
    with pytest.raises(NoProof):
        await bench.adapter().verify_deleted(put.entries[0])
    with pytest.raises(StoreError):
        await bench.adapter().verify_deleted(replace(put.entries[0], scope=None, fact_id=None))


async def test_a_delete_that_fails_is_tried_again(bench: Bench) -> None:
    """A delete that meets an indexing run is 500, and succeeds later (https://github.com/topoteretes/cognee/issues/3766)."""
    put = await bench.put("busy")
    bench.server.switches.fails_after = 1
    with pytest.raises(StoreUnavailable):
        await bench.store.delete(put.entries[0])
    await bench.store.delete(put.entries[0])
    assert await bench.store.verify_deleted(put.entries[0])


async def test_a_stuck_indexing_is_told_and_not_repeated(bench: Bench) -> None:
    """A dataset whose indexing fails is asked once a put (https://github.com/topoteretes/cognee/pull/3854)."""
    bench.server.switches.cognify_fails = inf
    with pytest.raises(StoreUnavailable):
        await bench.put("never searchable")
    assert bench.server.requests.count(("POST", "/api/v1/cognify")) == 1
    store = bench.adapter(cognify="background")
    fact = bench.case.fact("stored all the same")
    await store.put(fact, bench.case.label(fact))
    await store.aclose()
    assert store.cognify_failure == "HTTPStatusError 500"
    assert await store.find(fact.fact_id)


async def test_an_index_that_is_not_there_is_no_deletion(bench: Bench) -> None:
    """An index said to be built and not there proves nothing; where no fact was ever indexed, it does.

    https://github.com/topoteretes/cognee/pull/2555: a run was skipped as already completed.
    """
    gone, _ = await bench.put("gone"), await bench.put("living")
    await bench.store.delete(gone.entries[0])
    dataset = bench.server.dataset("user:1")
    dataset.chunks, dataset.has_index = [], False
    with pytest.raises(NoProof):
        await bench.store.verify_deleted(gone.entries[0])
    for item in dataset.items.values():
        item.is_indexed = False
    assert await bench.store.verify_deleted(gone.entries[0])


async def test_a_filter_that_shows_nothing_is_no_proof(bench: Bench) -> None:
    """An index that does not filter by node set is found out by a living fact that it has to show."""
    gone, _ = await bench.put("gone"), await bench.put("living")
    await bench.store.delete(gone.entries[0])
    bench.server.switches.shows_no_node_names = True
    with pytest.raises(NoProof):
        await bench.store.verify_deleted(gone.entries[0])
    bench.server.switches.shows_no_node_names = False
    bench.server.switches.ignores_node_names = True
    assert await bench.store.verify_deleted(gone.entries[0])


async def test_a_text_that_is_a_path_is_kept_as_text(bench: Bench) -> None:
    """A path or a URL is uploaded as a file and not fetched by the server (vendor's `raw_data`, 1.6.5)."""
    for text in ("/etc/hostname", "file:///etc/hostname", "https://example.com/", "%PDF-1.7", '{"a": 1}'):
        put = await bench.put(text)
        assert [entry.text for entry in await bench.store.find(put.fact.fact_id)] == [text]


async def test_a_lost_reply_and_a_retry_leave_one_entry(bench: Bench, tmp_path: Path) -> None:
    """A keyed write whose reply was lost, tried again, is one fact in one entry."""
    async with await Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}", create=True) as ledger:
        custody = AsyncCoordinator(ledger, stores=[bench.store])
        await custody.write(value="before", space="user:1", actor=ACTOR)
        bench.server.switches.lost_reply = 1
        words: dict[str, Any] = {"value": "once", "space": "user:1", "actor": ACTOR, "idempotency_key": "k"}
        with suppress(StoreError, StoreWriteFailed):
            await custody.write(**words)
        await custody.write(**words)
        await custody.repair(actor=ACTOR, reason="after", before=datetime.now(UTC))
        held: list[Entry] = [entry async for entry in bench.store.list_entries()]
        assert len(held) == 2
