"""Group commit by itself: who shares a commit, who hears of what, and what a closed loop leaves behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from custody_sync.errors import ClosedError, LedgerBusy
from custody_sync.ledger.grouping import FEW, MAX_GROUP, GroupWriter, LoopGroupWriter
from custody_sync.testing import InlineExecutor


class Sink:
    """A commit that remembers its groups; an item that is an exception makes the whole group fail."""

    def __init__(self) -> None:
        self.groups: list[list[Any]] = []

    def __call__(self, works: Sequence[Any], tell: Callable[[], None]) -> list[Any]:
        """Commit a group."""
        self.groups.append(list(works))
        for work in works:
            if isinstance(work, BaseException):
                raise work
        return [f"did {work}" for work in works]


async def test_callers_of_one_turn_share_one_commit() -> None:
    """Each gets its own result, in its own order."""
    sink = Sink()
    writer: GroupWriter[Any] = GroupWriter(InlineExecutor(), sink, "l")
    results = await asyncio.gather(*(writer.do(i) for i in range(10)))
    assert results == [f"did {i}" for i in range(10)]
    assert sink.groups == [list(range(10))]


async def test_a_group_has_a_largest_size() -> None:
    """More than that is committed in several groups, in order, none lost."""
    sink = Sink()
    writer: GroupWriter[int] = GroupWriter(InlineExecutor(), sink, "l")
    await asyncio.gather(*(writer.do(i) for i in range(MAX_GROUP * 3)))
    sizes = [len(group) for group in sink.groups]
    assert max(sizes) == MAX_GROUP
    assert min(sizes[:-1]) >= FEW
    assert [work for group in sink.groups for work in group] == list(range(MAX_GROUP * 3))


async def test_half_of_the_callers_make_work_while_the_other_half_waits() -> None:
    """A group takes no more than half of all who are at it, once they are more than a few."""
    sink = Sink()
    writer: GroupWriter[int] = GroupWriter(InlineExecutor(), sink, "l")

    async def caller(i: int) -> None:
        for _ in range(3):
            await writer.do(i)

    await asyncio.gather(*(caller(i) for i in range(4 * FEW)))
    assert len(sink.groups[0]) == 2 * FEW
    assert sum(map(len, sink.groups)) == 12 * FEW


async def test_a_group_hears_its_results_before_the_next_one_waits() -> None:
    """Held back while the next group is prepared, told when that one is about to wait, and only once."""
    told: list[tuple[int, bool]] = []
    first: list[asyncio.Future[Any]] = []

    def commit(works: Sequence[int], tell: Callable[[], None]) -> list[int]:
        told.append((works[0], any(future.done() for future in first)))
        tell()
        tell()
        return list(works)

    writer: GroupWriter[int] = GroupWriter(InlineExecutor(), commit, "l")
    first += [asyncio.ensure_future(writer.do(i)) for i in range(2 * FEW)]
    await asyncio.gather(*first)
    assert told == [(0, False), (FEW, False)]


async def test_a_failed_commit_is_every_callers_own_error() -> None:
    """Each gets an exception object of its own, so that tracebacks do not pile up; the next group works."""
    sink = Sink()
    writer: GroupWriter[Any] = GroupWriter(InlineExecutor(), sink, "l")
    works = [1, LedgerBusy(name="l"), 3]
    results = await asyncio.gather(*map(writer.do, works), return_exceptions=True)
    assert [(type(result), str(result)) for result in results] == [(LedgerBusy, str(works[1]))] * 3
    assert len({id(result) for result in results}) == 3
    assert await writer.do(4) == "did 4"


async def test_close_commits_what_waits_and_refuses_the_rest() -> None:
    """Work that was handed in before is done, and none is taken after."""
    sink = Sink()
    writer: GroupWriter[int] = GroupWriter(InlineExecutor(), sink, "the ledger")
    waiting = asyncio.ensure_future(writer.do(1))
    await asyncio.sleep(0)
    writer.close()
    assert await waiting == "did 1"
    with pytest.raises(ClosedError, match="the ledger is closed"):
        await writer.do(2)


async def test_an_executor_that_takes_no_more_work_leaves_nobody_waiting() -> None:
    """Its callers are told that the ledger is closed."""
    executor = InlineExecutor()
    writer: GroupWriter[int] = GroupWriter(executor, Sink(), "l")
    executor.shutdown()
    results = await asyncio.gather(writer.do(1), writer.do(2), return_exceptions=True)
    assert [type(result) for result in results] == [ClosedError, ClosedError]


def test_a_loop_that_ends_before_its_commit_blocks_no_other() -> None:
    """A caller whose loop was closed in the middle is forgotten; another loop's caller is served."""
    sink = Sink()
    writer: GroupWriter[int] = GroupWriter(InlineExecutor(), sink, "l")
    loop = asyncio.new_event_loop()
    task = loop.create_task(writer.do(1))
    # One turn, and no more: the writer would be started in the next one.
    loop.call_soon(loop.stop)
    loop.run_forever()
    task.cancel()
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # it is destroyed on purpose
    loop.close()
    assert asyncio.run(writer.do(2)) == "did 2"
    assert sink.groups == [[1, 2]]


