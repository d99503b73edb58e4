"""The real clock, ids, sleep, chance and threads, in one value that everything receives.

Nothing in the core calls `datetime.now`, `uuid`, `random`, `asyncio.sleep` or a thread pool by
itself, so a simulation can replace all of them at once.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import uuid
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime

from custody_sync.ports import Clock, FaultHook, Ids, Sleep


class SystemClock:
    """The machine's wall clock."""

    def now(self) -> datetime:
        """Return the current UTC instant."""
        return datetime.now(UTC)


class SystemIds:
    """Ids and salts from the operating system's randomness."""

    def fact_id(self, now: datetime) -> str:
        """Return a UUIDv7 (RFC 9562): 48 bits of milliseconds, then 74 random bits."""
        millis = int(now.timestamp() * 1000) & ((1 << 48) - 1)
        rand = int.from_bytes(os.urandom(10), "big")
        value = (millis << 80) | (0x7 << 76) | ((rand & 0xFFF) << 64) | (0b10 << 62) | (rand >> 18)
        return str(uuid.UUID(int=value))

    def event_id(self) -> str:
        """Return 128 random bits as hex."""
        return os.urandom(16).hex()

    def generation(self) -> str:
        """Return 48 random bits as hex."""
        return os.urandom(6).hex()

    def secret(self, size: int) -> bytes:
        """Return `size` bytes no one can guess."""
        return secrets.token_bytes(size)


def no_faults(point: str) -> None:
    """Reach a fault point and go on."""


def new_executor(name: str) -> Executor:
    """Return one worker thread, named after its work."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """Time, ids, chance, threads and fault points, passed to a ledger and to a coordinator."""

    clock: Clock = field(default_factory=SystemClock)
    ids: Ids = field(default_factory=SystemIds)
    sleep: Sleep = asyncio.sleep
    random: random.Random = field(default_factory=random.SystemRandom)
    reach: FaultHook = no_faults
    executor: Callable[[str], Executor] = new_executor
    """Makes the executor of one blocking role (a ledger's writer, a ledger's readers)."""
