"""Works on a new ledger over a store in memory, and says after each call which head is acknowledged."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from pathlib import Path

from custody_sync import AsyncCoordinator, Ledger
from custody_sync.testing import MemoryStore

CALLS = 36


async def main(url: str, folder: Path) -> None:
    """Write, supersede, retract and forget; every head goes into the file `acknowledged`."""
    rng, known = random.Random(11), list[str]()
    said = os.open(folder / "acknowledged", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    async with (
        await Ledger.open(url, create=True) as ledger,
        AsyncCoordinator(ledger, stores=[MemoryStore("memories")]) as custody,
    ):
        about = {"predicate": "plan", "space": "org", "actor": "agent:clerk"}
        for n in range(CALLS):
            what = rng.choice(["write", "write", "write", "supersede", "retract", "forget"])
            if what == "write" or len(known) < 3:
                told = {"subject": f"acct:{n}", "value": f"value {n} {'x' * rng.randrange(900)}"}
                known.append((await custody.write(**about, **told)).fact.fact_id)
            else:
                fact_id = known.pop(rng.randrange(len(known)))
                if what == "supersede":
                    fact = await ledger.get(fact_id)
                    assert fact is not None
                    told = {"subject": fact.subject, "value": f"value {n}", "supersedes": fact_id}
                    known.append((await custody.write(**about, **told)).fact.fact_id)
                elif what == "retract":
                    await custody.retract(fact_id, actor="agent:clerk", reason="a mistake")
                else:
                    await custody.forget(fact_id, actor="agent:clerk", reason="asked to")
            os.write(said, f"{(await ledger.head()).seq}\n".encode())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
