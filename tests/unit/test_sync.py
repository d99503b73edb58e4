"""The synchronous face: the same surface over one loop thread."""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fix_custody import ACTOR

from custody_sync import AsyncCoordinator, Coordinator, Ledger, errors
from custody_sync.model import Fact, Label, Observation
from custody_sync.results import Fate
from custody_sync.testing import MemoryStore, testing_runtime

SURFACE = [
    "write", "confirm", "retract", "forget", "forget_many", "forget_where", "expire", "hold", "release",
    "repair", "verify", "close",
]  # fmt: skip


def url(folder: Path) -> str:
    """Return the URL of a ledger in a folder."""
    return f"sqlite:///{folder}/custody.db"


@pytest.fixture
def custody(tmp_path: Path) -> Iterator[Coordinator]:
    """A coordinator over a ledger of its own."""
    with Coordinator(url(tmp_path), create=True, stores=[MemoryStore("store")]) as opened:
        yield opened


@pytest.mark.parametrize("name", SURFACE)
def test_parity_with_the_async_source(name: str) -> None:
    """Each method takes and returns what its async source does."""
    ours, source = (inspect.signature(getattr(cls, name)) for cls in (Coordinator, AsyncCoordinator))
    assert ours == source


@pytest.mark.parametrize("name", ["as_of", "history", "get"])
def test_parity_of_readings(name: str) -> None:
    """The readings that a coordinator offers take what the ledger's do."""
    ours, source = (inspect.signature(getattr(cls, name)) for cls in (Coordinator, Ledger))
    assert list(ours.parameters.values()) == list(source.parameters.values())


def test_nothing_public_is_missing() -> None:
    """Every public method of the async coordinator is there, and every argument of its constructor."""
    public = {n for n, m in inspect.getmembers(AsyncCoordinator, inspect.isfunction) if n[0] != "_"}
    assert public <= {n for n in dir(Coordinator) if n[0] != "_"}
    source = dict(inspect.signature(AsyncCoordinator).parameters)
    ours = dict(inspect.signature(Coordinator).parameters)
    del source["ledger"]
    assert {n: ours[n] for n in source} == source


def test_a_whole_life(custody: Coordinator) -> None:
    """Write, read, supersede, retract, forget, repair and verify work from plain code."""
    base = custody.write(subject="acct:42", predicate="plan", value="pro", space="org", actor=ACTOR)
    tip = custody.write(
        subject="acct:42",
        predicate="plan",
        value="free",
        space="org",
        actor=ACTOR,
        supersedes=base.fact.fact_id,
    )
    assert tip.complete
    assert [fact.value for fact in custody.as_of(space="org")] == ["free"]
    restored = custody.retract(tip.fact.fact_id, actor=ACTOR, reason="wrong")
    assert [item.fact_id for item in restored.restored] == [base.fact.fact_id]
    assert custody.forget(base.fact.fact_id, actor=ACTOR, reason="asked to").complete
    assert [event.kind for event in custody.history(tip.fact.fact_id)] == ["assert", "retract", "remove"]
    claimed = custody.write(value="hello", space="user:1", actor=ACTOR, provenance="claimed")
    assert custody.confirm(claimed.fact.fact_id, actor=ACTOR).complete
    assert custody.repair(actor=ACTOR, reason="look").complete
    assert custody.verify(actor=ACTOR).complete
    got = custody.get(base.fact.fact_id)
    assert got is not None
    assert got.forgotten


def test_keeping_and_forgetting_many(custody: Coordinator) -> None:
    """Evidence, holds, an expiry and an erasure of a space work from plain code."""
    seen = Observation(source="crm", path="/plan", value="pro")
    about = {"subject": "acct:42", "predicate": "plan", "space": "user:42", "actor": ACTOR}
    held = custody.write(value="pro", evidence=seen, **about).fact
    free = custody.write(value="free", **about).fact
    assert (held.provenance, custody.hold(held.fact_id, actor=ACTOR, hold_id="case").holds) == (
        "verified",
        ("case",),
    )
    told: list[str] = []
    planned = custody.expire(actor=ACTOR, windows={"user:*": "P1Y"}, dry_run=True)
    assert planned.facts == ()
    result = custody.forget_where(space="user:42", actor=ACTOR, progress=lambda f: told.append(f.fact_id))
    assert [fact.fact_id for fact in result.with_fate(Fate.FORGOTTEN)] == [free.fact_id]
    assert sorted(told) == sorted([held.fact_id, free.fact_id])
    assert custody.release(held.fact_id, hold_id="case", actor=ACTOR).holds == ()
    assert custody.forget_where(space="user:42", actor=ACTOR, identity=True).complete
    assert custody.spaces() == []


