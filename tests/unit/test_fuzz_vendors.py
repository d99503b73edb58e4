"""What stores answer, bent in every shape: an entry that says what stands there, or an error of ours."""

from __future__ import annotations

import asyncio
import json
import unicodedata
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from urllib.parse import quote, unquote

import httpx
import pytest
from fakes.cognee_api import BASE_URL as COGNEE
from fakes.cognee_api import PASSWORD, USER, CogneeServer
from fakes.letta_api import BASE_URL as LETTA
from fakes.letta_api import EMBEDDING, MODEL, LettaApi
from fakes.zep_api import BASE as ZEP
from fakes.zep_api import ZepApi
from fix_fuzz import GRAFTS, HUGE, JSONS, NAUGHTY, NESTED, TEXTS, fuzzed, grafted, nested, refused
from hypothesis import strategies as st
from letta_client import AsyncLetta
from zep_cloud.client import AsyncZep

from custody_sync.adapters import _cognee_rows, _mem0_rows
from custody_sync.adapters._call_results import Ids, Results
from custody_sync.adapters._failures import retry_after
from custody_sync.adapters._langgraph_namespaces import escaped as langgraph_escaped
from custody_sync.adapters._langgraph_namespaces import read as read_namespace
from custody_sync.adapters._langgraph_namespaces import written as written_namespace
from custody_sync.adapters._mem0_pages import page_of
from custody_sync.adapters._pgvector_rows import entry_of
from custody_sync.adapters._zep_graphs import encoded as zep_encoded
from custody_sync.adapters.cognee import CogneeStore
from custody_sync.adapters.langgraph import LangGraphStore
from custody_sync.adapters.letta import LettaStore
from custody_sync.adapters.zep import ZepStore
from custody_sync.errors import CustodyError
from custody_sync.model import Entry, Hit, Label, Provenance
from custody_sync.shown import Spoiled, read_entry
from custody_sync.testing.contract_case import Case, StoreHooks

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
CANARY = "canary-Zq7-coffee"
SPACE = "user:1"
NAMES = TEXTS.filter(lambda text: bool(text.strip()))
INSTANTS = st.datetimes(datetime(1900, 1, 1), datetime(9000, 1, 1), timezones=st.just(UTC))
LABELS = st.builds(
    Label,
    ledger_id=NAMES,
    fact_id=NAMES,
    space=NAMES,
    stored_at=INSTANTS,
    generation=NAMES,
    actor=NAMES,
    provenance=st.sampled_from(Provenance),
    valid_from=INSTANTS,
    receipt_id=st.none() | NAMES,
)


def sound(found: object) -> None:
    """Hold an entry to its types, or to being named as spoiled by what everything else reads it with."""
    entry = found.entry if isinstance(found, Hit) else found
    assert isinstance(entry, Entry)
    assert (entry.fact_id is None) == (entry.ledger_id is None)
    for date in (entry.stored_at, entry.created_at):
        assert date is None or date.utcoffset() == timedelta(0)
    read = read_entry(entry, entry.store)
    assert isinstance(read, Entry | Spoiled)
    if isinstance(read, Spoiled):
        assert CANARY not in f"{read}"


# --- labels ----------------------------------------------------------------------------------


def told(entry: Entry) -> tuple[object, ...]:
    """Return what an entry says of its label."""
    return entry.fact_id, entry.ledger_id, entry.space, entry.stored_at, entry.generation


@fuzzed(60, label=LABELS)
def test_a_label_comes_back_from_every_form(label: Label) -> None:
    """As it is, as texts alone, and through JSON that escapes or does not, it says the same."""
    meta = label.to_metadata()
    said = (label.fact_id, label.ledger_id, label.space, label.stored_at, label.generation)
    forms: list[dict[str, Any]] = [meta, _mem0_rows.metadata_of(label)]
    forms += [json.loads(json.dumps(meta, ensure_ascii=ascii)) for ascii in (True, False)]
    for form in forms:
        assert told(Entry.from_metadata(form, store="s", external_id="x")) == said


