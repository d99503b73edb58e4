"""Make the golden ledger of schema version 4; run by the code of its time, see README.md."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
from collections.abc import Mapping
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
from custody_sync.model import Fact, Observation, Outcome, Placement, Provenance
from custody_sync.testing import ManualClock, testing_runtime

START = datetime(2026, 12, 1, tzinfo=UTC)
ACTOR = "agent:gold"
STORES = ("archive", "memories")
AFTERWARDS = tuple(timedelta(days=days) for days in (0, 4, 11, 40))
"""When the questions are asked, from the end of the log: what was to come has come bit by bit."""


class Maker:
    """Writes one small ledger with everything in it that version 1 did not know."""

    def __init__(self, ledger: Ledger, clock: ManualClock) -> None:
        self.ledger, self.clock = ledger, clock
        self.count = 0

    async def add(self, draft: Any) -> None:
        """Append a draft, a minute after the one before."""
        self.clock.advance(timedelta(minutes=1))
        self.count += 1
        await self.ledger.append(dataclasses.replace(draft, event_id=f"e{self.count:02}"))

    def held(
        self, fact_id: str, *pairs: tuple[str, str], scope: str | None = None, age: int | None = 0
    ) -> tuple[Placement, ...]:
        """Return placements stored just now, so many days ago, or nobody knows when."""
        at = None if age is None else self.clock.now() + timedelta(seconds=30) - timedelta(days=age)
        return tuple(
            Placement(store=s, external_id=x, fact_id=fact_id, scope=scope, stored_at=at) for s, x in pairs
        )

    async def state(self, fact_id: str, value: Any, *pairs: tuple[str, str], **more: Any) -> None:
        """Assert a fact that begins now or in so many `days`, and lasts so many `lasting`."""
        days, lasting, age, scope = (more.pop(name, n) for name, n in zip(
            ("days", "lasting", "age", "scope"), (0, None, 0, None), strict=True))  # fmt: skip
        extra = {name: more.pop(name) for name in ("owes", "kept", "adopted", "request") if name in more}
        begins = self.clock.now() + timedelta(days=days)
        fields: dict[str, Any] = {
            "space": "org",
            "subject": "acct:42",
            "predicate": "plan",
            "text": f"{value}",
            "actor": ACTOR,
            "provenance": Provenance.ATTESTED,
            "valid_from": begins,
            "valid_to": None if lasting is None else begins + timedelta(days=lasting),
        }
        fact = Fact(fact_id=fact_id, value=value, **{**fields, **more})
        placements = self.held(fact_id, *pairs, scope=scope, age=age)
        await self.add(Assert(event_id="", fact=fact, placements=placements, **extra))

    async def act(self, kind: Any, fact_id: str, *pairs: tuple[str, str], **more: Any) -> None:
        """Append what happens to a fact."""
        if pairs:
            more["placements"] = self.held(fact_id, *pairs, scope=more.pop("scope", None))
        await self.add(kind(event_id="", actor=ACTOR, fact_id=fact_id, **more))

    async def gone(self, fact_id: str, *external_ids: str, **more: Any) -> None:
        """Append that entries in memories were seen gone."""
        for external_id in external_ids:
            await self.act(Remove, fact_id, store="memories", external_id=external_id,
                           outcome=Outcome.VERIFIED, **more)  # fmt: skip

    async def write(self) -> None:
        """Append everything."""
        await self.come()
        await self.to_come()
        await self.chains()
        await self.adopted()
        await self.replaced()
        await self.erased()

    async def come(self) -> None:
        """Append facts whose time has come when the log ends: placed, still owed, over, covered again."""
        one = {"subject": "acct:come", "predicate": "plan"}
        await self.state("f-was", "silver", ("memories", "m-1"), ("archive", "a-1"), **one)
        await self.state("f-come", "gold", days=1, owes=STORES, kept=("archive",), supersedes="f-was", **one)
        await self.state("f-due", "due", days=1, owes=("memories",), subject="acct:due")
        await self.state("f-short", "over", days=1, lasting=1, owes=STORES, subject="acct:short")
        await self.state("f-late-1", "late", days=1, owes=("memories",), subject="acct:late")
        self.clock.advance(timedelta(days=2))
        await self.act(Place, "f-come", ("memories", "m-2"))
        await self.gone("f-was", "m-1")
        # Never placed, covered, and back: it is owed again.
        await self.state("f-late-2", "later", ("memories", "m-3"), supersedes="f-late-1", subject="acct:late")
        await self.act(Retract, "f-late-2", reason="a mistake")

    async def to_come(self) -> None:
        """Append facts that begin after the log ends: confirmed ones, held ones, and one that ends."""
        await self.state("f-now", 1, ("memories", "m-4"), ("archive", "a-4"), subject="acct:soon")
        await self.state("f-soon", 2, days=10, owes=STORES, kept=("archive",), supersedes="f-now",
                         subject="acct:soon", receipt_id="ticket-4")  # fmt: skip
        await self.act(Hold, "f-soon", hold_id="court", reason="a letter came")
        await self.act(Hold, "f-soon", hold_id="audit")
        await self.act(Release, "f-soon", hold_id="audit")
        await self.state("f-plan", "claimed", days=3, provenance=Provenance.CLAIMED, subject="acct:plan")
        await self.act(Confirm, "f-plan", owes=("memories",), reason="checked")
        await self.state("f-says-1", "a", ("memories", "m-5"), subject="acct:says")
        await self.state("f-says-2", "b", days=30, provenance=Provenance.CLAIMED, supersedes="f-says-1",
                         subject="acct:says", request="k4")  # fmt: skip
        await self.act(Confirm, "f-says-2", owes=STORES, kept=("archive",))
        seen = Observation(source="crm", path="/plan", value={"plan": "pro", "seats": 1e20})
        await self.state("f-span", seen.value, days=2, lasting=5, owes=STORES, subject="acct:span",
                         provenance=Provenance.VERIFIED, evidence=seen)  # fmt: skip
        odd = 'Grüße \u2028 \U0001f600 日本語 \\ " \u0001 ‮'
        await self.state("f-odd", odd, days=30, owes=("memories",), space="user:ü", subject="user:ü")

    async def chains(self) -> None:
        """Append corrections to come that are retracted, corrected, or erased before their time."""
        for name, middle in (("retracted", 5), ("again", 5), ("between", 5), ("at-once", 9), ("erased", 9)):
            subject = f"acct:{name}"
            await self.state(f"f-{name}-1", "now", ("memories", f"m-{name}"), subject=subject)
            await self.state(f"f-{name}-2", "then", days=middle, owes=STORES, supersedes=f"f-{name}-1",
                             subject=subject)  # fmt: skip
        await self.act(Retract, "f-retracted-2", reason="it never comes")
        for name in ("again", "between", "at-once"):
            second = await self.ledger.get(f"f-{name}-2")
            assert second is not None
            begins = second.valid_from + timedelta(days=0 if name == "at-once" else 10)
            await self.state(f"f-{name}-3", "last", owes=STORES, supersedes=f"f-{name}-2",
                             subject=f"acct:{name}", valid_from=begins)  # fmt: skip
        await self.act(Retract, "f-between-2")
        await self.act(Forget, "f-erased-2", digest=Digest("sha256", "ab" * 32))

    async def adopted(self) -> None:
        """Append facts of entries that were there before: old ones, of no known age, and a claim."""
        more: dict[str, Any] = {"adopted": True, "space": "user:eve", "subject": "user:eve"}
        await self.state("f-found", "tea", ("memories", "m-6"), predicate="drinks", age=200, scope="user/eve",
                         **more)  # fmt: skip
        await self.state("f-undated", "cats", ("memories", "m-7"), predicate="pets", age=None, **more)
        await self.state("f-said", "blue", ("memories", "m-8"), predicate="color", age=None,
                         provenance=Provenance.CLAIMED, **more)  # fmt: skip
        await self.state("f-meant", "red", ("memories", "m-9"), predicate="car", age=90,
                         provenance=Provenance.CLAIMED, **more)  # fmt: skip
        await self.act(Confirm, "f-meant")
        await self.act(Repair, "f-orphan", store="memories", external_id="m-10", scope="org", stored_at=START)

    async def replaced(self) -> None:
        """Append placements in others' place: seen gone, not yet, two at once, and where a store keeps."""
        await self.state("f-moved", "x", ("memories", "m-11"), ("archive", "a-11"), subject="acct:moved")
        await self.act(Place, "f-moved", ("memories", "m-12"), replaces=(("memories", "m-11"),), scope="org")
        await self.gone("f-moved", "m-11")
        await self.state("f-twice", "y", ("memories", "m-13"), ("memories", "m-14"), subject="acct:twice")
        await self.act(Place, "f-twice", ("memories", "m-15"),
                       replaces=(("memories", "m-13"), ("memories", "m-14")))  # fmt: skip
        await self.act(Remove, "f-twice", store="memories", external_id="m-13",
                       outcome=Outcome.STILL_INDEXED, detail="asked 6 times")  # fmt: skip
        # A placement made while a successor waits ends with its beginning, also where it was kept.
        await self.act(Place, "f-now", ("archive", "a-12"), replaces=(("archive", "a-4"),))

    async def erased(self) -> None:
        """Append erasures with identity: of replaced entries, gone and not gone, and of what is to come."""
        for name, entry in (("ada", "ada@x"), ("bob", "bob@x")):
            scope = f"user/{name}"
            await self.state(f"f-{name}", f"secret-{name}", ("memories", f"{entry}/1"), ("archive", entry),
                             space=f"user:{name}", subject=f"user:{name}", predicate="mail",
                             scope=scope)  # fmt: skip
            await self.act(Place, f"f-{name}", ("memories", f"{entry}/2"),
                           replaces=(("memories", f"{entry}/1"),), scope=scope)  # fmt: skip
            await self.gone(f"f-{name}", f"{entry}/1")
            await self.act(Forget, f"f-{name}", identity=True, reason="request 12")
        await self.gone("f-ada", "ada@x/2")
        await self.act(Remove, "f-ada", store="archive", external_id="ada@x", outcome=Outcome.VERIFIED)
        await self.state("f-joe", "secret-joe", days=20, owes=STORES, space="user:joe", subject="user:joe")
        await self.act(Forget, "f-joe", identity=True)


