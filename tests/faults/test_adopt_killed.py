"""Adopting and filling killed with SIGKILL, again and again: one fact an entry, one entry a fact."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fix_world import ShiftedClock
from langgraph.store.sqlite import SqliteStore

from custody_sync import AsyncCoordinator, Ledger
from custody_sync.faultpoints import FaultPoint
from custody_sync.removal import Patience
from custody_sync.runtime import Runtime

CHILD = Path(__file__).with_name("adopt_child.py")
COUNT = 24
LATER = timedelta(minutes=20).total_seconds()


def start(folder: Path, operation: str, point: str = "none") -> subprocess.Popen[str]:
    """Start a process that does it."""
    arguments = [sys.executable, str(CHILD), str(folder), operation, point]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


def killed(folder: Path, operation: str, point: str) -> None:
    """Have one killed at a point."""
    process = start(folder, operation, point)
    process.communicate(timeout=60)
    assert process.returncode == -9, f"{point} was never reached"


def done(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Return what one said that came to its end."""
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    answer: dict[str, Any] = json.loads(said)
    return answer


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    """A folder with a ledger and a store that was there before."""
    async with await Ledger.open(f"sqlite:///{tmp_path / 'custody.db'}", create=True, witness=False):
        pass
    with SqliteStore.from_conn_string(str(tmp_path / "old.db")) as raw:
        raw.setup()
        for n in range(COUNT):
            raw.put(("memories", f"{n % 3}"), f"key-{n}", {"text": f"memory {n}", "topic": "x"})
    # Made here: two processes that make one store's tables at once fail in the vendor's own migration.
    with SqliteStore.from_conn_string(str(tmp_path / "new.db")) as raw:
        raw.setup()
    return tmp_path


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[tuple[AsyncCoordinator, dict[str, list[Any]]]]:
    """Open all of it twenty minutes later, with what the stores hold."""
    sys.path.insert(0, str(CHILD.parent))
    try:
        from adopt_child import open_stores
    finally:
        sys.path.remove(str(CHILD.parent))
    runtime = Runtime(clock=ShiftedClock(LATER))
    with ExitStack() as stack:
        stores = open_stores(stack, folder)
        async with (
            await Ledger.open(f"sqlite:///{folder / 'custody.db'}", runtime=runtime, witness=False) as ledger,
            AsyncCoordinator(
                ledger, stores=stores, runtime=runtime, patience=Patience(questions=1)
            ) as custody,
        ):
            held = {store.name: [entry async for entry in store.list_with_text()] for store in stores}
            yield custody, held


@pytest.mark.parametrize("point", [FaultPoint.RECORDED, FaultPoint.AFTER_COMMIT])
async def test_killed_while_adopting(folder: Path, point: str) -> None:
    """Twice killed and run again, every entry is one labelled fact; no sweep takes one in between."""
    killed(folder, "adopt", f"{point}#1")
    async with opened(folder) as (custody, held):
        assert (await custody.repair(actor="ops", reason="between")).repaired == ()
        assert len(held["old"]) == COUNT
    if await _is_open(folder):
        killed(folder, "adopt", f"{point}#1")
    assert done(start(folder, "adopt"))["complete"] is True
    async with opened(folder) as (custody, held):
        facts = await custody.ledger.as_of(limit=1000)
        assert sorted(str(fact.text) for fact in facts) == sorted(f"memory {n}" for n in range(COUNT))
        labelled = {entry.fact_id: entry.text for entry in held["old"]}
        assert labelled == {fact.fact_id: fact.text for fact in facts}
        assert {fact.space for fact in facts} == {"user:0", "user:1", "user:2"}
        assert (await custody.repair(actor="ops", reason="after")).repaired == ()


async def _is_open(folder: Path) -> bool:
    """Tell whether there is an entry left that no fact stands for."""
    async with opened(folder) as (custody, _):
        return len(await custody.ledger.as_of(limit=1000)) < COUNT


async def test_two_processes_adopt_at_once(folder: Path) -> None:
    """Both come to their end, and together they adopt each entry once."""
    one, two = start(folder, "adopt"), start(folder, "adopt")
    answers = await asyncio.gather(asyncio.to_thread(done, one), asyncio.to_thread(done, two))
    assert sum(answer["adopted"] for answer in answers) == COUNT
    assert [answer["complete"] for answer in answers] == [True, True]
    async with opened(folder) as (custody, held):
        assert len(await custody.ledger.as_of(limit=1000)) == COUNT == len(held["old"])


async def test_killed_while_filling(folder: Path) -> None:
    """Twice killed and run again, the new store holds every fact; what was not recorded the sweep removes."""
    assert done(start(folder, "adopt"))["adopted"] == COUNT
    for _ in range(2):
        killed(folder, "backfill", f"{FaultPoint.RESTORED}#1")
    one, two = start(folder, "backfill"), start(folder, "backfill")
    answers = await asyncio.gather(asyncio.to_thread(done, one), asyncio.to_thread(done, two))
    assert [answer["complete"] for answer in answers] == [True, True]
    async with opened(folder) as (custody, _):
        result = await custody.repair(actor="ops", reason="after", max_removals=COUNT * 4)
        assert result.complete, result
    async with opened(folder) as (custody, held):
        facts = {fact.fact_id for fact in await custody.ledger.as_of(limit=1000)}
        assert sorted(facts) == sorted(str(entry.fact_id) for entry in held["new"])
        assert (len(facts), len(held["old"])) == (COUNT, COUNT)
