"""Clients that record what they asked and what they were told: one parent forks them, and kills some.

An order is a line of JSON on standard input, and its answer a line on standard output. A client opens
its own ledger and connections and writes a history into a file of its own: a line before each call and
one after its answer. What has a line before it alone was cut off, and nobody knows what came of it.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fix_world import DIMENSIONS, EMBED, MEMORIES
from psycopg_pool import AsyncConnectionPool

from custody_sync import AsyncCoordinator, Ledger
from custody_sync.adapters.pgvector import PgVectorStore
from custody_sync.errors import CustodyError
from custody_sync.ledger import jsonl, postgres, sqlite
from custody_sync.model import Fact, read_instant
from custody_sync.runtime import Runtime

LOADED = (jsonl, postgres, sqlite)
"""Imported before anything is forked, so that no client has to."""
SUBJECTS, KEYS = 3, 3
FAR = read_instant("2100-01-01T00:00:00Z")
UNKNOWN = {"ledger_unavailable", "outcome_unknown"}
"""What says that nobody knows."""
READS = {"read", "recall"}


@dataclass
class Client:
    """One process: its coordinator, its history, and the facts that it has heard of."""

    name: str
    custody: AsyncCoordinator
    ledger: Ledger
    history: int
    rng: random.Random
    facts: dict[str, Fact] = field(default_factory=dict)
    holds: list[tuple[str, str]] = field(default_factory=list)
    made: int = 0

    def note(self, **said: Any) -> None:
        """Write one line of the history."""
        os.write(self.history, json.dumps(said).encode() + b"\n")

    async def head(self) -> int:
        """Return the head that the ledger tells."""
        return (await self.ledger.head()).seq

    async def call(self, operation: str) -> None:
        """Make one call and record it."""
        receipt = f"{self.name}-{self.made + 1}"
        asked = self.ask(operation, receipt)
        if asked is None:
            return
        self.made += 1
        low = await self.head()
        receipt = asked.pop("receipt", receipt)
        self.note(operation=operation, receipt=receipt, asked=asked, low=low, began=time.monotonic_ns())
        try:
            answer = await WORKS[operation](self, receipt, asked)
        except CustodyError as error:
            outcome = "unknown" if error.code in UNKNOWN else "failed"
            answer = {"code": error.code}
        else:
            outcome = "acknowledged"
        ended = time.monotonic_ns()
        high = await self.head()
        self.note(outcome=outcome, ended=ended, high=high, looked=time.monotonic_ns(), **answer)

    def ask(self, operation: str, receipt: str) -> dict[str, Any] | None:
        """Return what a call is about; nothing where there is nothing to ask yet."""
        if operation in READS:
            return {}
        if operation in ("write", "claim"):
            return {"value": f"value {receipt}", "subject": f"acct:{self.rng.randrange(SUBJECTS)}"}
        if operation == "write_keyed":
            key = f"key-{self.rng.randrange(KEYS)}"
            return {"value": key, "subject": "acct:keyed", "receipt": key}
        if operation == "release":
            if not self.holds:
                return None
            fact_id, hold_id = self.holds.pop()
            return {"fact_id": fact_id, "hold_id": hold_id}
        if not self.facts:
            return None
        known = list(self.facts.values())
        fact = known[int(len(known) * self.rng.random() ** 0.4)]
        told: dict[str, Any] = {"fact_id": fact.fact_id}
        if operation == "supersede":
            told |= {"value": f"value {receipt}", "subject": fact.subject}
        if operation == "hold":
            told["hold_id"] = f"hold {receipt}"
        return told


# --- what clients do --------------------------------------------------------------------------


async def write(client: Client, receipt: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Write a fact, keyed or claimed or as a replacement."""
    more: dict[str, Any] = {}
    if "fact_id" in asked:
        more["supersedes"] = asked["fact_id"]
    if asked["value"] == receipt:
        more["idempotency_key"] = receipt
    return await written(client, receipt, asked, more)


