"""A ledger file put back from a backup knows nothing of the writes since, and must not have them removed."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from fix_oracle import Oracle, read_log
from fix_world import AGENT, MEMORIES, ShiftedClock, World, open_world

from custody_sync import AsyncCoordinator, Ledger
from custody_sync.errors import BreakerOpen, LedgerRestored
from custody_sync.ledger import Retract
from custody_sync.model import Leftover, Outcome
from custody_sync.runtime import Runtime

CLERK, LATER = "agent:clerk", 11 * 60
REPAIR = {"actor": CLERK, "reason": "after an outage"}


@asynccontextmanager
async def opened(world: World, file: Path, clock: float = 0) -> AsyncIterator[AsyncCoordinator]:
    """Open a coordinator on both stores and a ledger file."""
    runtime = Runtime(clock=ShiftedClock(clock))
    async with (
        await Ledger.open(f"sqlite:///{file}", create=True, runtime=runtime) as ledger,
        AsyncCoordinator(ledger, stores=world.stores, runtime=runtime) as custody,
    ):
        yield custody


async def write(custody: AsyncCoordinator, n: int, value: str, **more: Any) -> str:
    """Write the plan of an account."""
    said = {"subject": f"acct:{n}", "predicate": "plan", "space": "org", "actor": CLERK}
    return (await custody.write(value=value, **said, **more)).fact.fact_id


async def test_a_ledger_put_back_from_a_backup_loses_nothing(database_uri: str, tmp_path: Path) -> None:
    """Witness and breaker stop the sweep before the first removal; with the right file all is well again."""
    file, backup, newest = (tmp_path / name for name in ("custody.db", "backup", "newest"))
    with psycopg.connect(database_uri, autocommit=True) as engine:
        oracle = Oracle(tmp_path, engine)
        async with open_world(database_uri) as world:
            async with opened(world, file) as custody:
                facts = [await write(custody, n, "silver") for n in range(6)]
                tip = await write(custody, 0, "gold", supersedes=facts[0])
                await custody.ledger.append(
                    Retract(event_id="retract", fact_id=tip, actor=CLERK, reason="no")
                )
            shutil.copy(file, backup)
            async with opened(world, file) as custody:
                # What the backup still owes is done: the correction is gone and the first plan is back.
                await custody.repair(**REPAIR)
                facts += [await write(custody, n, "bronze") for n in range(6, 12)]
                await write(custody, 1, "gold", supersedes=facts[1])
            held = oracle.held()
            shutil.move(file, newest)
            shutil.copy(backup, file)
            async with opened(world, file, LATER) as custody:
                preview = await custody.repair(**REPAIR, dry_run=True)
                orphans = [item for item in preview.repaired if item.kind is Leftover.ORPHAN]
                assert {item.outcome for item in orphans} == {Outcome.PLANNED}
                assert len(orphans) == 2 * 7
                with pytest.raises(LedgerRestored):
                    await custody.repair(**REPAIR)
                await custody.ledger.witness.accept(await custody.ledger.head())
                for limit in (None, 13):
                    with pytest.raises(BreakerOpen) as problem:
                        await custody.repair(**REPAIR, max_removals=limit)
                    assert problem.value.fields["planned"] >= len(orphans)
            assert held.items() <= oracle.held().items(), "a repair with an old ledger took something away"
            assert not [event for event in read_log(tmp_path) if event.kind == "repair"]
            shutil.move(newest, file)
            async with opened(world, file, LATER * 2) as custody:
                # The old one owed something, and has gone on: its witness has seen what this one never had.
                await custody.ledger.witness.accept(await custody.ledger.head())
                mended = await custody.repair(**REPAIR)
                now = custody.ledger.now()
            assert mended.complete
            assert {item.kind for item in mended.repaired} <= {Leftover.STRAY}
            believed = oracle.judge(now, kept=[*facts, tip])
            assert len(believed) == 12
            assert held == oracle.held()
            assert {store for store, _ in held} == {AGENT, MEMORIES}
