"""L6 on Postgres: who can keep an erased row in the table files, and what the result says of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from fix_ledger import Book, open_book
from fix_residue import Disk, left_in

from custody_sync import AsyncCoordinator
from custody_sync.model import Erasure
from custody_sync.testing import MemoryStore, testing_runtime

pytestmark = pytest.mark.storages("postgres")
SECRET = "the value that has to go"
NAME = "a subject that has to go"


@contextmanager
def snapshot(url: str, statement: str) -> Iterator[psycopg.Connection[Any]]:
    """Hold a snapshot from now on, of somebody who has asked something."""
    with psycopg.connect(url.partition("&schema=")[0]) as conn:
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        conn.execute(statement)
        yield conn


@pytest.mark.parametrize("identity", [False, True])
async def test_a_snapshot_that_touched_no_table_keeps_the_erasure_pending(
    book: Book, disk: Disk, ledger_url: str, identity: bool
) -> None:
    """The tables are rewritten, but what an older snapshot may ask for is taken along: that is not done."""
    fact_id = await book.add(NAME, value=SECRET)
    goes = {SECRET, NAME} if identity else {SECRET}
    with snapshot(ledger_url, "SELECT 1"):
        await book.append(book.forget(fact_id, identity=identity))
        assert await book.ledger.erase() is Erasure.PENDING
        assert left_in(disk.files(), goes) == goes
        # One that began after the forget is not in its way, and a rewriting alone proves nothing.
        assert await book.ledger.erase() is Erasure.PENDING
    with snapshot(ledger_url, "SELECT 1"):
        assert await book.ledger.erase() is Erasure.DONE
        assert left_in(disk.files(), goes) == set()


async def test_nobody_waits_for_a_reader(book: Book, ledger_url: str) -> None:
    """Who is in the middle of reading the table keeps it; the call comes back, and readers go on."""
    fact_id = await book.add(value=SECRET)
    await book.append(book.forget(fact_id))
    with snapshot(ledger_url, f"SELECT * FROM {ledger_url.partition('&schema=')[2]}.sealed"):
        assert await book.ledger.erase() is Erasure.PENDING
        assert len(await book.ledger.history(fact_id)) == 2
    assert await book.ledger.erase() is Erasure.DONE


async def test_what_another_handle_erases_meanwhile_stays_due(book: Book, ledger_url: str) -> None:
    """Only what a rewriting has seen is settled."""
    first, second = await book.add(value=SECRET), await book.add(value="another")
    other = await open_book(book.path, url=ledger_url, clock=book.clock, prefix="other", witness=False)
    with snapshot(ledger_url, "SELECT 1"):
        await other.append(other.forget(second))
        assert await book.ledger.erase() is Erasure.PENDING
    await other.append(other.forget(first))
    assert await other.ledger.erase() is Erasure.DONE
    assert await book.ledger.erase() is Erasure.DONE
    await other.ledger.close()


async def test_without_vacuum_it_stays_pending_and_the_result_says_how_to_complete_it(
    book: Book, disk: Disk, ledger_url: str
) -> None:
    """Nothing is rewritten; a handle without the option completes it at a time of the operator's choice."""
    store, runtime = MemoryStore("memories", clock=book.clock), testing_runtime(clock=book.clock)
    plain = await open_book(
        book.path, url=f"{ledger_url}&vacuum=false", clock=book.clock, prefix="plain", witness=False
    )
    async with AsyncCoordinator(plain.ledger, stores=[store], runtime=runtime) as custody:
        written = await custody.write(subject=NAME, predicate="p", value=SECRET, space="org", actor="a")
        forgotten = await custody.forget(written.fact.fact_id, actor="a", reason="asked")
    assert (forgotten.erasure, forgotten.complete) == (Erasure.PENDING, False)
    assert any("vacuum=false" in note and "repair" in note for note in forgotten.notes)
    assert left_in(disk.files(), {SECRET}) == {SECRET}
    await plain.ledger.close()
    async with AsyncCoordinator(book.ledger, stores=[store], runtime=runtime) as custody:
        repaired = await custody.repair(actor="ops", reason="nightly")
        assert (repaired.erasure, repaired.complete) == (Erasure.DONE, True)
        again = await custody.forget(written.fact.fact_id, actor="a", reason="asked")
    assert again.complete
    assert all("vacuum=false" not in note for note in again.notes)
    assert any("write-ahead log, replicas and backups" in note for note in again.notes)
    assert left_in(disk.files(), {SECRET}) == set()


async def test_a_role_that_may_not_vacuum_says_pending(book: Book, ledger_url: str) -> None:
    """Postgres passes over tables of others with a warning, and that is not done."""
    fact_id, schema = await book.add(value=SECRET), ledger_url.partition("&schema=")[2]
    role = f"writer_{schema[-12:]}"
    with psycopg.connect(ledger_url.partition("&schema=")[0], autocommit=True) as conn:
        conn.execute(f"CREATE ROLE {role} LOGIN")
        conn.execute(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
        conn.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {role}")
        conn.execute(f"REVOKE MAINTAIN ON ALL TABLES IN SCHEMA {schema} FROM {role}")
        url = ledger_url.replace("postgres@", f"{role}@")
        other = await open_book(book.path, url=url, clock=book.clock, prefix="w", witness=False)
        assert other.ledger.writable
        await other.append(other.forget(fact_id))
        assert await other.ledger.erase() is Erasure.PENDING
        # Frozen is not rewritten, whatever the catalog says of the oldest row.
        conn.execute(f"VACUUM (FREEZE) {schema}.sealed")
        assert await other.ledger.erase() is Erasure.PENDING
        await other.ledger.close()
        conn.execute(f"DROP OWNED BY {role}")
        conn.execute(f"DROP ROLE {role}")
    assert await book.ledger.erase() is Erasure.DONE


async def test_no_sample_of_a_value_goes_into_the_statistics(book: Book, disk: Disk, ledger_url: str) -> None:
    """ANALYZE keeps common values in a catalog, which no rewriting of the ledger's tables would reach."""
    schema = ledger_url.partition("&schema=")[2]
    facts = [await book.add(NAME, value=SECRET, space="s that has to go") for _ in range(40)]
    with psycopg.connect(ledger_url.partition("&schema=")[0], autocommit=True) as conn:
        for table in ("facts", "sealed", "placements", "notes"):
            conn.execute(f"ANALYZE {schema}.{table}")
        samples = conn.execute(
            "SELECT attname, most_common_vals::text, histogram_bounds::text FROM pg_stats "
            "WHERE schemaname = %s",
            [schema],
        ).fetchall()
    assert samples != []
    assert left_in({"samples": repr(samples).encode()}, {SECRET, NAME, "s that has to go"}) == set()
    for fact_id in facts:
        await book.append(book.forget(fact_id, identity=True))
    assert await book.ledger.erase() is Erasure.DONE
    assert left_in(disk.files(), {SECRET, NAME, "s that has to go"}) == set()