META = Label(
    ledger_id="ledger", fact_id="fact-1", space=SPACE, stored_at=NOON, generation="0a1b", actor="agent",
    provenance=Provenance.ATTESTED, valid_from=NOON,
).to_metadata()  # fmt: skip
SOME_JSON = JSONS | NESTED.map(nested) | NAUGHTY
KEYS = [
    *META,
    "id",
    "metadata",
    "created_at",
    "createdAt",
    "score",
    "data",
    "externalMetadata",
    "document_id",
]
TIMES = st.sampled_from(["0001-01-01T00:00:00+12:00", "9999-12-31T23:59:59-12:00", "2026-11-30", 10**30])
PUT = st.dictionaries(st.sampled_from(KEYS), HUGE | TIMES | SOME_JSON, max_size=4)
"""Fields that are what they should not be, whatever the vendor calls them."""

MEM0 = {
    "id": "6f1f6bb5-7a7a-4bd8-9a38-2f0c0a0b9d11", "memory": CANARY, "user_id": SPACE, "metadata": META,
    "created_at": "2026-11-30T05:00:00-07:00", "score": 0.5, "score_details": {"semantic_score": 0.5},
    "event": "ADD",
}  # fmt: skip
COGNEE_ROW = {
    "id": "d-1", "externalMetadata": {**META, "node_set": ["fact:fact-1"]}, "createdAt": "2026-11-30",
}  # fmt: skip
COGNEE_CHUNK = {
    "document_id": "d-1", "external_metadata": json.dumps(META), "text": f"{CANARY}\n\n[fact fact-1.0a1b]",
    "chunk_index": 0, "score": 0.25,
}  # fmt: skip


@fuzzed(100, grafts=GRAFTS, put=PUT)
def test_rows_of_mem0_are_read_or_left(grafts: list[Any], put: dict[str, Any]) -> None:
    """In an envelope, bare or on a page; one row that cannot be read makes the answer none."""
    answer = grafted({"results": [MEM0, {**MEM0, **put}], "count": 2, "next": None}, grafts)
    rows = _mem0_rows.rows_of(answer)
    for row in rows or []:
        sound(row.to_entry("mem0"))
        assert row.score is None or -1e308 <= row.score <= 1e308
    page = page_of(answer, 2)
    assert page is None or page.rows == rows
    assert all(_mem0_rows.is_id(external_id) for external_id in _mem0_rows.added(answer))


@fuzzed(100, grafts=GRAFTS, put=PUT)
def test_rows_and_chunks_of_cognee_are_read_or_left(grafts: list[Any], put: dict[str, Any]) -> None:
    """A listing's row, a search's chunk and an uploaded text: each is what it says, or None."""
    for raw, read in ((COGNEE_ROW, _cognee_rows.read_row), (COGNEE_CHUNK, _cognee_rows.read_chunk)):
        bent = grafted({**raw, **put}, grafts)
        if isinstance(bent, dict):
            row = read(bent)
            if row is not None:
                sound(row.entry("cognee", SPACE))
            _cognee_rows.ends_as_put(bent, "fact-1.0a1b")
            text = bent.get("text")
            if isinstance(text, str):
                assert isinstance(_cognee_rows.read_text(text), str | None)


IDS = TEXTS | st.integers() | HUGE | st.uuids()
ODD_RESULTS = (
    JSONS
    | st.tuples(JSONS, JSONS, JSONS, JSONS)
    | st.fixed_dictionaries({"id": JSONS, "score": HUGE | JSONS})
    | st.fixed_dictionaries({"id": IDS, "metadata": st.just(META)})
)


@fuzzed(100, result=ODD_RESULTS, put=PUT)
def test_results_of_callables_are_read_or_refused(result: Any, put: dict[str, Any]) -> None:
    """An id comes back in its type, and what is no result is refused without being quoted."""
    results = Results("notes", Ids("notes"), None)
    if isinstance(result, dict) and isinstance(result.get("metadata"), dict):
        result = {**result, "metadata": {**result["metadata"], **put}}
    try:
        found = results.found(result)
        entry = results.entry(found)
    except CustodyError as error:
        refused(error, CANARY)
        return
    sound(entry)
    assert Ids("notes").read(entry.external_id) == found.id


