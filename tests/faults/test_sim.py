"""Seeds of the simulator: every invariant holds in each, and bugs planted on purpose are found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fix_planted import PLANTED, SELDOM, Planted, Seldom, salt_kept
from fix_sizes import FULL

from custody_sync.testing.sim import Plan, run_seeds, shrink, simulate
from custody_sync.testing.sim.__main__ import main, read_arguments

TOLD = 5_000
"""How many seeds the page is about."""
SEEDS = 50_000 if FULL else TOLD
PARTS = 20
PAGE = Path(__file__).parents[2] / "docs/reliability.md"
QUOTED = re.compile(r'"([^"]+)"')
ROW = re.compile(r"^\| (`\w+` \| \d+ \| I\d \| .+) \|$", re.MULTILINE)
COMMAND = re.compile(r"^python -m custody_sync\.testing\.sim (.+)$", re.MULTILINE)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_invariant_holds_in_every_seed(part: int) -> None:
    """I1 to I8 hold whenever something happens, and one repair of what is healed restores I2."""
    size = SEEDS // PARTS
    tally = run_seeds(range(part * size, (part + 1) * size))
    assert not tally.found, str(tally.found[0])
    assert tally.seeds == size
    assert tally.checks > 20 * size, "hardly anything was looked at"


FROM_SOAKS = (
    1690509300,
    5008123,
    6013514,
    7005218,
    7013625,
    8011297,
    770157270,
    770179300,
    770193320,
    770204322,
    770224460,
    770225607,
    770236836,
    770245080,
    770250368,
    2820228320,
)
"""Seeds that a soak has found; the commit that mended what it was tells of it."""


@pytest.mark.parametrize("seed", FROM_SOAKS)
def test_what_a_soak_has_found_holds(seed: int) -> None:
    """A seed that failed once is tried for ever."""
    assert simulate(Plan.draw(seed)).violation is None


def rows_of_the_page() -> dict[str, list[str]]:
    """Return what the page's table says of each planted bug: its seed, its invariant and its words."""
    rows = [found.group(1).split(" | ") for found in ROW.finditer(PAGE.read_text())]
    return {name.strip("`"): said for name, *said in rows}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is found by its first seed, called by the invariant that it breaks, and in the page's words."""
    bug.plant(monkeypatch)
    found = ((seed, simulate(Plan.draw(seed)).violation) for seed in range(0 if FULL else bug.first, SEEDS))
    seed, violation = next(((seed, broken) for seed, broken in found if broken), (None, None))
    assert violation is not None, "not found within the seeds of CI"
    assert seed == bug.first, f"another first seed: {violation}"
    assert violation.invariant in bug.invariants, str(violation)
    quoted = [
        part.strip() for said in QUOTED.findall(rows_of_the_page()[bug.name][2]) for part in said.split("…")
    ]
    assert quoted, "the page quotes nothing"
    assert all(part in str(violation) for part in quoted), str(violation)


@pytest.mark.parametrize("bug", SELDOM, ids=lambda bug: bug.plant.__name__)
def test_what_seeds_come_to_seldom_is_found(bug: Seldom, monkeypatch: pytest.MonkeyPatch) -> None:
    """A world that comes to it holds, and does not once the bug is planted."""
    assert simulate(bug.plan).violation is None
    bug.plant(monkeypatch)
    violation = simulate(bug.plan).violation
    assert violation is not None
    assert violation.invariant == bug.invariant, str(violation)


def test_a_failing_seed_is_made_small_and_told_how_to_repeat(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is printed repeats the smallest run that still breaks the invariant, by one command."""
    salt_kept(monkeypatch)
    failed = next(found for seed in range(100) if (found := simulate(Plan.draw(seed))).violation)
    small = shrink(failed)
    assert small.violation is not None
    assert small.violation.invariant == "I6"
    assert len(small.plan.steps) <= 2 < len(failed.plan.steps)
    assert not any(step.faults for step in small.plan.steps)
    command = small.plan.command.removeprefix("python -m custody_sync.testing.sim ").split()
    assert main(command) == 1
    said = capsys.readouterr().out
    assert str(small.violation) in said
    assert small.plan.command in said


def test_seeds_that_hold_end_well(capsys: pytest.CaptureFixture[str]) -> None:
    """The command counts what it did, and shows a run step by step."""
    assert main(["--seeds", "0:5"]) == 0
    assert "5 seeds" in capsys.readouterr().out
    assert main(["--seed", "3", "--calm", "0", "--keep", "0,1", "--trace"]) == 0
    said = capsys.readouterr().out
    assert "every invariant holds" in said
    assert "step 1" in said
    with pytest.raises(SystemExit):
        main(["--seeds", "none"])


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (["--seeds", "5"], "the first seed and the one after the last"),
        (["--seeds", "5:2"], "has no seed in it"),
        (["--seed", "7", "--keep", "99"], "the steps of seed 7 are 0 to"),
        (["--interleave", "forget:forgive"], "A:B of write, "),
        (["--interleave", "share", "--setting", "odd"], "one of 2p1s-owing, "),
        (["--interleave", "write:forget", "--order", "z,3"], "who begins, a or b"),
    ],
)
def test_what_would_try_nothing_is_refused(
    told: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A slip in a command that repeats a failure must not look like a run that holds."""
    with pytest.raises(SystemExit) as ended:
        main(told)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_the_commands_of_the_page_are_read() -> None:
    """What the page on reliability tells to run is what the simulator takes."""
    told = [read_arguments(line.split()) for line in COMMAND.findall(PAGE.read_text())]
    assert told[0].seeds == range(TOLD)
    assert len(told) >= 2


def test_the_page_names_every_planted_bug_with_its_invariant() -> None:
    """Each has its line in the table, with its seed, under an invariant that it is looked for by."""
    told = rows_of_the_page()
    assert told.keys() == {bug.name for bug in PLANTED}
    assert {name: int(seed) for name, (seed, *_) in told.items()} == {b.name: b.first for b in PLANTED}
    assert all(told[bug.name][1] in bug.invariants for bug in PLANTED)
