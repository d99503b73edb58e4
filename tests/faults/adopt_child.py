"""A process that adopts or fills, and is killed where it was told to: FOLDER, OPERATION, POINT#N or none."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from langgraph.store.sqlite import SqliteStore

from custody_sync import AsyncCoordinator, Ledger
from custody_sync.adapters.langgraph import LangGraphStore
from custody_sync.removal import Patience
from custody_sync.runtime import Runtime
from custody_sync.testing.faults import Crash, FaultPlan

ACTOR = "agent:adopter"


def open_stores(stack: ExitStack, folder: Path) -> list[LangGraphStore]:
    """Open the store that was there before and the one that came later."""
    made: list[LangGraphStore] = []
    for name in ("old", "new"):
        raw = stack.enter_context(SqliteStore.from_conn_string(str(folder / f"{name}.db")))
        raw.conn.execute("pragma busy_timeout = 20000")
        raw.setup()
        made.append(LangGraphStore(raw, name=name))
    return made


async def work(folder: Path, operation: str, runtime: Runtime) -> dict[str, Any]:
    """Do one operation and say what came of it."""
    with ExitStack() as stack:
        stores = open_stores(stack, folder)
        url = f"sqlite:///{folder / 'custody.db'}"
        async with (
            await Ledger.open(url, runtime=runtime, witness=False) as ledger,
            AsyncCoordinator(
                ledger, stores=stores, runtime=runtime, patience=Patience(questions=1)
            ) as custody,
        ):
            if operation == "adopt":
                told: dict[str, Any] = {"space": "user:{scope[1]}", "provenance": "attested"}
                done = await custody.adopt("old", actor=ACTOR, dry_run=False, **told)
                return {"adopted": done.adopted, "labelled": done.labelled, "complete": done.complete}
            filled = await custody.backfill("new", actor=ACTOR, dry_run=False)
            return {"placed": filled.placed, "complete": filled.complete}


def main() -> None:
    """Run as the command line says."""
    folder, operation, point = sys.argv[1:]
    plan = FaultPlan()
    if point != "none":
        crash = Crash.parse(point)
        plan.kill(crash.point, at=crash.at)
    print(json.dumps(asyncio.run(work(Path(folder), operation, Runtime(reach=plan)))))


if __name__ == "__main__":
    main()
