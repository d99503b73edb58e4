"""Names and texts that are SQL: refused or quoted on real engines, and no statement is made of others."""

from __future__ import annotations

import ast
import re
import shutil
import sqlite3
from collections.abc import Awaitable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from fix_ledger import Book, answers_of
from fix_pgvector import DIMENSIONS, Connect, ask, case_of, store_of

from custody_sync.adapters.pgvector import ExistingTable
from custody_sync.errors import CustodyError
from custody_sync.ledger import Ledger

ROOT = Path(__file__).parents[2]
T = TypeVar("T")
HOSTILE = [
    "'); DROP TABLE bystander; --",
    '"; DROP TABLE bystander; --',
    "a' OR '1'='1",
    "$$; DROP TABLE bystander; $$",
    "{table} %s %(key)s :after ?1 ?",
    "\\'; DROP TABLE bystander; --",
    "/* */ -- \n; DELETE FROM events",
]
NAMES = [
    'x"; drop table bystander; --',
    "x; drop table bystander",
    "a b",
    'say "so"',
    "select",
    "Übung",
    "{table}",
]


async def test_a_text_that_is_sql_is_a_text(book: Book) -> None:
    """In every field of an event it comes back as it was, and every question about it answers."""
    other = await book.add()
    for text in HOSTILE:
        draft = book.state(text, text, {text: [text]}, space=text, actor=text, receipt_id=text, text=text)
        held = book.held(draft.fact_id, [(text, text)], scope=text)
        await book.append(replace(draft, placements=held))
        await book.append(book.hold(draft.fact_id, text, text))
        await book.append(book.release(draft.fact_id, text))
        (found,) = await book.ledger.as_of(space=text, subject=text, predicate=text)
        assert (found.value, found.text, found.actor, found.receipt_id) == ({text: [text]}, text, text, text)
        assert text in await book.ledger.spaces()
        assert (await book.ledger.placements(draft.fact_id))[0].external_id == text
        await book.append(book.forget(draft.fact_id, identity=True, reason=text))
    assert (await answers_of(book.ledger))["known"][other].value == "asserted"


async def refused_or(work: Awaitable[T], *codes: str) -> T | None:
    """Return what comes of it; None where it is refused with one of these codes."""
    try:
        return await work
    except CustodyError as error:
        code = error.code
    assert code in codes
    return None


async def test_a_schema_is_a_plain_identifier_or_refused(database_uri: str) -> None:
    """Nothing of another name reaches the server, and a word of SQL makes no ledger by halves."""
    await ask(database_uri, "create table bystander (n int)")
    for schema in [*NAMES, "pg_x", "a" * 64, "user", "table", "A"]:
        url = f"{database_uri}&schema={schema}"
        opening = Ledger.open(url, create=True, witness=False)
        ledger = await refused_or(opening, "invalid_input", "ledger_error", "ledger_damaged")
        if ledger is not None:
            assert await ledger.head()
            await ledger.close()
    assert await ask(database_uri, "select count(*) from bystander") == [(0,)]
    found = {name for (name,) in await ask(database_uri, "select nspname from pg_namespace")}
    made = {name for name in found if not name.startswith("pg_")} - {"information_schema", "public"}
    assert made <= {"user", "table", "select"}


async def _used(store: Any) -> bool:
    case = case_of(store)
    put = await case.put()
    assert [entry.fact_id for entry in await case.listed()] == [put.fact.fact_id]
    await case.delete(put)
    return bool(await case.said_gone(put.entries[0]))


async def _made(connect: Connect, **options: Any) -> Any:
    return store_of(connect(), **options)


async def test_a_table_of_any_name_is_quoted_or_refused(connect: Connect, database_uri: str) -> None:
    """As its own table, and as table and column of somebody's: the table beside it is as it was."""
    await ask(database_uri, "create table bystander (n int)")
    await ask(database_uri, "create extension if not exists vector")
    for name in NAMES:
        own = await refused_or(_made(connect, table=f"{name}s"), "invalid_input")
        assert own is None or await _used(own)
        quoted = '"' + name.replace('"', '""') + '"'
        columns = f"id uuid primary key, {quoted} text, meta jsonb, vec vector({DIMENSIONS})"
        await ask(database_uri, f"create table {quoted} ({columns})")
        existing = ExistingTable(id="id", text=name, embedding="vec", label="meta")
        assert await _used(await _made(connect, table=name, existing=existing))
    assert await ask(database_uri, "select count(*) from bystander") == [(0,)]


