"""Each operation is killed at each fault point, each time it gets there, and one repair mends the rest."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import Any, TypeVar

import psycopg
import pytest
from fix_oracle import Oracle
from fix_world import DIMENSIONS, INDEX
from langgraph.store.postgres import PostgresStore

from custody_sync.faultpoints import FaultPoint
from custody_sync.testing.faults import Crash

T = TypeVar("T")

CHILD = Path(__file__).with_name("crash_child.py")
FULL = bool(os.environ.get("CUSTODY_SYNC_FULL"))
FEW = 6
"""A point that is passed more often is the last one at four of its passages, unless all are asked for."""
TABLES = ("store", "store_vectors", "memories")
OPERATIONS = (
    "write",
    "supersede",
    "write_keyed",
    "write_failing",
    "write_racing",
    "confirm",
    "confirm_failing",
    "retract",
    "forget",
    "forget_identity",
    "forget_where",
    "expire",
    "repair",
    "reconcile",
)
LANES = 2
BEFORE, LATER = -30 * 60, 11 * 60
"""Seconds the clock is moved: for what an operation finds, and for the repair after the crash."""
RECORDINGS, ATTEMPTS = 3, 6
SHARED = {FaultPoint.BEFORE_COMMIT, FaultPoint.AFTER_COMMIT}
"""Events that come together may share a commit or not, so how often these are reached varies."""
SECRETS = {
    "forget": ["violet-heron-7731"],
    "forget_identity": ["violet-heron-7731", "heron-4711"],
    "forget_where": ["violet-heron-7731", "heron-4711"],
    "expire": ["violet-heron-7731"],
    "repair": ["violet-heron-7731"],
}
"""What an operation erases. Where a repair does, the forget had been recorded before."""
REFUSED = {"write_failing": 1, "write_racing": 1, "confirm_failing": 1}
"""How many refusals an operation ends with, if it is left to end."""
BACKENDS = "select 1 from pg_stat_activity where application_name = %s"
STRANGE = """
    insert into store (prefix, key, value) values
        ('memories.org', 'foreign', '{"source": "custody-sync", "v": 1, "ledger_id": "another",
            "space": "org", "fact_id": "019a0000-0000-7000-8000-000000000001", "text": "acct:4 plan: bronze",
            "stored_at": "2026-01-01T00:00:00.000000Z", "custody": "{}"}'),
        ('memories.org', 'strange', '{"text": "acct:4 plan: bronze"}');
    insert into memories (key, fact_id, ledger_id, space, stored_at, custody, text) values
        ('foreign', '019a0000-0000-7000-8000-000000000001', 'another', 'org', '2026-01-01T00:00:00Z', '{}',
            'acct:4 plan: bronze'),
        ('strange', null, null, null, null, null, 'acct:4 plan: bronze');
"""
PGVECTOR = f"""
    create table memories (
        key text collate "C" primary key, fact_id text, ledger_id text, space text, stored_at timestamptz,
        custody text, text text, embedding vector({DIMENSIONS}), created_at timestamptz not null default now()
    );
    create index memories_fact_id_idx on memories (fact_id);
    create index memories_space_idx on memories (space);
"""


class Servant:
    """The parent of the victims: a fresh interpreter that forks one process an order."""

    def __init__(self, errors: Path) -> None:
        paths = [str(CHILD.parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._errors = errors.open("wb")
        self._process = subprocess.Popen(
            [sys.executable, str(CHILD)],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def order(self, **order: Any) -> Answer:
        """Have an order obeyed by a process of its own."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the parent of the victims has died"
        return Answer(**json.loads(line))

    def dismiss(self) -> None:
        """Let the parent end."""
        try:
            self._process.communicate(timeout=60)
        finally:
            self._process.kill()
            self._errors.close()


@dataclass(frozen=True)
class Answer:
    """How a victim ended and what it had said by then."""

    ended: int
    said: list[dict[str, Any]]

    def all(self, name: str) -> list[Any]:
        """Return everything said under a name."""
        return [said[name] for said in self.said if name in said]

    def checked(self) -> Answer:
        """Refuse a victim that was to live and did not."""
        assert self.ended == 0, f"the child ended with {self.ended} and said {self.said}"
        return self


