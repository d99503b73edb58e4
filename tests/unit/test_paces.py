"""How fast a store may be called: turns at a steady rate, and settings that say so."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from custody_sync import errors
from custody_sync.gates import open_gates
from custody_sync.runtime import Runtime
from custody_sync.settings import load_settings
from custody_sync.stores import Deadlines, Gate
from custody_sync.testing import MemoryStore
from custody_sync.throttling import Bucket, Pace


class Time:
    """A clock by hand, whose sleep takes its time and is remembered."""

    def __init__(self) -> None:
        self.at = datetime(2026, 1, 1, tzinfo=UTC)
        self.slept: list[float] = []

    def now(self) -> datetime:
        """Return the time."""
        return self.at

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.slept.append(seconds)
        self.at += timedelta(seconds=seconds)

    def runtime(self) -> Runtime:
        """Return a runtime of this time."""
        return Runtime(clock=self, sleep=self.sleep)


def gate_of(store: MemoryStore, time: Time, **pace: Any) -> Gate:
    """Return a gate with a pace."""
    paces = {store.name: Pace(**pace)}
    return open_gates([store], time.runtime(), Deadlines(), "remove", paces)[store.name]


async def test_turns_come_at_a_steady_rate() -> None:
    """A second's worth at once, then one after the other; what was not used does not pile up."""
    time = Time()
    bucket = Bucket(4, time.runtime())
    for _ in range(6):
        await bucket.turn()
    assert time.slept == [0.25, 0.25]
    time.at += timedelta(hours=1)
    time.slept.clear()
    for _ in range(5):
        await bucket.turn()
    assert time.slept == [0.25]


async def test_turns_of_many_at_once_are_one_queue() -> None:
    """Each waits for those before it."""
    time = Time()
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    bucket = Bucket(1, Runtime(clock=time, sleep=sleep))
    await asyncio.gather(*(bucket.turn() for _ in range(4)))
    assert waits == [1.0, 2.0, 3.0]


async def test_a_clock_that_is_set_back_stops_nobody() -> None:
    """It gives no turns and takes none."""
    time = Time()
    bucket = Bucket(1, time.runtime())
    await bucket.turn()
    time.at -= timedelta(hours=1)
    await bucket.turn()
    assert time.slept == [1.0]


async def test_calls_and_pages_wait_for_their_turn() -> None:
    """Every question and every page of a listing is a call."""
    time = Time()
    store = MemoryStore("a", page_size=1)
    for n in range(3):
        store.put_raw(f"text {n}")
    gate = gate_of(store, time, per_second=1)
    await gate.find("x")
    assert [len(page.rows) async for page in gate.listing(10)] == [1, 1, 1]
    assert time.slept == [1.0] * 4, "three pages, and the question whether there is another"


async def test_calls_at_once() -> None:
    """No more run at once than the pace says, whatever the deadlines say."""
    store = MemoryStore("a")
    running: list[int] = []
    most: list[int] = []

    async def find(fact_id: str) -> list[Any]:
        running.append(1)
        most.append(len(running))
        await asyncio.sleep(0)
        running.pop()
        return []

    store.find = find  # type: ignore[method-assign]  # watched
    gate = gate_of(store, Time(), concurrency=2)
    await asyncio.gather(*(gate.find("x") for _ in range(8)))
    assert max(most) == 2


async def test_unanswered_calls_are_counted_in_a_row() -> None:
    """An answer, also a refusal, begins anew."""
    store = MemoryStore("a")
    gate = gate_of(store, Time())
    store.faults.refuse("find")
    for _ in range(3):
        with pytest.raises(errors.StoreUnavailable):
            await gate.find("x")
    assert gate.unanswered == 3
    store.faults.refuse("find", errors.StoreRefused(store="a", operation="find", cause="no"))
    with pytest.raises(errors.StoreRefused):
        await gate.find("x")
    assert gate.unanswered == 0


@pytest.mark.parametrize(
    "told",
    [{"concurrency": 0}, {"concurrency": True}, {"concurrency": 1.5}, {"per_second": 0}, {"per_second": "1"},
     {"per_second": True}, {"per_second": float("inf")}, {"per_second": 0.01}],
)  # fmt: skip
def test_a_pace_that_cannot_be(told: dict[str, Any]) -> None:
    """Refused by the name of what is wrong."""
    with pytest.raises(errors.InvalidInput) as caught:
        Pace(**told)
    assert caught.value.field in told


def test_a_pace_of_nobody() -> None:
    """A store that is not configured, and something that is no pace."""
    with pytest.raises(errors.InvalidInput, match="no configured store"):
        open_gates([MemoryStore("a")], Runtime(), Deadlines(), "remove", {"b": Pace()})
    odd: Any = {"a": 5}
    with pytest.raises(errors.InvalidInput, match="not a Pace"):
        open_gates([MemoryStore("a")], Runtime(), Deadlines(), "remove", odd)


def test_paces_in_custody_toml(tmp_path: Path) -> None:
    """One table a store."""
    path = tmp_path / "custody.toml"
    path.write_text(
        "[stores.vectors]\nconcurrency = 4\nper_second = 10\n\n[stores.hosted]\nper_second = 0.5\n"
    )
    paces = load_settings(path, environ={}).paces
    assert paces == {"vectors": Pace(concurrency=4, per_second=10), "hosted": Pace(per_second=0.5)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[stores.a]\nper_minute = 1\n", "stores.a: unknown key 'per_minute'"),
        ("[stores.a]\nper_second = 0\n", "stores.a: per_second: must be a number"),
        ("[stores]\na = 5\n", "stores.a: is a table"),
    ],
)
def test_paces_that_cannot_be_read(tmp_path: Path, text: str, said: str) -> None:
    """The file, the store and the key are named."""
    path = tmp_path / "custody.toml"
    path.write_text(text)
    with pytest.raises(errors.InvalidInput) as caught:
        load_settings(path, environ={})
    assert said in str(caught.value)
    assert str(path) in str(caught.value)
