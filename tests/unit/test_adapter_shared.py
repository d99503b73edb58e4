"""What the adapters share: a slot is a thread, an error keeps no text, a template keeps its promise."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
import threading
import traceback
from array import array

import pytest

from custody_sync.adapters._failures import translated
from custody_sync.adapters._langgraph_namespaces import Namespaces, escaped, read, written
from custody_sync.adapters._pgvector_sql import checked_table
from custody_sync.adapters._scopes import check_template
from custody_sync.adapters._shared import OneLoop, WorkerThreads, vendor
from custody_sync.errors import InvalidInput, InvalidStore, MissingExtra, StoreRefused, StoreUnavailable
from custody_sync.registry import known_stores
from custody_sync.testing.embedding import WordEmbedder


async def test_a_slot_is_free_when_the_thread_ends() -> None:
    """A call whose caller has gone keeps its slot until it has really ended."""
    threads = WorkerThreads("test", limit=1)
    begun, go_on, second = threading.Event(), threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        go_on.wait(10)

    first = asyncio.ensure_future(threads.run(hang))
    await asyncio.to_thread(begun.wait, 10)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    waiting = asyncio.ensure_future(threads.run(second.set))
    await asyncio.sleep(0.05)
    assert not second.is_set()
    go_on.set()
    await waiting
    assert second.is_set()


async def test_a_call_that_has_not_begun_is_dropped() -> None:
    """A cancelled call that was still waiting for a slot never reaches the store."""
    threads = WorkerThreads("test", limit=1)
    begun, go_on, reached = threading.Event(), threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        go_on.wait(10)

    first = asyncio.ensure_future(threads.run(hang))
    await asyncio.to_thread(begun.wait, 10)
    second = asyncio.ensure_future(threads.run(reached.set))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    go_on.set()
    await first
    await threads.run(lambda: None)
    assert not reached.is_set()


class _VendorError(Exception):
    sqlstate: str | None = None
    status_code: int | None = None


async def _raises(error: Exception) -> None:
    raise error


async def test_an_error_keeps_type_and_status_only() -> None:
    """Neither the message, nor the traceback, nor a pickled copy quotes what the vendor said."""
    error = _VendorError("could not store: the customer is called Mallory")
    error.sqlstate = "53100"
    with pytest.raises(StoreUnavailable) as caught:
        await translated("pg", "put", _raises(error))
    assert caught.value.fields == {"store": "pg", "operation": "put", "cause": "_VendorError 53100"}
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    told = "".join(traceback.format_exception(caught.value)) + repr(pickle.dumps(caught.value))
    assert "Mallory" not in told


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (TimeoutError(), StoreUnavailable),
        (ConnectionResetError(), StoreUnavailable),
        (TypeError(), StoreRefused),
        (NotImplementedError(), StoreRefused),
        (type("IntegrityError", (Exception,), {})(), StoreRefused),
        (type("OperationalError", (Exception,), {})(), StoreUnavailable),
        (type("AnyError", (Exception,), {"sqlstate": "42P01"})(), StoreRefused),
        (type("AnyError", (Exception,), {"sqlstate": "57P01"})(), StoreUnavailable),
    ],
)
async def test_an_error_says_whether_to_try_again(
    error: Exception, kind: type[StoreRefused | StoreUnavailable]
) -> None:
    """What may pass is unavailable; what the same call would meet again is refused."""
    with pytest.raises(kind):
        await translated("store", "put", _raises(error))


async def test_a_wrapped_driver_error_is_judged_by_its_cause() -> None:
    """A vendor that wraps every driver error in a ValueError does not turn an outage into a refusal."""

    async def wrapped() -> None:
        try:
            raise ConnectionError
        except ConnectionError as error:
            raise ValueError("query and parameters in full") from error

    with pytest.raises(StoreUnavailable, match="ConnectionError"):
        await translated("store", "find", wrapped())


async def test_our_own_errors_pass_unchanged() -> None:
    """What is already a custody error is not wrapped again."""
    ours = InvalidInput(field="embedding", problem="has 3 numbers")
    with pytest.raises(InvalidInput) as caught:
        await translated("store", "put", _raises(ours))
    assert caught.value is ours


@pytest.mark.parametrize("template", ["{user}", "{space", "a}b", "{}", "{space!r}", ""])
def test_a_template_knows_the_space_and_nothing_else(template: str) -> None:
    """Any other placeholder is refused, since it would end up in a scope as it stands."""
    with pytest.raises(InvalidInput, match="namespace"):
        check_template("namespace", template)


def test_a_missing_extra_names_the_command() -> None:
    """A vendor that is not installed is one sentence with the pip command."""
    with pytest.raises(MissingExtra, match=r"pip install 'custody-sync\[langgraph\]'"):
        vendor("no_such_vendor", feature="LangGraphStore", extra="langgraph")


VENDORS = {
    "cognee", "httpcore", "httpx", "langchain_core", "langgraph", "letta_client", "mem0", "numpy", "openai",
    "pgvector", "posthog", "psycopg", "psycopg_pool", "pydantic", "qdrant_client", "requests", "sqlalchemy",
    "zep_cloud",
}  # fmt: skip


@pytest.mark.parametrize("adapter", known_stores)
def test_importing_an_adapter_imports_no_vendor(adapter: str) -> None:
    """An adapter can be named, listed and shown without its vendor, and without what that one brings."""
    module = known_stores[adapter].target.partition(":")[0]
    code = f"import sys, {module}\nprint(sorted({VENDORS!r} & set(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def test_a_client_stays_in_its_loop() -> None:
    """A second event loop is refused by name instead of waiting for ever."""
    one = OneLoop("pg")

    async def use() -> None:
        one.check()

    asyncio.run(use())
    with pytest.raises(InvalidStore, match="another event loop"):
        asyncio.run(use())


SPACES = [
    "",
    ".",
    "a.b",
    "a/b",
    "%",
    "%2E",
    "a%2Eb",
    "langgraph",
    "größe",
    "🦊",
    " ",
    "*",
    "_",
    "user:1",
    "['x']",
]


def test_every_space_has_a_namespace_of_its_own() -> None:
    """Escaping is reversible: no two spaces share a namespace and no label is one LangGraph refuses."""
    names = Namespaces(("{space}",))
    made = [names.of_space(space) for space in SPACES]
    assert len(set(made)) == len(SPACES)
    assert all(label and "." not in label for namespace in made for label in namespace)
    assert all(namespace[0] != "langgraph" for namespace in made)
    assert [read(written(namespace)) for namespace in made] == made


@pytest.mark.parametrize("scope", [None, "", "[]", "{}", "[1]", "x", '"x"'])
def test_a_scope_that_is_no_namespace_is_none(scope: str | None) -> None:
    """A damaged scope is never taken for an address."""
    assert read(scope) is None


@pytest.mark.parametrize(
    "namespace", ["memories", (), ("langgraph", "{space}"), ("a", ""), ("{user}",), ("a", 1)]
)
def test_a_namespace_template_is_checked_when_made(namespace: object) -> None:
    """A template that could never be stored under is refused before any store is touched."""
    with pytest.raises(InvalidInput, match="namespace"):
        Namespaces(namespace)  # type: ignore[arg-type]  # the wrong types are the point


def test_the_root_is_what_all_namespaces_share() -> None:
    """A sweep looks below the labels before the first one that differs between spaces."""
    assert Namespaces(("a.b", "memories", "{space}", "notes")).root == escaped(["a.b", "memories"])
    assert Namespaces(("user-{space}",)).root == ()
    assert Namespaces(("fixed",)).root == ("fixed",)
    assert Namespaces(lambda fact: (fact.space,)).root == ()


@pytest.mark.parametrize(
    "table",
    [
        "x; drop table y",
        'a"b',
        "a b",
        "1a",
        "",
        "a.b",
        "a-b",
        "tablé",
        "a" * 49,
        "a\n",
        None,
        b"facts",
        "a\x00",
    ],
)
def test_a_table_is_a_plain_identifier(table: object) -> None:
    """Anything else is refused with the name in the sentence."""
    with pytest.raises(InvalidInput, match="plain identifier"):
        checked_table(table)


def test_the_toy_embedder_is_the_same_everywhere() -> None:
    """Vectors are normalised, equal for equal texts, near for shared words, and never zero."""
    embed = WordEmbedder(32)
    assert embed("Black coffee") == embed("black COFFEE") == embed.many(["coffee black"])[0]
    assert sum(number * number for number in embed("any text")) == pytest.approx(1.0)
    assert any(array("f", embed("")))
    assert any(array("f", embed("?!")))

    def near(one: str, other: str) -> float:
        return sum(a * b for a, b in zip(embed(one), embed(other), strict=True))

    assert near("black coffee please", "black coffee") > near("black coffee please", "the invoice is paid")