@dataclass
class Lane:
    """One database schema and one parent of victims; a case has it for itself."""

    schema: str
    uri: str
    folder: Path
    stores: psycopg.Connection[Any]
    servant: Servant
    cases: int = 0

    def restore(self, template: Template) -> Path:
        """Bring the stores and a ledger folder to where an operation begins."""
        self.cases += 1
        self.stores.execute(f"truncate {', '.join(TABLES)}")
        for table in TABLES:
            self.stores.execute(f"insert into {table} select * from {template.operation}.{table}")
        folder = self.folder / f"{template.operation}-{self.schema}-{self.cases}"
        shutil.copytree(template.folder, folder)
        return folder

    def order(self, operation: str, step: str, folder: Path, clock: float, **more: Any) -> Answer:
        """Have one step done, and wait until Postgres has seen the last of the process."""
        self.cases += 1
        name = f"victim-{self.schema}-{self.cases}"
        answer = self.servant.order(
            operation=operation,
            step=step,
            uri=f"{self.uri}&application_name={name}",
            ledger=f"sqlite:///{folder / 'custody.db'}",
            clock=clock,
            **more,
        )
        # What a killed process had sent may still be under way in its backends.
        while self.stores.execute(BACKENDS, (name,)).fetchone():
            time.sleep(0.005)
        return answer


@dataclass
class Template:
    """Where an operation begins, and the points it reaches from there."""

    operation: str
    folder: Path
    ids: dict[str, str]
    kept: list[str]
    strangers: dict[str, list[str]]
    often: Counter[FaultPoint] = field(default_factory=Counter)
    """How often a recording reached each point, at most."""

    @property
    def secrets(self) -> list[str]:
        """What the operation erases."""
        return SECRETS.get(self.operation, [])

    def crashes(self) -> list[Crash]:
        """Return one place to die for every time a point is reached."""
        return [Crash(point, n + 1) for point in FaultPoint for n in _times(self.often[point])]


