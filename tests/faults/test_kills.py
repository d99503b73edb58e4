"""Processes killed with `kill -9` at random moments, over and over: one repair mends what each one left.

`CUSTODY_SYNC_KILLS` says how many kills there are per storage and `CUSTODY_SYNC_KILL_SEED` the first
seed; a world of so many lives has one seed. What fails says which world it was. The same seed draws
the same operations and the same moments, but what the machine has done by then is its own business.
"""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from queue import SimpleQueue

import pytest
from fix_lanes import STORAGES, STRANGE, TABLES, Answer, Lane, open_lanes
from fix_oracle import Logged, Oracle, read_log
from fix_report import report_kills
from fix_sizes import FULL, LAB

CHILD = Path(__file__).with_name("kill_child.py")
KILLS = int(os.environ.get("CUSTODY_SYNC_KILLS", "1000" if FULL else "104" if LAB else "78"))
FIRST_SEED = int(os.environ.get("CUSTODY_SYNC_KILL_SEED", "0"))
LIVES = 26
"""Kills in one world: its ledger grows with every life, and so does what judging it costs."""
LANES = 2
STEP = 12 * 60
"""Seconds from one life to the next: what the one before left is past the repair age."""
MOST_EFFECTS, MOST_SECONDS, LATER = 32, 0.3, 0.004


@dataclass
class World:
    """One ledger and its stores, through many lives, and what was acknowledged in them."""

    lane: Lane
    storage: str
    seed: int
    folder: Path
    plant: str = ""
    life: int = 0
    kept: list[str] = field(default_factory=list)
    ended: set[str] = field(default_factory=set)
    keys: dict[str, set[str]] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)
    """What was to be forgotten, by fact."""
    gone: set[str] = field(default_factory=set)
    did: Counter[str] = field(default_factory=Counter)
    strangers: dict[str, list[str]] = field(default_factory=dict)
    name: str = ""

    @property
    def oracle(self) -> Oracle:
        """Who judges."""
        return self.lane.oracle(self.storage, self.folder)

    def run(self, lives: int) -> int:
        """Live and die so often, then repair once more; return how many were killed."""
        self.lane.stores.execute(f"truncate {', '.join(TABLES)}")
        self.lane.stores.execute(STRANGE)
        self.lane.drop_ledger()
        self.folder.mkdir()
        rng = random.Random(self.seed)
        for self.life in range(lives):
            self.begin()
            by_effects = rng.random() < 0.6
            effects = rng.randint(1, MOST_EFFECTS) if by_effects else None
            seconds = rng.random() * (LATER if by_effects else MOST_SECONDS)
            self.end(effects, seconds)
        self.life = lives
        self.begin()
        self.end(0, 0.0)
        return lives

    def begin(self) -> None:
        """Start a process, let it repair, and judge what there is then."""
        self.name = f"victim-{self.lane.schema}-{self.seed}-{self.life}"
        answer = self.lane.servant.order(
            step="live",
            seed=self.seed,
            life=self.life,
            clock=self.life * STEP,
            uri=f"{self.lane.uri}&application_name={self.name}",
            ledger=self.lane.url(self.storage, self.folder, self.name),
            witness=str(self.folder / "witness"),
            plant=self.plant,
        )
        mended = Answer(answer.get("ended", 0), answer["said"]).checked()
        assert mended.all("mended") == [True], f"the repair left something: {mended.all('result')}"
        if not self.life:
            self.strangers = self.oracle.strangers()
        self.judge(datetime.fromisoformat(mended.all("now")[0]))

    def end(self, effects: int | None, seconds: float) -> None:
        """Give the word and kill; note what was acknowledged until then."""
        answer = Answer(**self.lane.servant.order(step="kill", effects=effects, seconds=seconds))
        self.lane.settle(self.name)
        assert answer.ended == -signal.SIGKILL, f"it ended with {answer.ended}: {answer.all('error')}"
        for said in answer.said:
            self.did.update(said.keys() & {"kept", "ended", "refused"})
            if "kept" in said:
                self.kept.append(said["kept"])
            if "key" in said:
                self.keys.setdefault(said["key"], set()).add(said["kept"])
            if "ended" in said:
                self.ended.add(said["ended"])
            if "forgetting" in said:
                self.values[said["forgetting"]] = said["value"]

    def judge(self, now: datetime) -> None:
        """Hold everything against the invariants, by plain SQL."""
        oracle = self.oracle
        believed = oracle.judge(now, kept=self.kept)
        assert not believed & self.ended, "what was acknowledged as ended is believed"
        assert oracle.strangers() == self.strangers, "a row of somebody else was touched"
        log = read_log(oracle.ledger)
        told = oracle.told()
        assert self.ended <= told.retracted | told.forgotten, "an acknowledged end is not in the log"
        check_holds(log)
        for key, ids in self.keys.items():
            stated = [e.fact_id for e in log if e.sealed.get("content", {}).get("value") == key]
            assert len(stated) <= 1, f"{key} was used for {stated}"
            assert len(ids | set(stated)) == 1 or told.forgotten & ids, f"{key} was answered with {ids}"
        for fact_id in told.forgotten - self.gone:
            value = self.values[fact_id]
            assert oracle.says(f'"{value}"') == [], f"the erased {value} is still there"
            self.gone.add(fact_id)


