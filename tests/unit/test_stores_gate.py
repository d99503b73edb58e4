"""The gate before a store: names, verbs, deadlines, and errors without their text."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fix_custody import ACTOR, Desk, HttpError, error_of, open_desk

from custody_sync import AsyncCoordinator, Ledger, errors
from custody_sync.faultpoints import FaultPoint
from custody_sync.gates import open_gates
from custody_sync.model import Entry
from custody_sync.stores import Deadlines, Gate, describe
from custody_sync.testing import MemoryStore, testing_runtime

CANARY = "canary-7Q-coffee"


class Anonymous:
    """Has the verbs and no name."""

    put = delete = staticmethod(lambda *_: None)


class Handless:
    """Has a name and no verbs."""

    name = "handless"


class Undeleting:
    """Can put only."""

    name = "undeleting"

    async def put(self, *_: Any) -> list[str]:
        """Answer with an id."""
        return ["x"]


def gates(*stores: Any, superseded: Any = "remove") -> dict[str, Gate]:
    """Open gates."""
    return open_gates(stores, testing_runtime(), Deadlines(), superseded)


@pytest.mark.parametrize(
    ("stores", "store", "problem"),
    [
        ([Anonymous()], "Anonymous", "has no name"),
        ([Handless()], "handless", "has no put(); a store must be able to put and delete"),
        ([Undeleting()], "undeleting", "has no delete(); a store must be able to put and delete"),
        (
            [MemoryStore("a"), MemoryStore("a")],
            "a",
            "is configured twice; every store needs a name of its own",
        ),
        ([MemoryStore(" ")], "MemoryStore", "has no name"),
    ],
)
def test_bad_stores(stores: list[Any], store: str, problem: str) -> None:
    """A store without a name, without a verb, or named twice is refused in one sentence."""
    with pytest.raises(errors.InvalidStore) as caught:
        gates(*stores)
    assert (caught.value.store, caught.value.problem) == (store, problem)


@pytest.mark.parametrize("policy", ["delete", {"a": "drop"}, {"nobody": "keep"}])
def test_bad_policies(policy: Any) -> None:
    """A policy has to exist, and so has its store."""
    with pytest.raises(errors.InvalidInput) as caught:
        gates(MemoryStore("a"), superseded=policy)
    assert caught.value.field == "superseded"


class WithStatus(Exception):  # a vendor's
    """A vendor's error with a status."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(CANARY)
        self.__dict__.update(fields)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (WithStatus(status_code=404), "WithStatus 404"),
        (WithStatus(status=500), "WithStatus 500"),
        (WithStatus(code=7), "WithStatus 7"),
        (WithStatus(code=CANARY), "WithStatus"),
        (WithStatus(status_code=True), "WithStatus"),
        (ValueError(CANARY), "ValueError"),
        (TimeoutError(), "TimeoutError"),
        (errors.UnknownFact(fact_id=CANARY), "unknown_fact"),
        (errors.StoreUnavailable(store="s", operation="put", cause="HTTPError 429"), "HTTPError 429"),
    ],
)
def test_describe(error: Exception, said: str) -> None:
    """Of a vendor's error only type and numeric status are said."""
    assert describe(error) == said


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError(CANARY), errors.StoreUnavailable),
        (errors.LedgerFull(name="x"), errors.StoreUnavailable),
        (errors.StoreRefused(store="a", operation="put", cause="no"), errors.StoreRefused),
        (errors.NoProof(store="a", operation="verify_deleted", cause="no"), errors.NoProof),
    ],
)
async def test_errors_become_ours(error: Exception, kind: type[Exception]) -> None:
    """Whatever a store raises becomes one of our store errors, retryable unless it says otherwise."""
    store = MemoryStore("a")
    store.faults.refuse("verify_deleted", error)
    raised = await error_of(gates(store)["a"].is_gone(Entry(store="a", external_id="x")), errors.StoreError)
    assert type(raised) is kind
    assert (raised.__context__, raised.__cause__) == (None, None)


async def test_a_verb_that_is_not_async() -> None:
    """A method that raises before it can be awaited is treated like one that raises in it."""
    store = MemoryStore("a")

    def broken(entry: Entry) -> Any:
        raise ValueError(CANARY)

    store.delete = broken  # type: ignore[method-assign]  # a careless adapter
    error = await error_of(gates(store)["a"].delete(Entry(store="a", external_id="x")))
    assert type(error) is errors.StoreUnavailable


@pytest.mark.parametrize("answer", [None, 1, "yes", []])
async def test_only_true_is_gone(answer: Any) -> None:
    """Only a clear True says that an entry is gone."""
    store = MemoryStore("a")

    async def vague(entry: Entry) -> Any:
        return answer

    store.verify_deleted = vague  # type: ignore[method-assign]  # a careless adapter
    assert await gates(store)["a"].is_gone(Entry(store="a", external_id="x")) is False


