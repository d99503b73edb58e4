"""The ledger's Postgres is stopped under its writers and comes back; one repair, and all is right again."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from fix_cli import Cli
from fix_oracle import Oracle
from fix_world import AGENT, MEMORIES, ShiftedClock, World, open_busy_world

from custody_sync import AsyncCoordinator, Ledger
from custody_sync.errors import BreakerOpen, LedgerError, MissingExtra
from custody_sync.runtime import Runtime
from custody_sync.testing.postgres import EmbeddedPostgres

PROGRAM = Path(__file__).with_name("drilling_process.py")
FULL = bool(os.environ.get("CUSTODY_SYNC_FULL"))
DOWN = 30.0 if FULL else 4.0
"""Seconds that the ledger is away."""
EARLIER = -11 * 60
"""Seconds by which the writers' clocks differ: a sweep by the server's clock may touch what they left."""
HASTY = "&connect_timeout=1"
"""A second is how long these wait for a connection, so that they report a short outage, too."""


@dataclass(frozen=True)
class Kind:
    """What the writers of one process are like.

    Args:
        name: of the process.
        writers: how many it has.
        corrects: whether half of them supersede what they wrote, and so remove as well.
        tries: how often they append before they give up.
        option: of the ledger's URL.
    """

    name: str
    writers: int
    corrects: bool = False
    tries: int = 6
    option: str = ""


# Those that are killed leave so many entries that the breaker has to stop the sweep.
KINDS = (
    Kind("hasty", 16, corrects=True, tries=1, option=HASTY),
    Kind("patient", 16, corrects=True),
    Kind("killed", 56),
    Kind("ended", 56),
)
FACTS_OF = """
    select fact_id from memories where text like %(said)s
    union select value->>'fact_id' from store where value->>'text' like %(said)s
"""
STORES = (AGENT, MEMORIES)
TABLES = ("settings", "head", "events", "sealed", "claims", "facts", "placements", "owed", "notes")


class Writers:
    """A process with writers of one kind."""

    def __init__(self, uri: str, url: str, kind: Kind) -> None:
        paths = [str(PROGRAM.parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        about = [
            kind.name,
            str(kind.writers),
            "corrects" if kind.corrects else "adds",
            str(kind.tries),
            str(EARLIER),
        ]
        self.name = kind.name
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM), uri, url + kind.option, *about],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ready(self) -> None:
        """Wait until they have begun."""
        assert self._line() == "ready"

    def how_far(self) -> dict[str, Any]:
        """Ask what they were told so far."""
        self._say("how far")
        tally: dict[str, Any] = json.loads(self._line())
        return tally

    def stop(self) -> dict[str, Any]:
        """Let every writer end what it is at, and return what all of them were told."""
        self._say("stop")
        tally: dict[str, Any] = json.loads(self._line())
        self._process.communicate(timeout=60)
        assert self._process.returncode == 0
        return tally

    def kill(self) -> None:
        """End it, whatever it is at; a second time does nothing."""
        if self._process.stdout is not None and not self._process.stdout.closed:
            self._process.kill()
            self._process.communicate()

    def killed(self) -> dict[str, Any]:
        """End it, and return what its writers were told until just before."""
        tally = self.how_far()
        self.kill()
        return tally

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process has ended; its traceback is on standard error"
        return line.strip()


@contextmanager
def many_writers(uri: str, url: str) -> Iterator[list[Writers]]:
    """Start four processes, and wait until all of them write."""
    writers = [Writers(uri, url, kind) for kind in KINDS]
    try:
        for process in writers:
            process.ready()
        yield writers
    finally:
        for process in writers:
            process.kill()


def wait_until(reached: Callable[[], bool]) -> None:
    """Wait; the suite's own time limit ends a wait that is in vain."""
    while not reached():
        time.sleep(0.05)


def wait_for_writes(writers: list[Writers], more: int) -> None:
    """Wait until the writers of every process had so many more writes acknowledged."""
    before = [len(process.how_far()["acknowledged"]) for process in writers]
    for process, had in zip(writers, before, strict=True):
        wait_until(lambda p=process, h=had: len(p.how_far()["acknowledged"]) >= h + more)


