"""A run that is shared begins after everybody who shares it asked."""

from __future__ import annotations

import asyncio

import pytest

from custody_sync.adapters._cognee_shared import NextRun


class Work:
    """Runs that a test lets end, one after the other."""

    def __init__(self) -> None:
        self.begun, self.running, self.most = 0, 0, 0
        self.go = asyncio.Semaphore(0)

    async def __call__(self, key: str) -> int:
        """Count a run, and end when the test says so."""
        self.begun += 1
        self.running += 1
        self.most = max(self.most, self.running)
        number = self.begun
        await self.go.acquire()
        self.running -= 1
        if key == "broken":
            raise ConnectionError(number)
        return number


async def settle() -> None:
    """Let every task go on as far as it can."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_whoever_asks_during_a_run_shares_the_next() -> None:
    """An answer is never older than the question; runs of one key never overlap."""
    work = Work()
    run = NextRun(work)
    first = asyncio.ensure_future(run("a"))
    await settle()
    later = [asyncio.ensure_future(run("a")) for _ in range(5)]
    await settle()
    assert work.begun == 1
    work.go.release()
    await settle()
    work.go.release()
    assert await first == 1
    assert await asyncio.gather(*later) == [2] * 5
    assert work.most == 1


async def test_keys_do_not_wait_for_each_other() -> None:
    """Two datasets are read at the same time."""
    work = Work()
    run = NextRun(work)
    both = [asyncio.ensure_future(run(key)) for key in "ab"]
    await settle()
    assert work.running == 2
    work.go.release()
    work.go.release()
    assert sorted(await asyncio.gather(*both)) == [1, 2]


async def test_a_failure_is_everybodys_and_the_next_run_is_new() -> None:
    """All who share a run get its error, and the next question is asked anew."""
    work = Work()
    run = NextRun(work)
    asked = [asyncio.ensure_future(run("broken")) for _ in range(3)]
    await settle()
    work.go.release()
    errors = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(error) for error in errors] == [ConnectionError] * 3
    work.go.release()
    with pytest.raises(ConnectionError):
        await run("broken")
    assert work.begun == 2


async def test_who_stops_waiting_stops_nobody_elses_run() -> None:
    """A cancelled question leaves the run to those who still wait, and to Cognee, which goes on anyway."""
    work = Work()
    run = NextRun(work)
    gives_up, stays = asyncio.ensure_future(run("a")), asyncio.ensure_future(run("a"))
    await settle()
    gives_up.cancel()
    await settle()
    work.go.release()
    assert await stays == 1
    assert gives_up.cancelled()