async def test_entries_belong_to_the_store_that_showed_them() -> None:
    """An adapter that writes another store's name into its entries does not move them there."""
    store = MemoryStore("a")

    async def find(fact_id: str) -> list[Entry]:
        return [Entry(store="b", external_id="x", fact_id=fact_id), Entry(store="a", external_id="y")]

    async def list_entries() -> AsyncIterator[Entry]:
        yield Entry(store="b", external_id="x")

    store.find = find  # type: ignore[method-assign]  # a careless adapter
    store.list_entries = list_entries  # type: ignore[method-assign]  # a careless adapter
    gate = gates(store)["a"]
    assert [(e.store, e.external_id) for e in await gate.find("f")] == [("a", "x")]
    assert [e.store async for page in gate.pages(10) for e in page] == ["a"]


async def test_pages_of_a_listing() -> None:
    """A listing is read in pages of the size asked for, to its end."""
    store = MemoryStore("a")
    for _ in range(5):
        store.put_raw("x")
    assert [len(page) async for page in gates(store)["a"].pages(2)] == [2, 2, 1]
    assert [len(page) async for page in gates(MemoryStore("b"))["b"].pages(2)] == []


def traces(error: BaseException) -> str:
    """Return everything an error says of itself and of what hangs on it."""
    said = [str(error), repr(error), "".join(traceback.format_exception(error))]
    if isinstance(error, errors.CustodyError):
        said.append(str(error.to_dict()))
    seen: BaseException | None = error
    while seen is not None:
        said += [str(seen), repr(seen.__context__), repr(seen.__cause__)]
        seen = seen.__context__ or seen.__cause__
    return "\n".join(said)


OPERATIONS = ["put", "delete", "find", "verify_deleted", "list_entries"]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("error", [HttpError(), ValueError("canary"), WithStatus(status=1)])
async def test_no_text_of_a_store_anywhere(tmp_path: Path, operation: Any, error: Exception) -> None:
    """A store's error text, and the value it quotes, is in no error, no result and no file of the ledger."""
    secret = "canary: I drink my coffee black"  # what HttpError quotes
    async with open_desk(tmp_path) as desk:
        fact_id = await desk.written("x", text="x", subject="acct:1")
        base = await desk.written("y", text="y", subject="acct:2")
        await desk.orphan("agent")
        desk.stores["agent"].faults.refuse(operation, error)
        said: list[str] = []
        calls: list[Callable[[], Any]] = [
            lambda: desk.write(secret, text=secret),
            lambda: desk.write("z", text="z", subject="acct:2", supersedes=base),
            lambda: desk.retract(fact_id),
            lambda: desk.verify(),
            lambda: desk.repair(),
            lambda: desk.forget(fact_id),
        ]
        for call in calls:
            try:
                result = repr(await call())
                said.append("" if call is calls[0] else result)
            except errors.CustodyError as problem:
                said.append(traces(problem))
        assert "canary" not in "\n".join(said)
        desk.stores["agent"].faults.allow()
        remarks = [str(row["event"]["data"].get("detail")) async for row in desk.ledger.export()]
        assert "canary" not in "\n".join(remarks)


@pytest.mark.parametrize("kind", ["refused", "stale", "unavailable", "folded", "limit"])
async def test_no_value_in_our_errors(tmp_path: Path, kind: str) -> None:
    """The value of a write that failed is in none of what its error says, nor in what hangs on it."""
    stores = [MemoryStore("memories"), MemoryStore("agent", own_ids=True)]
    async with open_desk(tmp_path, stores=stores, settle_tries=1) as desk:
        value = CANARY
        if kind == "refused":
            desk.stores["agent"].faults.refuse("put", HttpError())
        if kind == "stale":
            desk.call_next(FaultPoint.STORED, lambda: desk.clock.advance(301))
        if kind == "unavailable":
            unknown = errors.OutcomeUnknown(name="x")
            desk.fail_next(FaultPoint.BEFORE_COMMIT, unknown, times=30)
        if kind == "folded":
            desk.stores["agent"].faults.shared_ids = True
            await desk.write(value, text=CANARY, subject="acct:1")
        if kind == "limit":
            value = CANARY + "\x00"
        error = await error_of(desk.write(value, text=None if kind == "limit" else CANARY))
        said = traces(error)
        shown = "".join(traceback.format_exception(error))
        assert CANARY not in said.replace(shown, "")
        # The caller's own source line may stand in a traceback; what our frames show may not hold the value.
        assert CANARY not in shown


