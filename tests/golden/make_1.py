"""Make the golden ledger of schema version 1; run by the code of its time, see README.md."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any

import rfc8785

from custody_sync.ledger import (
    Assert,
    Confirm,
    Digest,
    Forget,
    Hold,
    Ledger,
    Place,
    Release,
    Remove,
    Repair,
    Retract,
)
from custody_sync.model import Fact, Outcome, Placement, Provenance
from custody_sync.testing import ManualClock, testing_runtime

START = datetime(2026, 9, 1, tzinfo=UTC)
ACTOR = "agent:gold"


class Maker:
    """Writes one small ledger with everything in it."""

    def __init__(self, ledger: Ledger, clock: ManualClock) -> None:
        self.ledger, self.clock = ledger, clock
        self.count = 0

    async def add(self, draft: Any) -> None:
        """Append a draft, a minute after the one before."""
        self.clock.advance(timedelta(minutes=1))
        self.count += 1
        await self.ledger.append(dataclasses.replace(draft, event_id=f"e{self.count:02}"))

    def held(self, fact_id: str, *pairs: tuple[str, str], scope: str | None = None) -> tuple[Placement, ...]:
        """Return placements stored half a minute from now."""
        at = self.clock.now() + timedelta(seconds=30)
        return tuple(
            Placement(store=s, external_id=x, fact_id=fact_id, scope=scope, stored_at=at) for s, x in pairs
        )

    async def state(self, fact_id: str, value: Any, *pairs: tuple[str, str], **more: Any) -> None:
        """Assert a fact."""
        scope, kept, request = (more.pop(name, None) for name in ("scope", "kept", "request"))
        fields: dict[str, Any] = {
            "space": "org",
            "subject": "acct:42",
            "predicate": "plan",
            "text": f"{value}",
            "actor": ACTOR,
            "provenance": Provenance.ATTESTED,
            "valid_from": self.clock.now(),
        }
        fact = Fact(fact_id=fact_id, value=value, **{**fields, **more})
        placements = self.held(fact_id, *pairs, scope=scope)
        await self.add(
            Assert(event_id="", fact=fact, placements=placements, kept=kept or (), request=request)
        )

    async def write(self) -> None:
        """Append every kind of event, erasures of both kinds, and texts of every script."""
        act: dict[str, Any] = {"event_id": "", "actor": ACTOR}
        await self.state("f-chain-1", "silver", ("memories", "m-1"), ("archive", "a-1"))
        await self.state(
            "f-chain-2", "gold", ("memories", "m-2"), ("archive", "a-2"),
            supersedes="f-chain-1", kept=("archive",), receipt_id="ticket-7",
        )  # fmt: skip
        await self.state("f-chain-3", {"plan": "pro", "seats": 1e20, "ok": [True, None, -0.5]},
                         ("memories", "m-3"), supersedes="f-chain-2")  # fmt: skip
        await self.add(Retract(**act, fact_id="f-chain-3", reason="a mistake"))
        await self.add(Remove(**act, fact_id="f-chain-3", store="memories", external_id="m-3",
                              outcome=Outcome.STILL_INDEXED, detail="asked 6 times"))  # fmt: skip
        await self.add(Place(**act, fact_id="f-chain-2",
                             placements=self.held("f-chain-2", ("vault", "v-1"))))  # fmt: skip
        odd = 'Grüße \u2028 \U0001f600 日本語 \\ " \u0001 ‮'
        await self.state("f-text", odd, ("memories", "m-4"), space="user:ü", subject="user:ü",
                         predicate="memory", scope="user/ü", valid_to=START + timedelta(days=30))  # fmt: skip
        await self.state("f-claim", "free", provenance=Provenance.CLAIMED, subject="acct:7", request="k1")
        await self.state("f-waits", "later", provenance=Provenance.CLAIMED, subject="acct:8")
        await self.add(Confirm(**act, fact_id="f-claim", reason="checked",
                               placements=self.held("f-claim", ("memories", "m-5"))))  # fmt: skip
        await self.add(Hold(**act, fact_id="f-claim", hold_id="court", reason="a letter came"))
        await self.add(Hold(**act, fact_id="f-claim", hold_id="audit"))
        await self.add(Release(**act, fact_id="f-claim", hold_id="audit", reason="over"))
        await self.add(Repair(**act, fact_id="f-orphan", store="memories", external_id="m-9",
                              scope="org", stored_at=START, reason="after a crash"))  # fmt: skip
        await self.add(Remove(**act, fact_id="f-orphan", store="memories", external_id="m-9",
                              scope="org", stored_at=START, outcome=Outcome.VERIFIED))  # fmt: skip
        await self.add(Repair(**act, fact_id="f-nowhere"))
        # forgotten: the value alone, with a digest
        await self.state("f-gone", "secret-1", ("memories", "m-6"), subject="acct:9")
        await self.add(Forget(**act, fact_id="f-gone", digest=Digest("sha256", "ab" * 32), reason="asked"))
        await self.add(Remove(**act, fact_id="f-gone", store="memories", external_id="m-6",
                              outcome=Outcome.VERIFIED))  # fmt: skip
        # forgotten with identity: three entries in two stores, all of them gone
        await self.state("f-nobody", "secret-2",
                         ("memories", "m-7"), ("archive", "a-7"), ("memories", "m-8"),
                         space="user:ada", subject="user:ada", predicate="memory",
                         scope="user/ada")  # fmt: skip
        await self.add(Retract(**act, fact_id="f-nobody", reason="she asked"))
        for store, external_id in (("memories", "m-7"), ("archive", "a-7"), ("memories", "m-8")):
            await self.add(Remove(**act, fact_id="f-nobody", store=store, external_id=external_id,
                                  scope="user/ada", outcome=Outcome.VERIFIED))  # fmt: skip
        await self.add(Forget(**act, fact_id="f-nobody", identity=True, reason="request 12"))
        # forgotten with identity, in two steps, and not gone from its store yet
        await self.state("f-due", "secret-3", ("memories", "m-10"), space="user:bob", subject="user:bob",
                         predicate="memory", scope="user/bob")  # fmt: skip
        await self.add(Forget(**act, fact_id="f-due", reason="first the value"))
        await self.add(Forget(**act, fact_id="f-due", identity=True, reason="then all of it"))
        await self.add(Remove(**act, fact_id="f-due", store="memories", external_id="m-10",
                              scope="user/bob", outcome=Outcome.FAILED, detail="refused"))  # fmt: skip
        # owed: what it replaced is believed again, and its store had let it go
        await self.state("f-old", 1, ("memories", "m-11"), subject="acct:10")
        await self.state("f-new", 2, ("memories", "m-12"), subject="acct:10", supersedes="f-old")
        await self.add(Remove(**act, fact_id="f-old", store="memories", external_id="m-11",
                              outcome=Outcome.VERIFIED))  # fmt: skip
        await self.add(Retract(**act, fact_id="f-new"))


def plain(value: Any) -> Any:
    """Turn an answer into JSON."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return value


