"""Facts that depend on nothing go in one message with its COMMIT: what that decides and leaves open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeAlias

import psycopg
import pytest
from fix_cut import AtPoint, Proxy, Somebody
from fix_ledger import START, Book, open_book

from custody_sync import errors
from custody_sync.errors import OutcomeUnknown
from custody_sync.faultpoints import FaultPoint
from custody_sync.ledger.chain import seal
from custody_sync.ledger.postgres_plain import PATIENCE, Plain
from custody_sync.ledger.state import Appended
from custody_sync.ledger.storage import Way

Lock: TypeAlias = "Callable[[], AbstractContextManager[None]]"

pytestmark = pytest.mark.storages("postgres")


class Messages:
    """How many messages decided on groups alone, and how many found that they could not."""

    def __init__(self) -> None:
        self.appended = 0
        self.declined = 0


@pytest.fixture
def messages(monkeypatch: pytest.MonkeyPatch) -> Messages:
    """Count the messages, and hold each event against what the rules would have sealed."""
    seen, send = Messages(), Plain.send

    async def counting(self: Plain, conn: Any, attempt: Any) -> list[Appended] | None:
        appended = await send(self, conn, attempt)
        if appended is None:
            seen.declined += 1
            return None
        seen.appended += len(appended)
        for each in appended:
            _, digest = seal(each.prepared, seq=each.seq, tx_time=each.tx_time, prev=each.prev)
            assert digest == each.hash
        return appended

    monkeypatch.setattr(Plain, "send", counting)
    return seen


@pytest.fixture
async def book(schema_url: str, tmp_path: Any) -> AsyncIterator[Book]:
    """A ledger with one fact, so that its connection is there."""
    opened = await open_book(tmp_path, url=schema_url, witness=False)
    await opened.add(value="first")
    yield opened
    await opened.ledger.close()


@pytest.fixture
def lock(schema_url: str) -> Lock:
    """Somebody else's append that takes its time."""
    uri, _, schema = schema_url.partition("&schema=")

    @contextmanager
    def held() -> Iterator[None]:
        with psycopg.connect(uri) as conn:
            conn.execute(f"SELECT FROM {schema}.head FOR UPDATE".encode())
            yield

    return held


async def test_a_plain_group_is_as_if_the_rules_had_decided_on_it(book: Book, messages: Messages) -> None:
    """Places, times, chain, blocks and all that is derived hold against a replay."""
    odd = ["plain", 'q"uote\\ {back}, NULL', "ünï🙂", "a\nb\tc", "'; --"]
    drafts = [
        book.state(value=text, text=text, held=[("s", f"e-{n}"), ("t", f"e-{n}")])
        for n, text in enumerate(odd)
    ]
    events = await asyncio.gather(*map(book.append, drafts))
    assert messages.appended == len(odd)
    assert [event.seq for event in events] == [2, 3, 4, 5, 6]
    assert [event.tx_time - events[0].tx_time for event in events] == [
        timedelta(microseconds=n) for n in range(len(odd))
    ]
    found = await book.ledger.verify()
    assert (found.intact, found.consistent) == (True, True)
    assert await book.values() == ["first", *odd]
    held = await book.ledger.placements(drafts[1].fact_id)
    assert [(row.store, row.external_id) for row in held] == [("s", "e-1"), ("t", "e-1")]


@pytest.mark.parametrize("clash", ["event", "fact"])
async def test_a_name_recorded_between_the_look_and_the_lock_leaves_the_group_to_the_rules(
    book: Book, messages: Messages, monkeypatch: pytest.MonkeyPatch, clash: str
) -> None:
    """What the look before the lock missed a unique key tells, and nothing of the message stays."""
    known = book.state(held=[("s", "e-known")])
    event = await book.append(known)
    draft, expected = {
        "event": (known, type(event)),
        "fact": (book.state(fact_id=known.fact_id), errors.DuplicateFact),
    }[clash]
    head, send, messages.appended = (await book.ledger.head()).seq, Plain.send, 0

    async def late(self: Plain, conn: Any, attempt: Any) -> Any:
        # As the look would have said, had it come before the other's commit.
        begin, before, *rest = attempt.calls
        unseen = b'{"e-unseen"}'
        blind = before._replace(values=tuple(unseen for _ in before.values))
        return await send(self, conn, replace(attempt, calls=(begin, blind, *rest)))

    monkeypatch.setattr(Plain, "send", late)
    others = [book.state(value="one"), book.state(value="two")]
    results = await asyncio.gather(*map(book.append, [others[0], draft, others[1]]), return_exceptions=True)
    assert messages.appended == 0
    assert type(results[1]) is expected
    assert [type(results[n]) for n in (0, 2)] == [type(event)] * 2
    assert (await book.ledger.head()).seq == head + 2
    assert (await book.ledger.verify()).intact


