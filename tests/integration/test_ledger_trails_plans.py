"""What it costs to follow entries: an index for every step, whatever the planner knows of the tables."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from typing import Any

import pytest
from fix_ledger import Book

from custody_sync.ledger import sqlite_trails
from custody_sync.ledger.questions import Trail
from custody_sync.model import Entry

ENTRY = Entry(store="memories", external_id="m1")
TABLES = ("facts", "sealed", "claims", "placements", "events")
CHAIN = """
INSERT INTO facts (seq, fact_id, root, supersedes, space, subject, predicate, provenance, actor, tx_time,
    valid_from, effect_seq, retract_seq, live, identity_gone)
SELECT i, 'f' || i, {root},
    CASE WHEN i > 1 THEN 'f' || (i - 1) END, 'org', 'acct:42', 'plan', 'attested', 'a',
    '2026-09-01T00:00:00.000000Z', '2026-09-01T00:00:00.000000Z', i, {retracted}, {live}, {false}
FROM {numbers}
"""
KINDS = ("superseded", "retracted", "later")


def statements() -> list[str]:
    """Return every statement that a trail takes on SQLite."""
    return [getattr(sqlite_trails, name) for name in ("_OWNERS", "_FOLLOW", "_LAST", "_LINKS")]


def bound(statement: str, **values: Any) -> Any:
    """Return values for a statement's places."""
    if "?" in statement:
        return (values.get("asked", "[]"),)
    return {"roots": values.get("asked", "[]"), "head": 9, "valid_at": "2026-09-02T00:00:00.000000Z"}


@pytest.mark.storages("sqlite")
@pytest.mark.parametrize("statistics", [False, True])
async def test_sqlite_looks_everything_up(book: Book, statistics: bool) -> None:
    """No table is read from end to end, with statistics of a table of few rows or without."""
    for n in range(20):
        await book.add(f"acct:{n}", "plan", "pro", held=[("memories", f"m{n}")])
    with closing(sqlite3.connect(book.path)) as conn:
        if statistics:
            conn.execute("ANALYZE")
        for statement in statements():
            plan = [row[3] for row in conn.execute(f"EXPLAIN QUERY PLAN {statement}", bound(statement))]
            scans = [step for step in plan if step.startswith("SCAN")]
            assert all("VIRTUAL TABLE" in step or step == "SCAN r" for step in scans), plan
            assert any(step.startswith("SEARCH") for step in plan)


@pytest.mark.storages("sqlite")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_longer_chain_costs_no_more_for_each_entry(book: Book, kind: str) -> None:
    """Of a chain one link is looked for, once, however many of its entries are asked about."""
    conn = sqlite3.connect(":memory:")
    schema = sqlite3.connect(book.path)
    for (made,) in schema.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND type <> 'view'"):
        if "sqlite_" not in made.split("(")[0]:
            conn.execute(made)
    schema.close()
    steps: dict[tuple[int, int], int] = {}
    for links in (200, 400):
        conn.execute("DELETE FROM facts")
        conn.execute("DELETE FROM head")
        retracted = "CASE WHEN i > 1 THEN i END" if kind == "retracted" else "NULL"
        rows = f"SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT {links}"
        numbers = f"(WITH RECURSIVE n(i) AS ({rows}) SELECT i FROM n)"
        conn.execute(CHAIN.format(retracted=retracted, root="'f1'", live="0", false="0", numbers=numbers))
        if kind == "later":
            conn.execute("UPDATE facts SET valid_from = '2026-10-01T00:00:00.000000Z' WHERE seq > 1")
        conn.execute("INSERT INTO head VALUES (1, ?, '2026-09-01T00:00:00.000000Z', '', ?)", (links, links))
        for asked in (50, 200):
            entries = [Entry(store="m", external_id="", fact_id=f"f{n}") for n in range(1, asked + 1)]
            steps[links, asked] = counted(conn, entries, book)
    # Twice as long and four times as many entries: neither multiplies with the other.
    extra = steps[400, 50] - steps[200, 50]
    assert steps[400, 200] - steps[200, 200] <= extra + 200
    assert steps[200, 200] < 5 * steps[200, 50]
    conn.close()


def counted(conn: sqlite3.Connection, entries: list[Entry], book: Book) -> int:
    """Follow entries and return how many instructions of SQLite's that took."""
    steps = 0

    def step() -> int:
        nonlocal steps
        steps += 1
        return 0

    conn.set_progress_handler(step, 1)
    _, found = sqlite_trails.follow(conn, entries, Trail(), book.clock.now())
    conn.set_progress_handler(None, 0)
    assert len({one.fact and one.fact.fact_id for one in found}) == 1
    return steps


@pytest.mark.damages
@pytest.mark.storages("postgres")
@pytest.mark.parametrize("statistics", [False, True])
async def test_postgres_looks_everything_up(book: Book, ledger_url: str, statistics: bool) -> None:
    """No table is read from end to end, and no chain is sorted, whatever the server knows of them."""
    import psycopg

    from custody_sync.ledger.postgres_schema import prepare_session
    from custody_sync.ledger.postgres_trails import Trails

    uri, _, schema = ledger_url.partition("&schema=")
    async with await psycopg.AsyncConnection.connect(uri, autocommit=True) as conn:
        await prepare_session(conn)
        root, numbers = "'f' || (i - i % 50)", "generate_series(1, 5000) i"
        fill = CHAIN.format(root=root, retracted="NULL::bigint", live="true", false="false", numbers=numbers)
        await conn.execute(f"SET search_path = {schema}".encode())
        for table in TABLES:
            await conn.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = false)".encode())
        await conn.execute(fill.encode())
        await conn.execute(b"INSERT INTO claims SELECT fact_id, 'asserted', seq FROM facts")
        if statistics:
            for table in TABLES:
                await conn.execute(f"ANALYZE {table}".encode())
        for (name, _, _), statement in Trails(schema)._sql.items():
            # As the server keeps it for whatever is asked: its values are not known to the planner.
            rows = await conn.execute(f"EXPLAIN (GENERIC_PLAN) {statement.numbered}".encode())
            plan = [str(line) for (line,) in await rows.fetchall()]
            read = [line for line in plan if re.search(r"(Seq|Bitmap Heap) Scan on ", line)]
            assert read == [], "\n".join(plan)
            assert not any(re.search(r"Sort Key: .*effect_seq", line) for line in plan), "\n".join(plan)
            assert any("facts_chain" in line for line in plan), name
