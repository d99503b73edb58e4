"""A page of the past costs a page: what has not changed since is read as of now, and all of it is right."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from datetime import datetime, timedelta
from typing import Any

import pytest
from fix_ledger import Book

from custody_sync.errors import LedgerError, Refused
from custody_sync.ledger import Ledger, rows
from custody_sync.model import Fact, Provenance
from custody_sync.testing import testing_runtime

SPACES = ("org", "user:1", "user:2")


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make blocks of four places, so that a short story has many."""
    monkeypatch.setattr(rows, "BLOCK_BITS", 2)


async def tell(book: Book, seed: int, steps: int = 120) -> list[datetime]:
    """Append a random story of everything that changes who is believed; return its instants."""
    rng, ids, instants = random.Random(seed), list[str](), list[datetime]()
    for _ in range(steps):
        book.clock.advance(timedelta(hours=rng.randrange(1, 30)))
        known = rng.choice(ids) if ids else None
        act = rng.choice(("new", "new", "claim", "correct", "later", "retract", "forget", "confirm"))
        try:
            if known is None or act in ("new", "claim"):
                how = Provenance.CLAIMED if act == "claim" else Provenance.ATTESTED
                ids.append(await book.add(value=len(ids), space=rng.choice(SPACES), provenance=how))
            elif act in ("correct", "later"):
                old = await book.ledger.get(known)
                assert old is not None
                begins = book.clock.now() + timedelta(days=9 * (act == "later"))
                about = {"space": old.space, "supersedes": known, "valid_from": begins}
                ids.append(await book.add(value=len(ids), **about))
            else:
                await book.append(getattr(book, act)(known))
        except Refused:
            continue
        instants.append((await book.ledger.head()).tx_time or book.clock.now())
    return instants


async def pages(ledger: Ledger, limit: int, **question: Any) -> list[Fact]:
    """Read every page."""
    found: list[Fact] = []
    after: int | None = None
    while True:
        page = await ledger.as_of(limit=limit, after=after, **question)
        found += page
        after = page.next
        if after is None:
            return found


@pytest.mark.parametrize("seed", range(3))
async def test_i8_a_page_of_the_past_has_who_was_believed_then(book: Book, seed: int) -> None:
    """At every instant, with claims and without, it is what the spaces say, which use no blocks."""
    instants = await tell(book, seed)
    assert len(instants) > 60
    for at in instants[:: len(instants) // 12]:
        for claimed in (False, True):
            asked = {"tx_at": at, "include_claimed": claimed}
            each = [await pages(book.ledger, 100, space=space, **asked) for space in SPACES]
            wanted = sorted((fact for some in each for fact in some), key=lambda fact: fact.seq or 0)
            for limit in (3, 100):
                assert await pages(book.ledger, limit, **asked) == wanted, (at, claimed, limit)


async def test_what_changes_one_block_is_dated_there_and_nowhere_else(book: Book) -> None:
    """A new fact, a correction, its retraction and an erasure date the blocks of the facts they change."""
    first = await book.add(value=1)
    for _ in range(8):
        await book.add(value=2, subject="another")
    _, before = await book.ledger._storage.blocks()
    assert (before[0], max(before)) == (3, 2)
    second = await book.add(value=3, supersedes=first)
    _, after = await book.ledger._storage.blocks()
    assert (after[0], after[1], after[2]) == (10, before[1], 10)
    await book.append(book.retract(second))
    _, after = await book.ledger._storage.blocks()
    assert (after[0], after[1], after[2]) == (11, before[1], 11)
    await book.append(book.forget(first))
    head, after = await book.ledger._storage.blocks()
    assert (after[0], after[1], head.seq) == (12, before[1], 12)


@pytest.mark.damages
@pytest.mark.storages("sqlite", "postgres")
@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE {}blocks SET changed = changed - 1 WHERE block = 0",
        "UPDATE {}blocks SET changed = 99 WHERE block = 0",
        "DELETE FROM {}blocks WHERE block = 1",
        "INSERT INTO {}blocks VALUES (77, 1)",
    ],
)
async def test_l7_a_block_that_says_it_changed_earlier_is_found(
    book: Book, ledger_url: str, damage: str
) -> None:
    """It would let a question about the past overlook a change; so would one that is gone."""
    for value in range(9):
        await book.add(value=value)
    assert (await book.ledger.verify(await book.ledger.head())).consistent
    if ledger_url.startswith("sqlite"):
        with closing(sqlite3.connect(book.path)) as conn:
            conn.execute(damage.format(""))
            conn.commit()
    else:
        schema = ledger_url.rpartition("schema=")[2]
        async with book.ledger._storage._pool.connection() as server:
            await server.execute(damage.format(f"{schema}.").encode())
    found = await book.ledger.verify(await book.ledger.head())
    assert found.consistent is False
    assert "block" in found.inconsistent[0]


@pytest.mark.storages("sqlite", "postgres")
async def test_l7_a_ledger_from_before_the_blocks_is_given_them(
    book: Book, ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read as it is where it can be, upgraded when it is opened for writing, and answers as before."""
    monkeypatch.setattr(rows, "BLOCK_BITS", 10)
    instants = await tell(book, 5, steps=40)
    asked = instants[len(instants) // 2]
    wanted = await pages(book.ledger, 3, tx_at=asked)
    if ledger_url.startswith("sqlite"):
        await book.ledger.close()
        with closing(sqlite3.connect(book.path)) as conn:
            conn.executescript("DROP TABLE blocks; PRAGMA user_version = 2")
        async with await Ledger.open(ledger_url, read_only=True) as old:
            assert await pages(old, 3, tx_at=asked) == wanted
    else:
        schema = ledger_url.rpartition("schema=")[2]
        async with book.ledger._storage._pool.connection() as server:
            for newer in (
                f"DROP TABLE {schema}.blocks",
                f"ALTER TABLE {schema}.facts DROP COLUMN covered_from",
                f"ALTER TABLE {schema}.owed DROP COLUMN due_at",
            ):
                await server.execute(newer.encode())
            await server.execute(f"UPDATE {schema}.settings SET value = '1' WHERE name = 'version'".encode())
        await book.ledger.close()
        with pytest.raises(LedgerError, match="older version"):
            await Ledger.open(ledger_url, read_only=True)
    book.ledger = await Ledger.open(ledger_url, runtime=testing_runtime(clock=book.clock))
    assert await pages(book.ledger, 3, tx_at=asked) == wanted
    assert (await book.ledger.verify(await book.ledger.head())).passed
