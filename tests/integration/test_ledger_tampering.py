"""L7: whoever changes a ledger behind its back is found out, and the place is named."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fix_golden import GOLDEN, open_golden
from fix_ledger import START, open_book

from custody_sync.ledger import Ledger
from custody_sync.ledger.verifying import Verification
from custody_sync.model import EventKind, Head
from custody_sync.testing import testing_runtime

Change = Callable[[sqlite3.Connection], object]


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger of this schema version with every kind of event, section and row."""
    path = tmp_path_factory.mktemp("pristine") / "l.db"
    shutil.copy(GOLDEN / "ledger-1.db", path)
    asyncio.run(_upgraded(path))
    return path


async def _upgraded(path: Path) -> None:
    async with await open_golden(path, witness=False):
        pass


async def checked(path: Path, **more: Any) -> Verification:
    """Verify a ledger file as a reader."""
    runtime = testing_runtime()
    async with await Ledger.open(f"sqlite:///{path}", read_only=True, runtime=runtime) as ledger:
        return await ledger.verify(**more)


def changed(pristine: Path, folder: Path, change: Change) -> Path:
    """Copy the ledger and change the copy behind its back."""
    folder.mkdir(exist_ok=True)
    path = folder / "changed.db"
    shutil.copy(pristine, path)
    with closing(sqlite3.connect(path)) as conn:
        change(conn)
        conn.commit()
    return path


def sql(statement: str, *values: Any) -> Change:
    """Make one statement a change."""
    return lambda conn: conn.execute(statement, values)


def log_of(path: Path) -> list[dict[str, Any]]:
    """Return the documents of all events."""
    with closing(sqlite3.connect(path)) as conn:
        return [json.loads(body) for (body,) in conn.execute("SELECT body FROM events ORDER BY seq")]


def other(value: Any) -> Any:
    """Return another value of the same kind, as an attacker who wants to stay unseen would choose."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, str):
        return value[:-1] + ("a" if value[-1:] != "a" else "b")
    if isinstance(value, bytes):
        return bytes([value[0] ^ 1]) + value[1:]
    if isinstance(value, list):
        return [*value, "more"]
    if isinstance(value, dict):
        return {**value, "more": 1}
    return "there"


def leaves(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every field, the inner ones too."""
    if path:
        yield path
    inner = document.items() if isinstance(document, dict) else ()
    for name, part in inner:
        yield from leaves(part, (*path, name))


def altered(document: Any, path: tuple[Any, ...]) -> Any:
    """Return a copy with one field changed."""
    copy: Any = json.loads(json.dumps(document))
    at = copy
    for name in path[:-1]:
        at = at[name]
    at[path[-1]] = other(at[path[-1]])
    return copy


async def test_what_nobody_changed_passes(pristine: Path) -> None:
    """The ledger that the others are copies of is intact and consistent, and has every kind of event."""
    result = await checked(pristine)
    assert (result.intact, result.consistent, result.complete) == (True, True, None)
    assert set(result.kinds) == set(EventKind)
    assert set(result.erased) == {"content", "identity", "refs"}


@pytest.mark.parametrize("kind", list(EventKind))
async def test_l7_every_field_of_every_kind_of_event(pristine: Path, tmp_path: Path, kind: EventKind) -> None:
    """Whichever field of an event is changed, with its hash left or made anew, its place is named."""
    fields = set()
    docs = [doc for doc in log_of(pristine) if doc["kind"] == kind]
    for doc in (docs[0], docs[-1]):
        for path in leaves(doc):
            forged = json.dumps(altered(doc, path), ensure_ascii=False, separators=(",", ":"), sort_keys=True)
            digest = hashlib.sha256(forged.encode()).hexdigest()
            for hashed in (False, True):
                statement = "UPDATE events SET body = ?" + (", hash = ?" if hashed else "") + " WHERE seq = ?"
                values = (forged, digest, doc["seq"]) if hashed else (forged, doc["seq"])
                copy = changed(pristine, tmp_path, sql(statement, *values))
                result = await checked(copy, replay=False)
                # A hash that was made anew betrays itself in the event after it, or in the head.
                places = {doc["seq"], doc["seq"] + 1} if hashed else {doc["seq"]}
                assert not result.intact, (doc["seq"], path, hashed)
                assert result.first_bad in places, (doc["seq"], path, hashed, result)
            fields.add(path[0])
    assert fields == {
        "actor", "data", "event_id", "fact_id", "kind", "prev", "receipt_id", "sealed", "seq", "tx_time", "v",
    }  # fmt: skip


