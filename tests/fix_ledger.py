"""A book to try the ledger on: a file, a clock by hand, and one short verb for every kind of event."""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from custody_sync.canonical import canonical
from custody_sync.errors import ClosedError
from custody_sync.ledger import (
    Assert,
    Confirm,
    Digest,
    Forget,
    Hold,
    Ledger,
    Place,
    Release,
    Remove,
    Repair,
    Retract,
)
from custody_sync.ledger.drafts import Draft
from custody_sync.model import Event, Fact, Json, Outcome, Placement, Provenance
from custody_sync.testing import InlineExecutor, ManualClock, testing_runtime

ACTOR = "agent:test"
CHILD = Path(__file__).parent / "faults" / "ledger_child.py"
START = datetime(2026, 9, 1, tzinfo=UTC)


def day(number: int, hour: int = 0, month: int = 9) -> datetime:
    """Return an instant of September 2026."""
    return datetime(2026, month, number, hour, tzinfo=UTC)


@dataclass
class Drafts:
    """Makes drafts whose event ids and fact ids count upwards; times come from `clock`."""

    clock: ManualClock
    prefix: str = ""
    _ids: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def event_id(self) -> str:
        """Return a new event id."""
        return f"{self.prefix}e{next(self._ids)}"

    def fact(
        self, subject: str = "acct:42", predicate: str = "plan", value: Json = "pro", **more: Any
    ) -> Fact:
        """Return a proposed fact; `more` overrides any field."""
        fields: dict[str, Any] = {
            "fact_id": f"{self.prefix}f{next(self._ids)}",
            "space": "org",
            "subject": subject,
            "predicate": predicate,
            "value": value,
            "text": f"{subject} {predicate}: {value}",
            "actor": ACTOR,
            "provenance": Provenance.ATTESTED,
            "valid_from": self.clock.now(),
        }
        return Fact(**{**fields, **more})

    def state(self, *what: Any, held: Sequence[tuple[str, str]] = (), **more: Any) -> Assert:
        """Draft an assert; `held` are (store, external id) pairs that were stored just now."""
        fact = self.fact(*what, **more)
        return Assert(event_id=self.event_id(), fact=fact, placements=self.held(fact.fact_id, held))

    def held(self, fact_id: str, pairs: Sequence[tuple[str, str]], **more: Any) -> tuple[Placement, ...]:
        """Return placements stored just now."""
        fields: dict[str, Any] = {"scope": None, "stored_at": self.clock.now(), **more}
        return tuple(Placement(store=s, external_id=x, fact_id=fact_id, **fields) for s, x in pairs)

    def retract(self, fact_id: str, reason: str | None = None) -> Retract:
        """Draft a retraction."""
        return Retract(event_id=self.event_id(), fact_id=fact_id, actor=ACTOR, reason=reason)

    def confirm(self, fact_id: str, held: Sequence[tuple[str, str]] = (), **more: Any) -> Confirm:
        """Draft a confirmation."""
        placements = self.held(fact_id, held)
        return Confirm(event_id=self.event_id(), fact_id=fact_id, actor=ACTOR, placements=placements, **more)

    def forget(self, fact_id: str, digest: Digest | None = None, **more: Any) -> Forget:
        """Draft an erasure."""
        return Forget(event_id=self.event_id(), fact_id=fact_id, actor=ACTOR, digest=digest, **more)

    def hold(self, fact_id: str, hold_id: str = "h1", reason: str | None = None) -> Hold:
        """Draft a hold."""
        return Hold(event_id=self.event_id(), fact_id=fact_id, actor=ACTOR, hold_id=hold_id, reason=reason)

    def release(self, fact_id: str, hold_id: str = "h1") -> Release:
        """Draft a release."""
        return Release(event_id=self.event_id(), fact_id=fact_id, actor=ACTOR, hold_id=hold_id)

    def repair(
        self, fact_id: str, store: str | None = None, external_id: str | None = None, **more: Any
    ) -> Repair:
        """Draft a repair."""
        where = {"store": store, "external_id": external_id, **more}
        return Repair(event_id=self.event_id(), fact_id=fact_id, actor=ACTOR, **where)

    def place(self, fact_id: str, held: Sequence[tuple[str, str]], **more: Any) -> Place:
        """Draft a placement."""
        placements = self.held(fact_id, held, **more)
        return Place(event_id=self.event_id(), fact_id=fact_id, actor=ACTOR, placements=placements)

    def remove(
        self, fact_id: str, store: str, external_id: str, outcome: Outcome = Outcome.VERIFIED, **more: Any
    ) -> Remove:
        """Draft an outcome of a removal."""
        return Remove(
            event_id=self.event_id(),
            fact_id=fact_id,
            actor=ACTOR,
            store=store,
            external_id=external_id,
            outcome=outcome,
            **more,
        )