async def _whole(ledger: Ledger) -> list[object]:
    """Return what a ledger says of itself."""
    rows = [row async for row in ledger.export()]
    return [await ledger.verify(), await ledger.head(), await ledger.accounts(space="org"), rows]


def test_the_ledgers_own_questions(custody: Coordinator, tmp_path: Path) -> None:
    """What `call` runs in the coordinator's loop is what an event loop of one's own is told."""
    custody.write(value="x", space="org", actor=ACTOR)

    async def elsewhere() -> list[object]:
        async with await Ledger.open(url(tmp_path), read_only=True) as ledger:
            return await _whole(ledger)

    ours = custody.call(custody.ledger.verify())
    assert (ours.intact, ours.consistent, ours.events) == (True, True, 1)
    custody.call(custody.ledger.witness.flush())
    assert custody.call(_whole(custody.ledger)) == asyncio.run(elsewhere())


@pytest.mark.parametrize("wrong", [None, 3, Ledger.verify])
def test_only_a_coroutine_is_called(custody: Coordinator, wrong: Any) -> None:
    """What is no coroutine is refused by name, and later calls still work."""
    with pytest.raises(errors.InvalidInput, match=r"coroutine: must be what a call of an async method"):
        custody.call(wrong)
    assert custody.call(custody.ledger.head()).seq == 0


@pytest.mark.parametrize("name", ["write", "as_of", "history", "call", "close", "repair"])
async def test_refuses_inside_a_running_loop(tmp_path: Path, name: str) -> None:
    """Inside a running loop it refuses at once and names the class to use."""
    made: list[Coordinator] = []
    thread = threading.Thread(target=lambda: made.append(Coordinator(url(tmp_path), create=True)))
    thread.start()
    thread.join()
    (custody,) = made
    calls: dict[str, Any] = {
        "write": lambda: custody.write(value="x", space="org", actor=ACTOR),
        "as_of": custody.as_of,
        "history": lambda: custody.history("f"),
        "call": lambda: custody.call(custody.ledger.head()),
        "close": custody.close,
        "repair": lambda: custody.repair(actor=ACTOR, reason="x"),
    }
    with pytest.raises(errors.InsideEventLoop) as caught:
        calls[name]()
    assert "use AsyncCoordinator there" in str(caught.value)
    closing = threading.Thread(target=custody.close)
    closing.start()
    closing.join()


async def test_refuses_to_be_made_inside_a_running_loop(tmp_path: Path) -> None:
    """Making one inside a running loop is refused too, creates nothing, and leaves no thread behind."""
    before = set(threading.enumerate())
    with pytest.raises(errors.InsideEventLoop):
        Coordinator(url(tmp_path), create=True)
    assert not {t for t in set(threading.enumerate()) - before if t.name == "custody-sync"}
    assert os.listdir(tmp_path) == []


def test_from_within_its_own_loop(tmp_path: Path) -> None:
    """A validator that calls the synchronous face back is refused instead of waiting for itself."""
    problems: list[BaseException] = []

    async def call_back(fact: Fact, view: object) -> Fact:
        try:
            custody.as_of()
        except errors.InsideEventLoop as problem:
            problems.append(problem)
        return fact

    with Coordinator(url(tmp_path), create=True, validators=[call_back]) as custody:
        custody.write(value="x", space="org", actor=ACTOR)
    assert len(problems) == 1


def test_missing_ledger(tmp_path: Path) -> None:
    """A mistyped path is an error, creates nothing and leaves no thread behind."""
    before = set(threading.enumerate())
    with pytest.raises(errors.LedgerNotFound):
        Coordinator(url(tmp_path))
    assert list(tmp_path.iterdir()) == []
    assert not {t for t in set(threading.enumerate()) - before if t.name == "custody-sync"}


def test_bad_store_closes_what_was_opened(tmp_path: Path) -> None:
    """A coordinator that cannot be made closes the ledger it opened."""
    Coordinator(url(tmp_path), create=True).close()
    before = set(threading.enumerate())
    with pytest.raises(errors.InvalidStore):
        Coordinator(url(tmp_path), stores=[MemoryStore("a"), MemoryStore("a")])
    assert not {t for t in set(threading.enumerate()) - before if t.name == "custody-sync"}


def test_closed(tmp_path: Path) -> None:
    """After closing every call says so, and closing again does nothing."""
    custody = Coordinator(url(tmp_path), create=True)
    custody.close()
    custody.close()
    with pytest.raises(errors.ClosedError):
        custody.as_of()
    with pytest.raises(errors.ClosedError):
        custody.write(value="x", space="org", actor=ACTOR)


