"""Processes that are killed at random: one parent that has imported everything, forks them and kills them.

An order is a line of JSON on standard input, and its answer a line on standard output. A life opens
its own ledger, connections and threads, repairs what the one before it left, and waits; at the word
it works, several operations at once, until its parent kills it: after so many effects of its own or
so many seconds, whatever it is doing then.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import select
import signal
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from fix_world import EMBED, ShiftedClock, World, open_world

from custody_sync import AsyncCoordinator, Ledger
from custody_sync.errors import CustodyError
from custody_sync.ledger import jsonl, postgres, sqlite
from custody_sync.model import Fact
from custody_sync.runtime import Runtime

CLERK, UNEMBEDDABLE = "agent:clerk", "unembeddable"
LOADED = (jsonl, postgres, sqlite)
"""Imported before anything is forked, so that no life has to."""
WORKERS = 3
KEYS = 5
PATIENCE = 60.0
"""Seconds after which a life that was forgotten is killed all the same."""
EFFECT = b".\n"

Tell = Callable[[dict[str, Any]], None]


def embed(text: str) -> list[float]:
    """Return a vector, but for a text whose service is down."""
    if UNEMBEDDABLE in text:
        raise ConnectionError("no vector today")
    return EMBED(text)


@dataclass
class Life:
    """What a process works with, and what it knows of facts."""

    custody: AsyncCoordinator
    ledger: Ledger
    tell: Tell
    seed: int
    name: str
    facts: dict[str, Fact] = field(default_factory=dict)
    holds: list[tuple[str, str]] = field(default_factory=list)
    written: int = 0

    async def write(self, value: str, **more: Any) -> None:
        """Write a fact and say so once it is acknowledged."""
        told = {"subject": f"acct:{value}", "predicate": "plan", "space": "org", "actor": CLERK} | more
        key = told.get("idempotency_key")
        fact = (await self.custody.write(value=value, **told)).fact
        self.facts[fact.fact_id] = fact
        self.tell({"kept": fact.fact_id} | ({} if key is None else {"key": key}))

    def value(self) -> str:
        """Return a value that nobody else has."""
        self.written += 1
        return f"value-{self.name}-{self.written}"

    def pick(self, rng: random.Random) -> Fact:
        """Return a fact that is known; the later ones more often."""
        known = list(self.facts.values())
        return known[int(len(known) * rng.random() ** 0.5)]


# --- what a life does -------------------------------------------------------------------------


async def write(life: Life, rng: random.Random) -> None:
    """Write a fact."""
    await life.write(life.value(), provenance=rng.choice(["attested", "attested", "claimed"]))


async def write_keyed(life: Life, rng: random.Random) -> None:
    """Write under one of few keys, which an earlier life may have begun with."""
    key = f"key-{life.seed}-{rng.randrange(KEYS)}"
    await life.write(key, idempotency_key=key)


async def write_failing(life: Life, rng: random.Random) -> None:
    """Write what one store does not take."""
    await life.write(f"{UNEMBEDDABLE} {life.value()}")


async def supersede(life: Life, rng: random.Random) -> None:
    """Write a replacement, claimed or not."""
    old = life.pick(rng)
    told = {"subject": old.subject, "predicate": old.predicate, "space": old.space}
    provenance = rng.choice(["attested", "attested", "claimed"])
    await life.write(life.value(), supersedes=old.fact_id, provenance=provenance, **told)


async def confirm(life: Life, rng: random.Random) -> None:
    """Confirm something, claimed or not."""
    fact = life.pick(rng)
    await life.custody.confirm(fact.fact_id, actor=CLERK)
    life.tell({"kept": fact.fact_id})


async def retract(life: Life, rng: random.Random) -> None:
    """Retract something."""
    fact = life.pick(rng)
    await life.custody.retract(fact.fact_id, actor=CLERK, reason="a mistake")
    life.tell({"ended": fact.fact_id})


async def forget(life: Life, rng: random.Random) -> None:
    """Forget something, and now and then whose it was."""
    fact = life.pick(rng)
    life.tell({"forgetting": fact.fact_id, "value": fact.value})
    await life.custody.forget(fact.fact_id, actor=CLERK, reason="asked to", identity=rng.random() < 0.3)
    life.tell({"ended": fact.fact_id})


async def hold(life: Life, rng: random.Random) -> None:
    """Hold something."""
    fact = life.pick(rng)
    result = await life.custody.hold(fact.fact_id, actor=CLERK, reason="a lawsuit")
    life.holds.append((fact.fact_id, result.hold_id))


async def release(life: Life, rng: random.Random) -> None:
    """Release a hold of this life."""
    if life.holds:
        fact_id, hold_id = life.holds.pop(rng.randrange(len(life.holds)))
        await life.custody.release(fact_id, hold_id=hold_id, actor=CLERK)


async def repair(life: Life, rng: random.Random) -> None:
    """Sweep beside the others."""
    await life.custody.repair(actor=CLERK, reason="now and then", max_removals=1000)


async def recall(life: Life, rng: random.Random) -> None:
    """Recall through one of the stores."""
    await life.custody.recall("plan", store=rng.choice(["agent", "memories"]), k=5, spaces=["org"])


Work = Callable[[Life, random.Random], Awaitable[None]]
WORKS: dict[Work, int] = {
    **{write: 5, write_keyed: 3, write_failing: 1, supersede: 4, confirm: 2},
    **{retract: 2, forget: 2, hold: 1, release: 1, repair: 1, recall: 1},
}
"""What is done, and how often."""


async def work(life: Life, rng: random.Random) -> None:
    """Do one thing after the other until killed; what the ledger or a store refuses is no failure."""
    while True:
        (chosen,) = rng.choices(list(WORKS), list(WORKS.values()))
        try:
            await chosen(life, rng)
        except CustodyError as refused:
            life.tell({"refused": refused.code})


# --- one life ---------------------------------------------------------------------------------


async def live(order: dict[str, Any], word: int, tell: Tell, effect: Callable[[str], None]) -> None:
    """Repair what was left, say so, wait for the word, and work."""
    os.environ["CUSTODY_SYNC_WITNESS"] = order["witness"]
    runtime = Runtime(clock=ShiftedClock(order["clock"]), reach=effect)
    name = f"{order['seed']}-{order['life']}"
    async with (
        open_world(order["uri"], embed=embed, setup=False) as world,
        await Ledger.open(order["ledger"], create=order["life"] == 0, runtime=runtime) as ledger,
        AsyncCoordinator(ledger, stores=world.stores, runtime=runtime) as custody,
    ):
        await mend(custody, world, runtime, tell)
        life = Life(custody, ledger, tell, order["seed"], name)
        for fact in await ledger.as_of(include_claimed=True, limit=1000):
            life.facts[fact.fact_id] = fact
        await asyncio.to_thread(os.read, word, 1)
        # Nothing is acknowledged before the word; the first write gives the others something to work on.
        await write(life, random.Random(name))
        await asyncio.gather(*(work(life, random.Random(f"{name}-{n}")) for n in range(WORKERS)))


async def mend(custody: AsyncCoordinator, world: World, runtime: Runtime, tell: Tell) -> None:
    """Repair once, past the repair age, and say how it went; what a killed sweep left is its own first."""
    result = await custody.repair(actor=CLERK, reason="after a crash", max_removals=1000)
    if result.resumed is not None:
        # It kept the cutoff of when it began: what was stored since is for the next one.
        tell({"resumed": result.resumed.isoformat()})
        result = await custody.repair(actor=CLERK, reason="after a crash", max_removals=1000)
    tell({"mended": result.complete, "result": repr(result), "now": runtime.clock.now().isoformat()})


def victim(order: dict[str, Any], word: int, pipe: int) -> int:
    """Live in this process and say over the pipe what is done and what went wrong."""

    def tell(said: dict[str, Any]) -> None:
        os.write(pipe, json.dumps(said).encode() + b"\n")

    def effect(point: str) -> None:
        os.write(pipe, EFFECT)

    if order.get("plant"):
        from kill_plants import PLANTS

        PLANTS[order["plant"]](tell)
    try:
        asyncio.run(live(order, word, tell, effect))
    except Exception:
        tell({"error": traceback.format_exc(limit=-3)})
        return 1
    return 0


@dataclass
class Parent:
    """A life that was begun, as its parent has it."""

    pid: int
    word: int
    pipe: int
    rest: bytes = b""
    said: list[dict[str, Any]] = field(default_factory=list)
    effects: int = 0
    is_over: bool = False

    @classmethod
    def fork(cls, order: dict[str, Any]) -> Parent:
        """Begin a life."""
        (hears, word), (pipe, says) = os.pipe(), os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(word)
            os.close(pipe)
            os._exit(victim(order, hears, says))
        os.close(hears)
        os.close(says)
        return cls(pid, word, pipe)

    def hear(self, until: float, stop: Callable[[], bool]) -> None:
        """Listen until a moment, until it is told to stop, or to the end."""
        while not self.is_over and not stop():
            ready, _, _ = select.select([self.pipe], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                return
            self._take(os.read(self.pipe, 65_536))

    def _take(self, data: bytes) -> None:
        self.is_over = not data
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            if line + b"\n" == EFFECT:
                self.effects += 1
            else:
                self.said.append(json.loads(line))

    def mended(self) -> dict[str, Any]:
        """Wait until it has repaired, and return what it said."""
        self.hear(time.monotonic() + PATIENCE, lambda: any("mended" in said for said in self.said))
        if self.is_over:
            return self.bury()
        return {"said": self.take_said()}

    def kill(self, order: dict[str, Any]) -> dict[str, Any]:
        """Give the word, kill it when its time has come, and return what it said until then."""
        before = self.effects
        os.write(self.word, b"!")
        if order["effects"] is not None:
            last = before + order["effects"]
            self.hear(time.monotonic() + PATIENCE, lambda: self.effects >= last)
            time.sleep(order["seconds"])
        else:
            self.hear(time.monotonic() + order["seconds"], lambda: False)
        os.kill(self.pid, signal.SIGKILL)
        return self.bury()

    def end(self) -> None:
        """Kill it if nobody has."""
        if not self.is_over:
            os.kill(self.pid, signal.SIGKILL)
            self.bury()

    def bury(self) -> dict[str, Any]:
        """Hear what it said last, and how it ended."""
        self.hear(time.monotonic() + PATIENCE, lambda: False)
        _, status = os.waitpid(self.pid, 0)
        os.close(self.pipe)
        os.close(self.word)
        return {"ended": os.waitstatus_to_exitcode(status), "said": self.take_said()}

    def take_said(self) -> list[dict[str, Any]]:
        """Return what was said and not yet passed on."""
        said, self.said = self.said, []
        return said


def main() -> None:
    """Obey one order after the other."""
    # What was imported is never garbage: a collection in a child would copy all its pages.
    gc.collect()
    gc.freeze()
    life: Parent | None = None
    for line in sys.stdin:
        order = json.loads(line)
        if order["step"] == "live":
            if life is not None:
                # One that was found guilty by the judge is still there.
                life.end()
            life = Parent.fork(order)
            answer = life.mended()
        else:
            assert life is not None, "there is nobody to kill"
            answer = life.kill(order)
        print(json.dumps(answer), flush=True)
    if life is not None:
        life.end()


if __name__ == "__main__":
    main()