SEALED = [f"{name}{part}" for name in ("content", "identity", "refs") for part in ("", "_salt")]


@pytest.mark.parametrize("column", SEALED)
async def test_l7_every_section_and_salt(pristine: Path, tmp_path: Path, column: str) -> None:
    """A section or a salt that was changed, dropped without a forget or put back is found where it is."""
    with closing(sqlite3.connect(pristine)) as conn:
        rows = conn.execute(f"SELECT seq, {column} FROM sealed ORDER BY seq").fetchall()
    name = column.removesuffix("_salt")
    tried = 0
    for seq, value in rows:
        changes: list[tuple[str, tuple[Any, ...]]] = []
        if value is None:
            changes.append((f"UPDATE sealed SET {column} = ? WHERE seq = ?", ("x", seq)))
        else:
            changes.append((f"UPDATE sealed SET {column} = ? WHERE seq = ?", (other(value), seq)))
            changes.append((f"UPDATE sealed SET {column} = NULL WHERE seq = ?", (seq,)))
            changes.append((f"UPDATE sealed SET {name} = NULL, {name}_salt = NULL WHERE seq = ?", (seq,)))
        for statement, values in changes:
            copy = changed(pristine, tmp_path, sql(statement, *values))
            result = await checked(copy, replay=name == "refs")
            if "_salt = NULL WHERE" in statement and name == "refs" and result.intact:
                # Ids may be gone from any event of a fact whose identity was forgotten; the replay tells.
                assert result.consistent is False, (statement, values)
            else:
                assert (result.intact, result.first_bad) == (False, seq), (statement, values, result)
            tried += 1
    assert tried > 10


async def test_l7_sections_of_no_event_are_found(pristine: Path, tmp_path: Path) -> None:
    """Nothing can be hidden beside the log."""
    hidden = "INSERT INTO sealed (seq, content, content_salt) VALUES (999, 'x', x'00')"
    result = await checked(changed(pristine, tmp_path, sql(hidden)))
    assert (result.intact, result.consistent) == (True, False)


async def test_l7_a_value_that_was_forgotten_and_put_back_is_found(pristine: Path, tmp_path: Path) -> None:
    """Who kept a copy of what was erased cannot put it back unseen, although it is what was committed to."""
    path = tmp_path / "l.db"
    book = await open_book(path)
    fact_id = await book.add(value="secret")
    with closing(sqlite3.connect(path)) as conn:
        kept = conn.execute("SELECT content, content_salt FROM sealed WHERE seq = 1").fetchone()
    await book.append(book.forget(fact_id))
    assert (await book.ledger.verify()).passed is False
    await book.ledger.close()
    with closing(sqlite3.connect(path)) as conn:
        conn.execute("UPDATE sealed SET content = ?, content_salt = ? WHERE seq = 1", kept)
        conn.commit()
    result = await checked(path)
    assert (result.intact, result.first_bad) == (False, 1)
    assert result.problem == "its content is there although it was forgotten"


def _move(conn: sqlite3.Connection, old: int, new: int) -> None:
    for table in ("events", "sealed"):
        conn.execute(f"UPDATE {table} SET seq = ? WHERE seq = ?", (new, old))


def drop(seq: int) -> Change:
    """Drop an event and close the gap."""

    def change(conn: sqlite3.Connection) -> None:
        conn.execute("DELETE FROM events WHERE seq = ?", (seq,))
        conn.execute("DELETE FROM sealed WHERE seq = ?", (seq,))
        (last,) = conn.execute("SELECT max(seq) FROM events").fetchone()
        for later in range(seq + 1, last + 1):
            _move(conn, later, later - 1)

    return change