@fuzzed(60, key=TEXTS, named=st.lists(st.none() | TEXTS, min_size=3, max_size=3), offset=st.integers(-14, 14))
def test_rows_of_pgvector_are_entries(key: str, named: list[Any], offset: int) -> None:
    """Columns have their types; what stands in them may be anybody's."""
    at = NOON.astimezone(timezone(timedelta(hours=offset)))
    entry = entry_of("pgvector", (key, *named, at, at), CANARY, "{}")
    sound(entry)
    assert (entry.fact_id is None) == (named[0] is None or named[1] is None)


# --- scopes ----------------------------------------------------------------------------------

SCOPES = NAMES | st.lists(
    st.sampled_from(
        [*"%.*=/: \t\u3000", "%2E", "%25", "langgraph", "=graph:", "=long:", "a", "é", "e\u0301"]
    ),
    min_size=1,
    max_size=5,
).map("".join)


NEAR: dict[str, Callable[[str], str]] = {
    "quoted": lambda space: quote(space, safe=""),
    "unquoted": unquote,
    "dots": lambda space: space.replace(".", "%2E").replace(" ", "%20"),
    "per cent": lambda space: space.replace("%", "%25"),
    "marked": lambda space: f"={space}",
    "composed": lambda space: unicodedata.normalize("NFC", space),
    "folded": str.casefold,
    "stripped": str.strip,
}
"""What looks like another space once a vendor's rules, or a way round them, are applied but once."""


@fuzzed(150, one=SCOPES, other=SCOPES, near=st.sampled_from(sorted(NEAR)))
def test_no_two_spaces_share_a_place(one: str, other: str, near: str) -> None:
    """However a vendor's rules are got round, two spaces stay two users, datasets, graphs and namespaces."""
    encoders = (_mem0_rows.encoded, _cognee_rows.escaped, zep_encoded)
    for beside in (other, NEAR[near](one)):
        for encode in (*encoders, lambda space: langgraph_escaped([space])):
            assert (encode(one) == encode(beside)) == (one == beside)
    for space in (one, other):
        namespace = langgraph_escaped([space, one])
        assert read_namespace(written_namespace(namespace)) == namespace


@fuzzed(60, scope=TEXTS | NAUGHTY | JSONS.map(json.dumps) | NESTED.map(nested))
def test_a_scope_is_a_namespace_or_none(scope: str) -> None:
    """What is read is written back as it was, but for the spaces of whoever wrote it."""
    namespace = read_namespace(scope)
    if namespace is not None:
        assert namespace
        assert read_namespace(written_namespace(namespace)) == namespace


DATES = st.tuples(
    st.sampled_from(["Mon, ", ""]),
    st.sampled_from(["01 Jan ", "31 Nov ", "1 "]),
    st.sampled_from(["2026 ", "9999 ", "0 ", "9" * 20 + " "]),
    st.sampled_from(["12:00:00 ", "25:61:00 ", ""]),
    st.sampled_from(["GMT", "-2359", "+" + "9" * 20, ""]),
).map("".join)
WAITS = TEXTS | HUGE.map(str) | st.integers().map(str) | DATES


@fuzzed(60, wait=WAITS)
def test_a_time_to_wait_is_seconds_or_none(wait: str) -> None:
    """Neither below zero, nor without end."""

    class Throttled(Exception):
        headers = {"retry-after": wait}  # noqa: RUF012  # an error of one call

    seconds = retry_after(Throttled(), NOON)
    assert seconds is None or 0 <= seconds < float("inf")


# --- whole answers ---------------------------------------------------------------------------