def test_callers_in_many_loops_and_threads_are_all_served() -> None:
    """A handle may be used from any event loop; every caller gets its own answer in its own loop."""
    sink = Sink()
    results: dict[int, list[str]] = {}
    with ThreadPoolExecutor(1) as executor:
        writer: GroupWriter[str] = GroupWriter(executor, sink, "l")

        async def many(me: int) -> list[str]:
            return [await writer.do(f"{me}-{i}") for i in range(50)]

        threads = [
            threading.Thread(target=lambda me=me: results.update({me: asyncio.run(many(me))}))
            for me in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == {me: [f"did {me}-{i}" for i in range(50)] for me in range(6)}
    assert sum(map(len, sink.groups)) == 300


async def test_in_one_loop_callers_of_one_turn_share_one_commit() -> None:
    """As in threads: each gets its own result, a failure reaches all, and a cancelled caller stops nobody."""
    groups: list[list[Any]] = []
    going = asyncio.Event()

    async def commit(works: Sequence[Any]) -> list[Any]:
        groups.append(list(works))
        await going.wait()
        if "bad" in works:
            raise LedgerBusy(name="l")
        return [f"did {work}" for work in works]

    writer: LoopGroupWriter[Any] = LoopGroupWriter(commit, "l")
    first = [asyncio.ensure_future(writer.do(i)) for i in range(3)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    later = [asyncio.ensure_future(writer.do(work)) for work in ("bad", "good", "dropped")]
    await asyncio.sleep(0)
    first[0].cancel()
    later[2].cancel()
    going.set()
    results = await asyncio.gather(*first, *later, return_exceptions=True)
    assert groups == [[0, 1, 2], ["bad", "good"]]
    assert results[1:3] == ["did 1", "did 2"]
    assert [type(result) for result in results[3:5]] == [LedgerBusy, LedgerBusy]
    assert results[3] is not results[4]
    assert all(isinstance(results[i], asyncio.CancelledError) for i in (0, 5))


async def test_in_one_loop_what_waits_is_committed_before_it_is_closed() -> None:
    """And nothing after it."""

    async def commit(works: Sequence[int]) -> list[int]:
        await asyncio.sleep(0)
        return list(works)

    writer: LoopGroupWriter[int] = LoopGroupWriter(commit, "l")
    waiting = [asyncio.ensure_future(writer.do(i)) for i in range(MAX_GROUP + 1)]
    await asyncio.sleep(0)
    await writer.close()
    assert [future.result() for future in waiting] == list(range(MAX_GROUP + 1))
    with pytest.raises(ClosedError):
        await writer.do(1)
