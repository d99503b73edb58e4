"""The soak: every part has its time, a failure is named and the rest goes on, what was not run is said."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from soak import __main__ as command
from soak.parts import PARTS
from soak.records import Failure, Part, Round, Seen, State, Tally
from soak.report import document, page, write
from soak.soaking import Soak

RELIABILITY = Path(__file__).parents[2] / "docs" / "reliability.md"


class Clock:
    """Time that only sleeping moves."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.interrupt_at = float("inf")

    def sleep(self, seconds: float) -> None:
        """Move on, or be interrupted."""
        self.seconds += seconds
        if self.seconds >= self.interrupt_at:
            self.interrupt_at = float("inf")
            raise KeyboardInterrupt


class FakeChild:
    """A round that takes a while on the clock and prints one word."""

    def __init__(self, clock: Clock, takes: float, code: int, said: str) -> None:
        self.code: int | None = None
        self.was_interrupted = self.was_discarded = False
        self._clock, self._ends, self._code, self._said = clock, clock.seconds + takes, code, said

    def ended(self) -> bool:
        """Tell whether its time is over."""
        if self._clock.seconds >= self._ends:
            self.code = self._code
        return self.code is not None

    def output(self) -> str:
        """Return what it printed."""
        return self._said

    def interrupt(self) -> None:
        """Remember it."""
        self.was_interrupted = True

    def stop(self) -> None:
        """End; nobody does without an interrupt."""
        assert self.was_interrupted
        self.code = -2

    def discard(self) -> None:
        """Remember it."""
        self.was_discarded = True


def counted(output: str, ran: Round) -> Seen:
    """Count a round; one that prints a failure names it."""
    failures = (Failure(what=output, command=f"again {ran.about}"),) if output.startswith("broken") else ()
    return Seen(counts={"rounds": 1}, failures=failures)


def endless(start: int) -> Iterator[Round]:
    """Yield rounds without an end."""
    return (Round(arguments=("-m", "it", str(n)), about=str(n)) for n in itertools.count(start))


def single(start: int) -> Iterator[Round]:
    """Yield one round."""
    yield Round(arguments=("-m", "whole"), about="all")


def part(name: str, share: float, *, is_whole: bool = False, **more: Any) -> Part:
    """Return a part that goes on for ever, or a whole one."""
    told: dict[str, Any] = {"title": name, "rounds": single if is_whole else endless, "read": counted} | more
    return Part(name=name, share=share, is_whole=is_whole, **told)


class Bench:
    """A soak of fake rounds: how long each takes and how it ends are given by part.

    Args:
        parts: the parts.
        seconds: how long it goes on.
        takes: seconds of a round, 1 by default.
        ends: exit code and output of a round, by the part's name and the round's number.
    """

    def __init__(
        self, parts: list[Part], seconds: float, *, takes: dict[str, float] | None = None, ends: Any = None
    ) -> None:
        self.clock, self.children, self.said = Clock(), list[FakeChild](), list[str]()
        self.most_at_once = 0
        takes, ends = takes or {}, ends or {}

        def begin(of: Part, ran: Round) -> FakeChild:
            code, said = ends.get((of.name, ran.about), (0, "fine"))
            self.children.append(FakeChild(self.clock, takes.get(of.name, 1.0), code, said))
            self.most_at_once = max(self.most_at_once, sum(c.code is None for c in self.children))
            return self.children[-1]

        self.soak = Soak(
            parts=parts,
            seconds=seconds,
            start=0,
            width=2,
            begin=begin,
            now=lambda: self.clock.seconds,
            sleep=self.clock.sleep,
            cpu=lambda: 2 * self.clock.seconds,
            say=self.said.append,
        )

    def run(self) -> dict[str, Tally]:
        """Soak, and return what came of each part."""
        self.finished = self.soak.run()
        return {tally.part.name: tally for tally in self.soak.tallies}


# --- time -------------------------------------------------------------------------------------