class Bent(httpx.AsyncBaseTransport):
    """Passes requests on to a stand-in and bends what it answers, once it is told how."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner
        self.grafts: list[Any] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer a request."""
        response = await self._inner.handle_async_request(request)
        body = await response.aread()
        if self.grafts and body:
            try:
                body = json.dumps(grafted(json.loads(body), self.grafts)).encode()
            except ValueError:
                body = body[: len(body) // 2]
        kind = response.headers.get("content-type")
        headers = {"content-type": kind} if kind else None
        return httpx.Response(response.status_code, content=body, headers=headers)


async def _nap(_: float) -> None:
    await asyncio.sleep(0)


def _zep(http: httpx.AsyncClient) -> Any:
    return ZepStore(AsyncZep(api_key="z", base_url=ZEP, httpx_client=http), sleep=_nap)


def _letta(http: httpx.AsyncClient) -> Any:
    return LettaStore(AsyncLetta(base_url=LETTA, http_client=http), model=MODEL, embedding=EMBEDDING)


def _cognee(http: httpx.AsyncClient) -> Any:
    return CogneeStore(http, username=USER, password=PASSWORD, cognify="wait")


STAND_INS: dict[
    str, tuple[str, Callable[[], httpx.AsyncBaseTransport], Callable[[httpx.AsyncClient], Any]]
] = {
    "zep": (ZEP, lambda: ZepApi().async_transport(), _zep),
    "letta": (LETTA, lambda: httpx.MockTransport(LettaApi()._router.async_handler), _letta),
    "cognee": (COGNEE, lambda: httpx.MockTransport(CogneeServer().answer), _cognee),
}


class Bench:
    """One store with one entry, behind a transport that can be bent, in a loop of its own."""

    def __init__(self, runner: asyncio.Runner, name: str) -> None:
        url, stand_in, make = STAND_INS[name]
        self.transport = Bent(stand_in())
        self.store = make(httpx.AsyncClient(base_url=url, transport=self.transport))
        self.runner = runner
        case = Case("unit", self.store, StoreHooks())
        case.space = SPACE
        put = runner.run(case.put(case.fact(CANARY, space=SPACE)))
        self.fact_id = put.fact.fact_id
        (self.entry,) = runner.run(self.store.find(self.fact_id))

    def asked(self, question: str) -> list[Any]:
        """Return what the store shows."""
        work: dict[str, Callable[[], Awaitable[Any]]] = {
            "find": lambda: self.store.find(self.fact_id),
            "list": self._listed,
            "search": lambda: self.store.search(CANARY, 3, [SPACE]),
            "verify": lambda: self.store.verify_deleted(self.entry),
        }
        found = self.runner.run(self._within(work[question]))
        return found if isinstance(found, list) else []

    async def _listed(self) -> list[Any]:
        return [entry async for entry in self.store.list_entries()]

    async def _within(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        # As the core calls it: an answer that never ends is ended by the deadline of the call.
        try:
            async with asyncio.timeout(20):
                return await ask()
        except TimeoutError:
            return []


@pytest.fixture(scope="module", params=list(STAND_INS))
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """Each vendor's store behind its real client."""
    with asyncio.Runner() as runner:
        yield Bench(runner, request.param)


@fuzzed(25, question=st.sampled_from(["find", "list", "search", "verify"]), grafts=GRAFTS)
def test_a_bent_answer_is_entries_or_an_error_of_ours(bench: Bench, question: str, grafts: list[Any]) -> None:
    """Through the vendor's own client; afterwards the store shows what it showed before."""
    bench.transport.grafts = grafts
    try:
        for found in bench.asked(question):
            sound(found)
    except CustodyError as error:
        refused(error, CANARY)
    finally:
        bench.transport.grafts = []
    assert bench.asked("find") == [bench.entry]


@fuzzed(40, grafts=GRAFTS, put=PUT)
def test_items_that_anybody_put_into_langgraph_are_entries(grafts: list[Any], put: dict[str, Any]) -> None:
    """Under whatever key, with whatever value: listed, found and searched for, each is an entry."""
    from langgraph.store.memory import InMemoryStore

    raw = InMemoryStore()
    value = grafted({**META, "text": CANARY, **put}, grafts)
    raw.put(("user:1",), "key", value if isinstance(value, dict) else {"value": value})
    store = LangGraphStore(raw)

    async def all_of_it() -> list[Any]:
        listed = [entry async for entry in store.list_entries()]
        return [*listed, *await store.find("fact-1"), *await store.search("coffee", 3, None)]

    for found in asyncio.run(all_of_it()):
        sound(found)
