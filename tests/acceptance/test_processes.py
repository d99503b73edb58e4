"""Two processes write through one ledger file into the same stores, and want to correct the same facts."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from fix_oracle import Oracle
from fix_world import ShiftedClock, open_world

from custody_sync import AsyncCoordinator, Ledger
from custody_sync.runtime import Runtime

PROGRAM = Path(__file__).with_name("writing_process.py")
ROUNDS, LATER = 25, 11 * 60


class Writer:
    """One of the processes."""

    def __init__(self, uri: str, url: str, name: str) -> None:
        paths = [str(PROGRAM.parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM), uri, url, name],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, **what: Any) -> None:
        """Start a round and do not wait."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        """Wait for what the process has to say."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process has ended; its traceback is on standard error"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> int:
        """Let the process end."""
        try:
            self._process.communicate(timeout=60)
        finally:
            self._process.kill()
        return self._process.returncode


@contextmanager
def two_writers(uri: str, url: str) -> Iterator[tuple[Writer, Writer]]:
    """Start both and wait until both are ready."""
    one, two = Writer(uri, url, "one"), Writer(uri, url, "two")
    try:
        assert [writer.hear()["ready"] for writer in (one, two)] == ["one", "two"]
        yield one, two
    finally:
        ended = one.end(), two.end()
    assert ended == (0, 0)


async def write_targets(custody: AsyncCoordinator) -> list[str]:
    """Write what both will want to replace."""
    said = {"predicate": "plan", "space": "org", "actor": "agent:clerk"}
    written = [await custody.write(subject=f"acct:{n}", value="silver", **said) for n in range(ROUNDS)]
    return [result.fact.fact_id for result in written]


def race(writers: tuple[Writer, Writer], targets: list[str]) -> list[list[dict[str, Any]]]:
    """Have both replace one target after the other, each at the same time."""
    rounds = []
    for n, target in enumerate(targets):
        for writer in writers:
            writer.tell(n=n, target=target)
        rounds.append([writer.hear() for writer in writers])
    return rounds


async def sweep_until(done: asyncio.Future[Any], custody: AsyncCoordinator) -> int:
    """Sweep again and again meanwhile, and return how often."""
    sweeps = 0
    while not done.done():
        await custody.repair(actor="agent:clerk", reason="at the worst of times")
        sweeps += 1
    return sweeps


async def test_of_two_processes_one_wins_and_the_other_leaves_nothing(
    database_uri: str, tmp_path: Path
) -> None:
    """Each race has one winner, a loser leaves nothing, and sweeps meanwhile take nothing under way."""
    url, later = f"sqlite:///{tmp_path / 'custody.db'}", Runtime(clock=ShiftedClock(LATER))
    async with open_world(database_uri) as world:
        async with (
            await Ledger.open(url, create=True) as ledger,
            AsyncCoordinator(ledger, stores=world.stores) as custody,
        ):
            targets = await write_targets(custody)
            with two_writers(database_uri, url) as writers:
                racing = asyncio.ensure_future(asyncio.to_thread(race, writers, targets))
                assert await sweep_until(racing, custody) > 1
                rounds = await racing
        for n, answers in enumerate(rounds):
            assert sorted(answer["won"] is None for answer in answers) == [False, True], f"round {n}"
            assert [answer["complete"] for answer in answers if answer["won"]] == [True], f"round {n}"
        # A loser that saw the winner before it had put anything had nothing to take back.
        assert sum(answer["taken_back"] for answer in rounds[-1]) > 0, "no two writes ever met"
        kept = {answer[what] for answers in rounds for answer in answers for what in ("own", "won")} - {None}
        with psycopg.connect(database_uri, autocommit=True) as engine:
            oracle = Oracle(tmp_path, engine)
            async with (
                await Ledger.open(url, runtime=later) as ledger,
                AsyncCoordinator(ledger, stores=world.stores, runtime=later) as custody,
            ):
                assert oracle.judge(ledger.now(), kept=kept) == kept
                result = await custody.repair(actor="agent:clerk", reason="is there anything to do?")
            assert (result.repaired, result.restored, result.young, result.undated) == ((), (), (), ())
            assert result.complete
            assert oracle.judge(ledger.now(), kept=kept) == kept