async def test_time_goes_on_behind_a_head_that_is_ahead(book: Book, messages: Messages) -> None:
    """A clock that was put back dates nothing before what is there."""
    last = (await book.ledger.head()).tx_time
    assert last is not None
    book.at(last - timedelta(seconds=90))
    events = await asyncio.gather(*(book.append(book.state(value=n)) for n in range(3)))
    assert messages.appended == 3
    assert [event.tx_time - last for event in events] == [timedelta(microseconds=n) for n in (1, 2, 3)]


@pytest.mark.parametrize("clash", ["event", "fact", "entry", "repaired"])
async def test_a_name_on_record_leaves_the_group_to_the_rules(
    book: Book, messages: Messages, clash: str
) -> None:
    """One is refused by name, or answered with what it became; the others of its group are appended."""
    known = book.state(held=[("s", "e-known")])
    event = await book.append(known)
    await book.append(book.repair("f-orphan", store="s", external_id="e-orphan"))
    messages.appended = 0
    draft, expected = {
        "event": (known, type(event)),
        "fact": (book.state(fact_id=known.fact_id), errors.DuplicateFact),
        "entry": (book.state(held=[("s", "e-known")]), errors.SharedEntry),
        "repaired": (book.state(fact_id="f-orphan"), errors.RepairedId),
    }[clash]
    others = [book.state(value="one"), book.state(value="two")]
    results = await asyncio.gather(*map(book.append, [others[0], draft, others[1]]), return_exceptions=True)
    assert (messages.appended, messages.declined) == (0, 1)
    assert type(results[1]) is expected
    assert [type(results[n]) for n in (0, 2)] == [type(event)] * 2
    if clash == "event":
        assert results[1] == event
    assert (await book.ledger.verify()).consistent


async def test_what_is_refused_within_the_group_never_goes_alone(book: Book, messages: Messages) -> None:
    """Two drafts of one fact id, and a placement that is too old: the rules see both before anything goes."""
    twice = book.state()
    again = book.state(fact_id=twice.fact_id)
    young = book.state()
    old = replace(
        young, placements=book.held(young.fact.fact_id, [("s", "e")], stored_at=START - timedelta(hours=1))
    )
    results = await asyncio.gather(*map(book.append, [twice, again, old]), return_exceptions=True)
    assert (messages.appended, messages.declined) == (0, 0)
    assert [type(each).__name__ for each in results] == ["Event", "DuplicateFact", "StalePlacement"]


async def test_a_moved_ledger_takes_nothing(book: Book, messages: Messages) -> None:
    """The mark is seen under the lock."""
    assert await book.ledger.set_mark(None, Way.TO, "sqlite:///elsewhere.db") is not None
    with pytest.raises(errors.LedgerMoved):
        await book.append(book.state())
    assert (messages.appended, messages.declined) == (0, 1)
    assert (await book.ledger.head()).seq == 1


async def test_two_ledgers_append_in_one_order(
    book: Book, schema_url: str, messages: Messages, tmp_path: Any
) -> None:
    """Each message finds the head that the other left."""
    other = await open_book(tmp_path / "b", url=schema_url, witness=False, prefix="b-")
    try:
        work = [each.append(each.state(value=n)) for n in range(40) for each in (book, other)]
        events = await asyncio.gather(*work)
    finally:
        await other.ledger.close()
    assert sorted(event.seq for event in events) == list(range(2, 82))
    assert messages.appended >= 40
    assert (await book.ledger.verify()).consistent


