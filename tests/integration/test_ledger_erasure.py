"""L6: after a completed forget nothing of the value is in any file of the ledger."""

from __future__ import annotations

import json
import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fix_ledger import Book, files_of, open_book
from fix_residue import forms_of, grams_of, pieces_of, random_value

from custody_sync.ledger.storage import Note
from custody_sync.model import Erasure, Fact


def found_in(folder: Path, needles: set[bytes]) -> list[str]:
    """Return which files hold any of the needles."""
    return [name for name, data in files_of(folder).items() if any(needle in data for needle in needles)]


def grams_in(folder: Path) -> set[bytes]:
    """Return every piece of text that looks like one of a random value, of any file of a folder."""
    return grams_of(files_of(folder).values())


async def fact_of(book: Book, fact_id: str) -> Fact:
    """Return a fact that is there."""
    fact = await book.ledger.get(fact_id)
    assert fact is not None
    return fact


@pytest.mark.storages("sqlite", "jsonl")
@pytest.mark.parametrize("secret", ["123-45-6789", 'Zoë "Zed" \\ Ångström \U0001f600', "x" * 5 + "ÿ" * 9000])
async def test_l6_no_form_of_a_value_stays(book: Book, secret: str) -> None:
    """Plain, escaped, UTF-16 and base64 forms are in no file, WAL and shared memory included."""
    fact_id = await book.add("user:7", "ssn", {"list": [secret], secret[:900]: 1}, text=f"the text: {secret}")
    # Of a long one the beginning is looked for: its rest is spread over pages.
    needles = forms_of(secret[:40])
    other = await book.add("user:8", value="stays here")
    folder = book.path.parent
    assert found_in(folder, needles) != []
    await book.append(book.forget(fact_id))
    assert await book.ledger.erase() is Erasure.DONE
    assert found_in(folder, needles) == []
    assert found_in(folder, {b"stays here"}) != []
    assert (await fact_of(book, other)).value == "stays here"
    assert (await fact_of(book, fact_id)).value is None


@pytest.mark.parametrize("seed", range(4))
async def test_l6_nothing_stays_when_many_facts_go(tmp_path: Path, seed: int) -> None:
    """Facts of all sizes come and go in any order; whenever an erasure is done, no piece is left."""
    rnd = random.Random(seed)
    book = await open_book(tmp_path / "l.db?synchronous=off", prefix=f"{seed}-")
    living: dict[str, str] = {}
    for _ in range(8):
        for _ in range(rnd.randint(1, 30)):
            value = random_value(rnd, rnd.choice([24, 60, 200, 900, 2500, 4000, 20_000]))
            living[await book.add(f"user:{rnd.randint(0, 9)}", value=value, text="t")] = value
        gone = rnd.sample(sorted(living), rnd.randint(1, len(living)))
        needles = {piece for fact_id in gone for piece in pieces_of(living.pop(fact_id))}
        for fact_id in gone:
            await book.append(book.forget(fact_id))
        assert await book.ledger.erase() is Erasure.DONE
        assert needles & grams_in(tmp_path) == set()
    assert {fact.value for fact in await book.ledger.as_of(limit=1000)} == set(living.values())
    await book.ledger.close()


async def test_l6_an_identity_leaves_tables_and_index_pages(tmp_path: Path) -> None:
    """Space, subject, predicate, reasons, scopes and external ids are gone from rows and indexes."""
    rnd = random.Random(7)
    book = await open_book(tmp_path / "l.db?synchronous=off")
    victims: list[str] = []
    names: set[bytes] = set()
    for i in range(150):
        # Names that sort everywhere among the others, so that index pages split around them.
        mine = [random_value(rnd, 30) for _ in range(6)] if i % 5 == 0 else [f"{rnd.random()}"] * 6
        space, subject, predicate, reason, external_id, scope = mine
        fact = book.fact(subject, predicate, random_value(rnd, 200), space=space)
        held = book.held(fact.fact_id, [("memories", external_id)], scope=scope)
        draft = book.state()
        await book.append(type(draft)(event_id=draft.event_id, fact=fact, placements=held))
        await book.append(book.hold(fact.fact_id, "h", reason))
        await book.append(book.release(fact.fact_id, "h"))
        if i % 5 == 0:
            victims.append(fact.fact_id)
            names |= {name.encode() for name in (*mine, str(fact.value))}
    for fact_id in victims:
        (placement,) = await book.ledger.placements(fact_id)
        await book.append(book.forget(fact_id, identity=True))
        await book.append(book.remove(fact_id, "memories", placement.external_id, scope=placement.scope))
    assert await book.ledger.erase() is Erasure.DONE
    everything = b"".join(files_of(tmp_path).values())
    assert [name for name in names if name in everything] == []
    assert len(await book.ledger.as_of(limit=1000)) == 120
    await book.ledger.close()


