"""The soak: every part has its time, a failure is named and the rest goes on, what was not run is said."""

from __future__ import annotations

import itertools
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from fix_soak import Bench, FakeChild, counted, endless, part, reported
from soak import __main__ as command
from soak.parts import PARTS
from soak.records import Failure, Part, Round, Seen, State, Tally
from soak.report import commit, page, write

RELIABILITY = Path(__file__).parents[2] / "docs" / "reliability.md"


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


def test_a_round_that_hangs_is_a_failure_and_the_soak_goes_on() -> None:
    """A round beyond its part's share and a grace is stopped and named; the other parts are run."""
    bench = Bench([part("a", 0.5), part("b", 0.5)], 2000, takes={"a": 10**6, "b": 100})
    found = bench.run()
    failed = found["a"].failures[0]
    assert failed == Failure(what="did not end within 1,300 seconds", command="python -m it 0")
    assert found["b"].counts["rounds"] >= 7
    assert not bench.children[0].was_discarded


def test_a_failure_of_a_round_that_is_cut_is_counted() -> None:
    """What a cut round printed before is read: its failure is named and its log stays."""
    bench = Bench([part("a", 1)], 100, takes={"a": 1000}, ends={("a", "0"): (0, "broken: I3")})
    found = bench.run()
    assert (found["a"].cut, [failure.what for failure in found["a"].failures]) == (1, ["broken: I3"])
    assert not bench.children[0].was_discarded


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (IndexError("list"), "its output cannot be read"),
        (json.JSONDecodeError("no", "{", 0), "its output cannot be read"),
        (FileNotFoundError(2, "log"), "its log cannot be read"),
    ],
)
def test_what_cannot_be_read_is_the_failure_of_its_round(error: Exception, what: str) -> None:
    """The next round and the next part are run, and the log is kept."""

    def read(output: str, ran: Round) -> Seen:
        if ran.about == "1":
            raise error
        return counted(output, ran)

    bench = Bench([part("a", 0.5, read=read), part("b", 0.5)], 20)
    found = bench.run()
    assert found["a"].failures == [Failure(what=what, command="python -m it 1")]
    assert found["a"].rounds > 2
    assert found["b"].rounds > 2
    assert not bench.children[1].was_discarded


def test_a_round_that_cannot_begin_is_a_failure_of_its_part() -> None:
    """Without room for a log a part ends with one failure, and the others are run."""
    bench = Bench([part("a", 0.5), part("b", 0.5)], 20)
    begin = bench.soak.begin

    def full(of: Part, ran: Round) -> Any:
        if of.name == "a":
            raise OSError(28, "no room")
        return begin(of, ran)

    bench.soak.begin = full
    found = bench.run()
    assert [failure.what for failure in found["a"].failures] == ["could not be begun (OSError)"]
    assert found["b"].rounds > 2


def test_a_log_that_cannot_be_removed_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clearing up fails nothing."""

    def discard(child: FakeChild) -> None:
        raise PermissionError(13, "log")

    monkeypatch.setattr(FakeChild, "discard", discard)
    found = Bench([part("a", 1)], 5).run()
    assert found["a"].rounds > 2
    assert found["a"].failures == []


def test_a_part_that_counted_nothing_is_no_success() -> None:
    """It is named, as are tests that were skipped; one that was merely cut short is said to be so."""
    nothing = part("a", 0.5, read=lambda output, ran: Seen(counts={"seeds": 0, "tests skipped": 3}))
    found = Bench([nothing, part("b", 0.5)], 20).run()
    document = reported(list(found.values()))
    assert document["counted_nothing"] == ["a"]
    assert "**Counted nothing**, which is no success: a. Tests that were skipped:" in page(document)
    cut = Bench([nothing], 20, takes={"a": 100}).run()
    assert reported(list(cut.values()))["counted_nothing"] == []


# --- the report and the command ---------------------------------------------------------------


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


def test_a_report_that_cannot_be_read_does_not_stop_the_list(tmp_path: Path) -> None:
    """A soak that was killed leaves half a file: it is named, and the others are listed."""
    (tmp_path / "2026-05-03.json").write_text('{"date": "2026-0')
    write(reported([]), tmp_path)
    listed = (tmp_path / "README.md").read_text()
    assert "[2026-05-04](2026-05-04.md)" in listed
    assert "Left out, since they cannot be read: 2026-05-03.json." in listed


def test_a_report_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ends while it writes leaves no half of a report under its name, and no list that names it."""
    write(reported([]), tmp_path)
    before = (tmp_path / "README.md").read_text()
    written = Path.write_text

    def half(path: Path, text: str) -> int:
        written(path, text[: len(text) // 2])
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_text", half)
    with pytest.raises(KeyboardInterrupt):
        write(reported([]), tmp_path)
    assert [path.name for path in tmp_path.glob("*.json")] == ["2026-05-04.json"]
    assert (tmp_path / "README.md").read_text() == before


def test_two_soaks_that_end_together_keep_both_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name is taken by making its file, so that nobody who looked at the same moment takes it too."""
    (tmp_path / "2026-05-04.md").write_text("the other's")
    monkeypatch.setattr(Path, "exists", lambda path: False)
    assert write(reported([]), tmp_path).name == "2026-05-04-2.md"
    assert (tmp_path / "2026-05-04.md").read_text() == "the other's"


def test_files_that_git_does_not_know_are_changes(tmp_path: Path) -> None:
    """A new file can be what is tried, so the commit alone would be a lie."""
    user = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for words in (("init", "-q"), (*user, "commit", "-q", "--allow-empty", "-m", "first")):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    assert not commit(tmp_path).endswith("with changes")
    (tmp_path / "new.py").write_text("")
    assert commit(tmp_path).endswith(" with changes")


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