def test_each_part_has_its_share() -> None:
    """Parts that go on for ever divide the time by their shares, and all of it is used."""
    found = Bench([part("a", 0.75), part("b", 0.25)], 100).run()
    assert found["a"].wall_seconds == pytest.approx(75, abs=3)
    assert found["b"].wall_seconds == pytest.approx(25, abs=3)
    assert found["a"].counts["rounds"] == found["a"].rounds > 2 * found["b"].rounds > 0
    assert found["a"].cpu_seconds == pytest.approx(2 * found["a"].wall_seconds)


def test_time_that_is_left_goes_to_what_can_go_on() -> None:
    """A whole part that ends early leaves its time to the parts without an end, and is not run again."""
    bench = Bench([part("for ever", 0.5), part("whole", 0.5, is_whole=True)], 100, takes={"whole": 5})
    found = bench.run()
    assert found["whole"].rounds == 1
    assert found["for ever"].wall_seconds == pytest.approx(95, abs=2)
    assert bench.clock.seconds == pytest.approx(100, abs=2)


def test_a_whole_part_may_take_what_the_others_do_not_need() -> None:
    """It goes beyond its share while what comes after keeps its own; beyond that it is cut short."""
    parts = [part("long", 0.2, is_whole=True), part("next", 0.3, is_whole=True)]
    found = Bench(parts, 100, takes={"long": 60, "next": 10}).run()
    assert (found["long"].state, found["next"].state) == (State.RAN, State.RAN)
    bench = Bench(parts, 100, takes={"long": 80, "next": 10})
    found = bench.run()
    assert (found["long"].state, found["long"].cut) == (State.STOPPED, 1)
    assert found["next"].state is State.RAN
    assert bench.clock.seconds == pytest.approx(80, abs=2)


def test_rounds_run_side_by_side_where_they_may() -> None:
    """As many at once as there are cores; a part whose rounds use every core runs one at a time."""
    one, two = Bench([part("a", 1)], 10), Bench([part("a", 1, side_by_side=True)], 10)
    assert two.run()["a"].rounds == 2 * one.run()["a"].rounds
    assert (one.most_at_once, two.most_at_once) == (1, 2)


def test_rounds_that_come_to_an_end_end_the_soak() -> None:
    """When nothing is left to run nobody waits for the hours to pass."""
    few = part("few", 1, rounds=lambda start: itertools.islice(endless(start), 3))
    bench = Bench([few], 10**6)
    assert bench.run()["few"].rounds == 3
    assert bench.clock.seconds < 10


# --- failures ---------------------------------------------------------------------------------


def test_a_failure_is_named_and_the_soak_goes_on() -> None:
    """What fails is said with its command, its output is kept, and later rounds and parts are run."""
    ends = {("a", "0"): (1, "broken: I3"), ("a", "1"): (7, "no word of why")}
    bench = Bench([part("a", 0.5), part("b", 0.5)], 20, ends=ends)
    found = bench.run()
    named = Failure(what="broken: I3", command="again 0")
    unnamed = Failure(what="ended with exit code 7", command="python -m it 1")
    assert found["a"].failures == [named, unnamed]
    assert found["a"].rounds > 2
    assert found["b"].rounds > 2
    assert any("FAILED broken: I3" in line and "again 0" in line for line in bench.said)
    assert [child.was_discarded for child in bench.children[:3]] == [False, False, True]


def test_an_interrupted_soak_says_what_was_not_run() -> None:
    """Ctrl-C stops what runs, counts it as cut short, and leaves the rest as not run."""
    bench = Bench([part("a", 0.5), part("b", 0.5)], 100)
    bench.clock.interrupt_at = 7.5
    found = bench.run()
    assert not bench.finished
    assert (found["a"].state, found["a"].cut) == (State.STOPPED, 1)
    assert found["a"].failures == []
    assert bench.children[-1].was_interrupted
    assert (found["b"].state, found["b"].rounds) == (State.NOT_RUN, 0)
    said = page(reported(list(found.values()), interrupted=True))
    assert "The soak was interrupted. Left out by choice: x. Not run at all: b." in said
    assert "Cut short, so that only a part of it was run: a." in said


# --- the report and the command ---------------------------------------------------------------