async def claim(client: Client, receipt: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Write what has to be confirmed."""
    return await written(client, receipt, asked, {"provenance": "claimed"})


async def written(
    client: Client, receipt: str, asked: dict[str, Any], more: dict[str, Any]
) -> dict[str, Any]:
    """Write, and remember the fact."""
    actor = "anybody" if "idempotency_key" in more else client.name
    about = {"subject": asked["subject"], "predicate": "plan", "space": "org", "actor": actor}
    result = await client.custody.write(value=asked["value"], receipt_id=receipt, **about, **more)
    client.facts[result.fact.fact_id] = result.fact
    return {"fact_id": result.fact.fact_id}


async def confirm(client: Client, receipt: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Confirm something."""
    await client.custody.confirm(asked["fact_id"], actor=client.name, receipt_id=receipt)
    return {"fact_id": asked["fact_id"]}


async def retract(client: Client, receipt: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Retract something."""
    told = {"actor": client.name, "reason": "a mistake", "receipt_id": receipt}
    await client.custody.retract(asked["fact_id"], **told)
    return {"fact_id": asked["fact_id"]}


async def forget(client: Client, receipt: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Forget something."""
    told = {"actor": client.name, "reason": "asked to", "receipt_id": receipt}
    await client.custody.forget(asked["fact_id"], **told)
    return {"fact_id": asked["fact_id"]}


async def hold(client: Client, receipt: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Hold something."""
    await client.custody.hold(**asked, actor=client.name, receipt_id=receipt)
    client.holds.append((asked["fact_id"], asked["hold_id"]))
    return {"fact_id": asked["fact_id"]}


async def release(client: Client, receipt: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Release a hold of this client."""
    await client.custody.release(**asked, actor=client.name, receipt_id=receipt)
    return {"fact_id": asked["fact_id"]}


async def read(client: Client, receipt: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Read all that is believed; what others wrote is heard of here."""
    page = await client.ledger.as_of(space="org", valid_at=FAR, limit=1000)
    for fact in page:
        client.facts[fact.fact_id] = fact
    return {"head": page.head.seq, "seen": [[fact.fact_id, fact.value] for fact in page]}


async def recall(client: Client, receipt: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Recall through the store."""
    result = await client.custody.recall("acct plan value", k=8, spaces=["org"], valid_at=FAR)
    head = 0 if result.head is None else result.head.seq
    return {"head": head, "seen": [[fact.fact_id, fact.value] for fact in result.facts]}


Work = Callable[[Client, str, dict[str, Any]], Awaitable[dict[str, Any]]]
WORKS: dict[str, Work] = {
    **{"write": write, "write_keyed": write, "supersede": write, "claim": claim, "confirm": confirm},
    **{"retract": retract, "forget": forget, "hold": hold, "release": release},
    **{"read": read, "recall": recall},
}
WEIGHTS = {
    **{"write": 3, "write_keyed": 2, "supersede": 6, "claim": 2, "confirm": 2, "retract": 3},
    **{"forget": 2, "hold": 2, "release": 2, "read": 6, "recall": 2},
}


# --- one client -------------------------------------------------------------------------------


async def work(order: dict[str, Any], history: int) -> None:
    """Make so many calls, one after the other."""
    os.environ["CUSTODY_SYNC_WITNESS"] = order["witness"]
    runtime = Runtime()
    async with (
        AsyncConnectionPool(order["uri"], min_size=1, max_size=2, open=False) as pool,
        await Ledger.open(order["ledger"], runtime=runtime) as ledger,
        AsyncCoordinator(
            ledger,
            stores=[PgVectorStore(pool, table=MEMORIES, dimensions=DIMENSIONS, embed=EMBED, name=MEMORIES)],
            runtime=runtime,
        ) as custody,
    ):
        client = Client(order["name"], custody, ledger, history, random.Random(order["name"]))
        while client.made < order["calls"]:
            (operation,) = client.rng.choices(list(WEIGHTS), list(WEIGHTS.values()))
            await client.call(operation)


async def make(order: dict[str, Any], history: int) -> None:
    """Make the ledger and the store's table, so that no client has to."""
    os.environ["CUSTODY_SYNC_WITNESS"] = order["witness"]
    await (await Ledger.open(order["ledger"], create=True)).close()


def client(order: dict[str, Any]) -> int:
    """Be a client in this process; what is none of our errors goes into a file beside the history."""
    path = Path(order["history"])
    history = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    if order.get("plant"):
        from history_plants import PLANTS

        PLANTS[order["plant"]]()
    try:
        asyncio.run((make if order["step"] == "make" else work)(order, history))
    except Exception:
        path.with_suffix(".error").write_text(traceback.format_exc(limit=-4))
        return 1
    return 0


def main() -> None:
    """Obey one order after the other: start a client, kill one, wait for one."""
    # What was imported is never garbage: a collection in a child would copy all its pages.
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        order = json.loads(line)
        if order["step"] in ("make", "work"):
            pid = os.fork()
            if pid == 0:
                os._exit(client(order))
            answer = {"pid": pid}
        else:
            if order["step"] == "kill":
                os.kill(order["pid"], signal.SIGKILL)
            _, status = os.waitpid(order["pid"], 0)
            answer = {"ended": os.waitstatus_to_exitcode(status)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
