"""I7: a ledger gives the same answers in every later version."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fix_golden import GOLDENS, Golden, open_golden
from fix_ledger import Child, files_of

from custody_sync.canonical import parse
from custody_sync.errors import LedgerBroken
from custody_sync.ledger import Ledger
from custody_sync.ledger.moving import FileSource, event_line, export_lines, take_over
from custody_sync.ledger.sqlite_files import SCHEMA_VERSION
from custody_sync.ledger.storage import Identity
from custody_sync.model import ERASED_ID, Entry
from custody_sync.testing import ManualClock, testing_runtime

OLDER = tuple(golden for golden in GOLDENS if golden.version < SCHEMA_VERSION)


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


async def check_answers(golden: Golden, ledger: Ledger, clock: ManualClock, *but: str) -> None:
    """Hold every answer, but to some questions, against what the code of its time said."""
    found, expected = json.loads(json.dumps(await golden.asked(ledger, clock))), golden.expected
    for answers in (found, expected) if golden.version == 1 else ():
        answers["removed"] = merged(answers["removed"])
        answers["pending"] = merged(answers["pending"])
        answers["placements"] = {fact: merged(rows) for fact, rows in answers["placements"].items()}
    assert found.keys() == expected.keys()
    for question in expected.keys() - set(but):
        assert as_then(found[question], expected[question]) == expected[question], question


async def lines_of(ledger: Ledger) -> bytes:
    """Return a ledger's export."""
    return b"".join([line async for line in export_lines(ledger)])


@pytest.fixture(params=GOLDENS, ids=str)
def golden(request: pytest.FixtureRequest) -> Golden:
    """Each golden ledger, unless a test is about those of earlier versions."""
    made: Golden = request.param
    return made


@pytest.fixture
def clock(golden: Golden) -> ManualClock:
    """A clock that stands where it stood when the golden ledger was closed."""
    return ManualClock(golden.made)


@pytest.fixture
def copied(golden: Golden, tmp_path: Path) -> Path:
    """A copy of the golden ledger."""
    path = tmp_path / "ledger.db"
    shutil.copy(golden.path, path)
    return path


async def test_i7_a_golden_ledger_is_read_as_it_is(golden: Golden, clock: ManualClock, copied: Path) -> None:
    """A reader upgrades nothing, gets every answer, and is told what it cannot compare in an older one."""
    before = files_of(copied.parent)[copied.name]
    async with await open_golden(copied, clock=clock, read_only=True) as ledger:
        await check_answers(golden, ledger, clock)
        result = await ledger.verify(await ledger.head())
        assert await lines_of(ledger) == golden.export
    assert (result.intact, result.complete) == (True, True)
    if golden in OLDER:
        assert (result.consistent, result.passed) == (None, False)
        assert "older schema" in result.not_checked[-1]
    else:
        assert (result.consistent, result.passed) == (True, True)
    assert (files_of(copied.parent)[copied.name], version_of(copied)) == (before, golden.version)


async def test_i7_a_golden_ledger_is_upgraded_when_it_is_opened_for_writing(
    golden: Golden, clock: ManualClock, copied: Path
) -> None:
    """Afterwards it answers as before, its export is the same to the byte, and it verifies in full."""
    async with await open_golden(copied, clock=clock) as ledger:
        await check_answers(golden, ledger, clock)
        assert (await ledger.verify(await ledger.head())).passed
        assert await lines_of(ledger) == golden.export
    assert version_of(copied) == SCHEMA_VERSION
    for secret in golden.erased:
        assert all(secret not in data for data in files_of(copied.parent).values())