@pytest.fixture
def ledgers() -> Iterator[tuple[EmbeddedPostgres, str]]:
    """A Postgres for the ledger alone, which keeps what was committed when it is cut off."""
    server = EmbeddedPostgres(durable=True)
    try:
        uri = server.start()
    except MissingExtra as missing:
        pytest.skip(f"{missing}; that package has no wheel for every platform")
    yield server, uri
    server.stop()


# --- judging by plain SQL ---------------------------------------------------------------------------


@dataclass
class Judge:
    """Reads both sides' tables and knows none of the project's code.

    Args:
        ledger: the ledger's database.
        stores: the stores' database.
        folder: an empty one.
    """

    ledger: str
    stores: psycopg.Connection[Any]
    folder: Path

    def oracle(self) -> Oracle:
        """Return the oracle of files, which is given the ledger's rows as they are."""
        path = self.folder / "custody.db"
        path.unlink(missing_ok=True)
        with psycopg.connect(self.ledger) as theirs, closing(sqlite3.connect(path)) as ours:
            for table in TABLES:
                cursor = theirs.execute(f"select * from custody_sync.{table}")
                names = ", ".join(column.name for column in cursor.description or ())
                ours.execute(f"create table {table} ({names})")
                marks = ", ".join("?" * len(cursor.description or ()))
                ours.executemany(f"insert into {table} values ({marks})", cursor.fetchall())
            ours.commit()
        return Oracle(self.folder, self.stores)

    def standing_alone(self, *writers: str) -> set[tuple[str, str]]:
        """Return the entries that no event stands behind: of some processes, or all."""
        oracle, facts = self.oracle(), set[str]()
        for name in writers:
            facts |= {fact_id for (fact_id,) in self.stores.execute(FACTS_OF, {"said": f"note:{name}-%"})}
        alone = set(oracle.held().items()) - set(oracle.told().placed.items())
        return {key for key, fact_id in alone if fact_id in facts or not writers}


def named_by(tally: dict[str, Any]) -> set[tuple[str, str]]:
    """Return the entries that the writers of a process were told of as left."""
    lost = (error for error in tally["failed"] if error["code"] == "ledger_unavailable")
    return {(entry["store"], entry["external_id"]) for error in lost for entry in error["entries"]}


def check_reports(alone: set[tuple[str, str]], tallies: list[dict[str, Any]]) -> None:
    """Every entry without an event was named to its writer, and nobody blamed a store."""
    named = set[tuple[str, str]]().union(*map(named_by, tallies))
    assert alone, "nothing was left of the writes that failed, so nothing was tried"
    assert alone <= named, f"nobody was told of {alone - named}"
    codes = {error["code"] for tally in tallies for error in tally["failed"]}
    assert codes <= {"ledger_unavailable", "ledger_unreachable"}


# --- the drill --------------------------------------------------------------------------------------


async def refusals(custody: AsyncCoordinator, fact_id: str) -> dict[str, str]:
    """Do what an operator does, with a ledger that is away, and return the error of each."""
    told = {"actor": "ops", "reason": "during the outage"}
    calls = {
        "forget": lambda: custody.forget(fact_id, **told),
        "retract": lambda: custody.retract(fact_id, **told),
        "repair": lambda: custody.repair(**told),
        "verify": lambda: custody.verify(actor="ops"),
        "status": custody.status,
    }
    found = {}
    for name, call in calls.items():
        with pytest.raises(LedgerError) as caught:
            await call()
        found[name] = caught.value.code
    return found


def commands(cli: Cli, url: str, fact_id: str) -> None:
    """The same on the command line: one error as a document, and the exit status of a ledger that is away."""
    (cli.folder / "custody.toml").write_text(
        f'ledger = "{url}"\nfactory = "stores_of_this_test:stores"\nactor = "ops"\n'
    )
    because = ("--reason", "during the outage")
    for command in (
        ("forget", fact_id, "--yes", *because),
        ("retract", fact_id, *because),
        ("verify",),
        ("status",),
        ("repair", *because),
    ):
        found = cli.json(*command, status=5)
        assert found["error"]["code"] == "ledger_unreachable", command


