"""The real clock, ids, sleep, chance and threads, in one value that everything receives.

Nothing in the core calls `datetime.now`, `uuid`, `random`, `asyncio.sleep` or a thread pool by
itself, so a simulation can replace all of them at once.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime

from custody_sync.ports import Clock, FaultHook, Ids, Sleep, Tracer

PIECE = 16
PIECES = 64


class SystemClock:
    """The machine's wall clock."""

    def now(self) -> datetime:
        """Return the current UTC instant."""
        return datetime.now(UTC)


class SystemIds:
    """Ids and salts from the operating system's randomness, drawn a kilobyte at a time.

    Every draw gives up the interpreter lock, and beside a busy thread it takes long to get back.
    """

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._owner = os.getpid()

    def fact_id(self, now: datetime) -> str:
        """Return a UUIDv7 (RFC 9562): 48 bits of milliseconds, then 74 random bits."""
        millis = int(now.timestamp() * 1000) & ((1 << 48) - 1)
        rand = int.from_bytes(self.secret(10), "big")
        value = (millis << 80) | (0x7 << 76) | ((rand & 0xFFF) << 64) | (0b10 << 62) | (rand >> 18)
        text = f"{value:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def event_id(self) -> str:
        """Return 128 random bits as hex."""
        return self.secret(16).hex()

    def generation(self) -> str:
        """Return 48 random bits as hex."""
        return self.secret(6).hex()

    def secret(self, size: int) -> bytes:
        """Return `size` bytes no one can guess."""
        if size > PIECE:
            return os.urandom(size)
        # A forked child must not hand out what its parent drew.
        if self._owner != (process := os.getpid()):
            self._pieces, self._owner = [], process
        try:
            return self._pieces.pop()[:size]
        except IndexError:
            drawn = os.urandom(PIECE * PIECES)
            fresh = [drawn[at : at + PIECE] for at in range(0, len(drawn), PIECE)]
            taken = fresh.pop()[:size]
            self._pieces += fresh
            return taken


def no_faults(point: str) -> None:
    """Reach a fault point and go on."""


def new_executor(name: str) -> Executor:
    """Return one worker thread, named after its work."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """Time, ids, chance, threads, fault points and a tracer, passed to a ledger and to a coordinator."""

    clock: Clock = field(default_factory=SystemClock)
    ids: Ids = field(default_factory=SystemIds)
    sleep: Sleep = asyncio.sleep
    random: random.Random = field(default_factory=random.SystemRandom)
    reach: FaultHook = no_faults
    executor: Callable[[str], Executor] = new_executor
    """Makes the executor of one blocking role (a ledger's writer, a ledger's readers)."""
    tracer: Tracer | None = None
    """Is told of every operation of a coordinator and every call to a store."""
