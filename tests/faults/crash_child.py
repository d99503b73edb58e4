"""The crash matrix's victims: one parent that has imported everything and forks a process for every order.

An order is a line of JSON on standard input, and its answer a line on standard output. A victim
opens its own ledger, connections and threads, says over a pipe what it was told is done, and at
the fault point it was given it is killed with SIGKILL.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import psycopg
from fix_books import bytes_of
from fix_orphan import label_of, lost_fact
from fix_world import EMBED, ShiftedClock, World, open_world

from custody_sync import AsyncCoordinator, Ledger
from custody_sync.errors import StoreWriteFailed, SupersedeConflict
from custody_sync.ledger import Forget, Retract, jsonl, postgres, sqlite
from custody_sync.ports import FaultHook
from custody_sync.runtime import Runtime
from custody_sync.testing.faults import Crash, FaultPlan, RecordingHook

CLERK, UNEMBEDDABLE = "agent:clerk", "unembeddable"
LOADED = (jsonl, postgres, sqlite)
"""Imported before anything is forked, so that no victim has to."""
AGO = timedelta(minutes=20)


def embed(text: str) -> list[float]:
    """Return a vector, but for a text whose service is down."""
    if UNEMBEDDABLE in text:
        raise ConnectionError("no vector today")
    return EMBED(text)


@dataclass
class Armed:
    """A fault hook that is deaf until the operation under test begins."""

    hook: FaultHook
    is_armed: bool = False

    def __call__(self, point: str) -> None:
        """Pass a point on once armed."""
        if self.is_armed:
            self.hook(point)


@dataclass
class Victim:
    """What an operation works with."""

    custody: AsyncCoordinator
    ledger: Ledger
    world: World
    runtime: Runtime
    tell: Callable[[dict[str, Any]], None]
    uri: str
    ids: dict[str, str] = field(default_factory=dict)

    async def write(self, name: str, value: str, **more: Any) -> str:
        """Write a fact on one subject per name, and say so once it is acknowledged."""
        told = {"subject": f"acct:{name}", "predicate": "plan", "space": "org", "actor": CLERK} | more
        result = await self.custody.write(value=value, **told)
        self.tell({"kept": result.fact.fact_id, "complete": result.complete})
        return result.fact.fact_id

    def tell_residue(self, order: dict[str, Any]) -> None:
        """Say which of the secrets stand in which files now, before closing the ledger cleans anything up."""
        folders = {path.parent for path in self.ledger.files}
        files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
        images = {path.name: bytes_of(path) for path in files}
        secrets = order.get("secrets", ())
        self.tell({"residue": [[s, name] for s in secrets for name in images if s.encode() in images[name]]})

    async def leave(self, fact_id: str, value: str) -> None:
        """Put an entry into both stores that no event stands behind, as a crash does."""
        now = self.runtime.clock.now() - AGO
        fact = lost_fact(fact_id, value, CLERK, now)
        for store in self.world.stores:
            label = label_of(fact, self.ledger.ledger_id, self.runtime.ids.generation())
            await store.put(fact, label)


# --- what each operation finds --------------------------------------------------------------


async def prepare(v: Victim) -> dict[str, str]:
    """Write neighbours that every operation has to leave alone."""
    for n in range(3):
        await v.write(f"neighbour-{n}", "silver")
    return {}


async def prepare_target(v: Victim) -> dict[str, str]:
    """Write a fact to be superseded."""
    return await prepare(v) | {"old": await v.write("4", "bronze")}


async def prepare_claim(v: Victim) -> dict[str, str]:
    """Write a claimed replacement of a fact."""
    ids = await prepare_target(v)
    claim = await v.write("4", "gold", supersedes=ids["old"], provenance="claimed")
    return ids | {"claim": claim}


async def prepare_failing_claim(v: Victim) -> dict[str, str]:
    """Write a claim that one store will not take."""
    return await prepare(v) | {"claim": await v.write("4", UNEMBEDDABLE, provenance="claimed")}


async def prepare_chain(v: Victim) -> dict[str, str]:
    """Write a fact and its replacement."""
    ids = await prepare_target(v)
    return ids | {"tip": await v.write("4", "gold", supersedes=ids["old"])}


async def prepare_secret(v: Victim) -> dict[str, str]:
    """Write the fact to be forgotten."""
    secret = await v.write("heron-4711", "violet-heron-7731", space="user:heron-4711")
    return await prepare(v) | {"secret": secret}


async def prepare_mess(v: Victim) -> dict[str, str]:
    """Leave what a sweep works on: orphans, a stray, pending removals, an owed placement, a due erasure."""
    ids = await prepare_chain(v) | {"secret": await v.write("heron-4711", "violet-heron-7731")}
    act = {"actor": CLERK, "reason": "left half-way"}
    await v.ledger.append(Retract(event_id="retract", fact_id=ids["tip"], **act))
    await v.ledger.append(Forget(event_id="forget", fact_id=ids["secret"], **act))
    orphan = v.runtime.ids.fact_id(v.runtime.clock.now())
    await v.leave(orphan, "nobody")
    await v.leave(ids["old"], "stray")
    return ids | {"orphan": orphan}


async def prepare_drift(v: Victim) -> dict[str, str]:
    """Let a store drift: one entry is lost, one has another text, one another label; and leave an orphan."""
    ids = {name: await v.write(name, "silver") for name in ("lost", "edited", "relabelled")}
    orphan = v.runtime.ids.fact_id(v.runtime.clock.now())
    await v.leave(orphan, "nobody")
    change = (
        "delete from memories where fact_id = %(lost)s",
        "update memories set text = 'edited' where fact_id = %(edited)s",
        "update memories set space = 'elsewhere' where fact_id = %(relabelled)s",
    )
    async with await psycopg.AsyncConnection.connect(v.uri, autocommit=True) as connection:
        for statement in change:
            await connection.execute(statement, ids)
    return await prepare(v) | ids | {"orphan": orphan}


# --- the operations -------------------------------------------------------------------------


async def write(v: Victim) -> None:
    """Write a fact."""
    await v.write("9", "platinum")


async def supersede(v: Victim) -> None:
    """Write a fact's replacement."""
    await v.write("4", "gold", supersedes=v.ids["old"])