@dataclass
class Matrix:
    """Lanes to run cases in, templates to start them from, and what came of them."""

    lanes: SimpleQueue[Lane]
    templates: dict[str, Template] = field(default_factory=dict)
    killed: dict[str, int] = field(default_factory=dict)
    shared: int = 0
    seconds: float = 0.0
    lock: Lock = field(default_factory=Lock)

    @contextmanager
    def lane(self) -> Iterator[Lane]:
        """Have a lane for oneself."""
        lane = self.lanes.get()
        try:
            yield lane
        finally:
            self.lanes.put(lane)

    def each(self, work: Callable[[Any], T], items: Sequence[Any]) -> list[T]:
        """Do some work on as many items at once as there are lanes; all of it, then say all that failed."""
        with ThreadPoolExecutor(LANES) as threads:
            futures = {threads.submit(work, item): item for item in items}
        problems = [f"{futures[done]}: {problem}" for done in futures if (problem := done.exception())]
        assert not problems, f"{len(problems)} of {len(items)} failed:\n" + "\n".join(problems)
        return [done.result() for done in futures]

    def prepare(self, operation: str) -> Template:
        """Bring about what an operation finds, and keep it as its template."""
        with self.lane() as lane:
            lane.stores.execute(f"truncate {', '.join(TABLES)}")
            lane.stores.execute(STRANGE)
            folder = lane.folder / f"template-{operation}"
            folder.mkdir()
            answer = lane.order(operation, "prepare", folder, BEFORE).checked()
            lane.stores.execute(f"create schema {operation}")
            for table in TABLES:
                lane.stores.execute(f"create table {operation}.{table} as select * from {table}")
            oracle = Oracle(folder, lane.stores)
            (ids,) = answer.all("ids")
            template = Template(operation, folder, ids, answer.all("kept"), oracle.strangers())
            assert [len(rows) for rows in template.strangers.values()] == [2, 2]
            for secret in template.secrets:
                # The repair's fact is forgotten already: its entries in the stores still say it.
                assert oracle.says(secret), f"{secret} is nowhere, so that it is nowhere later proves nothing"
        return template

    def record(self, template: Template) -> None:
        """Let an operation run to its end, judge it like any other case, and count the points it reached."""
        points = Counter(map(FaultPoint, self.run(template, None)))
        with self.lock:
            template.often |= points

    def run(self, template: Template, crash: Crash | None) -> list[str]:
        """Run one case: perform, die, move the clock, repair once, judge; returns the points reached."""
        with self.lane() as lane:
            for _ in range(ATTEMPTS):
                folder = lane.restore(template)
                performed = self.perform(template, lane, folder, crash)
                if crash is None or performed.ended == -signal.SIGKILL:
                    break
            told = {"ids": template.ids, "secrets": template.secrets}
            mended = lane.order(template.operation, "mend", folder, LATER, **told).checked()
            self.judge(template, lane, folder, performed, mended)
            shutil.rmtree(folder)
        if crash is None:
            (points,) = performed.all("points")
            return list(points)
        self.count(template, crash, performed.ended == -signal.SIGKILL)
        return []

    def perform(self, template: Template, lane: Lane, folder: Path, crash: Crash | None) -> Answer:
        """Have the operation done, to its end or to where it dies."""
        order: dict[str, Any] = {"ids": template.ids, "secrets": template.secrets}
        if crash is not None:
            order["kill"] = str(crash)
        answer = lane.order(template.operation, "perform", folder, 0, **order)
        if answer.ended != -signal.SIGKILL:
            answer.checked()
        return answer

    def judge(self, template: Template, lane: Lane, folder: Path, performed: Answer, mended: Answer) -> None:
        """Hold everything against the invariants, by plain SQL."""
        oracle = Oracle(folder, lane.stores)
        (now,) = mended.all("now")
        assert mended.all("complete")[0] is True, f"the repair left something: {mended.all('result')}"
        kept = [*template.kept, *performed.all("kept"), *mended.all("kept")]
        if performed.ended == 0:
            assert len(performed.all("refused")) == REFUSED.get(template.operation, 0)
        assert performed.all("kept"), "the child died before its first write was acknowledged"
        believed = oracle.judge(datetime.fromisoformat(now), kept=kept)
        assert not believed & set(performed.all("ended")), "what was acknowledged as ended is believed"
        assert oracle.strangers() == template.strangers, "a row of somebody else was touched"
        told = oracle.told()
        for fact_id in told.forgotten:
            assert fact_id == template.ids["secret"]
            for secret in template.secrets:
                assert oracle.says(secret) == [], "an erased value is still there"
            assert mended.all("residue") == [[]], "an erasure was done before the value was gone"
            if performed.ended == 0:
                assert performed.all("residue") == [[]], "a forget was complete before the value was gone"
        if template.operation == "forget_where":
            assert mended.all("certified") == [True], "the erasure cannot be completed"
            assert told.forgotten == {template.ids["secret"]}, "running it again did not forget the rest"
        if template.operation == "write_keyed":
            (again,) = mended.all("kept")
            new = told.asserted.keys() - set(template.kept)
            assert len(new) == 2, "the key was used for two facts"
            assert again in believed, "a repeated keyed write answered with something else"
        if template.operation == "reconcile":
            assert mended.all("differs") == [0], "a second comparison finds something"
            assert template.ids["orphan"] in told.repaired
        if template.operation == "repair":
            assert template.ids["orphan"] in told.repaired
            assert template.ids["secret"] in told.forgotten

    def count(self, template: Template, crash: Crash, was_killed: bool) -> None:
        """Count a case; only a commit may have been shared, and then nobody was killed."""
        with self.lock:
            if was_killed:
                self.killed[template.operation] = self.killed.get(template.operation, 0) + 1
                return
            self.shared += 1
        assert crash.point in SHARED, f"{crash} was not reached in {ATTEMPTS} attempts"
        assert crash.at > 1, f"{crash} was not reached in {ATTEMPTS} attempts"

    def report(self) -> str:
        """Say what was run, and write it to the file named by CUSTODY_SYNC_CRASH_REPORT."""
        kills = sum(self.killed.values())
        figures = {
            "kills": kills,
            "by_operation": dict(sorted(self.killed.items())),
            "points": {p.value: sum(t.often[p] for t in self.templates.values()) for p in FaultPoint},
            "shared_a_commit": self.shared,
            "seconds": round(self.seconds, 1),
        }
        if path := os.environ.get("CUSTODY_SYNC_CRASH_REPORT"):
            Path(path).write_text(json.dumps(figures, indent=2) + "\n")
        by_operation = ", ".join(f"{name} {n}" for name, n in sorted(self.killed.items()))
        return f"crash matrix: {kills} kills in {self.seconds:.0f} s ({by_operation})"