def swap(seq: int) -> Change:
    """Swap an event with the next one."""

    def change(conn: sqlite3.Connection) -> None:
        for old, new in ((seq, 1_000), (seq + 1, seq), (1_000, seq + 1)):
            _move(conn, old, new)

    return change


def double(seq: int) -> Change:
    """Put an event in a second time, at the end."""
    end = "(SELECT max(seq) + 1 FROM events)"
    columns = f"{end}, event_id || 'x', fact_id, tx_time || 'x', hash, body"
    return sql(f"INSERT INTO events SELECT {columns} FROM events WHERE seq = ?", seq)


@pytest.mark.parametrize("how", [drop, swap])
async def test_l7_dropped_and_swapped_events(
    pristine: Path, tmp_path: Path, how: Callable[[int], Change]
) -> None:
    """Each event that is dropped or swapped with the next one is missed where it was."""
    last = len(log_of(pristine))
    for seq in range(1, last if how is swap else last + 1):
        result = await checked(changed(pristine, tmp_path, how(seq)), replay=False)
        assert (result.intact, result.first_bad) == (False, seq), (how, seq, result)


async def test_l7_a_doubled_event_and_a_cut_tail(pristine: Path, tmp_path: Path) -> None:
    """What stands behind the head, and what is missing before it, is named with its place."""
    last = len(log_of(pristine))
    for seq in (1, last // 2, last):
        result = await checked(changed(pristine, tmp_path, double(seq)), replay=False)
        assert (result.intact, result.first_bad) == (False, last + 1)
        cut = changed(pristine, tmp_path, sql("DELETE FROM events WHERE seq >= ?", seq))
        result = await checked(cut, replay=False)
        assert (result.intact, result.first_bad) == (False, seq)


def columns_of(path: Path) -> list[tuple[str, str]]:
    """Return every column of every table that is derived from the log."""
    tables = ("head", "events", "claims", "facts", "placements", "owed", "holds")
    with closing(sqlite3.connect(path)) as conn:
        return [
            (table, column[1]) for table in tables for column in conn.execute(f"PRAGMA table_info({table})")
        ]


async def test_l7_every_column_of_every_derived_row(pristine: Path, tmp_path: Path) -> None:
    """Answers that were changed beside an intact log are found, with the fact they are about."""
    for table, column in columns_of(pristine):
        if (table, column) == ("head", "one"):
            continue
        with closing(sqlite3.connect(pristine)) as conn:
            rows = conn.execute(f"SELECT * FROM {table}").fetchall()
            names = [info[1] for info in conn.execute(f"PRAGMA table_info({table})")]
        row = dict(zip(names, rows[len(rows) // 2], strict=True))
        value = row[column]
        if column in ("live", "identity_gone"):
            value = bool(value)
        if column == "seq" and table in ("facts", "events"):
            value += 1_000
        where = " AND ".join(f"{name} IS ?" for name in names)
        statement = f"UPDATE {table} SET {column} = ? WHERE {where}"
        values = (_odd(column, value), *row.values())
        copy = changed(pristine, tmp_path, sql(statement, *values))
        result = await checked(copy)
        assert result.found, (table, column, result)
        if table not in ("head", "events"):
            assert result.intact
            assert any(str(row["fact_id"]) in said for said in result.inconsistent), (table, column, result)


def _odd(column: str, value: Any) -> Any:
    return {"state": "due" if value == "held" else "held"}.get(column, other(value))


FLAGS = ["'x'", "x'00'", "2", "0.5"]


@pytest.mark.parametrize("value", FLAGS)
async def test_l7_a_flag_that_is_neither_yes_nor_no(pristine: Path, tmp_path: Path, value: str) -> None:
    """SQLite takes any value in any column, and what Python calls true a query may call false."""
    for column in ("live", "identity_gone"):
        for flag in (0, 1):
            where = f"seq = (SELECT max(seq) FROM facts WHERE {column} = {flag})"
            copy = changed(pristine, tmp_path, sql(f"UPDATE facts SET {column} = {value} WHERE {where}"))
            result = await checked(copy)
            assert (result.intact, result.consistent) == (True, False)
            assert result.inconsistent[0].endswith(": fact")


def hollow(name: str) -> Change:
    """Make an index that leaves out a row and says of itself that it does not."""

    def change(conn: sqlite3.Connection) -> None:
        (true,) = conn.execute("SELECT sql FROM sqlite_master WHERE name = ?", (name,)).fetchone()
        conn.execute(f"DROP INDEX {name}")
        conn.execute(f"{true} {'AND' if 'WHERE' in true else 'WHERE'} seq < 3")
        conn.execute("PRAGMA writable_schema = ON")
        conn.execute("UPDATE sqlite_master SET sql = ? WHERE name = ?", (true, name))
        (version,) = conn.execute("PRAGMA schema_version").fetchone()
        conn.execute(f"PRAGMA schema_version = {version + 1}")

    return change


def script(statements: str) -> Change:
    """Make some statements a change."""
    return lambda conn: conn.executescript(statements)


BUILT: dict[str, tuple[Change, str]] = {
    "an index without a row": (hollow("facts_live_space"), "missing from index facts_live_space"),
    "no index": (sql("DROP INDEX facts_subject"), "index facts_subject: missing"),
    "another index": (
        script("DROP INDEX facts_subject; CREATE INDEX facts_subject ON facts (subject) WHERE seq < 3"),
        "index facts_subject: not as this version makes it",
    ),
    "a trigger that keeps values": (
        script(
            "CREATE TABLE stash (x); CREATE TRIGGER keep AFTER INSERT ON sealed "
            "BEGIN INSERT INTO stash VALUES (new.content); END"
        ),
        "trigger keep: this version makes none",
    ),
    "a view for a table": (
        script("ALTER TABLE owed RENAME TO aside; CREATE VIEW owed AS SELECT * FROM aside"),
        "view owed: this version makes none",
    ),
}


@pytest.mark.parametrize("what", list(BUILT))
async def test_l7_a_database_that_is_built_otherwise(pristine: Path, tmp_path: Path, what: str) -> None:
    """Answers come through indexes, and a trigger or a view changes what a statement does."""
    change, said = BUILT[what]
    result = await checked(changed(pristine, tmp_path, change))
    assert (result.intact, result.consistent) == (True, False)
    assert any(said in found for found in result.inconsistent), result.inconsistent


async def test_statistics_of_a_database_are_no_finding(pristine: Path, tmp_path: Path) -> None:
    """Whoever lets SQLite count its rows changes no answer."""
    assert (await checked(changed(pristine, tmp_path, script("ANALYZE; PRAGMA optimize")))).consistent


@pytest.mark.parametrize("table", ["claims", "facts", "placements", "owed", "holds"])
async def test_l7_rows_that_are_missing_or_too_many(pristine: Path, tmp_path: Path, table: str) -> None:
    """A derived row that was dropped, and one that no event stands for, is found."""
    with closing(sqlite3.connect(pristine)) as conn:
        names = [info[1] for info in conn.execute(f"PRAGMA table_info({table})")]
        rows = conn.execute(f"SELECT fact_id FROM {table}").fetchall()
    for (fact_id,) in rows:
        gone = changed(pristine, tmp_path, sql(f"DELETE FROM {table} WHERE fact_id = ?", fact_id))
        result = await checked(gone)
        assert (result.intact, result.consistent) == (True, False)
        assert any(said.startswith(f"{fact_id}: ") for said in result.inconsistent)
    new = {"fact_id": "'zz-nobody'", "seq": "seq + 900", "id": "id + 900", "external_id": "'zz'"}
    shown = ", ".join(new.get(name, name) for name in names)
    more = changed(pristine, tmp_path, sql(f"INSERT INTO {table} SELECT {shown} FROM {table} LIMIT 1"))
    result = await checked(more)
    assert (result.intact, result.consistent) == (True, False)
    assert result.inconsistent[-1].startswith("zz-nobody: ")


async def test_l7_yesterdays_copy_is_not_complete(tmp_path: Path) -> None:
    """A ledger put back whole is intact and consistent, and yet the witness and a kept head miss its end."""
    path, backup = tmp_path / "l.db", tmp_path / "backup.db"
    book = await open_book(path)
    await book.add()
    await book.ledger.close()
    shutil.copy(path, backup)
    book = await open_book(path, prefix="2-")
    await book.add("later")
    head = await book.ledger.head()
    assert (await book.ledger.verify()).complete
    await book.ledger.close()
    shutil.copy(backup, path)
    for result in (await checked(path), await checked(path, head=head, witness=False)):
        assert (result.intact, result.consistent, result.complete) == (True, True, False)
        assert result.missing == "the ledger ends at event 1, and a head kept elsewhere is of 2"
    without = await checked(path, witness=False)
    assert without.complete is None
    assert not without.passed
    assert without.not_checked == (
        "the secret that ids of keyed writes are made with: the log does not say what it was",
        "completeness: no head was given and no witness has seen this ledger",
    )


async def test_l7_another_history_is_not_the_one_that_was_seen(tmp_path: Path) -> None:
    """A ledger made anew from an event on has other hashes from there, whatever it says."""
    path, backup = tmp_path / "l.db", tmp_path / "backup.db"
    book = await open_book(path)
    await book.add()
    await book.ledger.close()
    shutil.copy(path, backup)
    for prefix in ("2-", "3-"):
        shutil.copy(backup, path)
        book = await open_book(path, prefix=prefix)
        for _ in range(2 if prefix == "2-" else 5):
            await book.add(prefix)
        head = await book.ledger.head()
        await book.ledger.close()
        if prefix == "2-":
            seen = head
    # The second history is longer, and does not hide the first from the witness.
    for result in (await checked(path), await checked(path, head=[seen, head], witness=False)):
        assert (result.intact, result.complete) == (True, False)
        assert result.missing == "event 3 is not the one that a head kept elsewhere is of"


@pytest.mark.parametrize("statement", ["DELETE FROM head", "DROP TABLE head"])
async def test_l7_a_ledger_without_its_head(pristine: Path, tmp_path: Path, statement: str) -> None:
    """It is read to its end all the same, and that is where something is missing."""
    copy = changed(pristine, tmp_path, sql(statement))
    result = await checked(copy)
    last = len(log_of(pristine))
    assert (result.intact, result.first_bad, result.events) == (False, last + 1, last)
    assert result.problem == "the head that the ledger keeps is gone"
    both = changed(copy, tmp_path / "both", sql("UPDATE events SET hash = 'x' WHERE seq = 3"))
    assert (await checked(both)).first_bad == 3


async def test_an_empty_ledger_is_never_a_pass(tmp_path: Path) -> None:
    """There is nothing that could be whole."""
    book = await open_book(tmp_path / "l.db")
    result = await book.ledger.verify(head=Head(0, None, "0" * 64))
    assert (result.passed, result.found, result.complete) == (False, False, None)
    assert result.not_checked[-1] == "anything: the ledger has no events"
    await book.ledger.close()


async def test_a_forged_history_that_breaks_a_rule_is_found(pristine: Path, tmp_path: Path) -> None:
    """Whoever makes every hash anew still cannot have a ledger admit what no ledger admits."""
    prev = "0" * 64
    rows = []
    for doc in log_of(pristine):
        if doc["kind"] == "release":
            forged = {**doc, "data": {"hold_id": "never"}, "prev": prev}
        else:
            forged = {**doc, "prev": prev}
        body = json.dumps(forged, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        prev = hashlib.sha256(body.encode()).hexdigest()
        rows.append((body, prev, doc["seq"]))

    def change(conn: sqlite3.Connection) -> None:
        conn.executemany("UPDATE events SET body = ?, hash = ? WHERE seq = ?", rows)
        conn.execute("UPDATE head SET hash = ?", (prev,))

    result = await checked(changed(pristine, tmp_path, change))
    (place,) = [doc["seq"] for doc in log_of(pristine) if doc["kind"] == "release"]
    assert (result.intact, result.first_bad) == (False, place)
    assert result.problem == "it breaks a rule (no_such_hold)"
    assert result.head.tx_time > START
