"""What is mutated and what has to be covered is there, and whoever survives is explained by what is there."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from mutants import __main__ as command
from mutants.making import (
    ROOT,
    Change,
    Target,
    changes_of,
    digest_of_test,
    files_below,
    functions_of,
    plain,
    read_targets,
)

COVERED = tomllib.loads((ROOT / "tests/covered.toml").read_text())["tool"]["coverage"]
COVERING = (ROOT / "tests/covering.txt").read_text().split()
TARGET = Target(modules=[], tests=[])
SURVIVOR = Change("custody_sync.x.f", "return 1", "return 2")


def is_there(test: str) -> bool:
    """Tell whether a file, or a test in it, exists."""
    path, _, name = test.partition("::")
    return (ROOT / path).is_file() and f"def {name.partition('[')[0]}" in (ROOT / path).read_text()


def test_what_is_mutated_is_there_and_covered() -> None:
    """Each target names modules and tests of this tree; what is mutated is covered to the last branch."""
    assert not read_targets()["rules"].get("is_open")
    for target in read_targets().values():
        assert all(is_there(test) for test in target["tests"])
        named = {module.replace("custody_sync/repair/", "repair/") for module in target["modules"]}
        assert named <= set(COVERED["run"]["include"])


def test_what_has_to_be_covered_is_there() -> None:
    """A file that was renamed is not left out in silence, and nothing less than all of it will do."""
    assert all((ROOT / path).is_file() for path in COVERED["run"]["include"])
    assert all(is_there(test) for test in COVERING)
    assert (COVERED["run"]["branch"], COVERED["report"]["fail_under"]) == (True, 100)


def written_anew(function: str) -> str:
    """Return the source of a function in the form in which survivors are told."""
    parts = function.split(".")
    cut = next(n for n in range(len(parts), 0, -1) if (ROOT / f"{'/'.join(parts[:n])}.py").is_file())
    module = ast.parse((ROOT / f"{'/'.join(parts[:cut])}.py").read_text())
    body: list[ast.stmt] = module.body
    for name in parts[cut:-1]:
        body = next(node.body for node in body if isinstance(node, ast.ClassDef) and node.name == name)
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return ast.unparse(next(node for node in body if isinstance(node, kinds) and node.name == parts[-1]))


@pytest.mark.parametrize("change", command.read_explained(), ids=str)
def test_an_explained_survivor_is_of_the_code_as_it_is(change: Change) -> None:
    """Its line is still there, it changes something, and somebody says why no test can tell."""
    lines = [line.strip() for line in written_anew(change.function).splitlines()]
    assert set(change.before.splitlines()) <= set(lines)
    assert change.before != change.after
    assert len(command.read_explained()[change]) > 20


# --- the command -----------------------------------------------------------------------------


def counts(*unexplained: Change) -> command.Counts:
    """Return counts of ten mutants."""
    return command.Counts(mutants=10, killed=8, explained=2 - len(unexplained), unexplained=[*unexplained])


@pytest.mark.parametrize(("survivors", "code"), [((), 0), ((SURVIVOR,), 1)])
def test_a_survivor_that_is_not_explained_fails_the_command(
    survivors: tuple[Change, ...],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is shown with its lines, and the counts are in the file that the environment names."""
    monkeypatch.setattr(command, "try_target", lambda *_, **__: counts(*survivors))
    monkeypatch.setattr(command, "read_targets", lambda: {"rules": TARGET, "sweep": TARGET})
    monkeypatch.setattr("os.nice", lambda _: 0)
    monkeypatch.setenv("CUSTODY_SYNC_MUTANTS_REPORT", str(tmp_path / "report.json"))
    monkeypatch.chdir(ROOT)
    assert command.main(["rules"]) == code
    said = capsys.readouterr().out
    assert "rules: 10 mutants, 8 killed (80.0 %)" in said
    assert ("+ return 2" in said) is bool(survivors)
    told = json.loads((tmp_path / "report.json").read_text())
    assert told.keys() == {"rules"}
    assert (told["rules"]["mutants"], told["rules"]["killed"], told["rules"]["share"]) == (10, 8, 80.0)
    assert [one["after"] for one in told["rules"]["unexplained"]] == [one.after for one in survivors]
    monkeypatch.setattr(command, "read_targets", lambda: {"rules": {**TARGET, "is_open": True}})
    assert command.main(["rules"]) == 0, "nobody has gone through its survivors yet"
    with pytest.raises(SystemExit):
        command.main(["none"])


