"""Answers of Zep that are not what its API documents: each leaves open what there is, none is an absence."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fakes.zep_api import BASE, ZepApi
from fix_zep import ACTOR, AT_ONCE, SPACE, case_of, graph_of, store_of
from zep_cloud.client import AsyncZep

from custody_sync import AsyncCoordinator, Ledger
from custody_sync.adapters._scopes import LooseNotes
from custody_sync.errors import NoProof, StoreUnavailable

PAGES: dict[str, Any] = {
    "no items": {"next_cursor": None},
    "items null": {"items": None},
    "an object": {},
    "a row without an id": {"items": [{"content": "x", "episode_uuids_truncated": False}]},
    "an error": {"error": {"code": "degraded", "message": "partial outage"}},
    "a list": [],
}


class Odd:
    """A service in front of the stand-in that gives some answers its own body."""

    def __init__(self, api: ZepApi) -> None:
        self.api = api
        self.bodies: dict[tuple[str, str], Any] = {}
        """By method and how the path ends."""

    async def answer(self, request: httpx.Request) -> httpx.Response:
        """Answer as the stand-in does, with another body where one is set."""
        response = self.api.answer(request)
        for (method, end), body in self.bodies.items():
            if request.method == method and request.url.path.endswith(end) and response.status_code < 300:
                return httpx.Response(response.status_code, json=body)
        return response


@pytest.fixture
def odd(zep_api: ZepApi) -> Odd:
    """Return the service in front of the project."""
    zep_api.keeps_summaries = False
    return Odd(zep_api)


@pytest.fixture
async def client(odd: Odd) -> AsyncIterator[AsyncZep]:
    """Yield a client of it."""
    async with httpx.AsyncClient(transport=httpx.MockTransport(odd.answer)) as http:
        yield AsyncZep(api_key="z_test", base_url=BASE, httpx_client=http)


LISTS = (
    "/episodes/list",
    "/edges/list",
    "/nodes/list",
    "/observations/list",
    "/search/episodes",
    "/search/edges",
    "/search/nodes",
    "/search/observations",
)


@pytest.mark.parametrize("end", LISTS)
@pytest.mark.parametrize("body", PAGES.values(), ids=PAGES)
async def test_what_is_no_page_is_no_empty_page(end: str, body: Any, odd: Odd, client: AsyncZep) -> None:
    """An empty page says `items: []`; anything else leaves open whether there is something."""
    store = store_of(client)
    case = case_of(store)
    gone, _ = await case.put(), await case.put()
    odd.api.pass_time()
    await case.delete(gone)
    odd.bodies["POST", end] = body
    with pytest.raises(StoreUnavailable):
        await store.verify_deleted(gone.entries[0])
    odd.bodies.clear()
    assert await store.verify_deleted(gone.entries[0]) is True


@pytest.mark.parametrize("body", [{"next_cursor": None}, {"items": None}])
async def test_a_forget_on_pages_without_items_is_not_complete(
    body: Any, odd: Odd, client: AsyncZep, tmp_path: Path
) -> None:
    """Edges and summaries are there and every list hides them; the removal stays owed."""
    async with (
        await Ledger.open(f"sqlite:///{tmp_path / 'custody.db'}", create=True) as ledger,
        AsyncCoordinator(ledger, stores=[store_of(client)], patience=AT_ONCE) as custody,
    ):
        written = await custody.write(space=SPACE, value="a secret", actor=ACTOR)
        await custody.write(space=SPACE, value="another", actor=ACTOR)
        odd.api.pass_time()
        odd.api.leaves_edges = odd.api.keeps_summaries = True
        odd.bodies = {("POST", end): body for end in LISTS}
        forgotten = await custody.forget(written.fact.fact_id, actor=ACTOR, reason="asked to")
    assert [edge.fact for edge in graph_of(odd.api).edges.values()] == ["a secret", "another"]
    assert not forgotten.complete


@pytest.mark.parametrize("body", [{"items": None}, {}])
async def test_a_listing_of_odd_pages_is_not_an_empty_one(body: Any, odd: Odd, client: AsyncZep) -> None:
    """Neither the graphs nor their episodes are missing because a page had no rows to show."""
    store = store_of(client)
    await case_of(store).put()
    for end in ("/graphs/list", "/episodes/list"):
        odd.bodies = {("POST", end): body}
        other = store_of(client)
        with pytest.raises(StoreUnavailable, match="page_without_items"):
            await case_of(other).listed()
        with pytest.raises(StoreUnavailable, match="page_without_items"):
            await other.find("f-1")


async def test_an_answer_about_no_row_is_not_a_cleared_row(odd: Odd, client: AsyncZep) -> None:
    """What kept the text is clear once it is gone or empty, not when the answer is."""
    store = store_of(client)
    case = case_of(store)
    gone, lives = await case.put(), await case.put()
    odd.api.pass_time()
    await case.delete(gone)
    row = graph_of(odd.api).observe(gone.fact.text or "", lives.ids, "2026-11-30T00:00:00Z")
    for entry in (*gone.entries, *gone.blind):
        with pytest.raises(NoProof, match="text_left_in_an_observation"):
            await store.verify_deleted(entry)
    odd.bodies["GET", f"/observations/{row}"] = {}
    with pytest.raises(StoreUnavailable, match="another_row"):
        await store.verify_deleted(gone.blind[0])
    odd.bodies["GET", f"/observations/{row}"] = {"uuid": row, "summary": ""}
    assert await store.verify_deleted(gone.blind[0]) is True


@pytest.mark.parametrize("body", [{"task": {"uuid": "t-1"}}, {"task": {"uuid": "t-1", "status": "odd"}}])
async def test_a_task_without_a_known_status_has_not_ended(body: Any, odd: Odd, client: AsyncZep) -> None:
    """What says neither that it succeeded nor that it failed is waited for, and then unknown."""
    store = store_of(client)
    case = case_of(store)
    put = await case.put()
    odd.api.pass_time()
    odd.bodies["DELETE", f"/episodes/{put.ids[0]}"] = body
    odd.bodies["GET", "/tasks/t-1"] = {}
    odd.api.tasks["t-1"] = next(iter(odd.api.tasks.values()))
    with pytest.raises(StoreUnavailable, match="task_still_open"):
        await store.delete(put.entries[0])


async def test_a_policy_that_does_not_say_its_rules_is_not_none(odd: Odd, client: AsyncZep) -> None:
    """Whether a policy hides episodes is unknown where the answer has no rules at all."""
    store = store_of(client)
    case = case_of(store)
    gone, _ = await case.put(), await case.put()
    odd.api.pass_time()
    await case.delete(gone)
    odd.bodies["GET", "/content-policy"] = {}
    with pytest.raises(StoreUnavailable, match="policy_without_rules"):
        await store.verify_deleted(gone.entries[0])


async def test_a_project_without_an_id_vouches_for_nothing(odd: Odd, client: AsyncZep) -> None:
    """A graph that is unknown was deleted only if the project is known to be the same."""
    store = store_of(client)
    store.remember_in(LooseNotes())
    put = await case_of(store).put()
    odd.api.graphs.clear()
    odd.bodies["GET", "/project"] = {}
    with pytest.raises(StoreUnavailable, match="no_project_uuid"):
        await store.verify_deleted(put.entries[0])
    fresh = store_of(client)
    with pytest.raises(StoreUnavailable, match="no_project_uuid"):
        await case_of(fresh).put()
    assert not odd.api.graphs
