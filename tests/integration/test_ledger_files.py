"""Opening ledger files: what is there is named, what is not ours stays as it is, odd names are names."""

from __future__ import annotations

import os
import sqlite3
import stat
from pathlib import Path
from typing import Any

import pytest
from fix_ledger import open_book

from custody_sync.errors import (
    CustodyError,
    InvalidInput,
    LedgerDamaged,
    LedgerError,
    LedgerNotFound,
    LedgerTooNew,
)
from custody_sync.ledger import Ledger
from custody_sync.ledger.sqlite_files import SCHEMA_VERSION

ODD = [
    "50% off",
    "a#b",
    "what?",
    "x%41y",
    "a space",
    "~x",
    "ü\U0001f600",
    "a'b",
    'a"b',
    "a;b&c=d",
    "-x",
]


def tree(folder: Path) -> dict[str, Any]:
    """Return everything below a folder: names, bytes and modes."""
    return {
        str(path.relative_to(folder)): (path.read_bytes() if path.is_file() else None, path.lstat().st_mode)
        for path in sorted(folder.rglob("*"))
    }


async def refused(url: str, error: type[CustodyError] = LedgerError, **options: Any) -> str:
    """Open a ledger that cannot be opened and return the sentence."""
    with pytest.raises(error) as caught:
        await Ledger.open(url, **options)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert len(sentence) < 400
    return sentence


async def made(path: Path) -> str:
    """Make a ledger with one fact and return the fact's id."""
    book = await open_book(path)
    fact_id = await book.add()
    await book.ledger.close()
    return fact_id


# --- names -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ODD)
async def test_p10_a_path_is_taken_literally(tmp_path: Path, name: str) -> None:
    """Percent, hash, question mark, tilde and the like mean themselves, and no other file appears (P10)."""
    folder = tmp_path / name
    folder.mkdir()
    fact_id = await made(folder / f"{name}.db")
    assert sorted(tree(tmp_path)) == [name, f"{name}/{name}.db"]
    book = await open_book(folder / f"{name}.db", create=False)
    assert (await book.values(), book.ledger.name) == (["pro"], str(folder / f"{name}.db"))
    assert await book.ledger.get(fact_id)
    await book.ledger.close()
    assert sorted(tree(tmp_path)) == [name, f"{name}/{name}.db"]


@pytest.mark.parametrize("name", ODD)
async def test_p10_a_path_with_one_letter_wrong_is_an_error(tmp_path: Path, name: str) -> None:
    """Nothing is created by a mistyped path."""
    folder = tmp_path / name
    folder.mkdir()
    await made(folder / "l.db")
    before = tree(tmp_path)
    for wrong in (folder / "m.db", tmp_path / f"{name}x" / "l.db", folder / "l.db" / "l.db"):
        sentence = await refused(f"sqlite:///{wrong}", LedgerNotFound)
        assert "create" in sentence
    assert tree(tmp_path) == before