def reported(tallies: list[Tally], *, interrupted: bool = False) -> dict[str, Any]:
    """Return the document of some tallies."""
    machine = {"system": "Linux x86_64", "cores": 2, "memory_gb": 4.0, "python": "CPython 3.11.7"}
    about = {"commit": "c0ffee", "machine": machine, "interrupted": interrupted, "left_out": ["x"]}
    began = datetime(2026, 5, 4, 3, 2, tzinfo=UTC)
    return document(tallies, began=began, hours=0.5, start=9, about=about)


def test_a_report_is_dated_and_listed(tmp_path: Path) -> None:
    """A page and its JSON, one more of the same day beside the first, and both in the list."""
    ran = Tally(part=part("a", 1), state=State.RAN, rounds=2, wall_seconds=12.34, cpu_seconds=23.45)
    ran.counts.update({"seeds": 1200})
    ran.failures.append(Failure(what="I3: lost", command="python -m it --seed 4"))
    (tmp_path / "README.md").write_text("# Soaks\n\nWhat.\n\n<!-- reports -->\nold\n<!-- end -->\n\nMore.\n")
    paths = [write(reported([ran]), tmp_path) for _ in range(2)]
    assert [path.name for path in paths] == ["2026-05-04.md", "2026-05-04-2.md"]
    said = paths[0].read_text()
    assert "**1 failed**, see below. Left out by choice: x." in said
    assert "| a | a | ran | 1,200 seeds | 1 | 23 | 12 |" in said
    assert "* a: I3: lost\n\n      python -m it --seed 4\n" in said
    kept = json.loads(paths[0].with_suffix(".json").read_text())
    assert kept["parts"][0]["failures"] == [{"what": "I3: lost", "command": "python -m it --seed 4"}]
    listed = (tmp_path / "README.md").read_text()
    assert listed.index("[2026-05-04-2](2026-05-04-2.md)") < listed.index("[2026-05-04](2026-05-04.md)")
    assert "| 0.5 | c0ffee | 1,200 seeds | 1 |" in listed
    assert "What." in listed
    assert "More." in listed
    assert "old" not in listed


@pytest.mark.parametrize(("code", "expected"), [("pass", 0), ("raise SystemExit(3)", 1)])
def test_the_command_exits_with_1_if_anything_failed(
    code: str,
    expected: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The exit code, the report and what is left of outputs follow from what the rounds came to."""
    rounds = [Round(arguments=("-I", "-S", "-c", code), about="one")]
    only = part("only", 1, rounds=lambda start: iter(rounds))
    monkeypatch.setattr(command, "PARTS", (only,))
    monkeypatch.setattr(command, "ROOT", tmp_path)
    monkeypatch.setattr(command, "OUTPUTS", tmp_path / ".soak")
    monkeypatch.setattr(command, "hear_interrupts", lambda: None)
    assert command.main(["--hours", "0.1", "--reports", str(tmp_path / "reports")]) == expected
    assert len(list((tmp_path / "reports").glob("2*.json"))) == 1
    assert len(list((tmp_path / ".soak").iterdir())) == expected
    said = capsys.readouterr().out
    assert ("what failed printed .soak/" in said) == bool(expected)
    for path in (tmp_path / "reports").iterdir():
        assert str(tmp_path) not in path.read_text()


def test_without_hours_the_parts_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """Who gives no hours is told what a soak does, part by part, and nothing is run."""
    assert command.main([]) == 0
    said = capsys.readouterr().out
    assert all(f"{one.name} " in said and one.title in said for one in PARTS)


@pytest.mark.parametrize("arguments", [["--hours", "0"], ["--hours", "-1"], ["--hours", "1", "nothing"]])
def test_arguments_that_mean_nothing_are_refused(arguments: list[str]) -> None:
    """No time, and parts that do not exist, are a matter of usage."""
    with pytest.raises(SystemExit) as ended:
        command.main(arguments)
    assert ended.value.code == 2


def test_the_parts_divide_the_time() -> None:
    """Shares come to one whole and are those of the page; every part has something to run from any seed."""
    assert sum(one.share for one in PARTS) == pytest.approx(1)
    assert len({one.name for one in PARTS}) == len(PARTS)
    for one in PARTS:
        assert f"| `{one.name}` | {one.share:.0%}".replace("%", " %") in RELIABILITY.read_text()
        first = next(one.rounds(2**31))
        assert first.arguments[0] == "-m"
        assert first.about
