"""The demo's victim: it writes one memory and kills itself once the stores have it and the ledger has not."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from custody_sync.cli.demo_world import open_world
from custody_sync.coordinator import AsyncCoordinator
from custody_sync.faultpoints import FaultPoint
from custody_sync.ledger import Ledger
from custody_sync.runtime import Runtime


def die_when_stored(point: str) -> None:
    """Leave no time for a finally, an exit handler or a flush, as a power cut would not."""
    if point == FaultPoint.STORED:
        os.kill(os.getpid(), signal.SIGKILL)


async def write_and_die(ledger_url: str, uri: str, text: str) -> None:
    """Write one free text to the demo's stores and never come back."""
    runtime = Runtime(reach=die_when_stored)
    async with open_world(uri) as world:
        ledger = await Ledger.open(ledger_url, runtime=runtime, witness=False)
        async with ledger, AsyncCoordinator(ledger, stores=world.stores, runtime=runtime) as custody:
            await custody.write(value=text, space="team:support", actor="agent:triage")


if __name__ == "__main__":
    asyncio.run(write_and_die(*sys.argv[1:4]))
