"""Keys of vendors' clients, passwords, the ledger's secret and salts show in no repr, error or log."""

from __future__ import annotations

import dataclasses
import inspect
import logging
import pkgutil
import traceback
from collections.abc import Awaitable, Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import pytest
from fakes.letta_api import BASE_URL, EMBEDDING, MODEL
from fakes.zep_api import BASE
from letta_client import AsyncLetta
from zep_cloud.client import AsyncZep

import custody_sync
from custody_sync.adapters.calls import CallStore
from custody_sync.adapters.cognee import CogneeStore
from custody_sync.adapters.langchain import LangChainStore
from custody_sync.adapters.langgraph import LangGraphStore
from custody_sync.adapters.letta import LettaStore
from custody_sync.adapters.zep import ZepStore
from custody_sync.ledger import Ledger
from custody_sync.ledger.chain import Section
from custody_sync.ledger.storage import Identity
from custody_sync.testing import testing_runtime
from custody_sync.testing.contract_case import Case, StoreHooks

SECRET = "sk-canary-7Q-key"
NAMES = ("secret", "salt", "password", "api_key", "forget_key")


def broken(request: httpx.Request) -> httpx.Response:
    """Fail as a proxy does that repeats what it was sent, the key among it."""
    said = f"{request.headers} {SECRET} {request.url} {request.content!r}"
    if request.method == "GET":
        raise httpx.ConnectError(said, request=request)
    return httpx.Response(500, text=said, headers={"x-said": SECRET})


class Broken:
    """A client, or a vector store, of which every method fails with the key in what it says."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)

        def fail(*args: Any, **kwargs: Any) -> Any:
            raise RuntimeError(f"{SECRET} {args} {kwargs}")

        return fail


async def _nap(_: float) -> None:
    return None


def zep(http: httpx.AsyncClient) -> Any:
    """Return a store over Zep's client."""
    return ZepStore(AsyncZep(api_key=SECRET, base_url=BASE, httpx_client=http), sleep=_nap)


def letta(http: httpx.AsyncClient) -> Any:
    """Return a store over Letta's client."""
    client = AsyncLetta(api_key=SECRET, base_url=BASE_URL, http_client=http)
    return LettaStore(client, model=MODEL, embedding=EMBEDDING)


def cognee(http: httpx.AsyncClient) -> Any:
    """Return a store that logs in."""
    return CogneeStore(http, username="u", password=SECRET)


def cognee_by_key(http: httpx.AsyncClient) -> Any:
    """Return a store with a key."""
    return CogneeStore(http, api_key=SECRET)


def calls(_: httpx.AsyncClient) -> Any:
    """Return a store over three callables."""
    failing = Broken()
    return CallStore(name="calls", add=failing.add, search=failing.search, delete=failing.delete)


def langchain(_: httpx.AsyncClient) -> Any:
    """Return a store over a vector store."""
    return LangChainStore(Broken())  # type: ignore[arg-type]  # it has every method


def langgraph(_: httpx.AsyncClient) -> Any:
    """Return a store over a LangGraph store."""
    from langgraph.store.memory import InMemoryStore

    class Failing(InMemoryStore):
        def batch(self, ops: Any) -> Any:
            raise RuntimeError(f"{SECRET} {list(ops)}")

        async def abatch(self, ops: Any) -> Any:
            raise RuntimeError(f"{SECRET} {list(ops)}")

    return LangGraphStore(Failing())


MAKERS = [zep, letta, cognee, cognee_by_key, calls, langchain, langgraph]


async def said_by(work: Awaitable[Any]) -> str:
    """Return all that an error says and carries, its whole chain included; nothing where there is none."""
    try:
        await work
    except Exception as error:
        chain: list[BaseException] = []
        left: list[BaseException | None] = [error]
        while left:
            one = left.pop()
            if one is not None and one not in chain:
                chain.append(one)
                left += [one.__cause__, None if one.__suppress_context__ else one.__context__]
        told = [f"{one!r} {one} {vars(one)}" for one in chain]
        return " ".join([*told, *traceback.format_exception(error)])
    return ""


async def listed(store: Any) -> list[Any]:
    """List a store to its end."""
    return [entry async for entry in store.list_entries()]


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
async def test_a_clients_key_is_in_nothing_that_an_adapter_says(
    make: Callable[[httpx.AsyncClient], Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever a vendor's error repeats, ours names its type and its status."""
    caplog.set_level(logging.DEBUG)
    async with httpx.AsyncClient(base_url="http://store.test", transport=httpx.MockTransport(broken)) as http:
        store = make(http)
        case = Case("integration", store, StoreHooks())
        fact = case.fact("a text")
        label = case.label(fact)
        entry = dataclasses.replace(_entry(label), store=store.name)
        said = [
            await said_by(work)
            for work in (
                store.put(fact, label),
                store.find(fact.fact_id) if hasattr(store, "find") else _nap(0),
                listed(store) if hasattr(store, "list_entries") else _nap(0),
                store.search("a text", 3, ["user:1"]),
                store.verify_deleted(entry) if hasattr(store, "verify_deleted") else _nap(0),
                store.delete(entry),
            )
        ]
        shown = [repr(store), str(store), *map(repr, vars(store).values())]
    assert sum(map(bool, said)) >= 3, "nothing failed, so that nothing could show"
    assert SECRET not in " ".join([*said, *shown])
    ours = [record for record in caplog.records if record.name.startswith("custody_sync")]
    assert SECRET not in " ".join(f"{record.getMessage()} {vars(record)}" for record in ours)


def _entry(label: Any) -> Any:
    from custody_sync.model import Entry

    meta = label.to_metadata()
    return Entry.from_metadata(meta, store="s", external_id="a/b", scope="user:1", text="a text")


# --- the ledger's own ------------------------------------------------------------------------


async def test_the_ledgers_secret_is_in_no_repr(tmp_path: Path) -> None:
    """Who has it can tell the ids of keyed writes: an identity that is logged shows its id and no more."""
    url = f"sqlite:///{tmp_path}/custody.db"
    key = SECRET.encode() * 2
    async with await Ledger.open(url, create=True, forget_key=key, runtime=testing_runtime()) as ledger:
        secret = ledger.identity.secret
        shown = f"{ledger.identity!r} {ledger!r} {ledger.witness!r}"
        assert ledger.ledger_id in shown
    assert repr(secret) not in shown
    assert secret.hex() not in shown
    assert repr(Identity("l", key)) == repr(Identity("l", b"another"))


def test_a_salt_is_in_no_repr() -> None:
    """With it an erased value could be guessed."""
    salt = SECRET.encode()
    assert SECRET not in repr(Section({}, "{}", salt, "0" * 64))


def _records() -> Iterator[type]:
    for package in ("custody_sync", "custody_sync.ledger", "custody_sync.cli", "custody_sync.repair"):
        for found in pkgutil.iter_modules(import_module(package).__path__, f"{package}."):
            if not found.ispkg and "testing" not in found.name:
                module = import_module(found.name)
                for _, kind in inspect.getmembers(module, inspect.isclass):
                    if dataclasses.is_dataclass(kind) and kind.__module__ == module.__name__:
                        yield kind


def test_no_record_shows_a_field_that_is_secret_by_its_name() -> None:
    """A field called secret, salt, password or key is left out of its record's repr."""
    shown = {
        f"{kind.__qualname__}.{field.name}"
        for kind in _records()
        for field in dataclasses.fields(kind)
        if field.name in NAMES and field.repr
    }
    assert shown == set()
    assert custody_sync.__all__