async def test_odd_names_in_an_old_file_are_quoted(tmp_path: Path) -> None:
    """Whoever had a ledger's file may have put an index of any name into it; an upgrade goes through all."""
    path = tmp_path / "custody.db"
    shutil.copy(ROOT / "tests" / "golden" / "ledger-1.db", path)
    with closing(sqlite3.connect(path)) as conn:
        for name in ("two words", 'say "so"', "x; DROP TABLE events", "select"):
            quoted = name.replace('"', '""')
            conn.execute(f'CREATE INDEX "{quoted}" ON facts (space)')
        conn.commit()
    async with await Ledger.open(f"sqlite:///{path}", witness=False) as ledger:
        assert (await ledger.verify(witness=False)).intact


# --- every place that puts a name into a statement --------------------------------------------

_VERB = re.compile(
    r"\b(SELECT|INSERT INTO|UPDATE|DELETE FROM|CREATE|DROP|ALTER|VACUUM|ATTACH|PRAGMA|COPY)\b"
    r"|\b(select|insert into|delete from|create table|create index|drop|vacuum) "
)
_CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*")
PLACES = {
    # The schema: a plain identifier, held to that where the URL is read.
    ("postgres_schema", "location.schema"),
    ("postgres_erasure", "', '.join(qualified)"),
    # Names out of a file, quoted; columns of ours.
    ("sqlite_upgrade", "_quoted(index)"),
    ("sqlite_upgrade", "_quoted(table)"),
    ("sqlite_upgrade", "table"),
    ("sqlite_upgrade", "columns"),
    # Parts that are written out a few lines above: columns, conditions, placeholders, orders.
    ("jsonl_image", "pragma"),
    ("jsonl_notes", "'FULL' if files.durable else 'OFF'"),
    ("sqlite_asof", "' AND '.join(where)"),
    ("sqlite_connection", "milliseconds"),
    ("sqlite_derived", "' UNION '.join(parts)"),
    ("sqlite_derived", "beyond"),
    ("sqlite_derived", "table"),
    ("sqlite_files", "location.synchronous"),
    ("sqlite_reads", "' AND '.join(where)"),
    ("sqlite_reads", "OWED_NOW if has_later(conn) else _OWED_BEFORE"),
    ("sqlite_reads", "columns"),
    ("sqlite_reads", "wanted"),
    ("sqlite_rows", "into"),
    ("sqlite_rows", "on_conflict"),
    ("sqlite_rows", "theirs"),
    ("sqlite_rows", "values"),
    ("sqlite_shadow", "_ERASED.format(more='')"),
    ("sqlite_shadow", "taken"),
    ("sqlite_structure", "at"),
    # Sentences that name a statement to somebody; nothing executes them.
    ("_pgvector_catalog", "named"),
    ("_pgvector_catalog", "relation.quoted"),
    ("_pgvector_catalog", "wanted"),
    ("_pgvector_residue", "layout.relation"),
    ("_pgvector_residue", "skips"),
    ("_pgvector_residue", "vacuum"),
    ("_pgvector_residue", "waits"),
}
"""What is put into the text of a statement but for constants; a new one has to be looked at, and added."""


def formatted(source: str, name: str) -> set[tuple[str, str]]:
    """Return what a module puts into texts that look like SQL, but for constants."""
    found: set[tuple[str, str]] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            said = "".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
            parts = [ast.unparse(part.value) for part in node.values if isinstance(part, ast.FormattedValue)]
            if _VERB.search(said):
                found |= {(name, part) for part in parts if not _CONSTANT.fullmatch(part)}
    return found


def test_statements_are_made_of_constants_and_checked_names() -> None:
    """No other place of the library or the adapters formats a statement."""
    files = [*(ROOT / "custody_sync").glob("*.py"), *(ROOT / "custody_sync" / "ledger").glob("*.py")]
    files += [*(ROOT / "custody_sync" / "cli").glob("*.py"), *(ROOT / "custody_sync" / "faces").glob("*.py")]
    files += [*(ROOT / "adapters").glob("*.py"), *(ROOT / "repair").glob("*.py")]
    found: set[tuple[str, str]] = set()
    for file in files:
        found |= formatted(file.read_text("utf-8"), file.stem)
    assert found - PLACES == set()
    assert PLACES - found == set(), "these are gone from the code, and go from the list"


def test_a_new_place_is_seen() -> None:
    """The check above finds a name that somebody formats into a statement."""
    planted: Any = 'def f(conn, space):\n    conn.execute(f"SELECT * FROM facts WHERE space = {space!r}")\n'
    assert formatted(planted, "planted") == {("planted", "space")}
