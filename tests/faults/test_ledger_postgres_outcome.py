"""A commit whose answer is lost, on a real server: backends that are ended, connections cut around COMMIT."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import psycopg
import pytest
from fix_cut import AtPoint, Proxy, Somebody
from fix_ledger import Book
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from custody_sync.errors import LedgerBusy, LedgerError, LedgerReadOnly, LedgerUnreachable, OutcomeUnknown
from custody_sync.faultpoints import FaultPoint
from custody_sync.ledger import Ledger, postgres_schema, postgres_url
from custody_sync.model import Event
from custody_sync.testing import testing_runtime


async def test_a_backend_ended_before_the_commit_recorded_nothing_and_the_next_append_works(
    cut: tuple[Book, AtPoint, Somebody],
) -> None:
    """Whoever asked hears that it is open; appending again settles it."""
    book, plan, somebody = cut
    draft = book.hold(await book.add())
    plan.does[FaultPoint.BEFORE_COMMIT] = somebody.end_others
    with pytest.raises(OutcomeUnknown) as caught:
        await book.append(draft)
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)
    assert (await book.ledger.head()).seq == 1
    event = await book.append(draft)
    assert event.seq == 2
    assert await book.append(draft) == event


async def test_a_backend_ended_after_the_commit_changes_nothing(
    cut: tuple[Book, AtPoint, Somebody],
) -> None:
    """The event is there, and reads and appends go on over new connections."""
    book, plan, somebody = cut
    plan.does[FaultPoint.AFTER_COMMIT] = somebody.end_others
    await book.add()
    assert (await book.ledger.head()).seq == 1
    await book.add()
    somebody.end_others()
    await book.add()
    somebody.end_others()
    assert len(await book.ledger.as_of()) == 3
    somebody.end_others()
    await book.ledger.put_notes([])


@pytest.mark.parametrize("point", [FaultPoint.BEFORE_COMMIT, FaultPoint.AFTER_COMMIT])
async def test_everyone_in_the_group_hears_of_it(
    cut: tuple[Book, AtPoint, Somebody], point: FaultPoint
) -> None:
    """Refused drafts too, each with an exception of its own; all can settle it."""
    book, plan, _ = cut
    drafts = [book.state(), book.retract("f-none"), book.state()]
    plan.fail(point, OutcomeUnknown(name=book.ledger.name), at=plan.reached[point] + 1)
    results = await asyncio.gather(*map(book.append, drafts), return_exceptions=True)
    assert [type(result) for result in results] == [OutcomeUnknown] * 3
    assert len({id(result) for result in results}) == 3
    again = await asyncio.gather(*map(book.append, drafts), return_exceptions=True)
    assert [type(result).__name__ for result in again] == ["Event", "UnknownFact", "Event"]
    assert (await book.ledger.head()).seq == 2


async def test_whatever_is_raised_in_the_middle_leaves_the_writer_usable(
    cut: tuple[Book, AtPoint, Somebody],
) -> None:
    """Nothing of the failed group is there, and the lock is free."""
    book, plan, _ = cut
    for error in (RuntimeError("a bug"), LedgerBusy(name="x")):
        draft = book.state()
        plan.fail(FaultPoint.BEFORE_COMMIT, error, at=plan.reached[FaultPoint.BEFORE_COMMIT] + 1)
        with pytest.raises((type(error), LedgerError)):
            await book.append(draft)
        assert await book.ledger.get(draft.fact_id) is None
    await book.add(value="works")
    assert await book.values() == ["works"]


async def test_what_the_server_refuses_is_recorded_nowhere_and_named(
    cut: tuple[Book, AtPoint, Somebody], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read-only database, a lock that is not let go of, a table that is gone: three kinds of error."""
    book, _, somebody = cut
    schema = somebody.url.partition("&schema=")[2]
    monkeypatch.setattr(postgres_schema, "SESSION", "SET lock_timeout = '50ms'")
    await book.ledger.close()
    book.ledger = await Ledger.open(somebody.url, witness=False, runtime=testing_runtime(clock=book.clock))
    with psycopg.connect(somebody.url.partition("&schema=")[0]) as conn:
        conn.execute(f"SELECT FROM {schema}.head FOR UPDATE")
        with pytest.raises(LedgerBusy):
            await book.append(book.state())
    await book.add()
    somebody.run("ALTER DATABASE postgres SET default_transaction_read_only = on")
    try:
        somebody.end_others()
        draft = book.state()
        # That its connection has ended may be heard only after the message was sent.
        with pytest.raises((LedgerReadOnly, OutcomeUnknown)):
            await book.append(draft)
        with pytest.raises(LedgerReadOnly):
            await book.append(draft)
    finally:
        with psycopg.connect(somebody.url.partition("&schema=")[0], autocommit=True) as conn:
            conn.execute("SET default_transaction_read_only = off")
            conn.execute("ALTER DATABASE postgres RESET default_transaction_read_only")
    somebody.end_others()
    await book.add()
    somebody.run(f"ALTER TABLE {schema}.sealed RENAME TO moved")
    assert await book.refused(book.state()) == "ledger_damaged"
    somebody.run(f"ALTER TABLE {schema}.moved RENAME TO sealed")
    await book.add()
    assert (await book.ledger.head()).seq == 3