@dataclass
class Book(Drafts):
    """A ledger, its clock, and drafts that are appended at once."""

    ledger: Ledger = field(kw_only=True)
    path: Path = field(kw_only=True)

    async def add(self, *what: Any, **more: Any) -> str:
        """Assert a fact and return its id."""
        return (await self.append(self.state(*what, **more))).fact_id

    async def append(self, draft: Draft) -> Event:
        """Append a draft."""
        return await self.ledger.append(draft)

    def at(self, instant: datetime) -> None:
        """Set the clock."""
        self.clock.set(instant)

    def later(self, **by: float) -> datetime:
        """Move the clock forward."""
        return self.clock.advance(timedelta(**by))

    async def values(self, **question: Any) -> list[Json]:
        """Return the values that an as-of answer holds."""
        return [fact.value for fact in await self.ledger.as_of(**question)]

    async def export(self) -> list[dict[str, Any]]:
        """Return the whole log."""
        return [row async for row in self.ledger.export()]

    async def refused(self, draft: Draft) -> str:
        """Append a draft that has to be refused, and return the error's code."""
        before = await self.ledger.head()
        try:
            await self.ledger.append(draft)
        except Exception as error:  # the code decides
            assert await self.ledger.head() == before, "a refused event moved the head"
            return str(getattr(error, "code", repr(error)))
        raise AssertionError("the draft was taken")