async def test_put_gets_a_private_copy(desk: Desk) -> None:
    """P8: a store that changes what it was given changes nothing anywhere else."""

    class Vandal(MemoryStore):
        async def put(self, fact: Any, label: Any) -> Any:
            fact.value["tags"].append("b")
            return await super().put(fact, label)

    custody = desk.coordinator(stores=[Vandal("vandal"), *desk.stores.values()])
    written = await custody.write(subject="s", predicate="p", value={"tags": ["a"]}, space="org", actor=ACTOR)
    fact = await desk.ledger.get(written.fact.fact_id)
    assert fact is not None
    assert fact.value == written.fact.value == {"tags": ["a"]}
    assert desk.stores["memories"].value(written.placements["memories"][0]) == {"tags": ["a"]}


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        ("HTTPError 429", "HTTPError 429"),
        ("UndefinedTable 42P01", "UndefinedTable 42P01"),
        ("quota.exceeded", "quota.exceeded"),
        ("row (tuna-CANARY) violates foreign key", "StoreRefused"),
        ("tuna salad", "StoreRefused"),
        ("it\nbroke", "StoreRefused"),
        ("", "StoreRefused"),
        (None, "StoreRefused"),
    ],
)
async def test_an_adapters_own_cause_is_a_code(cause: Any, said: str) -> None:
    """Of an adapter's own error only a code and a status stay; it may have put a vendor's sentence there."""
    store = MemoryStore("a")
    store.faults.refuse("delete", errors.StoreRefused(store="x", operation="y", cause=cause, memory=CANARY))
    error = await error_of(gates(store)["a"].delete(Entry(store="a", external_id="x")))
    assert error.fields == {"store": "a", "operation": "delete", "cause": "None" if cause is None else said}


async def test_a_status_that_cannot_be_read() -> None:
    """A vendor's error whose status fails to compute is named by its type."""

    class Odd(Exception):  # a vendor's
        @property
        def status_code(self) -> int:
            raise ValueError(CANARY)

    assert describe(Odd()) == "Odd"


def test_one_coordinator_in_two_loops(tmp_path: Path) -> None:
    """A second event loop, after the first or beside it, has limiters of its own."""
    made: list[Any] = []
    store = MemoryStore("a")
    store.faults.delays["put"] = 0.001

    async def many() -> None:
        if not made:
            made.append(await Ledger.open(f"sqlite:///{tmp_path}/l.db", create=True))
            made.append(AsyncCoordinator(made[0], stores=[store], deadlines=Deadlines(concurrency=2)))
        writes = (made[1].write(value=f"v{n}", space="org", actor=ACTOR) for n in range(8))
        await asyncio.gather(*writes)

    async def close() -> None:
        await made[1].close()
        await made[0].close()

    asyncio.run(many())
    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(asyncio.run, many()) for _ in range(2)]:
            done.result()
    assert len(store.snapshot()) == 24
    asyncio.run(close())


class Unready(MemoryStore):
    """A store whose adapter finds, when it is used, that it cannot be used as it was set up."""

    async def put(self, *_: Any) -> list[str]:
        """Say what to do, by name."""
        raise errors.InvalidStore(store="unready", problem="its service is of 1.5; 1.6 is the oldest") from (
            ValueError(CANARY)
        )

    def list_entries(self) -> AsyncIterator[Entry]:
        """Say it here as well."""
        raise errors.InvalidStore(store="unready", problem="its service is of 1.5; 1.6 is the oldest")


async def test_a_store_that_cannot_be_used_says_why(desk: Desk) -> None:
    """The adapter's sentence reaches the caller whole: writing again would not help, and nothing is left."""
    async with AsyncCoordinator(desk.ledger, stores=[Unready("unready")], runtime=desk.runtime) as custody:
        with pytest.raises(errors.InvalidStore, match=r"1\.6 is the oldest") as caught:
            await custody.write(value="x", space="org", actor=ACTOR)
        assert caught.value.__cause__ is None
        assert CANARY not in "".join(traceback.format_exception(caught.value))
        swept = await custody.repair(actor=ACTOR, reason="test")
    assert any("1.6 is the oldest" in line for line in swept.still_held)


async def test_a_scope_function_that_gives_none_is_named(desk: Desk) -> None:
    """What the caller's own function returned is told in the adapter's words, as the input it is."""

    class Scoped(MemoryStore):
        """Has a function for its scope."""

        def scope_of(self, fact: Any) -> str | None:
            """Refuse what the function returned."""
            raise errors.InvalidInput(field="user_id", problem="the function must return a text")

    async with AsyncCoordinator(desk.ledger, stores=[Scoped("scoped")], runtime=desk.runtime) as custody:
        with pytest.raises(errors.InvalidInput, match="user_id"):
            await custody.write(value="x", space="org", actor=ACTOR)


def test_stores_are_a_list() -> None:
    """One store without a list around it is told apart from a list."""
    with pytest.raises(errors.InvalidInput, match="a list of stores, not MemoryStore"):
        open_gates(MemoryStore("a"), testing_runtime(), Deadlines(), "remove")  # type: ignore[arg-type]  # the mistake
