"""Stores behind a network that loses, delays, doubles and reorders what is sent over it.

A request outlives whoever sent it: a process may die while its put is on the way, and the put
lands all the same. What a store does is done at one instant; what is told of it comes later, or never.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol, TypeVar

from custody_sync.errors import StoreRefused, StoreThrottled, StoreUnavailable
from custody_sync.model import Entry, Fact, Hit, Label
from custody_sync.ports import Listed
from custody_sync.testing.memory import MemoryStore
from custody_sync.testing.sim.loop import OWNER, Owner, ProcessDied, VirtualLoop

T = TypeVar("T")

CHANGING = frozenset({"put", "delete", "relabel"})
"""What changes what a store holds."""
LATEST = 280.0
"""Seconds after which nothing that was sent is still on its way."""


class NetFault(StrEnum):
    """What becomes of one call to a store."""

    LOST_REQUEST = "lost_request"
    """It never arrives."""
    LOST_REPLY = "lost_reply"
    """It is done, and the answer is lost."""
    LATE = "late"
    """The caller is told that it failed, and it is done afterwards."""
    HANG = "hang"
    """Nobody answers within any deadline; it is done at some time or other."""
    TWICE = "twice"
    """It is done, answered, and done once more later, as a proxy that tries again does."""
    REFUSED = "refused"
    THROTTLED = "throttled"
    ODD = "odd"
    """The vendor's code raises something of its own that quotes the text."""


class OddError(Exception):
    """A vendor's error: it quotes what it failed on."""


class Witness(Protocol):
    """Who is told what really happened at a store, at the instant it happens."""

    def put_landed(self, store: str, ids: Sequence[str], call: int, *, again: bool) -> None:
        """Entries are there; `call` is the operation that asked for them, once."""
        ...

    def will_delete(self, store: SimStore, entry: Entry, call: int) -> None:
        """An entry is about to be deleted."""
        ...

    def answered(self, store: str, entry: Entry, gone: bool) -> None:
        """The store has said whether an entry is gone."""
        ...

    def searched(self, call: int, hits: Sequence[Hit]) -> None:
        """A store has found these."""
        ...


CALL: contextvars.ContextVar[int] = contextvars.ContextVar("custody_sync.sim.call", default=-1)
"""Which operation of the run a context works for."""


@dataclass(slots=True)
class Network:
    """The way to every store of one run.

    Args:
        loop: its time.
        chance: draws delays.
        slow: how long a message takes at most, in seconds; 0 keeps everything at once.
        witness: is told what happens.
    """

    loop: VirtualLoop
    chance: random.Random
    slow: float
    witness: Witness
    touched: Callable[[int, str, bool], None] = lambda call, store, changes: None
    """Told of every request as it reaches a store: whose, which store, and whether it changes anything."""
    calm: bool = False
    """Whether everything arrives at once and nothing goes wrong any more."""
    waiting: dict[int, Callable[[], None]] = field(default_factory=dict)
    """What is on its way although nobody waits for it."""
    context: contextvars.Context = field(default_factory=contextvars.Context)
    """Belongs to no process."""

    def delay(self) -> float:
        """Draw how long a message takes."""
        if self.calm or self.slow <= 0 or self.chance.random() < 0.6:
            return 0.0
        return self.chance.random() * self.slow

    def soon(self, work: Callable[..., None], *args: object) -> None:
        """Do something as soon as a message takes."""
        if (seconds := self.delay()) > 0:
            self.loop.call_later(seconds, work, *args, context=self.context)
        else:
            self.loop.call_soon(work, *args, context=self.context)

    def later(self, seconds: float, work: Callable[[], None]) -> None:
        """Do something after a while, whoever is still alive by then."""
        number = self.loop.steps * 1000 + len(self.waiting)

        def land() -> None:
            self.waiting.pop(number, lambda: None)()

        self.waiting[number] = work
        self.loop.call_later(seconds, land, context=self.context)

    def flush(self) -> None:
        """Let everything arrive that is still on its way."""
        while self.waiting:
            number = min(self.waiting)
            self.waiting.pop(number)()