def check_holds(log: Sequence[Logged]) -> None:
    """Refuse a log in which a fact was forgotten while a hold stood."""
    standing: dict[str, set[str]] = {}
    for event in log:
        holds = standing.setdefault(event.fact_id, set())
        if event.kind == "hold":
            holds.add(event.data["hold_id"])
        elif event.kind == "release":
            holds.remove(event.data["hold_id"])
        elif event.kind == "forget":
            assert not holds, f"{event.fact_id} was forgotten while {holds} stood"


@pytest.fixture(scope="module")
def lanes(postgres_uri: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleQueue[Lane]]:
    """Lanes for as many worlds at once as there are cores."""
    folder = tmp_path_factory.mktemp("kills")
    with open_lanes(CHILD, postgres_uri, "kills", folder, LANES) as opened:
        free: SimpleQueue[Lane] = SimpleQueue()
        for lane in opened:
            free.put(lane)
        yield free


def run_world(free: SimpleQueue[Lane], storage: str, seed: int, lives: int, plant: str = "") -> Counter[str]:
    """Run one world in a lane of its own; say how to run it again if it fails."""
    lane = free.get()
    world = World(lane, storage, seed, lane.folder / f"{storage}-{seed}-{plant}-{lane.schema}", plant)
    try:
        killed = world.run(lives)
    except AssertionError as problem:
        raise AssertionError(
            f"{problem}\nseed {seed}, life {world.life}, {storage}; run it again: "
            f"CUSTODY_SYNC_KILL_SEED={seed} CUSTODY_SYNC_KILLS={lives} "
            f"python -m pytest tests/faults/test_kills.py -k 'mends and {storage}'"
        ) from None
    finally:
        free.put(lane)
    return world.did + Counter(kills=killed)


@pytest.mark.timeout(0)
@pytest.mark.parametrize("engine", STORAGES)
def test_one_repair_mends_what_a_process_killed_at_any_moment_left(
    lanes: SimpleQueue[Lane], engine: str, request: pytest.FixtureRequest
) -> None:
    """I1 to I6 hold after each of so many kills at drawn moments, each of a process at several operations."""
    sizes = [min(LIVES, KILLS - begun) for begun in range(0, KILLS, LIVES)]
    with ThreadPoolExecutor(LANES) as threads:
        runs = [
            threads.submit(run_world, lanes, engine, FIRST_SEED + n, lives) for n, lives in enumerate(sizes)
        ]
        problems = [str(problem) for run in runs if (problem := run.exception()) is not None]
    assert not problems, "\n".join(problems)
    did = sum((run.result() for run in runs), Counter[str]())
    assert did["kills"] == KILLS
    done = min(did["kept"], did["ended"], did["refused"])
    assert done > 0 or KILLS < 100, "nothing was done between the kills"
    report_kills(request.config, engine, random_kills=did["kills"], seeds=len(sizes))


EASY = [
    ("acknowledged_before_the_commit", "sqlite", "the acknowledged"),
    ("sweep_judges_nothing", "jsonl", "held and not placed"),
]
HARD = [
    ("acknowledged_before_the_commit", "jsonl", "the acknowledged"),
    ("acknowledged_before_the_commit", "postgres", "the acknowledged"),
    ("drain_does_nothing", "postgres", "held and not placed"),
]


@pytest.mark.parametrize(("plant", "engine", "said"), EASY + HARD if FULL else EASY)
@pytest.mark.timeout(300)
def test_a_planted_bug_is_found_by_killing(
    lanes: SimpleQueue[Lane], plant: str, engine: str, said: str
) -> None:
    """What the kills would not find, they would not prove either."""
    with pytest.raises(AssertionError, match=said):
        run_world(lanes, engine, 0, 2 * LIVES, plant)
