"""A process of its own whose writers write facts one after the other, whatever becomes of the ledger."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from fix_world import ShiftedClock, open_busy_world

from custody_sync import AsyncCoordinator, Ledger
from custody_sync.errors import CustodyError
from custody_sync.runtime import Runtime


class Tally:
    """What the writers of this process were told, write by write."""

    def __init__(self) -> None:
        self.acknowledged: list[str] = []
        self.failed: list[dict[str, Any]] = []

    def __str__(self) -> str:
        return json.dumps({"acknowledged": self.acknowledged, "failed": self.failed})


class Writer:
    """Writes facts, one after the other, and corrects each second one where told to."""

    def __init__(self, custody: AsyncCoordinator, tally: Tally, me: str, corrects: bool) -> None:
        self._custody, self._tally, self._me, self._corrects = custody, tally, me, corrects

    async def write(self, number: int) -> None:
        """Write a fact, perhaps its correction, and keep what came of each."""
        subject = f"note:{self._me}:{number}"
        first = await self._state(subject, "first")
        if self._corrects and first is not None and number % 2 == 1:
            await self._state(subject, "second", supersedes=first)

    async def _state(self, subject: str, value: str, supersedes: str | None = None) -> str | None:
        said = {"space": "org", "predicate": "says", "actor": f"agent:{self._me}"}
        try:
            result = await self._custody.write(subject=subject, value=value, supersedes=supersedes, **said)
        except CustodyError as error:
            self._tally.failed.append({"code": error.code, **error.fields})
            return None
        self._tally.acknowledged.append(result.fact.fact_id)
        return result.fact.fact_id


async def main(uri: str, url: str, name: str, writers: str, corrects: str, tries: str, shift: str) -> None:
    """Write until told to stop; answer each line on standard input with the tally so far."""
    tally, stopped = Tally(), asyncio.Event()

    async def work(writer: Writer) -> None:
        number = 0
        while not stopped.is_set():
            await writer.write(number)
            number += 1

    runtime = Runtime(clock=ShiftedClock(float(shift)))
    async with (
        open_busy_world(uri) as world,
        await Ledger.open(url, runtime=runtime) as ledger,
        AsyncCoordinator(ledger, stores=world.stores, runtime=runtime, settle_tries=int(tries)) as custody,
    ):
        print("ready", flush=True)
        # Half of them only add, so that some are always between the stores and the ledger.
        writing = [
            Writer(custody, tally, f"{name}-{n}", corrects=corrects == "corrects" and n % 2 == 0)
            for n in range(int(writers))
        ]
        started = [asyncio.create_task(work(writer)) for writer in writing]
        while (line := await asyncio.to_thread(sys.stdin.readline)).strip() == "how far":
            print(tally, flush=True)
        stopped.set()
        await asyncio.gather(*started)
        print(tally, flush=True)
        assert line.strip() == "stop"


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