def _times(often: int) -> Sequence[int]:
    """Return which passages of a point are the last one: the first, the last, and two between, or all."""
    if FULL or often <= FEW:
        return range(often)
    return sorted({0, often // 3, 2 * often // 3, often - 1})


@contextmanager
def open_lane(number: int, uri: str, folder: Path) -> Iterator[Lane]:
    """Make a schema with both stores' empty tables, and a parent of victims."""
    schema = f"lane_{number}"
    mine = f"{uri}&options=-c%20search_path%3D{schema}%2Cpublic"
    with psycopg.connect(mine, autocommit=True) as stores:
        stores.execute(f"create schema {schema}")
        with PostgresStore.from_conn_string(mine, index=INDEX) as raw:
            raw.setup()
        stores.execute(PGVECTOR)
        servant = Servant(folder / f"{schema}.stderr")
        try:
            yield Lane(schema, mine, folder, stores, servant)
        finally:
            servant.dismiss()


@pytest.fixture(scope="module")
def matrix(
    postgres_uri: str, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Matrix]:
    """Prepare every operation and record, several times, which points it reaches."""
    folder, began = tmp_path_factory.mktemp("crashes"), time.monotonic()
    with psycopg.connect(postgres_uri, autocommit=True) as connection:
        connection.execute("create database crashes")
        uri = postgres_uri.replace("/postgres?", "/crashes?")
        with psycopg.connect(uri, autocommit=True) as first:
            first.execute("create extension vector")
        with open_lane(0, uri, folder) as one, open_lane(1, uri, folder) as two:
            lanes: SimpleQueue[Lane] = SimpleQueue()
            for lane in (one, two):
                lanes.put(lane)
            matrix = Matrix(lanes)
            for template in matrix.each(matrix.prepare, OPERATIONS):
                matrix.templates[template.operation] = template
            matrix.each(matrix.record, list(matrix.templates.values()) * RECORDINGS)
            matrix.seconds = time.monotonic() - began
            yield matrix
        connection.execute("drop database crashes with (force)")
    if matrix.killed:
        said = matrix.report()
        plugins = request.config.pluginmanager
        capture, terminal = plugins.get_plugin("capturemanager"), plugins.get_plugin("terminalreporter")
        if capture is not None and terminal is not None:
            with capture.global_and_fixture_disabled():
                terminal.write_line(f"\n{said}")


@pytest.mark.timeout(600)
def test_every_fault_point_is_reached_by_an_operation(matrix: Matrix) -> None:
    """A point in the registry that no operation comes to is not tested, so it fails here."""
    reached = {point for template in matrix.templates.values() for point in template.often}
    assert set(FaultPoint) - reached == set()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_one_repair_mends_a_process_killed_at_any_point(matrix: Matrix, operation: str) -> None:
    """I1 to I6 hold after a kill at each point, at several of its passages, and one repair."""
    template, began = matrix.templates[operation], time.monotonic()
    matrix.each(lambda crash: matrix.run(template, crash), template.crashes())
    matrix.seconds += time.monotonic() - began
    strict = sum(len(_times(n)) for point, n in template.often.items() if point not in SHARED)
    assert matrix.killed[operation] >= strict > 0