async def write_keyed(v: Victim) -> None:
    """Write a fact under an idempotency key."""
    await v.write("9", "platinum", idempotency_key="order-9")


async def write_failing(v: Victim) -> None:
    """Write what one store takes and the other does not."""
    try:
        await v.write("9", UNEMBEDDABLE)
    except StoreWriteFailed:
        v.tell({"refused": "store_write_failed"})


async def write_racing(v: Victim) -> None:
    """Write two replacements of one fact at once: the loser's entries have to be taken back."""
    both = (v.write("4", value, supersedes=v.ids["old"]) for value in ("gold", "platinum"))
    for answer in await asyncio.gather(*both, return_exceptions=True):
        if isinstance(answer, SupersedeConflict):
            v.tell({"refused": answer.code})
        elif isinstance(answer, BaseException):
            raise answer


async def confirm(v: Victim) -> None:
    """Confirm a claimed replacement."""
    await v.custody.confirm(v.ids["claim"], actor=CLERK)
    v.tell({"kept": v.ids["claim"]})


async def confirm_failing(v: Victim) -> None:
    """Confirm a claim that one store does not take."""
    try:
        await v.custody.confirm(v.ids["claim"], actor=CLERK)
    except StoreWriteFailed:
        v.tell({"refused": "store_write_failed"})


async def retract(v: Victim) -> None:
    """Retract a replacement, which brings back what it covered."""
    await v.custody.retract(v.ids["tip"], actor=CLERK, reason="a mistake")
    v.tell({"ended": v.ids["tip"]})


async def forget(v: Victim) -> None:
    """Forget a value."""
    await v.custody.forget(v.ids["secret"], actor=CLERK, reason="asked to")
    v.tell({"ended": v.ids["secret"]})


async def forget_identity(v: Victim) -> None:
    """Forget a value and whose it was."""
    await v.custody.forget(v.ids["secret"], actor=CLERK, reason="asked to", identity=True)
    v.tell({"ended": v.ids["secret"]})


async def forget_where(v: Victim) -> None:
    """Forget whatever there is of somebody, and whose it was."""
    result = await v.custody.forget_where(
        space="user:heron-4711", actor=CLERK, reason="asked to", identity=True
    )
    v.tell({"ended": v.ids["secret"], "certified": result.complete})


async def certify(v: Victim) -> None:
    """Ask for the certificate again: what was taken out of its space before is still part of it."""
    result = await v.custody.forget_where(space="user:heron-4711", actor=CLERK, identity=True)
    left = bool(result.facts) and not result.complete
    v.tell({"certified": not left, "facts": [fact.fact_id for fact in result.facts]})


async def expire(v: Victim) -> None:
    """Expire what is half an hour old in the spaces of users."""
    await v.custody.expire(actor=CLERK, windows={"user:*": "PT20M"})
    v.tell({"ended": v.ids["secret"]})