@pytest.mark.parametrize("committed", [False, True])
async def test_a_connection_cut_around_commit_is_an_unknown_outcome(
    proxied: tuple[Book, Proxy], committed: bool
) -> None:
    """Either way it ended, appending again answers with the one event there is."""
    book, proxy = proxied
    draft = book.hold(await book.add())
    proxy.cut_before, proxy.cut_after = not committed, committed
    with pytest.raises(OutcomeUnknown):
        await book.append(draft)
    assert (await book.ledger.head()).seq == (2 if committed else 1)
    event = await book.append(draft)
    assert isinstance(event, Event)
    assert event.seq == 2
    assert (await book.ledger.head()).seq == 2


async def test_a_server_that_is_gone_is_unreachable_and_may_come_back(
    proxied: tuple[Book, Proxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything of a commit was sent nothing can have been recorded."""
    book, proxy = proxied
    await book.add()
    proxy.refuses = True
    proxy.cut()
    book.ledger._storage._pool.timeout = 0.2  # type: ignore[attr-defined]  # not to wait ten seconds
    for call in (lambda: book.append(book.state()), book.ledger.head):
        with pytest.raises(LedgerUnreachable):
            await call()
    proxy.refuses = False
    book.ledger._storage._pool.timeout = postgres_url.CONNECT_TIMEOUT  # type: ignore[attr-defined]
    await book.add()
    assert (await book.ledger.head()).seq == 2


async def test_a_pool_of_ours_logs_nothing_and_one_of_the_application_does(
    schema_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What the server says names the user; our own errors name host and database only."""
    somebody, role = Somebody(schema_url), f"role_{uuid.uuid4().hex}"
    somebody.run(f"CREATE ROLE {role} LOGIN SUPERUSER")
    url = schema_url.replace("postgres@", f"{role}@")
    ledger = await Ledger.open(url, create=True, witness=False)
    theirs: AsyncConnectionPool[Any] = AsyncConnectionPool(
        url.partition("&schema=")[0], min_size=1, open=False, name="theirs"
    )
    await theirs.open(wait=True)
    try:
        pool = ledger._storage._pool  # type: ignore[attr-defined]  # not to wait ten seconds
        pool.timeout = 1.0
        await ledger.head()
        somebody.run(f"ALTER ROLE {role} NOLOGIN")
        somebody.end_others()
        with pytest.raises(LedgerUnreachable) as caught:
            await ledger.head()
        await theirs.check()
        with pytest.raises(PoolTimeout):
            await theirs.getconn(1.0)
    finally:
        await theirs.close()
        await ledger.close()
        somebody.run(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")
    assert role not in str(caught.value)
    assert pool.get_stats()["connections_errors"] > 0
    told = [record.getMessage() for record in caplog.records if record.name == "psycopg.pool"]
    assert any("is not permitted" in said for said in told)
    assert not [said for said in told if pool.name in said]
    assert {said.partition(":")[0] for said in told} <= {
        "discarding broken connection",
        "error connecting in 'theirs'",
    }