async def test_a_ledger_of_another_loop_stays_open(tmp_path: Path) -> None:
    """A ledger that was passed in works from the loop thread, and stays open afterwards."""
    async with await Ledger.open(url(tmp_path), create=True, runtime=testing_runtime()) as ledger:
        written: list[Any] = []

        def work() -> None:
            with Coordinator(ledger, stores=[MemoryStore("a")], runtime=testing_runtime(seed=1)) as custody:
                written.append(custody.write(value="x", space="org", actor=ACTOR))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert [f.fact_id for f in await ledger.as_of()] == [written[0].fact.fact_id]


def test_many_threads(custody: Coordinator) -> None:
    """Several threads may use one coordinator at once."""
    errors_seen: list[BaseException] = []

    def work(n: int) -> None:
        try:
            for i in range(5):
                custody.write(value=f"{n}-{i}", space=f"user:{n}", actor=ACTOR)
        except BaseException as problem:  # the test's own thread must hear of it
            errors_seen.append(problem)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors_seen == []
    assert len(custody.as_of()) == 30


def test_an_interrupt_cancels_and_closing_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C cancels the call; closing waits until what it had put into a store is taken back."""
    store = MemoryStore("store")
    inside = threading.Event()

    class Slow(MemoryStore):
        async def put(self, fact: Fact, label: Label) -> Sequence[str]:
            ids = await super().put(fact, label)
            inside.set()
            await asyncio.Event().wait()
            return ids

    def interrupted(self: Any, timeout: float | None = None) -> Any:
        inside.wait(30)
        raise KeyboardInterrupt

    custody = Coordinator(url(tmp_path), create=True, stores=[store, Slow("slow")])
    with monkeypatch.context() as patched:
        patched.setattr("concurrent.futures.Future.result", interrupted)
        with pytest.raises(KeyboardInterrupt):
            custody.write(value="x", space="org", actor=ACTOR)
    assert custody.as_of() == []
    custody.close()
    assert store.snapshot() == {}


def test_closing_lets_other_threads_finish(tmp_path: Path) -> None:
    """A call under way in another thread is finished and answered; later ones are told it is closed."""
    inside, go = threading.Event(), threading.Event()

    class Slow(MemoryStore):
        async def put(self, fact: Fact, label: Label) -> Sequence[str]:
            inside.set()
            await asyncio.to_thread(go.wait, 30)
            return await super().put(fact, label)

    store = Slow("slow")
    custody = Coordinator(url(tmp_path), create=True, stores=[store])
    with ThreadPoolExecutor(3) as threads:
        writing = threads.submit(custody.write, value="x", space="org", actor=ACTOR)
        assert inside.wait(30)
        closing = [threads.submit(custody.close) for _ in range(2)]
        while not custody._thread._ending:
            pass
        with pytest.raises(errors.ClosedError):
            custody.as_of()
        assert not writing.done()
        go.set()
        assert writing.result(30).complete
        for closed in closing:
            closed.result(30)
    assert len(store.snapshot()) == 1
    custody.close()


def test_an_interrupted_close_ends_what_is_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while closing cancels the other threads' calls, and their callers hear that it is closed."""
    inside = threading.Event()

    class Stuck(MemoryStore):
        async def put(self, fact: Fact, label: Label) -> Sequence[str]:
            inside.set()
            await asyncio.Event().wait()
            return []

    custody = Coordinator(url(tmp_path), create=True, stores=[Stuck("stuck")])
    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(custody.write, value="x", space="org", actor=ACTOR)
        assert inside.wait(30)
        result, presses = Future.result, iter([KeyboardInterrupt()])

        def interrupted(self: Any, timeout: float | None = None) -> Any:
            # The thread that writes may come to wait for its call only now; it is nobody's Ctrl-C.
            if threading.current_thread() is threading.main_thread():
                for press in presses:
                    raise press
            return result(self, timeout)

        monkeypatch.setattr(Future, "result", interrupted)
        with pytest.raises(KeyboardInterrupt):
            custody.close()
        with pytest.raises(errors.ClosedError):
            writing.result(30)


def test_a_store_that_exits_ends_only_its_caller(tmp_path: Path) -> None:
    """An exit out of a store is raised to who called; the loop goes on for everybody else."""

    class Leaving(MemoryStore):
        leaves = True

        async def put(self, fact: Fact, label: Label) -> Sequence[str]:
            """Exit once."""
            if self.leaves:
                self.leaves = False
                raise SystemExit(3)
            return await super().put(fact, label)

    with Coordinator(url(tmp_path), create=True, stores=[Leaving()]) as custody:
        with pytest.raises(SystemExit):
            custody.write(value="a note", space="org", actor=ACTOR)
        assert custody.write(value="another", space="org", actor=ACTOR).complete