async def repair(v: Victim) -> None:
    """Sweep."""
    result = await v.custody.repair(actor=CLERK, reason="after a crash")
    v.tell({"complete": result.complete, "result": repr(result)})


async def reconcile(v: Victim) -> None:
    """Mend whatever differs."""
    result = await v.custody.reconcile(actor=CLERK, fix="all", max_removals=100)
    v.tell({"complete": result.complete, "result": repr(result)})


async def compare(v: Victim) -> None:
    """Mend what a killed reconciliation left, and say how much differs after that."""
    await v.custody.reconcile(actor=CLERK, fix="all", max_removals=100)
    result = await v.custody.reconcile(actor=CLERK)
    v.tell({"differs": len(result.differences)})


Work = Callable[[Victim], Awaitable[Any]]
OPERATIONS: dict[str, tuple[Work, Work]] = {
    "write": (prepare, write),
    "supersede": (prepare_target, supersede),
    "write_keyed": (prepare, write_keyed),
    "write_failing": (prepare, write_failing),
    "write_racing": (prepare_target, write_racing),
    "confirm": (prepare_claim, confirm),
    "confirm_failing": (prepare_failing_claim, confirm_failing),
    "retract": (prepare_chain, retract),
    "forget": (prepare_secret, forget),
    "forget_identity": (prepare_secret, forget_identity),
    "forget_where": (prepare_secret, forget_where),
    "expire": (prepare_secret, expire),
    "repair": (prepare_mess, repair),
    "reconcile": (prepare_drift, reconcile),
}
"""By name: what it finds, and what it does."""


# --- one order ------------------------------------------------------------------------------


async def obey(order: dict[str, Any], tell: Callable[[dict[str, Any]], None]) -> None:
    """Prepare, perform, or clean up after one operation, as the order says."""
    # Each case has the same ledger put back, and a witness of them all would take it for a restored one.
    os.environ["CUSTODY_SYNC_WITNESS"] = order["witness"]
    recording, plan = RecordingHook(), FaultPlan()
    if order.get("kill"):
        crash = Crash.parse(order["kill"])
        plan.kill(crash.point, at=crash.at)
    armed = Armed(plan if order.get("kill") else recording)
    runtime = Runtime(clock=ShiftedClock(order["clock"]), reach=armed)
    step = order["step"]
    if step == "make":
        await (await Ledger.open(order["ledger"], create=True, runtime=runtime)).close()
        return
    before, work = OPERATIONS[order["operation"]]
    async with (
        open_world(order["uri"], embed=embed, setup=False) as world,
        await Ledger.open(order["ledger"], create=step == "prepare", runtime=runtime) as ledger,
        AsyncCoordinator(ledger, stores=world.stores, runtime=runtime) as custody,
    ):
        victim = Victim(custody, ledger, world, runtime, tell, order["uri"], order.get("ids", {}))
        if step == "prepare":
            tell({"ids": await before(victim), "ledger_id": ledger.ledger_id})
        elif step == "perform":
            # Acknowledged by this very process, so a crash must not take it along.
            await victim.write("bystander", "silver")
            armed.is_armed = True
            await work(victim)
            victim.tell_residue(order)
        else:
            await repair(victim)
            if order["operation"] == "forget_where":
                await certify(victim)
            if order["operation"] == "reconcile":
                await compare(victim)
            victim.tell_residue(order)
            if order["operation"] == "write_keyed":
                await write_keyed(victim)
            tell({"now": runtime.clock.now().isoformat()})
    tell({"points": list(recording.sequence)})


def victim(order: dict[str, Any], pipe: int) -> int:
    """Obey in this process and say over the pipe what is done and what went wrong."""

    def tell(said: dict[str, Any]) -> None:
        os.write(pipe, json.dumps(said).encode() + b"\n")

    try:
        asyncio.run(obey(order, tell))
    except Exception:
        tell({"error": traceback.format_exc(limit=-2)})
        return 1
    return 0


def fork(order: dict[str, Any]) -> dict[str, Any]:
    """Run one victim; return how it ended (a negative number is a signal) and what it said."""
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reads)
        os._exit(victim(order, writes))
    os.close(writes)
    with os.fdopen(reads) as pipe:
        said = [json.loads(line) for line in pipe]
    _, status = os.waitpid(pid, 0)
    return {"ended": os.waitstatus_to_exitcode(status), "said": said}


if __name__ == "__main__":
    # What was imported is never garbage: a collection in a child would copy all its pages.
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        print(json.dumps(fork(json.loads(line))), flush=True)
