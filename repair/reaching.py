"""Which stores answer in this run: each is tried with one piece of work before it gets the rest.

A store that is down would otherwise cost every one of its rows all the patience there is, and an event
that says that nothing came of it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from custody_sync.ledger import Ledger
from custody_sync.model import Outcome, format_instant
from custody_sync.repair.backoff import Backoff
from custody_sync.repair.findings import Findings
from custody_sync.repair.lease import Lease
from custody_sync.repair.listing import Listing
from custody_sync.results import Repaired, Restored, Retry
from custody_sync.runtime import Runtime
from custody_sync.stores import Gate

S = TypeVar("S")
T = TypeVar("T")

PROBES = 3
"""So many pieces of work, drawn by lot, are tried: one that a store chokes on must not hold up the rest."""
SILENT = 5
"""A store that leaves so many calls in a row without an answer is out for the rest of the run."""


class Reach:
    """Knows which stores answer, and leaves alone those that do not.

    Args:
        ledger: keeps from run to run who did not answer.
        gates: the configured stores by name.
        lease: kept while it works.
        runtime: chance.
    """

    def __init__(
        self,
        ledger: Ledger,
        gates: Mapping[str, Gate],
        lease: Lease,
        runtime: Runtime,
    ) -> None:
        self._ledger = ledger
        self._gates = gates
        self._lease = lease
        self._runtime = runtime
        self._backoff = Backoff(ledger, runtime)
        self._down: dict[str, Retry] = {}
        self._answering: set[str] = set()
        self._left: Counter[str] = Counter()
        self._trying: dict[str, asyncio.Lock] = {}

    def is_out(self, store: str) -> bool:
        """Tell whether a store is left alone in this run."""
        return store in self._down

    def leave(self, store: str, count: int) -> None:
        """Count pieces of work that stay as they are."""
        self._left[store] += count

    async def each(
        self, store: str, items: Sequence[S], work: Callable[[S, bool], Coroutine[Any, Any, T]]
    ) -> list[T]:
        """Work on one store's items, as long as it answers; the others stay as they are.

        Args:
            store: its name.
            items: what to work on.
            work: does one; told whether to try only once, since nobody knows yet if the store is there.
        """
        gate = self._gates.get(store)
        if gate is None:
            return await self._lease.each(items, lambda item: work(item, False))
        # One at a time until it has answered: another page of the same store waits for that.
        async with self._trying.setdefault(store, asyncio.Lock()):
            done, items = await self._try(gate, list(items), work)
        if self.is_out(store):
            self._left[store] += len(items) + sum(map(_is_left, done))
            return done
        rest = await self._lease.each(items, lambda item: self._while_it_answers(gate, item, work))
        done += [result for some in rest for result in some]
        if gate.unanswered >= SILENT:
            await self.missed(store)
            self._left[store] += sum(map(_is_left, done))
        return done

    async def _try(
        self, gate: Gate, items: list[S], work: Callable[[S, bool], Coroutine[Any, Any, T]]
    ) -> tuple[list[T], list[S]]:
        """Try a store with some of its items, until one call is answered; return what is left to do."""
        done: list[T] = []
        if not items or gate.name in self._answering or self.is_out(gate.name):
            return done, items
        drawn = self._runtime.random.sample(range(len(items)), min(PROBES, len(items)))
        for at in drawn:
            answers, unanswered = gate.answers, gate.unanswered
            await self._lease.keep()
            done.append(await work(items[at], True))
            if gate.answers > answers or gate.unanswered == unanswered:
                await self.met(gate.name)
                break
        else:
            await self.missed(gate.name)
        tried = dict(zip(drawn, done, strict=False))
        if not self.is_out(gate.name):
            # It is there after all, so what was tried only once is tried like the rest.
            tried = {at: result for at, result in tried.items() if not _is_left(result)}
        return list(tried.values()), [item for at, item in enumerate(items) if at not in tried]

    async def _while_it_answers(
        self, gate: Gate, item: S, work: Callable[[S, bool], Coroutine[Any, Any, T]]
    ) -> list[T]:
        if gate.unanswered >= SILENT:
            self._left[gate.name] += 1
            return []
        return [await work(item, False)]

    async def met(self, store: str) -> None:
        """Take down that a store answered."""
        if store not in self._answering and store not in self._down:
            self._answering.add(store)
            await self._backoff.answered(store)

    async def missed(self, store: str) -> None:
        """Take down that a store did not answer; once in a run."""
        if store not in self._down:
            self._down[store] = await self._backoff.failed(store)

    async def saw(self, gate: Gate, listing: Listing) -> None:
        """Take down whether a store answered when it was listed."""
        if listing.failed is None:
            await self.met(gate.name)
        elif gate.unanswered:
            await self.missed(gate.name)

    def tell(self, findings: Findings) -> None:
        """Say of each store that was left alone why, how much waits there, and when it is tried again."""
        for store, retry in sorted(self._down.items()):
            findings.still_held.append(f"{store}: does not answer; {self._waits(store, retry)}")

    def _waits(self, store: str, retry: Retry) -> str:
        count = self._left[store]
        waits = f"{count} pending pieces of work wait" if count != 1 else "1 pending piece of work waits"
        return f"{waits} there, tried again from {format_instant(retry.next_at)}"


def _is_left(result: object) -> bool:
    """Tell of what was tried whether it still waits."""
    if isinstance(result, Repaired):
        return result.outcome is not Outcome.VERIFIED
    return isinstance(result, Restored) and not result.placed


__all__ = ["Reach"]