class SimStore(MemoryStore):
    """A `MemoryStore` at the other end of a network.

    Everything that `MemoryStore.faults` can do it can do as well; see there for indexes that lag and
    deletes that lie.
    """

    def __init__(self, name: str, network: Network, **options: Any) -> None:
        super().__init__(name, **options)
        self.network = network
        self.armed: dict[str, list[NetFault]] = {}
        """The faults of the next calls of each operation."""
        self.away = False
        """Whether nothing reaches it."""
        self.blends_spaces = False
        """Whether a search finds entries of every space, whichever were asked for."""
        self._read: dict[str, tuple[object, Entry]] = {}

    def heal(self) -> None:
        """End everything that goes wrong, but for what is on its way."""
        self.armed.clear()
        self.away = False

    def holds(self, external_id: str) -> bool:
        """Tell whether an entry is really there."""
        return external_id in self._held

    def _entry(self, held: Any) -> Entry:
        known = self._read.get(held.external_id)
        if known is None or known[0] is not held:
            self._read[held.external_id] = known = held, super()._entry(held)
        return known[1]

    def entry(self, external_id: str) -> Entry | None:
        """Return what is really there under an id."""
        held = self._held.get(external_id)
        return None if held is None else self._entry(held)

    def lose(self, count: int) -> list[str]:
        """Lose the newest entries with a label, behind everybody's back, and return their ids."""
        newest = [external_id for external_id in self._held if not external_id.startswith("raw-")][-count:]
        for external_id in newest:
            self.drop(external_id)
        return newest

    def reword(self, words: str) -> str | None:
        """Give the newest entry with a label another text, behind everybody's back, and return its id."""
        newest = [external_id for external_id in self._held if not external_id.startswith("raw-")][-1:]
        for external_id in newest:
            self._held[external_id] = replace(self._held[external_id], text=words)
        return newest[0] if newest else None

    def shown(self) -> list[Entry]:
        """Return every entry that is really there or that its index still has."""
        lag = self.faults.index_lag
        lagging = [ghost for ghost in self._ghosts.values() if self._asked - ghost.asked < lag]
        return [self._entry(held) for held in (*self._held.values(), *lagging)]

    def time(self) -> datetime:
        """Return the store's own time, which is true."""
        return self._clock.now()

    # --- one call ---------------------------------------------------------------------------

    async def _send(self, operation: str, work: Callable[[], Coroutine[Any, Any, T]], quote: str = "") -> T:
        """Carry one request there and its answer back."""
        owner, network = OWNER.get(), self.network
        if owner is not None and owner.dead:
            raise ProcessDied
        armed = self.armed.get(operation)
        fault = armed.pop(0) if armed else None
        reply: asyncio.Future[T] = network.loop.create_future()
        call = CALL.get()

        def arrive() -> None:
            network.touched(call, self.name, operation in CHANGING)
            if fault in (NetFault.LOST_REPLY, NetFault.LATE, NetFault.HANG):
                self._do(work)
                answer: T | Exception = self._lost(operation)
            elif self.away or fault is NetFault.LOST_REQUEST:
                answer = self._lost(operation)
            elif fault is not None and fault is not NetFault.TWICE:
                answer = self._problem(fault, operation, quote)
            else:
                answer = self._do(work)
            if fault is NetFault.TWICE:
                network.later(network.chance.random() * LATEST, lambda: void(self._do(work)))
            if fault is not NetFault.HANG:
                network.soon(_settle, reply, answer, owner)

        if fault in (NetFault.LATE, NetFault.HANG):
            network.later(network.chance.random() * LATEST, arrive)
            if fault is NetFault.LATE:
                raise self._lost(operation)
        else:
            network.soon(arrive)
        return await reply

    def _do(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T | Exception:
        """Carry a request out, all at one instant."""
        if self.away:
            return self._lost("call")
        coroutine = work()
        try:
            coroutine.send(None)
        except StopIteration as done:
            answer: T = done.value
            return answer
        except Exception as error:
            return error
        coroutine.close()
        raise AssertionError("a simulated store waits for nothing")

    def _lost(self, operation: str) -> StoreUnavailable:
        return StoreUnavailable(store=self.name, operation=operation, cause="reset")

    def _problem(self, fault: NetFault, operation: str, quote: str) -> Exception:
        if fault is NetFault.REFUSED:
            return StoreRefused(store=self.name, operation=operation, cause="refused")
        if fault is NetFault.THROTTLED:
            return StoreThrottled(store=self.name, operation=operation, cause="throttled", retry_after=1.0)
        return OddError(f"cannot {operation} {quote!r}")

    # --- the store's verbs ------------------------------------------------------------------

    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        """Hold a text."""
        call, hold, landed = CALL.get(), super().put, 0

        async def work() -> Sequence[str]:
            nonlocal landed
            ids = await hold(fact, label)
            landed += 1
            self.network.witness.put_landed(self.name, ids, call, again=landed > 1)
            return ids

        return await self._send("put", work, fact.text or "")

    async def delete(self, entry: Entry) -> None:
        """Drop an entry."""
        call, drop = CALL.get(), super().delete

        async def work() -> None:
            self.network.witness.will_delete(self, entry, call)
            await drop(entry)

        await self._send("delete", work, entry.text or entry.external_id)

    async def find(self, fact_id: str) -> list[Entry]:
        """Return every entry of a fact."""
        look = super().find
        return await self._send("find", lambda: look(fact_id))

    async def list_pages(self, after: str | None = None, until: str | None = None) -> AsyncGenerator[Listed]:
        """Yield what it holds; others go on between two pages."""
        await self._send("list_entries", _nothing)
        async with aclosing(super().list_pages(after, until)) as pages:
            async for page in pages:
                self.network.touched(CALL.get(), self.name, False)
                yield page
                await self._send("list_page", _nothing)

    async def verify_deleted(self, entry: Entry) -> bool:
        """Say whether an entry is gone."""
        ask = super().verify_deleted

        async def work() -> bool:
            gone = await ask(entry)
            self.network.witness.answered(self.name, entry, gone)
            return gone

        return await self._send("verify_deleted", work, entry.text or "")

    async def search(self, query: str, k: int, spaces: Sequence[str] | None) -> list[Hit]:
        """Return the best hits."""
        call, look = CALL.get(), super().search

        async def work() -> list[Hit]:
            hits = await look(query, k, None if self.blends_spaces else spaces)
            self.network.witness.searched(call, hits)
            return hits

        return await self._send("search", work, query)

    async def relabel(self, entry: Entry, label: Label) -> None:
        """Change a label."""
        change = super().relabel
        await self._send("relabel", lambda: change(entry, label))


async def _nothing() -> None:
    """Ask for nothing but the way there and back."""


def void(answer: object) -> None:
    """Drop an answer that nobody waits for."""


def _settle(reply: asyncio.Future[Any], answer: object, owner: Owner | None) -> None:
    if reply.done() or (owner is not None and owner.dead):
        return
    if isinstance(answer, Exception):
        reply.set_exception(answer)
        # Whoever waits for it may die first, and then nobody is to blame for not hearing of it.
        reply.exception()
    else:
        reply.set_result(answer)


__all__ = ["CALL", "LATEST", "NetFault", "Network", "SimStore", "Witness"]