async def test_l6_an_erasure_is_due_until_somebody_completes_it(tmp_path: Path) -> None:
    """A process that died between forget and erasure leaves the work to the next one."""
    secret = random_value(random.Random(1), 300)
    book = await open_book(tmp_path / "l.db")
    fact_id = await book.add(value=secret)
    await book.append(book.forget(fact_id))
    # The file as a killed process leaves it: copied while the handle is still open.
    other = tmp_path / "copy"
    other.mkdir()
    for name, data in files_of(tmp_path).items():
        if not name.endswith("-shm"):
            (other / name).write_bytes(data)
    await book.ledger.close()
    assert found_in(other, pieces_of(secret)) != []
    again = await open_book(other / "l.db", create=False)
    assert await again.ledger.erase() is Erasure.DONE
    assert found_in(other, pieces_of(secret)) == []
    assert await again.ledger.erase() is Erasure.DONE
    await again.ledger.close()


@pytest.mark.storages("sqlite", "jsonl")
async def test_l6_without_anything_due_an_erasure_is_done(book: Book) -> None:
    """Asking again costs nothing and changes nothing."""
    await book.add()
    before = files_of(book.path.parent)["custody.db"]
    assert await book.ledger.erase() is Erasure.DONE
    assert files_of(book.path.parent)["custody.db"] == before


READER = """
import sqlite3, sys
conn = sqlite3.connect(sys.argv[1], isolation_level=None)
conn.execute("BEGIN")
conn.execute("SELECT count(*) FROM events").fetchone()
print("reading", flush=True)
sys.stdin.readline()
conn.execute("COMMIT")
conn.close()
print("done", flush=True)
"""


