"""Several clients at once on few facts, some of them killed: what they were told fits one log.

`CUSTODY_SYNC_HISTORIES` says how many rounds there are per storage and `CUSTODY_SYNC_KILL_SEED` the
first seed; what fails says which round it was.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fix_history import Call, Outcome, check
from fix_history_log import Logged, logged
from fix_lanes import STORAGES, TABLES, Lane, open_lanes
from fix_oracle import read_log
from fix_report import report

CHILD = Path(__file__).with_name("history_child.py")
FULL = bool(os.environ.get("CUSTODY_SYNC_FULL"))
ROUNDS = int(os.environ.get("CUSTODY_SYNC_HISTORIES", "20" if FULL else "1"))
FIRST_SEED = int(os.environ.get("CUSTODY_SYNC_KILL_SEED", "0"))
CLIENTS, CALLS, KILLED = 4, 30, 3
PATIENCE = 120.0


@dataclass
class Round:
    """Some clients over one ledger, to their end or to where they are killed."""

    lane: Lane
    storage: str
    seed: int
    folder: Path
    plant: str = ""
    pids: dict[str, int] = field(default_factory=dict)
    kills: int = 0

    @property
    def application(self) -> str:
        """What the server knows the clients by."""
        return f"client-{self.lane.schema}-{self.seed}"

    def order(self, step: str, name: str, calls: int = 0) -> int:
        """Start a process."""
        answer = self.lane.servant.order(
            step=step,
            name=name,
            calls=calls,
            uri=f"{self.lane.uri}&application_name={self.application}",
            ledger=self.lane.url(self.storage, self.folder, self.application),
            witness=str(self.folder / "witness"),
            history=str(self.history(name)),
            plant=self.plant if step == "work" else "",
        )
        return int(answer["pid"])

    def history(self, name: str) -> Path:
        """Return where a client's history is."""
        return self.folder / "histories" / f"{name}.jsonl"

    def wait(self, pid: int) -> None:
        """Wait for a process that ends by itself."""
        answer = self.lane.servant.order(step="wait", pid=pid)
        errors = [path.read_text() for path in (self.folder / "histories").glob("*.error")]
        assert (answer["ended"], errors) == (0, []), f"a client ended with {answer['ended']}: {errors}"

    def run(self) -> tuple[list[Call], list[Logged]]:
        """Let them work, kill some and start them again; return the histories and the log."""
        self.lane.stores.execute(f"truncate {', '.join(TABLES)}")
        self.lane.drop_ledger()
        (self.folder / "histories").mkdir(parents=True)
        self.wait(self.order("make", "maker"))
        self.history("maker").unlink()
        rng = random.Random(self.seed)
        self.pids = {f"s{self.seed}c{n}": 0 for n in range(CLIENTS)}
        for name in self.pids:
            self.pids[name] = self.order("work", name, CALLS)
        moments = sorted(rng.randrange(4, CALLS) for _ in range(KILLED))
        for nth, victim in enumerate(rng.sample(sorted(self.pids), KILLED)):
            self.kill(victim, 2 * moments[nth] - rng.randrange(2), rng.random() * 0.01)
        for pid in self.pids.values():
            self.wait(pid)
        self.lane.settle(self.application)
        book = self.lane.book(self.storage, self.folder)
        assert read_log(book), "nothing was recorded"
        return [c for path in self.folder.glob("histories/*.jsonl") for c in read(path)], logged(book.rows())

    def kill(self, victim: str, lines: int, seconds: float) -> None:
        """Kill a client once its history is so long, and start another one in its place."""
        history, until = self.history(victim), time.monotonic() + PATIENCE
        while history.read_bytes().count(b"\n") < lines if history.exists() else True:
            assert time.monotonic() < until, f"{victim} does nothing"
            time.sleep(0.002)
        time.sleep(seconds)
        answer = self.lane.servant.order(step="kill", pid=self.pids.pop(victim))
        self.kills += answer["ended"] == -signal.SIGKILL
        again = f"{victim}r"
        self.pids[again] = self.order("work", again, CALLS - lines // 2)


def read(path: Path) -> Iterator[Call]:
    """Read a client's history; what has no answer was cut off."""
    lines = [json.loads(line) for line in path.read_bytes().split(b"\n") if line]
    asked: dict[str, Any] | None = None
    for line in lines:
        if "operation" in line:
            asked = line
            continue
        assert asked is not None
        seen = tuple((fact_id, value) for fact_id, value in line.pop("seen", ()))
        outcome = Outcome(line.pop("outcome"))
        yield Call(client=path.stem, **asked, **line, outcome=outcome, seen=seen)
        asked = None
    if asked is not None:
        yield Call(client=path.stem, **asked)


@pytest.fixture(scope="module")
def lane(postgres_uri: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lane]:
    """One lane: the clients of a round are many enough."""
    folder = tmp_path_factory.mktemp("histories")
    with open_lanes(CHILD, postgres_uri, "histories", folder, 1) as (only,):
        yield only


def play(lane: Lane, storage: str, seed: int, plant: str = "") -> tuple[Counter[str], list[str]]:
    """Play one round; return what there was, and what is wrong."""
    played = Round(lane, storage, seed, lane.folder / f"{storage}-{seed}-{plant}", plant)
    calls, events = played.run()
    counts = Counter(call.outcome.value for call in calls)
    counts.update(calls=len(calls), events=len(events), kills=played.kills)
    counts.update(f"acknowledged {call.operation}" for call in calls if call.outcome == "acknowledged")
    return counts, check(calls, events)


@pytest.mark.timeout(0)
@pytest.mark.parametrize("engine", STORAGES)
def test_what_clients_were_told_fits_one_log(lane: Lane, engine: str, request: pytest.FixtureRequest) -> None:
    """Every acknowledged effect is in it once, no refused one is, and every reader saw one of its heads."""
    counts: Counter[str] = Counter()
    for seed in range(FIRST_SEED, FIRST_SEED + ROUNDS):
        some, problems = play(lane, engine, seed)
        counts += some
        again = f"CUSTODY_SYNC_KILL_SEED={seed} CUSTODY_SYNC_HISTORIES=1"
        run = f"{again} python -m pytest tests/faults/test_kills_histories.py -k 'fits and {engine}'"
        assert not problems, "\n".join([*problems, f"seed {seed}, {engine}; run it again: {run}"])
    assert counts["kills"] > 0
    for operation in ("write", "supersede", "retract", "read", "recall", "write_keyed"):
        assert counts[f"acknowledged {operation}"] > 0
    figures = {name: counts[name] for name in ("calls", "acknowledged", "failed", "unknown", "kills")}
    line = ", ".join(f"{name} {count}" for name, count in figures.items())
    report(request.config, f"histories over {engine}: {line}", **{f"histories_{engine}": figures})


@pytest.mark.parametrize(
    ("plant", "engine", "said"),
    [
        ("acknowledge_before_the_commit", "sqlite", "was acknowledged"),
        ("answer_from_a_cache", "jsonl", "is stale"),
        ("refuse_after_the_commit", "postgres", "is in the log as event"),
    ],
)
@pytest.mark.timeout(300)
def test_a_planted_bug_is_found_in_the_histories(lane: Lane, plant: str, engine: str, said: str) -> None:
    """What the checker would not find, it would not prove either."""
    _, problems = play(lane, engine, 3, plant)
    assert any(said in problem for problem in problems), problems
