"""A process that verifies a ledger and is killed on the way: `verify_child.py LEDGER STORE AFTER`.

The store is a file, one removed entry a line of it that is still there; every question is a line in a log.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from custody_sync import AsyncCoordinator
from custody_sync.ledger import Ledger
from custody_sync.model import Entry, Fact, Label
from custody_sync.repair import verify


class FileStore:
    """A store of which everything was removed; it notes what it is asked, and kills its process."""

    name = "file"

    def __init__(self, log: Path, after: int) -> None:
        self._log = log
        self._left = after

    async def put(self, fact: Fact, label: Label) -> list[str]:
        """Take anything."""
        return [label.key]

    async def delete(self, entry: Entry) -> None:
        """Nothing is there."""

    async def verify_deleted(self, entry: Entry) -> bool:
        """Note the question; die at the last one."""
        with self._log.open("a") as file:
            file.write(f"{entry.fact_id}\n")
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return True


async def main(url: str, log: str, after: int) -> None:
    """Verify, going on with what was stopped, and say what came of it."""
    verify.PAGE = 10
    verify.CONCURRENCY = 1
    async with (
        await Ledger.open(url) as ledger,
        AsyncCoordinator(ledger, stores=[FileStore(Path(log), after)]) as custody,
    ):
        result = await custody.verify(actor="ops", resume=True)
    print(result.asked, result.complete, len(result.parts), sum(part.asked for part in result.parts))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