async def test_p10_a_relative_path_begins_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is fixed when the ledger is opened: a later change of folder changes nothing."""
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path / "a")
    ledger = await Ledger.open("sqlite:///l.db", create=True)
    monkeypatch.chdir(tmp_path)
    assert await ledger.as_of() == []
    assert ledger.name == str(tmp_path / "a" / "l.db")
    await ledger.close()
    assert sorted(tree(tmp_path)) == ["a", "a/l.db"]


async def test_a_path_of_several_lines_is_named_on_one(tmp_path: Path) -> None:
    """A name that would break a message is escaped in it, and is a name all the same."""
    (tmp_path / "a\nb").mkdir()
    assert r"a\nb/m.db" in await refused(f"sqlite:///{tmp_path}/a\nb/m.db", LedgerNotFound)
    await made(tmp_path / "a\nb" / "l.db")
    assert sorted(tree(tmp_path)) == ["a\nb", "a\nb/l.db"]


async def test_a_link_leads_to_its_file(tmp_path: Path) -> None:
    """A symbolic link is followed, and the log lies beside the file itself."""
    (tmp_path / "real").mkdir()
    await made(tmp_path / "real" / "l.db")
    (tmp_path / "link.db").symlink_to(tmp_path / "real" / "l.db")
    book = await open_book(tmp_path / "link.db", create=False, prefix="2-")
    await book.add()
    assert sorted(tree(tmp_path)) == ["link.db", "real", "real/l.db", "real/l.db-shm", "real/l.db-wal"]
    await book.ledger.close()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "is sqlite:///custody.db, jsonl:///"),
        ("custody.db", "is sqlite:///custody.db, jsonl:///"),
        ("sqlite:custody.db", "is sqlite:///custody.db, jsonl:///"),
        ("sqlite://", "sqlite:///relative.db or sqlite:////absolute/path.db"),
        ("sqlite:///", "sqlite:///relative.db or sqlite:////absolute/path.db"),
        ("sqlite://svc:pw-7Q@x/led", "sqlite:///relative.db"),
        ("postgresql:/svc:pw-7Q@db.invalid/led", "is sqlite:///custody.db, jsonl:///"),
        ("postgress://svc:pw-7Q@db.invalid/led", "postgress"),
        ("postgresql://svc:pw-7Q%@127.0.0.1/led", "a Postgres ledger URL is postgresql://user"),
        ("sqlite:///a\x00b.db", "NUL"),
        (7, "must be a URL"),
    ],
)
async def test_p12_a_bad_url_is_one_sentence_without_secrets(url: Any, said: str) -> None:
    """The URL is never repeated, since it may hold a password (P12)."""
    for create in (False, True):
        sentence = await refused(url, InvalidInput, create=create)
        assert said in sentence
        assert "pw-7Q" not in sentence


# --- what is there ---------------------------------------------------------------------------


async def test_new_files_are_their_owners_only(tmp_path: Path) -> None:
    """The ledger, its log and its shared memory are 0600, whatever the umask says."""
    old = os.umask(0)
    try:
        book = await open_book(tmp_path / "l.db")
        await book.add()
        found = tree(tmp_path)
        await book.ledger.close()
    finally:
        os.umask(old)
    modes = {name: stat.S_IMODE(mode) for name, (_, mode) in found.items()}
    assert modes == {"l.db": 0o600, "l.db-wal": 0o600, "l.db-shm": 0o600}


@pytest.mark.parametrize(("option", "level"), [("", 2), ("?synchronous=normal", 1), ("?synchronous=off", 0)])
async def test_durability_and_erasure_rest_on_these_pragmas(tmp_path: Path, option: str, level: int) -> None:
    """WAL, a full sync unless the URL says otherwise, freed pages overwritten, no temporary files."""
    ledger = await Ledger.open(f"sqlite:///{tmp_path}/l.db{option}", create=True)
    storage: Any = ledger._storage
    found = {
        name: storage._writer.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("journal_mode", "synchronous", "secure_delete", "temp_store", "busy_timeout")
    }
    await ledger.close()
    assert found == {
        "journal_mode": "wal",
        "synchronous": level,
        "secure_delete": 1,
        "temp_store": 2,
        "busy_timeout": 30_000,
    }


async def test_create_opens_an_existing_ledger_as_it_is(tmp_path: Path) -> None:
    """Creating twice keeps the id and the facts."""
    book = await open_book(tmp_path / "l.db")
    await book.add()
    again = await open_book(tmp_path / "l.db", seed=9)
    assert (again.ledger.ledger_id, await again.values()) == (book.ledger.ledger_id, ["pro"])
    await book.ledger.close()
    await again.ledger.close()


async def test_create_makes_no_folder(tmp_path: Path) -> None:
    """A missing folder is more often a typing error than a wish."""
    sentence = await refused(f"sqlite:///{tmp_path}/missing/l.db", create=True)
    assert "its folder does not exist" in sentence
    assert tree(tmp_path) == {}


def foreign(path: Path, mode: str) -> None:
    """Make a database of somebody else's, in a journal mode of theirs."""
    conn = sqlite3.connect(path)
    conn.execute(f"PRAGMA journal_mode = {mode}")
    conn.execute("CREATE TABLE events (x)")
    conn.execute("INSERT INTO events VALUES (1)")
    conn.commit()
    conn.close()


def newer(path: Path) -> None:
    """Make a ledger of a version that is not known yet."""
    conn = sqlite3.connect(path)
    conn.execute("PRAGMA application_id = 0x43535931")
    conn.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    conn.execute("CREATE TABLE events (x)")
    conn.close()


MAKERS: dict[str, Any] = {
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("subject,predicate\n"),
    "magic only": lambda path: path.write_bytes(b"SQLite format 3\x00"),
    "foreign": lambda path: foreign(path, "DELETE"),
    "foreign wal": lambda path: foreign(path, "WAL"),
    "newer": newer,
    "folder": lambda path: path.mkdir(),
    "pipe": lambda path: os.mkfifo(path),
}


