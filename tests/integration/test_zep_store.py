"""What is special to Zep: what is sent, tasks, extraction, derived texts, clients, limits."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from fakes.zep_api import BASE, ZepApi
from fix_zep import ACTOR, AT_ONCE, SPACE, case_of, graph_of, outcomes, store_of
from zep_cloud.client import AsyncZep, Zep

from custody_sync import AsyncCoordinator, Coordinator
from custody_sync.errors import (
    InvalidInput,
    InvalidStore,
    NoProof,
    StoreRefused,
    StoreThrottled,
    StoreUnavailable,
    TextTooLong,
)
from custody_sync.model import Entry, Limits

# --- clients -------------------------------------------------------------------------------


class OldGraph:
    """The `graph` of a client of zep-cloud 3, as far as it tells itself apart."""

    def add(self, *, data: str, type: str, graph_id: str) -> None:
        """Add a text."""


class OldZep:
    """A client of zep-cloud 3."""

    graph = OldGraph()


def test_a_client_of_the_old_api_is_refused_with_the_way_out() -> None:
    """What zep-cloud 3 calls `graph.add` no longer exists; the error names the command that helps."""
    client: Any = OldZep()
    with pytest.raises(
        InvalidStore, match=r"v3 API; install zep-cloud 4 \(pip install 'custody-sync\[zep\]'\)"
    ):
        store_of(client)


def test_what_is_no_zep_client_is_refused() -> None:
    """Anything else is named, with the first method that it lacks."""
    client: Any = object()
    with pytest.raises(InvalidStore, match=r"object is not a Zep or AsyncZep .* no graph.create\(\)"):
        store_of(client)


@pytest.mark.parametrize("options", [{"page_size": 0}, {"page_size": 101}, {"patience": -1.0}])
def test_impossible_settings_are_refused(options: dict[str, Any], zep: Zep) -> None:
    """Zep takes pages of at most a hundred rows."""
    (field,) = options
    with pytest.raises(InvalidInput, match=field):
        store_of(zep, **options)


def test_an_async_client_stays_in_its_loop(async_zep: AsyncZep) -> None:
    """In a second event loop it would wait for ever, so it is refused there."""
    store = store_of(async_zep)
    case = case_of(store)
    asyncio.run(_put(case))
    with pytest.raises(InvalidStore, match="belongs to another event loop"):
        asyncio.run(_put(case))


async def _put(case: Any) -> None:
    await case.put()


def test_the_synchronous_coordinator_uses_the_blocking_client(
    zep_api: ZepApi, zep: Zep, tmp_path: Path
) -> None:
    """`Zep` serves synchronous code from worker threads, through a write and a forget."""
    zep_api.keeps_summaries = False
    url = f"sqlite:///{tmp_path / 'custody.db'}"
    with Coordinator(url, create=True, stores=[store_of(zep)], patience=AT_ONCE) as custody:
        written = custody.write(space=SPACE, value="coffee, black", actor=ACTOR)
        forgotten = custody.forget(written.fact.fact_id, actor=ACTOR, reason="asked to")
    assert outcomes(list(forgotten.removals)) == [("verified", "")]
    assert forgotten.notes[-1].endswith("follow Zep's own retention.")
    assert not list(zep_api.episodes())


# --- what is sent --------------------------------------------------------------------------


async def test_an_episode_carries_text_label_and_time(zep_api: ZepApi, async_zep: AsyncZep) -> None:
    """The text goes verbatim, the label as seven flat keys, and the fact's time as Zep's reference time."""
    case = case_of(store_of(async_zep))
    put = await case.put(case.fact("  padded\ttext \n"))
    ((_, _, body, headers),) = [
        one for one in zep_api.sent if one[0] == "POST" and one[1].endswith("/episodes")
    ]
    assert body["data"] == put.fact.text
    assert body["type"] == "text"
    assert body["metadata"] == put.label.to_metadata()
    assert len(body["metadata"]) <= 10
    assert datetime.fromisoformat(body["reference_time"]) == put.fact.valid_from
    graph = graph_of(zep_api).uuid
    assert headers["idempotency-key"] == f"custody:{put.label.key}:{graph}"


@pytest.mark.parametrize("status", ["fails_after", "throttled", "reset"])
async def test_every_request_is_sent_once(status: str, zep_api: ZepApi, async_zep: AsyncZep) -> None:
    """The client would repeat a request by itself, and sleep in between; that is not its to decide."""
    case = case_of(store_of(async_zep))
    await case.put()
    setattr(zep_api.troubles, status, 1)
    before = len(zep_api.sent)
    with pytest.raises(StoreUnavailable):
        await case.put()
    assert len(zep_api.sent) == before + 1


async def test_a_put_that_was_taken_is_not_called_undone(zep_api: ZepApi, async_zep: AsyncZep) -> None:
    """Throttled after Zep took the episode is an unknown outcome, not "nothing was done"."""
    case = case_of(store_of(async_zep))
    await case.put()
    zep_api.troubles.then_throttled = True
    with pytest.raises(StoreUnavailable, match="episode_not_read_back") as told:
        await case.put()
    assert not isinstance(told.value, StoreThrottled)
    assert len(list(zep_api.episodes())) == 2


async def test_a_text_that_reads_otherwise_is_no_put(zep_api: ZepApi, async_zep: AsyncZep) -> None:
    """What was cut or redacted on the way in is not the fact; the coordinator takes it back."""
    zep_api.cuts_to = 5
    case = case_of(store_of(async_zep))
    with pytest.raises(StoreUnavailable, match="other_text_read_back"):
        await case.put(case.fact("the whole text"))


async def test_texts_over_the_limit_are_refused_before_any_request(
    zep_api: ZepApi, zep_custody: AsyncCoordinator
) -> None:
    """Ten thousand characters, unless the caller knows better; blank texts never."""
    with pytest.raises(TextTooLong):
        await zep_custody.write(space=SPACE, value="x" * 10_001, actor=ACTOR)
    assert not zep_api.sent


async def test_the_limit_is_the_callers_to_move(zep_api: ZepApi, async_zep: AsyncZep) -> None:
    """Zep states no limit for its v4 API, so another can be given; a blank text is refused by name."""
    zep_api.most_chars = 50_000
    store = store_of(async_zep, limits=Limits(text_chars=50_000))
    case = case_of(store)
    put = await case.put(case.fact("x" * 50_000))
    assert [len(entry.text or "") for entry in await case.held(put)] == [50_000]
    blank = case.fact(" \n")
    with pytest.raises(InvalidInput, match="text"):
        await store.put(blank, case.label(blank))


async def test_find_asks_the_facts_own_graph(zep_api: ZepApi, async_zep: AsyncZep) -> None:
    """What this process wrote is looked for in its graph only; what another wrote, in every graph."""
    store = store_of(async_zep)
    case = case_of(store)
    puts = [await case.put(case.fact(space=f"user:{n}")) for n in range(20)]

    async def asked(by: Any) -> int:
        before = len(zep_api.sent)
        assert [entry.external_id for entry in await by.find(puts[7].fact.fact_id)] == list(puts[7].ids)
        return sum(path.endswith("/episodes/list") for _, path, _, _ in zep_api.sent[before:])

    assert await asked(store) == 1
    assert await asked(store_of(async_zep)) == 20


async def test_relabel_keeps_the_episode(zep_api: ZepApi, async_zep: AsyncZep) -> None:
    """Only metadata is sent; an entry whose graph nobody knows is refused."""
    store = store_of(async_zep)
    case = case_of(store)
    put = await case.put()
    await store.relabel(put.entries[0], replace(put.label, actor="agent:other"))
    (episode,) = zep_api.episodes()
    assert '"actor":"agent:other"' in episode.metadata["custody"]
    assert episode.content == put.fact.text
    for scope in ("elsewhere", None):
        with pytest.raises(StoreRefused, match="graph_unknown"):
            await store.relabel(replace(put.entries[0], scope=scope), put.label)


async def test_an_entry_without_a_scope_is_nobodys_to_delete(async_zep: AsyncZep) -> None:
    """Zep addresses an episode by its graph, so without one nothing is deleted and nothing proved."""
    store = store_of(async_zep)
    entry = Entry(store="zep", external_id="e-1", fact_id="f-1")
    with pytest.raises(StoreRefused, match="graph_unknown"):
        await store.delete(entry)
    with pytest.raises(NoProof, match="graph_unknown"):
        await store.verify_deleted(entry)
    assert await store.after_forget([]) == ()


async def test_a_long_listing_is_never_silent_for_long(zep_api: ZepApi, async_zep: AsyncZep) -> None:
    """The second reading shows nothing new, and all the same an entry comes of each of its pages."""
    store = store_of(async_zep, page_size=3)
    case = case_of(store)
    puts = [await case.put() for _ in range(31)]
    zep_api.sent.clear()
    sent: list[int] = []
    listed: list[str] = []
    async for entry in store.list_entries():
        sent.append(len(zep_api.sent))
        listed.append(entry.external_id)
    assert sorted(listed) == sorted(put.ids[0] for put in puts)
    assert sent[-1] == 1 + 11 + 11
    assert max(later - earlier for earlier, later in pairwise(sent)) <= 2


async def test_a_list_that_goes_in_circles_ends(zep_api: ZepApi, async_zep: AsyncZep) -> None:
    """A cursor that comes back unchanged is an error, not a listing without end."""
    store = store_of(async_zep, page_size=2)
    case = case_of(store)
    for _ in range(7):
        await case.put()
    zep_api.circles = True
    with pytest.raises(StoreUnavailable, match="cursor_repeats"):
        await case.listed()


def test_the_clients_log_has_no_text(
    zep_api: ZepApi, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Even where the client is told to log everything, its records have no body, so no text, and no key."""
    caplog.set_level("DEBUG")
    with httpx.Client(transport=zep_api.transport()) as http:
        client = Zep(
            api_key="z_test", base_url=BASE, httpx_client=http, logging={"level": "debug", "silent": False}
        )
        url = f"sqlite:///{tmp_path / 'custody.db'}"
        with Coordinator(url, create=True, stores=[store_of(client)], patience=AT_ONCE) as custody:
            written = custody.write(space=SPACE, value="a very private thing", actor=ACTOR)
            custody.forget(written.fact.fact_id, actor=ACTOR, reason="asked to")
    said = "\n".join(str(record.__dict__) for record in caplog.records if record.name in ("fern", "httpx"))
    assert "/episodes" in said
    for secret in ("very private", "z_test", SPACE):
        assert secret not in said