async def test_i7_the_export_of_a_golden_ledger_becomes_a_ledger(
    golden: Golden, clock: ManualClock, ledger_url: str
) -> None:
    """On every storage the lines alone give the same answers; the secret behind keyed ids is not in them."""
    source = FileSource("golden", golden.export.splitlines(keepends=True))
    identity = Identity(source.ledger_id, b"s" * 32)
    runtime = testing_runtime(clock=clock, seed=3)
    async with await Ledger.open(ledger_url, create=True, runtime=runtime, identity=identity) as ledger:
        await take_over(source, ledger)
    async with await Ledger.open(ledger_url, runtime=runtime) as ledger:
        await check_answers(golden, ledger, clock, "keyed_id")
        assert (await ledger.verify()).passed
        assert await lines_of(ledger) == golden.export


@pytest.mark.parametrize("golden", GOLDENS[:1], ids=str)
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


@pytest.mark.parametrize("golden", OLDER, ids=str)
async def test_a_crash_in_an_upgrade_leaves_the_old_version(
    golden: Golden, copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The upgrade is one transaction: what dies inside it has done nothing, and the next one does it."""

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("custody_sync.ledger.sqlite_upgrade.restore", die)
        with pytest.raises(KeyboardInterrupt):
            await open_golden(copied)
    assert version_of(copied) == golden.version
    async with await open_golden(copied) as ledger:
        assert (await ledger.verify(await ledger.head())).passed


@pytest.mark.parametrize("golden", OLDER, ids=str)
async def test_two_processes_upgrade_one_ledger(golden: Golden, copied: Path) -> None:
    """One of them does it, both append, and nothing is lost."""
    children = [Child("append", copied, name, 3) for name in ("a", "b")]
    for child in children:
        child.go()
    reports = await asyncio.gather(*(asyncio.to_thread(child.report) for child in children))
    assert len(reports) == 2
    async with await open_golden(copied, read_only=True) as ledger:
        head = await ledger.head()
        assert head.seq == golden.expected["head"]["seq"] + 6
        assert (await ledger.verify(head)).passed


def test_a_line_of_an_export_is_canonical(golden: Golden) -> None:
    """What is read from a line and written again is that line."""
    lines = golden.export.splitlines(keepends=True)
    assert len(lines) == golden.expected["head"]["seq"] + 1
    for line in lines[1:]:
        assert event_line(parse(line)) == line


async def trails_of(ledger: Ledger, golden: Golden) -> list[Any]:
    """Ask where every id and every entry on record leads, and for every chain, now and at each event."""
    ids = [*golden.expected["known"], "nobody"]
    entries = [Entry(store="memories", external_id="", fact_id=fact_id) for fact_id in ids]
    for fact_id in ids:
        entries += [
            Entry(store=row.store, external_id=row.external_id, scope=row.scope)
            for row in await ledger.placements(fact_id)
            if not row.external_id.startswith(ERASED_ID)
        ]
    times = {event.tx_time for fact_id in ids for event in await ledger.history(fact_id)}
    asked: list[dict[str, Any]] = [{}, *({"tx_at": at} for at in sorted(times)[::4])]
    asked += [{"valid_at": at} for at in sorted(times)[::8]]
    return [(await ledger.follow(entries, **when), await ledger.links(ids, **when)) for when in asked] + [
        await ledger.follow(entries, include_claimed=True)
    ]


async def test_i7_entries_of_a_golden_ledger_are_followed_as_it_is(
    golden: Golden, clock: ManualClock, copied: Path
) -> None:
    """A ledger of an older schema that may only be read answers as it does once it was upgraded."""
    async with await open_golden(copied, clock=clock, read_only=True) as ledger:
        assert ledger.ledger_id == golden.expected["ledger_id"]
        found = await trails_of(ledger, golden)
        believed = {fact.fact_id: fact for fact in await ledger.as_of(limit=1000)}
    assert version_of(copied) == golden.version
    (_, led), (_, chains) = found[0]
    assert {one.fact.fact_id: one.fact for one in led if one.fact is not None} == believed
    assert any(len(chain) > 1 for chain in chains)
    async with await open_golden(copied, clock=clock) as ledger:
        assert await trails_of(ledger, golden) == found
    assert version_of(copied) == SCHEMA_VERSION