# An empty file is where a ledger may be created.
CASES = [
    (kind, options)
    for kind in MAKERS
    for options in ({}, {"read_only": True}, {"create": True})
    if kind != "empty" or "create" not in options
]


@pytest.mark.parametrize(("kind", "options"), CASES)
async def test_what_is_no_ledger_is_named_and_left_alone(
    tmp_path: Path, kind: str, options: dict[str, bool]
) -> None:
    """Not a byte of it changes and nothing appears beside it, also when a ledger was to be created there."""
    path = tmp_path / "l.db"
    MAKERS[kind](path)
    before = tree(tmp_path) if kind != "pipe" else None
    error = LedgerTooNew if kind == "newer" else LedgerDamaged
    sentence = await refused(f"sqlite:///{path}", error, **options)
    assert str(path) in sentence
    assert before is None or tree(tmp_path) == before


async def test_a_ledger_cut_short_is_named_and_left_alone(tmp_path: Path) -> None:
    """However much of it is missing."""
    path = tmp_path / "l.db"
    book = await open_book(path)
    for i in range(60):
        await book.add(value="x" * 500, text=f"{i}")
    await book.ledger.close()
    whole = path.read_bytes()
    for size in (50, 512, 4096, len(whole) // 2, len(whole) - 4096, len(whole) - 1):
        path.write_bytes(whole[:size])
        before = tree(tmp_path)
        for options in ({}, {"read_only": True}, {"create": True}):
            await refused(f"sqlite:///{path}", LedgerDamaged, **options)
        assert tree(tmp_path) == before


async def test_a_damaged_ledger_gives_one_clear_error_and_is_not_made_worse(tmp_path: Path) -> None:
    """Wherever bytes are wrong: an answer or LedgerDamaged, never another exception, never a change."""
    path = tmp_path / "l.db"
    book = await open_book(path)
    for i in range(40):
        await book.add(f"acct:{i}", value={"n": i, "x": "x" * 300})
    ids = [fact.fact_id for fact in await book.ledger.as_of()]
    await book.ledger.close()
    whole = path.read_bytes()
    damaged = 0
    for page in range(len(whole) // 4096):
        broken = bytearray(whole)
        broken[page * 4096 + 100 * (page == 0) : page * 4096 + 400] = b"\xa5" * (400 - 100 * (page == 0))
        for start in range(page * 4096 + 1000, page * 4096 + 4096, 700):
            broken[start : start + 40] = b"\xff\x00{" * 13 + b"!"
        path.write_bytes(broken)
        before = path.read_bytes()
        try:
            ledger = await Ledger.open(f"sqlite:///{path}", read_only=True)
        except LedgerDamaged:
            damaged += 1
            continue
        said = await errors_of(ledger, ids)
        damaged += len(said)
        assert not any("xxx" in sentence or "\n" in sentence for sentence in said)
        await ledger.close()
        assert path.read_bytes() == before
    assert damaged > 10


async def errors_of(ledger: Ledger, ids: list[str]) -> list[str]:
    """Ask everything there is to ask and return what went wrong."""
    said: list[str] = []

    async def export() -> None:
        _ = [row async for row in ledger.export()]

    for read in (
        lambda: ledger.as_of(include_claimed=True),
        lambda: ledger.get(ids[7]),
        lambda: ledger.history(ids[7]),
        lambda: ledger.known(ids),
        ledger.pending,
        ledger.spaces,
        ledger.head,
        export,
    ):
        try:
            await read()
        except LedgerDamaged as error:
            said.append(str(error))
    return said


@pytest.mark.parametrize("what", ["settings", "head", "facts"])
async def test_a_ledger_without_its_rows_is_damaged(tmp_path: Path, what: str) -> None:
    """Missing rows and tables are named as damage, on reading and on appending."""
    path = tmp_path / "l.db"
    await made(path)
    conn = sqlite3.connect(path)
    conn.execute(f"DELETE FROM {what}" if what != "facts" else "DROP TABLE facts")
    conn.commit()
    conn.close()
    if what == "settings":
        await refused(f"sqlite:///{path}", LedgerDamaged)
        return
    book = await open_book(path, create=False, prefix="2-")
    for call in (book.ledger.as_of, lambda: book.append(book.state())):
        with pytest.raises(LedgerError) as caught:
            await call()
        assert caught.value.code == "ledger_damaged"
    await book.ledger.close()