async def repaired(url: str, world: World, judge: Judge, acknowledged: set[str]) -> None:
    """Sweep past the cutoff, answer the breaker, and hold both sides against each other."""
    alone = len(judge.standing_alone())
    told = {"actor": "ops", "reason": "after the outage"}
    async with (
        await Ledger.open(url) as ledger,
        AsyncCoordinator(ledger, stores=world.stores) as custody,
    ):
        with pytest.raises(BreakerOpen) as stopped:
            await custody.repair(**told)
        planned = stopped.value.fields["planned"]
        assert planned >= alone
        assert len(judge.standing_alone()) == alone, "the breaker stopped after the first removal"
        result = await custody.repair(**told, max_removals=planned)
        assert result.complete
        assert len([item for item in result.repaired if item.kind == "orphan"]) == alone
        judge.oracle().judge(ledger.now(), kept=acknowledged)
        verified = await custody.verify(actor="ops")
        assert verified.complete
        again = await custody.repair(**told)
        assert (again.repaired, again.restored, again.complete) == ((), (), True)


async def outage(
    server: EmbeddedPostgres, url: str, uri: str, world: World, judge: Judge, cli: Cli
) -> list[dict[str, Any]]:
    """Take the ledger away from its writers for a while, and return what each process was told."""
    before = Runtime(clock=ShiftedClock(EARLIER))
    async with (
        await Ledger.open(f"{url}{HASTY}", create=True, runtime=before) as ledger,
        AsyncCoordinator(ledger, stores=world.stores, runtime=before) as custody,
    ):
        first = await custody.write(value="written before", space="org", actor="ops")
        with many_writers(uri, url) as writers:
            wait_for_writes(writers, more=1)
            crash_between_stores_and_ledger(server, url, judge)
            gone = time.monotonic()
            codes = await refusals(custody, first.fact.fact_id)
            assert set(codes.values()) <= {"ledger_unreachable", "ledger_unavailable"}, codes
            await asyncio.to_thread(commands, cli, url, first.fact.fact_id)
            # Some are restarted meanwhile, as an orchestrator does, and can tell nobody anything.
            tallies = [process.killed() for process in writers[2:]]
            wait_until(lambda: named_by(writers[0].how_far()) and time.monotonic() >= gone + DOWN)
            server.resume()
            wait_for_writes(writers[:2], more=8)
            tallies += [process.stop() for process in writers[:2]]
        # The handle that was open all the time finds its way back, too.
        assert await ledger.get(first.fact.fact_id) is not None
    return tallies


def crash_between_stores_and_ledger(server: EmbeddedPostgres, url: str, judge: Judge) -> None:
    """Keep every append waiting until stores hold what the ledger does not, and then cut the ledger off."""
    with psycopg.connect(url) as holder:
        holder.execute("select from custody_sync.head for update")
        for kind in KINDS:
            least = len(STORES) * (kind.writers // 2 if kind.corrects else kind.writers)
            wait_until(lambda k=kind, n=least: len(judge.standing_alone(k.name)) >= n)
        server.crash()
        holder.close()


@pytest.mark.timeout(300)
async def test_a_ledger_that_is_stopped_under_its_writers_loses_nothing(
    ledgers: tuple[EmbeddedPostgres, str], database_uri: str, tmp_path: Path, cli: Cli
) -> None:
    """Each write is acknowledged or says what it left; after one repair ledger and stores are equal."""
    server, url = ledgers
    (tmp_path / "judge").mkdir()
    with psycopg.connect(database_uri, autocommit=True) as engine:
        judge = Judge(url, engine, tmp_path / "judge")
        async with open_busy_world(database_uri) as world:
            tallies = await outage(server, url, database_uri, world, judge, cli)
            acknowledged = {fact_id for tally in tallies for fact_id in tally["acknowledged"]}
            check_reports(judge.standing_alone("hasty", "patient"), tallies)
            await repaired(url, world, judge, acknowledged)
