"""Schedules of two operations on one fact: all within a bound are tried, and planted bugs are found."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from fix_planted_races import RACES, Race
from fix_sizes import FULL

from custody_sync.testing.sim import (
    PAIRS,
    Pair,
    Schedule,
    Setting,
    everything,
    explore,
    repeat,
    run_schedules,
    share,
)
from custody_sync.testing.sim.__main__ import main, read_arguments
from custody_sync.testing.sim.scheduling import Order

PARTS = 20

CASES = list(everything() if FULL else share())
LEAST = 50_000 if FULL else 2_000
"""So many schedules there are at least."""


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_schedule_comes_to_what_is_right(part: int) -> None:
    """I1 to I8 hold at every moment of every schedule, and the two come to what they come to in turn."""
    explored = run_schedules(CASES[part::PARTS])
    assert not explored.found, str(explored.found[0])
    assert explored.cases == len(CASES[part::PARTS])
    assert explored.schedules > LEAST / PARTS / 2, "hardly anything was tried"


def test_the_share_has_every_pair() -> None:
    """Every two operations meet in it, and each meets itself."""
    assert {pair for pair, *_ in share()} == set(PAIRS)
    assert len(PAIRS) == 78
    assert {case[:2] for case in share()} <= {case[:2] for case in everything()}


@pytest.mark.parametrize("race", RACES, ids=lambda race: race.name)
def test_a_planted_race_is_found(race: Race, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is found within the share, by the schedule that is told, and by none without a switch."""
    assert race.case in list(share())
    race.plant(monkeypatch)
    found = next((run for run in explore(*race.case) if run.violation), None)
    assert found is not None, "not found within the share"
    assert found.violation is not None
    assert found.violation.invariant in race.invariants, str(found)
    assert found.schedule == race.schedule, str(found)
    assert found.schedule.switches, "one after the other shows it as well"


def test_a_schedule_that_fails_is_told_how_to_repeat(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is printed repeats the schedule by one command, and the same comes of it."""
    race = RACES[0]
    race.plant(monkeypatch)
    assert main(["--interleave", race.pair, "--setting", race.setting, "--switches", "1"]) == 1
    said = capsys.readouterr().out
    command = next(line for line in said.splitlines() if line.startswith("again: "))
    again = command.removeprefix("again: python -m custody_sync.testing.sim ").split()
    assert main([*again, "--trace"]) == 1
    repeated = capsys.readouterr().out
    assert "believed" in repeated
    assert command in repeated


def test_the_command_reads_what_it_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """One pair is run in either order of its names, counted, and ends well; what is none is refused."""
    assert main(["--interleave", "hold:write", "--setting", "2p1s", "--switches", "1"]) == 0
    assert "1 cases" in capsys.readouterr().out
    assert main(["--interleave", "write:hold", "--setting", "2p1s", "--order", "b,1"]) == 0
    assert "every invariant holds" in capsys.readouterr().out
    told = read_arguments(["--interleave", "forget:supersede", "--setting", "1p2s-owing"])
    assert (told.interleave, told.setting) == (Pair("supersede", "forget"), Setting.read("1p2s-owing"))
    for wrong in (["--interleave", "share", "--order", "a"], ["--interleave", "write:fly"]):
        with pytest.raises(SystemExit):
            read_arguments(wrong)


def test_a_schedule_is_the_same_every_time() -> None:
    """The same two in the same order come to the same trace, to the byte."""
    told = Pair("retract", "confirm"), Setting(stores=2, owing=True), Schedule(0, (3,))
    once, again = repeat(*told), repeat(*told)
    assert once.outcome.trace == again.outcome.trace
    assert (once.points, once.came) == (again.points, again.came)


def order_of(*moves: tuple[str, str, bool]) -> int:
    """Return what moves in an order come to."""
    order = Order()
    for whose, thing, changes in moves:
        order.add(0 if whose == "a" else 1, thing, changes)
    return order.state


@pytest.mark.parametrize(
    ("one", "two", "is_same"),
    [
        (("a", "x", False), ("b", "x", False), True),
        (("a", "x", True), ("b", "y", True), True),
        (("a", "x", True), ("b", "x", False), False),
        (("a", "x", True), ("b", "x", True), False),
        (("a", "x", False), ("a", "y", False), False),
    ],
)
def test_orders_are_the_same_where_moves_do_not_touch(
    one: tuple[str, str, bool], two: tuple[str, str, bool], is_same: bool
) -> None:
    """Questions, and changes of different things, may be in either order; one operation's own may not."""
    after: Sequence[tuple[str, str, bool]] = (("a", "x", True), ("b", "y", False), ("b", "x", False))
    assert (order_of(one, two) == order_of(two, one)) is is_same
    assert (order_of(one, two, *after) == order_of(two, one, *after)) is is_same


def test_a_keyed_write_outlives_a_sweep_that_takes_its_id() -> None:
    """A sweep may take what an earlier try left, and the id with it: the write goes on under another one."""
    run = repeat(Pair("write_keyed", "repair"), Setting(owing=True), Schedule(0, (3,)))
    assert run.violation is None
    assert run.came.ended == ("done", "done")
    assert any(" repair " in line for line in run.outcome.trace), "the sweep took nothing"