def test_what_is_known_is_known_as_long_as_what_it_was_seen_by_is_the_same(tmp_path: Path) -> None:
    """A kill is of its function and of its test's file; what lives may fall to a test that came since."""
    path, test = tmp_path / "ends.jsonl", tmp_path / "tests/test_it.py"
    test.parent.mkdir()
    test.write_text("def test_it(): assert False")
    by = {"by": "tests/test_it.py::test_it", "test": digest_of_test(tmp_path, "tests/test_it.py::test_it")}
    lines = [
        {"key": "a", "function": "1", "tree": "old", "end": "killed", **by},
        {"key": "b", "function": "0", "tree": "old", "end": "killed", **by},
        {"key": "c", "function": "1", "tree": "old", "end": "alive"},
        {"key": "d", "function": "1", "tree": "new", "end": "untested"},
        {"key": "e", "function": "1", "tree": "new", "end": "killed", "by": ""},
        {"key": "f", "function": "1", "tree": "new", "end": "not tried", "by": ""},
        {"key": "g", "function": "1", "tree": "old", "end": "endless", "by": ""},
        {"key": "c", "function": "1", "tree": "new", "end": "endless"},
    ]
    mutants = dict.fromkeys("abcdefg", "1")
    assert command.read_ends(path, mutants, "new") == {}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert command.read_ends(path, mutants, "new") == {"a": "killed", "c": "endless", "d": "untested"}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines[:-1]))
    assert command.read_ends(path, mutants, "new") == {"a": "killed", "d": "untested"}
    test.write_text("def test_it(): ...")
    assert command.read_ends(path, mutants, "new") == {"d": "untested"}
    test.unlink()
    assert command.read_ends(path, mutants, "new") == {"d": "untested"}


def test_what_was_not_tried_is_not_counted_as_killed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """It is counted by itself and fails the command, and what an earlier run knew is told apart."""
    of_a_test = {"by": "t.py::t", "test": ""}
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules/t.py").write_text("def t(): ...")
    of_a_test["test"] = digest_of_test(tmp_path / "rules", "t.py::t")

    def run_tests(folder: Path, target: Target, work: Path) -> int:
        tried = {"b": ("killed", of_a_test), "c": ("not tried", {})}
        assert json.loads(work.read_text())["mutants"].keys() == tried.keys()
        with (folder / "ends.jsonl").open("a") as file:
            for key, (end, more) in tried.items():
                line = {"key": key, "function": "1", "tree": "new", "end": end, **more}
                file.write(json.dumps(line) + "\n")
        return 0

    line = {"key": "a", "function": "1", "tree": "old", "end": "killed", **of_a_test}
    (tmp_path / "rules/ends.jsonl").write_text(json.dumps(line) + "\n")
    for name, value in {
        "WORK": tmp_path,
        "make": lambda *_: dict.fromkeys("abc", "1"),
        "digest_of": lambda _: "new",
        "run_tests": run_tests,
    }.items():
        monkeypatch.setattr(command, name, value)
    found = command.try_target("rules", TARGET, children=1)
    assert (found.mutants, found.killed, found.not_tried, found.tried, found.known) == (3, 2, 1, 1, 1)
    command.tell("rules", found)
    assert "0 endless, 1 not tried; 1 tried now, 1 known from before" in capsys.readouterr().out
    monkeypatch.setattr(command, "try_target", lambda *_, **__: found)
    monkeypatch.setattr(command, "read_targets", lambda: {"rules": TARGET})
    monkeypatch.setattr("os.nice", lambda _: 0)
    monkeypatch.chdir(ROOT)
    assert command.main(["rules"]) == 1


