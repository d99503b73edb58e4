"""Each operation is killed at each fault point it comes to, and one repair mends the rest.

By default each operation works on one of the storages in turn and dies at one passage of each point:
`test_matrix` fails at all of them within one process. `CUSTODY_SYNC_FULL=1` kills at every passage, on
every storage.
"""

from __future__ import annotations

import os
import shutil
import signal
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

import pytest
from fix_lanes import STORAGES, STRANGE, TABLES, Answer, Lane, open_lanes
from fix_report import report

from custody_sync.faultpoints import FaultPoint
from custody_sync.testing.faults import Crash

T = TypeVar("T")

CHILD = Path(__file__).with_name("crash_child.py")
FULL = bool(os.environ.get("CUSTODY_SYNC_FULL"))
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
CASES = [
    (operation, storage)
    for n, operation in enumerate(OPERATIONS)
    for storage in (STORAGES if FULL else (STORAGES[n % len(STORAGES)],))
]
LANES = 2
BEFORE, LATER = -30 * 60, 11 * 60
"""Seconds the clock is moved: for what an operation finds, and for the repair after the crash."""
RECORDINGS, ATTEMPTS = (3 if FULL else 1), 6
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


@dataclass
class Template:
    """Where an operation begins, and the points it reaches from there."""

    operation: str
    storage: str
    folder: Path
    ids: dict[str, str]
    kept: list[str]
    strangers: dict[str, list[str]]
    often: Counter[FaultPoint] = field(default_factory=Counter)
    """How often a recording reached each point, at most."""

    @property
    def name(self) -> str:
        """What its tables are kept under."""
        return f"{self.operation}_{self.storage}"

    @property
    def secrets(self) -> list[str]:
        """What the operation erases."""
        return SECRETS.get(self.operation, [])

    def crashes(self) -> list[Crash]:
        """Return one place to die for every time a point is reached; by default for one of the times."""
        found = []
        for nth, point in enumerate(FaultPoint):
            often = self.often[point]
            # The first passage of one point, the last of the next: what is under way is never the same.
            times = range(often) if FULL else sorted({(often - 1) * (nth % 2)})[: min(often, 1)]
            found += [Crash(point, n + 1) for n in times]
        return found


@dataclass
class Matrix:
    """Lanes to run cases in, templates to start them from, and what came of them."""

    lanes: SimpleQueue[Lane]
    templates: dict[tuple[str, str], Template] = field(default_factory=dict)
    killed: Counter[tuple[str, str]] = field(default_factory=Counter)
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

    def prepare(self, case: tuple[str, str]) -> Template:
        """Bring about what an operation finds, and keep it as its template."""
        operation, storage = case
        with self.lane() as lane:
            lane.stores.execute(f"truncate {', '.join(TABLES)}")
            lane.stores.execute(STRANGE)
            folder = lane.folder / f"template-{operation}-{storage}"
            folder.mkdir()
            if storage == "postgres":
                lane.put_ledger(f"{lane.schema}_fresh")
            answer = step(lane, storage, folder, "prepare", BEFORE, operation=operation).checked()
            lane.keep(f"{operation}_{storage}", storage)
            oracle = lane.oracle(storage, folder)
            (ids,) = answer.all("ids")
            template = Template(operation, storage, folder, ids, answer.all("kept"), oracle.strangers())
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
                folder = lane.restore(template.name, template.folder, template.storage)
                performed = self.perform(template, lane, folder, crash)
                if crash is None or performed.ended == -signal.SIGKILL:
                    break
            told = {"ids": template.ids, "secrets": template.secrets, "operation": template.operation}
            mended = step(lane, template.storage, folder, "mend", LATER, **told).checked()
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
        operation = template.operation
        answer = step(lane, template.storage, folder, "perform", 0, operation=operation, **order)
        if answer.ended != -signal.SIGKILL:
            answer.checked()
        return answer

    def judge(self, template: Template, lane: Lane, folder: Path, performed: Answer, mended: Answer) -> None:
        """Hold everything against the invariants, by plain SQL."""
        oracle = lane.oracle(template.storage, folder)
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
                self.killed[template.operation, template.storage] += 1
                return
            self.shared += 1
        assert crash.point in SHARED, f"{crash} was not reached in {ATTEMPTS} attempts"
        assert crash.at > 1, f"{crash} was not reached in {ATTEMPTS} attempts"

    def figures(self) -> dict[str, Any]:
        """Return what was run."""
        sums: dict[str, Counter[str]] = {"by_operation": Counter(), "by_storage": Counter()}
        for (operation, storage), kills in sorted(self.killed.items()):
            sums["by_operation"][operation] += kills
            sums["by_storage"][storage] += kills
        return {
            "kills": self.killed.total(),
            **sums,
            "points": {p.value: sum(t.often[p] for t in self.templates.values()) for p in FaultPoint},
            "shared_a_commit": self.shared,
            "seconds": round(self.seconds, 1),
        }


def step(lane: Lane, storage: str, folder: Path, step: str, clock: float, **more: Any) -> Answer:
    """Have one step of a case done by a process of its own."""
    return Answer(**lane.order(storage, folder, {"step": step, "clock": clock, **more}))


@pytest.fixture(scope="module")
def matrix(
    postgres_uri: str, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Matrix]:
    """Prepare every case and record, several times, which points it reaches."""
    folder, began = tmp_path_factory.mktemp("crashes"), time.monotonic()
    with open_lanes(CHILD, postgres_uri, "crashes", folder, LANES) as opened:
        lanes: SimpleQueue[Lane] = SimpleQueue()
        for lane in opened:
            empty = folder / lane.schema
            empty.mkdir()
            step(lane, "postgres", empty, "make", 0).checked()
            lane.keep(f"{lane.schema}_fresh", "postgres")
            lanes.put(lane)
        matrix = Matrix(lanes)
        for template in matrix.each(matrix.prepare, CASES):
            matrix.templates[template.operation, template.storage] = template
        matrix.each(matrix.record, list(matrix.templates.values()) * RECORDINGS)
        matrix.seconds = time.monotonic() - began
        yield matrix
    if matrix.killed:
        figures = matrix.figures()
        kills = ", ".join(f"{name} {n}" for name, n in figures["by_storage"].items())
        line = f"crash matrix: {figures['kills']} kills in {figures['seconds']:.0f} s ({kills})"
        report(request.config, line, **figures)


@pytest.mark.timeout(600)
def test_every_fault_point_is_reached_by_an_operation(matrix: Matrix) -> None:
    """A point in the registry that no operation comes to is not tested, so it fails here."""
    reached = {point for template in matrix.templates.values() for point in template.often}
    assert set(FaultPoint) - reached == set()


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("operation", "engine"), CASES)
def test_one_repair_mends_a_process_killed_at_any_point(matrix: Matrix, operation: str, engine: str) -> None:
    """I1 to I6 hold after a kill at each point, and one repair."""
    template, began = matrix.templates[operation, engine], time.monotonic()
    crashes = template.crashes()
    matrix.each(lambda crash: matrix.run(template, crash), crashes)
    matrix.seconds += time.monotonic() - began
    strict = sum(crash.point not in SHARED for crash in crashes)
    assert matrix.killed[operation, engine] >= strict > 0
