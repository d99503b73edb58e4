"""A process of its own that writes through a coordinator, one round at a time, when it is told to."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from typing import Any

from fix_world import open_world

from custody_sync import AsyncCoordinator, Ledger
from custody_sync.errors import SupersedeConflict
from custody_sync.faultpoints import FaultPoint
from custody_sync.runtime import Runtime


async def play(custody: AsyncCoordinator, me: str, n: int, target: str) -> dict[str, Any]:
    """Replace the round's target and write a fact of one's own, at the same time."""
    said = {"predicate": "plan", "space": "org", "actor": f"agent:{me}"}
    won, own = await asyncio.gather(
        custody.write(subject=f"acct:{n}", value=f"gold by {me}", supersedes=target, **said),
        custody.write(subject=f"note:{me}:{n}", value=f"round {n}", **said),
        return_exceptions=True,
    )
    if isinstance(own, BaseException):
        raise own
    told: dict[str, Any] = {"own": own.fact.fact_id, "won": None}
    if isinstance(won, SupersedeConflict):
        told["conflict"] = won.code
    elif isinstance(won, BaseException):
        raise won
    else:
        told |= {"won": won.fact.fact_id, "complete": won.complete}
    return told


async def main(uri: str, url: str, me: str) -> None:
    """Open everything, say so, and answer each line on standard input with one on standard output."""
    reached: Counter[str] = Counter()
    runtime = Runtime(reach=lambda point: reached.update([point]))
    async with (
        open_world(uri, setup=False) as world,
        await Ledger.open(url, runtime=runtime) as ledger,
        AsyncCoordinator(ledger, stores=world.stores, runtime=runtime) as custody,
    ):
        print(json.dumps({"ready": me}), flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            told = await play(custody, me, **json.loads(line))
            told["taken_back"] = reached[FaultPoint.BEFORE_COMPENSATION]
            print(json.dumps(told), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