ENDS = """
import json, os, signal, sys, types
from pathlib import Path
for name in ("mutmut", "mutmut.mutation", "mutmut.mutation.trampoline"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["mutmut.mutation"].trampoline = sys.modules["mutmut.mutation.trampoline"]
sys.modules["mutmut.mutation.trampoline"].set_mutant_under_test = lambda key: None
from mutants.trying import Trying

def full(trying):
    raise OSError(28, "no space left")

def endless(trying):
    while True:
        pass

ways = {
    "passes": lambda trying: None,
    "fails": lambda trying: trying.failed.append("t.py::t"),
    "goes wrong": full,
    "has no room": lambda trying: None,
    "killed from outside": lambda trying: os.kill(os.getpid(), signal.SIGKILL),
    "interrupted": lambda trying: os.kill(os.getpid(), signal.SIGINT),
    "told that its time is up": lambda trying: os.kill(os.getpid(), signal.SIGXCPU),
    "uses up its time": endless,
}
ends = Path(sys.argv[1]) / "ends.jsonl"
session = types.SimpleNamespace(items=[types.SimpleNamespace(nodeid="t.py::t")])
for way, act in ways.items():
    trying = Trying(session, {"children": 1, "mutants": {way: "1"}, "tree": "new", "ends": str(ends)})
    trying.took, trying.came_through = {"t.py::t": 0.0}, {"": {"t.py::t"}}
    trying._limit = lambda tests, way=way: 1 if way == "uses up its time" else 20
    trying._run = lambda item, trying=trying, act=act: act(trying)
    if way == "has no room":
        room, parent = trying._room, os.getpid()
        trying._room = lambda pid: room(pid) if os.getpid() == parent else full(trying)
    trying._begin(way)
    trying._wait()
"""


def test_only_a_test_that_failed_has_killed_a_mutant(tmp_path: Path) -> None:
    """Whoever ends by a signal from elsewhere, or by an error of the trying, has not been tried."""
    # In a process of its own, for it forks.
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    (tmp_path / "t.py").write_text("def t(): ...")
    command_line = [sys.executable, "-c", ENDS, str(tmp_path)]
    done = subprocess.run(command_line, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "ends.jsonl").read_text().splitlines()]
    assert {line["key"]: line["end"] for line in lines} == {
        "passes": "alive",
        "fails": "killed",
        "goes wrong": "not tried",
        "has no room": "not tried",
        "killed from outside": "not tried",
        "interrupted": "not tried",
        "told that its time is up": "not tried",
        "uses up its time": "endless",
    }
    assert [(line["by"], line["test"]) for line in lines if line["end"] == "killed"] == [
        ("t.py::t", digest_of_test(tmp_path, "t.py::t"))
    ]


def test_what_a_mutant_changed_is_told_by_its_lines(tmp_path: Path) -> None:
    """Of a method by its class, and without whatever stayed the same."""
    (tmp_path / "one.py").write_text(
        "class A:\n"
        "    def xǁAǁf__mutmut_orig(self):\n        a = 1\n        return a + 1\n"
        "    def xǁAǁf__mutmut_1(self):\n        a = 1\n        return a - 1\n"
        "def x_g__mutmut_orig():\n    return (\n        0\n    )\n"
        "def x_g__mutmut_1():\n    return 1\n"
    )
    keys = ["one.xǁAǁf__mutmut_1", "one.x_g__mutmut_1"]
    assert list(changes_of(tmp_path, keys).values()) == [
        Change("one.A.f", "return a + 1", "return a - 1"),
        Change("one.g", "return 0", "return 1"),
    ]
    assert plain("x_g__mutmut_12") == "g"
    assert set(functions_of("def f(): ...\nclass A:\n    async def g(self): ...")) == {"f", "g"}


def test_a_copy_has_folders_where_the_tree_has_links() -> None:
    """A module is known by its path, and nothing compiled is copied."""
    names = {path.relative_to(ROOT).as_posix() for path in files_below(ROOT / "custody_sync")}
    assert {"custody_sync/repair/sweep.py", "custody_sync/adapters/mem0.py"} <= names
    assert not any("__pycache__" in name for name in names)