async def answers(ledger: Ledger) -> dict[str, Any]:
    """Return what the ledger answers to every question it knows."""
    log = [row async for row in ledger.export()]
    ids = sorted({row["event"]["fact_id"] for row in log})
    times = [START + timedelta(minutes=n, seconds=30) for n in range(len(log) + 1)]
    return {
        "ledger_id": ledger.ledger_id,
        "keyed_id": ledger.keyed_id("org", "k1"),
        "head": plain(await ledger.head()),
        "spaces": await ledger.spaces(),
        "known": plain(await ledger.known(ids)),
        "facts": {i: plain(await ledger.get(i)) for i in ids},
        "history": {i: plain(await ledger.history(i)) for i in ids},
        "placements": {i: plain(await ledger.placements(i)) for i in ids},
        "believed": [plain(await ledger.as_of(tx_at=t, valid_at=t, limit=10_000)) for t in times],
        "claimed": plain(await ledger.as_of(include_claimed=True, limit=10_000)),
        "pending": plain(await ledger.pending(limit=10_000)),
        "removed": plain(await ledger.removed(limit=10_000)),
        "owed": plain(await ledger.owed(limit=10_000)),
    }


async def main(folder: Path) -> None:
    """Write the three files."""
    clock = ManualClock(START)
    path = folder / "ledger-1.db"
    async with await Ledger.open(
        f"sqlite:///{path}", create=True, runtime=testing_runtime(clock=clock, seed=7)
    ) as ledger:
        await Maker(ledger, clock).write()
        await ledger.erase()
        header = {"custody-sync": "ledger", "format": 1, "ledger_id": ledger.ledger_id}
        lines = [rfc8785.dumps(row) async for row in ledger.export()]
        (folder / "ledger-1.jsonl").write_bytes(
            b"".join(line + b"\n" for line in (rfc8785.dumps(header), *lines))
        )
        found = json.dumps(await answers(ledger), indent=1, ensure_ascii=True, sort_keys=True)
        (folder / "ledger-1.json").write_text(found + "\n")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