async def test_whoever_waits_too_long_for_the_lock_asks_the_clock_again(
    book: Book, messages: Messages, lock: Lock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A placement that was young before the wait is held against the time after it."""
    draft = book.state(held=[("s", "e-1")])
    with lock():
        waiting = asyncio.create_task(book.append(draft))
        await asyncio.sleep(0.05)
        book.later(minutes=6)
        # The message gives up, and the rules wait for the lock.
        await asyncio.sleep(2 * PATIENCE)
    with pytest.raises(errors.StalePlacement):
        await waiting
    assert (messages.appended, messages.declined) == (0, 0)


@pytest.mark.parametrize("committed", [False, True])
async def test_a_connection_cut_around_the_message_is_settled_at_once(
    proxied: tuple[Book, Proxy], committed: bool
) -> None:
    """Either way it ended, the one event there is answers."""
    book, proxy = proxied
    await book.add()
    proxy.cut_before, proxy.cut_after = not committed, committed
    draft = book.state()
    event = await book.append(draft)
    assert event.seq == 2
    assert await book.append(draft) == event
    assert (await book.ledger.head()).seq == 2


@pytest.mark.parametrize("committed", [False, True])
async def test_a_server_that_does_not_come_back_leaves_the_outcome_unknown(
    proxied: tuple[Book, Proxy], committed: bool
) -> None:
    """The message had its COMMIT with it; later the same draft is answered with its one event."""
    book, proxy = proxied
    await book.add()
    draft = book.state()
    proxy.cut_before, proxy.cut_after, proxy.refuses = not committed, committed, True
    pool = book.ledger._storage._pool  # type: ignore[attr-defined]  # not to wait ten seconds
    patience, pool.timeout = pool.timeout, 0.2
    with pytest.raises(OutcomeUnknown) as caught:
        await book.append(draft)
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)
    proxy.refuses, pool.timeout = False, patience
    assert (await book.append(draft)).seq == 2
    assert (await book.ledger.head()).seq == 2


async def test_a_farewell_of_the_server_is_heard_before_anything_is_sent(
    cut: tuple[Book, AtPoint, Somebody], messages: Messages
) -> None:
    """A connection that was ended while idle leaves no outcome open, even if the server stays away."""
    book, plan, somebody = cut
    await book.add()
    somebody.end_others()
    await asyncio.sleep(0.05)
    reached = plan.reached[FaultPoint.BEFORE_COMMIT]
    await book.add()
    assert (messages.appended, messages.declined) == (0, 0)
    assert plan.reached[FaultPoint.BEFORE_COMMIT] == reached + 1


async def test_a_cancelled_message_is_dropped_with_its_connection(book: Book, lock: Lock) -> None:
    """The next group has a connection of its own, and what became of the first is found by its id."""
    draft = book.state()
    writer = book.ledger._storage._writer  # type: ignore[attr-defined]  # whose connection is looked at
    before = writer._conn
    with lock():
        sending = asyncio.create_task(writer.commit([book.ledger._prepare(draft)]))
        await asyncio.sleep(PATIENCE / 3)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
    assert writer._conn is None
    assert before is not None
    assert before.closed
    event = await book.append(draft)
    assert await book.append(draft) == event
    assert (await book.ledger.head()).seq == 2


async def test_a_message_that_comes_late_is_declined_and_the_clock_asked_again(
    book: Book, messages: Messages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that was stopped between its clock and its message appends nothing by that clock."""
    draft, send = book.state(held=[("s", "e-1")]), Plain.send

    async def stopped(self: Plain, conn: Any, attempt: Any) -> list[Appended] | None:
        monkeypatch.setattr(Plain, "send", send)
        await asyncio.sleep(1.5 * PATIENCE)
        book.later(minutes=6)
        return await send(self, conn, attempt)

    monkeypatch.setattr(Plain, "send", stopped)
    with pytest.raises(errors.StalePlacement):
        await book.append(draft)
    assert (messages.appended, messages.declined) == (0, 1)
    await book.add()
    assert messages.appended == 1


@pytest.mark.parametrize("isolation", ["serializable", "repeatable read"])
async def test_the_servers_own_isolation_changes_nothing(
    schema_url: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, isolation: str
) -> None:
    """Under the lock every statement sees what the last holder left, whatever the default is."""
    monkeypatch.setenv(
        "PGOPTIONS", f"-c default_transaction_isolation={isolation.replace(' ', chr(92) + ' ')}"
    )
    books = [
        await open_book(tmp_path / name, url=schema_url, witness=False, prefix=f"{name}-") for name in "abc"
    ]
    try:
        ids = await asyncio.gather(*(each.add(value=n) for n in range(15) for each in books))
        holds = [books[n % 3].append(books[n % 3].hold(fact_id)) for n, fact_id in enumerate(ids)]
        events = await asyncio.gather(*holds)
    finally:
        for each in books[1:]:
            await each.ledger.close()
    assert len(events) == 45
    assert (await books[0].ledger.head()).seq == 90
    await books[0].ledger.close()