@contextmanager
def reading_process(path: Path) -> Iterator[Any]:
    """Yield another process that has the ledger open in the middle of a read."""
    child = subprocess.Popen(
        [sys.executable, "-c", READER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdin is not None
    try:
        assert child.stdout.readline() == "reading\n"
        yield child
    finally:
        child.stdin.close()
        child.stdout.close()
        child.wait(timeout=20)


@pytest.mark.storages("sqlite")
@pytest.mark.parametrize("identity", [False, True])
async def test_l6_a_reader_in_the_way_makes_it_pending_and_a_later_call_completes_it(
    book: Book, identity: bool
) -> None:
    """The call does not wait for another process, never says done when it is not, and finds it later."""
    secret = random_value(random.Random(2), 300)
    fact_id = await book.add(value=secret)
    folder = book.path.parent
    with reading_process(book.path) as child:
        await book.append(book.forget(fact_id, identity=identity))
        for _ in range(2):
            assert await book.ledger.erase() is Erasure.PENDING
            assert found_in(folder, pieces_of(secret)) != []
        size = book.path.with_name("custody.db-wal").stat().st_size
        assert await book.ledger.erase() is Erasure.PENDING
        assert book.path.with_name("custody.db-wal").stat().st_size == size, "each try made the log longer"
        await book.add(value="meanwhile")
        child.stdin.write("go on\n")
        child.stdin.flush()
        assert child.stdout.readline() == "done\n"
        assert await book.ledger.erase() is Erasure.DONE
    assert found_in(folder, pieces_of(secret)) == []


async def test_l6_a_handle_that_may_not_write_says_what_is_still_due(tmp_path: Path) -> None:
    """It cannot erase, so it says pending exactly while something is due."""
    book = await open_book(tmp_path / "l.db")
    fact_id = await book.add()
    reader = await open_book(tmp_path / "l.db", create=False, read_only=True)
    assert await reader.ledger.erase() is Erasure.DONE
    await book.append(book.forget(fact_id))
    assert await reader.ledger.erase() is Erasure.PENDING
    await reader.ledger.close()
    assert await book.ledger.erase() is Erasure.DONE
    await book.ledger.close()


@pytest.mark.storages("sqlite")
async def test_l6_what_another_process_erases_meanwhile_stays_due(book: Book) -> None:
    """Only what was due when an erasure began is completed by it."""
    first, second = await book.add(value="one"), await book.add(value="two")
    await book.append(book.forget(first))
    conn = sqlite3.connect(book.path, isolation_level=None)
    (row,) = conn.execute("SELECT key, value, holder FROM notes WHERE topic = 'erasure'").fetchall()
    assert row == (first, "content", "3")
    await book.append(book.forget(second))
    await book.append(book.forget(first, identity=True))
    rows = conn.execute(
        "SELECT key, value, holder FROM notes WHERE topic = 'erasure' ORDER BY key"
    ).fetchall()
    assert rows == sorted([(first, "identity", "5"), (second, "content", "4")])
    conn.close()
    assert await book.ledger.erase() is Erasure.DONE


async def test_l6_an_erased_value_stays_erased_after_reopening(tmp_path: Path) -> None:
    """Nothing that could bring it back was kept anywhere."""
    secret = random_value(random.Random(3), 200)
    book = await open_book(tmp_path / "l.db", forget_key=b"sixteen bytes or more of key")
    fact_id = await book.add(value=secret)
    await book.append(book.forget(fact_id, book.ledger.digest(secret, None)))
    assert await book.ledger.erase() is Erasure.DONE
    await book.ledger.close()
    assert found_in(tmp_path, pieces_of(secret)) == []
    again = await open_book(tmp_path / "l.db", create=False)
    fact = await fact_of(again, fact_id)
    assert (fact.value, fact.text, fact.forgotten) == (None, None, True)
    await again.ledger.close()


async def test_l6_a_leftover_that_sqlite_missed_is_looked_for_and_rebuilt_away(tmp_path: Path) -> None:
    """Where freed pages were not overwritten, the erased salts give that away and the file is rebuilt."""
    rnd = random.Random(4)
    book = await open_book(tmp_path / "l.db?synchronous=off")
    storage: Any = book.ledger._storage
    storage._writer.execute("PRAGMA secure_delete = OFF")
    values = {await book.add(value=(value := random_value(rnd, 300)), text="t"): value for _ in range(60)}
    needles = {piece for value in values.values() for piece in pieces_of(value)}
    for fact_id in values:
        await book.append(book.forget(fact_id))
    storage._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    assert needles & grams_in(tmp_path) != set()
    assert await book.ledger.erase() is Erasure.DONE
    assert needles & grams_in(tmp_path) == set()
    await book.ledger.close()


@pytest.mark.parametrize("cursor", ["false", 'true, "cursor": "CANARY"'])
async def test_l6_notes_of_a_dead_sweep_keep_no_identity(book: Book, cursor: str) -> None:
    """While a sweep is alive its notes are its own and the erasure is pending; then all it noted goes."""
    fact_id = await book.add(space="user:CANARY")
    other = await book.add()
    for key, named in (("1", fact_id), ("2", other)):
        value = json.dumps({"fact_id": named, "scope": f"of {named} CANARY" if named == fact_id else ""})
        note = Note(topic="sweep-spool", key=key, value=value, holder="run", since=book.clock.now())
        await book.ledger.put_notes([note])
    # Where a listing was is a store's to say, and may name whose the entry is.
    run = Note(topic="sweep-run", key="run", value=f'{{"names": {cursor}}}', since=book.clock.now())
    await book.ledger.put_notes([run])
    await book.ledger.acquire("lease", "sweep", holder="ops", value='""', ttl=timedelta(minutes=1))
    await book.append(book.forget(fact_id, identity=True))
    plain = await book.add(value="plain value")
    await book.append(book.forget(plain))
    assert await book.ledger.erase() is Erasure.PENDING
    # Only what the sweep names has to wait for it.
    assert found_in(book.path.parent, {b"plain value"}) == []
    assert len(await book.ledger.notes("sweep-spool")) == 2
    book.later(minutes=2)
    assert await book.ledger.erase() is Erasure.DONE
    assert await book.ledger.notes("sweep-spool") == await book.ledger.notes("sweep-run") == []
    assert found_in(book.path.parent, {b"CANARY"}) == []


async def test_l6_a_dead_sweeps_notes_stay_after_a_plain_forget(book: Book) -> None:
    """Scopes and external ids stay in the ledger then as well; the next sweep drops such notes."""
    fact_id = await book.add()
    note = Note(topic="spool", key="1", value=json.dumps({"fact_id": fact_id}), since=book.clock.now())
    await book.ledger.put_notes([note])
    await book.append(book.forget(fact_id))
    assert await book.ledger.erase() is Erasure.DONE
    assert [note.key for note in await book.ledger.notes("spool")] == ["1"]
