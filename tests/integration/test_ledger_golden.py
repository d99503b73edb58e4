"""I7: a ledger of an earlier version gives the same answers in this one."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fix_golden import GOLDEN, open_golden
from fix_ledger import Child, files_of

from custody_sync.canonical import parse
from custody_sync.errors import LedgerBroken
from custody_sync.ledger import Ledger
from custody_sync.ledger.moving import FileSource, event_line, export_lines, take_over
from custody_sync.ledger.sqlite_files import SCHEMA_VERSION
from custody_sync.ledger.storage import Identity
from custody_sync.model import ERASED_ID
from custody_sync.testing import testing_runtime


def maker() -> Any:
    """Import the script that asked the old version."""
    spec = importlib.util.spec_from_file_location("golden_maker", GOLDEN / "make_1.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


EXPORT = (GOLDEN / "ledger-1.jsonl").read_bytes()
EXPECTED: dict[str, Any] = json.loads((GOLDEN / "ledger-1.json").read_text())


def version_of(path: Path) -> int:
    """Return the schema version of a file."""
    with closing(sqlite3.connect(path)) as conn:
        return int(conn.execute("PRAGMA user_version").fetchone()[0])


def as_then(answer: Any, expected: Any) -> Any:
    """Return an answer without what answers have been given since, and with erased entries as one."""
    if isinstance(answer, dict) and isinstance(expected, dict):
        return {name: as_then(part, expected[name]) for name, part in answer.items() if name in expected}
    if isinstance(answer, list) and isinstance(expected, list) and len(answer) == len(expected):
        return [as_then(*pair) for pair in zip(answer, expected, strict=True)]
    return answer


def merged(placements: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return placements with one for all erased entries of a fact in a store, the order left open."""
    rows: dict[str, dict[str, Any]] = {}
    for row in placements:
        if row["external_id"].startswith(ERASED_ID):
            row = {**row, "external_id": ERASED_ID, "stored_at": None, "scope": None}
        rows.setdefault(json.dumps([row["store"], row["fact_id"], row["external_id"]]), row)
    return [rows[key] for key in sorted(rows)]


async def check_answers(ledger: Ledger) -> None:
    """Hold every answer against what the old version said."""
    found, expected = await maker().answers(ledger), json.loads(json.dumps(EXPECTED))
    for answers in (found, expected):
        answers["removed"] = merged(answers["removed"])
        answers["pending"] = merged(answers["pending"])
        answers["placements"] = {fact: merged(rows) for fact, rows in answers["placements"].items()}
    assert found.keys() == expected.keys()
    for question, answer in expected.items():
        assert as_then(found[question], answer) == answer, question


async def lines_of(ledger: Ledger) -> bytes:
    """Return a ledger's export."""
    return b"".join([line async for line in export_lines(ledger)])


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of the ledger of schema version 1."""
    path = tmp_path / "ledger.db"
    shutil.copy(GOLDEN / "ledger-1.db", path)
    return path


async def test_i7_an_old_ledger_is_read_as_it_is(copied: Path) -> None:
    """A reader upgrades nothing, gets every answer, and is told what it cannot compare."""
    before = files_of(copied.parent)[copied.name]
    async with await open_golden(copied, read_only=True) as ledger:
        await check_answers(ledger)
        result = await ledger.verify(await ledger.head())
        assert await lines_of(ledger) == EXPORT
    assert (result.intact, result.complete, result.consistent, result.passed) == (True, True, None, False)
    assert "older schema" in result.not_checked[-1]
    assert (files_of(copied.parent)[copied.name], version_of(copied)) == (before, 1)


async def test_i7_an_old_ledger_is_upgraded_when_it_is_opened_for_writing(copied: Path) -> None:
    """Afterwards it answers as before, its export is the same to the byte, and it verifies in full."""
    async with await open_golden(copied) as ledger:
        await check_answers(ledger)
        assert (await ledger.verify(await ledger.head())).passed
        assert await lines_of(ledger) == EXPORT
    assert version_of(copied) == SCHEMA_VERSION
    for secret in (b"secret-1", b"secret-2", b"secret-3", b"user:ada", b"user/ada"):
        assert all(secret not in data for data in files_of(copied.parent).values())


async def test_i7_the_export_of_an_old_ledger_becomes_a_ledger(tmp_path: Path) -> None:
    """The lines alone give the same answers; only the secret behind keyed ids is not in them."""
    source = FileSource("golden", EXPORT.splitlines(keepends=True))
    url, runtime = f"sqlite:///{tmp_path / 'new.db'}", testing_runtime(seed=3)
    identity = Identity(source.ledger_id, b"s" * 32)
    async with await Ledger.open(url, create=True, runtime=runtime, identity=identity) as ledger:
        await take_over(source, ledger)
    async with await open_golden(tmp_path / "new.db") as ledger:
        asked = await maker().answers(ledger)
        assert (await ledger.verify()).passed
        assert await lines_of(ledger) == EXPORT
    for question in ("believed", "claimed", "facts", "history", "owed", "spaces", "known", "head"):
        assert as_then(asked[question], EXPECTED[question]) == EXPECTED[question], question


async def test_an_upgrade_that_finds_a_changed_log_changes_nothing(copied: Path) -> None:
    """The place is named, and the ledger is still there to be read."""
    with closing(sqlite3.connect(copied)) as conn:
        conn.execute("UPDATE events SET body = replace(body, 'court', 'caurt') WHERE seq = 11")
        conn.commit()
    with pytest.raises(LedgerBroken) as caught:
        await open_golden(copied)
    assert caught.value.seq == 11
    assert version_of(copied) == 1
    async with await open_golden(copied, read_only=True) as ledger:
        assert (await ledger.verify()).first_bad == 11


async def test_a_crash_in_an_upgrade_leaves_the_old_version(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The upgrade is one transaction: what dies inside it has done nothing, and the next one does it."""

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("custody_sync.ledger.sqlite_upgrade.restore", die)
        with pytest.raises(KeyboardInterrupt):
            await open_golden(copied)
    assert version_of(copied) == 1
    async with await open_golden(copied) as ledger:
        assert (await ledger.verify(await ledger.head())).passed


async def test_two_processes_upgrade_one_ledger(copied: Path) -> None:
    """One of them does it, both append, and nothing is lost."""
    children = [Child("append", copied, name, 3) for name in ("a", "b")]
    for child in children:
        child.go()
    reports = await asyncio.gather(*(asyncio.to_thread(child.report) for child in children))
    assert len(reports) == 2
    async with await open_golden(copied, read_only=True) as ledger:
        head = await ledger.head()
        assert head.seq == EXPECTED["head"]["seq"] + 6
        assert (await ledger.verify(head)).passed


def test_a_line_of_an_export_is_canonical() -> None:
    """What is read from a line and written again is that line."""
    lines = EXPORT.splitlines(keepends=True)
    assert len(lines) == EXPECTED["head"]["seq"] + 1
    for line in lines[1:]:
        assert event_line(parse(line)) == line