class HeldExecutor(InlineExecutor):
    """Keeps submitted work until it is let go, so that what waits meanwhile becomes one group."""

    def __init__(self) -> None:
        super().__init__()
        self.holding = False
        self._kept: list[Callable[[], Any]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run the work, or keep it while holding."""
        if not self.holding:
            return super().submit(fn, *args, **kwargs)
        self._kept.append(lambda: fn(*args, **kwargs))
        return Future()

    def let_go(self) -> None:
        """Run what was kept and hold nothing back any more."""
        self.holding = False
        while self._kept:
            self._kept.pop(0)()


@dataclass
class GroupBook(Book):
    """A book that can append several drafts as one group."""

    writer: HeldExecutor = field(kw_only=True)

    async def group(self, drafts: Sequence[Draft]) -> list[Event | BaseException]:
        """Append drafts as one group, in this order, and return each one's event or error."""
        self.writer.holding = True
        waiting = [asyncio.ensure_future(self.ledger.append(draft)) for draft in drafts]
        await asyncio.sleep(0)
        self.writer.let_go()
        return list(await asyncio.gather(*waiting, return_exceptions=True))


async def open_group_book(path: Path, *, seed: int = 0, option: str = "", **more: Any) -> GroupBook:
    """Open a book whose writer can be held."""
    clock, writer = ManualClock(START), HeldExecutor()
    runtime = testing_runtime(
        clock=clock, seed=seed, executor=lambda name: writer if "writer" in name else InlineExecutor(), **more
    )
    ledger = await Ledger.open(f"sqlite:///{path}{option}", create=True, runtime=runtime)
    return GroupBook(clock, ledger=ledger, path=path, writer=writer)


class Child:
    """Another process at work on a ledger file: `ledger_child.py` with one of its jobs."""

    def __init__(
        self, job: str, path: Path | str, *arguments: object, scheme: str = "sqlite", **options: Any
    ) -> None:
        url = path if isinstance(path, str) else f"{scheme}:///{path}"
        self.process = subprocess.Popen(
            [sys.executable, str(CHILD), job, url, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )
        assert self.process.stdout is not None
        assert self.process.stdin is not None
        self.out, self.into = self.process.stdout, self.process.stdin

    def ready(self) -> None:
        """Wait until it is ready."""
        assert self.out.readline() == "ready\n"

    def go(self) -> None:
        """Wait until it is ready, and let it start."""
        self.ready()
        self.let_go()

    def let_go(self) -> None:
        """Let one start that is ready."""
        self.into.write("go\n")
        self.into.flush()

    def bury(self) -> None:
        """Let go of a child that was killed."""
        self.process.communicate(timeout=20)

    def report(self) -> dict[str, Any]:
        """Wait for its end and return what it says."""
        try:
            out, err = self.process.communicate(timeout=100)
        finally:
            self.process.kill()
        assert (self.process.returncode, err) == (0, "")
        document: dict[str, Any] = json.loads(out)
        return document


def start(children: Sequence[Child]) -> None:
    """Let none start before all are ready: the first could be done before the last has opened."""
    for child in children:
        child.ready()
    for child in children:
        child.let_go()


def files_of(folder: Path) -> dict[str, bytes]:
    """Return every file of a folder with its bytes."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


STORAGES = ("sqlite", "jsonl", "postgres")
"""What a test with a `book` runs on, unless it is marked with the storages it is about."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run every test that takes a `book` on each storage, or on those that its marker names."""
    if "storage" in metafunc.fixturenames:
        only = metafunc.definition.get_closest_marker("storages")
        metafunc.parametrize("storage", only.args if only else STORAGES)


async def open_book(
    path: Path, *, create: bool = True, prefix: str = "", seed: int = 0, url: str = "", **options: Any
) -> Book:
    """Open a book on a ledger file, or on whatever a URL names."""
    clock = options.pop("clock", None) or ManualClock(START)
    runtime = options.pop("runtime", None) or testing_runtime(clock=clock, seed=seed)
    ledger = await Ledger.open(url or f"sqlite:///{path}", create=create, runtime=runtime, **options)
    return Book(clock, prefix, ledger=ledger, path=path)


@pytest.fixture
def ledger_url(storage: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """Say where a new ledger of the storage under test can be made."""
    folder = tmp_path / "ledger"
    folder.mkdir()
    if storage == "postgres":
        return str(request.getfixturevalue("schema_url"))
    return f"{storage}:///{folder / 'custody.db'}"


@pytest.fixture
async def book(ledger_url: str, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Book]:
    """A new ledger of the storage under test; the clock stands at 1 September 2026.

    What it answers at the end has to follow from its log alone, unless the test damages it.
    """
    made = await open_book(tmp_path / "ledger" / "custody.db", url=ledger_url)
    try:
        yield made
        if request.node.get_closest_marker("damages") is None:
            await check_replay(made, tmp_path / "replayed.db")
            if ledger_url.startswith("jsonl:"):
                await check_lines(made)
    finally:
        await made.ledger.close()


async def check_replay(book: Book, path: Path) -> None:
    """Hold what a ledger answers against what a new one answers that took over its log."""
    try:
        log = await book.export()
    except ClosedError:
        return
    runtime = testing_runtime(clock=book.clock)
    url = f"sqlite:///{path}?synchronous=off"
    async with await Ledger.open(url, create=True, runtime=runtime, witness=False) as other:
        await other.restore(log)
        assert await answers_of(other) == await answers_of(book.ledger)
    found = await book.ledger.verify(witness=False)
    assert not found.found, found


async def check_lines(book: Book) -> None:
    """Hold a JSONL ledger's file against what it exports: they are the same lines."""
    try:
        log = await book.export()
    except ClosedError:
        return
    assert book.path.read_bytes().split(b"\n")[1:] == [*map(canonical, log), b""]


async def answers_of(ledger: Ledger) -> dict[str, Any]:
    """Return everything that can be asked of a small ledger at this moment."""
    log = [row async for row in ledger.export()]
    ids = sorted({row["event"]["fact_id"] for row in log})
    return {
        "log": log,
        "head": await ledger.head(),
        "spaces": await ledger.spaces(),
        "believed": await ledger.as_of(limit=10_000),
        "claimed": await ledger.as_of(include_claimed=True, limit=10_000),
        "facts": [await ledger.get(fact_id) for fact_id in ids],
        "known": await ledger.known(ids),
        "placements": [await ledger.placements(fact_id) for fact_id in ids],
        "pending": await ledger.pending(limit=10_000),
        "removed": await ledger.removed(limit=10_000),
        "owed": await ledger.owed(limit=10_000),
        "waiting": await ledger.waiting(limit=10_000),
        "accounts": await ledger.accounts(limit=10_000),
    }