def plain(value: Any) -> Any:
    """Turn an answer into JSON."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return value


def brief(facts: Any) -> list[str]:
    """Name facts, with what an answer about the past says of them otherwise than one about now."""
    return [f"{f.fact_id}{' confirmed' * f.confirmed}{' forgotten' * f.forgotten}" for f in facts]


async def answers(ledger: Ledger, clock: ManualClock) -> dict[str, Any]:
    """Return what the ledger answers to every question, now and when what is to come has come."""
    log = [row async for row in ledger.export()]
    ids = sorted({row["event"]["fact_id"] for row in log})
    times = [datetime.fromisoformat(row["event"]["tx_time"]) for row in log]
    begun, ending = clock.now(), timedelta(days=40)
    found = {
        "ledger_id": ledger.ledger_id,
        "keyed_id": ledger.keyed_id("org", "k4"),
        "head": plain(await ledger.head()),
        "spaces": await ledger.spaces(),
        "known": plain(await ledger.known(ids)),
        "facts": {i: plain(await ledger.get(i)) for i in ids},
        "history": {i: [[e.kind.value, plain(e.data)] for e in await ledger.history(i)] for i in ids},
        "placements": {i: plain(await ledger.placements(i)) for i in ids},
        "accounts": plain(await ledger.accounts(limit=10_000)),
        "removed": plain(await ledger.removed_facts(limit=10_000)),
        "believed": [brief(await ledger.as_of(tx_at=t, valid_at=t, limit=10_000)) for t in times],
        "expected": [brief(await ledger.as_of(tx_at=t, valid_at=t + ending, limit=10_000)) for t in times],
        "at": {},
    }
    for later in AFTERWARDS:
        clock.set(begun + later)
        found["at"][str(later.days)] = await answers_now(ledger, ids)
    clock.set(begun)
    return found


async def answers_now(ledger: Ledger, ids: list[str]) -> dict[str, Any]:
    """Return the answers that the clock has a part in."""
    stores: dict[str, Any] = {}
    placed = [placement for fact_id in ids for placement in await ledger.placements(fact_id)]
    for store in STORES:
        listed = {p.external_id: p.fact_id for p in placed if p.store == store}
        listed |= {"stranger": "f-stranger", "m-7": "", "plain": ""}
        kept = await ledger.compare(store, listed, keep=True)
        stores[store] = {
            "ended": [p.external_id for p in await ledger.ended(store)],
            "held": [[h.place, h.placement.external_id] for h in await ledger.held(store, limit=10_000)],
            "lacking": list(await ledger.lacking(store, limit=10_000)),
            "compared": [
                [c.external_id, c.place, c.owner, plain(c.state), plain(c.standing), c.current,
                 plain(c.stored_at), c.fact and c.fact.fact_id]
                for c in await ledger.compare(store, listed)
            ],
            "kept": [c.external_id for c in kept if c.current],
            "unaccounted": [u.external_id for u in await ledger.unaccounted(store, listed)],
        }  # fmt: skip
    return {
        "stores": stores,
        "believed": brief(await ledger.as_of(limit=10_000)),
        "claimed": brief(await ledger.as_of(include_claimed=True, limit=10_000)),
        "pending": [[p.store, p.external_id] for p in await ledger.pending(limit=10_000)],
        "owed": plain(await ledger.owed(limit=10_000)),
        "waiting": [[w.fact_id, w.store, plain(w.due_at)] for w in await ledger.waiting(limit=10_000)],
        "backlog": plain(await ledger.backlog()),
    }


async def main(folder: Path) -> None:
    """Write the three files."""
    clock = ManualClock(START)
    path = folder / "ledger-4.db"
    async with await Ledger.open(
        f"sqlite:///{path}", create=True, witness=False, runtime=testing_runtime(clock=clock, seed=4)
    ) as ledger:
        await Maker(ledger, clock).write()
        await ledger.erase()
        header = {"custody-sync": "ledger", "format": 1, "ledger_id": ledger.ledger_id}
        lines = [rfc8785.dumps(row) async for row in ledger.export()]
        (folder / "ledger-4.jsonl").write_bytes(
            b"".join(line + b"\n" for line in (rfc8785.dumps(header), *lines))
        )
        found = json.dumps(await answers(ledger, clock), indent=1, ensure_ascii=True, sort_keys=True)
        (folder / "ledger-4.json").write_text(found + "\n")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
